# SPDX-License-Identifier: Apache-2.0
# lane.py - Lane: sends messages to a neighbouring stage and receives messages from it.
from __future__ import annotations

from typing import NoReturn

from deltawire.errors import DeltawireError, Status
from deltawire.torch.common.report import Seconds


class Lane:
    """The base class of LinkLane and GroupLane. Messages arrive in order, in both directions.

    me, other: the indices of this stage and the neighbouring stage.
    survives: whether the lane still works after a step that failed.
    sending, waiting: the time in which this rank sent, and waited for messages.
    added: the bytes that came with the last message and are not of it.
    """

    survives = True
    added = 0

    def __init__(self, me: int, other: int) -> None:
        self.me, self.other = me, other
        self.sending, self.waiting = Seconds(), Seconds()

    def send(self, data: bytearray, waits: bool = True) -> int:
        """Sends a message, without waiting for the neighbour. Returns the number of bytes that the
        carrier was given.

        waits: whether the end of the step waits until the message has been sent."""
        raise NotImplementedError

    def post(self) -> None:
        """Tells the lane that one more message will be taken, so that it can begin to receive."""

    def take(self) -> memoryview:
        """Waits for the next message and returns it. The memoryview may be longer than the
        message."""
        raise NotImplementedError

    def give_back(self, data: memoryview) -> None:
        """Takes back the memory of a message that take has returned, for another message."""

    def close(self) -> None:
        """Closes what belongs to this lane alone. torch's process group does not."""

    def lost(self, error: BaseException) -> NoReturn:
        """Raises the error for a neighbour that cannot be reached any more."""
        said = str(error).strip().splitlines()
        raise DeltawireError(
            Status["PEER"],
            f"stage {self.me} has lost the connection to stage {self.other}, whose process has "
            "ended or cannot be reached: start it again, and let all ranks make new process groups "
            "and stages from the same checkpoint; load_compression_state_dict restores the saved "
            "state, but not what this rank holds now, which is of a step that failed "
            f"({said[0][:160] if said else type(error).__name__})",
        ) from error
