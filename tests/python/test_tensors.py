# SPDX-License-Identifier: Apache-2.0
# test_tensors.py - input and output tensors: DLPack capsules of both kinds, buffers, Tensor.
import array
import gc
import sys

import numpy
import pytest
from rig import BFLOAT, CUDA, INT, PINNED, UINT, Exporter
from rig import bits, exchange_type, normal, pair, refused, refuses, same

from deltawire import Decoder, Encoder, Tensor
from deltawire._library import ffi


def through(x, **options):
    encoder, decoder = pair("raw")
    return decoder.decode(encoder.encode(x, **options)).tensor


@pytest.mark.parametrize("knows", [True, False])
def test_capsules_of_both_kinds(knows):
    class Kind(Exporter):  # a new type, because View remembers for each type what it supports
        pass

    x = normal((2, 3, 64))
    for _ in range(2):
        exporter = Kind(x, knows=knows)
        assert same(through(exporter), x) and exporter.taken == 1
        assert sys.getrefcount(exporter) == 2  # released
    half = normal((2, 3, 64), 2).view(numpy.uint32) >> 16
    half = half.astype(numpy.uint16)
    y = through(Kind(half, code=BFLOAT, knows=knows))
    assert y.dtype == "bf16" and same(y, half)
    assert same(through(Kind(x, device=(PINNED, 0), knows=knows)), x)
    out, source = numpy.zeros_like(x), normal((2, 3, 64), 5)
    encoder, decoder = pair("raw")
    decoder.decode(encoder.encode(source), Kind(out, knows=knows))
    assert same(out, source)


def test_capsules_that_are_refused():
    x = normal((2, 3, 64))
    encoder, decoder = pair("raw")
    with refused("UNSUPPORTED", "x is on cuda:1", "main memory"):
        encoder.encode(Exporter(x, device=(CUDA, 1)))
    with refused("UNSUPPORTED", "out is on cuda:0"):
        decoder.decode(encoder.encode(x), Exporter(x, device=(CUDA, 0)))
    refuses(lambda: encoder.encode(Exporter(x, device=(12, 0))), "UNSUPPORTED", "device type 12")
    with refused("UNSUPPORTED", "neither f32, f16 nor bf16"):
        encoder.encode(Exporter(x, code=INT))
    refuses(lambda: encoder.encode(Exporter(x, major=2)), "UNSUPPORTED", "major version")
    frame = encoder.encode(Exporter(x, flags=1))  # an input may be read-only
    refuses(lambda: decoder.decode(frame, Exporter(x, flags=1)), "ARGUMENT", "read-only")
    assert same(decoder.decode(frame).tensor, x)

    class Odd:
        def __init__(self, gives):
            self.gives = gives

        def __dlpack__(self, **asked):
            if isinstance(self.gives, Exception):
                raise self.gives
            return self.gives

    for gives in (None, 5, "capsule"):
        refuses(lambda: encoder.encode(Odd(gives)), "ARGUMENT", "unused DLPack capsule")
    with refused("ARGUMENT", "cannot be exported", "requires grad"):
        encoder.encode(Odd(RuntimeError("it requires grad")))
    with refused("ARGUMENT", "cannot be exported", "no values"):
        encoder.encode(Odd(RuntimeError("no values\nbut much to say about it")))
    refuses(lambda: encoder.encode(Odd(TypeError("two"))), "ARGUMENT", "cannot be exported", "two")


def test_exchange_functions():
    x, y = normal((2, 3, 64)), numpy.zeros((2, 3, 64), numpy.float32)
    kind = exchange_type()
    given, out = kind(x), kind(y)
    encoder, decoder = pair("raw")
    decoder.decode(encoder.encode(given), out)
    assert same(y, x)
    assert (given.exchanged, given.taken, out.exchanged, out.taken) == (1, 0, 1, 0)
    assert sys.getrefcount(given) == 2  # no reference is left
    refuses(lambda: encoder.encode(kind(x, device=(CUDA, 1))), "UNSUPPORTED", "x is on cuda:1")


def test_exchange_functions_that_are_not_used():
    x = normal((2, 3, 64))

    def taken(given):
        assert same(through(given), x)
        return given.exchanged, given.taken

    kind = exchange_type()
    learns, fails = kind(x), kind(x)
    learns.requires_grad, fails.fails = True, True
    assert taken(learns) == (0, 1)  # __dlpack__ decides whether this is an error
    assert taken(fails) == (1, 1)
    assert taken(type("Derived", (kind,), {})(x)) == (0, 1)  # may store its values elsewhere
    assert taken(exchange_type(major=2)(x)) == (0, 1)
    assert taken(exchange_type(has_function=False)(x)) == (0, 1)


