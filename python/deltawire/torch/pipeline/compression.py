# SPDX-License-Identifier: Apache-2.0
# compression.py - Compression: what a compressed stage adds to torch's: ids, codecs, lanes, steps.
from __future__ import annotations

import base64
import pickle
import uuid
import warnings
from typing import Any, Optional

import torch
import torch.distributed as dist

from deltawire._declarations import VERSION
from deltawire._waiting import SLICE_S
from deltawire.errors import DeltawireError, Status, fail, refuse
from deltawire.owner import Life
from deltawire.places import Places
from deltawire.torch.common import address, forks
from deltawire.torch.common import tensors as tensors_of
from deltawire.torch.common.gathered_state import own
from deltawire.torch.common.rendezvous import Rendezvous, group_of
from deltawire.torch.common.waits import Wait
from deltawire.torch.pipeline import group_lane, message, torch_stage
from deltawire.torch.pipeline import ids as ids_of
from deltawire.torch.pipeline.ends import bytes_for, places_of
from deltawire.torch.pipeline.group_lane import EqualCountsLane, GroupLane
from deltawire.torch.pipeline.lane import Lane
from deltawire.torch.pipeline.link_lane import LinkLane
from deltawire.torch.pipeline.message import ABORT, WITH_IDS, Message
from deltawire.torch.pipeline.options import Options
from deltawire.torch.pipeline.receiver import Receiver
from deltawire.torch.pipeline.sender import Sender
from deltawire.torch.pipeline.step_end import StepEnd
from deltawire.torch.pipeline.watch import Exact, Watch

BEGINNING, FIRST_STEP, READY = "the beginning", "the first step", "its first message"
STOPPED = "stopped the step because of this error: "


class Side:
    """A neighbouring stage on another rank: the lane to it, and the codecs of both directions.

    mark: identifies the state that was loaded, to compare it with the neighbour's. None: no state.
    ready: what the neighbour has told before the first message between both.
    early: messages of this step that arrived before they were needed, by microbatch, each with its
        memory.
    places: with same_places, the elements that were sent of the activation of each microbatch.
    """

    def __init__(self, other: int, sender: Sender, receiver: Receiver, watch: Watch) -> None:
        self.other, self.sender, self.receiver, self.watch = other, sender, receiver, watch
        self.lane: Optional[Lane] = None
        self.mark: Optional[list] = None
        self.marks_compared = False
        self.ready: "Optional[dict[str, Any]]" = None
        self.early: "dict[int, tuple[Message, memoryview]]" = {}
        self.places: "dict[int, Places]" = {}


