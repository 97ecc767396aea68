# SPDX-License-Identifier: Apache-2.0
# watch.py - warns where ids do not come again, which costs bytes and memory.
"""An epoch ends where as many samples were sent as the data set has (dataset_size), or, without
that, where an evaluation begins."""

from __future__ import annotations

import warnings
from typing import Any, Optional

ADVICE = (
    "Give a sample the same id in every epoch: its index in the data set, not its place in the "
    "batch or in a shuffled order; a sample that is augmented anew in every epoch has little to "
    'build on, for which forward="direct:bits=8" is the better choice'
)


class Watch:
    """Of one sender; ask after every step."""

    def __init__(self, dataset_size: Optional[int], where: str) -> None:
        self._size, self._where = dataset_size, where
        self._epochs = 0
        self._at_epoch = (0, 0)  # hits and visits
        self._visits_at_epoch = 0
        self._evaluated = False
        self._said: "set[str]" = set()

    def look(self, sender: Any, evaluates: bool) -> None:
        """sender: what was sent so far. evaluates: this step was one without ids."""
        keyed = [end.counters() for end in sender.stateful().values()]
        if not keyed:
            return
        hits = sum(c.delta_entries for c in keyed)
        visits = hits + sum(c.key_entries for c in keyed)
        held = max(c.keys_held for c in keyed)
        if self._size is not None:
            if held > self._size:
                self._say(
                    "keys",
                    f"{held} ids are held {self._where}, and the data set has {self._size} "
                    f"samples, so memory grows without end. {ADVICE}.",
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
                f"after {self._epochs} epochs only {hits} of {visits} samples sent "
                f"{self._where} could build on an earlier visit. {ADVICE}.",
            )

    def _say(self, what: str, sentence: str) -> None:
        if what not in self._said:
            self._said.add(what)
            warnings.warn(sentence, RuntimeWarning, stacklevel=2)
