# SPDX-License-Identifier: Apache-2.0
# threads.py - Threads: a pool that shares the work of encoders and decoders.
from __future__ import annotations

from typing import Any, Optional, Union

from deltawire._library import ffi, pools
from deltawire.errors import check, new_why, refuse
from deltawire.owner import Life, Owned


class Threads(Owned):
    """A pool of threads that several encoders, decoders and channels share.

    n: how many threads share a call's work, the caller among them, 1 to 1024; 0: as many as there
        are processors that this process may run on. The frames do not depend on it.
    Errors: LIMIT, NO_MEMORY.

    `Encoder(config, threads=pool)` uses it; `Encoder(config, threads=4)` makes one of its own. The
    threads are C's, sleep between calls, take no signals and never hold the interpreter's lock.
    """

    _noun = "pool of threads"

    def __init__(self, n: int = 0) -> None:
        super().__init__()
        if not isinstance(n, int) or not 0 <= n < 2**32:
            refuse(f"a number of threads is an int from 0 to 1024, not {n!r}")
        made, why = ffi.new("dw_threads **"), new_why()
        check(pools.dw_threads_create(made, n, why), why)
        self._handle = made[0]
        self._users = 0
        self._open = True

    @property
    def n(self) -> int:
        """Threads that share a call's work, the caller among them."""
        return pools.dw_threads_count(self._handle) if self._open else 0

    def _take(self) -> Any:
        """The dw_threads, for an object that gives it back by _give_back."""
        self._enter()
        self._users += 1
        self._busy.release()
        return self._handle

    def _give_back(self) -> None:
        self._users -= 1

    def close(self) -> None:
        """Ends the threads. Errors: ARGUMENT while an encoder, decoder or channel uses them."""
        if not self._open or self._life is not Life.now:
            return
        self._enter()
        try:
            if self._users > 0:
                refuse("encoders, decoders or channels still use these threads: close them first")
            self._open = False
            pools.dw_threads_destroy(self._handle)
        finally:
            self._busy.release()

    def __del__(self, life: Any = Life, end: Any = pools.dw_threads_destroy) -> None:
        if getattr(self, "_open", False) and self._life is life.now:
            self._open = False
            end(self._handle)


def pool_of(threads: Union[int, Threads]) -> Optional[Threads]:
    """What threads= of an object means: None for 0 and 1, which need no pool."""
    if isinstance(threads, Threads):
        return threads
    if not isinstance(threads, int) or threads < 0:
        refuse(f"threads is a number of threads, or a deltawire.Threads, not {threads!r}")
    return Threads(threads) if threads > 1 else None
