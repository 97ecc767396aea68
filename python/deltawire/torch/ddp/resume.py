# SPDX-License-Identifier: Apache-2.0
# resume.py - Resume: the first backwards after a state was loaded, in the buckets of the state.
"""torch rebuilds its buckets after the first backward, with static_graph after the second. So a
training that was stopped and goes on begins with other buckets than those that were saved. Until
torch has rebuilt them, a backward collects the gradients of all buckets, exchanges them in the
buckets of the state, and copies the means into torch's buckets. After that torch has the same
buckets again as when the state was saved."""

from __future__ import annotations

from typing import Any, Optional

import torch

from deltawire.torch.gradients.layout import Layout

BACKWARDS = 2  # before torch has rebuilt its buckets


class Resume:
    """What a backward has collected so far.

    buckets: (layout, dtype) of the state's buckets, in the order of the last backward before it was
    saved. backwards: how many have begun.
    """

    def __init__(self, buckets: "list[tuple[Layout, torch.dtype]]") -> None:
        self.buckets, self.backwards = buckets, 0
        self._first = 0  # the digest of torch's first bucket
        self._shapes: "dict[str, tuple[int, ...]]" = {}
        self._gradients: "dict[str, torch.Tensor]" = {}
        self._waiting: "list[tuple[Any, torch.Tensor]]" = []

    def begins(self, layout: Layout) -> bool:
        """Begins a backward with this first bucket. Returns False if torch has rebuilt its buckets,
        or will not rebuild them any more."""
        if self.backwards == 0:
            self._first = layout.digest
        self.backwards += 1
        return layout.digest == self._first and self.backwards <= BACKWARDS

    def is_under_way(self) -> bool:
        """Whether a backward has handed over some buckets, but not all."""
        return bool(self._waiting)

    def take(self, layout: Layout, buffer: torch.Tensor) -> Any:
        """Takes one of torch's buckets, and returns the future of its means."""
        self._shapes.update(layout.parameters)
        self._gradients.update(layout.by_name(buffer))
        devices = [] if buffer.device.type == "cpu" else [buffer.device]
        future: Any = torch.futures.Future(devices=devices)
        self._waiting.append((future, buffer))
        return future

    def difference(self) -> Optional[str]:
        """Says how the parameters of the state differ from those of the buckets that were taken.
        None: they do not."""
        here = {name: (shape, self._gradients[name].dtype) for name, shape in self._shapes.items()}
        return self.difference_from(here)

    def difference_from(self, here: "dict[str, tuple[tuple[int, ...], torch.dtype]]") -> Any:
        """The same for these parameters, given by name as (shape, dtype)."""
        saved = {
            name: (shape, dtype)
            for layout, dtype in self.buckets
            for name, shape in layout.parameters
        }
        for name in sorted({*saved, *here}):
            there, mine = saved.get(name), here.get(name)
            if there != mine:
                return f"parameter {name} is {_said(there)} in the state and {_said(mine)} here"
        return None

    def gathered(self) -> "list[tuple[Layout, torch.Tensor]]":
        """Returns this rank's gradients in the buckets of the state, in main memory."""
        made = []
        for layout, dtype in self.buckets:
            x = torch.empty(layout.elements(), dtype=dtype, device="cpu")
            for name, gradients in layout.by_name(x).items():
                gradients.copy_(self._gradients[name])
            made.append((layout, x))
        return made

    def put_back(self, means: "list[tuple[Layout, torch.Tensor]]") -> None:
        """Copies the means into torch's buckets, and completes their futures."""
        for layout, x in means:
            for name, gradients in layout.by_name(x).items():
                self._gradients[name].copy_(gradients)
        waiting, self._waiting = self._waiting, []
        for future, buffer in waiting:
            future.set_result(buffer)


def _said(what: Any) -> str:
    return "missing" if what is None else f"{tuple(what[0])} of {what[1]}"
