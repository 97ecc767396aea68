# SPDX-License-Identifier: Apache-2.0
# errors.py - DeltawireError, and Status: the kinds of errors.
from __future__ import annotations

import enum
from typing import Any, NoReturn, Optional

from deltawire._library import core, ffi


class Status(enum.IntEnum):
    """The kind of an error: Status.CORRUPT, Status.SHAPE, ...

    The names and numbers are those of dw_status in deltawire.h, without the prefix: DW_ERR_CORRUPT
    is CORRUPT. They are written out for type checkers; a test compares them with the header."""

    PENDING = 1
    OK = 0
    ARGUMENT = -1
    CONFIG = -2
    NO_MEMORY = -3
    BUFFER_TOO_SMALL = -4
    UNSUPPORTED = -5
    LIMIT = -6
    FORMAT = -7
    VERSION = -8
    CORRUPT = -9
    SHAPE = -10
    MISMATCH = -11
    IO = -12
    STALE = -20
    BASE = -21
    STATE = -22
    TIMEOUT = -40
    PEER = -41
    ADDRESS = -42
    CANCELLED = -43
    PROTOCOL = -44
    AUTH = -45


class DeltawireError(RuntimeError):
    """The exception of all errors of this package. After it, the object and its tensors are
    unchanged.

    status: a Status, the kind of the error.
    why: one sentence that names what is wrong and says what to do.
    reply: if a decoder rejected a frame, the answer for the encoder (a NACK) as bytes. Otherwise
        None.
    rank: if a Group has failed, or a rank has refused to go on with deltawire.torch, the rank that
        the error is about. Otherwise None.
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
BUFFER_TOO_SMALL = int(Status["BUFFER_TOO_SMALL"])
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


def line_of(error: BaseException) -> str:
    """The first line of what another library says; the rest would not fit into a sentence."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def new_why() -> Any:
    return ffi.new("dw_why *")


def check(status: int, why: Any = None) -> None:
    """Raises DeltawireError if a C function failed. why: its dw_why, or None."""
    if status < 0:
        fail(status, text_of(why.text) if why is not None else "")
