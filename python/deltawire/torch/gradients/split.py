# SPDX-License-Identifier: Apache-2.0
# split.py - Split: each rank adds up its part of a buffer; Receiver: decoders of the other ranks.
from __future__ import annotations

from typing import Any, Callable

import torch

from deltawire.config import Config
from deltawire.decoder import Decoder
from deltawire.encoder import Encoder
from deltawire.errors import DeltawireError, Status
from deltawire.torch.common.configs import of_encoder
from deltawire.torch.gradients import saved_state
from deltawire.torch.gradients.gloo_peers import GlooPeers


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

    def __init__(self, peers: GlooPeers, config: Config) -> None:
        self._peers = peers
        self._decoders = {rank: Decoder(config, peers.threads) for rank in peers.others()}
        self._stateful = config._facts.keeps_prev

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


class Split:
    """Each rank adds up one part of a buffer over all ranks: the first hop.

    size: the number of elements of a part. The last one is padded with zeros to it.
    """

    def __init__(self, peers: GlooPeers, id: int, size: int, dtype: torch.dtype) -> None:
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

    def send(self, x: torch.Tensor) -> None:
        here = self._peers.rank
        length = self._receiver.length(lambda rank: self._key(here), self._whole(x, here))
        self._visits += 1
        frames = {}
        for rank in self._peers.others():
            key, out = self._key(rank), self._out[rank].fit(length)
            frame = self._encoders[rank].encode(
                self._whole(x, rank),
                [key],
                out,
                limit=length,
                places=self._peers.places(self._peers.codec, key, self._visits),
            )
            frames[rank] = out[: len(frame)]
            self._peers.count(frames[rank], 1)
        self._hop.start(self._peers.number(), length, frames)

    def total(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the sum of this rank's part, in float32."""
        here = self._peers.rank
        for rank in range(self._peers.world):
            if rank != here:
                frame = self._hop.take(rank)
                self._receiver.decode(rank, frame, self._key(here), self._sum, rank > 0)
            elif rank > 0:
                self._sum.add_(self._whole(x, here))
            else:
                self._sum.copy_(self._whole(x, here))
        return self._sum

    def load(self, states: "dict[str, Any]") -> None:
        saved_state.load_ends(self.ends(), states)

    def ends(self) -> "dict[str, Any]":
        """Returns all encoders and decoders by name, for saved states."""
        return {
            **{f"encoder for rank {rank}": end for rank, end in self._encoders.items()},
            **self._receiver.ends("decoder"),
        }
