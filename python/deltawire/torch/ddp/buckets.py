# SPDX-License-Identifier: Apache-2.0
# buckets.py - Buckets: the exchange of each bucket that torch has now.
from __future__ import annotations

from typing import Any, Iterable, Optional

import torch

from deltawire.errors import Status, fail
from deltawire.torch.ddp.parameters import check_dtype
from deltawire.torch.gradients.hook_ranks import HookRanks
from deltawire.torch.gradients.layout import Layout

OTHER_BUCKETS = "wrap the same model, with the same options, on all ranks"


class Buckets:
    """It owns the exchanges, which have the state of buckets.

    new: how often a bucket started without state.
    """

    def __init__(self, ranks: HookRanks) -> None:
        self._ranks, self.new = ranks, 0
        # (layout, dtype, exchange) by the digest of the layout.
        self._held: "dict[int, tuple[Layout, torch.dtype, Any]]" = {}

    def __len__(self) -> int:
        return len(self._held)

    def replace(self, held: "Iterable[tuple[Layout, torch.dtype, Any]]" = ()) -> None:
        """Takes those of a state that is loaded, or none."""
        self._held = {one[0].digest: one for one in held}

    def held(
        self, order: "Optional[Iterable[int]]" = None
    ) -> "list[tuple[Layout, torch.dtype, Any]]":
        """Returns those that there are of these digests, in this order. None: all of them."""
        digests = self._held if order is None else order
        return [self._held[digest] for digest in digests if digest in self._held]

    def encoders(self) -> "list[Any]":
        return self._ranks.peers.encoders([exchange for *_, exchange in self._held.values()])

    def forget_others(self, digests: "list[int]") -> None:
        """Ends the state of all buckets but these."""
        for gone in [digest for digest in self._held if digest not in digests]:
            self._ranks.peers.forget(self._held.pop(gone)[2])

    def exchange(self, layout: Layout, buffer: torch.Tensor, which: str) -> Any:
        """Returns the exchange of a bucket, and None where there is nothing to exchange. If the
        bucket is new, checks that all ranks have the same one. which: names it for messages."""
        peers = self._ranks.peers
        if peers.world == 1 or not buffer.numel():
            return None
        _check_size(layout, buffer)
        if layout.digest not in self._held:
            self._check(layout, buffer, which)
            self.new += 1
            made = peers.exchange(layout, buffer.dtype)
            self._held[layout.digest] = layout, buffer.dtype, made
        return self._held[layout.digest][2]

    def _check(self, layout: Layout, buffer: torch.Tensor, which: str) -> None:
        check_dtype(buffer.dtype)
        if buffer.layout != torch.strided:
            fail(
                Status["UNSUPPORTED"],
                "the gradients of a bucket are sparse: make them dense, with sparse=False",
            )
        digest, dtype = f"{layout.digest:016x}", str(buffer.dtype)
        record = {"parameters": digest, "elements": buffer.numel(), "dtype": dtype}
        self._ranks.rendezvous.compare(which, record, OTHER_BUCKETS)


def _check_size(layout: Layout, buffer: torch.Tensor) -> None:
    elements = buffer.numel()
    if elements != layout.elements():
        fail(
            Status["UNSUPPORTED"],
            f"a bucket has {elements} gradients, and its parameters {layout.elements()}: find "
            "the parameters that torch stores in another form than it shows them",
        )
