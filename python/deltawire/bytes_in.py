# SPDX-License-Identifier: Apache-2.0
# bytes_in.py - frames, replies and saved states from anything that holds bytes.
from __future__ import annotations

from typing import Any

from deltawire._library import ffi
from deltawire.errors import UNSUPPORTED, fail, refuse
from deltawire.views import HOST, VERSIONED, capsule_of, managed_of

INT, UINT = 0, 1  # of DLPack


def bytes_of(given: Any, name: str, writes: bool = False) -> "tuple[Any, int, Any]":
    """(char *, length, what keeps it): of a contiguous buffer, or of a DLPack tensor of uint8 or
    int8 with one extent."""
    try:
        held = ffi.from_buffer("char[]", given, writes)
        return held, len(held), held
    except TypeError:
        if not hasattr(given, "__dlpack__"):
            refuse(
                f"{name} is a {type(given).__name__}, which holds no bytes: give bytes, a buffer, "
                "or a tensor of uint8"
            )
    except (BufferError, ValueError) as error:
        refuse(f"{name} is no contiguous buffer{' that may be written' * writes}: {error}")
    try:
        capsule = capsule_of(given)
    except Exception as error:
        refuse(f"{name} cannot be exported by DLPack: {error}")
    managed, versioned = managed_of(capsule)
    if versioned:
        whole = ffi.cast("dw_dl_versioned *", managed)
        if whole.major != 1:
            refuse(f"{name} is of another major version of DLPack than 1: ask its owner for 1.0")
        if writes and whole.flags & 1:
            refuse(f"{name} is read only, and is to be written: give another one")
    tensor = ffi.cast("dw_dl_versioned *" if versioned == VERSIONED else "dw_dl_managed *", managed)
    return _bytes_of_tensor(tensor.tensor, name) + ((capsule, given),)


def _bytes_of_tensor(tensor: Any, name: str) -> "tuple[Any, int]":
    if tensor.device_type not in HOST:
        fail(UNSUPPORTED, f"{name} does not lie in main memory: copy it there first")
    if tensor.type_bits != 8 or tensor.type_lanes != 1 or tensor.type_code not in (INT, UINT):
        refuse(f"{name} is a tensor of something else than bytes: give one of uint8")
    if tensor.ndim != 1:
        refuse(f"{name} has {tensor.ndim} extents: give a tensor of bytes with one")
    length = tensor.shape[0]
    if length > 1 and tensor.strides and tensor.strides[0] != 1:
        refuse(f"the bytes of {name} have gaps between them: make it contiguous")
    return ffi.cast("char *", tensor.data) + tensor.byte_offset, length
