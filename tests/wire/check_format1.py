#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# check_format1.py - checks that payloads have the same bytes as in format 1.
"""usage: check_format1.py [DIR]

golden_format1/ contains the golden frames of format 1, golden/ (or DIR) those of today, made from
the same tensors by encoders with the same configs. Headers and tables differ, but every payload
must be the same, byte for byte, with two exceptions. In format 1 a scale could be so large that its
product with the outermost code was infinite; now it is smaller. Pieces near that range, and pieces
of changes to them, may differ; the rest of their payload may not. And poisoned pieces could be
direct; now they never are. docs/format.md, 3.2, says what a piece is.
"""

import json
import pathlib
import struct
import sys
from collections import namedtuple

import spec_decoder as layout

Frame = namedtuple("Frame", "codec T C group bits key chooses entries")
Entry = namedtuple("Entry", "sample slice role form bits choices payload")

STATELESS, KEY, DELTA, SYNC = 1, 2, 3, 5  # roles
FLOATS, QUANTIZED = 1, 2  # forms
KINDS = {  # kind of an entry in format 1: its role and form
    1: (STATELESS, FLOATS),
    2: (STATELESS, QUANTIZED),
    3: (KEY, QUANTIZED),
    4: (KEY, FLOATS),
    5: (DELTA, QUANTIZED),
    6: (SYNC, FLOATS),
}
SIZES = {1: 4, 2: 2, 3: 2, 32: 4, 16: 2, 17: 2}  # bytes of an element, by dtype and by value of key


class Differs(Exception):
    pass


def agree(what, old, new):
    if old != new:
        raise Differs(f"{what}: {old} in format 1, {new} now")


