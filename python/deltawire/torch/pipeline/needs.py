# SPDX-License-Identifier: Apache-2.0
# needs.py - Needs: which tensors of a step need gradients, at a stage that sends and receives them.
from __future__ import annotations

from typing import Any, Collection, Sequence

import torch

from deltawire.torch.pipeline import torch_stage


class Needs:
    """It owns, by microbatch, what is known of the tensors on their way through a stage."""

    def __init__(self, stage: Any) -> None:
        self._stage = stage
        self._outputs: "dict[int, list[bool]]" = {}  # which of those for other stages need them
        self._still: "dict[int, Sequence[int]]" = {}  # the positions of inputs that need none
        # The positions of zeros among the gradients of inputs, and how many gradients there are.
        self._zeros: "dict[int, tuple[frozenset[int], int]]" = {}

    def begin(self) -> None:
        """A step begins."""
        self._outputs.clear()
        self._still.clear()
        self._zeros.clear()

    def made(self, microbatch: int, output: Any) -> None:
        """The stage has computed its output. torch detaches it before it hands it over."""
        self._outputs[microbatch] = torch_stage.that_need_gradients(self._stage, output)

    def mark(self, microbatch: int, tensors: "list[torch.Tensor]") -> "list[torch.Tensor]":
        """Marks those that need gradients among the detached outputs."""
        need = self._outputs.pop(microbatch, [])
        if len(need) == len(tensors):
            tensors = [x.requires_grad_() if it else x for x, it in zip(tensors, need)]
        return tensors

    def received(self, microbatch: int, still: "Sequence[int]") -> None:
        """Inputs have come from another rank. still: the positions of those that need none."""
        self._still[microbatch] = still

    def handed_over(self, microbatch: int, tensors: Any) -> None:
        """Inputs have come from a stage on this rank."""
        given = (tensors,) if isinstance(tensors, torch.Tensor) else tensors
        need = [bool(getattr(tensor, "requires_grad", False)) for tensor in given]
        if any(need):
            self._still[microbatch] = [at for at, it in enumerate(need) if not it]

    def stop(self, microbatch: int, infos: Any, activations: Any) -> None:
        """Sees to it that torch computes no gradients of inputs that need none."""
        still = self._still.pop(microbatch, ())
        self._zeros[microbatch] = torch_stage.stop_gradients(
            self._stage, infos, activations, still
        )

    def zeros(self, microbatch: int, gradients: int) -> "Collection[int]":
        """The positions of zeros among as many gradients, which torch sends for the inputs."""
        at, known = self._zeros.pop(microbatch, (frozenset(), 0))
        return at if known == gradients else frozenset()
