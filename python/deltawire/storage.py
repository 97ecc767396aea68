# SPDX-License-Identifier: Apache-2.0
# storage.py - Storage: a file for the state of encoders and decoders that does not fit in memory.
from __future__ import annotations

import os
from typing import Any, NamedTuple, Optional, Union

from deltawire._library import ffi, pools
from deltawire.bytes_in import Bytes
from deltawire.errors import Status, check, fail, new_why, refuse
from deltawire.owner import Lent


class StorageCounters(NamedTuple):
    """Counters of a Storage: records, record_bytes and file_bytes are current values, the others
    sums since it was made. reads_ahead: of the reads, those whose copy was in memory already.
    waits, wait_ns: calls that waited for the file, and how long in all. pinned, pinned_bytes:
    current values of copies that only snapshots have; snapshot, snapshot_before: their numbers, or
    0."""

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
    pinned: int
    pinned_bytes: int
    snapshot: int
    snapshot_before: int


class Storage(Lent):
    """A file that several encoders and decoders can use for state that does not fit in memory.

    text: "file:PATH", and behind it ",cache=BYTES" (what each encoder and decoder keeps in memory;
        1 GiB unless it is given), ",ahead=BYTES" (buffers, 64 MiB) and ",threads=N" (4). Bytes may
        end in KiB, MiB, GiB or TiB. include/deltawire/storage.h says more.
    Errors: CONFIG, IO (also: another process has the file open), NO_MEMORY.

    `Encoder(config, state=storage)` uses it; `Encoder(config, state="file:/path")` makes one of its
    own. close() removes the file if it has no snapshot.

    Snapshots are copies that a later process reads, docs/state.md: keep() takes bytes and returns
    their name; save() makes a snapshot of what was kept, and returns its number; it lets go of all
    others but `keeps`. let_go() lets go of what was kept. fetch() reads a copy of so many bytes.
    Errors: IO, ARGUMENT, NO_MEMORY; MISMATCH, CORRUPT: there is no such copy, or it is damaged.
    """

    _noun = "storage"
    _end = pools.dw_storage_close

    def __init__(self, text: str) -> None:
        super().__init__()
        if not isinstance(text, str):
            refuse(f'state must be a text such as "file:/path,cache=4GiB", not {text!r}')
        try:
            raw = os.fsencode(text)
        except UnicodeEncodeError as error:
            fail(Status["CONFIG"], f"state is no path: {error}")
        if b"\0" in raw:
            fail(Status["CONFIG"], f"state must not contain a zero byte: {text!r}")
        made, why = ffi.new("dw_storage **"), new_why()
        check(pools.dw_storage_open(made, raw, why), why)
        self._handle = made[0]
        self._open = True

    def keep(self, copy: Any) -> bytes:
        """Keeps bytes for the next snapshot."""
        name, why = ffi.new("uint8_t[16]"), new_why()
        with Bytes(copy, "copy") as given:
            self._call(pools.dw_storage_keep, given.pointer, given.length, name, why)
        return bytes(name)

    def let_go(self) -> None:
        """Lets go of what was kept since the last snapshot."""
        self._call(pools.dw_storage_save, 0, ffi.NULL, new_why())

    def save(self, keeps: int = 0) -> int:
        """Makes a snapshot of what was kept."""
        _check_number("keeps", keeps)
        made, why = ffi.new("uint64_t *"), new_why()
        self._call(pools.dw_storage_save, keeps, made, why)
        return made[0]

    def fetch(self, snapshot: int, name: bytes, size: int) -> bytes:
        """Reads a copy of a snapshot."""
        _check_number("snapshot", snapshot)
        _check_number("size", size)
        with Bytes(name, "name") as given:
            if given.length != 16:
                refuse(f"a name has 16 bytes, not {given.length}")
            try:
                copy, why = ffi.new("uint8_t[]", size), new_why()
            except (MemoryError, OverflowError):
                fail(Status["NO_MEMORY"], f"there is no memory for a copy of {size} bytes")
            its = ffi.cast("uint8_t *", given.pointer)
            self._call(pools.dw_storage_fetch, snapshot, its, copy, size, why)
        return bytes(copy)

    def _call(self, function: Any, *arguments: Any) -> None:
        """Calls a function, whose last argument is a dw_why."""
        self._enter()
        try:
            check(function(self._handle, *arguments), arguments[-1])
        finally:
            self._busy.release()

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


def _check_number(name: str, given: Any) -> None:
    if not isinstance(given, int) or not 0 <= given < 2**64:
        refuse(f"{name} must be an int from 0 to 2**64 - 1, not {given!r}")


def storage_of(state: Union[None, str, Storage]) -> Optional[Storage]:
    """Converts the argument state= of an object to a Storage."""
    return state if state is None or isinstance(state, Storage) else Storage(state)
