# SPDX-License-Identifier: Apache-2.0
# owner.py - what all objects have in common: whose they are, who uses them now, and their end.
"""An object belongs to the process that made it: after os.fork() the memory of the child holds a
copy that may stand in the middle of a call of a thread which is not there. One thread uses an
object at a time: the second is told so rather than made to wait, for it is the order of the frames
that both ends must agree on, and behind a lock it would be chance."""

from __future__ import annotations

import os
import threading
from typing import Any, NoReturn

from deltawire.errors import refuse


class Life:
    """The process as it is: another one after each fork."""

    now = object()


def _forked() -> None:
    Life.now = object()


os.register_at_fork(after_in_child=_forked)


class Owned:
    """Base of Encoder, Decoder, Threads, Link and Channel."""

    _noun = "object"

    def __init__(self) -> None:
        self._life = Life.now
        self._busy = threading.Lock()
        self._open = False

    def _enter(self) -> None:
        """Begins a call; _busy.release() ends it."""
        if self._life is not Life.now:
            self._refuse_fork()
        if not self._busy.acquire(False):
            refuse(
                f"this {self._noun} is in use by another thread: let one thread use it at a time, "
                "or make one for each"
            )
        if not self._open:
            self._busy.release()
            self._refuse_closed()

    def _refuse_fork(self) -> NoReturn:
        refuse(
            f"this {self._noun} belongs to the process that made it, not to what that one has "
            "forked: make another one here"
        )

    def _refuse_closed(self) -> NoReturn:
        refuse(f"this {self._noun} is closed: make another one")

    def __reduce__(self) -> Any:
        refuse(
            f"a deltawire {self._noun} cannot be pickled or copied: make it in the process that "
            "uses it, from a Config, which can"
        )

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Any:
        if not self._open:
            self._refuse_closed()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()
