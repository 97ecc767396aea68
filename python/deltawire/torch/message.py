# SPDX-License-Identifier: Apache-2.0
# message.py - Message: what a stage sends to another one for a microbatch: header, ids, tensors.
"""All integers are little-endian.

Numbers in parentheses are sizes in bytes:

    header   magic "dwp1" (4), kind (1), 1 if ids follow, else 0 (1), number of tensors (2),
             microbatch (4), step (8)
    ids      only if the header says so: number of ids (4), each id (8)
    tensor   FRAME or EXACT (1), dtype (1), number of dimensions (2), size of the data (8), each
             dimension (4), data: a frame of deltawire, or the uncompressed elements

After the header, two kinds of messages have something else instead: LONG has the length of the
message that follows it (8), and ABORT has the length of an error message (2) and its UTF-8 text."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, NoReturn, Optional, Sequence

from deltawire.errors import DeltawireError, Status

FORMAT = 1
MAGIC = b"dwp1"
WITH_IDS, WITHOUT_IDS, LONG, ABORT = 1, 2, 3, 4
FRAME, EXACT = 1, 2

_HEAD = struct.Struct("<4sBBHIQ")
_PART = struct.Struct("<BBHQ")
SHORTEST_ROOM = 512  # enough for LONG, and for an ABORT, whose text is truncated if necessary


class Part(NamedTuple):
    how: int
    dtype: int
    shape: "tuple[int, ...]"
    data: Any


class Message(NamedTuple):
    kind: int
    microbatch: int
    step: int
    ids: "Optional[list[int]]" = None
    parts: "Sequence[Part]" = ()
    why: str = ""
    length: int = 0


def pack(message: Message) -> bytearray:
    ids = message.ids
    made = bytearray(
        _HEAD.pack(
            *(MAGIC, message.kind, ids is not None, len(message.parts)),
            *(message.microbatch, message.step),
        )
    )
    if message.kind == LONG:
        return made + struct.pack("<Q", message.length)
    if message.kind == ABORT:
        said = message.why.encode()[: SHORTEST_ROOM - _HEAD.size - 2]
        return made + struct.pack("<H", len(said)) + said
    if ids is not None:
        made += struct.pack(f"<I{len(ids)}Q", len(ids), *ids)
    for part in message.parts:
        made += _PART.pack(part.how, part.dtype, len(part.shape), len(part.data))
        made += struct.pack(f"<{len(part.shape)}I", *part.shape)
        made += part.data
    return made


def room(parts: "Sequence[tuple[int, int]]", samples: int) -> int:
    """An upper bound, in bytes, of the size of a message.

    parts: for each tensor, the maximum size of its data and the number of its dimensions.
    samples: the maximum number of ids."""
    tensors = sum(_PART.size + 4 * extents + size for size, extents in parts)
    return max(SHORTEST_ROOM, _HEAD.size + 4 + 8 * samples + tensors)


def size_of(message: Message) -> int:
    """Returns the size in bytes of a message that was unpacked."""
    ids = 4 + 8 * len(message.ids) if message.ids is not None else 0
    parts = sum(_PART.size + 4 * len(part.shape) + len(part.data) for part in message.parts)
    return _HEAD.size + ids + parts


def unpack(data: memoryview) -> Message:
    """Reads a message. data may be longer than the message. Errors: FORMAT."""
    try:
        return _unpack(data)
    except (struct.error, UnicodeDecodeError):
        _refuse()


def _unpack(data: memoryview) -> Message:
    magic, kind, has_ids, count, microbatch, step = _HEAD.unpack_from(data)
    if magic != MAGIC or kind not in (WITH_IDS, WITHOUT_IDS, LONG, ABORT):
        _refuse()
    at = _HEAD.size
    if kind == LONG:
        return Message(kind, microbatch, step, length=struct.unpack_from("<Q", data, at)[0])
    if kind == ABORT:
        (length,) = struct.unpack_from("<H", data, at)
        said = bytes(data[at + 2 : at + 2 + length]).decode(errors="replace")
        return Message(kind, microbatch, step, why=said)
    ids = None
    if has_ids:
        (n,) = struct.unpack_from("<I", data, at)
        ids = list(struct.unpack_from(f"<{n}Q", data, at + 4))
        at += 4 + 8 * n
    parts = []
    for _ in range(count):
        how, dtype, extents, length = _PART.unpack_from(data, at)
        at += _PART.size
        shape = struct.unpack_from(f"<{extents}I", data, at)
        at += 4 * extents
        if at + length > len(data):
            _refuse()
        parts.append(Part(how, dtype, shape, data[at : at + length]))
        at += length
    return Message(kind, microbatch, step, ids, parts)


def _refuse() -> NoReturn:
    raise DeltawireError(
        Status["FORMAT"],
        "a stage received data that is not a message of deltawire: make every stage of the "
        "pipeline with compress_stage, and use its tags for nothing else",
    )
