# SPDX-License-Identifier: Apache-2.0
# _waiting.py - waits that Ctrl-C ends: cut into slices, or watched from the main thread.
"""Python runs a signal's handler in the main thread, and only between two steps of Python: a call
of C that waits has to come back for it."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Optional

from deltawire.errors import refuse

SLICE_S = 0.05
LONGEST_MS = 2**31 - 1


class Deadline:
    """A wait of so many seconds; None: as long as it takes."""

    def __init__(self, timeout: Optional[float]) -> None:
        if timeout is None:
            self._end = None
            return
        try:
            seconds = float(timeout)
        except (TypeError, ValueError):
            seconds = float("nan")
        if not seconds >= 0:
            refuse(f"a timeout is a number of seconds, at least 0, or None, not {timeout!r}")
        self._end = time.monotonic() + seconds

    def slice_ms(self) -> int:
        """How long the next call of C may wait."""
        if self._end is None:
            return int(SLICE_S * 1000)
        left = min(SLICE_S, self._end - time.monotonic())
        return max(0, int(left * 1000 + 0.999))

    def is_over(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end


def milliseconds(seconds: float, name: str) -> int:
    """For options of C, of which 0 is the default."""
    try:
        ms = int(float(seconds) * 1000)
    except (TypeError, ValueError, OverflowError):
        ms = 0
    if not 0 < ms <= LONGEST_MS:
        refuse(f"{name} is a number of seconds from 0.001 on, not {seconds!r}")
    return ms


def watched(
    call: Callable[[], Any], cancel: Callable[[], None], discard: Callable[[Any], None]
) -> Any:
    """call(), in a thread of its own where signals are for the thread that asks.

    What interrupts the wait calls cancel(), which ends the call soon; what the call then gives all
    the same goes to discard(). A call that does not end within 50 ms is left to itself."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    lock, done, box = threading.Lock(), threading.Event(), {}

    def work() -> None:
        try:
            value, error = call(), None
        except BaseException as caught:  # handed to the thread that asks
            value, error = None, caught
        with lock:
            left_alone = box.get("left alone", False)
            box["result"] = value, error
        done.set()
        if left_alone and error is None:
            discard(value)

    thread = threading.Thread(target=work, name="deltawire wait", daemon=True)
    try:
        thread.start()
        done.wait()
    except BaseException:
        cancel()
        done.wait(SLICE_S)
        with lock:
            box["left alone"] = True
            result = box.get("result")
        if result is not None and result[1] is None:
            discard(result[0])
        raise
    value, error = box["result"]
    if error is not None:
        raise error
    return value
