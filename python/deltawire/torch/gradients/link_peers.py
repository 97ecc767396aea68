# SPDX-License-Identifier: Apache-2.0
# link_peers.py - LinkedPeers: computes the means of buckets with a group over links.
"""The slot of a bucket is the digest of its layout, so a bucket that torch has rebuilt is another
slot, and never continues the state of one with other parameters."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from deltawire.config import Config
from deltawire.owner import Life
from deltawire.torch.common import forks, tensors
from deltawire.torch.common.report import Seconds
from deltawire.torch.gradients.layout import Layout
from deltawire.torch.gradients.link_group import Sums
from deltawire.torch.gradients.options import Options
from deltawire.torch.common.rendezvous import Rendezvous
from deltawire.torch.gradients.traffic import Traffic


class _Counted:
    """What a group has counted of a codec, in the place of an encoder."""

    def __init__(self, config: Config, counted: Any) -> None:
        self.config, self._counted = config, counted

    def counters(self) -> Any:
        return self._counted


class LinkedPeers:
    """What all exchanges of a hook have in common, over links. It has the methods of GlooPeers.

    spoiled: whether the group may hold parts of another state than the last one that was loaded:
        of one that was loaded before it, or of one whose loading failed.
    """

    def __init__(
        self, rendezvous: Rendezvous, options: Options, sums: Config, hops: int = 2
    ) -> None:
        self.rank, self.world, self.spoiled = rendezvous.rank, len(rendezvous.ranks), False
        used = [options.codec] if hops == 1 else [options.codec, sums]
        self._used = used
        self.keeps = any(config._needs_ids() for config in used)
        self.may_drop = any("quota_bytes" in config.text for config in used)
        self.sums = Sums(rendezvous, options, sums, hops)
        self._loaded: "list[bytes]" = []  # the pieces of the state that was loaded
        self._loading: "list[bytes]" = []
        self._spoils, self._life = False, Life.now
        self._last, self.wire = Traffic(), Seconds()

    def exchange(self, layout: Layout, dtype: torch.dtype) -> "Summed":
        return Summed(self, layout.digest)

    def traffic(self) -> Traffic:
        if self.sums.group._open:
            counted, codecs = self.sums.group.counters(), self.sums.group.codecs()
            frames = sum(one.frames for one in codecs)
            lengths = (counted.encoded_bytes, counted.sent_bytes)
            held = sum(one.state_bytes for one in codecs)
            self._last = Traffic(frames, *lengths, counted.codec_ns * 1e-9, held)
        return self._last

    def states(self, exchanges: "list[Summed]") -> "list[dict[str, torch.Tensor]]":
        found = self.sums.states()
        return [_named(found.get(exchange.slot, [])) for exchange in exchanges]

    def encoders(self, exchanges: Any) -> "list[Any]":
        """What Fit looks at: the codecs of both hops."""
        counted = self.sums.group.codecs() if self.sums.group._open else ()
        return [_Counted(config, one) for config, one in zip(self._used, counted)]

    def finish(self, operation: Any) -> None:
        self.wire.time(self.sums.finish, operation)

    def flush(self) -> None:
        self.wire.time(self.sums.flush)

    def forget(self, exchange: "Summed") -> None:
        self.sums.group.forget(exchange.slot)

    def begin_loading(self) -> None:
        """Begins to load a state. Until end_loading, the group may have a part of it."""
        self._spoils = self.spoiled or bool(self._loaded)
        self.spoiled, self._loading = True, []

    def load(self, piece: bytes) -> None:
        self.sums.group._import(piece)
        self._loading.append(piece)

    def end_loading(self) -> None:
        self.spoiled, self._loaded = self._spoils, self._loading

    def begin_anew(self) -> None:
        """Drops all that was loaded. All ranks must call it."""
        self.spoiled, self._loaded = False, []
        self.sums.renew()

    def load_again(self) -> None:
        """Loads the last state again into a group that has nothing of another one. All ranks must
        call it."""
        loaded = self._loaded
        self.begin_anew()
        for piece in loaded:
            self.sums.group._import(piece)

    def close(self) -> None:
        if forks.is_ours(self._life):  # also called when the interpreter of a child ends
            self.traffic()
            self.sums.close()


class Summed:
    """The exchange of one bucket: an all-reduce in the bucket's slot."""

    def __init__(self, peers: LinkedPeers, slot: int) -> None:
        self._peers, self.slot = peers, slot
        self._work: Any = None  # what is under way

    def pieces(self, x: torch.Tensor) -> "list[tuple[Summed, torch.Tensor]]":
        """The bucket is one piece here: the group itself cuts it."""
        return [(self, x)]

    def steps(self, x: torch.Tensor) -> "list[Any]":
        return [partial(self.send, x), self.receive]

    def send(self, x: torch.Tensor) -> None:
        self._work = self._peers.sums.start("all_reduce", self.slot, x, x, True)

    def receive(self) -> None:
        self._peers.finish(self._work)

    def load(self, states: "dict[str, Any]") -> None:
        """Errors: ValueError, and those of Group.load_state_dict."""
        pieces = [states[name] for name in _names(len(states))]
        if not pieces and self._peers.keeps and not self._peers.may_drop:
            raise ValueError("the state of the slot is missing")
        for piece in pieces:
            self._peers.load(bytes(tensors.as_bytes(piece.contiguous())))


def _names(count: int) -> "list[str]":
    """The names of a slot's pieces. They tell the number, so a lost piece is noticed."""
    return [f"piece {i} of {count}" for i in range(count)]


def _named(pieces: "list[bytes]") -> "dict[str, torch.Tensor]":
    made = [tensors.of_buffer(bytearray(piece)) for piece in pieces]
    return dict(zip(_names(len(pieces)), made))
