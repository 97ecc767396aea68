# SPDX-License-Identifier: Apache-2.0
# threads.py - Threads: a thread pool for encoders and decoders.
from __future__ import annotations

from typing import Any, Optional, Union

from deltawire._library import ffi, pools
from deltawire.errors import check, new_why, refuse
from deltawire.owner import Life, Owned


class Threads(Owned):
    """A thread pool that several encoders, decoders and channels can share.

    n: the number of threads that share the work of a call, 1 to 1024, including the calling thread.
        0: the number of processors that this process may use. The frames do not depend on it.
    Errors: LIMIT, NO_MEMORY.

    `Encoder(config, threads=pool)` uses a pool; `Encoder(config, threads=4)` makes a pool of its
    own. The threads are not Python threads: they sleep between calls, handle no signals and never
    hold the interpreter lock (GIL).
    """

    _noun = "thread pool"

    def __init__(self, n: int = 0) -> None:
        super().__init__()
        if not isinstance(n, int) or not 0 <= n < 2**32:
            refuse(f"the number of threads must be an int from 0 to 1024, not {n!r}")
        made, why = ffi.new("dw_threads **"), new_why()
        check(pools.dw_threads_create(made, n, why), why)
        self._handle = made[0]
        self._users = 0
        self._open = True

    @property
    def n(self) -> int:
        """The number of threads that share the work of a call, including the calling thread."""
        return pools.dw_threads_count(self._handle) if self._open else 0

    def _take(self) -> Any:
        """Returns the dw_threads to an object, which calls _give_back when it is closed."""
        self._enter()
        self._users += 1
        self._busy.release()
        return self._handle

    def _give_back(self) -> None:
        self._users -= 1

    def close(self) -> None:
        """Ends the threads. Errors: ARGUMENT (an encoder, decoder or channel still uses them)."""
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
    """Converts the argument threads= of an object to a pool. 0 and 1 need no pool: None."""
    if isinstance(threads, Threads):
        return threads
    if not isinstance(threads, int) or threads < 0:
        refuse(f"threads must be an int of at least 0 or a deltawire.Threads, not {threads!r}")
    return Threads(threads) if threads > 1 else None
