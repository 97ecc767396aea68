# SPDX-License-Identifier: Apache-2.0
# flat.py - Flat: a contiguous tensor as a buffer of floats, which groups read or write.
from __future__ import annotations

from typing import Any, Optional

from deltawire._library import core, ffi
from deltawire.device import Stream
from deltawire.errors import fail, refuse
from deltawire.tensor import BYTES, NAMES
from deltawire.views import WRITES, View


class _FlatView(View):
    __slots__ = ()

    def _other_remedy(self, device: str) -> str:
        return ""  # groups have no device=


class Flat:
    """The memory of a contiguous tensor, held until drop. Of None: no floats.

    stream: None for a tensor in main memory; or the Stream that will work with it on its GPU.

    pointer: void *; NULL if there are no floats. n: the number of floats. dtype: a dw_dtype.
    shape: (N, T, C), for a new tensor like this one; None if there are no floats.
    """

    __slots__ = ("given", "pointer", "n", "dtype", "shape", "_view")

    def __init__(
        self, given: Any, name: str, writes: bool = False, stream: Optional[Stream] = None
    ) -> None:
        self.given, self._view = given, _FlatView(name, stream)
        self.pointer, self.n, self.dtype, self.shape = ffi.NULL, 0, core.DW_F32, None
        if given is None or _is_empty(given):
            return
        tensor = self._view.take(given, WRITES if writes else 0)
        n, t, c = tensor.n, tensor.t, tensor.c
        if (t > 1 and tensor.stride_t != c) or (n > 1 and tensor.stride_n != t * c):
            self.drop()
            refuse(f"{name} has gaps between its values: make it contiguous")
        self.pointer, self.dtype = tensor.data, tensor.dtype
        self.n, self.shape = n * t * c, (n, t, c)

    @property
    def nbytes(self) -> int:
        return int(self.n) * BYTES[NAMES[self.dtype]]

    def drop(self) -> None:
        """Releases the memory at once, even while a traceback keeps this object alive."""
        self._view.drop()
        self.given = None


def _is_empty(given: Any) -> bool:
    """Whether a tensor has no elements. A View cannot be made of it."""
    shape = getattr(given, "shape", None)
    try:
        return 0 in tuple(shape) if shape is not None else len(given) == 0
    except TypeError:  # not a tensor, which View says
        return False


def refuse_other_overlap(x: Flat, y: Flat, begin: int) -> None:
    """Raises if x and out overlap, unless the shorter one is the part of the longer one that begins
    at float number `begin`, or they are the same buffer."""
    if x.n == 0 or y.n == 0:
        return
    from_x, from_y = (int(ffi.cast("uintptr_t", flat.pointer)) for flat in (x, y))
    if from_x + x.nbytes <= from_y or from_y + y.nbytes <= from_x:
        return
    size = BYTES[NAMES[x.dtype]]
    allowed = begin * size if y.n <= x.n else -begin * size
    if from_y - from_x != allowed:
        refuse("x and out overlap in memory: give each of them its own memory, or the same")


def refuse_length(flat: Flat, wanted: int, name: str, because: str) -> None:
    """Raises SHAPE if a buffer does not have the wanted number of floats."""
    if flat.n != wanted:
        fail(
            core.DW_ERR_SHAPE,
            f"{name} has {flat.n} floats, but {because} {wanted}: give a tensor of that length",
        )
