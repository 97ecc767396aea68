# SPDX-License-Identifier: Apache-2.0
# frame.py - reads the contents of frames and replies without decoding; upper bounds of sizes.
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
    """The part of a frame that belongs to one sample.

    role: what the entry does to the state of its id: "stateless", "key" (starts it), "delta"
        (changes it), "skip" (leaves it unchanged) or "sync" (replaces it).
    form: how the values are encoded: "floats", "quantized", "mx", "step", "sparse", "lowrank",
        "tah", "blocks" or "none".
    base_chain: for "delta" and "skip", a digest of the history of the state that it starts from.
    payload_digest, state_digest: digests of the payload and of the new state; 0 means none.
    payload_offset, payload_bytes: the position and the size of the values in the frame.
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
    """The contents of a frame's header and tables.

    version: (major, minor) of the format.
    incarnation: a random number that identifies the encoder, until its reset.
    sequence: the number of the frame; it increases with each frame of the encoder.
    seed: the seed of random numbers that encoder and decoder share; 0 means that there are none.
    length: the size of the frame in bytes.
    shape, dtype: those of the encoded tensor: (N, T, C), and "f32", "f16" or "bf16".
    wants_reply: whether the encoder asks for a reply.
    draws_alike: whether the places of randk and cocktail follow from seed and ids alone.
    config: the options that encoder and decoder must have in common.
    entries: a list with one Entry for each sample.
    forgotten: the ids that the decoder is told to forget.
    """

    version: "tuple[int, int]"
    incarnation: int
    sequence: int
    seed: int
    length: int
    shape: "tuple[int, int, int]"
    dtype: str
    wants_reply: bool
    draws_alike: bool
    config: Config
    entries: "list[Entry]"
    forgotten: "list[Id]"

    @property
    def ids(self) -> "list[Id]":
        """The ids of the samples, in order."""
        return [entry.id for entry in self.entries]


def frame_info(frame: Any) -> FrameInfo:
    """Reads the header and the tables of a frame. Nothing is decoded.

    frame: bytes, a buffer or a uint8 tensor. Bytes after the end of the frame are ignored.
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
        draws_alike=bool(info.draws_alike),
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
    """Finds out how long a frame is, for programs that read frames from a stream of bytes.

    start: the first bytes of the frame.
    Returns (True, the size of the frame in bytes), or (False, the number of bytes that frame_length
    needs to find it out).
    Errors: FORMAT, VERSION, CORRUPT.
    """
    found = ffi.new("uint64_t *")
    with Bytes(start, "the start of a frame") as given:
        status = core.dw_frame_length(given.pointer, given.length, found)
    check(status)
    return status != PENDING, found[0]


@dataclasses.dataclass(frozen=True)
class ReplyEntry:
    """The state that the decoder holds for one id.

    held: whether it holds any. If so, these identify it:
    incarnation, version: the encoder, and the sequence number of the frame that made this state.
    chain: a digest of the id's history.
    """

    id: Id
    held: bool
    incarnation: int
    version: int
    chain: int


@dataclasses.dataclass(frozen=True)
class ReplyInfo:
    """The contents of a reply.

    accepted: True for an ACK, False for a NACK.
    replaced: the frame was rejected because the decoder already received frames of a newer encoder
        (or of the same one after its reset), or has no room for keys; the encoder must start again.
    incarnation, sequence: those of the frame that is answered.
    entries: a list with one ReplyEntry for each id.
    """

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
    """An upper bound, in bytes, of the size of any frame of x.

    x: a tensor, or a shape (N, T, C) with a dtype.
    Errors: ARGUMENT, CONFIG, UNSUPPORTED.
    """
    tensor = shape_view(x, dtype, rows_are_samples)
    bytes_needed = core.dw_frame_bound(Config(config)._struct, tensor)
    if bytes_needed == 0:
        refuse("a tensor of this shape is too large for a frame: split it into smaller tensors")
    return bytes_needed


def reply_bound(n: int) -> int:
    """An upper bound, in bytes, of the size of any reply to a frame of n samples."""
    if not isinstance(n, int) or not 0 <= n < 2**32:
        refuse(f"n must be a number of samples, an int from 0 to 2**32 - 1, not {n!r}")
    return core.dw_reply_bound(n)
