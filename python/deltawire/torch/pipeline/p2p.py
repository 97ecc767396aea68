# SPDX-License-Identifier: Apache-2.0
# p2p.py - send, recv, isend and irecv with compression, for programs with their own schedule.
"""They work like those of torch.distributed, but send frames. There is one encoder or decoder for
each peer, group and tag, which lives as long as the group. So calls with the same tag must have the
same order at both ends, as torch requires, too.

A header of 24 bytes with the length precedes each frame, so that the sizes of sends and receives
are equal, as some backends require, and gloo ends a process that receives more than it expects. If
the header was damaged, nothing more is received with this tag: the next frame would be taken for
the one whose length is unknown."""

from __future__ import annotations

import collections
import hashlib
import struct
import weakref
from typing import Any, NoReturn, Optional

import torch
import torch.distributed as dist

from deltawire._declarations import VERSION
from deltawire.config import Config
from deltawire.decoder import Decoder
from deltawire.encoder import Encoder
from deltawire.errors import DeltawireError, Status, fail, refuse
from deltawire.frame import frame_info
from deltawire.owner import Life
from deltawire.torch.common import forks, tensors
from deltawire.torch.common.configs import of_encoder, without_replies
from deltawire.torch.common.misfit import Fit
from deltawire.torch.common.rendezvous import group_of
from deltawire.torch.common.waits import Wait
from deltawire.torch.pipeline.options import FORWARD

TAGS = 1 << 21
# Magic, twice the size of the frame plus 1 if there are ids, digests of the config and the version.
_HEAD = struct.Struct("<4sQ4s4s")
_HEAD_BYTES = _HEAD.size + 4  # with a digest of all these
_MAGIC = b"dws2"


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=4).digest()


class _Wire:
    """The encoder or decoder for one peer and tag, in one direction."""

    _of: "weakref.WeakKeyDictionary[Any, dict[Any, _Wire]]" = weakref.WeakKeyDictionary()

    def __init__(self, group: Any, peer: int, tag: int, config: Config, sends: bool) -> None:
        self.group, self.peer, self.config, self.life = group, peer, config, Life.now
        self.tags = (TAGS + 2 * tag, TAGS + 2 * tag + 1)
        own = of_encoder(config, "send", dist.get_rank(group), peer, tag)
        self.end: Any = Encoder(own) if sends else Decoder(config)
        self.digests = (_digest(config.agreement.encode()), _digest(VERSION.encode()))
        self.device = tensors.device_for(group)
        # Dither and stochastic rounding are for gradients, which may lose more than activations.
        unbiased = any(f"rounding={name}" in config.text for name in ("dither", "stochastic"))
        kind = "gradients" if unbiased else "activations"
        self.fit = Fit(kind, f"to rank {peer} with tag {tag}")
        self.posted: "collections.deque[Receipt]" = collections.deque()
        self.damaged = False  # whether a frame was sent whose length is not known here

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

    def lost(self, error: BaseException) -> NoReturn:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DeltawireError(
            Status["PEER"],
            f"the connection to rank {self.peer} is lost, because its process has ended or cannot "
            f"be reached: start all ranks again ({said[:160]})",
        ) from error


class Sent:
    """A frame that is being sent.

    frame_bytes: its size. wait(): waits until torch has sent it. After an interrupt it may be
        called again. Errors of wait: PEER.
    """

    def __init__(self, wire: _Wire, works: "list[tuple[Any, torch.Tensor]]", length: int) -> None:
        self._wire, self._works, self.frame_bytes = wire, works, length
        self._waits = [Wait(work.wait, part, part.device.type != "cpu") for work, part in works]

    def wait(self) -> None:
        forks.refuse_fork(self._wire.life, "send")
        try:
            for wait in self._waits:
                wait.end()
        except RuntimeError as error:
            self._wire.lost(error)
        self._works, self._waits = [], []

    def __reduce__(self) -> Any:
        refuse("a Sent cannot be pickled or copied: call its wait() in the process that made it")


class Receipt:
    """A frame that is being received.

    wait(): waits until it has arrived and is decoded. Returns the ids of its samples, or None if it
        was sent without ids. After an interrupt it may be called again.
    left: whether nobody will call wait() any more, because an interrupt has ended recv. The next
        receipt takes what arrives for this one.
    """

    def __init__(self, wire: _Wire, tensor: torch.Tensor) -> None:
        self._wire, self._tensor = wire, tensor
        self._done = self.left = False
        self._ids: "Optional[list[int]]" = None
        self._error: Optional[BaseException] = None
        self._arrival: Wait
        if wire.posted and wire.posted[-1].left:
            self._arrival = wire.posted.pop()._arrival
        else:
            head = torch.zeros(_HEAD_BYTES, dtype=torch.uint8, device=wire.device)
            work = _call(wire, dist.irecv, head, wire.tags[0])
            self._arrival = Wait(lambda: _arrived(wire, work, head))
        wire.posted.append(self)

    def wait(self) -> "Optional[list[int]]":
        forks.refuse_fork(self._wire.life, "receive")
        while not self._done:
            self._wire.posted[0]._complete()  # in the order in which they were posted
        if self._error is not None:
            raise self._error
        return self._ids

    def __reduce__(self) -> Any:
        refuse("a Receipt cannot be pickled or copied: call its wait() in the process that made it")

    def _complete(self) -> None:
        try:
            size, digests, data = self._arrival.end()  # an interrupt leaves all as it was
            self._leave()
            self._ids = self._taken(size, digests, data)
        except DeltawireError as error:
            if not self._done:
                self._leave()
            self._error = error

    def _leave(self) -> None:
        self._wire.posted.popleft()
        self._done = True

    def _taken(
        self, size: int, digests: "list[bytes]", data: bytearray
    ) -> "Optional[list[int]]":
        """Decodes the frame into the tensor. Returns its ids."""
        self._compare(digests)
        ids = self._decode(data)
        return ids if size & 1 else None

    def _compare(self, digests: "list[bytes]") -> None:
        wire = self._wire
        if digests[1] != wire.digests[1]:
            fail(
                Status["MISMATCH"],
                f"rank {wire.peer} has another version of deltawire than {VERSION}: install the "
                "same version on all ranks",
            )
        if digests[0] != wire.digests[0]:
            fail(
                Status["MISMATCH"],
                f"rank {wire.peer} sends with another config than {wire.config.text!r}: give both "
                "ends the same config, and use another tag for each config",
            )

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


