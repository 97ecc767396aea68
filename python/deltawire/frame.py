# SPDX-License-Identifier: Apache-2.0
# frame.py - frames and replies read without decoding them, and how large they become.
from __future__ import annotations

import dataclasses
from typing import Any, Optional, Union

from deltawire._library import core, ffi
from deltawire.bytes_in import Bytes
from deltawire.config import Config, config_of
from deltawire.errors import PENDING, check, new_why, refuse, text_of
from deltawire.keys import Id, unpack_one
from deltawire.tensor import NAMES
from deltawire.views import shape_view


def _role(number: int) -> str:
    return ffi.typeof("dw_role").elements[number].replace("DW_ROLE_", "").lower()


@dataclasses.dataclass(frozen=True)
class Entry:
    """One sample of a frame.

    role: "stateless", "key", "delta", "skip" or "sync": what it does to the state of its id.
    form: "floats", "quantized", "mx", or "none": how its values became bytes.
    payload_offset, payload_bytes: where they lie in the frame.
    """

    id: Id
    role: str
    form: str
    base_chain: int
    payload_digest: int
    state_digest: int
    payload_offset: int
    payload_bytes: int


@dataclasses.dataclass(frozen=True)
class FrameInfo:
    """What stands in a frame's header and tables.

    version: (major, minor) of the format. incarnation: the encoder's life; sequence: the frame's
    number in it. length: bytes. shape: (N, T, C) of x; dtype: "f32", "f16" or "bf16". wants_reply:
    whether the decoder answers. config: what both ends must agree on. entries: one for each sample.
    forgotten: ids that the decoder is told to forget.
    """

    version: "tuple[int, int]"
    incarnation: int
    sequence: int
    seed: int
    length: int
    shape: "tuple[int, int, int]"
    dtype: str
    wants_reply: bool
    config: Config
    entries: "list[Entry]"
    forgotten: "list[Id]"

    @property
    def ids(self) -> "list[Id]":
        """The ids of its samples."""
        return [entry.id for entry in self.entries]


def frame_info(frame: Any) -> FrameInfo:
    """Reads a frame's header and tables, not its payloads; nothing is decoded.

    frame: bytes, a buffer, or a tensor of uint8. What lies behind the frame is not looked at.
    Errors: FORMAT, VERSION, CORRUPT.
    """
    with Bytes(frame, "the frame") as given:
        return _read(given.pointer, given.length)


def _read(pointer: Any, length: int) -> FrameInfo:
    info = ffi.new("dw_frame_info *", {"struct_size": ffi.sizeof("dw_frame_info")})
    why = new_why()
    check(core.dw_frame_read(pointer, length, info, why), why)
    entries = ffi.new("dw_entry_info[]", info.n)
    check(core.dw_frame_entries(pointer, length, 0, info.n, entries))
    forgotten, key = [], ffi.new("dw_key *")
    for i in range(info.n_forgotten):
        check(core.dw_frame_forgotten(pointer, length, i, key))
        forgotten.append(unpack_one(key))
    return FrameInfo(
        version=(info.version_major, info.version_minor),
        incarnation=info.incarnation,
        sequence=info.sequence,
        seed=info.seed,
        length=info.length,
        shape=(info.n, info.t, info.c),
        dtype=NAMES[info.x],
        wants_reply=bool(info.wants_reply),
        config=config_of(ffi.addressof(info, "config")),
        entries=[_entry(entries[i]) for i in range(info.n)],
        forgotten=forgotten,
    )


def _entry(entry: Any) -> Entry:
    return Entry(
        id=unpack_one(entry.key),
        role=_role(entry.role),
        form=text_of(core.dw_form_string(entry.form)),
        base_chain=entry.base_chain,
        payload_digest=entry.payload_digest,
        state_digest=entry.state_digest,
        payload_offset=entry.payload_offset,
        payload_bytes=entry.payload_bytes,
    )


def frame_length(start: Any) -> "tuple[bool, int]":
    """Where the frame that begins here ends: for readers of a stream.

    start: its first bytes. Returns (True, bytes of the frame), or (False, how many of its bytes are
    needed to know). Errors: FORMAT, VERSION, CORRUPT.
    """
    found = ffi.new("uint64_t *")
    with Bytes(start, "the start of a frame") as given:
        status = core.dw_frame_length(given.pointer, given.length, found)
    check(status)
    return status != PENDING, found[0]


@dataclasses.dataclass(frozen=True)
class ReplyEntry:
    """What the decoder holds of one id; held: whether it holds anything."""

    id: Id
    held: bool
    incarnation: int
    version: int
    chain: int


@dataclasses.dataclass(frozen=True)
class ReplyInfo:
    """A reply. accepted: an ACK, else a NACK. replaced: the decoder has met a later life of the
    encoder."""

    accepted: bool
    replaced: bool
    incarnation: int
    sequence: int
    entries: "list[ReplyEntry]"


def reply_info(reply: Any) -> ReplyInfo:
    """Reads a reply. Errors: FORMAT, VERSION, CORRUPT."""
    with Bytes(reply, "the reply") as given:
        return _read_reply(given.pointer, given.length)


def _read_reply(pointer: Any, length: int) -> ReplyInfo:
    info = ffi.new("dw_reply_info *", {"struct_size": ffi.sizeof("dw_reply_info")})
    why = new_why()
    check(core.dw_reply_read(pointer, length, info, why), why)
    entries, entry = [], ffi.new("dw_reply_entry *")
    for i in range(info.n):
        check(core.dw_reply_entry_read(pointer, length, i, entry))
        id = unpack_one(entry.key)
        entries.append(
            ReplyEntry(id, bool(entry.held), entry.incarnation, entry.version, entry.chain)
        )
    accepted, replaced = bool(info.accepted), bool(info.replaced)
    return ReplyInfo(accepted, replaced, info.incarnation, info.sequence, entries)


def bound(
    config: Union[str, Config],
    x: Any,
    dtype: Optional[str] = None,
    *,
    rows_are_samples: bool = False,
) -> int:
    """Bytes that are enough for any frame of x: a tensor, or a shape (N, T, C) with a dtype.

    Errors: ARGUMENT, CONFIG, UNSUPPORTED.
    """
    tensor = shape_view(x, dtype, rows_are_samples)
    bytes_needed = core.dw_frame_bound(Config(config)._struct, tensor)
    if bytes_needed == 0:
        refuse("no frame can be made of a tensor of this shape: it is too large")
    return bytes_needed


def reply_bound(n: int) -> int:
    """Bytes that are enough for any reply to a frame of n samples."""
    if not isinstance(n, int) or not 0 <= n < 2**32:
        refuse(f"a frame has 1 to 2**32 - 1 samples, not {n!r}")
    return core.dw_reply_bound(n)
