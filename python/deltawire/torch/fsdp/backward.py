# SPDX-License-Identifier: Apache-2.0
# backward.py - Backward: reduces the gradients of one backward pass after the other.
from __future__ import annotations

from typing import Any, Optional

import torch

from deltawire.errors import DeltawireError, refuse
from deltawire.torch.common.lifetime import Lifetime
from deltawire.torch.common.misfit import Fit
from deltawire.torch.common.report import Seconds
from deltawire.torch.fsdp.shards import Shards
from deltawire.torch.gradients.failure import as_ours
from deltawire.torch.gradients.hook_ranks import HookRanks
from deltawire.torch.gradients.layout import Layout


class Backward:
    """It owns what was counted, whether something may still be on its way, and the first error."""

    def __init__(self, ranks: HookRanks, shards: Shards, lifetime: Lifetime) -> None:
        self._ranks, self._shards, self._lifetime = ranks, shards, lifetime
        self._error: Optional[DeltawireError] = None
        self._to_flush = False
        self._steps = self._calls = self._raw_bytes = 0
        self._alone: "set[int]" = set()  # modules that this step has reduced between backwards
        self._waiting, self._fit = Seconds(), Fit("gradients", "by this FsdpState")

    def stats(self) -> "dict[str, Any]":
        return {
            "steps": self._steps,
            "calls": self._calls,
            "modules": len(self._shards),
            "raw_bytes": self._raw_bytes,
            "waiting_seconds": self._waiting.sum,
        }

    def save(self) -> "dict[str, Any]":
        if self._to_flush and self._error is None:
            refuse("save the compression state between two backward passes")
        return self._ranks.save(self._shards.held(), self._calls, self._error is not None)

    def load(self, state: Any) -> None:
        if self._calls:
            refuse("load the compression state before the first backward")
        self._ranks.load(state, self._shards.replace)

    def reduce(self, layout: Layout, x: torch.Tensor, out: torch.Tensor, mean: bool) -> None:
        """The reduce-scatter of a module. After an error, all further ones raise it, too, because
        the ranks may have different states."""
        self._waiting.time(self._reduce, layout, x, out, mean)

    def _reduce(self, layout: Layout, x: torch.Tensor, out: torch.Tensor, mean: bool) -> None:
        self._lifetime.refuse_unusable()
        if self._error is not None:
            raise self._error
        try:
            if not self._ranks.agree("modules"):
                self._shards.replace([])
            exchange, lasts = self._shards.exchange(layout, x)
            if x.device.type == "cpu":
                exchange(x, out, mean)
            else:
                part = torch.empty(out.shape, dtype=out.dtype, device="cpu")
                exchange(x.cpu(), part, mean)
                out.copy_(part)
            if not lasts:
                self._ranks.peers.forget(exchange)
        except BaseException as error:
            self._error = as_ours(error)
            self._ranks.rendezvous.refuse(self._error)
            if not isinstance(error, Exception):
                raise  # KeyboardInterrupt; the next backward raises _error
            raise self._error from error
        self._calls += 1
        self._raw_bytes += x.numel() * x.element_size()
        self._end_later(layout.digest)

    def _end_later(self, module: int) -> None:
        """Asks torch to call _end at the end of this backward. Every call asks, because torch drops
        earlier requests if a backward ends with an exception."""
        self._to_flush = True
        try:
            engine = torch.autograd.Variable._execution_engine  # type: ignore[attr-defined]
            engine.queue_callback(self._end)
        except RuntimeError:  # no backward is under way
            self._end_alone(module)

    def _end(self) -> None:
        """A backward has ended."""
        if self._to_flush:
            self._waiting.time(self._flush)
            self._alone.clear()
            self._count()

    def _end_alone(self, module: int) -> None:
        """A module was reduced between backwards: a schedule of pipeline stages reduces one after
        the other when all micro-batches are done. A module that comes again is of another step."""
        self._flush()
        if not self._alone or module in self._alone:
            self._alone.clear()
            self._count()
        self._alone.add(module)

    def _flush(self) -> None:
        self._ranks.peers.flush()
        self._to_flush = False

    def _count(self) -> None:
        self._steps += 1
        self._fit.look(self._shards.encoders)
