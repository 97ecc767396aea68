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
        self._open: "dict[int, int]" = {}
        self._waits: "list[Callable[[], None]]" = []

    @classmethod
    def of(cls, group: Any) -> "StepEnd":
        return _of_groups.setdefault(group, cls())

    def begin(self, stage: Any) -> None:
        self._open[id(stage)] = 0

    def count(self, stage: Any, expected: int) -> None:
        """One more message of this stage was sent or received."""
        if id(stage) not in self._open:
            return
        self._open[id(stage)] += 1
        if self._open[id(stage)] >= expected:
            self.leave(stage)

    def leave(self, stage: Any) -> None:
        self._open.pop(id(stage), None)
        if not self._open:
            self.wait()

    def drop(self, stage: Any) -> None:
        """The stage has failed: it does not count any more, and nothing is waited for."""
        self._open.pop(id(stage), None)

    def later(self, wait: "Callable[[], None]") -> None:
        """wait is called when the rank is done with the step."""
        self._waits.append(wait)

    def wait(self) -> None:
        waits, self._waits = self._waits, []
        for wait in waits:
            wait()
