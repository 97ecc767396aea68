# SPDX-License-Identifier: Apache-2.0
# errors.py - DeltawireError, and Status: the kinds of errors.
from __future__ import annotations

import enum
from typing import Any, NoReturn, Optional

from deltawire._library import core, ffi


def _statuses() -> dict[str, int]:
    """The names in the C header without their prefix: DW_ERR_CORRUPT becomes CORRUPT."""
    names = ffi.typeof("dw_status").relements
    return {n.replace("DW_ERR_", "").replace("DW_", ""): v for n, v in names.items()}


Status = enum.IntEnum("Status", _statuses(), module=__name__)  # type: ignore[misc]
Status.__doc__ = """The kind of an error: Status.CORRUPT, Status.SHAPE, ...

The names and numbers are those of dw_status in deltawire.h."""


class DeltawireError(RuntimeError):
    """The exception of all errors of this package. After it, the object and its tensors are
    unchanged.

    status: a Status, the kind of the error.
    why: one sentence that names what is wrong and says what to do.
    reply: if a decoder rejected a frame, the answer for the encoder (a NACK) as bytes. Otherwise
        None.
    rank: if a Group has failed, the rank that the error is about. Otherwise None.
    """

    rank: Optional[int] = None

    def __init__(self, status: int, why: str, reply: Optional[bytes] = None) -> None:
        super().__init__(status, why, reply)
        self.status = Status(status)
        self.why = why
        self.reply = reply

    def __str__(self) -> str:
        return f"{self.why} ({self.status.name})"


ARGUMENT = int(Status["ARGUMENT"])
UNSUPPORTED = int(Status["UNSUPPORTED"])
NO_MEMORY = int(Status["NO_MEMORY"])
NO_ROOM = int(Status["NO_ROOM"])
SHAPE = int(Status["SHAPE"])
TIMEOUT = int(Status["TIMEOUT"])
CANCELLED = int(Status["CANCELLED"])
PENDING = int(Status["PENDING"])


def text_of(pointer: Any) -> str:
    return ffi.string(pointer).decode("utf-8", "replace") if pointer else ""


def fail(
    status: int, sentence: str, reply: Optional[bytes] = None, rank: Optional[int] = None
) -> NoReturn:
    """Raises DeltawireError. If the sentence is empty, the general one of the status is used."""
    error = DeltawireError(status, sentence or text_of(core.dw_status_string(status)), reply)
    if rank is not None:
        error.rank = rank
    raise error


def refuse(sentence: str) -> NoReturn:
    """Raises DeltawireError for a wrong argument."""
    raise DeltawireError(ARGUMENT, sentence)


def new_why() -> Any:
    return ffi.new("dw_why *")


def check(status: int, why: Any = None) -> None:
    """Raises DeltawireError if a C function failed. why: its dw_why, or None."""
    if status < 0:
        fail(status, text_of(why.text) if why is not None else "")
