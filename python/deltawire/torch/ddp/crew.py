# SPDX-License-Identifier: Apache-2.0
# crew.py - Crew: the threads that process a hook's buckets, in the order of the buckets.
"""A piece of a bucket goes through the steps of its exchange, such as send, expect, receive, end.
Each step has a thread of its own that processes the pieces in the order in which the hook got them.
So all ranks start the collectives of a step in the same order. Callbacks of futures would start
them in the order in which pieces happen to arrive. That order differs between ranks, and the ranks
would wait for each other forever."""

from __future__ import annotations

import queue
import threading
from typing import Any, Optional

import torch

from deltawire.errors import DeltawireError
from deltawire.torch.gradients.failure import as_ours

STEPS = 5  # no exchange has more
END = None


class Job:
    """The exchange of one piece of a bucket in one backward pass. It owns its result.

    exchange: its method steps takes the gradients in main memory and returns functions, which are
        to be called one after the other. None: there is nothing to do.
    buffer: the gradients of the piece, which the result replaces. Those on a GPU are copied to main
        memory and back.
    bucket: all gradients of the bucket. future: the torch.futures.Future with them as its result.
    done: set at the end. error: the exception after a failure, valid when done is set.
    """

    def __init__(self, exchange: Any, buffer: torch.Tensor, bucket: torch.Tensor) -> None:
        self._exchange, self._bucket = exchange, bucket
        self._buffer = self._x = buffer
        self._steps: "list[Any]" = []
        self.error: Optional[DeltawireError] = None
        self.done = threading.Event()
        on_gpu = buffer.device.type != "cpu"
        self._ready: Any = None  # when the gradients are there
        if on_gpu and exchange is not None:
            self._ready = torch.cuda.current_stream(buffer.device).record_event()
        self._base: Any = torch.futures.Future(devices=[buffer.device] if on_gpu else [])
        self.future = self._base.then(self._result)

    def _result(self, _: Any) -> torch.Tensor:
        if self.error is not None:
            raise self.error
        return self._bucket

    def run(self, step: int) -> None:
        """Does one of the steps, if the exchange has so many."""
        if step == 0 and self._exchange is not None:
            if self._ready is not None:
                self._ready.synchronize()
                self._x = self._buffer.cpu()
            self._steps = self._exchange.steps(self._x)
        if step < len(self._steps):
            self._steps[step]()

    def end(self, error: Optional[DeltawireError]) -> None:
        """Ends the job with its result or, if error is not None, with this error."""
        if error is None and self._x is not self._buffer:
            self._buffer.copy_(self._x)
        self.error = error
        self.done.set()
        self._base.set_result(self._bucket if error is None else None)


class Crew:
    """The threads of a hook, one for each step. After an error, all further jobs fail, because the
    ranks may have different states."""

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
        """Ends the threads as soon as they have done all jobs."""
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
            job.run(step)
            if behind is None:
                job.end(None)
                return
        except BaseException as error:
            self.error = self.error or as_ours(error)
            job.end(self.error)
            return
        behind.put(job)
