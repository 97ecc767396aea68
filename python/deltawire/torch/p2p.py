# SPDX-License-Identifier: Apache-2.0
# p2p.py - send, recv, isend and irecv with compression, for programs with their own schedule.
"""They work like those of torch.distributed, but send frames. There is one encoder or decoder for
each peer, group and tag, which lives as long as the group. So calls with the same tag must have the
same order at both ends, as torch requires, too.

A header of 24 bytes with the length precedes each frame, so that the sizes of sends and receives
are equal, as some backends require."""

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
from deltawire.torch.ends import of_encoder, without_replies

TAGS = 1 << 21
_HEAD = struct.Struct("<4sIQ8s")  # magic, 1 if there are ids, size of the frame, digest
_MAGIC = b"dws1"


class _Wire:
    """The encoder or decoder for one peer and tag, in one direction."""

    _of: "weakref.WeakKeyDictionary[Any, dict[Any, _Wire]]" = weakref.WeakKeyDictionary()

    def __init__(self, group: Any, peer: int, tag: int, config: Config, sends: bool) -> None:
        self.group, self.peer, self.config = group, peer, config
        self.tags = (TAGS + 2 * tag, TAGS + 2 * tag + 1)
        own = of_encoder(config, "send", dist.get_rank(group), peer, tag)
        self.end: Any = Encoder(own) if sends else Decoder(config)
        self.digest = hashlib.blake2b(config.agreement.encode(), digest_size=8).digest()
        self.device = tensors.device_for(group)
        self.posted: "collections.deque[Receipt]" = collections.deque()

    @classmethod
    def find(cls, group: Any, peer: int, tag: int, config: Any, sends: bool) -> "_Wire":
        if not isinstance(tag, int) or not 0 <= tag < 1 << 16:
            refuse(f"tag must be an int from 0 to 65535, not {tag!r}")
        group = group_of(group)
        wires, wanted = cls._of.setdefault(group, {}), without_replies(config)
        key = (peer, tag, sends)
        if key not in wires:
            wires[key] = cls(group, peer, tag, wanted, sends)
        if wires[key].config != wanted:
            refuse(
                f"rank {peer} and tag {tag} already have the config {wires[key].config.text!r}, "
                f"but this call has {wanted.text!r}: use another tag for another config"
            )
        return wires[key]

    def lost(self, error: BaseException) -> Any:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DeltawireError(
            Status["PEER"],
            f"the connection to rank {self.peer} is lost, because its process has ended or cannot "
            f"be reached: start all ranks again ({said[:160]})",
        ) from error


class Sent:
    """A frame that is being sent.

    frame_bytes: its size. wait(): waits until torch has sent it. Errors of wait: PEER.
    """

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
    """A frame that is being received.

    wait(): waits until it has arrived and is decoded. Returns the ids of its samples, or None if it
        was sent without ids.
    """

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
            self._wire.posted[0]._complete()  # in the order in which they were posted
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
                    f"rank {wire.peer} sent something else than a frame: use the functions of "
                    "deltawire.torch at both ends, with the same tag",
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
                "ends the same config, and use another tag for each config",
            )
        ids = self._decode(data)
        return ids if has_ids else None

    def _decode(self, data: bytearray) -> "list[int]":
        info, wanted = frame_info(data), tensors.extents(tuple(self._tensor.shape))
        if tuple(info.shape) != wanted:
            self._wire.end.advance(data, reply=False)  # keeps encoder and decoder in step
            fail(
                Status["SHAPE"],
                f"rank {self._wire.peer} sent a tensor (N, T, C) of shape {tuple(info.shape)}, but "
                f"recv was given one of {wanted}: give recv a tensor of the sender's shape",
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
    """Encodes a tensor and starts to send it. When isend returns, the tensor may be changed.

    tensor: (N, T, C) of float32, float16 or bfloat16. (N, C) and (N, A, B, C) are accepted, too.
    dst: the global rank of the receiver, as for torch.distributed.isend.
    ids: N ids, as an int64 tensor or a list. None is allowed only if no state is used: with a codec
        other than delta, or with stateless=True.
    config: the config of the codec. It must be the same at both ends, and in all calls with the
        same dst, group and tag.
    group: the process group. None: the default group.
    tag: an int from 0 to 65535, the same at both ends.
    stateless: do not read or change the state.

    Returns a Sent. Call its wait() before the process ends.
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
    """Starts to receive into a tensor, which must have the sender's shape.

    src: the global rank of the sender, as for torch.distributed.irecv.
    config, group, tag: as for isend.

    Returns a Receipt. Its wait() decodes the frame and returns the ids of the samples, or None.
    Errors of wait: SHAPE, MISMATCH, FORMAT, CORRUPT, BASE, PEER; the tensor is unchanged then.
    """
    _check(tensor)
    return Receipt(_Wire.find(group, src, tag, config, False), tensor)


def send(tensor: torch.Tensor, dst: int, ids: Any = None, **named: Any) -> int:
    """Calls isend and waits. Returns the size of the frame in bytes."""
    sent = isend(tensor, dst, ids, **named)
    sent.wait()
    return sent.frame_bytes


def recv(tensor: torch.Tensor, src: int, **named: Any) -> "Optional[list[int]]":
    """Calls irecv and waits. Returns the ids of the samples, or None if there were none."""
    return irecv(tensor, src, **named).wait()


def _check(tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        refuse(f"tensor must be a torch.Tensor, not {type(tensor).__name__}")
    if not tensors.is_coded(tensor.dtype, tuple(tensor.shape)):
        fail(
            Status["UNSUPPORTED"],
            f"a tensor of {tensor.dtype} and shape {tuple(tensor.shape)} cannot be coded: give a "
            "float32, float16 or bfloat16 tensor, samples first, channels last, and not empty",
        )
