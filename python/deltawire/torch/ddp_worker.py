# SPDX-License-Identifier: Apache-2.0
# ddp_worker.py - the threads that carry a hook's buckets from step to step, in bucket order.
"""Each step of a bucket (send, receive, finish) belongs to one thread, and each thread takes the
buckets in the order in which the hook got them. So the collectives of a step are issued in one
order, the same on all ranks. Callbacks of futures would issue them in the order in which buckets
happen to arrive, which differs between ranks, and then ranks wait for one another for ever."""

from __future__ import annotations

import queue
import threading
from typing import Any, Callable, Optional

import torch

from deltawire.errors import DeltawireError, Status

STEPS = 3
END = None


class Job:
    """One bucket on its way through one backward.

    steps: what is done with it, one function for each thread. future: torch's, of the tensor that
    finished gives. error: what went wrong, once done is set.
    """

    def __init__(
        self,
        steps: "list[Callable[[Any], None]]",
        finished: "Callable[[Any], torch.Tensor]",
        device: torch.device,
    ) -> None:
        self.steps, self._finished = steps, finished
        self.error: Optional[DeltawireError] = None
        self.done = threading.Event()
        self.work: Any = None  # the collective that is under way
        devices = [] if device.type == "cpu" else [device]
        self._base: Any = torch.futures.Future(devices=devices)
        self.future = self._base.then(self._result)

    def _result(self, _: Any) -> torch.Tensor:
        if self.error is not None:
            raise self.error
        return self._tensor

    def end(self, error: Optional[DeltawireError]) -> None:
        """The last word on it: its result, or why there is none."""
        if error is None:
            self._tensor = self._finished(self)
        self.error = error
        self.done.set()
        self._base.set_result(self._tensor if error is None else None)


class Crew:
    """A thread for each step. After an error it takes no more jobs: the ranks are out of step."""

    def __init__(self) -> None:
        self.error: Optional[DeltawireError] = None
        self._queues: "list[queue.SimpleQueue[Optional[Job]]]" = [
            queue.SimpleQueue() for _ in range(STEPS)
        ]
        for step in range(STEPS):
            threading.Thread(
                target=self._work, args=(step,), name=f"deltawire-ddp-{step}", daemon=True
            ).start()

    def put(self, job: Job) -> None:
        self._queues[0].put(job)

    def close(self) -> None:
        """The threads end when what was put before is done."""
        self._queues[0].put(END)

    def _work(self, step: int) -> None:
        here = self._queues[step]
        behind = self._queues[step + 1] if step + 1 < STEPS else None
        while (job := here.get()) is not END:
            self._take(job, step, behind)
            del job
        if behind is not None:
            behind.put(END)

    def _take(self, job: Job, step: int, behind: "Optional[queue.SimpleQueue[Any]]") -> None:
        try:
            if self.error is not None:
                raise self.error
            job.steps[step](job)
            if behind is None:
                job.end(None)
                return
        except BaseException as error:
            self.error = self.error or as_ours(error)
            job.end(self.error)
            return
        behind.put(job)


def as_ours(error: BaseException) -> DeltawireError:
    """The package's error for what a step raised."""
    if isinstance(error, DeltawireError):
        return error
    text = str(error).strip().split("\n")[0] or type(error).__name__
    late = "imed out" in text or "imeout" in text
    return DeltawireError(
        Status["TIMEOUT" if late else "PEER"] if isinstance(error, RuntimeError) else Status["IO"],
        f"the exchange of gradients failed ({text}): the ranks are out of step, start all of them "
        "again from a checkpoint",
    )
