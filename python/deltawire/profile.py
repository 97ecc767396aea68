# SPDX-License-Identifier: Apache-2.0
# profile.py - Profile: what both ends know of the channels of a tensor.
from __future__ import annotations

from typing import Any, Optional

from deltawire._library import core, ffi
from deltawire.errors import check, new_why
from deltawire.tensor import Tensor
from deltawire.views import View


class Profile:
    """Weights and means of channels, for configs with form=step: Config(text, profile).

    values: a tensor (1, R, C) of f32 in main memory, of any framework. Row 0: weights, by which the
        step of a row is multiplied, above 0 and at most 1. Rows 1 and 2, if there are any: means,
        one of which is subtracted from rows that are sent without a base. They are rounded to bf16.
    Errors: ARGUMENT, SHAPE, NO_MEMORY.

    Both ends need the same profile; a decoder with another one, or none, refuses frames with
    MISMATCH. `values` may be saved, and makes the same profile again. A Profile does not change,
    can be pickled, and any number of threads may use it.
    """

    __slots__ = ("_handle",)

    def __init__(self, values: Any) -> None:
        made, why, view = ffi.new("dw_profile **"), new_why(), View("the values")
        try:
            given = view.take(values, 0)
            check(core.dw_profile_create(made, given, ffi.NULL, why), why)
        finally:
            view.drop()
        self._handle = ffi.gc(made[0], core.dw_profile_destroy)

    @classmethod
    def fit(cls, x: Any, gradient: Optional[Any] = None) -> "Profile":
        """Fits a profile to what other samples send: x, (N, T, C), in main memory.

        gradient: that of the loss for x, of the same shape: then channels of which the loss depends
            little get larger steps. Without it, weights follow from the deviations of channels.
        Rows with values that are not finite are left out. profile.h says how it is computed.
        Errors: SHAPE, ARGUMENT (no row is finite), NO_MEMORY.
        """
        made, why = ffi.new("dw_profile **"), new_why()
        views = View("x"), View("the gradient")
        try:
            given = views[0].take(x, 0)
            other = ffi.NULL if gradient is None else views[1].take(gradient, 0)
            check(core.dw_profile_fit(made, given, other, ffi.NULL, why), why)
        finally:
            for view in views:
                view.drop()
        fitted = cls.__new__(cls)
        fitted._handle = ffi.gc(made[0], core.dw_profile_destroy)
        return fitted

    @property
    def digest(self) -> int:
        """The value of the option `profile`."""
        return core.dw_profile_digest(self._handle)

    @property
    def channels(self) -> int:
        return core.dw_profile_values(self._handle).c

    def values(self) -> Tensor:
        """A copy of the values, (1, R, C)."""
        own = core.dw_profile_values(self._handle)
        copy = Tensor((1, own.t, own.c))
        ffi.memmove(copy._view.data, own.data, copy.nbytes)
        return copy

    def __reduce__(self) -> Any:
        own = core.dw_profile_values(self._handle)
        return _of_bytes, (bytes(ffi.buffer(own.data, 4 * own.t * own.c)), own.t, own.c)

    def __repr__(self) -> str:
        return f"Profile(channels={self.channels}, digest={self.digest})"


def _of_bytes(values: bytes, rows: int, channels: int) -> Profile:
    tensor = Tensor((1, rows, channels))
    ffi.memmove(tensor._view.data, values, len(values))
    return Profile(tensor)
