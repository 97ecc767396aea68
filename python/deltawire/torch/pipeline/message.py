# SPDX-License-Identifier: Apache-2.0
# message.py - Message: what a stage sends to another one for a microbatch: header, ids, tensors.
"""All integers are little-endian.

Numbers in parentheses are sizes in bytes:

    header   magic "dwp5" (4), kind (1), 1 if ids follow, else 0 (1), number of tensors (2),
             microbatch (4), step (8), digest of all bytes of the message but this digest and the
             frames, which have digests of their own (8)
    ids      only if the header says so: number of ids (4), each id (8)
    tensor   FRAME, EXACT, PROFILE, KEEP, SAME or ZERO, with 128 added if it is *still*: it needs no
             gradient, and travels exactly (1), dtype (1), number of dimensions (2), size of the
             data (8), each dimension (4), data: a frame of deltawire; the elements, as
             tensors.exact returns them; the values of a profile, which frames of this and of later
             messages have; elements that the receiver keeps; the digest of what it keeps (8);
             nothing, for the gradient of a tensor that was still

After the header, two kinds of messages have something else instead: LONG has the length of the
message that follows it (8), the number of LONG messages before it on the same lane (8) and the
largest length of all these messages (8); ABORT has the length of an error message (2) and its UTF-8
text."""

from __future__ import annotations

import hashlib
import struct
from typing import Any, NamedTuple, NoReturn, Optional, Sequence

from deltawire.errors import Status, fail

FORMAT = 5
MAGIC = b"dwp5"
WITH_IDS, WITHOUT_IDS, LONG, ABORT = 1, 2, 3, 4
FRAME, EXACT, PROFILE, KEEP, SAME, ZERO = 1, 2, 3, 4, 5, 6
STILL = 128
PROFILE_BYTES = 6  # of a channel: a weight and two means
NAMED_BYTES = 16  # by which a frame that names a profile is longer

_HEAD = struct.Struct("<4sBBHIQ")
_PART = struct.Struct("<BBHQ")
_LONG = struct.Struct("<QQQ")
_DIGEST = 8
_START = _HEAD.size + _DIGEST
LONG_BYTES = _START + _LONG.size
SHORTEST_ROOM = 512  # enough for LONG, and for an ABORT, whose text is truncated if necessary


class Part(NamedTuple):
    how: int
    dtype: int
    shape: "tuple[int, ...]"
    data: Any
    is_still: bool = False


class Message(NamedTuple):
    kind: int
    microbatch: int
    step: int
    ids: "Optional[list[int]]" = None
    parts: "Sequence[Part]" = ()
    why: str = ""
    length: int = 0
    number: int = 0
    largest: int = 0


def pack(message: Message) -> bytearray:
    ids = message.ids
    head = _HEAD.pack(
        *(MAGIC, message.kind, ids is not None, len(message.parts)),
        *(message.microbatch, message.step),
    )
    made, digest = bytearray(head) + bytes(_DIGEST), _digest(head)

    def put(piece: Any) -> None:
        digest.update(piece)
        made.extend(piece)

    if message.kind == LONG:
        put(_LONG.pack(message.length, message.number, message.largest))
    elif message.kind == ABORT:
        said = message.why.encode()[: SHORTEST_ROOM - _START - 2]
        put(struct.pack("<H", len(said)) + said)
    elif ids is not None:
        put(struct.pack(f"<I{len(ids)}Q", len(ids), *ids))
    for part in message.parts:
        how = part.how + STILL * part.is_still
        put(_PART.pack(how, part.dtype, len(part.shape), len(part.data)))
        put(struct.pack(f"<{len(part.shape)}I", *part.shape))
        if part.how == FRAME:
            made += part.data
        else:
            put(part.data)
    made[_HEAD.size : _START] = digest.digest()
    return made


def _digest(head: Any) -> Any:
    return hashlib.blake2b(head, digest_size=_DIGEST)


def room(parts: "Sequence[tuple[int, int]]", samples: int) -> int:
    """An upper bound, in bytes, of the size of a message.

    parts: for each tensor, the maximum size of its data and the number of its dimensions.
    samples: the maximum number of ids."""
    tensors = sum(_PART.size + 4 * extents + size for size, extents in parts)
    return max(SHORTEST_ROOM, _START + 4 + 8 * samples + tensors)


def size_of(message: Message) -> int:
    """Returns the size in bytes of a message that was unpacked."""
    ids = 4 + 8 * len(message.ids) if message.ids is not None else 0
    parts = sum(_PART.size + 4 * len(part.shape) + len(part.data) for part in message.parts)
    return _START + ids + parts


def unpack(data: memoryview) -> Message:
    """Reads a message. data may be longer than the message. Errors: FORMAT, CORRUPT."""
    try:
        made, end, unchecked = _unpack(data)
    except struct.error:
        _refuse()
    digest, at = _digest(data[: _HEAD.size]), _START
    for start, stop in unchecked:
        digest.update(data[at:start])
        at = stop
    digest.update(data[at:end])
    if digest.digest() != data[_HEAD.size : _START]:
        fail(
            Status["CORRUPT"],
            "a message of a stage was damaged on the way: run the step again; if it happens again, "
            "look for faults of the network and the memory of both ranks",
        )
    return made


def _unpack(data: memoryview) -> "tuple[Message, int, list[tuple[int, int]]]":
    """Returns the message, where it ends, and where its frames lie."""
    magic, kind, has_ids, count, microbatch, step = _HEAD.unpack_from(data)
    if magic != MAGIC or kind not in (WITH_IDS, WITHOUT_IDS, LONG, ABORT):
        _refuse()
    at = _START
    if kind == LONG:
        length, number, largest = _LONG.unpack_from(data, at)
        made = Message(kind, microbatch, step, length=length, number=number, largest=largest)
        return made, at + _LONG.size, []
    if kind == ABORT:
        (length,) = struct.unpack_from("<H", data, at)
        end = at + 2 + length
        said = bytes(data[at + 2 : end]).decode(errors="replace")
        return Message(kind, microbatch, step, why=said), end, []
    ids = None
    if has_ids:
        (n,) = struct.unpack_from("<I", data, at)
        ids = list(struct.unpack_from(f"<{n}Q", data, at + 4))
        at += 4 + 8 * n
    parts, frames = [], []
    for _ in range(count):
        how, dtype, extents, length = _PART.unpack_from(data, at)
        at += _PART.size
        shape = struct.unpack_from(f"<{extents}I", data, at)
        at += 4 * extents
        if at + length > len(data):
            _refuse()
        is_still, how = divmod(how, STILL)
        if is_still and how not in (EXACT, KEEP, SAME):
            _refuse()
        parts.append(Part(how, dtype, shape, data[at : at + length], bool(is_still)))
        if how == FRAME:
            frames.append((at, at + length))
        at += length
    return Message(kind, microbatch, step, ids, parts), at, frames


def _refuse() -> NoReturn:
    fail(
        Status["FORMAT"],
        "a stage received data that is not a message of deltawire: make every stage of the "
        "pipeline with compress_stage, and use its tags for nothing else",
    )
