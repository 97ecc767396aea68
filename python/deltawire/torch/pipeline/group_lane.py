# SPDX-License-Identifier: Apache-2.0
# group_lane.py - GroupLane: carries messages as uint8 tensors over torch's process group.
"""With gloo, a message may be shorter than the receive buffer, but a longer one terminates the
process. So a receive is posted with a buffer for the largest message that the tensor shapes allow,
and both ends know its size. Before a longer message, the sender sends a short message of the kind
LONG with the length; the long message itself has another tag, for which the receiver then posts a
buffer of that length. If a message of the kind LONG was damaged, its long message is received and
dropped when the next one arrives, which tells how many there were and how long they are at most.

Some backends, such as NCCL, require that both ends name the same size. There, 16 bytes with the
length and its digest precede each message. Such backends have no tags, so the messages of all lanes
from one rank to another arrive in a single order, that of torch's schedule. Each direction between
two ranks has a process group of its own, because sends and receives in one queue would block each
other."""

from __future__ import annotations

import collections
import hashlib
import weakref
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

from deltawire.errors import DeltawireError, Status, fail
from deltawire.torch.common import tensors
from deltawire.torch.common.waits import Wait
from deltawire.torch.pipeline.lane import Lane
from deltawire.torch.pipeline.message import LONG, LONG_BYTES, Message, pack, unpack
from deltawire.torch.pipeline.step_end import StepEnd

TAGS = 1 << 20  # the first tag of deltawire; torch's own schedules use 0
_one_way: "weakref.WeakKeyDictionary[Any, dict[tuple[int, int], Any]]" = (
    weakref.WeakKeyDictionary()
)


def wants_equal_counts(group: Any) -> bool:
    name = str(dist.get_backend(group))
    if name == "undefined":  # init_process_group() without a backend: one for each kind of device
        name = group._get_backend(torch.device("cpu")).name()
    return "gloo" not in name


class GroupLane(Lane):
    """A lane over a process group.

    rank: the neighbour's rank in the group.
    tags: (for sending, for receiving). The number after each of them is for long messages.
    room: the size of the receive buffers of this stage, in bytes.
    their_room: a function that returns the size of the neighbour's receive buffers. It may wait.
    """

    def __init__(
        self,
        me: int,
        other: int,
        group: Any,
        rank: int,
        tags: "tuple[int, int]",
        room: int,
        their_room: "Callable[[], int]",
    ) -> None:
        super().__init__(me, other)
        self._group, self._rank = group, rank
        self._tag_out, self._tag_in = tags
        self.room, self._ask_room = room, their_room
        self._their_room: Optional[int] = None
        self._posted: "collections.deque[tuple[Wait, memoryview]]" = collections.deque()
        self._rooms = tensors.Rooms()
        self._end = StepEnd.of(group)
        self._unwaited: "list[Any]" = []
        self._longs_sent = self._longs_taken = self._longest = 0
        # A long message that was announced, and the receive of one, until they have arrived.
        self._announced: Optional[Message] = None
        self._long: "Optional[tuple[Wait, memoryview]]" = None

    def send(self, data: bytearray, waits: bool = True) -> int:
        if self._their_room is None:
            self._their_room = self._ask_room()
        if len(data) <= self._their_room:
            self._isend(data, self._tag_out, waits)
            return len(data)
        self._longest = max(self._longest, len(data))
        announced = Message(
            LONG, 0, 0, length=len(data), number=self._longs_sent, largest=self._longest
        )
        told = pack(announced)
        self._isend(told, self._tag_out)
        self._longs_sent += 1
        self._isend(data, self._tag_out + 1)
        return len(told) + len(data)

    def _isend(self, data: bytearray, tag: int, waits: bool = True) -> None:
        tensor = tensors.of_buffer(data)
        try:
            work = dist.isend(tensor, group=self._group, group_dst=self._rank, tag=tag)
        except RuntimeError as error:
            self.lost(error)
        self._keep(work, tensor, waits)

    def _keep(self, work: Any, tensor: torch.Tensor, waits: bool) -> None:
        if waits:
            self._end.later(lambda: self._sent(work, tensor))
        else:
            self._unwaited.append((work, tensor))

    def _sent(self, work: Any, tensor: torch.Tensor) -> None:
        """Waits until a message is sent. tensor is its memory, which must live until then."""
        try:
            self.sending.time(Wait(work.wait, tensor, tensor.device.type != "cpu").end)
        except RuntimeError as error:
            self.lost(error)

    def post(self) -> None:
        room = self._rooms.take(self.room, f"stage {self.other}")
        self._posted.append(self._irecv(room, self._tag_in))

    def give_back(self, data: memoryview) -> None:
        if len(data) == self.room:  # a long message has memory of its own
            self._rooms.give_back(data)

    def _irecv(self, room: memoryview, tag: int) -> "tuple[Wait, memoryview]":
        tensor = tensors.of_buffer(room)
        try:
            work = dist.irecv(tensor, group=self._group, group_src=self._rank, tag=tag)
            return Wait(work.wait, tensor), room
        except RuntimeError as error:
            self.lost(error)

    def take(self) -> memoryview:
        if not self._posted:
            self.post()
        if self._announced is None:
            try:
                data = self._arrived(self._posted[0])
            except DeltawireError:
                self._posted.popleft()
                raise
            self._posted.popleft()
            self.added = 0
            if data[4] != LONG:
                return data
            self._announced = unpack(data[:LONG_BYTES])
            self.added = LONG_BYTES
            self.give_back(data)
        try:
            while self._longs_taken < self._announced.number:  # announced by damaged messages
                self._take_long(self._announced.largest)
            data = self._take_long(self._announced.length)
        except DeltawireError:
            self._announced = self._long = None
            raise
        self._announced = None
        return data

    def _take_long(self, length: int) -> memoryview:
        if self._long is None:
            room = tensors.buffer_for(length, f"stage {self.other}")
            self._long = self._irecv(memoryview(room), self._tag_in + 1)
        data = self._arrived(self._long)
        self._long = None
        self._longs_taken += 1
        return data

    def _arrived(self, posted: "tuple[Wait, memoryview]") -> memoryview:
        """Waits for a receive. If an interrupt ends the wait, take() continues where it was."""
        wait, room = posted
        try:
            wait.end()
        except RuntimeError as error:
            self.lost(error)
        return room


