# SPDX-License-Identifier: Apache-2.0
# checkpoint.py - Checkpoint: the saved state of a stage, and its marks.
from __future__ import annotations

import contextlib
import functools
import uuid
from typing import Any

from deltawire.errors import Status, fail
from deltawire.torch.pipeline.sides import Sides

FORMAT, WITH_SNAPSHOT = 1, 2


class Checkpoint:
    """It owns the nonce of this stage, which the marks of a saved state have. Neighbours may load
    states with equal marks."""

    def __init__(self, stage: Any) -> None:
        self._place = {"stage_index": stage.stage_index, "num_stages": stage.num_stages}
        self.nonce = uuid.uuid4().hex

    def save(self, sides: Sides, step: int, ready: bool, unknown: bool) -> "dict[str, Any]":
        """Returns the state after a step. ready: there are lanes. unknown: it is not known which
        frames a neighbour has decoded, so the marks are unique."""
        marks: "dict[str, Any]" = {}
        for side in list(sides) if ready else []:
            nonce = self.nonce if side.is_after else side.ready()["nonce"]
            mark = [uuid.uuid4().hex, -1] if unknown else [nonce, step]
            marks["after" if side.is_after else "before"] = mark
        snapshots = sides.snapshots
        try:
            ends = {name: end.save(snapshots) for name, (end, _) in sides.ends().items()}
            snapshot = snapshots.save()
        except BaseException:
            snapshots.let_go()
            raise
        named = {"snapshot": snapshot} if snapshot else {}
        place = {"format": WITH_SNAPSHOT if snapshot else FORMAT, **self._place}
        return {**place, "marks": marks, "ends": ends, **named}

    def check(self, saved: "dict[str, Any]") -> None:
        """Errors: MISMATCH (it was saved by another stage), VERSION (in another format)."""
        here, there = self._place.values(), [saved.get(name) for name in self._place]
        is_known = saved.get("format") in (FORMAT, WITH_SNAPSHOT)
        if list(here) == there and not is_known:
            fail(
                Status["VERSION"],
                "this compression state has another format: load it with the version of deltawire "
                "that saved it",
            )
        if list(here) != there:
            fail(
                Status["MISMATCH"],
                "this compression state was saved by stage {} of {}, but this is stage {} of {}: "
                "load the state that this stage has saved".format(*there, *here),
            )

    def load(self, saved: "dict[str, Any]", sides: Sides) -> None:
        """Loads what save returned into the sides. Errors: MISMATCH, those of Ends.load; nothing
        has changed then."""
        ends, snapshot = sides.ends(), saved.get("snapshot", 0)
        if set(saved["ends"]) - set(ends):
            fail(
                Status["MISMATCH"],
                "this compression state was saved with another placement of stages on ranks: "
                "first make the schedule, with each stage on the same rank as before",
            )
        states = functools.partial(sides.snapshots.states, snapshot)
        with contextlib.ExitStack() as failing:
            uses = [
                end.load(saved["ends"][name], states, failing)
                for name, (end, _) in ends.items()
                if name in saved["ends"]
            ]
            failing.pop_all()
        for use in uses:
            use()
        sides.snapshots.loaded(snapshot)
        for side in sides:
            side.loaded(saved["marks"].get("after" if side.is_after else "before"))