class Compression:
    """The compression of one stage, called by the overridden methods of the stage. It reads
    attributes of torch's stage but never calls its methods."""

    def __init__(self, stage: Any, options: Options, rendezvous: Rendezvous) -> None:
        self.stage, self.options, self._life = stage, options, Life.now
        self.step = 0
        self.ids: "dict[int, Optional[list[int]]]" = {}
        self._chunks = 0
        self._given: "dict[int, Any]" = {}
        self._cutter = ids_of.Cutter()
        self._failed = self._encoded = self._started = self._ready = self._closed = False
        self._has_failed = False
        self._nonce = uuid.uuid4().hex
        self._group = group_of(stage.group)
        for sends in options.profiles:
            if sends >= stage.num_stages - 1:
                refuse(
                    f"profiles names stage {sends}, but of {stage.num_stages} stages only 0 to "
                    f"{stage.num_stages - 2} send activations"
                )
        self._end = StepEnd.of(self._group)
        self._exact = Exact(stage.stage_index)
        self.rendezvous = rendezvous
        rendezvous.tell(BEGINNING, self._agreed())
        self._telling: Optional[Wait] = None  # gives up the last step
        self.before: Optional[Side] = None  # None: on this rank, or not existing
        self.after: Optional[Side] = None

    def _agreed(self) -> "dict[str, Any]":
        return {
            "the version of deltawire": VERSION,
            "the format of messages": message.FORMAT,
            **self.options.agreed(),
        }

    def refuse_fork(self) -> None:
        """Raises an error in a process that was forked from the one of the stage."""
        forks.refuse_fork(self._life, "stage")

    # --- before the first step -----------------------------------------------------------------

    def start(self) -> None:
        """Compares the options of all ranks. Called before torch prepares the schedule, because
        there ranks wait for each other where they do not notice that one has refused."""
        if self._started:
            return
        self.rendezvous.compare(BEGINNING, self._agreed())
        ranks = self.stage.stage_index_to_group_rank
        for stage in (stage for stage, rank in ranks.items() if rank == self.rendezvous.rank):
            self.rendezvous.tell(FIRST_STEP, None, stage)
        for stage in ranks:
            self.rendezvous.word_of(FIRST_STEP, stage)
        self.sides()
        if self.options.carrier == address.GROUP and self._counts_are_equal():
            # All ranks must make these groups together. Later, another rank could already wait for
            # this one in torch's exchange of shapes, and both would wait forever.
            mapping = self.stage.stage_index_to_group_rank
            group_lane.make_one_way_groups(self._group, mapping)
        self._started = True

    def sides(self) -> None:
        """Makes both sides. torch must know which stage is on which rank."""
        stage, options = self.stage, self.options
        index = stage.stage_index
        forward = (options.forward, options.evaluate, options.threads)
        backward = (options.backward, None, options.threads)
        to_before, to_after = f"{index} to {index - 1}", f"{index} to {index + 1}"
        if self.before is None and not stage.is_first and not torch_stage.is_here(stage, index - 1):
            watch = Watch(options.dataset_size, "gradients", f"backward by stage {index}")
            receiver = Receiver(*forward, profile=options.profile_of(index - 1))
            self.before = Side(index - 1, Sender(*backward, to_before), receiver, watch)
            self.before.sender.keeps = False
        if self.after is None and not stage.is_last and not torch_stage.is_here(stage, index + 1):
            watch = Watch(options.dataset_size, "activations", f"forward by stage {index}")
            sender = Sender(*forward, to_after, options.profile_of(index))
            self.after = Side(index + 1, sender, Receiver(*backward), watch)

    def tell_shapes(self, stage: int, shapes: Any) -> None:
        """Tells a stage on another rank what torch has found out about shapes, once in a step."""
        data = base64.b64encode(pickle.dumps(shapes)).decode()
        self.rendezvous.tell(f"the shapes for stage {stage} in step {self.step}", data)

    def shapes_of(self, stage: int) -> Any:
        what = f"the shapes for stage {self.stage.stage_index} in step {self.step}"
        return pickle.loads(base64.b64decode(self.rendezvous.word_of(what, stage)))

    def prepared(self, microbatches: int) -> None:
        """Makes the lanes. Called after torch has prepared the stage, when the shapes are known."""
        self._chunks = microbatches
        if self._ready:
            return
        far = sorted(set(torch_stage.far_neighbours(self.stage)))
        if far:
            fail(
                Status["UNSUPPORTED"],
                f"stage {self.stage.stage_index} exchanges tensors with stages {far}, which are "
                "no neighbours: split the model so that each stage sends only to the next one",
            )
        rooms = {
            "before": self._room(torch_stage.inputs(self.stage) if self.before else []),
            "after": self._room(torch_stage.outputs(self.stage)),
        }
        if self.before:
            self.before.lane = self._lane(self.before, rooms["before"], False)
        if self.after:
            self.after.lane = self._lane(self.after, rooms["after"], True)
        self.rendezvous.tell(
            READY,
            {
                "rooms": rooms,
                "nonce": self._nonce,
                "mark_before": self.before.mark if self.before else None,
                "mark_after": self.after.mark if self.after else None,
            },
        )
        self._ready = True

    def _room(self, described: "list[tuple[torch.dtype, tuple[int, ...]]]") -> int:
        """The size in bytes of a receive buffer that is enough for tensors with these shapes."""
        options = self.options
        parts = []
        for dtype, shape in described:
            both = (
                bytes_for(options.forward, options.evaluate, dtype, shape),
                bytes_for(options.backward, None, dtype, shape),
            )
            parts.append((max(both), len(shape)))
        if options.fits and described and described[0][1]:
            size = message.PROFILE_BYTES * described[0][1][-1] + message.NAMED_BYTES
            parts.append((size, 3))
        samples = max((shape[0] for _, shape in described if shape), default=0)
        return message.room(parts, samples)

    def _counts_are_equal(self) -> bool:
        asked = self.options.equal_counts
        return group_lane.wants_equal_counts(self._group) if asked is None else asked

    def _lane(self, side: Side, room: int, after: bool) -> Lane:
        stage, other, index = self.stage, side.other, self.stage.stage_index
        boundary = index if after else index - 1
        if self.options.carrier != address.GROUP:
            carrier, link = self.options.carrier, self.options.link
            return LinkLane(index, other, self.rendezvous, carrier, after, self._end, link)
        base = group_lane.TAGS + ((self.rendezvous.number * 1024 + boundary) << 2)
        tags = (base, base + 2) if after else (base + 2, base)
        rank = stage.stage_index_to_group_rank[other]
        theirs = "before" if after else "after"
        common = (
            *(index, other, self._group, rank, tags, room),
            lambda: self._ready_of(side)["rooms"][theirs],
        )
        if self._counts_are_equal():
            device = tensors_of.device_for(self._group)
            return EqualCountsLane(*common, device=device, my_rank=dist.get_rank(self._group))
        return GroupLane(*common)

    # --- steps ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begins a step."""
        self.refuse_fork()
        self._refuse_closed()
        if self._telling:
            self._telling.end()  # before messages of the next step
        self._look()
        for stage in self._end.in_step():
            stage.give_up(RuntimeError("an exception ended the schedule between two stages"))
        self._has_failed = self._failed  # the step before
        if self._failed:
            self._recover()
        for side in (self.before, self.after):
            if side:
                side.sender.begin(self._failed)
        self.step += 1
        self.ids.clear()
        self._given.clear()
        self._cutter = ids_of.Cutter()
        self._failed = self._encoded = False
        for side in (self.before, self.after):
            if side:
                side.early.clear()
                side.places.clear()
        self._end.begin(self)
        self.rendezvous.go_on()
        with self.rendezvous.refusing():
            self.start()

    def _recover(self) -> None:
        """Makes the next step possible after one that failed."""
        lanes = [side.lane for side in (self.before, self.after) if side and side.lane]
        if not all(lane.survives for lane in lanes):
            fail(
                Status["PROTOCOL"],
                "a step has failed, and with equal_counts its messages cannot be told from those "
                "of the next step: start all ranks again",
            )
        torch_stage.forget_losses()
        if self._encoded:
            self.reset()  # the neighbour may not have decoded the frames

    def _look(self) -> None:
        evaluates = bool(self.ids) and all(ids is None for ids in self.ids.values())
        for side in (self.before, self.after):
            if side and not self._failed:
                side.watch.look(side.sender, evaluates)
        if not self._failed:
            self._exact.look(side.sender for side in (self.before, self.after) if side)

    def _sides(self) -> "list[Side]":
        return [side for side in (self.before, self.after) if side]

    def _count(self) -> None:
        sides = bool(self.before) + bool(self.after)
        ways = 2 if self.stage.has_backward else 1
        self._end.count(self, self._chunks * sides * ways)

    def give_up(self, error: BaseException) -> None:
        """Tells both neighbours that the step has failed here, so that they do not wait for it.

        After an interrupt this rank waits no longer than for a moment, nor if a neighbour is not
        ready yet: then it is told in the background, and the next step begins after that."""
        if self._failed or not forks.is_ours(self._life):
            return
        self._failed = True
        knows_both = all(side.ready is not None for side in self._sides())
        if not self._started or not knows_both:
            self.rendezvous.refuse(error)
        self._end.drop(self)
        why = getattr(error, "why", None) or f"{type(error).__name__}: {error}"
        why = why.rpartition(STOPPED)[2]  # the first error, not the chain of stages that passed it
        data = message.pack(Message(ABORT, 0, self.step, why=why))
        self._telling = Wait(lambda: self._tell(data))
        if isinstance(error, Exception) and knows_both:
            self._telling.end()
        else:
            self._telling.begin()
            self._telling.done.wait(SLICE_S)

    def _tell(self, data: bytearray) -> None:
        for side in self._sides():
            try:
                if side.lane:
                    self._ready_of(side)
                    side.lane.send(bytearray(data), waits=False)
            except (DeltawireError, RuntimeError):
                pass  # the neighbour cannot be reached any more

    # --- ids -----------------------------------------------------------------------------------

    def give_ids(
        self, microbatch: int, given: Any, args: "tuple[Any, ...]", kwargs: "dict[str, Any]"
    ) -> None:
        """Takes the ids of a microbatch from the schedule's keyword arguments.

        given: the ids or None. args, kwargs: the inputs of the first stage."""
        if not self.stage.is_first:
            self._given[microbatch] = given
            return
        if given is None:
            if self.stage.has_backward and self.options.on_missing_ids == "error":
                fail(
                    Status["ARGUMENT"],
                    "a training step has no ids: call schedule.step(x, sample_ids=ids) on the "
                    "first rank, where ids is an int64 tensor with one id for each sample, or "
                    'allow steps without ids with on_missing_ids="direct"',
                )
            self.ids[microbatch] = None
            return
        n = ids_of.samples(given, args, kwargs, microbatch, self._chunks)
        self.ids[microbatch] = self._cutter.cut(given, n, microbatch)

    def _learn_ids(self, microbatch: int, ids: "Optional[list[int]]") -> None:
        given = self._given.pop(microbatch, None)
        if ids is not None and isinstance(given, torch.Tensor) and given.tolist() != ids:
            fail(
                Status["ARGUMENT"],
                f"stage {self.stage.stage_index} was given other sample_ids for microbatch "
                f"{microbatch} than the first rank: give sample_ids on the first rank only",
            )
        self.ids[microbatch] = ids

    def hand_over(self, microbatch: int, ids: "Optional[list[int]]") -> None:
        """Takes the ids of a microbatch from the previous stage, which is on this rank."""
        self._learn_ids(microbatch, ids)

    # --- messages ------------------------------------------------------------------------------

    def send_forward(self, microbatch: int, tensors: "list[torch.Tensor]") -> None:
        assert self.after is not None
        self._send(self.after, microbatch, tensors, self.ids.get(microbatch))

    def send_backward(self, microbatch: int, tensors: "list[torch.Tensor]") -> None:
        assert self.before is not None
        self._send(self.before, microbatch, tensors, self.ids.get(microbatch))

    def _send(self, side: Side, microbatch: int, tensors: Any, ids: Any) -> None:
        assert side.lane is not None
        self._compare_marks(side)
        if tensors:
            self._encoded = True
            side.watch.sends(side.sender, tensors, ids)
        places = side.places.pop(microbatch, None) if side is self.before else None
        parts, kind = side.sender.parts(
            tensors, ids, places, microbatch, self.stage.has_backward
        )
        if side is self.after:
            self._keep_places(side, microbatch, parts, kind)
        told = self._told(side, parts, ids)
        data = message.pack(Message(kind, microbatch, self.step, told, parts))
        side.sender.messages += 1
        side.sender.message_bytes += side.lane.sending.time(side.lane.send, data)
        self._count()

    def _keep_places(self, side: Side, microbatch: int, parts: Any, kind: int) -> None:
        """Keeps the places of an activation for its gradient."""
        if self.options.same_places and self.stage.has_backward and kind == WITH_IDS:
            places = places_of(parts)
            if places is not None:
                side.places[microbatch] = places

    def _told(self, side: Side, parts: Any, ids: Any) -> Any:
        """Returns the ids if the message must contain them because none of its frames does."""
        if ids is None or side is self.before:
            return None
        in_frames = side.sender.config.codec == "delta" and any(
            part.how == message.FRAME for part in parts
        )
        return None if in_frames else ids

    def _ready_of(self, side: Side) -> "dict[str, Any]":
        """Waits until a neighbour is ready. After that its lane tells if it cannot go on."""
        if side.ready is None:
            ready = self.rendezvous.word_of(READY, side.other)
            self.rendezvous.wait_out(side.other)
            side.ready = ready
        return side.ready

    def _compare_marks(self, side: Side) -> None:
        """Before the first message, checks that both ends have loaded states of the same step. If
        not, discards the state of the sender."""
        if side.marks_compared:
            return
        theirs = self._ready_of(side)
        side.marks_compared = True
        if theirs["mark_before" if side is self.after else "mark_after"] == side.mark:
            return
        side.sender.reset()
        warnings.warn(
            f"stages {self.stage.stage_index} and {side.other} have loaded compression states that "
            "do not belong together, so all ids start without state: save the state of all ranks "
            "after the same step, and load it on all ranks",
            RuntimeWarning,
            stacklevel=2,
        )

    def post_forward(self) -> None:
        if self.before and self.before.lane:
            self.before.lane.post()

    def post_backward(self) -> None:
        if self.after and self.after.lane:
            self.after.lane.post()

    def take_forward(self, microbatch: int) -> "list[torch.Tensor]":
        assert self.before is not None
        tensors, ids = self._take(self.before, microbatch)
        self._learn_ids(microbatch, ids)
        return tensors

    def take_backward(self, microbatch: int) -> "list[torch.Tensor]":
        assert self.after is not None
        gradients = self._take(self.after, microbatch)[0]
        self.after.sender.came(microbatch, gradients)
        return gradients

    def _take(self, side: Side, microbatch: int) -> "tuple[list[torch.Tensor], Any]":
        assert side.lane is not None
        came, data = self._next(side, microbatch)
        places = side.places.pop(microbatch, None) if side is self.after else None
        tensors, ids = side.receiver.tensors(came.parts, came.kind, places)
        if side is self.before:
            self._keep_places(side, microbatch, came.parts, came.kind)
        if came.ids is not None:
            ids = came.ids
        side.lane.give_back(data)
        self._count()
        return tensors, ids if came.kind == WITH_IDS else None

    def _next(self, side: Side, microbatch: int) -> "tuple[Message, memoryview]":
        assert side.lane is not None
        self._ready_of(side)
        while microbatch not in side.early:
            data = side.lane.waiting.time(side.lane.take)
            came = message.unpack(data)
            side.receiver.learn(came.parts)
            if came.step < self.step:
                if came.kind == ABORT and came.step == self.step - 1 and not self._has_failed:
                    self._lost_the_last(side, came.why)
                side.lane.give_back(data)
                continue  # belongs to a step that failed
            if came.kind == ABORT:
                fail(Status["PEER"], f"stage {side.other} {STOPPED}{came.why}")
            if came.step > self.step:
                fail(
                    Status["PROTOCOL"],
                    f"stage {side.other} is at step {came.step} but stage "
                    f"{self.stage.stage_index} is at step {self.step}: call the schedule equally "
                    "often on all ranks",
                )
            side.receiver.messages += 1
            side.receiver.message_bytes += side.lane.added + message.size_of(came)
            came = came._replace(parts=side.receiver.recall(came.parts))
            side.early[came.microbatch] = (came, data)
        return side.early.pop(microbatch)

    def _lost_the_last(self, side: Side, why: str) -> None:
        """A neighbour could not use the last gradients of a step that this stage has ended."""
        side.sender.reset()
        warnings.warn(
            f"step {self.step - 1} failed on stage {side.other} after stage "
            f"{self.stage.stage_index} had ended it, so only one of both has made an optimizer "
            f"step: go back to a checkpoint if that matters ({why})",
            RuntimeWarning,
            stacklevel=2,
        )

    # --- statistics and state ------------------------------------------------------------------

    def stats(self) -> "dict[str, Any]":
        found: "dict[str, Any]" = {"stage": self.stage.stage_index, "steps": self.step}
        for name, end in self._ends().items():
            side = self.after if name in ("forward_sent", "backward_received") else self.before
            lane = side.lane if side else None
            if name.endswith("sent"):
                times = {"wire_seconds": lane.sending.sum if lane else 0.0}
            else:
                times = {"waiting_seconds": lane.waiting.sum if lane else 0.0}
            found[name] = {**end.stats(), **times}
        return found

    def _ends(self) -> "dict[str, Any]":
        made: "dict[str, Any]" = {}
        if self.after:
            made["forward_sent"] = self.after.sender
            made["backward_received"] = self.after.receiver
        if self.before:
            made["forward_received"] = self.before.receiver
            made["backward_sent"] = self.before.sender
        return made

    def reset(self) -> None:
        for side in (self.before, self.after):
            if side:
                side.sender.reset()

    def save(self) -> "dict[str, Any]":
        marks: "dict[str, Any]" = {}
        for side in (self.before, self.after):
            if side:
                side.sender.begin(self._failed)  # the profile that the next step will have
        if self.before and self._ready:
            marks["before"] = self._mark(self._ready_of(self.before)["nonce"])
        if self.after and self._ready:
            marks["after"] = self._mark(self._nonce)
        return {
            "format": 1,
            "stage_index": self.stage.stage_index,
            "num_stages": self.stage.num_stages,
            "marks": marks,
            "ends": {name: end.save() for name, end in self._ends().items()},
        }

    def _mark(self, nonce: str) -> "list[Any]":
        """Identifies the moment at which a state was saved: neighbours may load states with equal
        marks. After a failed step it is unknown which frames were decoded, so the mark is unique.
        """
        if self._failed and self._encoded:
            return [uuid.uuid4().hex, -1]
        return [nonce, self.step]

    def close(self) -> None:
        """Closes the links to the neighbours, in a forked process nothing. Can be called twice."""
        self._closed = True
        for side in (self.before, self.after):
            if side and side.lane:
                try:
                    side.lane.close()
                except DeltawireError:
                    pass  # the neighbour is gone

    def _refuse_closed(self) -> None:
        if self._closed:
            fail(
                Status["ARGUMENT"],
                f"stage {self.stage.stage_index} was closed: make a new stage for the module",
            )

    def load(self, saved: "dict[str, Any]") -> None:
        self._refuse_closed()
        if self._ready:
            fail(
                Status["ARGUMENT"],
                "the stage has already run a step: load the compression state before the first one",
            )
        self.rendezvous.go_on()
        with self.rendezvous.refusing():
            self._load(own(saved))

    def _load(self, saved: "dict[str, Any]") -> None:
        stage = self.stage
        here = (stage.stage_index, stage.num_stages)
        there = (saved.get("stage_index"), saved.get("num_stages"))
        if saved.get("format") != 1 or here != there:
            fail(
                Status["MISMATCH"],
                f"this compression state was saved by stage {there[0]} of {there[1]}, but this is "
                f"stage {here[0]} of {here[1]}: load the state that this stage has saved",
            )
        self.sides()
        ends = self._ends()
        if set(saved["ends"]) - set(ends):
            fail(
                Status["MISMATCH"],
                "this compression state was saved with another placement of stages on ranks: "
                "first make the schedule, with each stage on the same rank as before",
            )
        for name, end in ends.items():
            if name in saved["ends"]:
                end.load(saved["ends"][name])
        for side, name in ((self.before, "before"), (self.after, "after")):
            if side:
                side.mark = saved["marks"].get(name)
