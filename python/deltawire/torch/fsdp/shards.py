# SPDX-License-Identifier: Apache-2.0
# shards.py - Shards: the exchange of each sharded module.
from __future__ import annotations

from typing import Any

import torch

from deltawire.errors import Status, fail
from deltawire.torch.common import tensors
from deltawire.torch.gradients.hook_ranks import HookRanks
from deltawire.torch.gradients.layout import Layout


class Shards:
    """It owns the exchanges, which have the state of modules, and what the ranks have compared.

    layouts: the parameters of the modules.
    """

    def __init__(self, ranks: HookRanks, layouts: "list[Layout]") -> None:
        self._ranks = ranks
        self._layouts = {layout.digest: layout for layout in layouts}
        self._held: "dict[int, Any]" = {}  # the exchanges, by digest
        self._dtypes: "dict[int, torch.dtype]" = {}
        self._compared: "set[Any]" = set()

    def __len__(self) -> int:
        return len(self._held)

    def replace(self, held: "list[tuple[Layout, torch.dtype, Any]]") -> None:
        """Takes those of a state that is loaded, or none. Errors: MISMATCH."""
        for layout, _, _ in held:
            if layout.digest not in self._layouts:
                fail(
                    Status["MISMATCH"],
                    "this compression state is of another model, whose parameters include "
                    f"{layout.parameters[0][0]} of {layout.parameters[0][1][0]} elements: load "
                    "what was saved with this model, or load nothing",
                )
        self._held = {layout.digest: exchange for layout, _, exchange in held}
        self._dtypes = {layout.digest: dtype for layout, dtype, _ in held}

    def held(self) -> "list[tuple[Layout, torch.dtype, Any]]":
        """Returns (layout, dtype, exchange) of each module of which something was exchanged."""
        held = self._held.items()
        return [(self._layouts[digest], self._dtypes[digest], one) for digest, one in held]

    def encoders(self) -> "list[Any]":
        return self._ranks.peers.encoders(self._held.values())

    def exchange(self, layout: Layout, x: torch.Tensor) -> "tuple[Any, bool]":
        """Returns the exchange for x, and whether it lasts.

        If some parameters of a module have no gradients, x has only those of the others, and what
        is kept of the module does not fit. Such an x is exchanged without state."""
        self._layouts.setdefault(layout.digest, layout)
        self._compare(layout, x)
        dtype = self._dtypes.setdefault(layout.digest, x.dtype)
        if x.numel() != layout.elements() or x.dtype != dtype:
            part = Layout([(f"{layout.digest:016x} in part", (x.numel(),))])
            return self._ranks.peers.exchange(part, x.dtype), False
        if layout.digest not in self._held:
            self._held[layout.digest] = self._ranks.peers.exchange(layout, x.dtype)
        return self._held[layout.digest], True

    def _compare(self, layout: Layout, x: torch.Tensor) -> None:
        """Checks once that all ranks exchange the same of this module."""
        key = (layout.digest, x.numel(), x.dtype)
        if key in self._compared:
            return
        if x.dtype not in tensors.CODED:
            fail(
                Status["UNSUPPORTED"],
                f"gradients of {x.dtype} cannot be compressed: set reduce_dtype of the "
                "MixedPrecisionPolicy to float32, float16 or bfloat16",
            )
        record = {"elements": str(x.numel()), "dtype": str(x.dtype)}
        topic = f"module {layout.digest:016x} with {x.numel()} of {x.dtype}"
        self._ranks.rendezvous.compare(topic, record)
        self._compared.add(key)
