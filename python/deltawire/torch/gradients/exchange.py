# SPDX-License-Identifier: Apache-2.0
# exchange.py - Gather and Parts: the two ways to compute the mean of a bucket.
"""Both give all ranks the same bits. A frame is never longer than all ranks know in advance:
Decoder.expect returns the same number on all ranks that have decoded the same frames."""

from __future__ import annotations

import hashlib
import itertools
import weakref
from typing import Any, Callable, Iterable

import torch

from deltawire.config import Config
from deltawire.decoder import Decoder
from deltawire.encoder import Encoder
from deltawire.errors import DeltawireError, Status
from deltawire.torch.common.report import Seconds
from deltawire.torch.gradients import saved_state
from deltawire.torch.gradients.gloo_group import group_of_ours
from deltawire.torch.gradients.hop import LENGTH_BYTES, Hop
from deltawire.torch.gradients.layout import Layout
from deltawire.torch.gradients.meeting import Meeting
from deltawire.torch.gradients.traffic import Traffic
from deltawire.torch.pipeline.ends import of_encoder

GATHER_WORLD = 2  # the largest number of ranks for which "auto" means "gather"
ALIGNMENT = 64  # elements; so that parts begin at the beginning of a group


def gathers(way: str, world: int) -> bool:
    """Whether each rank sends its frames to all others, so that gradients are quantized once."""
    return way == "gather" or (way == "auto" and world <= GATHER_WORLD)


class Peers:
    """What all exchanges of a hook have in common, over a process group with the backend gloo.

    rank, world: this rank in the hook's group, and the number of ranks.
    way: "auto", "gather" or "parts".
    codec, sums: the configs of gradients, and of the means of parts.
    threads: for all encoders and decoders.
    nonce: a text that all ranks have, another one for each hook.
    """

    spoiled = False  # only exchanges have state, and those that are not complete are dropped

    def __init__(
        self, meeting: Meeting, way: str, codec: Config, sums: Config, threads: Any, nonce: str
    ) -> None:
        self.rank, self.world, self.threads = meeting.rank, len(meeting.ranks), threads
        self.way, self.codec, self.sums, self.nonce = way, codec, sums, nonce
        self._meeting = meeting
        self._group = group_of_ours(meeting) if self.world > 1 else None
        self._numbers = itertools.count()
        self._traffic, self.wire = Traffic(), Seconds()
        self._exchanges: "weakref.WeakSet[Any]" = weakref.WeakSet()
        self._codec_s = 0.0  # of exchanges that are forgotten

    def others(self) -> "list[int]":
        return [rank for rank in range(self.world) if rank != self.rank]

    def hop(self) -> Hop:
        return Hop(self._group, self._meeting.ranks, self.rank, self.wire)

    def number(self) -> int:
        """The number of a hop of an exchange, for its tags. All ranks process buckets in one order;
        an exchange asks for both of its numbers when it begins."""
        return next(self._numbers)

    def count(self, frame: torch.Tensor, times: int) -> None:
        self._traffic.count(frame.numel(), times, LENGTH_BYTES)

    def exchange(self, layout: Layout, dtype: torch.dtype) -> Any:
        """Makes the exchange of a bucket, of the same kind on all ranks."""
        elements = layout.elements()
        by_parts = not gathers(self.way, self.world)
        kind = Parts if by_parts and can_be_cut(elements, self.world) else Gather
        made = kind(self, layout.digest, torch.empty(elements, dtype=dtype, device="cpu"))
        self._exchanges.add(made)
        return made

    def places(self, config: Config, key: "tuple[int, int]", visit: int) -> int:
        """What randk and cocktail draw places from (Encoder.encode): the same number on all ranks
        for a part of a bucket and its mean. Otherwise the second collective would leave out most of
        what the first one has carried. With scaling=unbiased they must draw apart."""
        if config._is_unbiased():
            return 0
        name = f"{self.nonce} {key[0]} {key[1]} {visit}".encode()
        return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little") | 1

    def traffic(self) -> Traffic:
        try:
            now = [codec_seconds(exchange) for exchange in list(self._exchanges)]
            self._traffic.codec_seconds = self._codec_s + sum(now)
        except DeltawireError:
            pass  # another thread is encoding: the last sum stays
        return self._traffic

    def states(self, exchanges: "list[Any]") -> "list[dict[str, torch.Tensor]]":
        """Returns the saved state of each exchange."""
        return [saved_state.states_of(exchange.ends()) for exchange in exchanges]

    def encoders(self, exchanges: "Iterable[Any]") -> "list[Any]":
        """What Fit looks at."""
        ends = [end for exchange in exchanges for end in exchange.ends().values()]
        return [end for end in ends if isinstance(end, Encoder)]

    def flush(self) -> None:
        """Does nothing: gloo has sent what it was given when a collective has ended."""

    def forget(self, exchange: Any) -> None:
        """Counts the exchange, with which its state ends."""
        self._exchanges.discard(exchange)
        self._codec_s += codec_seconds(exchange)

    def begin_loading(self) -> None:
        """Does nothing: loaded states are those of new exchanges."""

    end_loading = begin_anew = load_again = begin_loading

    def close(self) -> None:
        """Does nothing: the process groups are torch's."""


