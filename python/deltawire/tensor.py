# SPDX-License-Identifier: Apache-2.0
# tensor.py - Tensor: what decoders give out, for any framework to take without a copy.
from __future__ import annotations

import ctypes
from typing import Any, Optional, Sequence

from deltawire._library import core, ffi, native
from deltawire.errors import NO_MEMORY, fail, refuse

DTYPES = {"f32": core.DW_F32, "f16": core.DW_F16, "bf16": core.DW_BF16}
NAMES = {number: name for name, number in DTYPES.items()}
FORMATS = {"f32": "f", "f16": "H", "bf16": "H"}  # memoryview knows no halves
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
        refuse(f'a dtype is "f32", "f16" or "bf16", not {dtype!r}')
    return number


def extents_of(shape: Any, rows_are_samples: bool = False) -> "tuple[int, int, int]":
    """(N, T, C) of a shape of one to four extents, as DLPack's tensors are taken."""
    try:
        given = [int(extent) for extent in shape]
    except (TypeError, ValueError):
        given = []
    if not 1 <= len(given) <= 4 or min(given) < 1 or max(given) >= 2**32:
        refuse(f"a shape has one to four extents, each from 1 to 2**32 - 1, not {shape!r}")
    if len(given) == 2 and rows_are_samples:
        given = [given[0], 1, given[1]]
    n, a, b, c = [1] * (4 - len(given)) + given if len(given) != 3 else [given[0], 1, *given[1:]]
    if a * b >= 2**32:
        refuse(f"the two middle extents of {shape!r} pass 2**32 together")
    return n, a * b, c


def _extents(buffer: Any) -> "tuple[int, ...]":
    with memoryview(buffer) as held:
        return held.shape or ()


class Tensor:
    """A dense tensor (N, T, C) in main memory.

    shape: one to four extents; becomes (N, T, C).
    dtype: "f32", "f16" or "bf16".
    Its values are whatever was in the memory before: it is made to be written.

    torch.from_dlpack(tensor) and numpy.from_dlpack(tensor) share its memory, which lives as long as
    any of them. numpy has no bf16: memoryview() gives its bits.
    Errors: ARGUMENT, NO_MEMORY.
    """

    __slots__ = ("shape", "dtype", "_memory", "_view", "_kept")

    shape: "tuple[int, int, int]"
    dtype: str

    def __init__(self, shape: Sequence[int], dtype: str = "f32") -> None:
        self._set_up(extents_of(shape), dtype)
        made = native.dw_memory_create(self.nbytes)
        if not made:
            fail(NO_MEMORY, f"there is no memory for a tensor of {self.nbytes} bytes")
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
        """A Tensor in the memory of another object, which it keeps: of an array of uint16 as bf16,
        for instance.

        buffer: contiguous, writable, with the buffer protocol.
        shape: the buffer's own where it is None.
        Errors: ARGUMENT (read-only, gaps, a size or alignment that does not fit).
        """
        try:
            memory = ffi.from_buffer("char[]", buffer, require_writable=True)
        except (TypeError, BufferError, ValueError) as error:
            refuse(f"a Tensor wraps a contiguous buffer that may be written: {error}")
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
            refuse(f"{self.shape} of {self.dtype} takes {self.nbytes} bytes, not {len(memory)}")
        if _address(memory) % BYTES[self.dtype]:
            refuse(f"this buffer is not aligned to {BYTES[self.dtype]} bytes: copy it")

    @property
    def nbytes(self) -> int:
        """Bytes of its values."""
        n, t, c = self.shape
        return n * t * c * BYTES[self.dtype]

    def memoryview(self) -> memoryview:
        """Its values, writable, of shape (N, T, C); format "f", or "H", the bits of f16 and
        bf16."""
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
        """A capsule that shares the memory: versioned where max_version allows 1.0."""
        if stream is not None:
            raise BufferError("this tensor lies in main memory: stream must be None")
        if dl_device is not None and tuple(dl_device) != (CPU, 0):
            raise BufferError("this tensor lies in main memory: dl_device must be (1, 0)")
        if copy:
            raise BufferError("deltawire.Tensor makes no copies: copy what from_dlpack gives")
        if self._kept is not None:
            raise BufferError("this Tensor wraps another object's memory: use that object")
        versioned = int(max_version is not None and max_version[0] >= 1)
        made = native.dw_memory_export(self._memory, self._view.dtype, *self.shape, versioned)
        if not made:
            raise MemoryError
        return _new_capsule(_address(made), _capsule_names[versioned], _capsule_end)

    def __dlpack_device__(self) -> "tuple[int, int]":
        """(1, 0): main memory."""
        return CPU, 0

    def __repr__(self) -> str:
        return f"Tensor(shape={self.shape}, dtype={self.dtype!r})"

    def __reduce__(self) -> Any:
        refuse("a deltawire Tensor cannot be pickled: pickle what from_dlpack makes of it")
