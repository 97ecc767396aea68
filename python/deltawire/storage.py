# SPDX-License-Identifier: Apache-2.0
# storage.py - Storage: a file for the state of encoders and decoders that does not fit in memory.
from __future__ import annotations

import os
from typing import NamedTuple, Optional, Union

from deltawire._library import ffi, pools
from deltawire.errors import check, new_why, refuse
from deltawire.owner import Lent


class StorageCounters(NamedTuple):
    """Counters of a Storage: records, record_bytes and file_bytes are current values, the others
    sums since it was made. reads_ahead: of the reads, those whose copy was in memory already.
    waits, wait_ns: calls that waited for the file, and how long in all."""

    records: int
    record_bytes: int
    file_bytes: int
    writes: int
    reads: int
    written_bytes: int
    read_bytes: int
    reads_ahead: int
    waits: int
    wait_ns: int
    failed_writes: int
    failed_reads: int


class Storage(Lent):
    """A file that several encoders and decoders can use for state that does not fit in memory.

    text: "file:PATH", and behind it ",cache=BYTES" (what each encoder and decoder keeps in memory;
        1 GiB unless it is given), ",ahead=BYTES" (buffers, 64 MiB) and ",threads=N" (4). Bytes may
        end in KiB, MiB, GiB or TiB. include/deltawire/storage.h says more.
    Errors: CONFIG, IO (also: another process has the file open), NO_MEMORY.

    `Encoder(config, state=storage)` uses it; `Encoder(config, state="file:/path")` makes one of its
    own. close() removes the file.
    """

    _noun = "storage"
    _end = pools.dw_storage_close

    def __init__(self, text: str) -> None:
        super().__init__()
        if not isinstance(text, str):
            refuse(f'state must be a text such as "file:/path,cache=4GiB", not {text!r}')
        made, why = ffi.new("dw_storage **"), new_why()
        check(pools.dw_storage_open(made, os.fsencode(text), why), why)
        self._handle = made[0]
        self._open = True

    def counters(self) -> StorageCounters:
        """What was read and written since it was made."""
        self._enter()
        try:
            size = ffi.sizeof("dw_storage_counters")
            struct = ffi.new("dw_storage_counters *", {"struct_size": size})
            check(pools.dw_storage_count(self._handle, struct))
            return StorageCounters(*[getattr(struct, name) for name in StorageCounters._fields])
        finally:
            self._busy.release()


def storage_of(state: Union[None, str, Storage]) -> Optional[Storage]:
    """Converts the argument state= of an object to a Storage."""
    return state if state is None or isinstance(state, Storage) else Storage(state)
