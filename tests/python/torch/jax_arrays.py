# SPDX-License-Identifier: Apache-2.0
# jax_arrays.py - tests of jax arrays in main memory as tensors and ids, and results as jax arrays.
import os

import numpy
import pytest

import deltawire
from deltawire._library import ffi

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax  # noqa: E402 (the variable must be set before)
from jax import numpy as jnp  # noqa: E402

DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def normal(dtype, seed=1):
    drawn = numpy.random.default_rng(seed).standard_normal((3, 4, 64), dtype=numpy.float32)
    return jnp.asarray(drawn, dtype=DTYPES[dtype])


def bits(array):
    return numpy.asarray(array).view({4: numpy.uint32, 2: numpy.uint16}[array.dtype.itemsize])


def as_tensor(array, dtype):
    """The same values in memory that numpy allocated."""
    return deltawire.Tensor.wrap(bits(array).copy(), dtype, array.shape)


@pytest.mark.parametrize("dtype", DTYPES)
def test_frames_of_jax_arrays_are_those_of_their_values(dtype):
    config = "delta:bits=4,incarnation=7"
    ours, others = deltawire.Encoder(config), deltawire.Encoder(config)
    decoder = deltawire.Decoder(config)
    for seed in (1, 2):
        x = normal(dtype, seed)
        before = bits(x).copy()
        frame = ours.encode(x, [1, 2, 3])
        assert frame == others.encode(as_tensor(x, dtype), [1, 2, 3])
        assert (bits(x) == before).all()
        y = jnp.from_dlpack(decoder.decode(frame).tensor)
        assert y.dtype == x.dtype and y.shape == x.shape
        error = jnp.abs(y.astype("float32") - x.astype("float32"))
        assert 0 < float(error.max()) < 0.5


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_share_their_memory_with_jax(dtype):
    x = normal(dtype)
    config = {"f32": "raw:f32", "f16": "raw:f16", "bf16": "raw:bf16"}[dtype]
    made = deltawire.Decoder(config).decode(deltawire.Encoder(config).encode(x)).tensor
    y = jnp.from_dlpack(made)
    assert y.unsafe_buffer_pointer() == int(ffi.cast("uintptr_t", made._view.data))
    del made
    assert (bits(y) == bits(x)).all()


def test_ids_and_frames_may_be_jax_arrays():
    encoder, decoder = deltawire.Encoder("delta:bits=4"), deltawire.Decoder("delta:bits=4")
    frame = encoder.encode(normal("f32"), jnp.asarray([5, 6, 7]))
    assert decoder.decode(jnp.asarray(numpy.frombuffer(frame, numpy.uint8))).ids == [5, 6, 7]


def test_arrays_without_values_are_refused():
    def step(x):
        deltawire.Encoder("raw:f32").encode(x)
        return x

    with pytest.raises(deltawire.DeltawireError) as caught:
        jax.jit(step)(normal("f32"))
    assert caught.value.status is deltawire.Status.ARGUMENT
    assert "\n" not in caught.value.why  # jax's own message has several lines


def test_other_dtypes_are_refused():
    for dtype in ("int32", "float8_e4m3fn"):
        with pytest.raises(deltawire.DeltawireError) as caught:
            deltawire.Encoder("raw:f32").encode(jnp.ones((3, 4, 64), dtype=dtype))
        assert caught.value.status is deltawire.Status.UNSUPPORTED
