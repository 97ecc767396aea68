# SPDX-License-Identifier: Apache-2.0
# operation.py - Operation: one all-reduce, reduce-scatter, all-gather or broadcast in progress.
from __future__ import annotations

import threading
from typing import Any, Optional

from deltawire._library import net
from deltawire._waiting import Deadline
from deltawire.errors import CANCELLED, PENDING, TIMEOUT, DeltawireError, fail, refuse


class Operation:
    """What Group.start returns. The operation proceeds by itself; test and wait ask for its end.

    slot: the number of the buffer. out: the tensor that receives the result, or None if this rank
    receives nothing.

    Until the operation has finished, x must not change, and out must not be used. The group keeps
    both alive, also if this object is dropped. Any thread may call, one at a time.
    """

    __slots__ = (
        *("slot", "out", "_group", "_x", "_y", "_stream", "_lock", "_ended", "_error"),
        "__weakref__",
    )

    def __init__(self, group: Any, slot: int, out: Any, x: Any, y: Any, stream: Any) -> None:
        self.slot, self.out = slot, out
        self._group, self._x, self._y, self._stream = group, x, y, stream
        self._lock = threading.Lock()
        self._ended, self._error = False, None  # type: bool, Optional[DeltawireError]

    def test(self) -> bool:
        """Whether the operation has finished. Its result is in out then.

        Errors: as those of wait, but for TIMEOUT."""
        return self._finish(Deadline(0))

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits until the operation has finished, and returns out.

        timeout: the maximum time in seconds. None: until it has finished or the group has failed.
        Errors: TIMEOUT, with rank None (it goes on; call wait again); CANCELLED (the group was
        closed); ARGUMENT (another thread waits); the error of a group that has failed: out is
        unchanged then.
        """
        if not self._finish(Deadline(timeout)):
            fail(TIMEOUT, f"slot {self.slot} has not finished within {timeout} s; it goes on")
        return self.out

    def _finish(self, deadline: Deadline) -> bool:
        if not self._lock.acquire(False):
            refuse(f"another thread waits for slot {self.slot}: let one thread wait for it")
        try:
            if not self._ended:
                self._ended = self._wait(deadline)
            if self._error is not None:
                raise self._error.with_traceback(None)
            return self._ended
        finally:
            self._lock.release()

    def _wait(self, deadline: Deadline) -> bool:
        group = self._group
        try:
            group._begin()
        except DeltawireError:
            if group._open:
                raise
            self._end_closed(group._noun)  # another thread is about to close it
            return True
        try:
            handle = group._handle
            status = group._wait(
                lambda ms: net.dw_group_wait(handle, self.slot, ms), deadline
            )
            if status == PENDING:
                return False
            group._pending.pop(self.slot, None)
            self._let_go()
            try:
                group._check(status)
            except DeltawireError as error:
                self._error = error
            return True
        finally:
            group._finish()

    def _let_go(self) -> None:
        for flat in (self._x, self._y):
            flat.drop()

    def _cancel(self, noun: str) -> None:
        """The group has been closed."""
        self._let_go()
        self._end_closed(noun)

    def _end_closed(self, noun: str) -> None:
        if not self._ended:
            sentence = f"the {noun} was closed before slot {self.slot} had finished"
            self._error = DeltawireError(CANCELLED, sentence)
            self._ended = True

    def __repr__(self) -> str:
        state = "failed" if self._error else "finished" if self._ended else "in progress"
        return f"Operation(slot={self.slot}, {state})"

    def __reduce__(self) -> Any:
        refuse("an operation of a deltawire group cannot be pickled: pickle its result")
