# SPDX-License-Identifier: Apache-2.0
# ddp_exchange.py - Gather and Parts: the two ways to compute the mean of a bucket.
"""Both give all ranks the same bits. gloo terminates a process that receives more than it expects,
so frames are encoded with a size limit that all ranks know in advance: Decoder.expect returns the
same number on all ranks that have decoded the same frames."""

from __future__ import annotations

import hashlib
from typing import Any, Callable, Iterable

import torch
import torch.distributed as dist

from deltawire.config import Config
from deltawire.decoder import Decoder
from deltawire.encoder import Encoder
from deltawire.errors import DeltawireError, Status
from deltawire.frame import frame_length
from deltawire.torch import ddp_saved
from deltawire.torch.ddp_agree import Meeting
from deltawire.torch.ddp_layout import Layout
from deltawire.torch.ddp_traffic import Traffic
from deltawire.torch.ends import of_encoder
from deltawire.torch.gloo_groups import groups_of
from deltawire.torch.waits import Wait

GATHER_WORLD = 2  # the largest number of ranks for which "auto" means "gather"
ALIGNMENT = 64  # elements; so that parts begin at the beginning of a group


def gathers(way: str, world: int) -> bool:
    """Whether each rank sends its frames to all others, so that gradients are quantized once."""
    return way == "gather" or (way == "auto" and world <= GATHER_WORLD)


class Peers:
    """What all exchanges of a hook have in common, over process groups with the backend gloo.

    rank, world: this rank in the hook's group, and the number of ranks.
    first, second: the process groups for the first and the second collective of a bucket. Each
        needs its own, because the collectives of a group must start in one order on all ranks.
    way: "auto", "gather" or "parts".
    codec, sums: the configs of gradients, and of the means of parts.
    threads: for all encoders and decoders.
    nonce: a text that all ranks have, another one for each hook.
    """

    groups = 2  # the number of process groups
    spoiled = False  # only exchanges have state, and those that are not complete are dropped

    def __init__(
        self, meeting: Meeting, way: str, codec: Config, sums: Config, threads: Any, nonce: str
    ) -> None:
        self.rank, self.world, self.threads = meeting.rank, len(meeting.ranks), threads
        self.way, self.codec, self.sums, self.nonce = way, codec, sums, nonce
        made = groups_of(meeting, self.groups) if self.world > 1 else []
        self.first, self.second = (*made, None, None)[:2]
        self._traffic = Traffic()
        self.count = self._traffic.count

    def others(self) -> "list[int]":
        return [rank for rank in range(self.world) if rank != self.rank]

    def exchange(self, layout: Layout, dtype: torch.dtype) -> Any:
        """Makes the exchange of a bucket, of the same kind on all ranks."""
        elements = layout.elements()
        by_parts = not gathers(self.way, self.world)
        kind = Parts if by_parts and can_be_cut(elements, self.world) else Gather
        return kind(self, layout.digest, torch.empty(elements, dtype=dtype))

    def places(self, config: Config, key: "tuple[int, int]", visit: int) -> int:
        """What randk and cocktail draw places from (Encoder.encode): the same number on all ranks
        for a part of a bucket and its mean. Otherwise the second collective would leave out most of
        what the first one has carried. With scaling=unbiased they must draw apart."""
        if config._is_unbiased():
            return 0
        name = f"{self.nonce} {key[0]} {key[1]} {visit}".encode()
        return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little") | 1

    def traffic(self) -> Traffic:
        return self._traffic

    def states(self, exchanges: "list[Any]") -> "list[dict[str, torch.Tensor]]":
        """Returns the saved state of each exchange."""
        return [ddp_saved.states_of(exchange.ends()) for exchange in exchanges]

    def encoders(self, exchanges: "Iterable[Any]") -> "list[Any]":
        """What Fit looks at."""
        ends = [end for exchange in exchanges for end in exchange.ends().values()]
        return [end for end in ends if isinstance(end, Encoder)]

    def flush(self) -> None:
        """Does nothing: gloo has sent what it was given when a collective has ended."""

    def forget(self, exchange: Any) -> None:
        """Does nothing: the state ends with the exchange."""

    def begin_loading(self) -> None:
        """Does nothing: loaded states are those of new exchanges."""

    end_loading = begin_anew = load_again = begin_loading

    def close(self) -> None:
        """Does nothing: the process groups are torch's."""


class Room:
    """A buffer for frames, which is kept between steps. rows: one part for each frame."""

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
    """The decoders for one collective: one for each other rank."""

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

    def decode(self, rank: int, room: torch.Tensor, key: Any, out: torch.Tensor, add: bool) -> None:
        """Decodes the frame of a rank into out, or adds it to out. The frame must have this key."""
        try:
            _, length = frame_length(room)
            made = self._decoders[rank].decode(
                room[: min(length, room.numel())], out, add=1.0 if add else None, reply=False
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
        self._out, self._in = Room(1), Room(peers.world)
        self._visits = 0
        self._made = torch.empty(x.numel(), dtype=torch.float32)
        self._sum = None if x.dtype == torch.float32 else torch.empty_like(self._made)

    def send(self, job: Any) -> None:
        length = self._receiver.length(lambda rank: self._key, job.x)
        out = self._out.fit(length)
        self._in.fit(length)
        self._visits += 1
        frame = self._encoder.encode(
            job.x,
            [self._key],
            out,
            limit=length,
            reconstruction=self._made,
            places=self._peers.places(self._peers.codec, self._key, self._visits),
        )
        self._peers.count(len(frame), self._peers.world - 1)
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
        """Does nothing: there is no second collective."""

    def load(self, states: "dict[str, Any]") -> None:
        ddp_saved.load_ends(self.ends(), states)

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
        self._out, self._in = Room(peers.world), Room(peers.world)
        self._sum = torch.empty(size, dtype=torch.float32)
        self._last = torch.zeros(size, dtype=dtype)

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
        out, room = self._out.fit(length), self._in.fit(length)
        self._visits += 1
        for rank in self._peers.others():
            key = self._key(rank)
            frame = self._encoders[rank].encode(
                self._whole(job.x, rank),
                [key],
                self._out.rows[rank],
                limit=length,
                places=self._peers.places(self._peers.codec, key, self._visits),
            )
            self._peers.count(len(frame), 1)
        job.work = dist.all_to_all_single(room, out, group=self._peers.first, async_op=True)

    def total(self, job: Any) -> torch.Tensor:
        """Returns the sum of this rank's part, in float32."""
        Wait(job.work.wait).end()  # FSDP calls it in the main thread
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
        return self._sum

    def load(self, states: "dict[str, Any]") -> None:
        ddp_saved.load_ends(self.ends(), states)

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
        self._sums_out, self._sums_in = Room(1), Room(peers.world)
        self._made = torch.empty_like(self._sum)

    def receive(self, job: Any) -> None:
        here = self._peers.rank
        self.total(job).div_(self._peers.world)
        length = self._sums_receiver.length(self._key, self._sum)
        out = self._sums_out.fit(length)
        self._sums_in.fit(length)
        frame = self._sums.encode(
            self._sum,
            [self._key(here)],
            out,
            limit=length,
            reconstruction=self._made,
            places=self._peers.places(self._peers.sums, self._key(here), self._visits),
        )
        self._peers.count(len(frame), self._peers.world - 1)
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
