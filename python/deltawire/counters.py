# SPDX-License-Identifier: Apache-2.0
# counters.py - counters of codecs and links: named tuples with the field names of the C headers.
from __future__ import annotations

import collections
from typing import Any

from deltawire._library import ffi


def _fields(struct: str) -> list[str]:
    return [name for name, _ in ffi.typeof(struct).fields if name != "struct_size"]


_Counters: Any = collections.namedtuple("_Counters", _fields("dw_counters"))  # type: ignore[misc]
_LinkCounters: Any = collections.namedtuple(  # type: ignore[misc]
    "_LinkCounters", _fields("dw_link_counters")
)
_GroupCounters: Any = collections.namedtuple(  # type: ignore[misc]
    "_GroupCounters", _fields("dw_group_counters")
)


class Counters(_Counters):
    """What an encoder or decoder has counted since it was made.

    frames, key_entries, delta_entries, stateless_entries, skipped_entries; raw_bytes,
    encoded_bytes; groups, direct_groups, zero_groups, poisoned_groups, clamped_values; acks, nacks,
    rebases, resyncs, rejected_frames; busy_ns (nanoseconds inside encode or decode). Current
    values: keys_held, state_bytes, slack_bytes. Encoders only: x_square, delta_square,
    error_square, sums of squares that are meaningful relative to each other. deltawire.h documents
    each field.
    """

    __slots__ = ()

    @property
    def ratio(self) -> float:
        """The compression ratio: bytes of tensors / bytes of frames; 0 before the first frame."""
        return self.raw_bytes / self.encoded_bytes if self.encoded_bytes else 0.0

    @property
    def hit_rate(self) -> float:
        """The fraction of the stateful entries that were coded as a change since the last visit, or
        skipped; 0 before the first one. It stays near 0 if ids do not recur."""
        hits = self.delta_entries + self.skipped_entries
        stateful = self.key_entries + hits
        return hits / stateful if stateful else 0.0


class LinkCounters(_LinkCounters):
    """What a link has counted since it was opened.

    messages_sent, messages_received; bytes_sent, bytes_received (on the wire); queued_bytes (the
    current value); recv_wait_ns, send_wait_ns, queue_ns, rtt_ns; kernel_bytes_sent,
    kernel_bytes_received; retransmits, resent_bytes, reconnects. transport.h documents each field.
    """

    __slots__ = ()


class GroupCounters(_GroupCounters):
    """What a group has counted on this rank since it was opened.

    started, finished (operations); raw_bytes, encoded_bytes (of the floats that were encoded, and
    of their frames); sent_bytes, received_bytes (of messages); poisoned (groups or blocks with NaN
    in results, the same on all ranks); repeated (messages sent again); codec_ns, wait_ns. Current
    values: slots, state_bytes. collective.h documents each field.
    """

    __slots__ = ()


def codec_counters(struct: Any) -> Counters:
    return Counters(*[getattr(struct, name) for name in Counters._fields])


def link_counters(struct: Any) -> LinkCounters:
    return LinkCounters(*[getattr(struct, name) for name in LinkCounters._fields])


def group_counters(struct: Any) -> GroupCounters:
    return GroupCounters(*[getattr(struct, name) for name in GroupCounters._fields])
