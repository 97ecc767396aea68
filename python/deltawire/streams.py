# SPDX-License-Identifier: Apache-2.0
# streams.py - LazyStream: the stream of an object that learns from its first tensor whether it
# works on a GPU.
from __future__ import annotations

import threading
from typing import Any, Optional

from deltawire.device import Stream
from deltawire.errors import UNSUPPORTED, fail
from deltawire.tensor import Tensor
from deltawire.views import CUDA, CUDA_MANAGED


def gpu_of(given: Any) -> Optional[int]:
    """The number of the GPU that a tensor is on; None: it is elsewhere."""
    ask = None if type(given) is Tensor else getattr(given, "__dlpack_device__", None)
    if ask is None:
        return None
    kind, number = ask()
    return int(number) if int(kind) in (CUDA, CUDA_MANAGED) else None


def _place(number: Optional[int]) -> str:
    return "elsewhere" if number is None else f"on cuda:{number}"


class LazyStream:
    """Makes the stream when the first tensor on a GPU comes, and keeps it until close.

    noun: what messages call the object."""

    __slots__ = ("_noun", "_stream", "_lock")

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._stream: Optional[Stream] = None
        self._lock = threading.Lock()

    def of(self, x: Any, out: Any) -> Optional[Stream]:
        """The stream for an operation with these tensors, each of which may be None; or None if
        they are in main memory.

        Errors: UNSUPPORTED (they are in different places, or on another GPU than before; no such
        GPU), NO_MEMORY."""
        places = {name: gpu_of(at) for name, at in (("x", x), ("out", out)) if at is not None}
        numbers = set(places.values())
        if len(numbers) > 1:
            fail(
                UNSUPPORTED,
                f"x is {_place(places['x'])} and out is {_place(places['out'])}: give both in the "
                "same place",
            )
        number = next(iter(numbers), None)
        if number is None:
            return None
        with self._lock:
            if self._stream is None:
                self._stream = Stream(number)
            if self._stream.number != number:
                fail(
                    UNSUPPORTED,
                    f"the tensors are on cuda:{number}, but this {self._noun} has worked on "
                    f"cuda:{self._stream.number}: make another {self._noun} for this GPU",
                )
            return self._stream

    def close(self) -> None:
        """Must be called after the object was closed. Calling it again does nothing."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
