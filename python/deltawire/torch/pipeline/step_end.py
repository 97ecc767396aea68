# SPDX-License-Identifier: Apache-2.0
# step_end.py - StepEnd: waits for a rank's sends, at the end of each step.
"""A rank may wait for its sends only after all its stages have sent and received every message of
the step, so that no other rank waits for it any more. If it waited earlier, two ranks could wait
for each other forever."""

from __future__ import annotations

import weakref
from typing import Any, Callable

_of_groups: "weakref.WeakKeyDictionary[Any, StepEnd]" = weakref.WeakKeyDictionary()


class StepEnd:
    """The stages of one rank and process group that are in a step, and the sends to wait for."""

    def __init__(self) -> None:
        self._open: "weakref.WeakKeyDictionary[Any, int]" = weakref.WeakKeyDictionary()
        self._waits: "list[Callable[[], None]]" = []
        # Of failed steps: these functions own memory that torch may still send.
        self._abandoned: "list[Callable[[], None]]" = []

    @classmethod
    def of(cls, group: Any) -> "StepEnd":
        return _of_groups.setdefault(group, cls())

    def begin(self, stage: Any) -> None:
        self._open[stage] = 0

    def count(self, stage: Any, expected: int) -> None:
        """Counts a message that this stage has sent or received. expected: their number in a
        step."""
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
        """Ends a step that has failed, without waiting for its sends, because the other ranks may
        never receive them."""
        self._open.clear()
        self._abandoned += self._waits
        self._waits = []

    def in_step(self) -> "list[Any]":
        """Returns the stages that have sent or received some messages of the step, but not all."""
        return [stage for stage, counted in list(self._open.items()) if counted]

    def is_open(self, stage: Any) -> bool:
        """Whether this stage has begun a step, and has not sent and received all its messages."""
        return stage in self._open

    def later(self, wait: "Callable[[], None]") -> None:
        """Registers a function that the end of the step calls to wait for a send."""
        self._waits.append(wait)

    def wait(self) -> None:
        while self._waits:
            self._waits[0]()  # stays there if an interrupt ends the wait, for it owns memory
            del self._waits[0]
