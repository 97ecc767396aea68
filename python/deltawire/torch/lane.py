# SPDX-License-Identifier: Apache-2.0
# lane.py - Lane: the way to one neighbouring stage and back, whatever carries it.
from __future__ import annotations

from typing import Any

from deltawire.errors import DeltawireError, Status


class Lane:
    """Messages to a neighbour and from it, each way in order.

    me, other: stage indices, for sentences. survives: whether it can go on after a step that was
    given up.
    """

    survives = True

    def __init__(self, me: int, other: int) -> None:
        self.me, self.other = me, other

    def send(self, data: bytearray, waits: bool = True) -> None:
        """Hands a message on; never waits for the neighbour. waits: whether the end of the step
        waits until it is sent."""
        raise NotImplementedError

    def post(self) -> None:
        """The next message may come from now on."""

    def take(self) -> memoryview:
        """The next message; waits for it. What is behind its end is not part of it."""
        raise NotImplementedError

    def lost(self, error: BaseException) -> Any:
        """The neighbour is gone."""
        said = str(error).strip().splitlines()
        raise DeltawireError(
            Status["PEER"],
            f"stage {self.me} has lost stage {self.other}, whose process has ended or cannot be "
            "reached: start all ranks again; with load_compression_state_dict they go on where "
            f"they were saved ({said[0][:160] if said else type(error).__name__})",
        ) from error
