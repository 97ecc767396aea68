# SPDX-License-Identifier: Apache-2.0
# bytes_in.py - Bytes: access to frames, replies and saved states in any object that holds bytes.
from __future__ import annotations

from typing import Any

from deltawire._library import ffi
from deltawire.errors import UNSUPPORTED, fail, line_of, refuse
from deltawire.views import HOST, VERSIONED, capsule_of, managed_of

INT, UINT = 0, 1  # type codes of DLPack


class Bytes:
    """The memory of a contiguous buffer or of a one-dimensional DLPack tensor of uint8 or int8.

    Use it in a `with` statement, which releases the memory at its end, even while a traceback keeps
    this object alive.

    pointer: char *. length: the number of bytes.
    """

    __slots__ = ("pointer", "length", "_buffer", "_capsule")

    def __init__(self, given: Any, name: str, writes: bool = False) -> None:
        self._capsule = self._buffer = None
        try:
            self.pointer = self._buffer = ffi.from_buffer("char[]", given, writes)
            self.length = len(self._buffer)
        except TypeError:
            if not hasattr(given, "__dlpack__"):
                refuse(
                    f"{name} is a {type(given).__name__}, which holds no bytes: pass bytes, a "
                    "buffer or a uint8 tensor"
                )
            self._take_dlpack(given, name, writes)
        except (BufferError, ValueError) as error:
            refuse(f"{name} must be a contiguous buffer{' that can be written' * writes}: {error}")

    def __enter__(self) -> "Bytes":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.let_go()

    def let_go(self) -> None:
        if self._buffer is not None:
            ffi.release(self._buffer)
        self._buffer = self._capsule = None

    def _take_dlpack(self, given: Any, name: str, writes: bool) -> None:
        try:
            capsule = capsule_of(given)
        except Exception as error:
            refuse(f"{name} cannot be exported by DLPack: {line_of(error)}")
        managed, versioned = managed_of(capsule)
        kind = "dw_dl_versioned *" if versioned == VERSIONED else "dw_dl_managed *"
        whole = ffi.cast(kind, managed)
        if versioned:
            if whole.major != 1:
                refuse(f"{name} uses another major version of DLPack than 1: ask for 1.0")
            if writes and whole.flags & 1:
                refuse(f"{name} is read-only, but must be written: pass a writable tensor")
        tensor = whole.tensor
        if tensor.device_type not in HOST:
            fail(UNSUPPORTED, f"{name} is not in main memory: copy it there first")
        if tensor.type_bits != 8 or tensor.type_lanes != 1 or tensor.type_code not in (INT, UINT):
            refuse(f"{name} is a tensor of something else than bytes: pass a uint8 tensor")
        if tensor.ndim != 1:
            refuse(f"{name} has {tensor.ndim} dimensions: pass a uint8 tensor with one dimension")
        self.length = tensor.shape[0]
        if self.length > 1 and tensor.strides and tensor.strides[0] != 1:
            refuse(f"{name} has gaps between its bytes: make it contiguous")
        self.pointer = ffi.cast("char *", tensor.data) + tensor.byte_offset
        self._capsule = capsule
