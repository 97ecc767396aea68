# SPDX-License-Identifier: Apache-2.0
# ddp_exchange.py - how the mean of one bucket comes about: by whole frames, or by parts.
"""Both ways leave the same bits on all ranks. Each encodes with a limit that every rank knows
before, for gloo ends a process that receives more than it expects: where all have seen the same
frames, Decoder.expect is the same number everywhere."""

from __future__ import annotations

from typing import Any, Callable

import torch
import torch.distributed as dist

from deltawire.config import Config
from deltawire.decoder import Decoder
from deltawire.encoder import Encoder
from deltawire.errors import DeltawireError, Status
from deltawire.frame import frame_length

ALIGNMENT = 64  # elements: parts begin where groups begin


class Peers:
    """What all exchanges of a hook share.

    rank, world: this rank's place in the hook's group, and how many there are. first, second:
    process groups for the first and the second collective of a bucket. codec: Config of gradients;
    sums: of the sums of parts. threads: shared by all encoders and decoders.
    """

    def __init__(
        self, rank: int, world: int, groups: Any, codec: Config, sums: Config, threads: Any
    ) -> None:
        self.rank, self.world, self.threads = rank, world, threads
        self.first, self.second = groups
        self.codec, self.sums = codec, sums

    def others(self) -> "list[int]":
        return [rank for rank in range(self.world) if rank != self.rank]


class Traffic:
    """What one exchange has put on the wire. frames: encoded. frame_bytes: their own. sent_bytes:
    theirs too, as often as they were sent."""

    def __init__(self) -> None:
        self.frames = self.frame_bytes = self.sent_bytes = 0

    def count(self, length: int, times: int) -> None:
        self.frames += 1
        self.frame_bytes += length
        self.sent_bytes += length * times


class Room:
    """Rows of bytes for frames, kept between steps: one for each rank."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._all = torch.empty(0, dtype=torch.uint8)
        self.rows: "list[torch.Tensor]" = []

    def fit(self, length: int) -> torch.Tensor:
        if self._all.numel() != self._rows * length:
            self._all = torch.zeros(self._rows * length, dtype=torch.uint8)
            self.rows = list(self._all.view(self._rows, length))
        return self._all


class Receiver:
    """The decoders of one collective, one for each other rank."""

    def __init__(self, peers: Peers, config: Config) -> None:
        self._peers = peers
        self._decoders = {rank: Decoder(config, peers.threads) for rank in peers.others()}
        self._stateful = config.codec == "delta"

    def length(self, key_of: "Callable[[int], tuple[int, int]]", x: torch.Tensor) -> int:
        """Bytes of the next frame of x, at every rank. key_of: the key that a rank sends."""
        rank, decoder = next(iter(self._decoders.items()))
        dtype = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}[x.dtype]
        return decoder.expect([key_of(rank)], (1, 1, x.numel()), dtype)

    def decode(self, rank: int, room: torch.Tensor, key: Any, out: torch.Tensor, add: bool) -> None:
        """Rank's frame, which must be of that key, into out."""
        _, length = frame_length(room)
        made = self._decoders[rank].decode(
            room[: min(length, room.numel())], out, add=1.0 if add else None, reply=False
        )
        if self._stateful and made.ids != [key if key[1] else key[0]]:
            raise DeltawireError(
                Status["MISMATCH"],
                f"rank {rank} of the group sent another bucket than this one: all ranks must take "
                "the same steps with the same model",
            )

    def counters(self) -> "list[Any]":
        return [decoder.counters() for decoder in self._decoders.values()]


class Gather:
    """Every rank sends its frame to all others, and adds up what all of them decode to."""

    def __init__(self, peers: Peers, id: int, x: torch.Tensor) -> None:
        self._peers, self._key = peers, (id, 0)
        self.traffic = Traffic()
        self._encoder = Encoder(peers.codec, peers.threads)
        self._receiver = Receiver(peers, peers.codec)
        self._out, self._in = Room(1), Room(peers.world)
        self._made = torch.empty(x.numel(), dtype=torch.float32)
        self._sum = None if x.dtype == torch.float32 else torch.empty_like(self._made)

    def send(self, job: Any) -> None:
        length = self._receiver.length(lambda rank: self._key, job.x)
        out = self._out.fit(length)
        self._in.fit(length)
        frame = self._encoder.encode(
            job.x, [self._key], out, limit=length, reconstruction=self._made
        )
        self.traffic.count(len(frame), self._peers.world - 1)
        job.work = dist.all_gather(self._in.rows, out, group=self._peers.first, async_op=True)

    def receive(self, job: Any) -> None:
        job.work.wait()
        total = job.x if self._sum is None else self._sum
        for rank in range(self._peers.world):
            if rank != self._peers.rank:
                self._receiver.decode(rank, self._in.rows[rank], self._key, total, rank > 0)
            elif rank > 0:
                total.add_(self._made)
            else:
                total.copy_(self._made)
        total.div_(self._peers.world)
        if self._sum is not None:
            job.x.copy_(total)

    def finish(self, job: Any) -> None:
        """There is no second collective."""


