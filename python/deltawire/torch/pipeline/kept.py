# SPDX-License-Identifier: Apache-2.0
# kept.py - Kept: the tensors that have travelled exactly, so that they need not travel again.
from __future__ import annotations

import hashlib
from typing import Optional, Tuple

DIGEST = 8
Place = Tuple[int, int, Tuple[int, ...]]


class Kept:
    """What was sent exactly and last at each place: the position of a tensor in its messages, with
    its dtype and shape.

    Where room is short, what was put first is dropped first; looking changes nothing. So a receiver
    has all that its sender has, though the sender may have forgotten everything in between."""

    MOST, BYTES = 64, 1 << 28

    def __init__(self) -> None:
        self._held: "dict[Place, bytes]" = {}
        self._digests: "dict[Place, bytes]" = {}
        self._bytes = 0

    @classmethod
    def takes(cls, length: int) -> bool:
        """Whether as many bytes are worth a digest, and have room."""
        return DIGEST < length <= cls.BYTES

    def get(self, place: Place) -> Optional[bytes]:
        return self._held.get(place)

    def digest(self, place: Place) -> bytes:
        """The digest of what is kept at this place."""
        if place not in self._digests:
            made = hashlib.blake2b(self._held[place], digest_size=DIGEST)
            self._digests[place] = made.digest()
        return self._digests[place]

    def put(self, place: Place, data: bytes) -> None:
        self._drop(place)
        self._held[place] = data
        self._bytes += len(data)
        while self._bytes > self.BYTES or len(self._held) > self.MOST:
            self._drop(next(iter(self._held)))

    def _drop(self, place: Place) -> None:
        self._bytes -= len(self._held.pop(place, b""))
        self._digests.pop(place, None)

    def clear(self) -> None:
        self._held.clear()
        self._digests.clear()
        self._bytes = 0
