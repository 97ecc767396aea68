# SPDX-License-Identifier: Apache-2.0
# side.py - Side: the exchange of messages with a neighbouring stage on another rank.
from __future__ import annotations

import warnings
from typing import Any, Collection, Optional

import torch

from deltawire.errors import Status, fail
from deltawire.torch.common.rendezvous import Rendezvous
from deltawire.torch.pipeline import message
from deltawire.torch.pipeline.lane import Lane
from deltawire.torch.pipeline.message import ABORT, WITH_IDS, Message
from deltawire.torch.pipeline.receiver import Receiver
from deltawire.torch.pipeline.sender import Sender
from deltawire.torch.pipeline.watch import Watch

READY = "its first message"
STOPPED = "stopped the step because of this error: "


class Side:
    """The lane to a neighbour, and the codecs of both directions.

    It owns what the neighbour has told, and messages that came early.

    me, other: the indices of this stage and of the neighbour.
    mark: identifies the state that was loaded, to compare it with the neighbour's. None: no state.
    """

    def __init__(
        self,
        me: int,
        other: int,
        codecs: "tuple[Sender, Receiver]",
        watch: Watch,
        rendezvous: Rendezvous,
    ) -> None:
        self._me, self.other, self.is_after = me, other, other > me
        (self.sender, self.receiver), self.watch = codecs, watch
        self._rendezvous = rendezvous
        self._lane: Optional[Lane] = None
        self.mark: Optional[list] = None
        self._marks_compared = False
        self._ready: "Optional[dict[str, Any]]" = None
        self._step, self._last_failed = 0, False
        # By microbatch: messages of this step that arrived before they were needed, each with its
        # memory.
        self._early: "dict[int, tuple[Message, memoryview]]" = {}

    @property
    def lane(self) -> Lane:
        assert self._lane is not None
        return self._lane

    def connect(self, lane: Lane) -> None:
        self._lane = lane

    def loaded(self, mark: Optional[list]) -> None:
        """A state with this mark was loaded."""
        self.mark = mark

    def knows(self) -> bool:
        """Whether the neighbour is ready, so that its lane tells if it cannot go on."""
        return self._ready is not None

    def ready(self) -> "dict[str, Any]":
        """Waits until the neighbour is ready. Returns what it tells before its first message."""
        if self._ready is None:
            ready = self._rendezvous.word_of(READY, self.other)
            self._rendezvous.wait_out(self.other)
            self._ready = ready
        return self._ready

    def begin(self, step: int, failed: bool) -> None:
        """A step begins. failed: the one before did not end."""
        self.sender.begin(failed)
        self._step, self._last_failed = step, failed
        self._early.clear()

    def compare_marks(self) -> None:
        """Before the first message, checks that both ends have loaded states of the same step. If
        not, discards them."""
        if self._marks_compared:
            return
        theirs = self.ready()
        self._marks_compared = True
        if theirs["mark_before" if self.is_after else "mark_after"] == self.mark:
            return
        self.sender.reset()
        self.receiver.reset()
        warnings.warn(
            f"stages {self._me} and {self.other} have loaded compression states that "
            "do not belong together, so all ids start without state: save the state of all ranks "
            "after the same step, and load it on all ranks",
            RuntimeWarning,
            stacklevel=2,
        )

    def send(
        self,
        microbatch: int,
        tensors: "list[torch.Tensor]",
        ids: "Optional[list[int]]",
        trains: bool,
        zeros: "Collection[int]",
    ) -> None:
        """Encodes and sends the tensors of a microbatch. trains, zeros: as for Sender.parts."""
        if tensors:
            self.watch.sends(self.sender, tensors, ids)
        parts, kind = self.sender.parts(tensors, ids, microbatch, trains, zeros)
        data = message.pack(Message(kind, microbatch, self._step, self._told(parts, ids), parts))
        self.sender.count(self.lane.sending.time(self.lane.send, data))

    def abort(self, data: bytearray) -> None:
        """Tells the neighbour that the step has failed here."""
        if self._lane is not None:
            self.ready()
            self._lane.send(data, waits=False)

    def post(self) -> None:
        if self._lane is not None:
            self._lane.post()

    def take(self, microbatch: int) -> "tuple[list[torch.Tensor], Optional[list[int]]]":
        """Waits for the message of a microbatch. Returns its tensors and ids."""
        came, data = self._next(microbatch)
        may_be_zero = self.sender.still_sent.get(microbatch, ())
        tensors, ids = self.receiver.tensors(came.parts, came.kind, may_be_zero)
        if came.ids is not None:
            ids = came.ids
        self.lane.give_back(data)
        return tensors, ids if came.kind == WITH_IDS else None

    def _told(self, parts: Any, ids: "Optional[list[int]]") -> "Optional[list[int]]":
        """Returns the ids if the message must contain them because none of its frames does."""
        if ids is None or not self.is_after:
            return None
        in_frames = self.sender.config._facts.keeps_prev and any(
            part.how == message.FRAME for part in parts
        )
        return None if in_frames else ids

    def _next(self, microbatch: int) -> "tuple[Message, memoryview]":
        self.ready()
        while microbatch not in self._early:
            data = self.lane.waiting.time(self.lane.take)
            came = message.unpack(data)
            self.receiver.learn(came.parts)
            if came.step < self._step:
                if came.kind == ABORT and came.step == self._step - 1 and not self._last_failed:
                    self._lost_the_last(came.why)
                self.lane.give_back(data)
                continue  # belongs to a step that failed
            if came.kind == ABORT:
                fail(Status["PEER"], f"stage {self.other} {STOPPED}{came.why}")
            if came.step > self._step:
                fail(
                    Status["PROTOCOL"],
                    f"stage {self.other} is at step {came.step} but stage {self._me} is at step "
                    f"{self._step}: call the schedule equally often on all ranks",
                )
            self.receiver.count(self.lane.added + message.size_of(came))
            came = came._replace(parts=self.receiver.recall(came.parts))
            self._early[came.microbatch] = (came, data)
        return self._early.pop(microbatch)

    def _lost_the_last(self, why: str) -> None:
        """The neighbour could not use the last gradients of a step that this stage has ended."""
        self.sender.reset()
        warnings.warn(
            f"step {self._step - 1} failed on stage {self.other} after stage {self._me} had ended "
            "it, so only one of both has made an optimizer step: go back to a checkpoint if that "
            f"matters ({why})",
            RuntimeWarning,
            stacklevel=2,
        )

    def seconds(self, sent: bool) -> "dict[str, float]":
        """The time of sends, or of waits for messages."""
        name, times = ("wire_seconds", "sending") if sent else ("waiting_seconds", "waiting")
        return {name: 0.0 if self._lane is None else getattr(self._lane, times).sum}

    def close(self) -> None:
        if self._lane is not None:
            self._lane.close()
