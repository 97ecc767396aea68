# SPDX-License-Identifier: Apache-2.0
# gloo_peers.py - GlooPeers: what the exchanges of a hook have in common over gloo.
"""An exchange gives all ranks the same bits. A frame is never longer than all ranks know in
advance: Decoder.expect returns the same number on all ranks that have decoded the same frames."""

from __future__ import annotations

import hashlib
import itertools
import weakref
from typing import Any, Iterable

import torch

from deltawire.config import Config
from deltawire.encoder import Encoder
from deltawire.errors import DeltawireError
from deltawire.torch.common.report import Seconds
from deltawire.torch.gradients import saved_state
from deltawire.torch.gradients.gloo_group import groups_of_ours
from deltawire.torch.gradients.hop import LENGTH_BYTES, Hop
from deltawire.torch.gradients.layout import Layout
from deltawire.torch.gradients.options import Options
from deltawire.torch.common.rendezvous import Rendezvous
from deltawire.torch.gradients.traffic import Traffic


class GlooPeers:
    """What all exchanges of a hook have in common, over process groups with the backend gloo.

    It owns the groups, the numbers of hops, and what was counted.

    rank, world: this rank in the hook's group, and the number of ranks.
    codec, sums: the configs of gradients, and of the means of parts.
    threads: for all encoders and decoders.
    nonce: a text that all ranks have, another one for each hook.
    """

    spoiled = False  # only exchanges have state, and those that are not complete are dropped

    def __init__(
        self, rendezvous: Rendezvous, options: Options, sums: Config, nonce: str
    ) -> None:
        self.rank, self.world = rendezvous.rank, len(rendezvous.ranks)
        self.codec, self.sums, self.nonce = options.codec, sums, nonce
        self.threads = options.threads
        self._rendezvous = rendezvous
        self._groups = groups_of_ours(rendezvous) if self.world > 1 else []
        self._numbers = itertools.count()
        self._traffic, self.wire = Traffic(), Seconds()
        self._exchanges: "weakref.WeakSet[Any]" = weakref.WeakSet()
        self._codec_s = 0.0  # of exchanges that are forgotten

    def others(self) -> "list[int]":
        return [rank for rank in range(self.world) if rank != self.rank]

    def hop(self) -> Hop:
        return Hop(self._groups, self._rendezvous.ranks, self.rank, self.wire)

    def number(self) -> int:
        """The number of a hop of an exchange, for its tags. All ranks process buckets in one order;
        an exchange asks for both of its numbers when it begins."""
        return next(self._numbers)

    def count(self, frame: torch.Tensor, times: int) -> None:
        self._traffic.count(frame.numel(), times, LENGTH_BYTES)

    def exchange(self, layout: Layout, dtype: torch.dtype) -> Any:
        """Makes the exchange of a bucket, of the same kind on all ranks."""
        made = self.make(layout, dtype)
        self._exchanges.add(made)
        return made

    def make(self, layout: Layout, dtype: torch.dtype) -> Any:
        raise NotImplementedError

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
            now = [_counted(exchange) for exchange in list(self._exchanges)]
            seconds, held = (sum(some) for some in zip(*now, (0, 0)))
            self._traffic.takes(self._codec_s + seconds, held)
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
        self._codec_s += _counted(exchange)[0]

    def begin_loading(self) -> None:
        """Does nothing: loaded states are those of new exchanges."""

    end_loading = begin_anew = load_again = begin_loading

    def close(self) -> None:
        """Does nothing: the process groups are torch's."""


def _counted(exchange: Any) -> "tuple[float, int]":
    """Of an exchange that is not under way: the time inside encode and decode, and the bytes of its
    state."""
    counters = [end.counters() for end in exchange.ends().values()]
    return sum(one.busy_ns for one in counters) * 1e-9, sum(one.state_bytes for one in counters)
