#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# spec_decoder.py - a second decoder, written from docs/format.md alone.
"""Decodes deltawire frames with Python integers only, and checks golden files (FILE.dwg) against itself.

Section numbers in comments are those of docs/format.md.  A finite float is the pair (negative, magnitude), the
magnitude an integer in units of 2^-149: every f32, f16 and bf16 value is a whole number of those, so sums and products
are exact and each rounding happens in one visible place, `Format.pack`.
"""

import argparse
import json
import struct
import sys
from collections import namedtuple

from xxh3 import xxh3_64 as H

MASK32 = 0xFFFFFFFF
MASK64 = 0xFFFFFFFFFFFFFFFF

RAW, DIRECT, KEY, KEY_RAW, DELTA, SYNC = 1, 2, 3, 4, 5, 6  # 1.2, kinds
STATEFUL = (KEY, KEY_RAW, DELTA, SYNC)
CODEC_DELTA, CODEC_DIRECT, CODEC_RAW = 1, 2, 3  # 1.1, codec
CODECS = {"delta": CODEC_DELTA, "direct": CODEC_DIRECT, "raw": CODEC_RAW}
FLAG_CHOICES, FLAG_REPLY = 1, 2  # 1.1, flags
WHOLE_ROW, CHANNEL = 65535, 65534  # 1.1, group
GROUPS = (16, 32, 64, 128, 256, WHOLE_ROW, CHANNEL)
TILE = 2048  # 3.2 and 4
REMEMBERED = 16  # 2 step 7: incarnations seen replaced

# Errors that can be switched on with --break, to show that the golden files catch them.
BREAKS = {
    "round-half-up": "ties round away from zero instead of to even (5)",
    "no-clamp": "RN lets a value that is too large become infinite (5, RN)",
    "clamp-raw": "kind RAW clamps as RN does (3.1)",
    "flush-subnormals": "results that are subnormal become zero (5)",
    "skip-binary32": "prev' is rounded from the exact sum, not from its binary32 (5 step 4)",
    "keep-minus-zero": "a code of value -0 on base +0 stays -0 (5 step 4)",
    "y-from-r": "y is rounded from r instead of from prev' (5 step 5)",
    "base-in-direct": "pieces whose choice bit is 1 add prev all the same (5 step 1)",
    "choices-reversed": "choice bits count from the highest bit of a byte (3.2)",
    "poison-clears": "a poisoned piece of a DELTA sets prev to +0 (5 step 2)",
    "poison-direct-clears": "only a poisoned piece that is coded directly sets prev to +0 (5 step 2)",
    "planes-swapped": "the planes lie in the opposite order (3.2)",
    "plane-bits-reversed": "a plane counts from the highest bit of a byte (3.2)",
    "payload-half": "every other pair of words is left out of the payload digest (4)",
    "one-bit-zero": "one bit has a zero level (5 step 3)",
    "channel-of-row": "scales per channel are taken by token (3.2)",
    "key-bits": "key entries take `bits` instead of `key` bits (1.2)",
    "tile-per-row": "no tile goes on into the next row (3.2)",
    "audit-all": "the state digest covers all tiles (4)",
    "audit-from-zero": "tiles with t mod audit = 0 are audited (4)",
    "no-state-check": "the state digest is not compared (2 step 9)",
    "keep-after-state": "a wrong state digest does not give up the copy (2 step 9)",
    "no-stale": "sequence is not compared (2 step 7)",
    "forget-replaced": "incarnations seen replaced are not remembered (2 step 7)",
    "keep-forgotten": "forgotten keys are not dropped (2 step 10)",
    "chain-without-base": "the chain leaves base_chain out (2)",
    "duplicate-nack": "a duplicate of an accepted frame is answered NACK (6)",
}
broken = set()


class Refused(Exception):
    """A frame or a reply failed a check; `status` is the word of section 2."""

    def __init__(self, status, why=""):
        super().__init__(f"{status}: {why}" if why else status)
        self.status = status


def need(condition, status, why=""):
    if not condition:
        raise Refused(status, why)


