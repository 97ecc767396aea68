# SPDX-License-Identifier: Apache-2.0
# threads.py - Threads: a thread pool for encoders and decoders.
from __future__ import annotations

from typing import Optional, Union

from deltawire._library import ffi, pools
from deltawire.errors import check, new_why, refuse
from deltawire.owner import Lent


class Threads(Lent):
    """A thread pool that several encoders, decoders and channels can share.

    n: the number of threads that share the work of a call, 1 to 1024, including the calling thread.
        0: the number of processors that this process may use. The frames do not depend on it.
    Errors: LIMIT, NO_MEMORY.

    `Encoder(config, threads=pool)` uses a pool; `Encoder(config, threads=4)` makes a pool of its
    own. The threads are not Python threads: they sleep between calls, handle no signals and never
    hold the interpreter lock (GIL).
    """

    _noun = "thread pool"
    _end = pools.dw_threads_destroy

    def __init__(self, n: int = 0) -> None:
        super().__init__()
        if not isinstance(n, int) or not 0 <= n < 2**32:
            refuse(f"the number of threads must be an int from 0 to 1024, not {n!r}")
        made, why = ffi.new("dw_threads **"), new_why()
        check(pools.dw_threads_create(made, n, why), why)
        self._handle = made[0]
        self._open = True

    @property
    def n(self) -> int:
        """The number of threads that share the work of a call, including the calling thread."""
        return pools.dw_threads_size(self._handle) if self._open else 0


def pool_of(threads: Union[int, Threads]) -> Optional[Threads]:
    """Converts the argument threads= of an object to a pool. 0 and 1 need no pool: None."""
    if isinstance(threads, Threads):
        return threads
    if not isinstance(threads, int) or threads < 0:
        refuse(f"threads must be an int of at least 0 or a deltawire.Threads, not {threads!r}")
    return Threads(threads) if threads > 1 else None
