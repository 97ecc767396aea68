# SPDX-License-Identifier: Apache-2.0
# tensor.py - Tensor: the decoder's result, which any framework can use without a copy.
from __future__ import annotations

import ctypes
from typing import Any, Optional, Sequence

from deltawire._library import core, ffi, native
from deltawire.errors import NO_MEMORY, fail, refuse

DTYPES = {"f32": core.DW_F32, "f16": core.DW_F16, "bf16": core.DW_BF16}
NAMES = {number: name for name, number in DTYPES.items()}
# memoryview.cast accepts no 16-bit floats, so f16 and bf16 appear as the integers of their bits.
FORMATS = {"f32": "f", "f16": "H", "bf16": "H"}
BYTES = {"f32": 4, "f16": 2, "bf16": 2}
CPU = 1

_api = ctypes.pythonapi
_new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)(("PyCapsule_New", _api))


def _address(function: Any) -> int:
    return int(ffi.cast("uintptr_t", function))


native.dw_capsule_functions(
    ffi.cast("void *", ctypes.cast(_api.PyCapsule_IsValid, ctypes.c_void_p).value),
    ffi.cast("void *", ctypes.cast(_api.PyCapsule_GetPointer, ctypes.c_void_p).value),
)
_capsule_names = [_address(native.dw_capsule_name(versioned)) for versioned in (0, 1)]
_capsule_end = _address(ffi.addressof(native, "dw_capsule_end"))


def dtype_number(dtype: str) -> int:
    number = DTYPES.get(dtype) if isinstance(dtype, str) else None
    if number is None:
        refuse(f'dtype must be "f32", "f16" or "bf16", not {dtype!r}')
    return number


def extents_of(shape: Any, rows_are_samples: bool = False) -> "tuple[int, int, int]":
    """Converts a shape with one to four dimensions to (N, T, C), by the rules for input tensors."""
    try:
        given = [int(extent) for extent in shape]
    except (TypeError, ValueError):
        given = []
    if not 1 <= len(given) <= 4 or min(given) < 1 or max(given) >= 2**32:
        refuse(f"a shape has one to four dimensions, each from 1 to 2**32 - 1, not {shape!r}")
    if len(given) == 2 and rows_are_samples:
        given = [given[0], 1, given[1]]
    n, a, b, c = [1] * (4 - len(given)) + given if len(given) != 3 else [given[0], 1, *given[1:]]
    if a * b >= 2**32:
        refuse(f"the product of the two middle dimensions of {shape!r} must be below 2**32")
    return n, a * b, c


def _extents(buffer: Any) -> "tuple[int, ...]":
    with memoryview(buffer) as held:
        return held.shape or ()


class Tensor:
    """A contiguous tensor (N, T, C) in main memory. A new one is not initialized.

    shape: one to four dimensions, which become (N, T, C).
    dtype: "f32", "f16" or "bf16".
    Errors: ARGUMENT, NO_MEMORY.

    torch.from_dlpack(tensor) and numpy.from_dlpack(tensor) share its memory, which is freed when
    none of them uses it any more. numpy has no bf16; memoryview() gives the bits of the values.
    """

    __slots__ = ("shape", "dtype", "_memory", "_view", "_kept")

    shape: "tuple[int, int, int]"
    dtype: str

    def __init__(self, shape: Sequence[int], dtype: str = "f32") -> None:
        self._set_up(extents_of(shape), dtype)
        made = native.dw_memory_create(self.nbytes)
        if not made:
            fail(NO_MEMORY, f"there is not enough memory for a tensor of {self.nbytes} bytes")
        self._memory = ffi.gc(made, native.dw_memory_drop)
        self._view.data = made
        self._kept = None

    def _set_up(self, extents: "tuple[int, int, int]", dtype: str) -> None:
        n, t, c = self.shape = extents
        number = dtype_number(dtype)
        self.dtype = dtype
        self._view = ffi.new("dw_tensor *", (ffi.NULL, number, n, t, c, t * c, c))

    @classmethod
    def wrap(cls, buffer: Any, dtype: str, shape: Optional[Sequence[int]] = None) -> "Tensor":
        """Makes a Tensor that uses the memory of another object. For example, it makes a bf16
        tensor of an array of uint16.

        buffer: a contiguous and writable object that supports the buffer protocol. The Tensor keeps
            a reference to it.
        shape: None means the shape of the buffer.
        Errors: ARGUMENT (read-only, not contiguous, or wrong size or alignment).
        """
        try:
            memory = ffi.from_buffer("char[]", buffer, require_writable=True)
        except (TypeError, BufferError, ValueError) as error:
            refuse(f"Tensor.wrap needs a contiguous buffer that can be written: {error}")
        made = cls.__new__(cls)
        try:
            made._set_up(extents_of(_extents(buffer) if shape is None else shape), dtype)
            made._check_fit(memory)
        except BaseException:
            ffi.release(memory)
            raise
        made._memory = memory
        made._view.data = memory
        made._kept = buffer
        return made

    def _check_fit(self, memory: Any) -> None:
        if self.nbytes != len(memory):
            refuse(
                f"a {self.dtype} tensor of shape {self.shape} takes {self.nbytes} bytes, but the "
                f"buffer has {len(memory)}: give another shape, dtype or buffer"
            )
        if _address(memory) % BYTES[self.dtype]:
            refuse(f"this buffer is not aligned to {BYTES[self.dtype]} bytes: copy it")

    @property
    def nbytes(self) -> int:
        """The size of the values in bytes."""
        n, t, c = self.shape
        return n * t * c * BYTES[self.dtype]

    def memoryview(self) -> memoryview:
        """A writable memoryview of shape (N, T, C). Its format is "f" for f32; for f16 and bf16 it
        is "H", the 16 bits of each value."""
        flat = memoryview(ffi.buffer(self._memory, self.nbytes))
        return flat.cast("B").cast(FORMATS[self.dtype], self.shape)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: Optional[bool] = None,
    ) -> Any:
        """Returns a DLPack capsule that shares the memory. It is a versioned capsule if max_version
        is at least (1, 0)."""
        if stream is not None:
            raise BufferError("this tensor is in main memory: stream must be None")
        if dl_device is not None and tuple(dl_device) != (CPU, 0):
            raise BufferError("this tensor is in main memory: dl_device must be (1, 0)")
        if copy:
            raise BufferError("deltawire.Tensor cannot copy: copy what from_dlpack returns")
        if self._kept is not None:
            raise BufferError("this Tensor uses the memory of another object: export that object")
        versioned = int(max_version is not None and max_version[0] >= 1)
        made = native.dw_memory_export(self._memory, self._view.dtype, *self.shape, versioned)
        if not made:
            raise MemoryError
        return _new_capsule(_address(made), _capsule_names[versioned], _capsule_end)

    def __dlpack_device__(self) -> "tuple[int, int]":
        """Returns (1, 0), which means main memory."""
        return CPU, 0

    def __repr__(self) -> str:
        return f"Tensor(shape={self.shape}, dtype={self.dtype!r})"

    def __reduce__(self) -> Any:
        refuse("a deltawire Tensor cannot be pickled: pickle what from_dlpack returns for it")
