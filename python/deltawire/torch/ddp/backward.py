# SPDX-License-Identifier: Apache-2.0
# backward.py - Backward: exchanges the buckets of one backward pass after the other.
from __future__ import annotations

from typing import Any, Optional

import torch

from deltawire.errors import DeltawireError, Status, refuse
from deltawire.torch.common.misfit import Fit
from deltawire.torch.common.report import Seconds
from deltawire.torch.ddp.buckets import Buckets
from deltawire.torch.ddp.crew import Crew, Job
from deltawire.torch.ddp.parameters import Parameters
from deltawire.torch.ddp.resume import Resume
from deltawire.torch.gradients.hook_ranks import HookRanks
from deltawire.torch.gradients.layout import Layout


class Backward:
    """It owns what a backward has handed over until now, its jobs, and what was counted.

    Gradients are exchanged in torch's buckets or, after a state was loaded, in those of the state.
    """

    def __init__(
        self, ranks: HookRanks, parameters: Parameters, buckets: Buckets, crew: Crew
    ) -> None:
        self._ranks, self._parameters = ranks, parameters
        self.buckets, self._crew = buckets, crew
        self._seen: "list[int]" = []  # the digests of the buckets of this backward, in order
        self._jobs: "list[Job]" = []
        self._resume: Optional[Resume] = None
        self._steps = self._raw_bytes = 0
        self._waiting, self._fit = Seconds(), Fit("gradients", "by this hook")

    def stats(self) -> "dict[str, Any]":
        return {
            "steps": self._steps,
            "buckets": len(self.buckets),
            "new_buckets": self.buckets.new,
            "raw_bytes": self._raw_bytes,
            "waiting_seconds": self._waiting.sum,
        }

    def save(self) -> "dict[str, Any]":
        """Returns the state of all buckets, in the order of the last backward. If there was none:
        what was loaded."""
        if self._jobs or (self._resume is not None and self._resume.is_under_way()):
            refuse("save the compression state between two steps, after the ranks have met")
        failed = self._crew.error is not None
        return self._ranks.save(self.buckets.held(self._seen or None), self._steps, failed)

    def load(self, state: Any) -> None:
        """Loads what save returned, before the first backward."""
        if self._seen or self._steps:
            refuse("load the compression state before the first backward")
        self._ranks.load(state, self._loaded)

    def _loaded(self, held: "list[tuple[Layout, torch.dtype, Any]]") -> None:
        resume = Resume([(layout, dtype) for layout, dtype, _ in held])
        here = self._parameters.described()
        if here is not None and held:
            _check_same(resume.difference_from(here))
        self._resume = resume if held else None
        self.buckets.replace(held)

    def take(self, bucket: Any) -> "torch.futures.Future[torch.Tensor]":
        """Takes one of torch's buckets, and returns the future of its means."""
        with self._ranks.rendezvous.refusing():
            return self._take(bucket)

    def _take(self, bucket: Any) -> "torch.futures.Future[torch.Tensor]":
        if bucket.index() == 0:
            self._seen, self._jobs = [], []
            self._agree()
        if bucket.index() != len(self._seen):
            refuse("this hook is used by two models: make a ddp_hook for each model")
        layout, buffer = self._parameters.layout(bucket.parameters()), bucket.buffer()
        self._seen.append(layout.digest)
        self._raw_bytes += buffer.numel() * buffer.element_size()
        if bucket.index() == 0 and self._resume and not self._resume.begins(layout):
            self._resume = None
        if self._resume is not None:
            future = self._resume.take(layout, buffer)
            if bucket.is_last():
                self._end_resume(self._resume)
            return future
        future = self._put(layout, buffer)
        if bucket.is_last():
            self._end_step()
        return future

    def _agree(self) -> None:
        """Drops what was loaded unless all ranks have loaded the same."""
        if not self._ranks.agree("buckets"):
            self.buckets.replace()
        if not len(self.buckets):
            self._resume = None

    def _end_resume(self, resume: Resume) -> None:
        """Exchanges the gradients of one backward in the buckets of the loaded state."""
        if resume.backwards == 1:
            topic = "the parameters of the loaded states"
            told = self._ranks.rendezvous.hear(topic, resume.difference())
            for rank, sentence in enumerate(told):
                if sentence is not None:
                    self._resume = None
                    self.buckets.replace()
                    self._ranks.peers.begin_anew()
                    _check_same(f"at rank {rank} of the group {sentence}")
        gathered = resume.gathered()
        self._seen = [layout.digest for layout, _ in gathered]
        for layout, x in gathered:
            self._put(layout, x)
        self._end_step()
        resume.put_back(gathered)

    def _put(self, layout: Layout, buffer: torch.Tensor) -> "torch.futures.Future[torch.Tensor]":
        """Starts the exchange of a bucket. Returns the future of its last piece, which is the
        bucket's, because pieces end in their order, and none after one that failed."""
        which = f"bucket {len(self._seen) - 1} of step {self._steps}"
        exchange = self.buckets.exchange(layout, buffer, which)
        for one, piece in [(None, buffer)] if exchange is None else exchange.pieces(buffer):
            self._jobs.append(Job(one, piece, buffer))
            self._crew.put(self._jobs[-1])
        return self._jobs[-1].future

    def _end_step(self) -> None:
        """Waits for all buckets at the end of a backward. Errors are raised here, because torch
        would turn an exception in a future into a RuntimeError with its text."""
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            self._waiting.time(job.done.wait)
        for job in jobs:
            if job.error is not None:
                raise job.error
        self._waiting.time(self._ranks.peers.flush)
        self._steps += 1
        self._fit.look(self.buckets.encoders)
        self._parameters.all_known()
        self.buckets.forget_others(self._seen)


def _check_same(difference: Optional[str]) -> None:
    if difference is not None:
        raise DeltawireError(
            Status["MISMATCH"],
            f"this compression state is of another model: {difference}; load what was saved with "
            "this model, or load nothing",
        )
