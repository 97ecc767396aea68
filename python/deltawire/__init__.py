# SPDX-License-Identifier: Apache-2.0
# __init__.py - the package deltawire: its public names.
"""Compresses what distributed training sends over slow networks.

    encoder = deltawire.Encoder("delta:bits=4", threads=2)
    decoder = deltawire.Decoder("delta:bits=4")

    frame = encoder.encode(x, ids=[17, 4, 99])     # x: (3, T, C), of torch, numpy, jax ...
    y, ids, reply = decoder.decode(frame)          # torch.from_dlpack(y) shares its memory
    encoder.take_reply(reply)                      # repairs the state after a lost frame

Tensors have the shape (N, T, C): N samples, T tokens, C channels. An id names a sample and stays
the same in every epoch. Every error is a DeltawireError with a status and a message of one
sentence. docs/python.md is the manual; help() on each name gives shapes, units and errors."""

from deltawire._declarations import VERSION as __version__
from deltawire.channel import Channel
from deltawire.config import Config
from deltawire.counters import Counters, GroupCounters, LinkCounters
from deltawire.decoder import Decoded, Decoder
from deltawire.encoder import Encoder
from deltawire.errors import DeltawireError, Status
from deltawire.frame import (
    Entry,
    FrameInfo,
    ReplyEntry,
    ReplyInfo,
    bound,
    frame_info,
    frame_length,
    reply_bound,
    reply_info,
)
from deltawire.group import Group
from deltawire.link import Link
from deltawire.operation import Operation
from deltawire.profile import Profile
from deltawire.storage import Storage, StorageCounters
from deltawire.tensor import Tensor
from deltawire.threads import Threads
from deltawire.tls import Tls

__all__ = [
    "Channel",
    "Config",
    "Counters",
    "Decoded",
    "Decoder",
    "DeltawireError",
    "Encoder",
    "Entry",
    "FrameInfo",
    "Group",
    "GroupCounters",
    "Link",
    "LinkCounters",
    "Operation",
    "Profile",
    "ReplyEntry",
    "ReplyInfo",
    "Status",
    "Storage",
    "StorageCounters",
    "Tensor",
    "Threads",
    "Tls",
    "__version__",
    "bound",
    "frame_info",
    "frame_length",
    "reply_bound",
    "reply_info",
]
