# SPDX-License-Identifier: Apache-2.0
# checkpoint.py - Checkpoint: the saved state of a stage, and its marks.
from __future__ import annotations

import contextlib
import functools
import re
import uuid
from typing import Any, NoReturn

import torch

from deltawire.errors import Status, fail
from deltawire.torch.pipeline.sides import Sides
from deltawire.torch.pipeline.snapshots import stored

FORMAT, WITH_SNAPSHOT = 1, 2
SLOT = re.compile("(plain)?[0-9]{1,9}")


class Checkpoint:
    """It owns the nonce of this stage, which the marks of a saved state have. Neighbours may load
    states with equal marks."""

    def __init__(self, stage: Any) -> None:
        self._place = {"stage_index": stage.stage_index, "num_stages": stage.num_stages}
        self.nonce = uuid.uuid4().hex

    def save(self, sides: Sides, step: int, ready: bool, unknown: bool) -> "dict[str, Any]":
        """Returns the state after a step. ready: there are lanes; before, the marks are those of
        what was loaded. unknown: it is not known which frames a neighbour has decoded, so the marks
        are unique."""
        marks: "dict[str, Any]" = {}
        for side in sides:
            mark = side.mark
            if ready:
                nonce = self.nonce if side.is_after else side.ready()["nonce"]
                mark = [uuid.uuid4().hex, -1] if unknown else [nonce, step]
            if mark is not None:
                marks[_name(side)] = mark
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

    def check(self, saved: Any) -> None:
        """Errors: FORMAT (it is not such a state), MISMATCH (it was saved by another stage),
        VERSION (in another format)."""
        if not isinstance(saved, dict) or "stage_index" not in saved:
            _refuse("it does not name its stage")
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
        marks, ends, snapshot = saved.get("marks"), saved.get("ends"), saved.get("snapshot", 0)
        if not isinstance(marks, dict) or not all(isinstance(m, list) for m in marks.values()):
            _refuse("it has no marks")
        if not isinstance(snapshot, int) or not 0 <= snapshot < 2**64:
            _refuse("its snapshot has no number")
        if not isinstance(ends, dict):
            _refuse("it has no ends")
        for name, end in ends.items():
            slots = end.get("slots") if isinstance(end, dict) else None
            if not isinstance(slots, dict) or "config" not in end:
                _refuse(f"{name} has no config or no slots")
            for slot, held in slots.items():
                is_slot = isinstance(slot, str) and SLOT.fullmatch(slot)
                if not is_slot or not _is_whole(held, bool(snapshot)):
                    _refuse(f"slot {slot!r} of {name} is not whole")

    def load(self, saved: "dict[str, Any]", sides: Sides) -> None:
        """Loads what save returned, once check has accepted it, into the sides. Errors: MISMATCH,
        those of Ends.load; nothing has changed then."""
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
            side.loaded(saved["marks"].get(_name(side)))


def _name(side: Any) -> str:
    return "after" if side.is_after else "before"


def _is_whole(held: Any, names_copies: bool) -> bool:
    """Whether this is what Ends.save has saved of a slot."""
    if not isinstance(held, dict):
        return False
    for name, dtype in (("lengths", torch.int64), ("states", torch.uint8)):
        one = held.get(name)
        if not isinstance(one, torch.Tensor) or one.dtype != dtype or one.dim() != 1:
            return False
    lengths = [stored(length, names_copies) for length in held["lengths"].tolist()]
    return min(lengths, default=0) >= 0 and sum(lengths) == held["states"].numel()


def _refuse(reason: str) -> NoReturn:
    fail(
        Status["FORMAT"],
        f"this is not the compression state of a stage, or it is damaged ({reason}): load what "
        "compression_state_dict() returned",
    )