def codec_seconds(exchange: Any) -> float:
    """The time inside the encode and decode of an exchange that is not under way."""
    return sum(end.counters().busy_ns for end in exchange.ends().values()) * 1e-9


class Room:
    """A buffer for a frame, which is kept between steps."""

    def __init__(self) -> None:
        self._all = torch.empty(0, dtype=torch.uint8, device="cpu")

    def fit(self, length: int) -> torch.Tensor:
        if self._all.numel() < length:
            self._all = torch.empty(length, dtype=torch.uint8, device="cpu")
        return self._all[:length]


class Receiver:
    """The decoders for one hop: one for each other rank."""

    def __init__(self, peers: Peers, config: Config) -> None:
        self._peers = peers
        self._decoders = {rank: Decoder(config, peers.threads) for rank in peers.others()}
        self._stateful = config.codec == "delta"

    def length(self, key_of: "Callable[[int], tuple[int, int]]", x: torch.Tensor) -> int:
        """Returns the maximum size in bytes of the next frame, the same number on all ranks.

        key_of: a function that returns the key of a rank's frame. x: a tensor like the encoded."""
        rank, decoder = next(iter(self._decoders.items()))
        dtype = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}[x.dtype]
        return decoder.expect([key_of(rank)], (1, 1, x.numel()), dtype)

    def decode(
        self, rank: int, frame: torch.Tensor, key: Any, out: torch.Tensor, add: bool
    ) -> None:
        """Decodes the frame of a rank into out, or adds it to out. The frame must have this key."""
        try:
            made = self._decoders[rank].decode(
                frame, out, add=1.0 if add else None, reply=False
            )
        except DeltawireError as error:
            raise DeltawireError(
                error.status,
                f"a frame of rank {rank} of the group was rejected ({error.why}): the states of "
                "the ranks may differ now, so start all of them again from a checkpoint, with "
                "load_compression_state_dict",
            ) from error
        if self._stateful and made.ids != [key if key[1] else key[0]]:
            raise DeltawireError(
                Status["MISMATCH"],
                f"rank {rank} of the group sent another bucket than this one: run the same steps "
                "with the same model on all ranks",
            )

    def counters(self) -> "list[Any]":
        return [decoder.counters() for decoder in self._decoders.values()]

    def ends(self, word: str) -> "dict[str, Any]":
        """Returns the decoders by name, for saved states."""
        return {f"{word} of rank {rank}": end for rank, end in self._decoders.items()}


