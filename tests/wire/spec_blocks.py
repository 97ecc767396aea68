# SPDX-License-Identifier: Apache-2.0
# spec_blocks.py - codebooks and the layout of payloads in blocks, written from docs/format.md,
# 3.13, alone.
"""Functions get `broken`, a set of names from BREAKS: the deliberate errors that they have to make,
with which golden.py shows that the golden files detect each of them. Section numbers are those of
docs/format.md."""

import struct
from collections import namedtuple
from fractions import Fraction

DYNAMIC, LINEAR, QUANTILE = 1, 2, 3  # 1.2, codebook
LENGTHS = tuple(1 << i for i in range(6, 17))  # 1.2, block
ENTRIES = 256

BREAKS = {
    "blocks-linear-128": "entry c of linear is (c - 128) / 128 (3.13)",
    "blocks-linear-two": "codes of linear are in two's complement (3.13)",
    "blocks-dynamic-128": "entry 128 of dynamic is 0 (3.13)",
    "blocks-dynamic-decades": "the decades of dynamic begin one power of ten lower (3.13)",
    "blocks-dynamic-even": "every decade of dynamic has as many entries (3.13)",
    "blocks-dynamic-short": "entries of dynamic have 16 significant bits (3.13)",
    "blocks-rows": "a block ends with its row (3.13)",
    "blocks-beside": "each scale lies in front of the codes of its block (3.13)",
    "blocks-half": "a scale is a bf16 (3.13)",
    "blocks-negative": "scales are taken without their signs (3.13)",
    "blocks-minus-zero": "a value of -0 stays -0 (5 step 4)",
    "blocks-poison-all": "a poisoned block poisons the sample (5 step 2)",
    "blocks-infinite": "an infinite scale or entry does not poison (5 step 2)",
    "blocks-fitted-256": "a fitted codebook always has 256 entries (3.13)",
    "blocks-fitted-n": "a fitted codebook has n entries, and zeros behind them (3.13)",
    "blocks-fitted-zero": "entries that are not sent are 0 (3.13)",
    "blocks-fitted-scaled": "a fitted codebook is scaled by its largest entry (3.13)",
    "blocks-block-beside": "parameter 42 may be there with 41 = 3 (1.2)",
}

# scale: the bits of a binary32, or None; codes: those of the block.
Block = namedtuple("Block", "scale codes")


def up(n, m):
    return -(-n // m) * m


def rounded(q):
    """The bits of the binary32 that is nearest to a Fraction, which is a normal number."""
    magnitude, exponent = abs(q), 0
    while magnitude >= 1 << 24:
        magnitude, exponent = magnitude / 2, exponent + 1
    while magnitude < 1 << 23:
        magnitude, exponent = magnitude * 2, exponent - 1
    whole = round(magnitude)  # ties to even
    return struct.unpack("<I", struct.pack("<f", (1 if q > 0 else -1) * whole * 2.0**exponent))[0]


def linear(broken):
    divisor = 128 if "blocks-linear-128" in broken else 127
    entries = [rounded(Fraction(c - 128, divisor)) if c != 128 else 0 for c in range(ENTRIES)]
    return entries[128:] + entries[:128] if "blocks-linear-two" in broken else entries


def dynamic(broken):
    lower = 8 if "blocks-dynamic-decades" in broken else 7
    above = []
    for i in range(7):
        for k in range(2**i):
            parts = 2 ** (i + 1)
            above.append(Fraction(parts + 9 * (2 * k + 1), parts * 10 ** (lower - i)))
    if "blocks-dynamic-even" in broken:
        above = [Fraction(1, 127) * (j + 1) for j in range(127)]
    bits = [rounded(q) for q in sorted(above)]
    if "blocks-dynamic-short" in broken:
        bits = [b & 0xFFFFFF00 for b in bits]
    entries = [b | 0x80000000 for b in reversed(bits)] + [0] + bits + [0x3F800000]
    return [entries[0]] + entries[:-1] if "blocks-dynamic-128" in broken else entries


def front_bytes(parameters, T, C, broken):
    """The bytes of the entries, or of the scales and the zeros behind them."""
    n = T * C
    if parameters["codebook"] == QUANTILE:
        if "blocks-fitted-256" in broken:
            return 4 * ENTRIES
        return 4 * min(ENTRIES, up(n, 4))
    of_scale = 2 if "blocks-half" in broken else 4
    return up(of_scale * len(cut(parameters, T, C, broken)), 16)


def payload_bytes(parameters, T, C, broken):
    return front_bytes(parameters, T, C, broken) + up(T * C, 16)


def cut(parameters, T, C, broken):
    """The lengths of the blocks of a sample."""
    B = parameters["block"]
    whole = [C] * T if "blocks-rows" in broken else [T * C]
    return [min(B, n - at) for n in whole for at in range(0, n, B)]


def entries_of(parameters, T, C, payload, broken):
    """256 entries, as the bits of binary32; None: not sent."""
    if parameters["codebook"] == LINEAR:
        return linear(broken)
    if parameters["codebook"] == DYNAMIC:
        return dynamic(broken)
    there = front_bytes(parameters, T, C, broken) // 4
    if "blocks-fitted-n" in broken:
        there = min(there, T * C)
    entries = list(struct.unpack(f"<{there}I", payload[: 4 * there]))
    missing = 0 if "blocks-fitted-zero" in broken else None
    return entries + [missing] * (ENTRIES - there)


def blocks_of(parameters, T, C, payload, broken):
    """The blocks of a payload. A fitted codebook has one."""
    front = front_bytes(parameters, T, C, broken)
    if parameters["codebook"] == QUANTILE:
        return [Block(None, payload[front : front + T * C])]
    blocks, at = [], front
    for i, n in enumerate(cut(parameters, T, C, broken)):
        if "blocks-half" in broken:
            scale = int.from_bytes(payload[2 * i : 2 * i + 2], "little") << 16
        else:
            scale = int.from_bytes(payload[4 * i : 4 * i + 4], "little")
        if "blocks-beside" in broken:
            at = sum(len(b.codes) + 4 for b in blocks) + 4
            scale = int.from_bytes(payload[at - 4 : at], "little")
        blocks.append(Block(scale, payload[at : at + n]))
        at += n
    return blocks