def up(n, m):
    return -(-n // m) * m


# ---------------------------------------------------------------------------------------------------------------------
# Floats: conventions, section 5 (Exactness) and 3.1

INFINITY = 1 << 400  # a magnitude larger than any sum of finite values


class Format:
    """One dtype: `digits` significant bits, smallest subnormal 2^(unit - 149)."""

    def __init__(self, name, code, form, size, digits, unit, largest, infinity, nan):
        self.name, self.code, self.form, self.size = name, code, form, size
        self.digits, self.unit = digits, unit
        self.sign = 1 << (8 * size - 1)
        self.infinity, self.nan = infinity, nan
        self.largest = self.unpack(largest)[1]

    def is_nan(self, bits):
        return bits & (self.sign - 1) > self.infinity

    def is_finite(self, bits):
        return bits & self.infinity != self.infinity

    def unpack(self, bits):
        """The exact value of finite bits, or an infinity of that sign."""
        magnitude = bits & (self.sign - 1)
        if magnitude >= self.infinity:
            return bool(bits & self.sign), INFINITY
        exponent = magnitude >> (self.digits - 1)
        fraction = magnitude & ((1 << (self.digits - 1)) - 1)
        if exponent:
            fraction += 1 << (self.digits - 1)
            exponent -= 1
        return bool(bits & self.sign), fraction << (exponent + self.unit)

    def pack(self, value):
        """IEEE: to nearest even once, subnormals kept, too large becomes infinite."""
        negative, magnitude = value
        drop = max(self.unit, magnitude.bit_length() - self.digits)
        # `drop - unit` is one less than the exponent field, and the leading bit of a normal result adds that one;
        # a carry out of the fraction moves on into the exponent in the same way.
        bits = ((drop - self.unit) << (self.digits - 1)) + round_shift(magnitude, drop)
        if "flush-subnormals" in broken and bits < 1 << (self.digits - 1):
            bits = 0
        return min(bits, self.infinity) | (self.sign if negative else 0)


def round_shift(magnitude, drop):
    """magnitude / 2^drop to an integer, ties to even."""
    if drop == 0:
        return magnitude
    kept, rest, half = magnitude >> drop, magnitude & ((1 << drop) - 1), 1 << (drop - 1)
    tie_goes_up = kept & 1 or "round-half-up" in broken
    return kept + (1 if rest > half or (rest == half and tie_goes_up) else 0)


F32 = Format("f32", 1, 32, 4, 24, 0, 0x7F7FFFFF, 0x7F800000, 0x7FC00000)
F16 = Format("f16", 2, 16, 2, 11, 125, 0x7BFF, 0x7C00, 0x7E00)
BF16 = Format("bf16", 3, 17, 2, 8, 16, 0x7F7F, 0x7F80, 0x7FC0)
FORMATS = (F32, F16, BF16)
BY_NAME = {f.name: f for f in FORMATS}
BY_CODE = {f.code: f for f in FORMATS}  # x, prev
BY_FORM = {f.form: f for f in FORMATS}  # key


def rn(fmt, value):
    """RN of section 5: clamp, then round."""
    negative, magnitude = value
    if "no-clamp" not in broken:
        magnitude = min(magnitude, fmt.largest)
    return fmt.pack((negative, magnitude))


def to_binary32(value):
    """Rounds once to binary32; overflow is an infinity."""
    if value[1].bit_length() <= F32.digits:
        return value
    return F32.unpack(F32.pack(value))


def add(a, b):
    """The binary32 sum of a finite binary32 and a binary32 (section 5 step 4)."""
    total = (-a[1] if a[0] else a[1]) + (-b[1] if b[0] else b[1])
    if total == 0:
        return a[0] and b[0] and a[1] == 0, 0  # x - x is +0; only -0 + -0 is -0
    exact = total < 0, abs(total)
    return exact if "skip-binary32" in broken else to_binary32(exact)


def scaled(steps, scale):
    """steps * scale in binary32: exact, or infinite (section 5 step 3).  The integer 0 counts as +0."""
    negative, magnitude = scale
    product = abs(steps) * magnitude
    return negative != (steps < 0), product if product <= F32.largest else INFINITY


def convert(source, target, bits):
    """Kind RAW (3.1): another dtype of the same value; no clamp."""
    if source is target:
        return bits
    if source.is_nan(bits):
        sign = target.sign if bits & source.sign else 0
        if target is F32:  # widening: exact, so the fraction stays, from the top
            return (
                sign
                | F32.infinity
                | (bits & ((1 << (source.digits - 1)) - 1)) << (F32.digits - source.digits)
            )
        return sign | target.nan
    return (rn if "clamp-raw" in broken else Format.pack)(target, source.unpack(bits))


def elements(data, fmt):
    """Little-endian bytes as a list of bit patterns."""
    return list(struct.unpack(f"<{len(data) // fmt.size}{'I' if fmt.size == 4 else 'H'}", data))


def to_bytes(bits, fmt):
    return struct.pack(f"<{len(bits)}{'I' if fmt.size == 4 else 'H'}", *bits)


# ---------------------------------------------------------------------------------------------------------------------
# Layout of quantized payloads: section 3.2

Piece = namedtuple(
    "Piece", "start w g"
)  # first element of the sample, channels, channels as stored


def cut_row(C, group):
    """(pieces of full width, their g, w of a shorter last piece or 0, its g) of one row."""
    whole_rows = group in (WHOLE_ROW, CHANNEL)
    if whole_rows and C <= TILE:
        return 1, up(C, 32), 0, 0
    width = TILE if whole_rows else group
    full, last = divmod(C, width)
    if not whole_rows:
        return full, width, last, width
    return full, width, last, up(last, 32)


def pieces_per_row(C, group):
    full, _, last, _ = cut_row(C, group)
    return full + (last > 0)


def row_pieces(C, group):
    full, g, last, last_g = cut_row(C, group)
    if full == 1 and last == 0:
        return [Piece(0, C, g)]
    return [Piece(i * g, g, g) for i in range(full)] + (
        [Piece(full * g, last, last_g)] if last else []
    )


def tile_bytes(scales, n, bits):
    return up(2 * scales, 16) + up(n * bits // 8, 16)


def scales_in_tile(segments, group):
    """With a scale per channel the scales lie in front of all tiles."""
    return 0 if group == CHANNEL else segments


def choice_bytes(pieces):
    return up(up(pieces, 8) // 8, 16)


def long_rows(C, group):
    return group in (WHOLE_ROW, CHANNEL) and C > TILE


def quantized_size(T, C, group, bits, choices):
    """Bytes of a quantized payload, without walking over its pieces: T and C may be anything here."""
    full, g, last, last_g = cut_row(C, group)
    segments = T * (full + (last > 0))
    head = front_bytes(T, C, group, choices)
    size = lambda count, n: tile_bytes(scales_in_tile(count, group), n, bits)
    if long_rows(C, group):
        return head + T * (full * size(1, g) + (size(1, last_g) if last else 0))
    per_tile = TILE // g
    tiles, rest = divmod(segments, per_tile)
    return head + tiles * size(per_tile, per_tile * g) + (size(rest, rest * g) if rest else 0)


def pieces_of(T, C, group):
    return C if group == CHANNEL else T * pieces_per_row(C, group)


def front_bytes(T, C, group, choices):
    """Choice bits, and the scales of channels."""
    return (choice_bytes(pieces_of(T, C, group)) if choices else 0) + (
        up(2 * C, 16) if group == CHANNEL else 0
    )


def payload_size(kind, T, C, bits, key, group, prev, choices):
    """Bytes of an entry's payload (section 3).  `prev` is a dtype code, `key` the header's byte."""
    if kind in (RAW, KEY_RAW, SYNC):
        fmt = BY_CODE[prev] if kind == SYNC else BY_FORM[key]
        return up(T * C * fmt.size, 16)
    return quantized_size(T, C, group, code_bits(kind, bits, key), choices and kind == DELTA)


def code_bits(kind, bits, key):
    """Kinds KEY and DIRECT of the codec delta take `key`; DELTA, and DIRECT of the codec direct (key 0), `bits`."""
    return bits if kind == DELTA or key == 0 or "key-bits" in broken else key


def tiles_of(T, C, group):
    """Lists of pieces, one list per tile, pieces in order through the rows."""
    row = row_pieces(C, group)
    pieces = [Piece(t * C + p.start, p.w, p.g) for t in range(T) for p in row]
    if long_rows(C, group):
        return [[p] for p in pieces]
    per_tile = TILE // row[0].g
    if "tile-per-row" in broken:
        per_tile = min(per_tile, len(row))
    return [pieces[i : i + per_tile] for i in range(0, len(pieces), per_tile)]


def planes_of(bits):
    """Widths of the planes, in order; the low bits of the code first."""
    widths = [p for p in (8, 4, 2, 1) if bits & p]
    return widths[::-1] if "planes-swapped" in broken else widths


def read_codes(data, n, bits):
    codes, at, shift = [0] * n, 0, 0
    for p in planes_of(bits):
        per_byte, mask = 8 // p, (1 << p) - 1
        for i in range(n):
            place = i % per_byte
            if "plane-bits-reversed" in broken:
                place = per_byte - 1 - place
            codes[i] |= (data[at + i // per_byte] >> (p * place) & mask) << shift
        at += n * p // 8
        shift += p
    return codes


def read_choices(data, pieces):
    flip = 7 if "choices-reversed" in broken else 0
    return [data[i // 8] >> (i % 8 ^ flip) & 1 for i in range(pieces)]


# ---------------------------------------------------------------------------------------------------------------------
# Frames: section 1, and steps 1 to 3 of section 2

HEADER = struct.Struct("<4sBBBBQQIIIBBBBHBBIQQQQ")
ENTRY = struct.Struct("<QIB3sQQQ")
FORGOTTEN = struct.Struct("<QII")
CHAIN = struct.Struct("<QQQIB3xQQIIBBBBH2x")

Header = namedtuple(
    "Header",
    "magic major minor codec flags incarnation sequence N T C x prev bits key group audit "
    "zero1 F payload_bytes zero2 table_digest header_digest",
)
Entry = namedtuple("Entry", "sample slice kind zero base_chain payload_digest state_digest")


def parse_header(frame):
    """Step 1."""
    need(len(frame) >= HEADER.size and frame[:4] == b"DWF1", "FORMAT", "no frame")
    h = Header._make(HEADER.unpack_from(frame))
    need((h.major, h.minor) == (1, 0), "VERSION")
    need(h.header_digest == H(frame[:72]), "CORRUPT", "header_digest")
    check_ranges(h)
    return h


def check_ranges(h):
    """1.1: the ranges of the fields."""
    delta, direct, raw = (h.codec == c for c in (CODEC_DELTA, CODEC_DIRECT, CODEC_RAW))
    key_floats = h.key in BY_FORM
    rules = {
        "codec": delta or direct or raw,
        "flags": h.flags <= 3 and (delta or not h.flags & FLAG_CHOICES),
        "incarnation": h.incarnation != 0,
        "sequence": h.sequence != 0,
        "N, T, C": min(h.N, h.T, h.C) >= 1 and h.N * h.T * h.C * 4 < 1 << 63,
        "x": h.x in BY_CODE,
        "prev": h.prev in BY_CODE if delta else h.prev == 0,
        "bits": h.bits == 0 if raw else 1 <= h.bits <= 8,
        "key": h.key == 0 if direct else key_floats or (delta and 2 <= h.key <= 8),
        "group": h.group == 0 if raw else h.group in GROUPS,
        "audit": delta or h.audit == 0,
        "F": delta or h.F == 0,
        "zero": h.zero1 == 0 and h.zero2 == 0,
    }
    for field, holds in rules.items():
        need(holds, "FORMAT", field)


def tables_end(h):
    return HEADER.size + up(ENTRY.size * h.N + FORGOTTEN.size * h.F, 16)


def parse_tables(frame, h):
    """Step 2, and of step 3 what concerns the tables."""
    need(len(frame) >= tables_end(h), "FORMAT", "shorter than its tables")
    tables = frame[HEADER.size : tables_end(h)]
    need(h.table_digest == H(tables), "CORRUPT", "table_digest")
    split, end = ENTRY.size * h.N, ENTRY.size * h.N + FORGOTTEN.size * h.F
    entries = [Entry._make(e) for e in ENTRY.iter_unpack(tables[:split])]
    forgotten = list(FORGOTTEN.iter_unpack(tables[split:end]))
    need(not any(tables[end:]), "FORMAT", "padding of the tables")
    for entry in entries:
        check_entry(h, entry)
    for _, _, zero in forgotten:
        need(zero == 0, "FORMAT", "zero field of a forgotten key")
    return entries, [key[:2] for key in forgotten]


def kinds_of(h):
    """1.2: the kinds that a codec knows."""
    if h.codec == CODEC_RAW:
        return (RAW,)
    if h.codec == CODEC_DIRECT:
        return (DIRECT,)
    return (RAW, KEY_RAW, DELTA, SYNC) if h.key in BY_FORM else (DIRECT, KEY, DELTA, SYNC)


def check_entry(h, e):
    need(e.kind in kinds_of(h), "FORMAT", "kind")
    need(not any(e.zero), "FORMAT", "zero field of an entry")
    need((e.kind == DELTA) == (e.base_chain != 0), "FORMAT", "base_chain")
    digested = e.kind in STATEFUL and h.audit >= 1
    need((e.state_digest != 0) == digested, "FORMAT", "state_digest")


def check_keys(entries, forgotten):
    """Step 6: entries with state are all of different keys, and none of them is forgotten."""
    keys = [(e.sample, e.slice) for e in entries if e.kind in STATEFUL]
    need(len(set(keys)) == len(keys), "FORMAT", "doubled key")
    need(not set(keys) & set(forgotten), "FORMAT", "forgotten key with an entry")


def parse_payloads(frame, h, entries):
    """Step 3: where the payloads lie."""
    choices = bool(h.flags & FLAG_CHOICES)
    size_of = {
        k: payload_size(k, h.T, h.C, h.bits, h.key, h.group, h.prev, choices) for k in kinds_of(h)
    }
    total = sum(size_of[e.kind] for e in entries)
    need(h.payload_bytes == total, "FORMAT", "payload_bytes")
    need(len(frame) == tables_end(h) + total, "FORMAT", "length")
    payloads, at = [], tables_end(h)
    for e in entries:
        payloads.append(frame[at : at + size_of[e.kind]])
        at += size_of[e.kind]
    return payloads


def chain_of(h, e):
    """Section 2."""
    base_chain = 0 if "chain-without-base" in broken else e.base_chain
    return (
        H(
            CHAIN.pack(
                base_chain,
                h.incarnation,
                e.sample,
                e.slice,
                e.kind,
                h.sequence,
                e.payload_digest,
                h.T,
                h.C,
                h.prev,
                h.bits,
                h.key,
                h.flags & FLAG_CHOICES,
                h.group,
            )
        )
        or 1
    )


def digest(words, wanted):
    """Section 4: the sum over the pairs that are wanted."""
    K, S = 0x9E3779B1, 0
    for i in range((len(words) + 1) // 2):
        if wanted(i):
            first, second = words[2 * i], words[2 * i + 1] if 2 * i + 1 < len(words) else 0
            S += (first + K * (2 * i + 1) & MASK32) * (second + K * (2 * i + 2) & MASK32)
    S &= MASK64
    S ^= S >> 33
    S = S * 0xC2B2AE3D27D4EB4F & MASK64
    S ^= S >> 29
    S = S * 0x165667B19E3779F9 & MASK64
    S ^= S >> 32
    return S or 1


def state_digest(prev, fmt, audit, sequence):
    """Section 4.  `prev` are bit patterns."""
    words = prev if fmt.size == 4 else [a | b << 16 for a, b in zip(prev[::2], prev[1::2] + [0])]
    pairs_per_tile = TILE * fmt.size // 8
    wanted = 0 if "audit-from-zero" in broken else sequence % audit
    return digest(words, lambda i: "audit-all" in broken or i // pairs_per_tile % audit == wanted)


def payload_digest(payload):
    """Section 4: of all words of a payload."""
    return digest(elements(payload, F32), lambda i: "payload-half" not in broken or i % 2 == 0)


# ---------------------------------------------------------------------------------------------------------------------
# Reconstruction: sections 3.1 and 5


def decode_floats(payload, fmt, count, prev_fmt, y_fmt):
    """Kinds RAW (no prev), KEY_RAW and SYNC (3.1): y and prev'."""
    values = elements(payload[: count * fmt.size], fmt)
    if prev_fmt is None:
        return [convert(fmt, y_fmt, bits) for bits in values], None
    finite = [fmt.is_finite(bits) for bits in values]
    prev = [rn(prev_fmt, fmt.unpack(bits)) if ok else 0 for bits, ok in zip(values, finite)]
    y = [rn(y_fmt, prev_fmt.unpack(bits)) if ok else y_fmt.nan for bits, ok in zip(prev, finite)]
    return y, prev


def decode_quantized(payload, h, kind, held, prev_fmt, y_fmt):
    """Kinds DIRECT (no prev), KEY and DELTA (3.2): y and prev'.  `held` is the base of a DELTA, else None."""
    bits = code_bits(kind, h.bits, h.key)
    y = [0] * (h.T * h.C)
    prev = None if prev_fmt is None else list(held) if held is not None else [0] * (h.T * h.C)
    at, number, choices = 0, 0, None
    if kind == DELTA and h.flags & FLAG_CHOICES:
        pieces = pieces_of(h.T, h.C, h.group)
        choices, at = read_choices(payload, pieces), choice_bytes(pieces)
    if h.group == CHANNEL:
        by_channel = elements(payload[at : at + 2 * h.C], BF16)
        at += up(2 * h.C, 16)
    for tile in tiles_of(h.T, h.C, h.group):
        n = sum(segment.g for segment in tile)
        in_tile = scales_in_tile(len(tile), h.group)
        scales = elements(payload[at : at + 2 * in_tile], BF16)
        codes = read_codes(payload[at + up(2 * in_tile, 16) :], n, bits)
        at += tile_bytes(in_tile, n, bits)
        first = 0
        for place, segment in enumerate(tile):
            part = codes[first : first + segment.w]
            if h.group == CHANNEL:
                for i, code in enumerate(part, segment.start):
                    channel = i // h.C if "channel-of-row" in broken else i % h.C
                    direct = choices is not None and choices[channel] == 1
                    decode_piece(
                        Piece(i, 1, 1),
                        by_channel[channel],
                        [code],
                        bits,
                        held,
                        direct,
                        prev,
                        prev_fmt,
                        y,
                        y_fmt,
                    )
            else:
                direct = choices is not None and choices[number] == 1
                decode_piece(
                    segment, scales[place], part, bits, held, direct, prev, prev_fmt, y, y_fmt
                )
            first += segment.g
            number += 1
    return y, prev


def decode_piece(piece, scale, codes, bits, held, direct, prev, prev_fmt, y, y_fmt):
    """Section 5, Reconstruction, of one piece; `prev` begins as what was held, or +0, and becomes prev'."""
    if not BF16.is_finite(scale):  # step 2
        for i in range(piece.start, piece.start + piece.w):
            y[i] = y_fmt.nan
            if prev is not None and (
                "poison-clears" in broken or ("poison-direct-clears" in broken and direct)
            ):
                prev[i] = 0
        return
    with_base = held is not None and (not direct or "base-in-direct" in broken)
    s, middle = BF16.unpack(scale), 1 << (bits - 1)
    one_bit = bits == 1 and "one-bit-zero" not in broken
    value_of = {code: scaled(2 * code - 1 if one_bit else code - middle, s) for code in set(codes)}
    for i, code in enumerate(codes, piece.start):
        base = prev_fmt.unpack(held[i]) if with_base else (False, 0)  # step 1
        value = value_of[code]  # step 3
        r = add(base, value)  # step 4
        if "keep-minus-zero" in broken and not with_base:
            r = value
        result = r  # step 5
        if prev is not None:
            prev[i] = rn(prev_fmt, r)
            if "y-from-r" not in broken:
                result = prev_fmt.unpack(prev[i])
        y[i] = rn(y_fmt, result)


# ---------------------------------------------------------------------------------------------------------------------
# The decoder: section 2

Held = namedtuple("Held", "prev T C incarnation version chain digest")


class Decoder:
    def __init__(self, codec, bits=0, key=0, group=0, prev="f32", chooses=False, audit=0):
        """codec "delta", "direct" or "raw"; key 2..8, "f32", "f16" or "bf16"; group a number or "row" or "channel".

        Arguments that do not apply to the codec are ignored."""
        delta, raw = codec == "delta", codec == "raw"
        self.codec = CODECS[codec]
        self.bits = 0 if raw else bits
        self.key = 0 if codec == "direct" else BY_NAME[key].form if key in BY_NAME else key
        self.group = 0 if raw else {"row": WHOLE_ROW, "channel": CHANNEL}.get(group, group)
        self.prev_fmt = BY_NAME[prev] if delta else None
        self.chooses = bool(delta and chooses)
        self.audit = audit if delta else 0
        self.held = {}  # (sample, slice) -> Held
        self.incarnation = None  # of the last accepted frame with state
        self.replaced = []  # incarnations seen replaced, the latest last
        self.status = "OK"  # of the last frame

    def prev(self, sample, slice_):
        """What is held of a key, as bit patterns, or None."""
        held = self.held.get((sample, slice_))
        return None if held is None else list(held.prev)

    def decode(self, frame, n, t, c, y_dtype):
        """Returns (status, y): y the bit patterns of all entries, or None where the status is not OK."""
        try:
            y, self.status = self._decode(bytes(frame), (n, t, c), BY_NAME[y_dtype]), "OK"
        except Refused as refusal:
            y, self.status = None, refusal.status
        return self.status, y

    def _decode(self, frame, shape, y_fmt):
        h = parse_header(frame)  # step 1
        entries, forgotten = parse_tables(frame, h)  # steps 2 and 3
        payloads = parse_payloads(frame, h, entries)  # step 3
        self._check_configuration(h)  # step 4
        need((h.N, h.T, h.C) == shape, "SHAPE")  # step 5
        check_keys(entries, forgotten)  # step 6
        for e, payload in zip(entries, payloads):
            need(e.payload_digest == payload_digest(payload), "CORRUPT", "payload_digest")
        self._check_in_step(h, entries)  # step 7
        made = [self._reconstruct(h, e, p, y_fmt) for e, p in zip(entries, payloads)]  # step 8
        self._check_state(h, entries, [prev for _, prev in made])  # step 9
        self._commit(h, entries, [prev for _, prev in made], forgotten)  # step 10
        return [bits for y, _ in made for bits in y]

    def _check_configuration(self, h):
        prev = self.prev_fmt.code if self.prev_fmt else 0
        mine = self.codec, self.bits, self.key, self.group, prev, self.chooses, self.audit
        theirs = h.codec, h.bits, h.key, h.group, h.prev, bool(h.flags & FLAG_CHOICES), h.audit
        need(mine == theirs, "MISMATCH")

    def _check_in_step(self, h, entries):
        """Step 7: BASE goes before STALE."""
        found = [self._step_of(h, e) for e in entries if e.kind in STATEFUL]
        for status in ("BASE", "STALE"):
            need(status not in found, status)

    def _step_of(self, h, e):
        held = self.held.get((e.sample, e.slice))
        same = held is not None and held.incarnation == h.incarnation
        if "no-stale" not in broken and (
            h.incarnation in self.replaced or (same and h.sequence <= held.version)
        ):
            return "STALE"
        if e.kind == DELTA:
            dtype_and_shape = same and (held.T, held.C) == (h.T, h.C)
            return "OK" if dtype_and_shape and held.chain == e.base_chain else "BASE"
        return "OK"

    def _reconstruct(self, h, e, payload, y_fmt):
        prev_fmt = self.prev_fmt if e.kind in STATEFUL else None
        if e.kind in (RAW, KEY_RAW, SYNC):
            fmt = self.prev_fmt if e.kind == SYNC else BY_FORM[h.key]
            return decode_floats(payload, fmt, h.T * h.C, prev_fmt, y_fmt)
        held = self.held[e.sample, e.slice].prev if e.kind == DELTA else None
        return decode_quantized(payload, h, e.kind, held, prev_fmt, y_fmt)

    def _check_state(self, h, entries, prevs):
        """Step 9: every base whose delta has a wrong digest is given up."""
        wrong = [
            e
            for e, prev in zip(entries, prevs)
            if e.state_digest
            and e.state_digest != state_digest(prev, self.prev_fmt, h.audit, h.sequence)
        ]
        if "no-state-check" in broken:
            return
        if "keep-after-state" not in broken:
            for e in wrong:
                if e.kind == DELTA:
                    self.held.pop((e.sample, e.slice), None)
        need(not wrong, "STATE")

    def _commit(self, h, entries, prevs, forgotten):
        """Step 10."""
        for e, prev in zip(entries, prevs):
            if prev is None:
                continue
            self.held[e.sample, e.slice] = Held(
                prev, h.T, h.C, h.incarnation, h.sequence, chain_of(h, e), e.state_digest
            )
        for key in forgotten:
            held = self.held.get(key)
            older = (
                held is not None and held.incarnation == h.incarnation and held.version < h.sequence
            )
            if older and "keep-forgotten" not in broken:
                del self.held[key]
        if any(e.kind in STATEFUL for e in entries):
            self._follow(h.incarnation)

    def _follow(self, incarnation):
        """Step 7: an accepted frame with state of another incarnation replaces the one before."""
        before, self.incarnation = self.incarnation, incarnation
        if before != incarnation:
            self.held = {
                key: held for key, held in self.held.items() if held.incarnation == incarnation
            }
        if before not in (None, incarnation) and "forget-replaced" not in broken:
            self.replaced = (self.replaced + [before])[-REMEMBERED:]

    # Section 6, the decoder's side.

    def reply(self, frame):
        """The reply to a frame that has been given to decode(), or b"" where it gets none."""
        try:
            h = parse_header(bytes(frame))
            entries, forgotten = parse_tables(bytes(frame), h)
        except Refused:
            return b""
        entries = [e for e in entries if e.kind in STATEFUL]
        if not h.flags & FLAG_REPLY or not (entries or forgotten):
            return b""
        accepted = all(self._holds(h, e) for e in entries) if entries else self.status == "OK"
        if "duplicate-nack" in broken and self.status != "OK":
            accepted = False
        if not accepted:
            self._give_up_changed(entries)
        answer = ACK if accepted else REPLACED if h.incarnation in self.replaced else NACK
        return build_reply(answer, h.incarnation, h.sequence, [self._named(e) for e in entries])

    def _holds(self, h, e):
        held = self.held.get((e.sample, e.slice))
        return held is not None and held.chain == chain_of(h, e)

    def _give_up_changed(self, entries):
        for key in ((e.sample, e.slice) for e in entries):
            held = self.held.get(key)
            if held is not None and held.digest:
                if held.digest != state_digest(held.prev, self.prev_fmt, self.audit, held.version):
                    del self.held[key]

    def _named(self, e):
        held = self.held.get((e.sample, e.slice))
        if held is None:
            return ReplyEntry(e.sample, e.slice, 0, 0, 0, 0)
        return ReplyEntry(e.sample, e.slice, 1, held.incarnation, held.version, held.chain)


# ---------------------------------------------------------------------------------------------------------------------
# Replies: section 6

REPLY = struct.Struct("<4sBBBBQQIIQQ")
REPLY_ENTRY = struct.Struct("<QIB3sQQQ")
ACK, NACK, REPLACED = 1, 2, 3

ReplyEntry = namedtuple("ReplyEntry", "sample slice held incarnation version chain")
Reply = namedtuple("Reply", "answer incarnation sequence entries")


def build_reply(answer, incarnation, sequence, entries):
    table = b"".join(
        REPLY_ENTRY.pack(e.sample, e.slice, e.held, bytes(3), e.incarnation, e.version, e.chain)
        for e in entries
    )
    head = REPLY.pack(b"DWR1", 1, 0, answer, 0, incarnation, sequence, len(entries), 0, H(table), 0)
    return head[:40] + struct.pack("<Q", H(head[:40])) + table


def parse_reply(reply):
    """A Reply; raises Refused.  The checks go in the order of those of a frame."""
    need(len(reply) >= REPLY.size and reply[:4] == b"DWR1", "FORMAT", "no reply")
    _, major, minor, answer, zero1, incarnation, sequence, N, zero2, table_digest, digest = (
        REPLY.unpack_from(reply)
    )
    need((major, minor) == (1, 0), "VERSION")
    need(digest == H(reply[:40]), "CORRUPT", "header_digest")
    need(
        answer in (ACK, NACK, REPLACED) and zero1 == zero2 == 0 and incarnation and sequence,
        "FORMAT",
        "a field's range",
    )
    need(len(reply) == REPLY.size + REPLY_ENTRY.size * N, "FORMAT", "length")
    table = reply[REPLY.size :]
    need(table_digest == H(table), "CORRUPT", "table_digest")
    return Reply(
        answer,
        incarnation,
        sequence,
        [parse_reply_entry(e) for e in REPLY_ENTRY.iter_unpack(table)],
    )


def parse_reply_entry(fields):
    sample, slice_, held, zero, incarnation, version, chain = fields
    need(held in (0, 1) and not any(zero), "FORMAT", "entry of a reply")
    need(held or incarnation == version == chain == 0, "FORMAT", "entry of a key that is not held")
    return ReplyEntry(sample, slice_, held, incarnation, version, chain)


# ---------------------------------------------------------------------------------------------------------------------
# Golden files


def check_step(decoder, step):
    """Yields what differs from the golden file."""
    frame = bytes.fromhex(step["frame"])
    y_fmt = BY_NAME[step["y_dtype"]]
    status, y = decoder.decode(frame, step["n"], step["t"], step["c"], step["y_dtype"])
    if status != step["status"]:
        yield f"status {status}, specified {step['status']}"
    elif status == "OK":
        yield from compare("y", y, elements(bytes.fromhex(step["y"]), y_fmt), y_fmt)
    yield from compare_reply(decoder.reply(frame), bytes.fromhex(step.get("reply") or ""))
    for wanted in step.get("prev") or []:
        name = f"prev of ({wanted['sample']}, {wanted['slice']})"
        fmt = decoder.prev_fmt
        bits = elements(bytes.fromhex(wanted["bits"] or ""), fmt)
        yield from compare(name, decoder.prev(wanted["sample"], wanted["slice"]) or [], bits, fmt)


def compare(name, got, wanted, fmt):
    if len(got) != len(wanted):
        yield f"{name}: {len(got)} elements, specified {len(wanted)}"
        return
    differ = [i for i in range(len(got)) if got[i] != wanted[i]]
    if differ:
        i, digits = differ[0], 2 * fmt.size
        yield (
            f"{name}: {len(differ)} of {len(got)} elements differ, the first at {i}: "
            f"{got[i]:0{digits}x}, specified {wanted[i]:0{digits}x}"
        )


def compare_reply(got, wanted):
    if got == wanted:
        return
    yield f"reply {describe_reply(got)}, specified {describe_reply(wanted)}"


def describe_reply(reply):
    if not reply:
        return "none"
    try:
        return str(parse_reply(reply))
    except Refused as refusal:
        return f"that is not valid ({refusal}) {reply.hex()}"


def check_file(path):
    """Prints every mismatch of one golden file; returns (steps, mismatches)."""
    with open(path, encoding="utf-8") as file:
        golden = json.load(file)
    names = ("codec", "bits", "key", "group", "prev", "chooses", "audit")
    decoder = Decoder(
        **{name: golden["config"][name] for name in names if golden["config"].get(name) is not None}
    )
    mismatches = 0
    for number, step in enumerate(golden["steps"]):
        try:
            differences = list(check_step(decoder, step))
        except IndexError:
            if not broken:
                raise
            differences = ["the broken decoder read past the end of a payload"]
        for what in differences:
            print(f"{path}: step {number}: {what}")
        mismatches += len(differences)
    return len(golden["steps"]), mismatches


def main():
    about = "Checks golden files with a decoder written from docs/format.md alone."
    listed = "\n".join(f"  {name:22}{what}" for name, what in BREAKS.items())
    parser = argparse.ArgumentParser(
        description=about,
        epilog=f"names for --break:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="*", metavar="FILE.dwg")
    parser.add_argument(
        "--break",
        dest="breaks",
        action="append",
        default=[],
        choices=list(BREAKS),
        metavar="NAME",
        help="decode with this error",
    )
    parser.add_argument(
        "--list-breaks", action="store_true", help="print the names for --break, one per line"
    )
    arguments = parser.parse_args()
    if arguments.list_breaks:
        print("\n".join(BREAKS))
        return 0
    if not arguments.files:
        parser.error("no files")
    broken.update(arguments.breaks)
    results = [check_file(path) for path in arguments.files]
    steps, mismatches = (sum(column) for column in zip(*results))
    if mismatches:
        print(f"{len(results)} files, {steps} steps: {mismatches} mismatches")
        return 1
    print(f"{len(results)} files, {steps} steps: all as specified")
    return 0


if __name__ == "__main__":
    sys.exit(main())