class Parts:
    """Each rank adds up one part of the bucket, and sends what became of it to all others."""

    def __init__(self, peers: Peers, id: int, x: torch.Tensor) -> None:
        self._peers, self._id = peers, id
        self.traffic = Traffic()
        self._size = part_elements(x.numel(), peers.world)
        self._encoders = {rank: Encoder(peers.codec, peers.threads) for rank in peers.others()}
        self._receiver = Receiver(peers, peers.codec)
        self._sums, self._sums_receiver = (
            Encoder(peers.sums, peers.threads),
            Receiver(peers, peers.sums),
        )
        self._out, self._in = Room(peers.world), Room(peers.world)
        self._sums_out, self._sums_in = Room(1), Room(peers.world)
        self._sum = torch.empty(self._size, dtype=torch.float32)
        self._made = torch.empty_like(self._sum)
        # The last part is as long as the others, with zeros behind the bucket's end.
        self._last = torch.zeros(self._size, dtype=x.dtype)

    def _part(self, x: torch.Tensor, rank: int) -> torch.Tensor:
        """What lies in the bucket of a rank's part."""
        return x[rank * self._size : (rank + 1) * self._size]

    def _whole(self, x: torch.Tensor, rank: int) -> torch.Tensor:
        """A rank's part, as long as every part."""
        part = self._part(x, rank)
        if part.numel() == self._size:
            return part
        self._last[: part.numel()].copy_(part)
        return self._last

    def _key(self, rank: int) -> "tuple[int, int]":
        return self._id, rank

    def send(self, job: Any) -> None:
        here = self._peers.rank
        length = self._receiver.length(lambda rank: self._key(here), self._whole(job.x, here))
        out, room = self._out.fit(length), self._in.fit(length)
        for rank in self._peers.others():
            frame = self._encoders[rank].encode(
                self._whole(job.x, rank), [self._key(rank)], self._out.rows[rank], limit=length
            )
            self.traffic.count(len(frame), 1)
        job.work = dist.all_to_all_single(room, out, group=self._peers.first, async_op=True)

    def receive(self, job: Any) -> None:
        job.work.wait()
        here = self._peers.rank
        for rank in range(self._peers.world):
            if rank != here:
                self._receiver.decode(
                    rank, self._in.rows[rank], self._key(here), self._sum, rank > 0
                )
            elif rank > 0:
                self._sum.add_(self._whole(job.x, here))
            else:
                self._sum.copy_(self._whole(job.x, here))
        self._sum.div_(self._peers.world)
        length = self._sums_receiver.length(self._key, self._sum)
        out = self._sums_out.fit(length)
        self._sums_in.fit(length)
        frame = self._sums.encode(
            self._sum, [self._key(here)], out, limit=length, reconstruction=self._made
        )
        self.traffic.count(len(frame), self._peers.world - 1)
        job.work = dist.all_gather(self._sums_in.rows, out, group=self._peers.second, async_op=True)

    def finish(self, job: Any) -> None:
        job.work.wait()
        for rank in range(self._peers.world):
            part = self._part(job.x, rank)
            if rank == self._peers.rank:
                part.copy_(self._made[: part.numel()])
                continue
            direct = part.dtype == torch.float32 and part.numel() == self._size
            out = part if direct else self._sum
            self._sums_receiver.decode(rank, self._sums_in.rows[rank], self._key(rank), out, False)
            if not direct:
                part.copy_(out[: part.numel()])


def part_elements(elements: int, world: int) -> int:
    """How many elements each part has; the last may reach behind the bucket's end."""
    each = -(-elements // world)
    return -(-each // ALIGNMENT) * ALIGNMENT


def can_be_cut(elements: int, world: int) -> bool:
    """Whether every rank's part has something in it, and is worth a message."""
    return elements >= max(1024, ALIGNMENT * world) * world
