# SPDX-License-Identifier: Apache-2.0
# _waiting.py - waits that Ctrl-C can interrupt: cut into slices, or watched from the main thread.
"""Python runs signal handlers in the main thread, and only between two bytecode instructions. So a
C function that waits must return from time to time, or wait in another thread."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Optional

from deltawire.errors import refuse

SLICE_S = 0.05
LONGEST_MS = 2**31 - 1


class Deadline:
    """The end of a wait that lasts at most `timeout` seconds. None: no limit."""

    def __init__(self, timeout: Optional[float]) -> None:
        if timeout is None:
            self._end = None
            return
        try:
            seconds = float(timeout)
        except (TypeError, ValueError):
            seconds = float("nan")
        if not seconds >= 0:
            refuse(f"a timeout must be None or a number of seconds, at least 0, not {timeout!r}")
        self._end = time.monotonic() + seconds

    def slice_ms(self) -> int:
        """Milliseconds that the next C call may wait."""
        if self._end is None:
            return int(SLICE_S * 1000)
        left = min(SLICE_S, self._end - time.monotonic())
        return max(0, int(left * 1000 + 0.999))

    def is_over(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end


def milliseconds(seconds: float, name: str) -> int:
    """Converts seconds for an option of the C library, in which 0 would mean the default."""
    try:
        ms = int(float(seconds) * 1000)
    except (TypeError, ValueError, OverflowError):
        ms = 0
    if not 0 < ms <= LONGEST_MS:
        refuse(f"{name} must be a number of seconds, at least 0.001, not {seconds!r}")
    return ms


def watched(
    call: Callable[[], Any],
    cancel: Callable[[], None],
    discard: Callable[[Any], None],
    look: Optional[Callable[[], None]] = None,
) -> Any:
    """Returns call(). In the main thread, which handles signals, call() runs in a helper thread.

    If an exception such as KeyboardInterrupt interrupts the wait, cancel() is called, which should
    make call() return soon. If call() still returns a value, the value is passed to discard(). If
    call() has not returned after 50 ms, its thread is left running in the background.

    look: called while call() waits; what it raises interrupts the wait."""
    if look is None and threading.current_thread() is not threading.main_thread():
        return call()
    lock, done = threading.Lock(), threading.Event()
    box: "dict[str, Any]" = {}

    def work() -> None:
        try:
            value, error = call(), None
        except BaseException as caught:  # raised again in the waiting thread
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
        while not done.wait(SLICE_S if look else None):
            assert look is not None
            look()
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
