# SPDX-License-Identifier: Apache-2.0
# checkpoint.py - Checkpoint: the saved state of a stage, and its marks.
from __future__ import annotations

import uuid
from typing import Any

from deltawire.errors import Status, fail
from deltawire.torch.pipeline.sides import Sides


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
        return {
            "format": 1,
            **self._place,
            "marks": marks,
            "ends": {name: end.save() for name, (end, _) in sides.ends().items()},
        }

    def check(self, saved: "dict[str, Any]") -> None:
        """Errors: MISMATCH (it was saved by another stage)."""
        here, there = self._place.values(), [saved.get(name) for name in self._place]
        if saved.get("format") != 1 or list(here) != there:
            fail(
                Status["MISMATCH"],
                "this compression state was saved by stage {} of {}, but this is stage {} of {}: "
                "load the state that this stage has saved".format(*there, *here),
            )

    def load(self, saved: "dict[str, Any]", sides: Sides) -> None:
        """Loads what save returned into the sides. Errors: MISMATCH, those of Ends.load."""
        ends = sides.ends()
        if set(saved["ends"]) - set(ends):
            fail(
                Status["MISMATCH"],
                "this compression state was saved with another placement of stages on ranks: "
                "first make the schedule, with each stage on the same rank as before",
            )
        for name, (end, _) in ends.items():
            if name in saved["ends"]:
                end.load(saved["ends"][name])
        for side in sides:
            side.loaded(saved["marks"].get("after" if side.is_after else "before"))
