# SPDX-License-Identifier: Apache-2.0
# watch.py - warnings: Watch, if ids do not recur, which costs bandwidth and memory; Fit, if a codec
# does not fit its tensors, which costs the model.
"""Watch assumes that an epoch ends when dataset_size samples have been sent or, if dataset_size is
not given, when an evaluation begins."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Iterable, Optional

ADVICE = (
    "Give a sample the same id in every epoch: its index in the data set, not its position in the "
    "batch or in a shuffled order. If samples are augmented differently in every epoch, "
    'forward="direct:bits=8" is the better choice'
)


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
                warnings.warn(
                    f"the codec {encoder.config.text} does not fit what is sent {self._where}: "
                    f"{sentence}",
                    RuntimeWarning,
                    stacklevel=2,
                )
                return


class Watch:
    """Watches one Sender; look is called at the beginning of every step.

    dataset_size: the number of samples in the data set, or None. kind, where: as for Fit."""

    def __init__(self, dataset_size: Optional[int], kind: str, where: str) -> None:
        self._size, self._where = dataset_size, where
        self._fit = Fit(kind, where)
        self._epochs = 0
        self._at_epoch = (0, 0)  # hits and visits
        self._visits_at_epoch = 0
        self._evaluated = False
        self._said: "set[str]" = set()

    def look(self, sender: Any, evaluates: bool) -> None:
        """Warns if necessary. evaluates: whether the last step had no ids."""
        self._fit.look(sender.encoders)
        keyed = [end.counters() for end in sender.stateful().values()]
        if not keyed:
            return
        hits = sum(c.delta_entries + c.skipped_entries for c in keyed)
        visits = hits + sum(c.key_entries for c in keyed)
        held = max(c.keys_held for c in keyed)
        if self._size is not None:
            if held > self._size:
                self._say(
                    "keys",
                    f"{held} ids are held for what is sent {self._where}, but the data set has "
                    f"{self._size} samples, so memory grows without end. {ADVICE}.",
                )
            over = visits - self._visits_at_epoch >= self._size * len(keyed)
        else:
            over = evaluates and not self._evaluated and visits > self._visits_at_epoch
        self._evaluated = evaluates
        if not over:
            return
        before, self._at_epoch = self._at_epoch, (hits, visits)
        self._visits_at_epoch = visits
        self._epochs += 1
        new = visits - before[1]
        if self._epochs >= 2 and new and (hits - before[0]) / new < 0.05:
            self._say(
                "hits",
                f"after {self._epochs} epochs, only {hits} of {visits} samples sent "
                f"{self._where} could be coded as a change since their last visit. {ADVICE}.",
            )

    def _say(self, what: str, sentence: str) -> None:
        if what not in self._said:
            self._said.add(what)
            warnings.warn(sentence, RuntimeWarning, stacklevel=2)
