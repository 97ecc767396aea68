# SPDX-License-Identifier: Apache-2.0
# step_end.py - when a rank is done with a step, and may wait for what it has sent.
"""A rank may wait for its sends only when nobody waits for it any more: when every one of its
stages has sent and received all that a step has. Earlier, two ranks could wait for each other."""

from __future__ import annotations

import weakref
from typing import Any, Callable

_of_groups: "weakref.WeakKeyDictionary[Any, StepEnd]" = weakref.WeakKeyDictionary()


class StepEnd:
    """Of one rank in one process group: the stages that are within a step, and what waits."""

    def __init__(self) -> None:
        self._open: "weakref.WeakKeyDictionary[Any, int]" = weakref.WeakKeyDictionary()
        self._waits: "list[Callable[[], None]]" = []
        self._abandoned: "list[Callable[[], None]]" = []  # they keep what torch may still send

    @classmethod
    def of(cls, group: Any) -> "StepEnd":
        return _of_groups.setdefault(group, cls())

    def begin(self, stage: Any) -> None:
        self._open[stage] = 0

    def count(self, stage: Any, expected: int) -> None:
        """One more message of this stage was sent or received."""
        if stage not in self._open:
            return
        self._open[stage] += 1
        if self._open[stage] >= expected:
            self.leave(stage)

    def leave(self, stage: Any) -> None:
        self._open.pop(stage, None)
        if not self._open:
            self.wait()

    def drop(self, stage: Any) -> None:
        """The stage has failed: nothing of this step is waited for, for who knows whether the
        other ranks still take it."""
        self._open.clear()
        self._abandoned += self._waits
        self._waits = []

    def later(self, wait: "Callable[[], None]") -> None:
        """wait is called when the rank is done with the step."""
        self._waits.append(wait)

    def wait(self) -> None:
        waits, self._waits = self._waits, []
        for wait in waits:
            wait()
