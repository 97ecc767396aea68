# SPDX-License-Identifier: Apache-2.0
# owner.py - Owned and Shared: which process and which threads may use an object, and how it ends.
"""An object belongs to the process that made it. After os.fork(), the child holds a copy of its
memory that may have been taken in the middle of a call, by a thread that does not exist in the
child. So every call in the child is an error.

An encoder or decoder serves one thread at a time. A second thread gets an error instead of waiting
for a lock, because encoder and decoder must process the frames in the same order, and with a lock
the order would be left to chance. Links and channels allow calls from several threads."""

from __future__ import annotations

import os
import threading
from typing import Any, Callable, NoReturn, Optional

from deltawire._library import net
from deltawire._waiting import SLICE_S, Deadline
from deltawire.errors import CANCELLED, PENDING, fail, refuse, text_of


class Life:
    """The current process: `now` is a new object after each fork."""

    now = object()


def _forked() -> None:
    Life.now = object()


os.register_at_fork(after_in_child=_forked)


class Owned:
    """The base class of Encoder, Decoder and Lent, which serve one thread at a time, and of
    Shared."""

    _noun = "object"

    def __init__(self) -> None:
        self._life = Life.now
        self._busy = threading.Lock()
        self._open = False
        self._lent: list[Lent] = []

    def _borrow(self, lent: Optional[Lent]) -> Any:
        """Borrows what is lent, until _return_lent; returns its handle, or None for None."""
        if lent is None:
            return None
        handle = lent._lend()
        self._lent.append(lent)
        return handle

    def _return_lent(self) -> None:
        while self._lent:
            self._lent.pop()._give_back()

    def _enter(self) -> None:
        """Begins a call, which _busy.release() ends."""
        if self._life is not Life.now:
            self._refuse_fork()
        if not self._busy.acquire(False):
            refuse(
                f"this {self._noun} is in use by another thread: let one thread use it at a time, "
                f"or make a {self._noun} for each thread"
            )
        if not self._open:
            self._busy.release()
            self._refuse_closed()

    def _refuse_fork(self) -> NoReturn:
        refuse(
            f"this {self._noun} belongs to the process that made it, and this is another process "
            "that was forked from it: make a new one here"
        )

    def _refuse_closed(self) -> NoReturn:
        refuse(f"this {self._noun} is closed: make another one")

    def __reduce__(self) -> Any:
        refuse(
            f"a deltawire {self._noun} cannot be pickled or copied: pickle its Config, and make a "
            "new one in the process that uses it"
        )

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Any:
        if not self._open:
            self._refuse_closed()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()


class Lent(Owned):
    """The base class of Threads and Storage, which encoders, decoders and channels use."""

    _handle: Any
    _end: Any  # the C function that frees the handle

    def __init__(self) -> None:
        super().__init__()
        self._users = 0
        self._counting = threading.RLock()  # the collector may give back while it is held
        self._is_left = False  # the garbage collector took it before its last user

    def _lend(self) -> Any:
        """Returns the handle to an object, which calls _give_back when it is closed."""
        self._enter()
        with self._counting:
            self._users += 1
        self._busy.release()
        return self._handle

    def _give_back(self) -> None:
        with self._counting:
            self._users -= 1
            is_last = self._is_left and self._users == 0
        if is_last:
            self._end(self._handle)

    def close(self) -> None:
        """Ends it. Errors: ARGUMENT (an encoder, decoder or channel still uses it)."""
        if not self._open or self._life is not Life.now:
            return
        self._enter()
        try:
            if self._users > 0:
                refuse(
                    f"encoders, decoders or channels still use this {self._noun}: close them first"
                )
            self._open = False
            self._end(self._handle)
        finally:
            self._busy.release()

    def __del__(self, life: Any = Life) -> None:
        if getattr(self, "_open", False) and self._life is life.now:
            self._open = False
            if self._users:
                self._is_left = True
            else:
                self._end(self._handle)


class Shared(Owned):
    """The base class of Link, Channel and Group. Several threads may call such an object at a time;
    close waits until all of them have left.

    The C functions are found by the name of the object, for example dw_link_why."""

    _library = net
    _handle: Any

    def __init__(self) -> None:
        super().__init__()
        self._users = 0
        self._left = threading.Condition(threading.Lock())

    def _begin(self) -> None:
        """Begins a call, which _finish ends."""
        if self._life is not Life.now:
            self._refuse_fork()
        with self._left:
            if not self._open:
                self._refuse_closed()
            self._users += 1

    def _finish(self) -> None:
        with self._left:
            self._users -= 1
            self._left.notify_all()

    def _ask(self, question: Callable[[Any], Any]) -> Any:
        """Returns question(handle). The object cannot be closed meanwhile."""
        self._begin()
        try:
            return question(self._handle)
        finally:
            self._finish()

    def _wait(self, call: Callable[[int], int], deadline: Deadline) -> int:
        """Calls call(milliseconds) until it returns another status than PENDING. Returns that
        status, or PENDING if the deadline is over. Must be called between _begin and _finish."""
        while True:
            status = call(deadline.slice_ms())
            if status != PENDING:
                return status
            self._still_open()
            if deadline.is_over():
                return PENDING

    def _still_open(self) -> None:
        if not self._open:
            fail(CANCELLED, f"another thread closed the {self._noun} during this call")

    @property
    def why(self) -> str:
        """The error that made a call fail, as a sentence; "" if there was none."""
        return self._ask(self._text)

    def _text(self, handle: Any) -> str:
        return text_of(getattr(self._library, f"dw_{self._noun}_why")(handle))

    def _check(self, status: int) -> None:
        if status < 0:
            fail(status, self._text(self._handle))

    def _shut(self) -> bool:
        """Refuses new calls and waits until all running calls have ended. Returns False if the
        object was closed before, or belongs to another process."""
        if self._life is not Life.now:
            return False
        with self._left:
            if not self._open:
                return False
            self._open = False
            while self._users:
                self._left.wait(SLICE_S)
        return True

    def _abandon(self) -> None:
        """Closes the C object without waiting for anything. Called when the object is collected."""
        raise NotImplementedError

    def __del__(self, life: Any = Life) -> None:
        if getattr(self, "_open", False) and self._life is life.now:
            self._open = False
            self._abandon()