def test_arrays_of_many_shapes_and_steps():
    x = normal((4, 6, 2, 64))
    for view in (
        x,
        x[0],
        x[0, 0],
        x[0, 0, 0],
        x[::2],
        x[:, ::3, :1],
        x[:, :, :1],
        x[..., 8:40],
        x[1:3, 2:, 1:, 3:4],
    ):
        y = through(view)
        n = view.shape[0] if view.ndim > 2 else 1
        assert same(y, numpy.ascontiguousarray(view).reshape(n, -1, view.shape[-1]))
    for view in (x[..., ::2], x[:, ::3], x[:, ::-1], x.transpose(0, 2, 1, 3), x[:, :, :, ::-1]):
        refuses(lambda: through(view), "ARGUMENT", "x: ")
    for wrong in (x[:0], x.reshape(1, 4, 6, 2, 64), numpy.float32(3)):
        refuses(lambda: through(wrong), "ARGUMENT")


def test_buffers_without_dlpack():
    x = normal((2, 3, 32))
    readonly = x.copy()
    readonly.flags.writeable = False
    assert same(through(readonly), x)
    assert same(through(readonly[:, ::2]), numpy.ascontiguousarray(x[:, ::2]))
    assert same(through(memoryview(x)), x)
    assert same(through(memoryview(x)[1:]), x[1:])
    flat = array.array("f", range(12))
    assert through(flat).memoryview().tolist() == [[list(map(float, range(12)))]]
    out = array.array("f", [0.0] * 12)
    encoder, decoder = pair("raw")
    decoder.decode(encoder.encode(flat), out)
    assert out == flat
    half = memoryview(x.astype(numpy.float16))
    assert through(half).dtype == "f16"
    refuses(lambda: decoder.decode(encoder.encode(x), readonly), "ARGUMENT", "read-only")
    with refused("ARGUMENT", "read-only"):
        decoder.decode(encoder.encode(x), memoryview(bytes(768)).cast("f", (2, 3, 32)))
    for wrong in (x.astype(">f4"), x.astype(float), x.astype(int), bytearray(64), b"abcd"):
        refuses(lambda: encoder.encode(wrong), "UNSUPPORTED")
    odd = numpy.zeros(2, numpy.dtype([("a", "f4"), ("b", "i2")]))["a"]
    refuses(lambda: encoder.encode(odd), "ARGUMENT")
    for wrong in (None, 5, "text", [1.0, 2.0], object()):
        refuses(lambda: encoder.encode(wrong), "ARGUMENT", "not a tensor")


def test_a_buffer_is_held_while_it_is_used_and_no_longer():
    x = bytearray(normal((2, 64)).tobytes())
    view = memoryview(x).cast("f", (2, 64))
    Encoder("raw").encode(view)
    view.release()
    x.clear()  # raises BufferError if somebody still holds the buffer
    refuses(lambda: Encoder("raw").encode(view), "ARGUMENT")
    whole = array.array("d", [1.0] * 8)
    with refused("UNSUPPORTED", "x: its elements") as kept:
        Encoder("raw").encode(whole)
    whole.append(2.0)  # the same, although the traceback keeps the objects of the call alive
    frame = bytearray(b"no frame")
    with refused("FORMAT") as also_kept:
        Decoder("raw").decode(frame)
    frame.append(1)
    assert kept.value.__traceback__ and also_kept.value.__traceback__


def test_tensors_share_their_memory():
    y = through(normal((2, 3, 64)))
    shared = numpy.from_dlpack(y)
    assert shared.shape == (2, 3, 64) and shared.ctypes.data % 64 == 0
    y.memoryview()[1, 2, 3] = 5.0
    assert shared[1, 2, 3] == 5.0
    kept = shared[1:].copy()
    second, view = numpy.from_dlpack(y), y.memoryview()
    del y, shared
    gc.collect()
    for _ in range(50):  # would be given the same memory
        Tensor((2, 3, 64)).memoryview().cast("B")[:] = bytes(2 * 3 * 64 * 4)
    assert same(second[1:], kept) and view[1, 2, 3] == 5.0
    del second, view
    capsule = Tensor((1, 2, 3)).__dlpack__()  # taken by nobody
    assert "dltensor" in repr(capsule)
    del capsule
    capsule = Tensor((1, 2, 3), "bf16").__dlpack__(max_version=(1, 1), stream=None, copy=False)
    assert "dltensor_versioned" in repr(capsule)
    del capsule
    assert "dltensor_versioned" not in repr(Tensor((1, 2, 3)).__dlpack__(max_version=(0, 8)))
    half = numpy.from_dlpack(Tensor((1, 2, 3), "f16"))
    assert half.dtype == numpy.float16 and half.strides == (12, 6, 2)


