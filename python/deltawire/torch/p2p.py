# SPDX-License-Identifier: Apache-2.0
# p2p.py - send, recv, isend and irecv with ids, for those who write their own schedules.
"""Like those of torch.distributed, but that what travels is a frame. For each peer, group and tag
there is one encoder or decoder, which lives as long as the group, so the order of calls with the
same tag must be the same at both ends, as torch wants it too.

Before each frame goes a head of 24 bytes with its length, so that a receive is always as long as
what comes, with every backend."""

from __future__ import annotations

import collections
import hashlib
import struct
import weakref
from typing import Any, Optional

import torch
import torch.distributed as dist

from deltawire.config import Config
from deltawire.decoder import Decoder
from deltawire.encoder import Encoder
from deltawire.errors import DeltawireError, Status, fail, refuse
from deltawire.frame import frame_info
from deltawire.torch import tensors
from deltawire.torch.agreement import group_of
from deltawire.torch.ends import without_replies

TAGS = 1 << 21
_HEAD = struct.Struct("<4sIQ8s")  # magic, 1 where there are ids, bytes of the frame, digest
_MAGIC = b"dws1"


class _Wire:
    """One way to or from one peer, under one tag."""

    _of: "weakref.WeakKeyDictionary[Any, dict[Any, _Wire]]" = weakref.WeakKeyDictionary()

    def __init__(self, group: Any, peer: int, tag: int, config: Config, sends: bool) -> None:
        self.group, self.peer, self.config = group, peer, config
        self.tags = (TAGS + 2 * tag, TAGS + 2 * tag + 1)
        self.end: Any = Encoder(config) if sends else Decoder(config)
        self.digest = hashlib.blake2b(config.agreement.encode(), digest_size=8).digest()
        self.device = tensors.device_for(group)
        self.posted: "collections.deque[Receipt]" = collections.deque()

    @classmethod
    def find(cls, group: Any, peer: int, tag: int, config: Any, sends: bool) -> "_Wire":
        if not isinstance(tag, int) or not 0 <= tag < 1 << 16:
            refuse(f"a tag is an int from 0 to 65535, not {tag!r}")
        group = group_of(group)
        wires, wanted = cls._of.setdefault(group, {}), without_replies(config)
        key = (peer, tag, sends)
        if key not in wires:
            wires[key] = cls(group, peer, tag, wanted, sends)
        if wires[key].config != wanted:
            refuse(
                f"rank {peer} and tag {tag} had the config {wires[key].config.text!r} until now, "
                f"and {wanted.text!r} was given: take another tag for another config"
            )
        return wires[key]

    def lost(self, error: BaseException) -> Any:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DeltawireError(
            Status["PEER"],
            f"rank {self.peer} is gone, its process has ended or cannot be reached: start all "
            f"ranks again ({said[:160]})",
        ) from error


class Sent:
    """A frame on its way. wait(): until torch has sent it."""

    def __init__(self, wire: _Wire, works: "list[tuple[Any, torch.Tensor]]", length: int) -> None:
        self._wire, self._works, self.frame_bytes = wire, works, length

    def wait(self) -> None:
        try:
            for work, _ in self._works:
                work.wait()
        except RuntimeError as error:
            self._wire.lost(error)
        self._works = []


class Receipt:
    """A frame that will come. wait(): until it is decoded; gives the ids of its samples, or None
    where it was sent without."""

    def __init__(self, wire: _Wire, tensor: torch.Tensor) -> None:
        self._wire, self._tensor = wire, tensor
        self._head = torch.zeros(_HEAD.size, dtype=torch.uint8, device=wire.device)
        self._done = False
        self._ids: "Optional[list[int]]" = None
        self._error: Optional[BaseException] = None
        self._work = _call(wire, dist.irecv, self._head, wire.tags[0])
        wire.posted.append(self)

    def wait(self) -> "Optional[list[int]]":
        while not self._done:
            self._wire.posted[0]._complete()  # in the order in which they were asked for
        if self._error is not None:
            raise self._error
        return self._ids

    def _complete(self) -> None:
        wire = self._wire
        wire.posted.popleft()
        self._done = True
        try:
            self._ids = self._receive()
        except DeltawireError as error:
            self._error = error

    def _receive(self) -> "Optional[list[int]]":
        wire = self._wire
        try:
            self._work.wait()
            magic, has_ids, length, digest = _HEAD.unpack(bytes(self._head.cpu().tolist()))
            if magic != _MAGIC:
                fail(
                    Status["FORMAT"],
                    f"rank {wire.peer} sent something else than a frame: let both ends use "
                    "deltawire.torch, with the same tag",
                )
            data = bytearray(length)
            room = tensors.of_buffer(data)
            there = room.to(wire.device)
            _call(wire, dist.irecv, there, wire.tags[1]).wait()
            if there is not room:
                room.copy_(there)
        except RuntimeError as error:
            if isinstance(error, DeltawireError):
                raise
            wire.lost(error)
        if digest != wire.digest:
            fail(
                Status["MISMATCH"],
                f"rank {wire.peer} sends with another config than {wire.config.text!r}: give both "
                "ends the same, and another tag for each other one",
            )
        ids = self._decode(data)
        return ids if has_ids else None

    def _decode(self, data: bytearray) -> "list[int]":
        info, wanted = frame_info(data), tensors.extents(tuple(self._tensor.shape))
        if tuple(info.shape) != wanted:
            self._wire.end.advance(data, reply=False)  # both ends stay in step
            fail(
                Status["SHAPE"],
                f"rank {self._wire.peer} sent {tuple(info.shape)} as samples, tokens and channels, "
                f"and the tensor has {wanted}: give recv a tensor of the sender's shape",
            )
        made, view = tensors.room_for(self._tensor.dtype, tuple(self._tensor.shape))
        ids = self._wire.end.decode(data, view, reply=False).ids
        with torch.no_grad():
            self._tensor.copy_(made)
        return ids


