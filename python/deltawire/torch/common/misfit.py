# SPDX-License-Identifier: Apache-2.0
# misfit.py - Fit: a warning if a codec does not fit its tensors, which costs the model.
from __future__ import annotations

import warnings
from typing import Any, Callable, Iterable


class Fit:
    """Warns once if encoders say in the first steps that their codec does not fit.

    kind: "activations" or "gradients". where: words for the warning."""

    STEPS = 32

    def __init__(self, kind: str, where: str) -> None:
        self._kind, self._where = kind, where
        self._left = self.STEPS

    def look(self, encoders: "Callable[[], Iterable[Any]]") -> None:
        """Called once for a step. encoders: returns objects with a config and counters()."""
        if self._left == 0:
            return
        self._left -= 1
        for encoder in encoders():
            sentence = encoder.config.misfit(encoder.counters(), self._kind)
            if sentence is not None:
                self._left = 0
                given = encoder.config._set("replies", "always")  # which the carriers need not have
                warnings.warn(
                    f"the codec {given.text} does not fit what is sent {self._where}: "
                    f"{sentence}",
                    RuntimeWarning,
                    stacklevel=2,
                )
                return
