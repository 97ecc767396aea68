# SPDX-License-Identifier: Apache-2.0
# replicas.py - averages the weight gradients of two replicas by a Group, in one process.
from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Iterable

import deltawire
import torch

REPLICAS = 2
BUCKET = 25 * 2**18  # floats of one operation: 25 MiB, as of DistributedDataParallel
_names = itertools.count()


class Replicas:
    """Two ranks of a group. Each brings its gradients, and both get the mean, in two hops."""

    def __init__(self, codec: str) -> None:
        self.codec, self._threads = codec, ThreadPoolExecutor(REPLICAS)
        name = f"loop://replicas-{next(_names)}"
        given = ([None, name], [name, None])
        self._ranks = list(
            self._threads.map(lambda links: deltawire.Group(links, codec, timeout=600), given)
        )
        self._came: list[torch.Tensor] = []
        self._values = self._bytes = 0

    def came(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """A replica has computed its gradients. They are taken away."""
        whole = [parameter.grad for parameter in parameters]
        self._came.append(torch.cat([gradient.flatten().cpu() for gradient in whole]))
        for parameter in parameters:
            parameter.grad = None

    def mean(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Both have: sets the gradients of the parameters to the mean that arrives."""

        def reduced(both):
            group, whole = both
            for slot, part in enumerate(whole.split(BUCKET)):
                group.all_reduce(part, part, slot=slot, mean=True)
            return whole

        found, same = self._threads.map(reduced, zip(self._ranks, self._came))
        assert torch.equal(found.view(torch.int32), same.view(torch.int32))
        self._came = []
        self._values += found.numel()
        sizes = [parameter.numel() for parameter in parameters]
        for parameter, part in zip(parameters, found.split(sizes)):
            parameter.grad = part.view_as(parameter).to(parameter.device)

    def take_bits(self) -> float:
        """Sent by one rank, for each parameter and step since the last call."""
        sent = self._ranks[0].counters().sent_bytes
        bits = 8 * (sent - self._bytes) / self._values
        self._bytes, self._values = sent, 0
        return bits

    def close(self) -> None:
        list(self._threads.map(lambda group: group.close(), self._ranks))
        self._threads.shutdown()
