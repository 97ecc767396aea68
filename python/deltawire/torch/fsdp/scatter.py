# SPDX-License-Identifier: Apache-2.0
# scatter.py - ShardPeers and LinkedShardPeers: reduce-scatter of the gradients of a module.
"""FSDP2 hands over the gradients of a module as one part for each rank, all of the same size. A
rank gets the sum, or the mean, of its own part, in f32 and without encoding it again. So there is
one hop, and gradients are quantized once."""

from __future__ import annotations

import torch

from deltawire.torch.gradients.gloo_peers import GlooPeers
from deltawire.torch.gradients.layout import Layout
from deltawire.torch.gradients.link_peers import LinkedPeers, Summed
from deltawire.torch.gradients.split import Split

BLOCK = 2048  # floats: a group cuts its parts at multiples of them


class ShardPeers(GlooPeers):
    """Over a process group with the backend gloo."""

    def make(self, layout: Layout, dtype: torch.dtype) -> "Scatter":
        return Scatter(self, layout.digest, layout.elements() // self.world, dtype)


class Scatter(Split):
    """The exchange of one module. Frames travel; a rank's own part does not."""

    def __call__(self, x: torch.Tensor, out: torch.Tensor, mean: bool) -> None:
        self.send(x)
        self._hop.expect()
        total = self.total(x)
        self._hop.end()
        out.copy_(total.div_(self._peers.world) if mean else total)


class LinkedShardPeers(LinkedPeers):
    """Over a group."""

    def exchange(self, layout: Layout, dtype: torch.dtype) -> "SummedPart":
        return SummedPart(self, layout.digest)


class SummedPart(Summed):
    """The exchange of one module: a reduce-scatter in the module's slot. Parts are padded with
    zeros to multiples of BLOCK, because a group cuts parts there."""

    def __call__(self, x: torch.Tensor, out: torch.Tensor, mean: bool) -> None:
        size, world = out.numel(), self._peers.world
        padded = -(-size // BLOCK) * BLOCK
        whole, part = x, out
        if padded != size:
            whole, part = x.new_zeros(world * padded), out.new_empty(padded)
            whole.view(world, padded)[:, :size].copy_(x.view(world, size))
        work = self._peers.sums.start("reduce_scatter", self.slot, whole, part, mean)
        self._peers.finish(work)
        if part is not out:
            out.copy_(part[:size])
