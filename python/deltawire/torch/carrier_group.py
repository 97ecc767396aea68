# SPDX-License-Identifier: Apache-2.0
# carrier_group.py - GroupLane: messages as tensors of uint8 through torch's own process group.
"""gloo takes a message that is shorter than the receive, and ends the process where it is longer.
So a receive is posted with room for the largest message that the shapes allow, both ends know this
room, and what is longer announces itself: a short LONG message, then the message itself under a tag
of its own, for which the receiver then has the room.

Backends that want equal counts (NCCL) get 8 bytes with the length before each message. Messages of
all lanes from one rank to another then have one order, that of torch's schedule, since such
backends know no tags; and each such way has a process group of its own, since sends and receives
that wait in one queue would wait for each other."""

from __future__ import annotations

import collections
import weakref
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

from deltawire.torch import tensors
from deltawire.torch.lane import Lane
from deltawire.torch.message import LONG, Message, pack, unpack
from deltawire.torch.step_end import StepEnd

TAGS = 1 << 20  # the first tag of ours; torch's own schedules use 0
_one_way: "weakref.WeakKeyDictionary[Any, dict[tuple[int, int], Any]]" = (
    weakref.WeakKeyDictionary()
)


def wants_equal_counts(group: Any) -> bool:
    return "gloo" not in str(dist.get_backend(group))


class GroupLane(Lane):
    """rank: the neighbour's in the group. tags: (out, in), each with the next one free.
    device: where the backend wants its tensors. room: of the receives here, in bytes. their_room:
    asks for the neighbour's; it may wait."""

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
        self._posted: "collections.deque[tuple[Any, bytearray]]" = collections.deque()
        self._end = StepEnd.of(group)
        self._unwaited: "list[Any]" = []

    def send(self, data: bytearray, waits: bool = True) -> None:
        if self._their_room is None:
            self._their_room = self._ask_room()
        if len(data) <= self._their_room:
            self._isend(data, self._tag_out, waits)
            return
        self._isend(pack(Message(LONG, 0, 0, length=len(data))), self._tag_out)
        self._isend(data, self._tag_out + 1)

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
        """Waits; the tensor lives as long."""
        try:
            work.wait()
        except RuntimeError as error:
            self.lost(error)

    def post(self) -> None:
        room = bytearray(self.room)
        self._posted.append((self._irecv(room, self._tag_in), room))

    def _irecv(self, room: bytearray, tag: int) -> Any:
        tensor = tensors.of_buffer(room)
        try:
            return dist.irecv(tensor, group=self._group, group_src=self._rank, tag=tag)
        except RuntimeError as error:
            self.lost(error)

    def take(self) -> memoryview:
        if not self._posted:
            self.post()
        work, room = self._posted.popleft()
        data = self._arrived(work, room)
        head = unpack(data[: min(len(data), 64)]) if data[4] == LONG else None
        if head is None:
            return data
        room = bytearray(head.length)
        return self._arrived(self._irecv(room, self._tag_in + 1), room)

    def _arrived(self, work: Any, room: bytearray) -> memoryview:
        try:
            work.wait()
        except RuntimeError as error:
            self.lost(error)
        return memoryview(room)


class EqualCountsLane(GroupLane):
    """For backends in which both ends must name the same count: the length goes before.

    It does not survive a step that was given up: without tags nobody could tell which of the
    receives that were asked for then a message belongs to."""

    survives = False

    def __init__(self, *args: Any, device: torch.device, my_rank: int) -> None:
        super().__init__(*args)
        self._device = device
        ways = _one_way.setdefault(self._group, {})
        self._out = ways.get((my_rank, self._rank), self._group)
        self._edge = Edge.of(self._group, ways.get((self._rank, my_rank)), self._rank)
        self._waiting = 0
        self.inbox: "collections.deque[bytearray]" = collections.deque()

    def send(self, data: bytearray, waits: bool = True) -> None:
        for part in (torch.tensor([len(data)], dtype=torch.int64), tensors.of_buffer(data)):
            part = part.to(self._device)
            try:
                work = dist.isend(part, dst=_global(self._group, self._rank), group=self._out)
            except RuntimeError as error:
                self.lost(error)
            self._keep(work, part, waits)

    def post(self) -> None:
        self._waiting += 1
        self._edge.order.append(self)

    def take(self) -> memoryview:
        if not self._waiting:
            self.post()
        try:
            while not self.inbox:
                self._edge.receive(self._device)
        except RuntimeError as error:
            self.lost(error)
        self._waiting -= 1
        return memoryview(self.inbox.popleft())


class Edge:
    """All that comes from one rank, in the order in which its lanes asked for it."""

    _of: "weakref.WeakKeyDictionary[Any, dict[int, Edge]]" = weakref.WeakKeyDictionary()

    def __init__(self, group: Any, one_way: Any, rank: int) -> None:
        self._source, self._group = _global(group, rank), one_way if one_way else group
        self.order: "collections.deque[EqualCountsLane]" = collections.deque()

    @classmethod
    def of(cls, group: Any, one_way: Any, rank: int) -> "Edge":
        edges = cls._of.setdefault(group, {})
        if rank not in edges:
            edges[rank] = cls(group, one_way, rank)
        return edges[rank]

    def receive(self, device: torch.device) -> None:
        """The next message of this edge, into the inbox of the lane that asked first."""
        lane = self.order.popleft()
        length = torch.zeros(1, dtype=torch.int64, device=device)
        dist.recv(length, src=self._source, group=self._group)
        data = bytearray(int(length.item()))
        room = tensors.of_buffer(data)
        there = room.to(device)  # the same tensor where the device is main memory
        dist.recv(there, src=self._source, group=self._group)
        if there is not room:
            room.copy_(there)
        lane.inbox.append(data)


def make_one_way_groups(group: Any, ranks_of_stages: "dict[int, int]") -> None:
    """A process group for each way between neighbouring ranks: the same order on all of them."""
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


def _global(group: Any, rank: int) -> int:
    return dist.get_global_rank(group, rank)
