# SPDX-License-Identifier: Apache-2.0
# keys.py - converts ids of samples to the keys of the C library, and back.
from __future__ import annotations

import array
import sys
from typing import Any, Sequence, Union

from deltawire._library import ffi
from deltawire.errors import refuse

Id = Union[int, "tuple[int, int]"]
"""An int that names a sample, or (sample, slice) if samples are cut into slices of their tokens."""
Ids = Union[Sequence[Id], Any]

SLICE_SHIFT = 0 if sys.byteorder == "little" else 32
assert ffi.sizeof("dw_key") == 16


def _listed(ids: Any) -> list[Any]:
    if isinstance(ids, (list, tuple)):
        return ids  # type: ignore[return-value]
    if isinstance(ids, (str, bytes, bytearray)) or isinstance(ids, int):
        refuse(f"ids must be a sequence of ints, one for each sample, not {type(ids).__name__}")
    lists = getattr(ids, "tolist", None)  # numpy, torch, array, memoryview
    try:
        listed = lists() if lists is not None else list(ids)
    except Exception as error:
        refuse(f"ids must be a sequence of ints, one for each sample: {error}")
    if not isinstance(listed, list):
        refuse("ids is a single number: give a sequence with one id for each sample")
    return listed


def _pair(given: Any) -> "tuple[int, int]":
    sample, part = given if isinstance(given, (tuple, list)) and len(given) == 2 else (given, 0)
    try:
        (sample,) = array.array("Q", (sample,))
        (part,) = array.array("I", (part,))
    except (TypeError, OverflowError, ValueError):
        refuse(
            f"{given!r} is not an id: an id is an int from 0 to 2**64 - 1, or a pair (sample, "
            "slice) with a slice below 2**32"
        )
    return sample, part


def key_of(given: Id) -> Any:
    """Converts one id to a dw_key *."""
    sample, part = _pair(given)
    return ffi.new("dw_key *", (sample, part))


def pack(ids: Ids, n: int) -> Any:
    """Converts n ids to a dw_key[n]. Errors: ARGUMENT (not n ids, or something that is no id)."""
    listed = _listed(ids)
    if len(listed) != n:
        refuse(f"there are {len(listed)} ids for {n} samples: give one id for each sample")
    try:
        samples = array.array("Q", listed)
    except (TypeError, OverflowError, ValueError):  # there are pairs, or values that are no ids
        return ffi.new("dw_key[]", [_pair(given) for given in listed])
    keys = ffi.new("dw_key[]", n)
    memoryview(ffi.buffer(keys)).cast("Q")[::2] = memoryview(samples)
    return keys


def pack_any(ids: Ids) -> "tuple[Any, int]":
    """Converts ids. Returns the dw_key[] and their number."""
    listed = _listed(ids)
    return pack(listed, len(listed)), len(listed)


def unpack(keys: Any) -> "list[Id]":
    """Converts a dw_key[] back to a list of ids."""
    words: "list[Any]" = memoryview(ffi.buffer(keys)).cast("Q").tolist()
    slices = [word >> SLICE_SHIFT & 0xFFFFFFFF for word in words[1::2]]
    if any(slices):
        return [(s, p) if p else s for s, p in zip(words[::2], slices)]
    return words[::2]


def unpack_one(key: Any) -> Id:
    return (key.sample, key.slice) if key.slice else key.sample
