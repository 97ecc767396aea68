# SPDX-License-Identifier: Apache-2.0
# fitting.py - Fitting: fits profiles of channels to what a boundary sends, while it trains.
from __future__ import annotations

from typing import Optional

import torch

from deltawire.errors import DeltawireError
from deltawire.profile import Profile

ROWS = 4096  # of a step, to which a profile is fitted; more make it no better


def _rows(x: torch.Tensor, most: int) -> torch.Tensor:
    """A copy of the first rows of x, (..., C)."""
    return x.detach().flatten(0, -2)[:most].to("cpu", torch.float32, copy=True)


def _fit(x: torch.Tensor, gradient: Optional[torch.Tensor] = None) -> Optional[Profile]:
    try:
        return Profile.fit(x[None], None if gradient is None else gradient[None])
    except DeltawireError as error:
        if error.status.name != "ARGUMENT":
            raise
        return None  # no row is finite


class Fitting:
    """Fits the first profile to the first tensor, before it is sent, and later ones to the
    activations and gradients of training steps 1, 2, 4, 8 and so on, when the next step begins or
    the state is saved.

    A tensor with another number of channels begins anew. Only steps count and not times, so a
    training that is repeated has the same profiles.
    steps: training steps that have ended. channels: of the last profile; 0: there is none yet."""

    def __init__(self, steps: int = 0, channels: int = 0) -> None:
        self.steps, self._channels = steps, channels
        self._sent: "dict[int, torch.Tensor]" = {}
        self._came: "dict[int, Optional[torch.Tensor]]" = {}

    def sends(self, microbatch: int, x: torch.Tensor, trains: bool = True) -> Optional[Profile]:
        """Before x, (..., C), is sent. trains: whether it has a gradient. Returns the profile that
        is in force from now on; None: the same as before."""
        left = ROWS - sum(len(rows) for rows in self._sent.values())
        if trains and left > 0 and not self.steps & (self.steps + 1):
            self._sent[microbatch] = _rows(x, left)
        if self._channels == x.shape[-1]:
            return None
        first = _fit(_rows(x, ROWS))
        self._channels = 0 if first is None else first.channels
        return first

    def came(self, microbatch: int, gradient: torch.Tensor) -> None:
        """The gradient of what was sent for a microbatch has arrived."""
        rows, given = self._sent.get(microbatch), gradient.detach().flatten(0, -2)
        fits = rows is not None and given.shape[-1] == rows.shape[-1] and len(given) >= len(rows)
        self._came[microbatch] = _rows(gradient, len(rows)) if rows is not None and fits else None

    def begins(self, failed: bool = False) -> Optional[Profile]:
        """A step begins. failed: the one before did not end. Returns as sends does."""
        sent, came = self._sent, self._came
        self._sent, self._came = {}, {}
        if failed or not came:
            return None  # a step that has not trained does not count
        self.steps += 1
        both = [(x, came.get(at)) for at, x in sorted(sent.items())]
        both = [(x, g) for x, g in both if g is not None and x.shape[-1] == self._channels]
        if not both:
            return None
        return _fit(*(torch.cat(rows) for rows in zip(*both)))
