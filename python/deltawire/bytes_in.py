# SPDX-License-Identifier: Apache-2.0
# bytes_in.py - frames, replies and saved states from anything that holds bytes.
from __future__ import annotations

from typing import Any

from deltawire._library import ffi
from deltawire.errors import UNSUPPORTED, fail, refuse
from deltawire.views import HOST, VERSIONED, capsule_of, managed_of

INT, UINT = 0, 1  # of DLPack


class Bytes:
    """A contiguous buffer, or a DLPack tensor of uint8 or int8 with one extent; held in a `with`,
    and let go of at its end, whatever holds on to the frames of an error.

    pointer: char *. length: bytes.
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
                    f"{name} is a {type(given).__name__}, which holds no bytes: give bytes, a "
                    "buffer, or a tensor of uint8"
                )
            self._take_dlpack(given, name, writes)
        except (BufferError, ValueError) as error:
            refuse(f"{name} is no contiguous buffer{' that may be written' * writes}: {error}")

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
            refuse(f"{name} cannot be exported by DLPack: {error}")
        managed, versioned = managed_of(capsule)
        kind = "dw_dl_versioned *" if versioned == VERSIONED else "dw_dl_managed *"
        whole = ffi.cast(kind, managed)
        if versioned:
            if whole.major != 1:
                refuse(f"{name} is of another major version of DLPack than 1: ask for 1.0")
            if writes and whole.flags & 1:
                refuse(f"{name} is read-only, and is to be written: give another one")
        tensor = whole.tensor
        if tensor.device_type not in HOST:
            fail(UNSUPPORTED, f"{name} does not lie in main memory: copy it there first")
        if tensor.type_bits != 8 or tensor.type_lanes != 1 or tensor.type_code not in (INT, UINT):
            refuse(f"{name} is a tensor of something else than bytes: give one of uint8")
        if tensor.ndim != 1:
            refuse(f"{name} has {tensor.ndim} extents: give a tensor of bytes with one")
        self.length = tensor.shape[0]
        if self.length > 1 and tensor.strides and tensor.strides[0] != 1:
            refuse(f"the bytes of {name} have gaps between them: make it contiguous")
        self.pointer = ffi.cast("char *", tensor.data) + tensor.byte_offset
        self._capsule = capsule
