# SPDX-License-Identifier: Apache-2.0
# views.py - View: access to tensors of other frameworks, by DLPack or the buffer protocol.
from __future__ import annotations

import ctypes
import sys
from typing import Any, Optional

from deltawire._library import core, ffi, locked, native
from deltawire.device import Stream
from deltawire.errors import UNSUPPORTED, check, fail, line_of, new_why, refuse
from deltawire.tensor import BYTES, CPU, NAMES, Tensor, dtype_number, extents_of

CUDA, CUDA_MANAGED = 2, 13  # managed memory can be reached from all devices
HOST = (CPU, 3, 11)  # main memory, and main memory pinned by CUDA and by ROCm
DEVICES = {CUDA: "cuda", 10: "rocm", 8: "metal", 7: "vulkan", 4: "opencl", 14: "oneapi"}
VERSIONED, WRITES, ROWS = (
    core.DW_DLPACK_VERSIONED,
    core.DW_DLPACK_WRITES,
    core.DW_DLPACK_ROWS_ARE_SAMPLES,
)

_api = ctypes.pythonapi
_view_of = locked.dw_capsule_view
_view_of.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_uint, ctypes.c_void_p)
_exchange_view = locked.dw_exchange_view
_exchange_view.argtypes = (
    *(ctypes.c_void_p, ctypes.c_void_p),
    *(ctypes.py_object, ctypes.c_uint, ctypes.c_void_p),
)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api)
)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)


