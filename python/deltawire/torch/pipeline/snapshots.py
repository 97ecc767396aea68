# SPDX-License-Identifier: Apache-2.0
# snapshots.py - Snapshots: the copies that saved states of a stage name, in its file of state=.
from __future__ import annotations

from typing import Any, Iterator, Optional

from deltawire.errors import DeltawireError, Status, fail
from deltawire.storage import Storage
from deltawire.torch.common import tensors

HEAD, NAME = 96, 16  # bytes: of a key's saved state before its values, and of a copy's name


def stored(length: int, names_copies: bool) -> int:
    """The bytes that a saved state has of the state of a key, which has so many with its copy."""
    return min(length, HEAD + NAME) if names_copies else length


class Snapshots:
    """Puts names in the place of copies, and copies in the place of names.

    It owns which snapshots the file has: those of the last two states that were saved or loaded,
    because the last one may not be whole on the program's disk yet.

    storage: None: states carry their copies. makes: whether snapshots are made. If not, they are
    only read, because those of a storage are the business of whoever opened it."""

    def __init__(self, storage: Optional[Storage] = None, makes: bool = False) -> None:
        self._storage = storage
        self._maker = storage if makes else None
        self._keeps = False  # something for the next snapshot
        self._last = self._before = 0

    def shorten(self, state: bytes) -> bytes:
        """Returns what is saved of the state of a key. Errors: IO."""
        if self._maker is None or len(state) <= HEAD + NAME:
            return state
        self._keeps = True
        return state[:HEAD] + self._maker.keep(memoryview(state)[HEAD:])

    def save(self) -> int:
        """Makes the snapshot, and returns its number; 0: nothing was kept. Before the first one of
        a run that has loaded none, the last one of the file stays. Errors: IO."""
        self._before = self._last
        if self._maker is None or not self._keeps:
            return 0
        self._before = self._last or self._maker.counters().snapshot
        self._last = self._maker.save(keeps=self._before)
        self._keeps = False
        return self._last

    def let_go(self) -> None:
        """Nothing was saved of what was kept."""
        if self._maker is not None and self._keeps:
            self._keeps = False
            self._maker.let_go()

    def take_back(self) -> None:
        """The last state that was saved is of no use, so the one before it stays in its place."""
        self._last = self._before

    def loaded(self, snapshot: int) -> None:
        """The state that was loaded names this one; 0: none."""
        self._last = snapshot

    def states(self, snapshot: int, saved: "dict[str, Any]") -> Iterator[bytes]:
        """Yields the states of keys that Ends.save has saved. snapshot: the one that is named; 0:
        none. Errors: MISMATCH, IO, CORRUPT (a copy cannot be had)."""
        at, data = 0, tensors.as_bytes(saved["states"])
        for length in saved["lengths"].tolist():
            end = at + stored(length, bool(snapshot))
            state, at = bytes(data[at:end]), end
            if snapshot and len(state) < length:
                name = state[HEAD:]
                state = state[:HEAD] + self._fetch(snapshot, name, length - HEAD)
            yield state

    def _fetch(self, snapshot: int, name: bytes, size: int) -> bytes:
        try:
            if self._storage is None:
                fail(Status["MISMATCH"], "this stage has no file")
            return self._storage.fetch(snapshot, name, size)
        except DeltawireError as error:
            raise DeltawireError(
                error.status,
                "this compression state names copies in the file of state=, which cannot be had "
                f"({error.why}): give the stage the state= with which it was saved, or go on "
                "without this state, and each id is sent in full once",
            ) from error