def test_a_result_can_be_encoded():
    y = through(normal((2, 3, 64)))
    for dtype in ("f32", "f16", "bf16"):
        encoder, decoder = pair("raw")
        first = decoder.decode(encoder.encode(y), dtype=dtype).tensor
        again = Tensor((2, 3, 64), dtype)
        decoder.decode(encoder.encode(first), again)
        assert same(first, again) and again.dtype == dtype
    assert y.__dlpack_device__() == (1, 0)
    assert repr(Tensor((4, 5), "bf16")) == "Tensor(shape=(1, 4, 5), dtype='bf16')"
    assert Tensor((4, 5), "bf16").nbytes == 40 and Tensor((2, 3, 4, 5)).shape == (2, 12, 5)
    assert Tensor((2, 3), "bf16").memoryview().format == "H"
    for options in ({"stream": 1}, {"dl_device": (2, 0)}, {"copy": True}):
        with pytest.raises(BufferError):
            y.__dlpack__(**options)


def test_wrapped_memory():
    raw = normal((2, 3, 64)).view(numpy.uint32) >> 16
    raw = raw.astype(numpy.uint16)
    y = through(Tensor.wrap(raw, "bf16"))
    assert y.dtype == "bf16" and same(y, raw)
    flat = bytearray(2 * 3 * 64 * 4)
    out = Tensor.wrap(flat, "f32", (2, 3, 64))
    encoder, decoder = pair("raw")
    decoder.decode(encoder.encode(normal((2, 3, 64))), out)
    assert (
        numpy.frombuffer(flat, numpy.float32).reshape(2, 3, 64).tolist()
        == bits(out).view(numpy.float32).tolist()
    )
    with pytest.raises(BufferError):
        out.__dlpack__()
    refuses(lambda: Tensor.wrap(b"1234", "f32", (1,)), "ARGUMENT", "written")
    refuses(lambda: Tensor.wrap(bytearray(4), "f32", (2,)), "ARGUMENT", "takes 8 bytes")
    refuses(lambda: Tensor.wrap(memoryview(bytearray(9))[1:5], "f32", (1,)), "ARGUMENT", "aligned")
    refuses(lambda: Tensor.wrap(raw[:, ::2], "bf16"), "ARGUMENT")
    refuses(lambda: Tensor.wrap(raw, "f64"), "ARGUMENT", "dtype")


def test_frames_as_tensors_of_bytes():
    encoder, decoder = pair("raw")
    x = normal((2, 3, 64))
    room = numpy.zeros(encoder.bound(x), numpy.uint8)

    class Bytes(Exporter):
        def __getitem__(self, part):
            return Bytes(self.array[part], code=self.code)

    frame = encoder.encode(x, out=Bytes(room, code=UINT))
    assert type(frame) is Bytes and same(decoder.decode(frame).tensor, x)
    frame = encoder.encode(x, out=Bytes(room.view(numpy.int8), code=INT))
    assert same(decoder.decode(frame).tensor, x)
    refuses(lambda: decoder.decode(Bytes(x, code=2)), "ARGUMENT", "something else than bytes")
    with refused("ARGUMENT", "2 dimensions"):
        decoder.decode(Bytes(room.reshape(2, -1), code=UINT))
    refuses(lambda: decoder.decode(Bytes(room[::2], code=UINT)), "ARGUMENT", "gaps")
    with refused("UNSUPPORTED", "main memory"):
        decoder.decode(Bytes(room, code=UINT, device=(CUDA, 0)))
    refuses(lambda: encoder.encode(x, out=Bytes(room, code=UINT, flags=1)), "ARGUMENT", "read-only")
    refuses(lambda: decoder.decode(Bytes(room, code=UINT, major=2)), "ARGUMENT", "major version")
    for wrong in (None, 5, "text", [1, 2]):
        refuses(lambda: decoder.decode(wrong), "ARGUMENT", "holds no bytes")


def test_too_little_memory_is_an_error():
    refuses(lambda: Tensor((2**31, 2**20, 4)), "NO_MEMORY", "bytes")
    assert ffi.sizeof("dw_tensor") > 0