class _Buffer(ctypes.Structure):
    """The struct Py_buffer of Python's C interface."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


_get_buffer = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int
)(("PyObject_GetBuffer", _api))
_end_buffer = ctypes.PYFUNCTYPE(None, ctypes.POINTER(_Buffer))(("PyBuffer_Release", _api))
_STRIDED = 0x0018 | 0x0004  # PyBUF_STRIDES | PyBUF_FORMAT
ORDER = sys.byteorder
_FLOATS = {"f": (2, 32), "d": (2, 64), "e": (2, 16)}

# For each type: whether its __dlpack__ accepts max_version, as the first call has shown.
_knows_versions: "dict[type, bool]" = {}


def capsule_of(x: Any, **asked: Any) -> Any:
    """Returns the DLPack capsule of x, a versioned one if its type supports that.

    asked: more arguments of x.__dlpack__. Errors: whatever it raises."""
    kind = type(x)
    knows = _knows_versions.get(kind)
    if knows is not False:
        try:
            capsule = x.__dlpack__(max_version=(1, 0), **asked)
        except TypeError:
            if knows:
                raise
        else:
            _knows_versions[kind] = True
            return capsule
    capsule = x.__dlpack__(**asked)
    _knows_versions[kind] = False
    return capsule


# For each type: the address of its DLPackExchangeAPI, or 0 if it has none.
_exchanges: "dict[type, int]" = {}


def _find_exchange(kind: type) -> int:
    """Returns the address of a type's DLPackExchangeAPI, or 0. One that is inherited is not used,
    because a subclass may store its values elsewhere."""
    capsule = kind.__dict__.get("__dlpack_c_exchange_api__")
    name = b"dlpack_exchange_api"
    found = _pointer(capsule, name) if capsule is not None and _is_valid(capsule, name) else 0
    _exchanges[kind] = found
    return found


def managed_of(capsule: Any) -> "tuple[Any, int]":
    """Returns a pointer to the managed tensor in a capsule, and VERSIONED or 0. The capsule goes on
    owning it."""
    if _is_valid(capsule, b"dltensor"):
        return ffi.cast("void *", _pointer(capsule, b"dltensor")), 0
    if _is_valid(capsule, b"dltensor_versioned"):
        return ffi.cast("void *", _pointer(capsule, b"dltensor_versioned")), VERSIONED
    refuse("__dlpack__ must return an unused DLPack capsule")


def has_buffer(x: Any) -> bool:
    try:
        memoryview(x).release()
    except (TypeError, BufferError, ValueError):
        return False
    return True


def _device_text(kind: int, number: int) -> str:
    return f"{DEVICES.get(kind, f'device type {kind}')}:{number}"


def _place_text(kind: int, number: int) -> str:
    return "in main memory" if kind in HOST else f"on {_device_text(kind, number)}"


class View:
    """The memory for the view of one tensor. Encoders and decoders use it again for every call.

    stream: None for tensors in main memory; or the Stream that will work with tensors on its GPU.
    tensor: the dw_tensor *, valid from take to drop.
    """

    __slots__ = ("name", "stream", "_view", "_why", "_at", "_inside", "tensor", "_kept", "_buffer")

    def __init__(self, name: str, stream: Optional[Stream] = None) -> None:
        self.name, self.stream = name, stream
        self._view = ffi.new("dw_dlpack_view *")
        self._why = new_why()
        self._inside = ffi.addressof(self._view, "tensor")
        self._at = [int(ffi.cast("uintptr_t", p)) for p in (self._view, self._why)]
        self.tensor: Any = ffi.NULL
        self._kept: Any = None
        self._buffer: Any = None

    def take(self, x: Any, flags: int) -> Any:
        """Makes a view of x and returns its dw_tensor *. flags: WRITES, ROWS."""
        if self.stream is not None:
            self._take_on_device(x, flags)
            self.tensor = self._inside
            return self._inside
        if type(x) is Tensor:
            self._kept = x
            self.tensor = x._view
            return x._view
        self.take_anywhere(x, flags)
        view = self._view
        if view.device_type not in HOST:
            device = _device_text(view.device_type, view.device_id)
            self.drop()
            remedy = "copy it there first" + self._other_remedy(device)
            fail(UNSUPPORTED, f"{self.name} is on {device}, but must be in main memory: {remedy}")
        self.tensor = self._inside
        return self._inside

    def _other_remedy(self, device: str) -> str:
        is_cuda = device.startswith("cuda:")
        return f', or make the encoder or decoder with device="{device}"' if is_cuda else ""

    def take_anywhere(self, x: Any, flags: int) -> Any:
        """Like take, but x may be on any device, and may not be a Tensor of this package. It does
        not wait for work on x."""
        kind = type(x)
        exchange = _exchanges.get(kind)
        if exchange is None:
            exchange = _find_exchange(kind)
        if exchange and self._take_exchange(exchange, x, flags):
            pass
        elif hasattr(x, "__dlpack__"):
            self._take_dlpack(x, flags)
        else:
            self._take_buffer(x, flags)
        return self._inside

    def drop(self) -> None:
        """Releases x at once, even while a traceback keeps this object alive."""
        self._kept = None
        if self._buffer is not None:
            self._buffer.release()
            self._buffer = None

    def _take_exchange(self, exchange: int, x: Any, flags: int) -> bool:
        """Makes the view without a capsule. Returns False if this is not possible; then __dlpack__
        must be called, which may raise an error with a better message.

        The caller must keep x while the view is used. The exchange functions do not check
        requires_grad, so __dlpack__ decides about such tensors."""
        if getattr(x, "requires_grad", False):
            return False
        view, why = self._at
        try:
            return _exchange_view(view, exchange, x, flags, why) == 0
        except Exception:
            return False

    def _take_on_device(self, x: Any, flags: int) -> None:
        """Makes the view of a tensor on the GPU of self.stream.

        __dlpack__ lets this stream wait for the work on x that its owner has enqueued."""
        assert self.stream is not None
        ask = getattr(x, "__dlpack_device__", None)
        kind, number = (int(value) for value in ask()) if ask else (CPU, 0)
        if kind != CUDA_MANAGED and (kind, number) != (CUDA, self.stream.number):
            wanted = f"cuda:{self.stream.number}"
            fail(
                UNSUPPORTED,
                f"{self.name} is {_place_text(kind, number)}, but the encoder or decoder works on "
                f"{wanted}: copy the tensor there, or make another encoder or decoder",
            )
        try:
            capsule = capsule_of(x, stream=self.stream.address)
        except Exception as error:
            refuse(f"{self.name} cannot be exported by DLPack: {line_of(error)}")
        self._keep(capsule, flags)
        view = self._view
        if view.device_type != kind or (kind == CUDA and view.device_id != number):
            place = _place_text(view.device_type, view.device_id)
            self.drop()
            refuse(
                f"{self.name} is {_place_text(kind, number)} by its __dlpack_device__, but {place} "
                "by its __dlpack__"
            )

    def _take_dlpack(self, x: Any, flags: int) -> None:
        try:
            capsule = capsule_of(x)
        except Exception as error:  # such as read-only, requires grad, or a dtype without DLPack
            if has_buffer(x):
                self._take_buffer(x, flags)
                return
            refuse(f"{self.name} cannot be exported by DLPack: {line_of(error)}")
        self._keep(capsule, flags)

    def _keep(self, capsule: Any, flags: int) -> None:
        view, why = self._at
        status = _view_of(view, capsule, flags, why)
        if status:
            self._check(status)
        self._kept = capsule

    def _take_buffer(self, x: Any, flags: int) -> None:
        try:
            held = self._buffer = memoryview(x)
        except (TypeError, ValueError, BufferError):
            refuse(
                f"{self.name} is a {type(x).__name__}, which is not a tensor: give an object with "
                "__dlpack__ or the buffer protocol"
            )
        try:
            self._look(held, flags)
        except BaseException:
            self.drop()
            raise

    def _look(self, held: memoryview, flags: int) -> None:
        kind = _FLOATS.get(held.format.lstrip("@=<" if ORDER == "little" else "@=>"))
        if kind is None:
            fail(
                UNSUPPORTED,
                f'the elements of {self.name} have the format "{held.format}", which is neither '
                "f32 nor f16 in this machine's byte order: convert them, or use Tensor.wrap",
            )
        if held.readonly and flags & WRITES:
            refuse(f"{self.name} is read-only, but must be written: give a writable tensor")
        if held.ndim < 1 or held.ndim > 4:
            refuse(f"{self.name} has {held.ndim} dimensions: give a tensor with one to four")
        size, extents, steps = held.itemsize, held.shape or (), held.strides or ()
        if any(step % size for step in steps):
            refuse(f"the strides of {self.name} are not whole elements: make it contiguous")
        shape = ffi.new("int64_t[]", list(extents))
        strides = ffi.new("int64_t[]", [step // size for step in steps])
        managed = ffi.new("dw_dl_managed *")
        tensor = managed.tensor
        tensor.data = ffi.cast("void *", _address_of(held))
        tensor.device_type, tensor.ndim, tensor.type_lanes = CPU, held.ndim, 1
        tensor.type_code, tensor.type_bits = kind
        tensor.shape, tensor.strides = shape, strides
        status = core.dw_tensor_from_dlpack(self._view, managed, flags, ffi.NULL, self._why)
        self._check(status)

    def _check(self, status: int) -> None:
        if status < 0:
            text = ffi.string(self._why.text).decode().replace("this DLPack tensor", self.name)
            fail(status, text)


def _address_of(held: memoryview) -> int:
    """The address of element (0, ..., 0). The memoryview goes on holding the memory."""
    room = _Buffer()
    if _get_buffer(held, ctypes.byref(room), _STRIDED):
        refuse("this buffer does not tell its address: copy it into a bytearray or an array")
    try:
        return room.buf or 0
    finally:
        _end_buffer(ctypes.byref(room))


def shape_view(x: Any, dtype: Any, rows_are_samples: bool = False) -> Any:
    """Makes a dw_tensor * without data, with the shape and dtype of x.

    x: a tensor, or a shape, to which dtype belongs."""
    if isinstance(x, (tuple, list)):
        n, t, c = extents_of(x, rows_are_samples)
        return ffi.new("dw_tensor *", (ffi.NULL, dtype_number(dtype or "f32"), n, t, c, t * c, c))
    view, flags = View("x"), ROWS if rows_are_samples else 0
    take = view.take if type(x) is Tensor else view.take_anywhere
    try:
        tensor = ffi.new("dw_tensor *", take(x, flags)[0])
    finally:
        view.drop()
    tensor.data = ffi.NULL
    return tensor


def reach(tensor: Any) -> "tuple[Any, int]":
    """Returns the address of a dw_tensor's first byte, and the number of bytes to its last one."""
    last = (tensor.n - 1) * tensor.stride_n + (tensor.t - 1) * tensor.stride_t + tensor.c
    return tensor.data, last * BYTES[NAMES[tensor.dtype]]


def refuse_overlap(tensor: Any, start: Any, length: int, names: str) -> None:
    """Raises if a dw_tensor * overlaps the memory given by start and length."""
    if native.dw_tensor_meets(tensor, start, length):
        refuse(f"{names} overlap in memory: give each of them its own memory")
