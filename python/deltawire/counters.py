# SPDX-License-Identifier: Apache-2.0
# counters.py - counters of codecs and links: named tuples with the field names of the C headers.
from __future__ import annotations

from typing import Any, NamedTuple

# The fields are written out for type checkers; a test compares them with the headers.


class Counters(NamedTuple):
    """What an encoder or decoder has counted since it was made.

    frames, key_entries, delta_entries, stateless_entries, skipped_entries; raw_bytes,
    encoded_bytes; groups, direct_groups, zero_groups, poisoned_groups, escaped_values,
    overflowed_values; acks, nacks, rebases, resyncs, rejected_frames; busy_ns (nanoseconds inside
    encode or decode); lost_copies (which a Storage could not read); evicted_keys (forgotten for
    room); dropped_keys (of channels: the other end held something else of them). Current values:
    keys_held, state_bytes, slack_bytes. Encoders only: x_square, delta_square, error_square, sums
    of squares that are meaningful relative to each other; and measured_rows, row_error_sum,
    bulk_error_sum, row_error_largest, of which row_error and bulk_error are the means. deltawire.h
    documents each field.
    """

    frames: int
    key_entries: int
    delta_entries: int
    stateless_entries: int
    skipped_entries: int
    raw_bytes: int
    encoded_bytes: int
    groups: int
    direct_groups: int
    zero_groups: int
    poisoned_groups: int
    escaped_values: int
    overflowed_values: int
    acks: int
    nacks: int
    rebases: int
    resyncs: int
    rejected_frames: int
    keys_held: int
    state_bytes: int
    slack_bytes: int
    busy_ns: int
    x_square: float
    delta_square: float
    error_square: float
    measured_rows: int
    row_error_sum: float
    bulk_error_sum: float
    row_error_largest: float
    lost_copies: int
    evicted_keys: int
    dropped_keys: int

    @property
    def row_error(self) -> float:
        """The mean over measured rows of |x - y| / |x|, which a norm behind a boundary passes on; 0
        before the first one."""
        return self.row_error_sum / self.measured_rows if self.measured_rows else 0.0

    @property
    def bulk_error(self) -> float:
        """The same without the values of each row that are more than 6 times its root mean
        square."""
        return self.bulk_error_sum / self.measured_rows if self.measured_rows else 0.0

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


class LinkCounters(NamedTuple):
    """What a link has counted since it was opened.

    messages_sent, messages_received; bytes_sent, bytes_received (on the wire); queued_bytes,
    unsent_bytes (current values); recv_wait_ns, send_wait_ns, queue_ns, rtt_ns; kernel_bytes_sent,
    kernel_bytes_received; retransmits, resent_bytes, reconnects. transport.h documents each field.
    """

    messages_sent: int
    messages_received: int
    bytes_sent: int
    bytes_received: int
    queued_bytes: int
    recv_wait_ns: int
    send_wait_ns: int
    kernel_bytes_sent: int
    kernel_bytes_received: int
    queue_ns: int
    retransmits: int
    rtt_ns: int
    resent_bytes: int
    reconnects: int
    retry_ms: int
    unsent_bytes: int


class GroupCounters(NamedTuple):
    """What a group has counted on this rank since it was opened.

    started, finished (operations); raw_bytes, encoded_bytes (of the floats that were encoded, and
    of their frames); sent_bytes, received_bytes (of messages); poisoned (groups or blocks with NaN
    in results, the same on all ranks); repeated (messages sent again); codec_ns, wait_ns. Current
    values: slots, state_bytes. collective.h documents each field.
    """

    started: int
    finished: int
    raw_bytes: int
    encoded_bytes: int
    sent_bytes: int
    received_bytes: int
    poisoned: int
    repeated: int
    slots: int
    state_bytes: int
    codec_ns: int
    wait_ns: int


def codec_counters(struct: Any) -> Counters:
    return Counters(*[getattr(struct, name) for name in Counters._fields])


def link_counters(struct: Any) -> LinkCounters:
    return LinkCounters(*[getattr(struct, name) for name in LinkCounters._fields])


def group_counters(struct: Any) -> GroupCounters:
    return GroupCounters(*[getattr(struct, name) for name in GroupCounters._fields])
