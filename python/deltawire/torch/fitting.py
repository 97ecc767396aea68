# SPDX-License-Identifier: Apache-2.0
# fitting.py - Fitting: fits profiles of channels to what a boundary sends, while it trains.
from __future__ import annotations

from typing import Optional

import torch

from deltawire.errors import DeltawireError
from deltawire.profile import Profile

ROWS = 4096  # of a step, to which a profile is fitted; more make it no better


def _joined(given: "list[torch.Tensor]") -> torch.Tensor:
    return torch.cat([x.detach().to("cpu", torch.float32).flatten(0, -2) for x in given])[None]


def _fit(x: torch.Tensor, gradient: Optional[torch.Tensor] = None) -> Optional[Profile]:
    try:
        return Profile.fit(x, gradient)
    except DeltawireError:
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
        self._came: "dict[int, torch.Tensor]" = {}

    def sends(self, microbatch: int, x: torch.Tensor) -> Optional[Profile]:
        """Before x, (..., C), is sent. Returns the profile that is in force from now on; None: the
        same as before."""
        rows = sum(other[..., 0].numel() for other in self._sent.values())
        if not self.steps & (self.steps + 1) and rows < ROWS:
            self._sent[microbatch] = x.detach()
        if self._channels == x.shape[-1]:
            return None
        first = _fit(_joined([x])[:, :ROWS])
        self._channels = 0 if first is None else first.channels
        return first

    def came(self, microbatch: int, gradient: torch.Tensor) -> None:
        """The gradient of a microbatch has arrived."""
        x = self._sent.get(microbatch)
        if x is None or x.shape == gradient.shape:
            self._came[microbatch] = gradient.detach()

    def begins(self, failed: bool = False) -> Optional[Profile]:
        """A step begins. failed: the one before did not end. Returns as sends does."""
        sent, came = self._sent, self._came
        self._sent, self._came = {}, {}
        if failed or not came:
            return None  # a step that has not trained does not count
        self.steps += 1
        both = [at for at in sorted(sent) if at in came and sent[at].shape[-1] == self._channels]
        if not both:
            return None
        x, gradient = (_joined([of[at] for at in both])[:, :ROWS] for of in (sent, came))
        return _fit(x, gradient)
