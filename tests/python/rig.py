# SPDX-License-Identifier: Apache-2.0
# rig.py - shared by the tests of the package: seeded tensors, DLPack capsules, expected errors.
import ctypes
import contextlib

import numpy
import pytest

import deltawire
from deltawire._library import ffi

BITS = {"f32": numpy.uint32, "f16": numpy.uint16, "bf16": numpy.uint16}
FLOAT, BFLOAT, INT, UINT = 2, 4, 0, 1
CPU, CUDA, PINNED = 1, 2, 3

_new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", ctypes.pythonapi))


def normal(shape, seed=1, dtype=numpy.float32):
    return numpy.random.default_rng(seed).standard_normal(shape, dtype=numpy.float32).astype(dtype)


def bits(tensor):
    """The bits of the values of a deltawire.Tensor or an array, as integers."""
    if isinstance(tensor, deltawire.Tensor):
        flat = numpy.frombuffer(tensor.memoryview().cast("B"), dtype=BITS[tensor.dtype])
        return flat.reshape(tensor.shape)
    return tensor.view({4: numpy.uint32, 2: numpy.uint16}[tensor.itemsize])


def same(one, other):
    one, other = bits(one), bits(other)
    return one.shape == other.shape and bool((one == other).all())


class Exporter:
    """An object that supports DLPack only and exports the memory of an array.

    device: the device that it claims to be on. knows: whether __dlpack__ accepts max_version."""

    def __init__(self, array, *, code=FLOAT, device=(CPU, 0), flags=0, major=1, knows=True):
        self.array, self.code, self.device = array, code, device
        self.flags, self.major, self.knows = flags, major, knows
        self.taken, self.kept, self.address = 0, None, array.ctypes.data

    def __dlpack__(self, **asked):
        if "max_version" in asked and not self.knows:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        self.taken += 1
        array, versioned = self.array, bool(asked.get("max_version"))
        kind = "dw_dl_versioned" if versioned else "dw_dl_managed"
        shape = ffi.new("int64_t[]", list(array.shape))
        strides = ffi.new("int64_t[]", [step // array.itemsize for step in array.strides])
        made = ffi.new(kind + " *")
        if versioned:
            made.major, made.minor, made.flags = self.major, 0, self.flags
        tensor = made.tensor
        tensor.data = ffi.cast("void *", self.address)
        tensor.device_type, tensor.device_id = self.device
        tensor.ndim, tensor.type_code, tensor.type_lanes = array.ndim, self.code, 1
        tensor.type_bits = array.itemsize * 8
        tensor.shape, tensor.strides = shape, strides
        self.kept = (made, shape, strides)
        name = NAMES[versioned]
        return _new_capsule(int(ffi.cast("uintptr_t", made)), name, None)

    def __dlpack_device__(self):
        return self.device


_TENSOR_FROM_OBJECT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)


def exchange_type(*, major=1, has_function=True):
    """Makes a subclass of Exporter that has a DLPackExchangeAPI, too.

    major: its major version. has_function: whether it has the function tensor_from_object. Objects
    count the calls of this function in `exchanged`. With `fails = True`, it fails."""

    def tensor_from_object(x, room):
        x.exchanged += 1
        if x.fails:
            return -1
        x.__dlpack__()
        x.taken -= 1
        ffi.cast("dw_dl_tensor *", room)[0] = x.kept[0].tensor
        return 0

    class Exchanger(Exporter):
        exchanged, fails, requires_grad = 0, False, False

    made = ffi.new("dw_dl_exchange *", {"major": major, "minor": 3})
    function = _TENSOR_FROM_OBJECT(tensor_from_object)
    if has_function:
        address = ctypes.cast(function, ctypes.c_void_p).value
        made.tensor_from_object = ffi.cast("int (*)(void *, dw_dl_tensor *)", address)
    Exchanger.kept_alive = (made, function)
    Exchanger.__dlpack_c_exchange_api__ = _new_capsule(
        int(ffi.cast("uintptr_t", made)), b"dlpack_exchange_api", None
    )
    return Exchanger


NAMES = {False: b"dltensor", True: b"dltensor_versioned"}


@contextlib.contextmanager
def refused(status, *words):
    """Expects a DeltawireError with this status and these words in its message."""
    with pytest.raises(deltawire.DeltawireError) as caught:
        yield caught
    error = caught.value
    assert error.status is deltawire.Status[status], error
    assert error.why and "\n" not in error.why
    for word in words:
        assert word in error.why, error.why


def refuses(call, status, *words):
    """Expects that call() raises such an error."""
    with refused(status, *words):
        call()


def pair(text="delta:bits=4", **options):
    return deltawire.Encoder(text, **options), deltawire.Decoder(text, **options)
