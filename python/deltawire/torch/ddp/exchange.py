# SPDX-License-Identifier: Apache-2.0
# exchange.py - Pieces: the mean of a bucket over gloo; Gather and Parts: two ways to compute it.
from __future__ import annotations

from functools import partial
from typing import Any, Callable, Iterable

import torch

from deltawire.encoder import Encoder
from deltawire.torch.common.configs import of_encoder
from deltawire.torch.gradients import saved_state
from deltawire.torch.gradients.gloo_peers import GlooPeers
from deltawire.torch.gradients.layout import Layout
from deltawire.torch.gradients.split import Receiver, Room, Split

GATHER_WORLD = 2  # the largest number of ranks for which "auto" means "gather"
ALIGNMENT = 64  # elements; so that parts begin at the beginning of a group
PIECE = 1 << 22  # elements, a multiple of ALIGNMENT; ranks with another number cannot work together

Step = Callable[[], None]


def gathers(way: str, world: int) -> bool:
    """Whether each rank sends its frames to all others, so that gradients are quantized once."""
    return way == "gather" or (way == "auto" and world <= GATHER_WORLD)


class DdpPeers(GlooPeers):
    """Makes the exchanges of buckets. way: "auto", "gather" or "parts"."""

    def __init__(self, way: str, *given: Any) -> None:
        super().__init__(*given)
        self._way = way

    def make(self, layout: Layout, dtype: torch.dtype) -> "Pieces":
        return Pieces(self, layout, dtype, not gathers(self._way, self.world))


class Pieces:
    """The exchange of a bucket. Each of its pieces has an exchange of its own, so that a piece is
    encoded or decoded while others are on their way. The last bucket of a backward has nothing else
    to overlap with, and in a language model it is the largest one."""

    def __init__(self, peers: DdpPeers, layout: Layout, dtype: torch.dtype, parts: bool) -> None:
        self._pieces: "list[Any]" = []
        bucket = torch.empty(layout.elements(), dtype=dtype, device="cpu")
        for at, x in enumerate(bucket.split(PIECE)):
            kind = Parts if parts and can_be_cut(x.numel(), peers.world) else Gather
            self._pieces.append(kind(peers, (layout.digest + at) % 2**64, x))

    def pieces(self, x: torch.Tensor) -> "Iterable[tuple[Any, torch.Tensor]]":
        """Returns the exchange of each piece, and the piece of the bucket's gradients."""
        return zip(self._pieces, x.split(PIECE))

    def load(self, states: "dict[str, Any]") -> None:
        saved_state.load_ends(self.ends(), states)

    def ends(self) -> "dict[str, Any]":
        """Returns all encoders and decoders by name, for saved states."""
        return {
            f"{name} of piece {at}": end
            for at, piece in enumerate(self._pieces)
            for name, end in piece.ends().items()
        }


class Gather:
    """Every rank sends its frame to all others, and averages the decoded frames of all ranks."""

    def __init__(self, peers: GlooPeers, id: int, x: torch.Tensor) -> None:
        self._peers, self._key = peers, (id, 0)
        self._encoder = Encoder(of_encoder(peers.codec, "all", peers.rank), peers.threads)
        self._receiver = Receiver(peers, peers.codec)
        self._out, self._hop = Room(), peers.hop()
        self._visits = 0
        self._made = torch.empty(x.numel(), dtype=torch.float32, device="cpu")
        self._sum = None if x.dtype == torch.float32 else torch.empty_like(self._made)

    def send(self, x: torch.Tensor) -> None:
        length = self._receiver.length(lambda rank: self._key, x)
        out = self._out.fit(length)
        self._visits += 1
        frame = self._encoder.encode(
            x,
            [self._key],
            out,
            limit=length,
            reconstruction=self._made,
            places=self._peers.places(self._peers.codec, self._key, self._visits),
        )
        made = out[: len(frame)]
        self._peers.count(made, self._peers.world - 1)
        frames = {rank: made for rank in self._peers.others()}
        self._hop.start(self._peers.number(), length, frames)

    def steps(self, x: torch.Tensor) -> "list[Step]":
        return [partial(self.send, x), self._hop.expect, partial(self.receive, x), self._hop.end]

    def receive(self, x: torch.Tensor) -> None:
        total = x if self._sum is None else self._sum
        for rank in range(self._peers.world):
            if rank != self._peers.rank:
                self._receiver.decode(rank, self._hop.take(rank), self._key, total, rank > 0)
            elif rank > 0:
                total.add_(self._made)
            else:
                total.copy_(self._made)
        total.div_(self._peers.world)
        if self._sum is not None:
            x.copy_(total)

    def ends(self) -> "dict[str, Any]":
        """Returns all encoders and decoders by name, for saved states."""
        return {"encoder": self._encoder, **self._receiver.ends("decoder")}


class Parts(Split):
    """Each rank averages one part of a piece over all ranks, and sends the mean to all."""

    def __init__(self, peers: GlooPeers, id: int, x: torch.Tensor) -> None:
        super().__init__(peers, id, part_elements(x.numel(), peers.world), x.dtype)
        self._sums, self._sums_receiver = (
            Encoder(of_encoder(peers.sums, "sums", peers.rank), peers.threads),
            Receiver(peers, peers.sums),
        )
        self._sums_out, self._sums_hop = Room(), peers.hop()
        self._sums_number = 0
        self._made = torch.empty_like(self._sum)

    def steps(self, x: torch.Tensor) -> "list[Step]":
        send, receive, finish = (partial(do, x) for do in (self.send, self.receive, self.finish))
        return [send, self._hop.expect, receive, self._sums_hop.expect, finish]

    def send(self, x: torch.Tensor) -> None:
        super().send(x)
        self._sums_number = self._peers.number()

    def receive(self, x: torch.Tensor) -> None:
        here = self._peers.rank
        self.total(x).div_(self._peers.world)
        length = self._sums_receiver.length(self._key, self._sum)
        out = self._sums_out.fit(length)
        frame = self._sums.encode(
            self._sum,
            [self._key(here)],
            out,
            limit=length,
            reconstruction=self._made,
            places=self._peers.places(self._peers.sums, self._key(here), self._visits),
        )
        made = out[: len(frame)]
        self._peers.count(made, self._peers.world - 1)
        frames = {rank: made for rank in self._peers.others()}
        self._sums_hop.start(self._sums_number, length, frames)

    def finish(self, x: torch.Tensor) -> None:
        for rank in range(self._peers.world):
            part = self._part(x, rank)
            if rank == self._peers.rank:
                part.copy_(self._made[: part.numel()])
                continue
            direct = part.dtype == torch.float32 and part.numel() == self._size
            out = part if direct else self._sum
            frame = self._sums_hop.take(rank)
            self._sums_receiver.decode(rank, frame, self._key(rank), out, False)
            if not direct:
                part.copy_(out[: part.numel()])
        self._hop.end()
        self._sums_hop.end()

    def ends(self) -> "dict[str, Any]":
        return {
            **super().ends(),
            "encoder of means": self._sums,
            **self._sums_receiver.ends("decoder of means"),
        }


def part_elements(elements: int, world: int) -> int:
    """The number of elements of each part. The last part may extend beyond the piece's end."""
    each = -(-elements // world)
    return -(-each // ALIGNMENT) * ALIGNMENT


def can_be_cut(elements: int, world: int) -> bool:
    """Whether the piece is large enough that the part of every rank is worth a message."""
    return elements >= max(1024, ALIGNMENT * world) * world
