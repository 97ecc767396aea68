# SPDX-License-Identifier: Apache-2.0
# traffic.py - Traffic: counts what a hook has sent.
from __future__ import annotations

import threading


class Traffic:
    """What one rank has sent since its hook was made. Any thread may count.

    frames, frame_bytes: the number and the size of the frames. sent_bytes: their size, with what
    goes before each, counted as often as it was sent.
    codec_seconds: the time inside encode and decode. state_bytes: the memory that the state of
    encoders and decoders takes now.
    """

    def __init__(
        self, frames: int = 0, frame_bytes: int = 0, sent_bytes: int = 0, *taken: float
    ) -> None:
        self.frames, self.frame_bytes, self.sent_bytes = frames, frame_bytes, sent_bytes
        self._lock = threading.Lock()
        self.takes(*taken)

    def takes(self, codec_seconds: float = 0.0, state_bytes: float = 0) -> None:
        """Takes what encoders and decoders count by themselves."""
        self.codec_seconds, self.state_bytes = codec_seconds, state_bytes

    def count(self, length: int, times: int, before: int = 0) -> None:
        with self._lock:
            self.frames += 1
            self.frame_bytes += length
            self.sent_bytes += (before + length) * times
