#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# test_spec_decoder.py - tests the second decoder with frames that spec_encoder.py makes from
# docs/format.md.
"""usage: test_spec_decoder.py [--write]
Tries every role, form and use, with hostile payloads, and every reason for which a frame can be
refused, with the reply to it. --write writes golden_page/ again: the shorter tests as golden files,
for all decoders. They contain frames that our encoder does not make. golden.py shows that they
detect each deliberate error of spec_decoder.py.
"""

import json
import pathlib
import random
import struct
import sys
from fractions import Fraction

import entropy_scripts
import sparse_scripts
import spec_decoder
import trellis_scripts
from spec_encoder import (
    BF16,
    BRIEF,
    CHANNEL,
    DELTA,
    DITHER,
    E2M1,
    E2M3,
    E3M2,
    E4M3,
    E5M2,
    ELEMENT_BITS,
    ELEMENTS,
    F16,
    F32,
    INT8,
    KEY,
    KEY_STEP,
    POISONED,
    ROW,
    SAMPLE,
    SKIP,
    STATELESS,
    STEPS,
    SYNC,
    Dither,
    Payloads,
    Script,
    clamped,
    folded,
    single,
    state_digest,
    widen,
)
from spec_scripts import A, B, D, add_entry, both, fields, of_entry, row, rows

LONGEST_WRITTEN = 60000  # bytes of a golden file
USUAL = {"bits": 4, "group": 32, "key": 8, "prev": F32, "choose": 1, "audit": 1}
USUAL_MX = {"key": 64 + INT8, "prev": F32, "choose": 1, "audit": 1, "form": 3, "element": E2M1}
USUAL_STEP = {"group": SAMPLE, "key": KEY_STEP, "prev": F32, "audit": 1, "form": STEPS}


def script(codec="delta", shape=(2, 40), y=F32, calm=True, own=(), x=F32, seed=1, **more):
    usual = USUAL if codec == "delta" else {"bits": 4, "group": 32} if codec == "direct" else {}
    if more.get("form") == STEPS:
        usual = USUAL_STEP if codec == "delta" else {"group": SAMPLE}
    elif codec == "mx" or "form" in more:
        usual = USUAL_MX if codec == "delta" else {"element": E4M3}
    return Script(random.Random(seed), codec, {**usual, **more}, shape, y, x, own, calm)


# ------------------------------------------------------------------------------------------------
# Frames that are taken


def every_role(s):
    """All roles and uses of the codec delta, with payloads of any bits."""
    s.send((KEY, A), (KEY, B), (STATELESS, A), (STATELESS, A, BRIEF))
    s.send((DELTA, A), (DELTA, B), (STATELESS, D, BRIEF))
    s.send((SKIP, A), (DELTA, B))
    s.send((SYNC, A), (SKIP, B))
    s.send((DELTA, A), (DELTA, B))
    s.send((KEY, A), (SYNC, B))
    s.send((DELTA, A), (SKIP, B))
    s.send((SKIP, A), (DELTA, B))
    return s


def deltas():
    """Configs that meet every form, group, plane and dtype; the long ones meet cut rows."""
    groups = (16, 32, 64, 128, 256, ROW, CHANNEL)
    for number in range(24):
        more = {
            "bits": number % 8 + 1,
            "group": groups[number % 7],
            "key": (8, 2, 16, 5, 32, 3, 17, 7, 4, 6)[number % 10],
            "prev": (F32, BF16, F16)[number % 3],
            "choose": 1 + (number % 5 == 4),
            "audit": (1, 2, 255, 1, 3)[number % 5],
        }
        y = (BF16, F32, F16, F32)[number % 4]
        shape = ((3, 70), (1, 16), (5, 33), (9, 257), (2, 300))[number % 5]
        made = script("delta", shape, y, calm=False, seed=number, **more)
        yield f"delta_{number}", every_role(made)
    for number, group in enumerate((ROW, CHANNEL, 64)):
        more = {"bits": 3, "group": group, "prev": (BF16, F32, F16)[number], "audit": 3}
        made = script("delta", (3, 2100), calm=False, seed=number, **more)
        yield f"delta_long_{number}", every_role(made)


