# SPDX-License-Identifier: Apache-2.0
# compression.py - Compression: the steps of a compressed stage, from its beginning to its end.
from __future__ import annotations

import base64
import pickle
from typing import Any, Callable, Collection, Optional

import torch

from deltawire._declarations import VERSION
from deltawire._waiting import SLICE_S
from deltawire.errors import DeltawireError, Status, fail, refuse
from deltawire.torch.common.gathered_state import own
from deltawire.torch.common.lifetime import Lifetime
from deltawire.torch.common.rendezvous import Rendezvous, group_of
from deltawire.torch.common.waits import Wait
from deltawire.torch.pipeline import group_lane, lanes, message, torch_stage
from deltawire.torch.pipeline.checkpoint import Checkpoint
from deltawire.torch.pipeline.ids import StepIds
from deltawire.torch.pipeline.message import ABORT, Message
from deltawire.torch.pipeline.needs import Needs
from deltawire.torch.pipeline.options import Options
from deltawire.torch.pipeline.side import READY, STOPPED, Side
from deltawire.torch.pipeline.sides import Sides
from deltawire.torch.pipeline.step_end import StepEnd
from deltawire.torch.pipeline.watch import Exact

BEGINNING, FIRST_STEP = "the beginning", "the first step"


class Compression:
    """The compression of one stage, called by the overridden methods of the stage. It reads
    attributes of torch's stage but never calls its methods.

    It owns how far the stage and its step have come, and whether the step has failed.

    sides: the neighbours. ids, needs: of the step. listeners: called before what is sent "forward"
    or "backward" is encoded.
    """

    def __init__(self, stage: Any, options: Options, rendezvous: Rendezvous) -> None:
        self._stage, self._options, self.rendezvous = stage, options, rendezvous
        self.lifetime = Lifetime("stage", "make a new stage for the module")
        self.sides, self.ids = Sides(), StepIds(stage, options.on_missing_ids)
        self.needs = Needs(stage)
        self.listeners: "dict[str, list[Callable[[Any], None]]]" = {"forward": [], "backward": []}
        self._checkpoint = Checkpoint(stage)
        self._step = self._chunks = 0
        self._failed = self._encoded = self._started = self._ready = False
        self._group = group_of(stage.group)
        for sends in options.profiles:
            if sends >= stage.num_stages - 1:
                refuse(
                    f"profiles names stage {sends}, which sends no activations: of "
                    f"{stage.num_stages} stages all but the last one do"
                )
        self._end = StepEnd.of(self._group)
        self._exact = Exact(stage.stage_index)
        rendezvous.tell(BEGINNING, self._agreed())
        self._telling: Optional[Wait] = None  # gives up the last step

    def _agreed(self) -> "dict[str, Any]":
        return {
            "the version of deltawire": VERSION,
            "the format of messages": message.FORMAT,
            **self._options.agreed(),
        }

    # --- before the first step -----------------------------------------------------------------

    def start(self) -> None:
        """Compares the options of all ranks. Called before torch prepares the schedule, because
        there ranks wait for each other where they do not notice that one has refused."""
        if self._started:
            return
        self.rendezvous.compare(BEGINNING, self._agreed())
        self._make_sides()  # may fail here alone, so all others must hear of it in what follows
        ranks = self._stage.stage_index_to_group_rank
        for stage in (stage for stage, rank in ranks.items() if rank == self.rendezvous.rank):
            self.rendezvous.tell(FIRST_STEP, None, stage)
        for stage in ranks:
            self.rendezvous.word_of(FIRST_STEP, stage)
        if lanes.counts_are_equal(self._options, self._group):
            # All ranks must make these groups together. Later, another rank could already wait for
            # this one in torch's exchange of shapes, and both would wait forever.
            group_lane.make_one_way_groups(self._group, ranks)
        self._started = True

    def _make_sides(self) -> None:
        self.sides.make(self._stage, self._options, self.rendezvous)

    def tell_shapes(self, stage: int, shapes: Any) -> None:
        """Tells a stage on another rank what torch has found out about shapes, once in a step."""
        data = base64.b64encode(pickle.dumps(shapes)).decode()
        self.rendezvous.tell(f"the shapes for stage {stage} in step {self._step}", data)

    def shapes_of(self, stage: int) -> Any:
        what = f"the shapes for stage {self._stage.stage_index} in step {self._step}"
        return pickle.loads(base64.b64decode(self.rendezvous.word_of(what, stage)))

    def prepared(self, microbatches: int) -> None:
        """Makes the lanes. Called after torch has prepared the stage, when the shapes are known."""
        self._chunks = microbatches
        if self._ready:
            return
        stage, options = self._stage, self._options
        far = sorted(set(torch_stage.far_neighbours(stage)))
        if far:
            fail(
                Status["UNSUPPORTED"],
                f"stage {stage.stage_index} exchanges tensors with stages {far}, which are "
                "no neighbours: split the model so that each stage sends only to the next one",
            )
        before, after = self.sides.before, self.sides.after
        rooms = {
            "before": lanes.room(options, torch_stage.inputs(stage) if before else []),
            "after": lanes.room(options, torch_stage.outputs(stage)),
        }
        for side in self.sides:
            room = rooms["after" if side.is_after else "before"]
            made = lanes.make(stage, side, options, self.rendezvous, self._group, room)
            side.connect(made)
        told = {
            "rooms": rooms,
            "nonce": self._checkpoint.nonce,
            "mark_before": before.mark if before else None,
            "mark_after": after.mark if after else None,
        }
        self.rendezvous.tell(READY, told)
        self._ready = True

    # --- steps ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begins a step."""
        self.lifetime.refuse_unusable()
        if self._telling:
            self._telling.end()  # before messages of the next step
        if not self._failed:
            for side in self.sides:
                side.watch.look(side.sender, self.ids.are_missing())
            self._exact.look(side.sender for side in self.sides)
        for stage in self._end.in_step():
            stage.give_up(RuntimeError("an exception ended the schedule between two stages"))
        if self._failed:
            self._recover()
        self._step += 1
        failed, self._failed, self._encoded = self._failed, False, False
        self.ids.begin()
        self.needs.begin()
        self._end.begin(self)
        self.rendezvous.go_on()
        with self.rendezvous.refusing():
            self.start()
        for side in self.sides:
            side.begin(self._step, failed)

    def _recover(self) -> None:
        """Makes the next step possible after one that failed."""
        if self._ready and not all(side.lane.survives for side in self.sides):
            fail(
                Status["PROTOCOL"],
                "a step has failed, and with equal_counts its messages cannot be told from those "
                "of the next step: start all ranks again",
            )
        torch_stage.forget_losses()
        if self._encoded:
            self.sides.reset()  # the neighbour may not have decoded the frames

    def _count(self) -> None:
        ways = 2 if self._stage.has_backward else 1
        self._end.count(self, self._chunks * len(list(self.sides)) * ways)

    def give_up(self, error: BaseException) -> None:
        """Tells both neighbours that the step has failed here, so that they do not wait for it.

        After an interrupt this rank waits no longer than for a moment, nor if a neighbour is not
        ready yet: then it is told in the background, and the next step begins after that."""
        if self._failed or not self.lifetime.is_ours():
            return
        self._failed = True
        knows_both = all(side.knows() for side in self.sides)
        if not self._started or not knows_both:
            self.rendezvous.refuse(error)
        self._end.drop(self)
        why = getattr(error, "why", None) or f"{type(error).__name__}: {error}"
        why = why.rpartition(STOPPED)[2]  # the first error, not the chain of stages that passed it
        data = message.pack(Message(ABORT, 0, self._step, why=why))
        self._telling = Wait(lambda: self._tell(data))
        if isinstance(error, Exception) and knows_both:
            self._telling.end()
        else:
            self._telling.begin()
            self._telling.done.wait(SLICE_S)

    def _tell(self, data: bytearray) -> None:
        for side in self.sides:
            try:
                side.abort(bytearray(data))
            except (DeltawireError, RuntimeError):
                pass  # the neighbour cannot be reached any more

    # --- messages ------------------------------------------------------------------------------

    def give_ids(
        self, microbatch: int, given: Any, args: "tuple[Any, ...]", kwargs: "dict[str, Any]"
    ) -> None:
        """Takes the ids of a microbatch from the schedule's keyword arguments."""
        self.ids.give(microbatch, given, args, kwargs, self._chunks)

    def send_forward(self, microbatch: int, tensors: "list[torch.Tensor]") -> None:
        tensors = self.needs.mark(microbatch, tensors)
        self._send(self.sides.after, "forward", microbatch, tensors, ())

    def send_backward(self, microbatch: int, tensors: "list[torch.Tensor]") -> None:
        zeros = self.needs.zeros(microbatch, len(tensors))
        self._send(self.sides.before, "backward", microbatch, tensors, zeros)

    def _send(
        self,
        side: Optional[Side],
        way: str,
        microbatch: int,
        tensors: "list[torch.Tensor]",
        zeros: "Collection[int]",
    ) -> None:
        assert side is not None
        for listen in list(self.listeners[way]):
            listen(tensors)
        side.compare_marks()
        self._encoded = self._encoded or bool(tensors)
        ids = self.ids.of(microbatch)
        side.send(microbatch, tensors, ids, self._stage.has_backward, zeros)
        self._count()

    def take_forward(self, microbatch: int) -> "list[torch.Tensor]":
        tensors, ids = self._take(self.sides.before, microbatch)
        assert self.sides.before is not None
        self.needs.received(microbatch, self.sides.before.receiver.still)
        self.ids.learn(microbatch, ids)
        return tensors

    def take_backward(self, microbatch: int) -> "list[torch.Tensor]":
        assert self.sides.after is not None
        gradients = self._take(self.sides.after, microbatch)[0]
        self.sides.after.sender.came(microbatch, gradients)
        return gradients

    def _take(self, side: Optional[Side], microbatch: int) -> "tuple[list[torch.Tensor], Any]":
        assert side is not None
        side.compare_marks()
        found = side.take(microbatch)
        self._count()
        return found

    # --- statistics and state ------------------------------------------------------------------

    def stats(self) -> "dict[str, Any]":
        stage = self._stage.stage_index
        return {"stage": stage, "steps": self._step, **self.sides.stats()}

    def save(self) -> "dict[str, Any]":
        if self._end.is_open(self) and list(self.sides):
            refuse("save the compression state between two steps: a step of the stage is under way")
        for side in self.sides:
            side.sender.begin(self._failed)  # the profile that the next step will have
        unknown = self._failed and self._encoded
        return self._checkpoint.save(self.sides, self._step, self._ready, unknown)

    def load(self, saved: "dict[str, Any]") -> None:
        self.lifetime.refuse_unusable()
        if self._ready:
            refuse(
                "the stage has already run a step: load the compression state before the first one"
            )
        self.rendezvous.go_on()
        with self.rendezvous.refusing():
            state = own(saved)
            self._checkpoint.check(state)
            self._make_sides()
            self._checkpoint.load(state, self.sides)

    def close(self) -> None:
        """Closes the links to the neighbours, in a forked process nothing. Can be called twice."""
        self.lifetime.close()
        self.sides.close()