def _call(wire: _Wire, what: Any, tensor: torch.Tensor, tag: int) -> Any:
    way = "group_dst" if what is dist.isend else "group_src"
    rank = dist.get_group_rank(wire.group, wire.peer)
    try:
        return what(tensor, group=wire.group, tag=tag, **{way: rank})
    except RuntimeError as error:
        wire.lost(error)


def isend(
    tensor: torch.Tensor,
    dst: int,
    ids: Any = None,
    *,
    config: Any = "delta:bits=4",
    group: Any = None,
    tag: int = 0,
    stateless: bool = False,
) -> Sent:
    """Encodes a tensor and begins to send it; the tensor is the caller's again on return.

    tensor: (N, T, C) of float32, float16 or bfloat16; also (N, C) and (N, A, B, C).
    dst: the rank, in the default group as torch's isend takes it.
    ids: N of them, as an int64 tensor or a list. None: only where the codec keeps no state, or
        stateless=True.
    config: at both ends the same; one for each dst, group and tag.

    Returns an object with wait(), to be called before the process ends.
    Errors: ARGUMENT, UNSUPPORTED, CONFIG, PEER.
    """
    wire = _Wire.find(group, dst, tag, config, True)
    _check(tensor)
    given = ids.tolist() if isinstance(ids, torch.Tensor) else ids
    frame = wire.end.encode(tensors.samples(tensor), given, stateless=stateless)
    head = bytearray(_HEAD.pack(_MAGIC, ids is not None, len(frame), wire.digest))
    works = []
    for data, number in ((head, wire.tags[0]), (bytearray(frame), wire.tags[1])):
        part = tensors.of_buffer(data).to(wire.device)
        works.append((_call(wire, dist.isend, part, number), part))
    return Sent(wire, works, len(frame))


def irecv(
    tensor: torch.Tensor,
    src: int,
    *,
    config: Any = "delta:bits=4",
    group: Any = None,
    tag: int = 0,
) -> Receipt:
    """Begins to receive into a tensor of the sender's shape; wait() decodes and gives the ids.

    src: the rank, in the default group as torch's irecv takes it. config, group, tag: as isend's.
    Errors, of wait: SHAPE, MISMATCH, FORMAT, CORRUPT, BASE, PEER; the tensor is then as it was.
    """
    _check(tensor)
    return Receipt(_Wire.find(group, src, tag, config, False), tensor)


def send(tensor: torch.Tensor, dst: int, ids: Any = None, **named: Any) -> int:
    """isend, and wait. Returns the bytes of the frame."""
    sent = isend(tensor, dst, ids, **named)
    sent.wait()
    return sent.frame_bytes


def recv(tensor: torch.Tensor, src: int, **named: Any) -> "Optional[list[int]]":
    """irecv, and wait. Returns the ids of the samples, or None where there were none."""
    return irecv(tensor, src, **named).wait()


def _check(tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        refuse(f"a tensor of torch is wanted, not {type(tensor).__name__}")
    if not tensors.is_coded(tensor.dtype, tuple(tensor.shape)):
        fail(
            Status["UNSUPPORTED"],
            f"a tensor of {tensor.dtype} and shape {tuple(tensor.shape)} cannot be coded: give "
            "float32, float16 or bfloat16, samples first, channels last, no extent of 0",
        )