def others():
    for number in range(12):
        more = {"bits": number % 8 + 1, "group": (16, CHANNEL, ROW, 256, 64)[number % 5]}
        y = (F32, F16, BF16)[number % 3]
        shape = ((4, 50), (2, 2100), (1, 1))[number % 3]
        s = script("direct", shape, y, calm=False, seed=number, **more)
        s.send((STATELESS, A), (STATELESS, A), answer=0)
        yield f"direct_{number}", s
    for number in range(9):
        y, dtype = (F32, F16, BF16)[number // 3], (F32, F16, BF16)[number % 3]
        s = script("raw", (3, 111), y, calm=False, seed=number, dtype=dtype)
        s.send((STATELESS, A), (STATELESS, B), answer=0)
        yield f"raw_{number}", s


def microscaled():
    """Every element as a value, as a change and as a key; shapes with short blocks, cut tiles."""
    shapes = ((3, 70), (1, 32), (5, 33), (9, 257), (2, 31))
    for number in range(12):
        y = (F32, F16, BF16)[number % 3]
        shape = ((4, 50), (2, 1100), (1, 1), (3, 64))[number % 4]
        s = script("mx", shape, y, calm=False, seed=number, element=number % 6 + 1)
        s.send((STATELESS, A), (STATELESS, A), answer=0)
        yield f"mx_{number}", s
    for number in range(12):
        more = {
            "form": 3,
            "element": number % 6 + 1,
            "key": (70, 16, 69, 65, 17, 66, 68, 67, 32)[number % 9],
            "prev": (F32, BF16, F16)[number % 3],
            "choose": 1 + (number % 5 == 4),
            "audit": (1, 2, 255, 1, 3)[number % 5],
        }
        y = (BF16, F32, F16, F32)[number % 4]
        made = script("delta", shapes[number % 5], y, calm=False, seed=number, **more)
        yield f"delta_mx_{number}", every_role(made)
    made = script("delta", (2, 2100), calm=False, form=3, element=E3M2, prev=BF16, audit=3)
    yield "delta_mx_long", every_role(made)


def in_steps():
    """Every group, with and without dither; rows that are cut, and short segments."""
    groups = (SAMPLE, 64, ROW, 16, SAMPLE, 128, 32, 256)
    for number in range(12):
        dither = {"rounding": DITHER} if number % 3 else {}
        y = (F32, F16, BF16)[number // 2 % 3]
        shape = ((4, 50), (2, 2100), (1, 1), (3, 64), (2, 97))[number % 5]
        more = {"form": STEPS, "group": groups[number % 8], **dither}
        s = script("direct", shape, y, calm=number % 4 == 3, seed=number, **more)
        s.seed = (2**64 - 1, 0, 5)[number % 3 if dither else 1]
        s.send((STATELESS, A), (STATELESS, D), answer=0)
        s.send((STATELESS, D), answer=0)
        yield f"direct_step_{number}", s
    for number in range(16):
        more = {
            "form": STEPS,
            "group": groups[number % 8],
            "key": (KEY_STEP, KEY_STEP, 16, KEY_STEP, 32, 17)[number % 6],
            "prev": (F32, BF16, F16)[number % 3],
            "audit": (1, 2, 255, 1, 3)[number % 5],
        }
        if number // 2 % 2 == 0:
            more["rounding"] = DITHER
        y = (BF16, F32, F16, F32)[number % 4]
        shape = ((3, 70), (1, 32), (5, 33), (2, 31), (9, 257))[number % 5]
        s = script("delta", shape, y, calm=number % 3 == 1, seed=number, **more)
        s.seed = number * 2**60 if "rounding" in more else 0
        yield f"delta_step_{number}", every_role(s)
    s = script("delta", (3, 2100), calm=False, form=STEPS, rounding=DITHER, prev=BF16, audit=3)
    yield "delta_step_long", every_role(s)


def every_step():
    """All codes, with dither, and steps from one end of bf16 to the other. Where the step is 1, the
    values are compared with fractions."""
    scales = (0x3F80, 0x0000, 0x8000, 0x0001, 0x0080, 0x3DCD, 0x7F7F, 0xBF80, 0x8001, 0x7F80)
    s = script("direct", (len(scales), 256), form=STEPS, group=ROW, rounding=DITHER)
    s.seed = 77
    make, frame = Payloads(s.random, s.T, s.C, F32), s.frame()
    dither = Dither(77, A, frame.sequence, frame.incarnation)
    codes = list(range(256)) * len(scales)
    made = make.stepped(ROW, None, False, dither, list(scales), codes)
    add_entry(s, frame, STATELESS, 4, made)
    for i in range(1, 256):
        exact = Fraction(i - 128) - Fraction(dither.z(i))
        assert Fraction(widen(made[1][i], F32)) == exact and abs(Fraction(dither.z(i))) < Fraction(
            1, 2
        )
    s.deliver(frame, answer=0)
    return s


def step_zeros():
    """Steps of 0 and -0, without and with dither, on a prev of -0 and of +0: signs of zeros."""
    for_all = []
    for dither in (False, True):
        s = script(shape=(4, 32), form=STEPS, group=32, key=17, prev=BF16)
        if dither:
            s.parameters["rounding"] = s.told["rounding"] = DITHER
            s.seed = 3
        key = s.frame((KEY, A))
        e = key.entries[0]
        zeros = [0x8000] * 64 + [0] * 64
        e.payload = struct.pack("<128H", *zeros)
        set_payload(key, e, zeros)
        s.deliver(key)
        change = s.frame()
        make = Payloads(s.random, 4, 32, F32, BF16)
        draws = Dither(3, A, change.sequence, change.incarnation) if dither else None
        scales, codes = [0, 0x8000, 0, 0x8000], [127, 128, 129, 0] * 32
        made = make.stepped(32, s.held[A][0], True, draws, scales, codes)
        add_entry(s, change, DELTA, 4, made)
        s.deliver(change)
        for_all.append(s)
    return for_all


def step_zeros_nearest():
    return step_zeros()[0]


def step_zeros_dither():
    return step_zeros()[1]


def own_step():
    """key=raw, and prev, with parameter 14 = 4; brief entries."""
    own = ("prev", "key")
    s = script(shape=(2, 40), own=own, x=F16, form=STEPS, rounding=DITHER, key=16, prev=F16)
    s.seed = 1
    s.send((KEY, A), (STATELESS, B, BRIEF))
    s.send((DELTA, A), (STATELESS, B))
    s.x = BF16
    s.parameters.update(key=17, prev=BF16)
    s.seed = 2  # a seed may change from frame to frame
    s.send((KEY, A))
    s.send((DELTA, A), (STATELESS, B, BRIEF))
    return s


def step_lives():
    """Two encoders with the same seed do not draw the same numbers."""
    s = script(shape=(1, 40), form=STEPS, rounding=DITHER)
    s.seed = 11
    s.send((KEY, A))
    s.send((DELTA, A))
    other = s.frame((KEY, A), incarnation=99, sequence=1)
    s.deliver(other)
    s.deliver(s.frame((DELTA, A), incarnation=99, sequence=2))
    return s


# Scales at both ends of E8M0, and some in between.
ENDS = (0, 1, 2, 20, 63, 126, 127, 128, 200, 239, 253, 254, POISONED)


def exactly(element, code):
    """The value of a code, computed from its fields as a fraction."""
    bits, name = ELEMENT_BITS[element], ELEMENTS[element]
    sign, magnitude = divmod(code, 2 ** (bits - 1))
    if element == INT8:
        return Fraction(magnitude - 128 * sign, 64)
    m = int(name[3])
    bias = {E4M3: 7, E5M2: 15, E3M2: 3, E2M3: 1, E2M1: 1}[element]
    exponent, fraction = divmod(magnitude, 2**m)
    value = (Fraction(exponent > 0) + Fraction(fraction, 2**m)) * Fraction(2) ** (
        max(exponent, 1) - bias
    )
    largest = {E4M3: 448, E5M2: 57344}.get(element, value)
    return (-1) ** sign * min(value, largest)


def every_code(element):
    """All codes with all scales of ENDS. The y of these scripts is compared with fractions."""
    codes = 2 ** ELEMENT_BITS[element]
    s = script("mx", (len(ENDS), codes), element=element)
    per_row = -(-codes // 32)
    own = [code % codes for _ in ENDS for code in range(32 * per_row)]
    scales = [scale for scale in ENDS for _ in range(per_row)]
    make = Payloads(s.random, s.T, s.C, F32)
    frame = s.frame()
    made = make.microscaled(element, False, None, False, scales, own)
    add_entry(s, frame, STATELESS, 3, made)
    largest = Fraction(widen(0x7F7FFFFF, F32))
    for i, bits in enumerate(made[1]):
        scale, code = ENDS[i // codes], i % codes
        value = exactly(element, code) * Fraction(2) ** (scale - 127)
        value = max(-largest, min(largest, value))
        if scale == POISONED:
            assert bits == 0x7FC00000
        else:  # r = +0 + value, which is never -0
            assert Fraction(widen(bits, F32)) == value and bits != 0x80000000, (element, code)
    s.deliver(frame, answer=0)
    return s


def every_int8():
    return every_code(INT8)


def every_e4m3():
    return every_code(E4M3)


def every_e5m2():
    return every_code(E5M2)


def every_e3m2():
    return every_code(E3M2)


def every_e2m3():
    return every_code(E2M3)


def every_e2m1():
    return every_code(E2M1)


def minus_zeros():
    """-0 + -0 is -0: prev is -0, and so are the elements. In a block that is coded directly the sum
    is +0. A poisoned block keeps -0, whatever its choice bit is."""
    s = script(shape=(1, 96), form=3, element=E2M1, key=17, prev=BF16)
    key = s.frame((KEY, A))
    e = key.entries[0]
    e.payload = struct.pack("<96H", *[0x8000] * 96)
    set_payload(key, e, [0x8000] * 96)
    s.deliver(key)
    change = s.frame((DELTA, A))
    e = change.entries[0]
    # The second block is direct, and so is the third, which is poisoned.
    front = b"\6".ljust(16, b"\0") + bytes((127, 127, POISONED)).ljust(16, b"\0")
    e.payload = front + b"\x88" * 48
    set_payload(change, e, [0x8000] * 32 + [0] * 32 + [0x8000] * 32)
    e.y[64:] = [0x7FC00000] * 32
    s.deliver(change)
    s.send((DELTA, A))
    return s


def adding():
    """Section 5, Adding: quantized, microscaled, in steps and floats, with and without state."""
    microscaled_ = {"form": 3, "element": E4M3, "key": 64 + E3M2, "prev": BF16}
    dithered = {"form": STEPS, "rounding": DITHER, "group": 32}
    configs = (microscaled_, {}, {"key": 16}, dithered)
    for number, more in enumerate(configs):
        s = script(shape=(2, 70), calm=False, seed=number, **more)
        for entries in (
            ((KEY, A), (STATELESS, A), (STATELESS, B, BRIEF)),
            ((DELTA, A), (STATELESS, B, BRIEF), (STATELESS, B)),
            ((SKIP, A), (SYNC, B), (STATELESS, B)),
        ):
            before = [clamped(single(s.random.gauss(0, 3)), F32) for _ in range(3 * 140)]
            odd = (0x7F7FFFFF, 0xFF800000, 0x80000000, 0x7F800000)[number]
            before[::9] = [odd] * 47
            s.send(*entries, adds=(0x3EAAAAAB, before))  # the factor is 1/3
        yield f"adding_{number}", s


def brief_mx():
    """A brief entry has the element `element` and no choice bits; a key entry has that in `key`."""
    s = script(shape=(2, 40), form=3, element=E3M2, key=64 + E2M1)
    s.send((KEY, A), (STATELESS, A), (STATELESS, B, BRIEF))
    s.send((DELTA, A), (STATELESS, B, BRIEF))
    s.send((SYNC, A), (STATELESS, D))
    return s


def own_mx():
    """key=raw, and prev, with parameter 14."""
    s = script(shape=(1, 33), own=("prev", "key"), x=F16, form=3, key=16, prev=F16)
    s.send((KEY, A))
    s.send((DELTA, A))
    s.x = BF16
    s.parameters.update(key=17, prev=BF16)
    s.send((KEY, A))
    s.send((DELTA, A))
    return s


def rounded_twice():
    """Exact sums just above a tie of bf16 that are, rounded to binary32, exactly on it."""
    s = script(shape=(1, 16), bits=8, group=16, key=32, prev=BF16, choose=2)
    key = s.frame((KEY, A))
    one = lambda n: [struct.unpack("<I", struct.pack("<f", n))[0]] * 16
    e = key.entries[0]
    e.payload = struct.pack("<16I", *one(2.0**-30))
    set_payload(key, e, [clamped(2.0**-30, BF16)] * 16)
    s.deliver(key)
    change = s.frame((DELTA, A))
    e = change.entries[0]
    e.payload = struct.pack("<H14x16B", 0x3DE8, *[128 + 9] * 16)  # 9 * 29 / 256
    r = single(2.0**-30 + 261 / 256)
    set_payload(change, e, [clamped(r, BF16)] * 16)
    s.deliver(change)
    return s


def set_payload(frame, e, prev):
    """Sets the digests, prev and y for a payload that was replaced; prev is bf16, y is f32."""
    e.payload_digest, e.prev = folded(e.payload), prev
    e.state_digest = state_digest(prev, BF16, 1, e.key, frame.sequence)
    e.y = [bits << 16 for bits in prev]


def padded():
    """Bytes after a frame are ignored, and may be another frame."""
    s = script()
    first = s.frame((KEY, A))
    s.deliver(first, data=first.bytes() + b"\x55" * 37)
    second = s.frame((DELTA, A), (KEY, B))
    third = s.frame((KEY, D))
    s.deliver(second, data=second.bytes() + third.bytes())
    s.deliver(third, data=third.bytes() + bytes(16))
    return s


def own_dtypes():
    """Options that the config does not fix depend on the dtype of each frame's x."""
    s = script(own=("prev", "key"), x=F16, key=16, prev=F16)
    s.send((KEY, A))
    s.send((DELTA, A))
    s.x = BF16
    s.parameters.update(key=17, prev=BF16)
    base = s.frame((KEY, B))
    s.deliver(base)
    wrong = s.frame((DELTA, B))
    wrong.x = F16
    s.deliver(wrong, "MISMATCH", 2)
    s.send((DELTA, B))
    change = s.frame((DELTA, B))
    change.entries.append(s.entry(change, DELTA, A, None, ([0] * 80, *s.held[A][1:])))
    s.deliver(change, "BASE", 2)  # the prev of A is f16, not bf16
    s.send((KEY, A))
    return s


def own_raw():
    s = script("raw", (1, 9), x=F32, own=("dtype",), dtype=F32)
    s.send((STATELESS, A), answer=0)
    s.x, s.parameters = BF16, {"dtype": BF16}
    s.send((STATELESS, A), answer=0)
    s.parameters = {"dtype": F32}
    s.deliver(s.frame((STATELESS, A)), "MISMATCH", 0)
    return s


# ------------------------------------------------------------------------------------------------
# Statuses that depend on the state


def skips():
    s = script(shape=(5, 440), audit=2, choose=2, group=256)
    s.send((KEY, A), (KEY, B))
    wrong = s.frame((SKIP, A))
    wrong.entries[0].base_chain ^= 1
    s.deliver(wrong, "BASE", 2)
    before = s.held[A]
    s.send((SKIP, A), (DELTA, B))
    s.deliver(s.frame((SKIP, A, 0, before)), "BASE", 2)
    s.deliver(s.frame((DELTA, A, 2, before)), "BASE", 2)
    again = s.send((SKIP, A))
    s.deliver(again, "STALE")
    rotten = s.frame((SKIP, A), (DELTA, B))
    rotten.entries[0].state_digest ^= 1
    s.deliver(rotten, "STATE", 2, gone=[A])
    s.send((DELTA, B))
    other = s.frame((SKIP, B))
    other.T, other.C = 10, 220
    s.deliver(other, "BASE", 2, shape=(1, 10, 220))
    s.deliver(s.frame((SKIP, B), incarnation=5, sequence=99), "BASE", 2)
    s.send((SKIP, B))
    return s


def order_of_statuses():
    s = script()
    first = s.send((KEY, A), (KEY, B))
    s.deliver(first, "STALE")
    s.deliver(s.frame((KEY, A), sequence=1), "STALE", 2)
    s.send((DELTA, A))
    mixed = s.frame((KEY, A), (DELTA, B), sequence=2)  # STALE, and a base that is not held
    mixed.entries[1].base_chain ^= 1
    s.deliver(mixed, "BASE", 2)
    damaged = s.frame((DELTA, A), (STATELESS, D))
    damaged.entries[1].payload_digest ^= 1
    s.deliver(damaged, "CORRUPT", 2)
    damaged.entries[0].base_chain ^= 1
    s.deliver(damaged, "BASE", 2)
    late = s.frame((KEY, A), sequence=1)
    late.entries[0].payload_digest ^= 1
    s.deliver(late, "STALE", 2)
    rotten = s.frame((DELTA, A), (DELTA, B), (KEY, D))
    for e in rotten.entries[::2]:
        e.state_digest ^= 2
    s.deliver(rotten, "STATE", 2, gone=[A])
    s.send((DELTA, B))
    doubled = s.frame((KEY, B), (DELTA, B, 2, ([0] * 80, 1)))
    s.deliver(doubled, "FORMAT", 2)
    s.deliver(s.frame((KEY, A), (KEY, A)), "FORMAT", 2)
    s.deliver(s.frame((KEY, D), (DELTA, B), (STATELESS, B)))
    resized = s.frame((KEY, A))
    resized.rows[2][2] = 5  # key: its payload would have another size
    s.deliver(resized, "FORMAT", 2)
    return s


def mismatches():
    s = script(choose=2)
    s.send((KEY, A))
    for name, value in (("bits", 4), ("key", 7), ("group", 16), ("prev", F16), ("choose", 1)):
        mine, s.parameters = s.parameters, {**s.parameters, name: value, "audit": 2}
        s.deliver(s.frame((KEY, A)), "MISMATCH", 2)
        s.deliver(s.frame((KEY, A)), "MISMATCH", 2, shape=(1, 4, 20))
        s.parameters = mine
    other = s.frame((KEY, A))
    other.rows[-1][2] = 7  # audit: the sizes are the same
    s.deliver(other, "MISMATCH", 2)
    s.codec, s.parameters = "direct", {"bits": 4, "group": 32}
    direct = s.frame((STATELESS, A))
    s.deliver(direct, "MISMATCH", 0)
    s.codec, s.parameters = "delta", mine
    s.deliver(s.frame((KEY, A)), "SHAPE", 2, shape=(1, 4, 20))
    s.deliver(s.frame((KEY, A)), "SHAPE", 2, shape=(2, 2, 40))
    s.deliver(s.frame((KEY, A), (KEY, A)), "SHAPE", 2, shape=(1, 2, 40))
    s.send((DELTA, A))
    return s


def lives():
    s = script()
    s.send((KEY, A), (KEY, B))
    stateless = s.frame((STATELESS, A), incarnation=50, sequence=1)
    s.deliver(stateless, answer=0)
    s.send((DELTA, A))
    for life in range(100, 117):
        old = s.frame((DELTA, A), (DELTA, B)) if life == 100 else None
        s.deliver(s.frame((KEY, A), incarnation=life, sequence=1), gone=[B] if old else ())
        if old:
            s.deliver(old, "STALE", 3)
    s.deliver(s.frame((KEY, A), incarnation=100, sequence=9), "STALE", 3)
    s.deliver(s.frame((KEY, A), incarnation=115, sequence=9), "STALE", 3)
    # 17 incarnations were replaced since, so the first one is forgotten.
    s.deliver(s.frame((KEY, B), sequence=1), gone=[A])
    return s


def forgets():
    s = script(shape=(1, 16))
    s.send((KEY, A), (KEY, B), (KEY, D))

    def telling(*keys, entries=(), **how):
        frame = s.frame(*entries, **how)
        frame.forgotten = [(*key, 0) for key in keys]
        return frame

    s.deliver(telling(A, A, (1, 1), entries=[(DELTA, B), (STATELESS, A)]), gone=[A])
    s.deliver(telling(D, entries=[(STATELESS, A)], incarnation=6, sequence=50))
    s.deliver(telling(D, entries=[(STATELESS, A)], sequence=1))
    s.deliver(telling(B, entries=[(DELTA, B)]), "FORMAT", 2)
    s.deliver(telling(D, entries=[(STATELESS, A)]), gone=[D])
    odd = telling(D, entries=[(STATELESS, A)])
    odd.forgotten[0] = (*D, 1)
    s.deliver(odd, "FORMAT", 0)
    quiet = telling(B, entries=[(STATELESS, A)])
    quiet.flags = 0
    s.deliver(quiet, answer=0, gone=[B])
    return s


def replies():
    s = script()
    quiet = s.frame((KEY, A))
    quiet.flags = 0
    s.deliver(quiet, answer=0)
    change = s.frame((DELTA, A))
    whole = change.bytes()
    for cut, answer in ((1, 2), (len(change.entries[0].payload), 2)):
        s.deliver(change, "FORMAT", answer, data=whole[:-cut])
    end = len(whole) - len(change.entries[0].payload)
    for cut in (0, 1, 79, 80, end - 1):
        s.deliver(change, "FORMAT", 0, data=whole[:cut])
    s.deliver(change)
    s.deliver(change, "FORMAT", 1, data=whole[:-1])  # truncated, but its result is held
    damaged = bytearray(whole)
    damaged[-1] ^= 1
    s.deliver(change, "STALE", 1, data=bytes(damaged))
    return s


# ------------------------------------------------------------------------------------------------
# Invalid frames: (what is changed, status, answer)


def lengthen(by):
    """Changes only the length, so that only its limits can show the error."""
    return lambda frame: setattr(frame, "length", len(frame.bytes()) + by)


def longer_payload(frame):
    e = frame.entries[1]
    e.payload += bytes(16)
    e.payload_bytes += 16
    e.payload_digest = folded(e.payload)


def empty(frame):
    e = frame.entries[1]
    e.payload, e.payload_bytes = b"", 0


def unordered(rows_):
    return rows_[1::-1] + rows_[2:]


# Changes of a frame with a key entry and a delta entry.
BAD = [
    (fields("magic", b"DWG1"), "FORMAT", 0),
    (fields("version", (1, 0)), "VERSION", 0),
    (fields("version", (2, 1)), "VERSION", 0),
    (fields("version", (3, 0)), "VERSION", 0),
    (fields("header_digest", 1), "CORRUPT", 0),
    (fields("table_digest", 1), "CORRUPT", 0),
    (both(fields("flags", 5), fields("table_digest", 1)), "FORMAT", 0),
    (fields("flags", 3), "FORMAT", 2),
    (fields("flags", 0x81), "FORMAT", 0),
    (fields("incarnation", 0), "FORMAT", 0),
    (fields("sequence", 0), "FORMAT", 0),
    (fields("N", 0), "FORMAT", 0),
    (fields("T", 0), "FORMAT", 0),
    (fields("C", 0), "FORMAT", 0),
    (both(fields("T", 2**32 - 1), fields("C", 2**32 - 1)), "FORMAT", 0),
    (fields("x", 0), "FORMAT", 0),
    (fields("x", 4), "FORMAT", 0),
    (fields("P", 33), "FORMAT", 0),
    (fields("N", 2**32 - 1), "FORMAT", 0),
    (fields("F", 2**32 - 1), "FORMAT", 0),
    *((fields("zero", bytes(i) + b"\1" + bytes(5 - i)), "FORMAT", 0) for i in range(6)),
    (lengthen(16), "FORMAT", 0),
    (lengthen(-16), "FORMAT", 0),
    (fields("length", 2**64 - 16), "FORMAT", 0),
    (both(fields("length", 2**40), fields("table_digest", 1)), "FORMAT", 0),
    (both(fields("length", 80), fields("table_digest", 1)), "FORMAT", 0),
    (fields("zeros_behind", bytes(8)), "CORRUPT", 0),  # the digest covers the zeros
    (fields("codec", 0), "FORMAT", 2),
    (fields("codec", 4), "FORMAT", 2),
    (fields("codec", 2), "FORMAT", 2),
    (both(fields("codec", 9), fields("table_digest", 1)), "CORRUPT", 0),
    (fields("seed", 1), "FORMAT", 2),
    (fields("seed", 2**63), "FORMAT", 2),
    (rows(unordered), "FORMAT", 2),
    (rows(lambda r: r[:-2] + r[-1:] + [[0, 0, 0]]), "FORMAT", 2),
    (rows(lambda r: r[:1] + r), "FORMAT", 2),
    (rows(lambda r: r[:-1]), "FORMAT", 2),
    (rows(lambda r: []), "FORMAT", 2),
    (rows(lambda r: r + [[12, 0, 0]]), "FORMAT", 2),
    (rows(lambda r: r[:2] + [[3, 0, 1]] + r[2:]), "FORMAT", 2),
    (rows(lambda r: r[:3] + [[7, 0, 1]] + r[3:]), "FORMAT", 2),
    *((row(i, 1, 1 << 7 * i % 8), "FORMAT", 2) for i in range(6)),
    (row(0, 2, 0), "FORMAT", 2),
    (row(0, 2, 9), "FORMAT", 2),
    (row(1, 2, 0), "FORMAT", 2),
    (row(1, 2, 48), "FORMAT", 2),
    (row(1, 2, 65533), "FORMAT", 2),
    (row(1, 2, 32 + (1 << 16)), "FORMAT", 2),
    (row(2, 2, 1), "FORMAT", 2),
    (row(2, 2, 9), "FORMAT", 2),
    (row(2, 2, 18), "FORMAT", 2),
    (row(2, 2, 8 + 256), "FORMAT", 2),
    (row(3, 2, 0), "FORMAT", 2),
    (row(3, 2, 4), "FORMAT", 2),
    (row(4, 2, 0), "FORMAT", 2),
    (row(4, 2, 3), "FORMAT", 2),
    (row(5, 2, 0), "FORMAT", 2),
    (row(5, 2, 256), "FORMAT", 2),
    (row(5, 2, 255), "FORMAT", 2),  # then entries must have no state digests
    (of_entry("role", 0), "FORMAT", 0),
    (of_entry("role", 6), "FORMAT", 0),
    (of_entry("role", SKIP), "FORMAT", 0),
    (of_entry("role", STATELESS), "FORMAT", 0),
    (of_entry("use", 0), "FORMAT", 0),
    (of_entry("use", 3), "FORMAT", 0),
    (of_entry("use", 5), "FORMAT", 0),
    (of_entry("form", 0), "FORMAT", 0),
    (of_entry("form", 1), "FORMAT", 2),
    (of_entry("form", 3), "FORMAT", 2),
    (of_entry("zero", 1), "FORMAT", 0),
    (of_entry("zero", 128), "FORMAT", 0),
    (of_entry("base_chain", 0), "FORMAT", 0),
    (of_entry("state_digest", 0), "FORMAT", 2),
    (of_entry("payload_digest", 0), "FORMAT", 0),
    (of_entry("payload_bytes", 8), "FORMAT", 0),
    (of_entry("payload_bytes", 2**64 - 16), "FORMAT", 0),
    (longer_payload, "FORMAT", 2),
    (empty, "FORMAT", 2),
    (both(of_entry("form", 0), empty), "FORMAT", 0),
    (lambda frame: setattr(frame.entries[0], "base_chain", 1), "FORMAT", 0),
]


def bad_fields():
    s = script(shape=(1, 24))
    s.send((KEY, A), (KEY, B))
    for change, status, answer in BAD:
        frame = s.frame((KEY, A), (DELTA, B))
        change(frame)
        s.deliver(frame, status, answer)
    s.send((DELTA, A), (DELTA, B))
    return s


def bad_skips():
    s = script()
    s.send((KEY, A))
    first = lambda field, value: lambda frame: setattr(frame.entries[0], field, value)

    def with_payload(frame):
        e = frame.entries[0]
        e.payload, e.payload_bytes = bytes(16), 16

    for change, answer in (
        (first("form", 1), 0),
        (first("use", 2), 0),
        (first("payload_digest", 1), 0),
        (first("base_chain", 0), 0),
        (with_payload, 0),
        (first("state_digest", 0), 2),
        (first("zero", 1), 0),
    ):
        frame = s.frame((SKIP, A))
        change(frame)
        s.deliver(frame, "FORMAT", answer)
    stateless = s.frame((STATELESS, A))
    stateless.entries[0].state_digest = 1
    s.deliver(stateless, "FORMAT", 0)
    s.send((SKIP, A))
    return s


def bad_lengths():
    """Tables whose last bytes are zeros, and sums of sizes."""
    s = script(shape=(1, 16), audit=255)
    s.send((KEY, A))
    frame = s.frame((DELTA, A))
    frame.entries[0].state_digest = 1
    s.deliver(frame, "FORMAT", 2)
    split = s.frame((KEY, A), (DELTA, A))
    split.entries[0].payload_bytes += 16
    s.deliver(split, "FORMAT", 0)
    split = s.frame((KEY, B), (DELTA, A))
    split.entries[0].payload_bytes += 16
    split.entries[1].payload_bytes -= 16
    s.deliver(split, "FORMAT", 2)
    behind = s.frame((DELTA, A))
    behind.length = len(behind.bytes()) + 16
    s.deliver(behind, "FORMAT", 0, data=behind.bytes() + bytes(16))
    s.send((DELTA, A))
    return s


def bad_zeros():
    """Raw has one parameter, so its tables end in eight zeros."""
    s = script("raw", (1, 5), dtype=F32)
    s.send((STATELESS, A), answer=0)
    frame = s.frame((STATELESS, A))
    frame.zeros_behind = bytes(7) + b"\1"
    s.deliver(frame, "FORMAT", 0)
    for role, use in ((STATELESS, BRIEF), (KEY, 1), (SYNC, 4), (SKIP, 0)):
        frame = s.frame((STATELESS, A))
        e = frame.entries[0]
        e.role, e.use, e.base_chain = role, use, 1 if role == SKIP else 0
        frame.rows, frame.flags = [[7, 0, F32]], 0
        s.deliver(frame, "FORMAT", 0)
    frame = s.frame((STATELESS, A))
    frame.forgotten = [(*A, 0)]
    s.deliver(frame, "FORMAT", 2)
    return s


# Changes of a microscaled frame with a key entry and a delta entry: parameters 6, 8, 9, 11, 14, 15.
BAD_MX = [
    (fields("codec", 4), "FORMAT", 2),
    (fields("codec", 2), "FORMAT", 2),
    (fields("seed", 1), "FORMAT", 2),
    (rows(lambda r: [[1, 0, 4]] + r), "FORMAT", 2),
    (rows(lambda r: [[2, 0, 32]] + r), "FORMAT", 2),
    (rows(lambda r: [[1, 0, 4], [2, 0, 32]] + r), "FORMAT", 2),
    (rows(lambda r: r[:-2] + r[-1:]), "FORMAT", 2),  # an element without a form
    (rows(lambda r: [[1, 0, 4], [2, 0, 32]] + r[:-2] + r[-1:]), "FORMAT", 2),
    (rows(lambda r: r[:-1]), "FORMAT", 2),  # a form without an element
    (rows(lambda r: r[:-2] + r[:-3:-1]), "FORMAT", 2),
    (rows(lambda r: r + [[16, 0, 1]]), "FORMAT", 2),
    (rows(lambda r: r[:-1] + [[14, 0, 3]] + r[-1:]), "FORMAT", 2),
    *((row(4, 2, value), "FORMAT", 2) for value in (0, 1, 2, 4, 3 + 256)),
    *((row(5, 2, value), "FORMAT", 2) for value in (0, 7, 65, 2 + 2**31)),
    *((row(0, 2, value), "FORMAT", 2) for value in (1, 2, 6, 8, 64, 71, 66 + 256)),
    (row(4, 1, 1), "FORMAT", 2),
    (row(5, 1, 128), "FORMAT", 2),
    (row(0, 2, 67), "MISMATCH", 2),  # the sizes are the same
    (row(5, 2, 3), "MISMATCH", 2),
    (row(5, 2, 6), "FORMAT", 2),  # the sizes differ
    (of_entry("form", 1), "FORMAT", 2),
    (of_entry("form", 2), "FORMAT", 2),
    (of_entry("form", 4), "FORMAT", 2),
    (longer_payload, "FORMAT", 2),
    (empty, "FORMAT", 2),
]


def bad_mx_fields():
    s = script(shape=(1, 24), form=3, element=E4M3, key=64 + E4M3)
    s.send((KEY, A), (KEY, B))
    for change, status, answer in BAD_MX:
        frame = s.frame((KEY, A), (DELTA, B))
        change(frame)
        s.deliver(frame, status, answer)
    s.send((DELTA, A), (DELTA, B))
    for value in (8, 2, 71):  # values of key for which no entry has the right size
        frame = s.frame((DELTA, A))
        frame.rows[0][2] = value
        s.deliver(frame, "FORMAT", 2)
    s.send((DELTA, A))
    return s


def bad_mx_alone():
    """The codec mx has one parameter, and only stateless entries of use 1."""
    s = script("mx", (2, 40), element=E5M2)
    s.send((STATELESS, A), answer=0)
    other = s.frame((STATELESS, A))
    other.rows[0][2] = E4M3
    s.deliver(other, "MISMATCH", 0)
    for change in (
        fields("codec", 1),
        fields("codec", 3),
        row(0, 0, 14),
        row(0, 0, 7),
        row(0, 2, 0),
        row(0, 2, 7),
        rows(lambda r: []),
        rows(lambda r: [[14, 0, 3]] + r),
        rows(lambda r: [[1, 0, 4]] + r),
        lambda frame: setattr(frame.entries[0], "form", 2),
        lambda frame: setattr(frame.entries[0], "use", BRIEF),
    ):
        frame = s.frame((STATELESS, A))
        change(frame)
        frame.flags = 0
        s.deliver(frame, "FORMAT", 0)
    return s


def mx_mismatches():
    """Frames with microscaled changes for a decoder of quantized ones, and others."""
    s = script(shape=(1, 32), key=32)
    s.send((KEY, A))
    mine, other = s.parameters, {**USUAL_MX, "key": 32}
    s.parameters = other
    s.deliver(s.frame((KEY, A)), "MISMATCH", 2)
    s.deliver(s.frame((DELTA, A)), "MISMATCH", 2)
    s.codec, s.parameters = "mx", {"element": E4M3}
    s.deliver(s.frame((STATELESS, A)), "MISMATCH", 0)
    s.codec, s.parameters = "delta", mine
    for value in (65, 70):  # key: such values need parameter 14, even if no entry uses them
        frame = s.frame((DELTA, A))
        frame.rows[2][2] = value
        s.deliver(frame, "FORMAT", 2)
    s.send((DELTA, A))
    return s


# Changes of a frame in steps with a key entry and a delta entry: parameters 2, 4, 6, 8, 11, 14.
BAD_STEP = [
    (fields("codec", 2), "FORMAT", 2),
    (fields("codec", 4), "FORMAT", 2),
    (rows(lambda r: [[1, 0, 8]] + r), "FORMAT", 2),
    (rows(lambda r: r[:4] + [[9, 0, 2]] + r[4:]), "FORMAT", 2),
    (rows(lambda r: r[:4] + [[9, 0, 1]] + r[4:]), "FORMAT", 2),
    (rows(lambda r: r + [[15, 0, 2]]), "FORMAT", 2),
    (rows(lambda r: r + [[16, 0, 1000]]), "FORMAT", 2),
    (rows(lambda r: r[1:]), "FORMAT", 2),  # no group
    (rows(lambda r: r[:-1]), "FORMAT", 2),  # no form
    (rows(lambda r: r[1::-1] + r[2:]), "FORMAT", 2),
    *((row(0, 2, value), "FORMAT", 2) for value in (0, 8, 65534, 65532, 65533 + 2**16)),
    *((row(1, 2, value), "FORMAT", 2) for value in (0, 1, 2, 4, 3 + 2**31)),
    *((row(2, 2, value), "FORMAT", 2) for value in (0, 2, 8, 64, 65, 70, 127, 129, 128 + 2**16)),
    *((row(5, 2, value), "FORMAT", 2) for value in (0, 1, 2, 3, 5, 4 + 256)),
    (row(1, 1, 1), "FORMAT", 2),
    (row(5, 1, 128), "FORMAT", 2),
    *((of_entry("form", form), "FORMAT", 2) for form in (1, 2, 3, 5)),
    (of_entry("form", 0), "FORMAT", 0),
    (row(0, 2, ROW), "MISMATCH", 2),  # the sizes are the same, for there is one row
    (row(4, 2, 7), "MISMATCH", 2),
    (both(fields("seed", 0), rows(lambda r: r[:1] + r[2:])), "MISMATCH", 2),  # no dither
    (rows(lambda r: r[:1] + r[2:]), "FORMAT", 2),  # a seed without dither
    (longer_payload, "FORMAT", 2),
    (empty, "FORMAT", 2),
]


def bad_step_fields():
    s = script(shape=(1, 8), form=STEPS, rounding=DITHER)
    s.seed = 5
    s.send((KEY, A), (KEY, B))
    for change, status, answer in BAD_STEP:
        frame = s.frame((KEY, A), (DELTA, B))
        change(frame)
        s.deliver(frame, status, answer)
    s.send((DELTA, A), (DELTA, B))
    for group in (CHANNEL, 65532):  # as large as with group = sample or whole rows
        frame = s.frame((DELTA, A))
        frame.rows[0][2] = group
        s.deliver(frame, "FORMAT", 2)
    for value in (2, 8, 65, 70):  # values of key for which no entry has a size
        frame = s.frame((DELTA, A))
        frame.rows[2][2] = value
        s.deliver(frame, "FORMAT", 2)
    s.send((DELTA, A))
    return s


def bad_step_alone():
    """The codec direct has the parameters 2, perhaps 4, and 14."""
    s = script("direct", (2, 40), form=STEPS)
    s.send((STATELESS, A), answer=0)
    for change in (
        fields("codec", 1),
        fields("codec", 3),
        fields("seed", 1),
        row(0, 2, CHANNEL),
        row(1, 2, 3),
        row(1, 2, 2),
        row(1, 0, 15),
        rows(lambda r: r[1:]),
        rows(lambda r: [[1, 0, 8]] + r),
        rows(lambda r: r[:1] + [[6, 0, KEY_STEP]] + r[1:]),
        rows(lambda r: r[:1] + [[4, 0, 1]] + r[1:]),
        rows(lambda r: [[14, 0, 3], [15, 0, 2]]),
        lambda frame: setattr(frame.entries[0], "form", 2),
        lambda frame: setattr(frame.entries[0], "use", BRIEF),
    ):
        frame = s.frame((STATELESS, A))
        change(frame)
        frame.flags = 0
        s.deliver(frame, "FORMAT", 0)
    dithered = s.frame((STATELESS, A))
    dithered.rows.insert(1, [4, 0, DITHER])
    s.deliver(dithered, "MISMATCH", 0)
    dithered.seed = 1
    s.deliver(dithered, "MISMATCH", 0)
    s.send((STATELESS, A), answer=0)
    # Microscaled values are the codec mx, not the form 3 of direct.
    s.parameters = {"element": E4M3}
    frame = s.frame((STATELESS, A))
    frame.rows.insert(0, [14, 0, 3])
    s.deliver(frame, "FORMAT", 0)
    return s


def step_mismatches():
    """Frames in steps for a decoder of quantized changes; parameters that need 14 = 4."""
    s = script(shape=(1, 32), group=32, key=32, choose=2, bits=8)
    s.send((KEY, A))
    mine, other = s.parameters, {**USUAL_STEP, "key": 32}
    s.parameters = other
    s.deliver(s.frame((KEY, A)), "MISMATCH", 2)
    s.deliver(s.frame((DELTA, A)), "MISMATCH", 2)
    s.codec, s.parameters = "direct", {"group": 32, "form": STEPS}
    s.deliver(s.frame((STATELESS, A)), "MISMATCH", 0)
    s.codec, s.parameters = "delta", mine
    frame = s.frame((KEY, A))
    frame.rows.insert(2, [4, 0, DITHER])
    s.deliver(frame, "FORMAT", 2)
    for place, value in ((2, KEY_STEP), (1, SAMPLE)):
        frame = s.frame((KEY, A))
        frame.rows[place][2] = value
        s.deliver(frame, "FORMAT", 2)
    frame = s.frame((DELTA, A))
    frame.rows[2][2] = KEY_STEP
    s.deliver(frame, "FORMAT", 2)
    s.send((DELTA, A))
    return s


# ------------------------------------------------------------------------------------------------

ALONE = (
    every_step,
    step_zeros_nearest,
    step_zeros_dither,
    own_step,
    step_lives,
    bad_step_fields,
    bad_step_alone,
    step_mismatches,
    every_int8,
    every_e4m3,
    every_e5m2,
    every_e3m2,
    every_e2m3,
    every_e2m1,
    minus_zeros,
    brief_mx,
    own_mx,
    bad_mx_fields,
    bad_mx_alone,
    mx_mismatches,
    rounded_twice,
    padded,
    own_dtypes,
    own_raw,
    skips,
    order_of_statuses,
    mismatches,
    lives,
    forgets,
    replies,
    bad_fields,
    bad_skips,
    bad_lengths,
    bad_zeros,
    *entropy_scripts.ALONE,
    *sparse_scripts.ALONE,
    *trellis_scripts.ALONE,
)


def all_scripts():
    made = {make.__name__: make() for make in ALONE}
    made.update(deltas())
    made.update(others())
    made.update(microscaled())
    made.update(in_steps())
    made.update(adding())
    made.update(entropy_scripts.random_scripts())
    made.update(sparse_scripts.random_scripts())
    made.update(sparse_scripts.microscaled_scripts())
    made.update(entropy_scripts.long_scripts())
    made.update(trellis_scripts.trellis_scripts())
    return {name: s.golden() for name, s in made.items()}


def check_adding():
    """Section 5, Adding, of one delta: two roundings in binary32, and then one to y's dtype."""
    failures = 0
    for y, more in (
        (y, more) for y in (F32, F16, BF16) for more in ({}, {"form": 3}, {"form": STEPS})
    ):
        s = script(shape=(2, 40), y=y, prev=BF16, **more)
        first, second = s.send((KEY, A)), s.send((DELTA, A))
        decoder = spec_decoder.Decoder("delta", s.parameters)
        decoder.decode(first.bytes(), 1, 2, 40, {F32: "f32", F16: "f16", BF16: "bf16"}[y])
        before = [clamped(single(s.random.gauss(0, 3)), y) for _ in range(80)]
        factor = 0x3EAAAAAB  # 1/3
        _, got = decoder.decode(
            second.bytes(), 1, 2, 40, {1: "f32", 2: "f16", 3: "bf16"}[y], (factor, before)
        )
        values = [widen(bits, BF16) for bits in second.entries[0].prev]
        wanted = [
            clamped(single(widen(b, y) + single(widen(factor, F32) * value)), y)
            for b, value in zip(before, values)
        ]
        failures += got != wanted
    return failures + check_adding_blocks()


def check_adding_blocks():
    """Stateless blocks: a poisoned one, and products that overflow binary32 and are clamped."""
    s = script("mx", (1, 64), element=E4M3)
    frame, codes = s.frame(), [0x38, 0xC0] * 32  # 1 and -2
    make = Payloads(s.random, 1, 64, F32)
    made = make.microscaled(E4M3, False, None, False, [254, POISONED], codes)
    add_entry(s, frame, STATELESS, 3, made)
    decoder = spec_decoder.Decoder("mx", s.parameters)
    one, half = 0x3F800000, 0x3F000000
    _, got = decoder.decode(frame.bytes(), 1, 1, 64, "f32", (half, [one] * 64))
    # 2^126, and minus half of the largest number; the 1 vanishes in both sums
    return got != [0x7E800000, 0xFEFFFFFF] * 16 + [0x7FC00000] * 32


def write(scripts):
    """Writes the scripts of ALONE, and the shorter ones of the others."""
    directory = pathlib.Path(__file__).resolve().parent / "golden_page"
    directory.mkdir(exist_ok=True)
    for name, golden in scripts.items():
        steps = ",\n".join(json.dumps(step) for step in golden.pop("steps"))
        text = json.dumps(golden)[:-1] + ', "steps": [\n' + steps + "\n]}\n"
        if name in [make.__name__ for make in ALONE] or len(text) <= LONGEST_WRITTEN:
            (directory / f"{name}.json").write_text(text, encoding="utf-8")


def main():
    scripts = all_scripts()
    if sys.argv[1:] == ["--write"]:
        write(scripts)
        return 0
    failures = check_adding()
    for name, golden in scripts.items():
        for what in spec_decoder.mismatches_of(golden):
            print(f"{name}: {what}")
            failures += 1
    steps = sum(len(golden["steps"]) for golden in scripts.values())
    print(f"{len(scripts)} scripts, {steps} frames: {failures} mismatches")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
