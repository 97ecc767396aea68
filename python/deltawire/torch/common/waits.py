# SPDX-License-Identifier: Apache-2.0
# waits.py - Wait: a call that waits in C++, such as Work.wait(), which Ctrl-C can interrupt.
"""Python runs signal handlers in the main thread, and only between two bytecode instructions. gloo
cannot wait in slices: when a timeout of it is over, it closes the connections. So the main thread
lets a helper thread wait. Helpers are kept for later waits, because starting a thread takes longer
than handing a call over. Those that wait when the interpreter ends do not delay its end."""

from __future__ import annotations

import os
import queue
import threading
from typing import Any, Callable, Optional

_idle: "list[queue.SimpleQueue[Wait]]" = []  # of helpers that have nothing to do

os.register_at_fork(after_in_child=_idle.clear)  # the child has no helpers


class Wait:
    """One call.

    keeps: memory that must live until the call has ended.
    here: whether the call runs in the thread that waits in any case.
    """

    def __init__(self, call: "Callable[[], Any]", keeps: Any = None, here: bool = False) -> None:
        self._call: "Optional[Callable[[], Any]]" = call
        self._keeps = keeps
        self._here, self._begun, self.done = here, False, threading.Event()
        self._value: Any = None
        self._error: Optional[BaseException] = None

    def begin(self) -> None:
        """Begins the call in a helper thread. done is set at its end."""
        if not self._begun:
            helper, self._begun = _helper(), True
            helper.put(self)

    def end(self) -> Any:
        """Waits for the call, and returns what it returns or raises what it raises. Only one thread
        may wait at a time.

        If an exception such as KeyboardInterrupt interrupts the wait, the call goes on in its
        helper thread, and end() may be called again."""
        if not self._begun and (
            self._here or threading.current_thread() is not threading.main_thread()
        ):
            self._begun = True
            self.run()
        self.begin()
        self.done.wait()
        if self._error is not None:
            raise self._error
        return self._value

    def run(self, helper: "Optional[queue.SimpleQueue[Wait]]" = None) -> None:
        assert self._call is not None
        try:
            self._value = self._call()
        except BaseException as error:  # raised again in the waiting thread
            self._error = error
        self._call = self._keeps = None
        if helper is not None:
            _idle.append(helper)
        self.done.set()


def _helper() -> "queue.SimpleQueue[Wait]":
    """Returns the queue of a helper thread that has nothing to do."""
    try:
        return _idle.pop()
    except IndexError:
        made: "queue.SimpleQueue[Wait]" = queue.SimpleQueue()
        threading.Thread(target=_help, args=(made,), name="deltawire wait", daemon=True).start()
        return made


def _help(todo: "queue.SimpleQueue[Wait]") -> None:
    while True:
        todo.get().run(todo)
