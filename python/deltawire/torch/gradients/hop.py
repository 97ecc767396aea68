# SPDX-License-Identifier: Apache-2.0
# hop.py - Hop: frames that each rank sends to the others and receives from them, over gloo.
"""A frame follows its length, and nothing is padded. gloo terminates a process that receives more
than it expects, so the receive of a frame is posted when its length is known. Each message has a
tag of its own; so frames of several buckets may be on their way, in any order.

gloo has one connection between two ranks of a group, and sends a message only after the receiver
has asked for it there. In a single group a receiver's requests would wait behind its own frames, so
that frames would go in one direction at a time. So there are three groups: one for frames to higher
ranks, one for frames to lower ranks, and one for lengths, which then need not wait for the frames
of the bucket before."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from deltawire.errors import Status, fail
from deltawire.torch.common.report import Seconds
from deltawire.torch.common.waits import Wait

LENGTH_BYTES = 8
UP, DOWN, LENGTHS = range(3)  # the groups
GROUPS = 3
TAGS = 1 << 28  # gloo's tags have 32 bits; later messages begin again with the first


class Hop:
    """Frames to and from all other ranks. A hop serves one exchange after the other, and keeps its
    buffers for the next one.

    groups: process groups of ours with the backend gloo. ranks: their global ranks; here: this
    rank's place among them. wire: the time in which a hop waits for messages to arrive and leave.
    """

    def __init__(
        self, groups: "list[Any]", ranks: "list[int]", here: int, wire: Seconds
    ) -> None:
        self._groups, self._ranks, self._here, self._wire = groups, ranks, here, wire
        self.others = [rank for rank in range(len(ranks)) if rank != here]
        self._lengths = {rank: _bytes(LENGTH_BYTES).view(torch.int64) for rank in self.others}
        self._rooms = {rank: _bytes(0) for rank in self.others}
        self._sends: "list[tuple[Wait, Any]]" = []

    def start(self, number: int, longest: int, frames: "dict[int, torch.Tensor]") -> None:
        """Sends each rank its frame. number: of the exchange and hop, the same on all ranks.
        longest: no frame that arrives may be longer."""
        self._tag, self._longest = 2 * number % TAGS, longest
        for rank, frame in frames.items():
            length = torch.tensor([frame.numel()], dtype=torch.int64, device="cpu")
            self._send(length, rank, 0)
            self._send(frame, rank, 1)
        self._heard = {rank: self._receive(self._lengths[rank], rank, 0) for rank in self.others}
        self._arriving: "dict[int, Any]" = {}

    def expect(self) -> None:
        """Waits for the lengths of all ranks, and begins to receive their frames. Not to be left
        until earlier frames are decoded: until then nothing would be on its way."""
        for rank, heard in self._heard.items():
            self._wire.time(heard.end)
            length = int(self._lengths[rank])
            if not 0 < length <= self._longest:
                fail(
                    Status["PROTOCOL"],
                    f"rank {rank} of the group announced a frame of {length} bytes; at most "
                    f"{self._longest} are possible: run the same deltawire on all ranks",
                )
            if self._rooms[rank].numel() < length:
                self._rooms[rank] = _bytes(length)
            room = self._rooms[rank][:length]
            self._arriving[rank] = self._receive(room, rank, 1), room

    def take(self, rank: int) -> torch.Tensor:
        """Waits for the frame of a rank."""
        wait, frame = self._arriving[rank]
        self._wire.time(wait.end)
        return frame

    def end(self) -> None:
        """Waits until all frames of this rank are sent."""
        for wait, _ in self._sends:
            self._wire.time(wait.end)
        self._sends = []

    def _send(self, data: torch.Tensor, rank: int, which: int) -> None:
        """which: 0: a length; 1: a frame."""
        group = self._groups[LENGTHS if which == 0 else UP if rank > self._here else DOWN]
        work = dist.isend(data, self._ranks[rank], group, self._tag + which)
        self._sends.append((Wait(work.wait, data), data))

    def _receive(self, room: torch.Tensor, rank: int, which: int) -> Wait:
        group = self._groups[LENGTHS if which == 0 else UP if self._here > rank else DOWN]
        work = dist.irecv(room, self._ranks[rank], group, self._tag + which)
        return Wait(work.wait, room)


def _bytes(n: int) -> torch.Tensor:
    return torch.empty(n, dtype=torch.uint8, device="cpu")
