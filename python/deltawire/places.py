# SPDX-License-Identifier: Apache-2.0
# places.py - Places: which elements of its samples a frame carries, to send gradients of the same.
from __future__ import annotations

from typing import Any, List

from deltawire._library import core, ffi
from deltawire.bytes_in import Bytes
from deltawire.errors import check, new_why, refuse
from deltawire.frame import frame_info
from deltawire.tensor import Tensor
from deltawire.views import View


class Places:
    """The elements that a frame of topk, randk, cocktail or chunk carries, k of each sample.

    frame: what encode() returned, at either end. It is not kept.
    Errors: UNSUPPORTED (its codec sends all elements), FORMAT, VERSION, CORRUPT, NO_MEMORY.

    For a backward pass through the same elements: both ends make Places of the forward's frame. One
    gathers the gradient there and sends it without places; the other scatters what arrives. The
    codec must want no other shape and keep nothing of earlier tensors: direct, raw, mx, blocks and
    sparse ones, without feedback. Places do not change, and any number of threads may use them.
    """

    __slots__ = ("_handle", "shape")

    shape: "tuple[int, int, int]"

    def __init__(self, frame: Any) -> None:
        made, why = ffi.new("dw_places **"), new_why()
        self.shape = frame_info(frame).shape
        with Bytes(frame, "the frame") as data:
            check(core.dw_places_read(made, data.pointer, data.length, ffi.NULL, why), why)
        self._handle = ffi.gc(made[0], core.dw_places_destroy)

    @property
    def count(self) -> int:
        """k: how many elements of each sample the frame carries."""
        return core.dw_places_count(self._handle)

    def list(self, sample: int) -> "List[int]":
        """The places in a sample, t * C + c, in ascending order."""
        if not isinstance(sample, int) or not 0 <= sample < self.shape[0]:
            refuse(f"sample must be an int from 0 to {self.shape[0] - 1}, not {sample!r}")
        return ffi.unpack(core.dw_places_list(self._handle, sample), self.count)

    def gather(self, x: Any) -> Tensor:
        """The values of x, (N, T, C), at the places: a tensor (N, 1, k) of f32. Errors: SHAPE,
        ARGUMENT, NO_MEMORY."""
        why, view = new_why(), View("x")
        try:
            given = view.take(x, 0)
            made = Tensor((self.shape[0], 1, self.count))
            check(core.dw_places_gather(self._handle, given, made._view, why), why)
        finally:
            view.drop()
        return made

    def scatter(self, z: Any, dtype: str = "f32") -> Tensor:
        """The tensor (N, T, C) with the values of z, (N, 1, k), at the places, and 0 elsewhere.
        Errors: SHAPE, ARGUMENT, NO_MEMORY."""
        why, view = new_why(), View("z")
        try:
            given = view.take(z, 0)
            made = Tensor(self.shape, dtype)
            check(core.dw_places_scatter(self._handle, given, made._view, why), why)
        finally:
            view.drop()
        return made

    def __repr__(self) -> str:
        return f"Places(shape={self.shape}, count={self.count})"

    def __reduce__(self) -> Any:
        refuse("deltawire Places cannot be pickled: keep the frame, and make them of it again")