def _arrived(
    wire: _Wire, work: Any, head: torch.Tensor
) -> "tuple[int, list[bytes], bytearray]":
    """Waits for a header and its frame. Returns the size and the digests that the header has, and
    the frame.

    Errors: FORMAT, CORRUPT, PROTOCOL, LIMIT, PEER."""
    _refuse_damaged(wire)
    try:
        work.wait()
        wire.damaged = True  # until its length is known and a receive is posted
        size, *digests = _read_head(wire, bytes(head.cpu().tolist()))
        data = tensors.buffer_for(size >> 1, f"rank {wire.peer}")
        room = tensors.of_buffer(data)
        there = room.to(head.device)
        frame = _call(wire, dist.irecv, there, wire.tags[1])
        wire.damaged = False
        frame.wait()
        if there is not room:
            room.copy_(there)
    except RuntimeError as error:
        if isinstance(error, DeltawireError):
            raise
        wire.lost(error)
    return size, digests, data


def _refuse_damaged(wire: _Wire) -> None:
    if wire.damaged:
        fail(
            Status["PROTOCOL"],
            f"an earlier frame of rank {wire.peer} with this tag was damaged, so its frames cannot "
            "be told from each other any more: start all ranks again, or use another tag",
        )


def _read_head(wire: _Wire, head: bytes) -> "tuple[int, bytes, bytes]":
    """Returns what the header says after the magic. Errors: FORMAT, CORRUPT."""
    magic, size, config, version = _HEAD.unpack(head[: _HEAD.size])
    if magic != _MAGIC:
        fail(
            Status["FORMAT"],
            f"rank {wire.peer} sent something else than a frame: use the functions of "
            "deltawire.torch at both ends, with the same tag and the same version of deltawire",
        )
    if _digest(head[: _HEAD.size]) != head[_HEAD.size :]:
        fail(
            Status["CORRUPT"],
            f"the header of a frame of rank {wire.peer} was damaged on the way: start all ranks "
            "again, or use another tag",
        )
    return size, config, version


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
    config: Any = FORWARD,
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
        same dst, group and tag. The first tensors are checked: a warning says if it does not fit.
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
    wire.fit.look(lambda: [wire.end])
    head = bytearray(_HEAD.pack(_MAGIC, len(frame) << 1 | (ids is not None), *wire.digests))
    head += _digest(head)
    works = []
    for data, number in ((head, wire.tags[0]), (bytearray(frame), wire.tags[1])):
        part = tensors.of_buffer(data).to(wire.device)
        works.append((_call(wire, dist.isend, part, number), part))
    return Sent(wire, works, len(frame))


def irecv(
    tensor: torch.Tensor,
    src: int,
    *,
    config: Any = FORWARD,
    group: Any = None,
    tag: int = 0,
) -> Receipt:
    """Starts to receive into a tensor, which must have the sender's shape.

    src: the global rank of the sender, as for torch.distributed.irecv.
    config, group, tag: as for isend.

    Returns a Receipt. Its wait() decodes the frame and returns the ids of the samples, or None.
    Errors of wait: SHAPE, MISMATCH, FORMAT, CORRUPT, BASE, PEER, NO_MEMORY, and PROTOCOL (the
    header of an earlier frame was damaged); the tensor is unchanged then.
    """
    _check(tensor)
    return Receipt(_Wire.find(group, src, tag, config, False), tensor)


def send(
    tensor: torch.Tensor,
    dst: int,
    ids: Any = None,
    *,
    config: Any = FORWARD,
    group: Any = None,
    tag: int = 0,
    stateless: bool = False,
) -> int:
    """Calls isend with these arguments and waits. Returns the size of the frame in bytes."""
    sent = isend(tensor, dst, ids, config=config, group=group, tag=tag, stateless=stateless)
    sent.wait()
    return sent.frame_bytes


def recv(
    tensor: torch.Tensor,
    src: int,
    *,
    config: Any = FORWARD,
    group: Any = None,
    tag: int = 0,
) -> "Optional[list[int]]":
    """Calls irecv with these arguments and waits. Returns the ids of the samples, or None if there
    were none.

    An interrupt, such as Ctrl-C, ends the wait. The next recv or irecv then takes the frame."""
    receipt = irecv(tensor, src, config=config, group=group, tag=tag)
    try:
        return receipt.wait()
    except BaseException:
        receipt.left = not receipt._done
        raise


def _check(tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        refuse(f"tensor must be a torch.Tensor, not {type(tensor).__name__}")
    if not tensors.is_coded(tensor.dtype, tuple(tensor.shape)):
        fail(
            Status["UNSUPPORTED"],
            f"a tensor of {tensor.dtype} and shape {tuple(tensor.shape)} cannot be coded: give a "
            "float32, float16 or bfloat16 tensor, samples first, channels last, and not empty",
        )