def up(n, m):
    return -(-n // m) * m


def read_old(frame):
    """A frame of format 1: a header of 80 bytes, entries of 40, sizes that follow from fields."""
    agree("version", (b"DWF1", 1, 0), struct.unpack_from("<4sBB", frame))
    codec, flags = frame[6], frame[7]
    N, T, C = struct.unpack_from("<III", frame, 24)
    prev, bits, key, group = struct.unpack_from("<BBBH", frame, 37)
    (F,) = struct.unpack_from("<I", frame, 44)
    at, entries = 80 + up(40 * N + 16 * F, 16), []
    for i in range(N):
        sample, slice_, kind = struct.unpack_from("<QIB", frame, 80 + 40 * i)
        role, form = KINDS[kind]
        choices = kind == 5 and flags & 1 == 1
        of_entry = bits if kind == 5 or codec == 2 else key
        if form == FLOATS:
            size = up(T * C * SIZES[prev if kind == 6 else key], 16)
        else:
            size = layout.quantized_size(T, C, group, of_entry, choices)
        payload = frame[at : at + size]
        entries.append(Entry(sample, slice_, role, form, of_entry, choices, payload))
        at += size
    agree("length", at, len(frame))
    return Frame(codec, T, C, group, bits, key, flags & 1 == 1, entries)


def read_new(frame):
    """A frame of format 2: a header of 80 bytes, P parameters of 8, entries of 48 with sizes."""
    if struct.unpack_from("<4sBB", frame) != (b"DWF1", 2, 0):
        raise Differs("the frame of today is not of format 2: write the golden files again")
    codec, P = frame[6], frame[41]
    N, T, C, F = struct.unpack_from("<IIII", frame, 24)
    (length,) = struct.unpack_from("<Q", frame, 48)
    rows = [struct.unpack_from("<B3xI", frame, 80 + 8 * i) for i in range(P)]
    value = dict(rows)
    bits, group, key = value.get(1, 0), value.get(2, 0), value.get(6, 0)
    if codec == 3:
        key = {1: 32, 2: 16, 3: 17}[value[7]]
    chooses = value.get(9) == 1
    at, entries = up(80 + 8 * P + 48 * N + 16 * F, 16), []
    for i in range(N):
        fields = struct.unpack_from("<QIBBBxQQ", frame, 80 + 8 * P + 48 * i)
        sample, slice_, role, form, use, _, size = fields
        of_entry = key if use == 1 and codec == 1 else bits
        choices = use == 2 and chooses
        payload = frame[at : at + size]
        entries.append(Entry(sample, slice_, role, form, of_entry, choices, payload))
        at += size
    agree("length", at, length)
    return Frame(codec, T, C, group, bits, key, chooses, entries)


def pieces_of(frame, entry):
    """[(choice, scale, codes)] of a quantized payload, with the codes of padding."""
    count = layout.pieces_of(frame.T, frame.C, frame.group)
    choices, at = [0] * count, 0
    if entry.choices:
        choices, at = layout.read_choices(entry.payload, count), layout.choice_bytes(count)
    scales, codes = [], [[] for _ in range(count)]
    columns = frame.group == layout.CHANNEL
    if columns:
        scales = struct.unpack_from(f"<{frame.C}H", entry.payload, at)
        at += up(2 * frame.C, 16)
    number = 0
    for tile in layout.tiles_of(frame.T, frame.C, frame.group):
        n, in_tile = sum(s.g for s in tile), 0 if columns else len(tile)
        scales += () if columns else struct.unpack_from(f"<{in_tile}H", entry.payload, at)
        elements = layout.read_codes(entry.payload[at + up(2 * in_tile, 16) :], n, entry.bits)
        at += layout.tile_bytes(in_tile, n, entry.bits)
        first = 0
        for segment in tile:
            part = elements[first : first + segment.g]
            first += segment.g
            if columns:
                for i in range(segment.w):
                    codes[(segment.start + i) % frame.C].append(part[i])
            else:
                codes[number] = part
            number += 1
    return list(zip(choices, scales, codes))


def is_near(scale, bits):
    """Whether an outermost code times a bf16 is at least 2^126. If a scale of format 1 is so large,
    the limit may have changed it, or one of the scales with which `mse` compared it."""
    exponent = scale >> 7 & 0xFF
    return exponent != 0xFF and exponent - 127 + bits - 1 >= 126


def is_poisoned(scale):
    return scale & 0x7F80 == 0x7F80


def compare_pieces(frame, old, new, touched):
    """The pieces of a key that may differ from now on. `touched`: those that could before."""
    now, chosen_otherwise = set(), False
    pairs = zip(pieces_of(frame, old), pieces_of(frame, new))
    for i, (before, after) in enumerate(pairs):
        direct = old.role != DELTA or before[0] == after[0] == 1
        if is_near(before[1], old.bits) or (i in touched and not direct):
            now.add(i)
        elif is_poisoned(before[1]) and (0, *before[1:]) == after:
            chosen_otherwise |= before != after
        elif before != after:
            raise Differs(f"piece {i} differs: scale {before[1]:04x}, now {after[1]:04x}")
        if i in touched and old.role == DELTA and is_poisoned(before[1]):
            now.add(i)  # a poisoned piece keeps prev, so it may still differ
    if old.payload != new.payload and not now and not chosen_otherwise:
        raise Differs("the payload differs between its pieces")
    return now


def compare_entries(frame, old, new, touched):
    """`touched`: {key: pieces whose prev may differ}."""
    for field in ("sample", "slice", "role", "form", "choices"):
        agree(field, getattr(old, field), getattr(new, field))
    agree("bytes of the payload", len(old.payload), len(new.payload))
    key = old.sample, old.slice
    before = touched.get(key, set()) if old.role == DELTA else set()
    after = set()
    if old.form == QUANTIZED and (old.payload != new.payload or before or has_near(frame, old)):
        after = compare_pieces(frame, old, new, before)
    elif old.payload != new.payload and not (old.role == SYNC and touched.get(key)):
        raise Differs("the floats of the payload differ")
    if old.role in (KEY, DELTA):
        touched[key] = after
    return len(after)


def has_near(frame, entry):
    return any(is_near(scale, entry.bits) for _, scale, _ in pieces_of(frame, entry))


def compare_files(old_path, new_path):
    """(number of entries, number of pieces that differ and may)."""
    old = json.loads(old_path.read_text(encoding="utf-8"))
    new = json.loads(new_path.read_text(encoding="utf-8"))
    agree("the encoder's config", old["encoder"], new["encoder"])
    agree("frames", len(old["frames"]), len(new["steps"]))
    touched, entries, passed = {}, 0, 0
    for number, (frame, step) in enumerate(zip(old["frames"], new["steps"])):
        before, after = read_old(bytes.fromhex(frame)), read_new(bytes.fromhex(step["frame"]))
        try:
            for field in Frame._fields[:-1]:
                agree(field, getattr(before, field), getattr(after, field))
            agree("entries", len(before.entries), len(after.entries))
            for i, (a, b) in enumerate(zip(before.entries, after.entries)):
                passed += compare_entries(before, a, b, touched)
                entries += 1
        except Differs as difference:
            raise Differs(f"frame {number}: {difference}") from None
    return entries, passed


def main():
    here = pathlib.Path(__file__).resolve().parent
    today = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "golden"
    entries = passed = failures = 0
    for path in sorted((here / "golden_format1").glob("*.json")):
        try:
            compared, let = compare_files(path, today / path.name)
            entries, passed = entries + compared, passed + let
        except (Differs, OSError) as difference:
            print(f"{path.name}: {difference}")
            failures += 1
    print(f"{entries} payloads compared; {passed} pieces near the largest scale may differ")
    if failures or not entries:
        sys.exit(f"{failures} files whose payloads are not those of format 1")


if __name__ == "__main__":
    main()