class Gather:
    """Every rank sends its frame to all others, and averages the decoded frames of all ranks."""

    def __init__(self, peers: Peers, id: int, x: torch.Tensor) -> None:
        self._peers, self._key = peers, (id, 0)
        self._encoder = Encoder(of_encoder(peers.codec, "all", peers.rank), peers.threads)
        self._receiver = Receiver(peers, peers.codec)
        self._out, self._hop = Room(), peers.hop()
        self._visits = 0
        self._made = torch.empty(x.numel(), dtype=torch.float32, device="cpu")
        self._sum = None if x.dtype == torch.float32 else torch.empty_like(self._made)

    def send(self, job: Any) -> None:
        length = self._receiver.length(lambda rank: self._key, job.x)
        out = self._out.fit(length)
        self._visits += 1
        frame = self._encoder.encode(
            job.x,
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

    def receive(self, job: Any) -> None:
        self._hop.expect()
        total = job.x if self._sum is None else self._sum
        for rank in range(self._peers.world):
            if rank != self._peers.rank:
                self._receiver.decode(rank, self._hop.take(rank), self._key, total, rank > 0)
            elif rank > 0:
                total.add_(self._made)
            else:
                total.copy_(self._made)
        total.div_(self._peers.world)
        if self._sum is not None:
            job.x.copy_(total)

    def finish(self, job: Any) -> None:
        self._hop.end()

    def load(self, states: "dict[str, Any]") -> None:
        saved_state.load_ends(self.ends(), states)

    def ends(self) -> "dict[str, Any]":
        """Returns all encoders and decoders by name, for saved states."""
        return {"encoder": self._encoder, **self._receiver.ends("decoder")}


class Split:
    """Each rank adds up one part of a buffer over all ranks: the first hop.

    size: the number of elements of a part. The last one is padded with zeros to it.
    """

    def __init__(self, peers: Peers, id: int, size: int, dtype: torch.dtype) -> None:
        self._peers, self._id, self._size, self._visits = peers, id, size, 0
        self._encoders = {
            rank: Encoder(of_encoder(peers.codec, "part", peers.rank, rank), peers.threads)
            for rank in peers.others()
        }
        self._receiver = Receiver(peers, peers.codec)
        self._out, self._hop = {rank: Room() for rank in peers.others()}, peers.hop()
        self._sum = torch.empty(size, dtype=torch.float32, device="cpu")
        self._last = torch.zeros(size, dtype=dtype, device="cpu")

    def _part(self, x: torch.Tensor, rank: int) -> torch.Tensor:
        """The part of a rank, without padding."""
        return x[rank * self._size : (rank + 1) * self._size]

    def _whole(self, x: torch.Tensor, rank: int) -> torch.Tensor:
        """The part of a rank, padded to the size of all parts."""
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
        self._visits += 1
        frames = {}
        for rank in self._peers.others():
            key, out = self._key(rank), self._out[rank].fit(length)
            frame = self._encoders[rank].encode(
                self._whole(job.x, rank),
                [key],
                out,
                limit=length,
                places=self._peers.places(self._peers.codec, key, self._visits),
            )
            frames[rank] = out[: len(frame)]
            self._peers.count(frames[rank], 1)
        self._hop.start(self._peers.number(), length, frames)

    def total(self, job: Any) -> torch.Tensor:
        """Returns the sum of this rank's part, in float32."""
        self._hop.expect()
        here = self._peers.rank
        for rank in range(self._peers.world):
            if rank != here:
                frame = self._hop.take(rank)
                self._receiver.decode(rank, frame, self._key(here), self._sum, rank > 0)
            elif rank > 0:
                self._sum.add_(self._whole(job.x, here))
            else:
                self._sum.copy_(self._whole(job.x, here))
        return self._sum

    def load(self, states: "dict[str, Any]") -> None:
        saved_state.load_ends(self.ends(), states)

    def ends(self) -> "dict[str, Any]":
        """Returns all encoders and decoders by name, for saved states."""
        return {
            **{f"encoder for rank {rank}": end for rank, end in self._encoders.items()},
            **self._receiver.ends("decoder"),
        }


class Parts(Split):
    """Each rank averages one part of the bucket over all ranks, and sends the mean to all."""

    def __init__(self, peers: Peers, id: int, x: torch.Tensor) -> None:
        super().__init__(peers, id, part_elements(x.numel(), peers.world), x.dtype)
        self._sums, self._sums_receiver = (
            Encoder(of_encoder(peers.sums, "sums", peers.rank), peers.threads),
            Receiver(peers, peers.sums),
        )
        self._sums_out, self._sums_hop = Room(), peers.hop()
        self._made = torch.empty_like(self._sum)

    def send(self, job: Any) -> None:
        super().send(job)
        job.number = self._peers.number()

    def receive(self, job: Any) -> None:
        here = self._peers.rank
        self.total(job).div_(self._peers.world)
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
        self._sums_hop.start(job.number, length, frames)

    def finish(self, job: Any) -> None:
        self._sums_hop.expect()
        for rank in range(self._peers.world):
            part = self._part(job.x, rank)
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
    """The number of elements of each part. The last part may extend beyond the bucket's end."""
    each = -(-elements // world)
    return -(-each // ALIGNMENT) * ALIGNMENT


def can_be_cut(elements: int, world: int) -> bool:
    """Whether the bucket is large enough that the part of every rank is worth a message."""
    return elements >= max(1024, ALIGNMENT * world) * world