class EqualCountsLane(GroupLane):
    """A lane for backends in which both ends must name the same size. The length is sent first.

    It does not survive a failed step: without tags, messages of the failed step cannot be told from
    those of the next one.

    device: where the backend needs its tensors. my_rank: this rank in the group.
    """

    survives = False
    added = 16

    def __init__(self, *args: Any, device: torch.device, my_rank: int) -> None:
        super().__init__(*args)
        self._device = device
        ways = _one_way.setdefault(self._group, {})
        self._out = ways.get((my_rank, self._rank), self._group)
        self._edge = Edge.of(self._group, ways.get((self._rank, my_rank)), self._rank)
        self._waiting = 0
        self.inbox: "collections.deque[memoryview]" = collections.deque()

    def send(self, data: bytearray, waits: bool = True) -> int:
        for part in (_with_digest(len(data)), tensors.of_buffer(data)):
            part = part.to(self._device)
            try:
                work = dist.isend(part, dst=_global(self._group, self._rank), group=self._out)
            except RuntimeError as error:
                self.lost(error)
            self._keep(work, part, waits)
        return self.added + len(data)

    def give_back(self, data: memoryview) -> None:
        self._edge.rooms.give_back(data)

    def post(self) -> None:
        self._waiting += 1
        self._edge.order.append(self)

    def take(self) -> memoryview:
        if not self._waiting:
            self.post()
        try:
            while not self.inbox:
                self._edge.receive(self._device)
        except DeltawireError:
            raise
        except RuntimeError as error:
            self.lost(error)
        self._waiting -= 1
        return self.inbox.popleft()


class Edge:
    """The messages from one rank to all lanes, in the order in which the lanes post receives."""

    _of: "weakref.WeakKeyDictionary[Any, dict[int, Edge]]" = weakref.WeakKeyDictionary()

    def __init__(self, group: Any, one_way: Any, rank: int) -> None:
        self._source, self._group = _global(group, rank), one_way if one_way else group
        self.order: "collections.deque[EqualCountsLane]" = collections.deque()
        self._wait: Optional[Wait] = None  # for the next message
        self.rooms = tensors.Rooms()

    @classmethod
    def of(cls, group: Any, one_way: Any, rank: int) -> "Edge":
        edges = cls._of.setdefault(group, {})
        if rank not in edges:
            edges[rank] = cls(group, one_way, rank)
        return edges[rank]

    def receive(self, device: torch.device) -> None:
        """Receives a message and puts it into the inbox of the lane that has waited longest."""
        if self._wait is None:
            head = torch.zeros(2, dtype=torch.int64, device=device)
            self._wait = Wait(lambda: self._message(head))
        try:
            data = self._wait.end()
        except RuntimeError:
            self._wait = None
            self.order.popleft()
            raise
        self._wait = None
        self.order.popleft().inbox.append(data)

    def _message(self, head: torch.Tensor) -> memoryview:
        """Receives a message and its header, for which there is a tensor."""
        dist.recv(head, src=self._source, group=self._group)
        length = int(head[0].item())
        if not torch.equal(head.cpu(), _with_digest(length)):
            fail(
                Status["CORRUPT"],
                f"the length of a message of rank {self._source} was damaged on the way, so its "
                "messages cannot be told from each other any more: start all ranks again",
            )
        data = self.rooms.take(length, f"rank {self._source}")
        room = tensors.of_buffer(data)
        there = room.to(head.device)  # the same tensor if the device is the CPU
        dist.recv(there, src=self._source, group=self._group)
        if there is not room:
            room.copy_(there)
        return data


def make_one_way_groups(group: Any, ranks_of_stages: "dict[int, int]") -> None:
    """Makes a process group for each direction between neighbouring ranks, in the same order on all
    ranks."""
    if group in _one_way:
        return
    ranks = [ranks_of_stages[stage] for stage in sorted(ranks_of_stages)]
    edges = {pair for a, b in zip(ranks, ranks[1:]) if a != b for pair in ((a, b), (b, a))}
    mine, made = dist.get_rank(group), {}
    for edge in sorted(edges):
        if mine in edge:
            members = [_global(group, rank) for rank in edge]
            made[edge] = dist.new_group(members, use_local_synchronization=True)
    _one_way[group] = made


def _with_digest(length: int) -> torch.Tensor:
    told = length.to_bytes(8, "little", signed=True)
    digest = hashlib.blake2b(told, digest_size=8).digest()
    return torch.tensor([length, int.from_bytes(digest, "little", signed=True)], device="cpu")


def _global(group: Any, rank: int) -> int:
    return dist.get_global_rank(group, rank)
