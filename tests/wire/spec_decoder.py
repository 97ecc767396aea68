#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# spec_decoder.py - a second decoder, written from docs/format.md alone.
"""Decodes deltawire frames with Python integers only, and checks golden files against its results.

Section numbers in comments are those of docs/format.md. A finite float is the pair (negative,
magnitude). The magnitude is an integer in units of 2^-149. Every f32, f16 and bf16 value is a whole
number of these units, so sums and products are exact, and each rounding happens in one visible
place, `Format.pack`.
"""

import argparse
import json
import math
import struct
import sys
from collections import namedtuple

import spec_blocks
import spec_entropy
import spec_lowrank
import spec_rans
import spec_rotated
import spec_sparse
import spec_tah
import spec_viterbi
from xxh3 import xxh3_64 as H

MASK32 = 0xFFFFFFFF
MASK64 = 0xFFFFFFFFFFFFFFFF

CODEC_DELTA, CODEC_DIRECT, CODEC_RAW, CODEC_MX = range(1, 5)  # 1.1, codec
CODEC_TOPK, CODEC_RANDK, CODEC_COCKTAIL, CODEC_CHUNK = range(5, 9)
CODEC_TAH, CODEC_BLOCKS = 10, 11
CODECS = {
    "delta": CODEC_DELTA,
    "direct": CODEC_DIRECT,
    "raw": CODEC_RAW,
    "mx": CODEC_MX,
    "topk": CODEC_TOPK,
    "randk": CODEC_RANDK,
    "cocktail": CODEC_COCKTAIL,
    "chunk": CODEC_CHUNK,
    "blocks": CODEC_BLOCKS,
    "tah": CODEC_TAH,
    "lowrank": 9,
}
CODEC_LOWRANK = CODECS["lowrank"]
FLAG_REPLY, FLAG_ALIKE = 1, 2  # 1.1, flags
STATELESS, KEY, DELTA, SKIP, SYNC = 1, 2, 3, 4, 5  # 1.3, role
STATEFUL = (KEY, DELTA, SKIP, SYNC)
FROM_BASE = (DELTA, SKIP)
NO_PAYLOAD, FLOATS, QUANTIZED, MICROSCALED, STEPPED, SPARSE, LOWRANK, TAH, BLOCKS = range(9)  # 1.3
NOTHING, WHOLE, CHANGE, BRIEF, EXACT = 0, 1, 2, 3, 4  # 1.3, use
USES = {
    STATELESS: (WHOLE, BRIEF),
    KEY: (WHOLE,),
    DELTA: (CHANGE,),
    SKIP: (NOTHING,),
    SYNC: (EXACT,),
}
WHOLE_ROW, CHANNEL, SAMPLE = 65535, 65534, 65533  # 1.2, group
NEVER = 255  # 1.2, audit
# Parameters that frames may have or not (1.2).
ROUNDING, FORM, ENTROPY, TRANSFORM, ROTATE, WIDTH, PROJECT = 4, 14, 18, 32, 33, 40, 44  # 1.2
KEY_ELEMENT, KEY_STEP = 64, 128  # 1.2, key: added to the number of an element; in steps
DITHER = 3  # 1.2, rounding
RANS = 2  # 1.2, entropy
BLOCK = 32  # 3.3
TILE = 2048  # 3.2 and 4
WIDEST = 9  # 1.1: bytes of an element, as the limit of the length counts them
REMEMBERED = 16  # 2 step 7: how many replaced incarnations are remembered

Parameter = namedtuple("Parameter", "name codecs values default")
# A codec as 1.2 distinguishes it: with the value of parameter 14, or 0 without it.
DELTA_MX, DELTA_STEP = (CODEC_DELTA, MICROSCALED), (CODEC_DELTA, STEPPED)
DIRECT_STEP = (CODEC_DIRECT, STEPPED)
DELTAS = ((CODEC_DELTA, 0), DELTA_MX, DELTA_STEP)
# The codecs topk, randk and lowrank have a value of their own where there is parameter 1, in place
# of that of 14; and the sparse ones another where there is parameter 15.
WITH_BITS, WITH_ELEMENT = 1000, 1002
SPARSE_FLOATS = ((CODEC_TOPK, 0), (CODEC_RANDK, 0))
SPARSE_CODECS = (CODEC_TOPK, CODEC_RANDK, CODEC_COCKTAIL, CODEC_CHUNK)
SPARSE_BITS = tuple((codec, WITH_BITS) for codec in SPARSE_CODECS)
SPARSE_MX = tuple((codec, WITH_ELEMENT) for codec in SPARSE_CODECS)
ALL_SPARSE = SPARSE_FLOATS + SPARSE_BITS + SPARSE_MX
# So has the codec blocks where the codebook is fitted.
FITTED = 1001
SCALED_BLOCKS, ALL_BLOCKS = ((CODEC_BLOCKS, 0),), ((CODEC_BLOCKS, 0), (CODEC_BLOCKS, FITTED))
LOW_FLOATS, LOW_BITS = ((CODEC_LOWRANK, 0),), ((CODEC_LOWRANK, WITH_BITS),)
QUANTIZING = ((CODEC_DELTA, 0), (CODEC_DIRECT, 0))
STEPPING = (DELTA_STEP, DIRECT_STEP)
CODING = (*DELTAS, (CODEC_DIRECT, 0), DIRECT_STEP, (CODEC_MX, 0))  # may be entropy-coded
EVERY = (*CODING, (CODEC_RAW, 0), *ALL_SPARSE, *LOW_FLOATS, *LOW_BITS)
EVERY += ((CODEC_TAH, 0), *ALL_BLOCKS)
PARAMETERS = {  # 1.2. Defaults are only used by a break: the page's frames have every parameter.
    1: Parameter("bits", QUANTIZING + SPARSE_BITS + LOW_BITS, range(1, 9), 4),
    2: Parameter(
        "group",
        QUANTIZING + STEPPING + SPARSE_BITS + LOW_BITS,
        (16, 32, 64, 128, 256, WHOLE_ROW),
        64,
    ),
    ROUNDING: Parameter("rounding", STEPPING, (DITHER,), None),
    6: Parameter("key", DELTAS, (32, 16, 17), 8),
    7: Parameter("dtype", ((CODEC_RAW, 0), *SPARSE_FLOATS, *LOW_FLOATS), (1, 2, 3), 1),
    8: Parameter("prev", DELTAS, (1, 2, 3), 1),
    9: Parameter("choose", DELTAS[:2], (1, 2), 1),
    11: Parameter("audit", DELTAS, range(1, NEVER + 1), 1),
    FORM: Parameter("form", (DELTA_MX, *STEPPING), (), None),
    15: Parameter("element", (DELTA_MX, (CODEC_MX, 0), *SPARSE_MX), range(1, 7), 2),
    ENTROPY: Parameter("entropy", CODING, (RANS,), None),
    26: Parameter("keep", ALL_SPARSE, range(1, spec_sparse.MILLION + 1), None),
    28: Parameter(
        "mask",
        ((CODEC_COCKTAIL, WITH_BITS), (CODEC_COCKTAIL, WITH_ELEMENT)),
        range(1, spec_sparse.MILLION + 1),
        100000,
    ),
    29: Parameter(
        "chunk",
        ((CODEC_CHUNK, WITH_BITS), (CODEC_CHUNK, WITH_ELEMENT)),
        [1 << i for i in range(7, 17)],
        4096,
    ),
    41: Parameter("codebook", ALL_BLOCKS, (1, 2, 3), None),
    42: Parameter("block", SCALED_BLOCKS, spec_blocks.LENGTHS, None),
    TRANSFORM: Parameter("transform", CODING, (spec_rotated.HADAMARD,), None),
    ROTATE: Parameter("rotate", CODING, spec_rotated.WIDTHS, None),
    34: Parameter("tile", ((CODEC_TAH, 0),), spec_tah.WIDTHS, None),
    36: Parameter("share", ((CODEC_TAH, 0),), range(1, spec_tah.MILLION + 1), None),
    37: Parameter("rank", LOW_FLOATS + LOW_BITS, range(1, spec_lowrank.MOST_RANK + 1), 4),
    WIDTH: Parameter("width", LOW_FLOATS + LOW_BITS, range(1, spec_lowrank.MOST_WIDTH + 1), None),
    PROJECT: Parameter("project", EVERY, range(1, 1 << 32), None),
}
# More values of `group` and `key`, by the value of parameter 14.
GROUPS = {0: (CHANNEL,), STEPPED: (SAMPLE,)}
KEYS = {
    0: (2, 3, 4, 5, 6, 7, 8),
    MICROSCALED: (65, 66, 67, 68, 69, 70),
    STEPPED: (KEY_STEP,),
}

# What the chain is computed from (section 2), with the notation of `struct` for each part.
CHAIN = {
    "base": "Q",
    "incarnation": "Q",
    "sample": "Q",
    "slice": "I",
    "role": "B",
    "form": "B",
    "use": "B",
    "prev": "B",
    "sequence": "Q",
    "payload-digest": "Q",
    "tokens": "I",
    "channels": "I",
    "parameters": "Q",
    "seed": "Q",
    "codec": "B",
    "zero": "7s",
}

# Deliberate errors for --break, to show that the golden files detect them.
BREAKS = {
    "round-half-up": "ties round away from zero instead of to even (5)",
    "no-clamp": "RN lets a value that is too large become infinite (5, RN)",
    "clamp-stateless": "stateless floats are clamped as RN does (3.1)",
    "flush-subnormals": "results that are subnormal become zero (5)",
    "skip-binary32": "prev' is rounded from the exact sum, not from its binary32 (5 step 4)",
    "keep-minus-zero": "a code of value -0 on base +0 stays -0 (5 step 4)",
    "y-from-r": "y is rounded from r instead of from prev' (5 step 5)",
    "base-in-direct": "pieces whose choice bit is 1 add prev nevertheless (5 step 1)",
    "choices-reversed": "choice bits count from the highest bit of a byte (3.2)",
    "poison-clears": "a poisoned piece of a delta sets prev to +0 (5 step 2)",
    "poison-direct-clears": "... but only if the piece is coded directly (5 step 2)",
    "planes-swapped": "the planes lie in the opposite order (3.2)",
    "plane-bits-reversed": "a plane counts from the highest bit of a byte (3.2)",
    "payload-half": "every other pair of words is left out of the payload digest (4)",
    "one-bit-zero": "one bit has a zero level (5 step 3)",
    "channel-of-row": "scales per channel are taken by token (3.2)",
    "tile-per-row": "no tile goes on into the next row (3.2)",
    "key-bits": "key entries take `bits` instead of `key` bits (1.3, use 1)",
    "brief-key-bits": "brief entries take `key` bits instead of `bits` (1.3, use 3)",
    "brief-choices": "brief entries carry choice bits (1.3, use 3)",
    "exact-of-key": "exact entries hold floats in the dtype `key` (1.3, use 4)",
    "skip-refused": "the role skip is refused as FORMAT (1.3)",
    "skip-clears": "the role skip sets prev to +0 (3.4)",
    "skip-keeps-version": "the role skip advances neither version nor chain (1.3)",
    "skip-any-base": "base_chain of the role skip is not compared (2 step 7)",
    "skip-unaudited": "the state digest of the role skip is not compared (2 step 9)",
    "skip-keeps-copy": "a skip with a wrong state digest does not drop the copy (2 step 9)",
    "audit-all": "the state digest covers all stretches (4)",
    "audit-from-zero": "stretches with t mod audit = 0 are audited (4)",
    "audit-of-sequence": "the audit's phase is the sequence (4; version 1.0)",
    "audit-of-sample": "the audit's phase leaves the slice out (4)",
    "audit-of-key": "the audit's phase leaves the sequence out (4)",
    "never-is-255": "audit 255 audits one stretch in 255 (1.2)",
    "no-state-check": "the state digest is not compared (2 step 9)",
    "keep-after-state": "a wrong state digest does not drop the copy (2 step 9)",
    "no-stale": "sequence is not compared (2 step 7)",
    "stale-before-base": "STALE comes before BASE if entries disagree (2 step 7)",
    "any-shape": "the shape of what is held is not compared (2 step 7)",
    "corrupt-before-base": "payload digests are compared before admission (2 steps 7 and 8)",
    "take-dropped": "a late frame restores a key that was dropped (2 step 7)",
    "forget-replaced": "replaced incarnations are not remembered (2 step 7)",
    "remember-one": "only the last incarnation that was replaced is remembered (2 step 7)",
    "replaced-by-stateless": "a frame without state replaces an incarnation, too (2 step 7)",
    "keep-other-lives": "keys of a replaced incarnation are not dropped (2 step 10)",
    "keep-forgotten": "forgotten keys are not dropped (2 step 10)",
    "forget-newer": "forgotten keys are dropped whatever their version is (2 step 10)",
    "forget-other-lives": "forgotten keys are dropped whatever their incarnation is (2 step 10)",
    "padding-refused": "bytes after the frame are refused (1)",
    "payloads-from-behind": "payloads are expected at the end of the given bytes (1)",
    "cut-unseen": "a frame may be shorter than its length (2 step 3)",
    "length-unbounded": "the length is not compared with its limits in step 1 (1.1)",
    "length-unsummed": "the length need not be the sum of the sizes (1.1)",
    "size-unchecked": "payload_bytes is not checked (1.3)",
    "codec-early": "an unknown codec is refused in step 1, and so gets no reply (2 step 3)",
    "block-unordered": "parameters may come in any order (1.2)",
    "block-defaults": "parameters that are missing take their defaults (1.2)",
    "block-unknown": "parameters that the codec does not have are ignored (1.2)",
    "block-values": "values of parameters are not checked (1.2)",
    "reserved-flags": "flags without a meaning are not checked (1.1)",
    "reserved-header": "the zeros of the header are not checked (1.1)",
    "reserved-parameter": "the zeros of a parameter are not checked (1.2)",
    "reserved-entry": "the zero of an entry is not checked (1.3)",
    "reserved-forgotten": "the zero of a forgotten key is not checked (1.3)",
    "reserved-tables": "the zeros after the tables are not checked (1)",
    "seed-any": "a seed may be present without parameter 4 (1.1)",
    "digest-zero": "a payload_digest of 0 is CORRUPT, not FORMAT (1.3)",
    "mismatch-unseen": "parameters are not compared with the decoder's config (2 step 4)",
    "mismatch-after-shape": "the shape is compared before the parameters (2 steps 4 and 5)",
    "own-of-first": "options that depend on x's dtype are taken from the first frame (1.1, x)",
    "doubled-unseen": "several entries with state may have the same key (2 step 6)",
    "forgotten-entry": "a forgotten key may be that of an entry (2 step 6)",
    "doubled-after-step": "keys are checked for duplicates after step 7 (2 step 6)",
    "mx-bias": "a scale is 2^(scale - 126) (3.3)",
    "mx-scale-ff": "the scale 0xff is 2^128 and does not poison (3.3)",
    "mx-scale-0": "the scale 0 stands for zero (3.3)",
    "mx-scale-254": "the scale 254 poisons, too (3.3)",
    "mx-scale-bf16": "a scale has two bytes (3.3)",
    "mx-overflow": "a product that overflows binary32 poisons its element (3.3, 5 step 3)",
    "mx-planes-swapped": "the planes of 6-bit elements lie in the opposite order (3.3)",
    "mx-sign-below": "the sign is in the lowest bit of a code (3.3)",
    "mx-int8-80": "int8 0x80 is -127 / 64 (3.3)",
    "mx-int8-whole": "int8 counts in units of 1 (3.3)",
    "mx-e4m3-special": "0x7f and 0xff of e4m3 are NaN (3.3)",
    "mx-e4m3-number": "0x7f and 0xff of e4m3 are numbers (3.3)",
    "mx-e5m2-special": "exponent 31 of e5m2 is infinite or NaN (3.3)",
    "mx-e5m2-number": "exponent 31 of e5m2 stands for ordinary numbers (3.3)",
    "mx-e4m3-short": "exponent 15 of e4m3 has no numbers (3.3)",
    "mx-subnormal": "exponent 0 of an element has a leading one (3.3)",
    "mx-minus-zero": "an element of minus zero is +0 (3.3)",
    "mx-run-on": "blocks continue in the next row (3.3)",
    "mx-no-choices": "microscaled changes have no choice bits (3.3)",
    "mx-choices-reversed": "choice bits of blocks count from the highest bit of a byte (3.3)",
    "mx-key": "key entries take `element` instead of the one in `key` (1.3, use 1)",
    "mx-brief": "brief entries take the element in `key` (1.3, use 3)",
    "mx-form-unseen": "the form of an entry may be 2 with parameter 14 (1.3)",
    "mx-form-beside": "bits and group may be present with parameter 14 (1.2)",
    "mx-key-bits": "key may be 2..8 with parameter 14 (1.2)",
    "mx-key-alone": "key may be 65..70 without parameter 14 (1.2)",
    "mx-emax": "encoders: the emax of every element is one less (3.3, 5)",
    "mx-emax-own": "encoders: the emax of int8 is 6, that of its integer (3.3)",
    "mx-ties": "encoders: ties go to the odd code (5)",
    "mx-unsaturated": "encoders: int8 goes down to -128 (3.3)",
    "mx-writes-minus": "encoders: a value that rounds to zero keeps its sign (3.3)",
    "mx-direct-of-equal": "encoders: a block is direct if both ways are equally good (5)",
    "step-middle": "code 127 stands for 0 (3.4)",
    "step-code-0": "code 0 is read as -127 (3.4)",
    "step-sample-tiles": "with group = sample every tile has a scale (3.4)",
    "step-sample-row": "with group = sample only the first row has the scale (3.4)",
    "step-sample-narrow": "with group = sample segments have 64 channels (3.4)",
    "step-choices": "changes in steps have choice bits (3.4)",
    "step-poison-segment": "with group = sample poison stays in the first segment (3.4, 5 step 2)",
    "step-negative": "a step is taken without its sign (3.4)",
    "step-no-dither": "dither is not subtracted (3.4)",
    "step-dither-added": "dither is added (3.4)",
    "step-key-no-dither": "key entries have no dither (3.4)",
    "step-dither-wide": "c - 128 - z is not rounded (5 step 3)",
    "step-dither-exact": "the product with dither is not rounded (5 step 3)",
    "step-dither-product": "c - 128 and z are multiplied by s one by one (5 step 3)",
    "dither-low": "z = p / 65536 - 1/2 (5 step 6)",
    "dither-positive": "z = (p + 1/2) / 65536 (5 step 6)",
    "dither-high-part": "the high 16 bits of a word come first (5 step 6)",
    "dither-stored": "elements are counted with their padding (5 step 6)",
    "dither-of-piece": "elements are counted from the start of their piece (5 step 6)",
    "dither-counter-last": "i div 8 is in the last words of the counter (5 step 6)",
    "dither-one-word": "a block of the generator serves four elements (5 step 6)",
    "dither-rounds-7": "the generator has 7 rounds (3.6)",
    "dither-high-half": "the key's high half comes first (3.6)",
    "dither-slice-4": "slice has 4 bytes in the generator's key (3.6)",
    "dither-without-seed": "the generator's key leaves the seed out (3.6)",
    "dither-without-sample": "the generator's key leaves the sample out (3.6)",
    "dither-without-slice": "the generator's key leaves the slice out (3.6)",
    "dither-without-sequence": "the generator's key leaves the sequence out (3.6)",
    "dither-without-incarnation": "the generator's key leaves the incarnation out (3.6)",
    "step-seed-refused": "a seed is refused with parameter 4, too (1.1)",
    "step-seed-needed": "a seed of 0 is refused with parameter 4 (1.1)",
    "step-form-unseen": "the form of an entry may be 2 with parameter 14 = 4 (1.3)",
    "step-of-mx": "direct may have 14 = 3 (1.2)",
    "step-group-channel": "group may be 65534 with 14 = 4 (1.2)",
    "step-group-alone": "group may be 65533 without 14 (1.2)",
    "step-key-bits": "key may be 2..8 with 14 = 4 (1.2)",
    "step-key-element": "key may be 65..70 with 14 = 4 (1.2)",
    "step-key-alone": "key may be 128 without 14 (1.2)",
    "step-rounding-any": "rounding may be 1 or 2 in a frame (1.2)",
    "step-rounding-alone": "rounding may be present without 14 = 4 (1.2)",
    "step-rounding-needed": "rounding must be present with 14 = 4 (1.2)",
    "step-bits-beside": "bits may be present with 14 = 4 (1.2)",
    "step-choose-beside": "choose may be present with 14 = 4 (1.2)",
    "step-write-ties": "encoders: ties go away from zero (5)",
    "step-write-128": "encoders: levels go down to -128 (5)",
    "step-write-stored": "encoders: n counts padding (5)",
    "step-write-sums": "encoders: the sums of all tiles are added up one by one (5)",
    "step-write-factor": "encoders: key entries take `step`, too (5)",
    "step-write-tiny": "encoders: a step below 2^-96 is not 0 (5)",
    "step-write-dither": "encoders: dither is left out (5)",
    "step-write-incarnation": "encoders: stochastic rounding draws with the incarnation (5)",
    "step-write-divides": "encoders: d is divided by s (5)",
    "entropy-needed": "entropy must be present (1.2)",
    "entropy-any": "entropy may be 1 or 3 in a frame (1.2)",
    "entropy-of-raw": "entropy may be present with the codec raw (1.2)",
    "entropy-of-channels": "entropy may be present with group = channel (1.2)",
    "entropy-floats": "floats have sizes in front of them, too (1.2)",
    "entropy-as-plain": "payload_bytes is that of the plain payload (1.3)",
    "entropy-unbounded": "payload_bytes of entropy-coded payloads has no limit (1.3)",
    "entropy-short": "step 3 refuses entropy-coded payloads that are too short (2 step 8, 3.8)",
    "entropy-of-plain": "payload_digest is that of the plain payload (4)",
    "entropy-before-digests": "entropy-coded payloads are read before digests (2 step 8)",
    "entropy-entry-by-entry": "an entry's payload is read before the next one's digest (2 step 8)",
    "entropy-before-base": "entropy-coded payloads are read before admission (2 steps 7 and 8)",
    "entropy-drops": "an entropy-coded payload that breaks a rule drops the copy (2)",
    "version-unchecked": "frames of every version are read (2 step 1)",
    "duplicate-nack": "a duplicate of an accepted frame is answered NACK (6)",
    "reply-unasked": "frames that want no reply get one (6)",
    "reply-of-whole": "a frame that is truncated after its tables gets no reply (6)",
    "replaced-untold": "a frame of a replaced incarnation is answered NACK (6)",
}
BREAKS.update(spec_rans.BREAKS)
BREAKS.update(spec_viterbi.BREAKS)
BREAKS.update(spec_entropy.BREAKS)
BREAKS.update(
    {
        "project-needed": "parameter 44 must be there (1.2)",
        "project-refused": "no codec has parameter 44 (1.2)",
        "project-unseen": "parameter 44 is not compared with the decoder's (2 step 4)",
    }
)
BREAKS.update(spec_sparse.BREAKS)
BREAKS.update(spec_blocks.BREAKS)
BREAKS.update(spec_rotated.BREAKS)
BREAKS.update(spec_tah.BREAKS)
BREAKS.update(spec_lowrank.BREAKS)
BREAKS.update({f"chain-without-{name}": f"the chain leaves {name} out (2)" for name in CHAIN})
broken = set()


class Refused(Exception):
    """A frame or a reply failed a check; `status` is one of the statuses in section 2."""

    def __init__(self, status, why=""):
        super().__init__(f"{status}: {why}" if why else status)
        self.status = status


def need(condition, status, why=""):
    if not condition:
        raise Refused(status, why)


def up(n, m):
    return -(-n // m) * m


# ------------------------------------------------------------------------------------------------
# Floats: conventions, section 5 (Exactness) and 3.1

INFINITY = 1 << 400  # a magnitude larger than any sum of finite values


class Format:
    """One dtype: `digits` significant bits, smallest subnormal 2^(unit - 149)."""

    def __init__(self, name, code, key, size, digits, unit, largest, infinity, nan):
        self.name, self.code, self.key, self.size = name, code, key, size
        self.digits, self.unit = digits, unit
        self.sign = 1 << (8 * size - 1)
        self.infinity, self.nan = infinity, nan
        self.largest = self.unpack(largest)[1]

    def is_nan(self, bits):
        return bits & (self.sign - 1) > self.infinity

    def is_finite(self, bits):
        return bits & self.infinity != self.infinity

    def unpack(self, bits):
        """The exact value of finite bits, or an infinity with the same sign."""
        magnitude = bits & (self.sign - 1)
        if magnitude >= self.infinity:
            return bool(bits & self.sign), INFINITY
        exponent = magnitude >> (self.digits - 1)
        fraction = magnitude & ((1 << (self.digits - 1)) - 1)
        if exponent:
            fraction += 1 << (self.digits - 1)
            exponent -= 1
        return bool(bits & self.sign), fraction << (exponent + self.unit)

    def pack(self, value, finer=0):
        """Rounds as IEEE 754 does: once, to nearest even; subnormals are kept, and what is too
        large becomes infinite. The magnitude is in units of 2^-149, or of 2^-(149 + finer)."""
        negative, magnitude = value
        unit = self.unit + finer
        drop = max(unit, magnitude.bit_length() - self.digits)
        # `drop - unit` is one less than the exponent field, and the leading bit of a normal result
        # adds that one. A carry out of the fraction increments the exponent in the same way.
        bits = ((drop - unit) << (self.digits - 1)) + round_shift(magnitude, drop)
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
BY_CODE = {f.code: f for f in FORMATS}  # x, prev, dtype
BY_KEY = {f.key: f for f in FORMATS}  # key


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
    """steps * scale in binary32: exact, or infinite (5 step 3). The integer 0 counts as +0."""
    negative, magnitude = scale
    product = abs(steps) * magnitude
    return negative != (steps < 0), product if product <= F32.largest else INFINITY


def convert(source, target, bits):
    """Stateless floats (3.1): the same value in another dtype; not clamped."""
    if source is target:
        return bits
    if source.is_nan(bits):
        sign = target.sign if bits & source.sign else 0
        if target is F32:  # widening is exact: the fraction's bits become the highest ones
            return (
                sign
                | F32.infinity
                | (bits & ((1 << (source.digits - 1)) - 1)) << (F32.digits - source.digits)
            )
        return sign | target.nan
    return (rn if "clamp-stateless" in broken else Format.pack)(target, source.unpack(bits))


def elements(data, fmt):
    """Little-endian bytes as a list of bit patterns."""
    return list(struct.unpack(f"<{len(data) // fmt.size}{'I' if fmt.size == 4 else 'H'}", data))


def to_bytes(bits, fmt):
    return struct.pack(f"<{len(bits)}{'I' if fmt.size == 4 else 'H'}", *bits)


# ------------------------------------------------------------------------------------------------
# Layout of quantized payloads: section 3.2

Piece = namedtuple(
    "Piece", "start w g"
)  # the first element of the sample, the number of channels, and that of channels as stored


WHOLE_ROWS = (WHOLE_ROW, CHANNEL, SAMPLE)  # groups whose segments are those of whole rows
SCALES_IN_FRONT = (CHANNEL, SAMPLE)  # 3.2, 3.4


def cut_row(C, group):
    """(full pieces, their g, w of a shorter last piece or 0, its g) of one row."""
    whole_rows = group in WHOLE_ROWS
    if group == SAMPLE and "step-sample-narrow" in broken:
        whole_rows, group = False, 64
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


def tile_bytes(scales, n, bits, of_scale=2):
    """of_scale: the size of a scale in bytes."""
    return up(of_scale * scales, 16) + up(n * bits // 8, 16)


def scales_in_tile(segments, group):
    """With one scale per channel or sample, the scales precede all tiles."""
    if group == SAMPLE and "step-sample-tiles" in broken:
        return 1
    return 0 if group in SCALES_IN_FRONT else segments


def choice_bytes(pieces):
    return up(up(pieces, 8) // 8, 16)


def long_rows(C, group):
    return group in WHOLE_ROWS and C > TILE


def quantized_size(T, C, group, bits, choices, of_scale=2):
    """The size of a payload in tiles, computed without a loop: T and C may be any numbers."""
    full, g, last, last_g = cut_row(C, group)
    segments = T * (full + (last > 0))
    head = front_bytes(T, C, group, choices)
    size = lambda count, n: tile_bytes(scales_in_tile(count, group), n, bits, of_scale)
    if long_rows(C, group):
        return head + T * (full * size(1, g) + (size(1, last_g) if last else 0))
    per_tile = TILE // g
    tiles, rest = divmod(segments, per_tile)
    return head + tiles * size(per_tile, per_tile * g) + (size(rest, rest * g) if rest else 0)


def pieces_of(T, C, group):
    if group == SAMPLE:
        return 1
    return C if group == CHANNEL else T * pieces_per_row(C, group)


def front_bytes(T, C, group, choices):
    """The size of the choice bits and of the scales of channels or of the sample."""
    pieces = pieces_of(T, C, group)
    in_front = group in SCALES_IN_FRONT and scales_in_tile(1, group) == 0
    return (choice_bytes(pieces) if choices else 0) + (up(2 * pieces, 16) if in_front else 0)


def tiles_of(T, C, group):
    """One list of pieces per tile. Pieces are in order, row after row."""
    row = row_pieces(C, group)
    pieces = [Piece(t * C + p.start, p.w, p.g) for t in range(T) for p in row]
    if long_rows(C, group):
        return [[p] for p in pieces]
    per_tile = TILE // row[0].g
    if "tile-per-row" in broken:
        per_tile = min(per_tile, len(row))
    return [pieces[i : i + per_tile] for i in range(0, len(pieces), per_tile)]


def planes_of(bits):
    """The widths of the planes, in order; the first plane has the low bits of the codes."""
    widths = [p for p in (8, 4, 2, 1) if bits & p]
    return widths[::-1] if "planes-swapped" in broken else widths


def read_codes(data, n, bits, widths=None):
    codes, at, shift = [0] * n, 0, 0
    for p in widths or planes_of(bits):
        per_byte, mask = 8 // p, (1 << p) - 1
        for i in range(n):
            place = i % per_byte
            if "plane-bits-reversed" in broken:
                place = per_byte - 1 - place
            codes[i] |= (data[at + i // per_byte] >> (p * place) & mask) << shift
        at += n * p // 8
        shift += p
    return codes


def read_choices(data, pieces, flipped="choices-reversed"):
    flip = 7 if flipped in broken else 0
    return [data[i // 8] >> (i % 8 ^ flip) & 1 for i in range(pieces)]


# ------------------------------------------------------------------------------------------------
# Microscaled payloads: section 3.3


class Element:
    """One element with `e` bits of exponent and `m` of fraction; e is 0 for int8. `largest` is in
    units of the smallest magnitude. Only with a break can a value be None, which stands for NaN."""

    def __init__(self, name, number, e, m, bias, largest, emax):
        self.name, self.number, self.e, self.m, self.bias = name, number, e, m, bias
        self.bits, self.emax = 1 + e + m, emax
        self.sign = 1 << (self.bits - 1)
        # The smallest magnitude is 2^(unit - 149).
        self.unit = 149 - 6 if e == 0 else 149 + 1 - bias - m
        self.largest = largest << self.unit

    def value(self, code):
        negative, magnitude = bool(code & self.sign), code & (self.sign - 1)
        if "mx-sign-below" in broken:
            negative, magnitude = bool(code & 1), code >> 1
        if self.e == 0:
            return self.integer(negative, magnitude)
        if magnitude == 0 and "mx-minus-zero" in broken:
            return False, 0
        exponent, fraction = magnitude >> self.m, magnitude & ((1 << self.m) - 1)
        if exponent or "mx-subnormal" in broken:
            fraction += 1 << self.m
        value = fraction << (max(exponent, 1) - 1 + self.unit)
        if value > self.largest:
            return self.special(negative, fraction, value)
        if "mx-e4m3-short" in broken and self.name == "e4m3" and exponent == 15:
            return None
        return negative, value

    def integer(self, negative, magnitude):
        """The value of an integer in two's complement."""
        unit = 149 if "mx-int8-whole" in broken else self.unit
        level = magnitude - (self.sign if negative else 0)
        if "mx-int8-80" in broken:
            level = max(level, 1 - self.sign)
        return level < 0, abs(level) << unit

    def special(self, negative, fraction, value):
        """The element's own infinities and NaN count as the largest number with that sign."""
        if f"mx-{self.name}-special" in broken:
            infinite = self.name == "e5m2" and fraction == 1 << self.m
            return (negative, INFINITY) if infinite else None
        return negative, value if f"mx-{self.name}-number" in broken else self.largest

    def widths(self):
        """The widths of the planes of a code."""
        swapped = "mx-planes-swapped" in broken
        return planes_of(self.bits)[::-1] if swapped else planes_of(self.bits)

    def code_of(self, d, s):
        """Section 5, microscaled, step 5: the code of a finite d under the scale s."""
        negative, magnitude = d
        finer = 127  # with so many more bits, the product with 2^(127 - s) is exact
        exact = magnitude << (127 - s + finer)  # in units of 2^-(149 + finer)
        unit = self.unit + finer
        drop = unit if self.e == 0 else max(unit, exact.bit_length() - self.m - 1)
        rounded = round_shift(exact, drop)
        if "mx-ties" in broken and exact == (2 * (exact >> drop) + 1) << (drop - 1):
            rounded = (exact >> drop) + 1 - (exact >> drop & 1)
        code = ((drop - unit) << self.m) + rounded
        if self.e == 0:
            most = self.sign if negative and "mx-unsaturated" in broken else self.sign - 1
            code = min(code, most)
            return -code & 0xFF if negative else code
        code = min(code, self.code_of_largest())
        signed = negative and (code or "mx-writes-minus" in broken)
        return code | (self.sign if signed else 0)

    def code_of_largest(self):
        return (self.sign - 1) - {"e4m3": 1, "e5m2": 4}.get(self.name, 0)

    def scale_of(self, amount):
        """Section 5, microscaled, step 4: the scale for A, which is a magnitude."""
        emax = self.emax - (1 if "mx-emax" in broken else 0)
        if "mx-emax-own" in broken and self.e == 0:
            emax = 6
        # 1 stands for 2^-149, so the logarithm of A is its number of bits - 1 - 149.
        return max(0, 127 + amount.bit_length() - 1 - 149 - emax) if amount else 0


ELEMENTS = {
    1: Element("int8", 1, 0, 7, 0, 127, 0),
    2: Element("e4m3", 2, 4, 3, 7, 448 << 9, 8),
    3: Element("e5m2", 3, 5, 2, 15, 57344 << 16, 15),
    4: Element("e3m2", 4, 3, 2, 3, 28 << 4, 4),
    5: Element("e2m3", 5, 2, 3, 1, 15 << 2, 2),
    6: Element("e2m1", 6, 2, 1, 1, 6 << 1, 2),
}


def mx_shape(T, C):
    return (1, T * C) if "mx-run-on" in broken else (T, C)


def microscaled(value, scale):
    """value * 2^(scale - 127) in binary32: exact, or infinite (5 step 3)."""
    if value is None:
        return None
    negative, magnitude = value
    if "mx-scale-0" in broken and scale == 0:
        magnitude = 0
    bias = 126 if "mx-bias" in broken else 127
    if magnitude >= INFINITY:
        return value
    product = magnitude << scale >> bias  # exact: the last digit of an element is at least 2^-16
    if product > F32.largest:
        return None if "mx-overflow" in broken else (negative, INFINITY)
    return negative, product


# ------------------------------------------------------------------------------------------------
# Random numbers at both ends: section 3.6, and z of section 5

DRAWS = {"seed": "Q", "sample": "Q", "slice": "Q", "sequence": "Q", "incarnation": "Q"}


def philox4x32(counter, key, rounds=10):
    """Philox4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3; 2011)."""
    a, b, c, d = counter
    for i in range(rounds):
        low, high = (k + i * w & MASK32 for k, w in zip(key, (0x9E3779B9, 0xBB67AE85)))
        of_a, of_c = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, c = of_c >> 32 ^ b ^ low, of_a >> 32 ^ d ^ high
        b, d = of_c & MASK32, of_a & MASK32
    return a, b, c, d


class Generator:
    """Draws z for the elements of an entry. `fields`: the values of DRAWS, or of its beginning."""

    def __init__(self, *fields):
        names = [name for name in DRAWS if f"dither-without-{name}" not in broken]
        kept = [(name, value) for name, value in zip(DRAWS, fields) if name in names]
        kinds = {**DRAWS, "slice": "I"} if "dither-slice-4" in broken else DRAWS
        key = H(b"".join(struct.pack("<" + kinds[name], value) for name, value in kept))
        self.key = key & MASK32, key >> 32
        if "dither-high-half" in broken:
            self.key = self.key[::-1]
        self.blocks = {}

    def part(self, i):
        """The 16-bit part of element i: p."""
        per_block = 4 if "dither-one-word" in broken else 8
        block, part = divmod(i, per_block)
        if block not in self.blocks:
            halves = block & MASK32, block >> 32
            last = "dither-counter-last" in broken
            counter = (0, 0, *halves) if last else (*halves, 0, 0)
            rounds = 7 if "dither-rounds-7" in broken else 10
            self.blocks[block] = philox4x32(counter, self.key, rounds)
        swap = 1 if "dither-high-part" in broken else 0
        return self.blocks[block][part // 2] >> 16 * (part % 2 ^ swap) & 0xFFFF

    def z(self, i):
        """z of element i, in units of 2^-17: (p + 1/2) / 65536 - 1/2."""
        p = self.part(i)
        if "dither-positive" in broken:
            return 2 * p + 1
        return 2 * p - 65536 + (0 if "dither-low" in broken else 1)


def generator_of(h, parameters, e):
    """3.6; None if the entry is not dithered."""
    dithered = parameters.get("rounding") == DITHER and "step-no-dither" not in broken
    if not dithered or (e.role == KEY and "step-key-no-dither" in broken):
        return None
    return Generator(h.seed, e.sample, e.slice, h.sequence, h.incarnation)


# ------------------------------------------------------------------------------------------------
# Frames: section 1, and steps 1 to 3 of section 2

HEADER = struct.Struct("<4sBBBBQQIIIIBB6sQQQQ")
PARAMETER = struct.Struct("<B3sI")
ENTRY = struct.Struct("<QIBBBBQQQQ")
FORGOTTEN = struct.Struct("<QII")

Header = namedtuple(
    "Header",
    "magic major minor codec flags incarnation sequence N T C F x P zero length seed "
    "table_digest header_digest",
)
Entry = namedtuple(
    "Entry",
    "sample slice role form use zero base_chain payload_bytes payload_digest state_digest",
)
Tables = namedtuple("Tables", "block entries forgotten")
Method = namedtuple("Method", "form fmt bits choices")  # the meaning of a use: 1.3; fmt: or element


def parse_header(frame):
    """Step 1."""
    need(len(frame) >= HEADER.size and frame[:4] == b"DWF1", "FORMAT", "no frame")
    h = Header._make(HEADER.unpack_from(frame))
    need((h.major, h.minor) == (2, 0) or "version-unchecked" in broken, "VERSION")
    need(h.header_digest == H(frame[:72]), "CORRUPT", "header_digest")
    check_ranges(h)
    return h


def check_ranges(h):
    """1.1: the ranges of the fields, except for those that step 3 checks."""
    rules = {
        "flags": h.flags <= (FLAG_REPLY | FLAG_ALIKE) or "reserved-flags" in broken,
        "incarnation": h.incarnation != 0,
        "sequence": h.sequence != 0,
        "N, T, C": min(h.N, h.T, h.C) >= 1 and h.N * h.T * h.C * 4 < 1 << 63,
        "x": h.x in BY_CODE,
        "P": h.P <= 32,
        "zero": not any(h.zero) or "reserved-header" in broken,
        "codec": h.codec in CODECS.values() or "codec-early" not in broken,
    }
    for field, holds in rules.items():
        need(holds, "FORMAT", field)
    end = tables_end(h)
    bounded = end <= h.length <= end + h.N * (WIDEST * h.T * up(h.C, 32) + 64)
    need(bounded or "length-unbounded" in broken, "FORMAT", "length")


def tables_end(h):
    return up(HEADER.size + PARAMETER.size * h.P + ENTRY.size * h.N + FORGOTTEN.size * h.F, 16)


def parse_tables(frame, h):
    """Step 2, and the part of step 3 that does not depend on the codec, except for the length."""
    end = tables_end(h)
    need(len(frame) >= end, "FORMAT", "shorter than its tables")
    need(h.table_digest == H(frame[HEADER.size : end]), "CORRUPT", "table_digest")
    entries_at = HEADER.size + PARAMETER.size * h.P
    forgotten_at = entries_at + ENTRY.size * h.N
    zeros_at = forgotten_at + FORGOTTEN.size * h.F
    entries = [Entry._make(e) for e in ENTRY.iter_unpack(frame[entries_at:forgotten_at])]
    forgotten = list(FORGOTTEN.iter_unpack(frame[forgotten_at:zeros_at]))
    padded = not any(frame[zeros_at:end]) or "reserved-tables" in broken
    need(padded, "FORMAT", "zeros behind the tables")
    for entry in entries:
        check_entry(entry)
    for _, _, zero in forgotten:
        need(zero == 0 or "reserved-forgotten" in broken, "FORMAT", "zero of a forgotten key")
    summed = end + sum(e.payload_bytes for e in entries) == h.length
    need(summed or "length-unsummed" in broken, "FORMAT", "the payloads' sizes")
    return Tables(frame[HEADER.size : entries_at], entries, [key[:2] for key in forgotten])


def check_entry(e):
    """1.3, as far as it does not depend on the codec."""
    need(e.role in USES and e.use in USES[e.role], "FORMAT", "role and use")
    need(e.zero == 0 or "reserved-entry" in broken, "FORMAT", "zero of an entry")
    need((e.role in FROM_BASE) == (e.base_chain != 0), "FORMAT", "base_chain")
    need(e.payload_bytes % 16 == 0, "FORMAT", "payload_bytes")
    empty = e.role == SKIP
    need(empty == (e.form == NO_PAYLOAD), "FORMAT", "form of an entry without a payload")
    need(not empty or e.payload_bytes == 0, "FORMAT", "payload of a skip")
    need(not empty or "skip-refused" not in broken, "FORMAT", "skip")
    need(not empty or e.payload_digest == 0, "FORMAT", "payload_digest of a skip")
    status = "CORRUPT" if "digest-zero" in broken else "FORMAT"
    need(empty or e.payload_digest != 0, status, "payload_digest is 0")
    need(e.role in STATEFUL or e.state_digest == 0, "FORMAT", "state_digest without state")


def parse_parameters(codec, block):
    """1.2: {name: value}, in the order of the block."""
    rows = list(PARAMETER.iter_unpack(block))
    form = form_of(codec, rows)
    of = (CODEC_DELTA if "step-of-mx" in broken and form == MICROSCALED else codec), form
    wanted = [number for number, row in PARAMETERS.items() if of in row.codecs]
    floats_too = codec in (CODEC_TOPK, CODEC_RANDK) and form == WITH_BITS
    if floats_too and "sparse-bits-and-dtype" in broken:
        wanted = [1, 2, 7, 26]
    if codec != CODEC_DELTA and of == DELTA_MX:
        wanted = [FORM, 15]
    rows = [row for row in rows if not is_let_through(row[0], form)]
    may_be_absent = {
        ROUNDING: "step-rounding-needed",
        ENTROPY: "entropy-needed",
        WIDTH: "lowrank-width-needed",
        PROJECT: "project-needed",
    }
    if "project-refused" in broken:
        wanted = [number for number in wanted if number != PROJECT]
    for optional, needed in may_be_absent.items():
        if not any(number == optional for number, _, _ in rows) and needed not in broken:
            wanted = [number for number in wanted if number != optional]
    wanted = [number for number in wanted if is_beside_rotation(number, rows)]
    if "entropy-of-raw" in broken and codec == CODEC_RAW:
        rows = [row for row in rows if row[0] != ENTROPY]
    if "block-unknown" in broken:
        rows = [row for row in rows if row[0] in wanted]
    if "block-unordered" in broken:
        rows.sort(key=lambda row: row[0])
    if "block-defaults" in broken:
        there = [number for number, _, _ in rows]
        missing = [n for n in wanted if n not in there and PARAMETERS[n].default]
        rows += [(n, bytes(3), PARAMETERS[n].default) for n in missing]
        rows.sort(key=lambda row: row[0])
    need([number for number, _, _ in rows] == wanted, "FORMAT", "parameters")
    for number, zero, value in rows:
        valid = value in values_of(number, of) or "block-values" in broken
        need(valid, "FORMAT", f"value of {PARAMETERS[number].name}")
        need(not any(zero) or "reserved-parameter" in broken, "FORMAT", "zero of a parameter")
    by_channel = any(number == 2 and value == CHANNEL for number, _, value in rows)
    both = by_channel and ENTROPY in wanted
    need(not both or "entropy-of-channels" in broken, "FORMAT", "entropy of channels")
    both = by_channel and TRANSFORM in wanted
    need(not both or "rotate-of-channels" in broken, "FORMAT", "rotation of channels")
    return {PARAMETERS[number].name: value for number, _, value in rows}


def is_beside_rotation(number, rows):
    """1.2: whether a frame with these rows may have the parameter, as far as 32 decides."""
    there = [row[0] for row in rows]
    if number == TRANSFORM:
        return TRANSFORM in there
    if number == ROTATE:
        return TRANSFORM in there or ("rotate-alone" in broken and ROTATE in there)
    return number != 9 or TRANSFORM not in there


def form_of(codec, rows):
    """The value of parameter 14, or 0 without it."""
    if codec == CODEC_BLOCKS:
        fitted = any(number == 41 and v == spec_blocks.QUANTILE for number, _, v in rows)
        return FITTED if fitted and "blocks-block-beside" not in broken else 0
    told = codec in SPARSE_CODECS and any(number == 15 for number, _, _ in rows)
    if told and "sparse-element-refused" not in broken:
        return WITH_ELEMENT
    if codec in (CODEC_TOPK, CODEC_RANDK, CODEC_LOWRANK):
        return WITH_BITS if any(number == 1 for number, _, _ in rows) else 0
    if codec in SPARSE_CODECS:
        return WITH_BITS
    values = [value for number, _, value in rows if number == FORM]
    return values[0] if values and codec in (CODEC_DELTA, CODEC_DIRECT) else 0


def is_let_through(number, form):
    """Whether a break takes a parameter that does not belong beside this form."""
    lax = {
        MICROSCALED: {"mx-form-beside": (1, 2), "step-rounding-alone": (4,)},
        STEPPED: {"step-bits-beside": (1,), "step-choose-beside": (9,)},
        0: {"step-rounding-alone": (4,)},
        WITH_ELEMENT: {"sparse-element-beside-bits": (1, 2)},
    }
    return any(name in broken and number in of for name, of in lax.get(form, {}).items())


def values_of(number, of):
    """1.2. of: the codec and the value of parameter 14, which decides about `key` and `group`."""
    (_, form), values, name = of, PARAMETERS[number].values, PARAMETERS[number].name
    if name == "form":
        return (form,)
    if isinstance(values, range):  # too many for a list
        return values
    more = {"key": KEYS, "group": GROUPS}.get(name, {})
    lax = {
        ("key", MICROSCALED): {"mx-key-bits": 0},
        ("key", 0): {"mx-key-alone": MICROSCALED, "step-key-alone": STEPPED},
        ("key", STEPPED): {"step-key-bits": 0, "step-key-element": MICROSCALED},
        ("group", STEPPED): {"step-group-channel": 0},
        ("group", 0): {"step-group-alone": STEPPED},
    }
    for break_, other in lax.get((name, form), {}).items():
        values = (*values, *(more[other] if break_ in broken else ()))
    if name == "rounding" and "step-rounding-any" in broken:
        return (*values, 1, 2)
    if name == "entropy" and "entropy-any" in broken:
        return (*values, 1, 3)
    if name == "transform" and "rotate-transform-any" in broken:
        return (*values, 1, 3)
    if name == "rotate" and "rotate-width-any" in broken:
        return (*values, 32, 128)
    return (*values, *more.get(form, ()))


def check_codec(h, tables):
    """The part of step 3 that depends on the codec. Returns the parameters."""
    need(h.codec in CODECS.values(), "FORMAT", "codec")
    parameters = parse_parameters(h.codec, tables.block)
    need(h.codec == CODEC_DELTA or h.F == 0, "FORMAT", "forgotten keys")
    dithered = "rounding" in parameters and "step-seed-refused" not in broken
    draws = h.codec in (CODEC_RANDK, CODEC_COCKTAIL)
    alike = h.flags & FLAG_ALIKE
    if "alike-with-dither" in broken:
        alike = alike and not dithered
    need(draws or not alike or "alike-any" in broken, "FORMAT", "places that are not drawn")
    need(not alike or "alike-refused" not in broken, "FORMAT", "places that are drawn alike")
    dithered |= draws and "sparse-seed-refused" not in broken
    need(h.seed == 0 or dithered or "seed-any" in broken, "FORMAT", "seed")
    need(h.seed or not dithered or "step-seed-needed" not in broken, "FORMAT", "seed")
    fits = h.C % parameters.get("rotate", 1) == 0 or "rotate-unfit" in broken
    need(fits, "FORMAT", "rotated blocks that do not divide a token")
    fits = h.C % parameters.get("tile", 1) == 0 or "tah-unfit" in broken
    need(fits, "FORMAT", "tiles that do not divide a token")
    for e in tables.entries:
        check_entry_of_codec(h, parameters, e)
    return parameters


def check_entry_of_codec(h, parameters, e):
    plain = e.role == STATELESS and e.use == WHOLE
    need(h.codec == CODEC_DELTA or plain, "FORMAT", "role or use that the codec has not")
    form = method_of(h.codec, parameters, e.use).form
    alike = "mx-form-unseen" in broken and form == MICROSCALED and e.form == QUANTIZED
    alike |= "step-form-unseen" in broken and form == STEPPED and e.form == QUANTIZED
    need(e.form == form or alike, "FORMAT", "form")
    digested = e.role in STATEFUL and is_audited(parameters)
    need((e.state_digest != 0) == digested, "FORMAT", "state_digest")
    if form == SPARSE:
        check_sparse_size(h, parameters, e)
        return
    if form == TAH:
        need(h.T * (h.C // parameters["tile"]) <= spec_tah.MOST, "FORMAT", "tiles of a sample")
        size = spec_tah.payload_bytes(sys.modules[__name__], h.T, h.C, parameters, broken)
        need(e.payload_bytes == size, "FORMAT", "payload_bytes")
        return
    if form == LOWRANK:
        check_lowrank_size(h, parameters, e)
        return
    size = payload_size(h, parameters, e.use)
    if is_coded(h, parameters, e.use) and "entropy-as-plain" not in broken:
        most = size + up(4 * groups_in(h, parameters, e.use), 16)
        bounded = e.payload_bytes <= most or "entropy-unbounded" in broken
        need(bounded, "FORMAT", "payload_bytes of an entropy-coded payload")
        short = e.payload_bytes < 16 and "entropy-short" in broken
        need(not short, "FORMAT", "payload_bytes of an entropy-coded payload")
    else:
        need(e.payload_bytes == size or "size-unchecked" in broken, "FORMAT", "payload_bytes")


def values_of_sparse(h, parameters):
    """3.10: the candidates, the method of the k values, and V."""
    of = parameters["keep"], parameters.get("mask"), parameters.get("chunk")
    shape = spec_sparse.Shape(h.T * h.C, *of, broken)
    k = shape.k
    if "bits" in parameters:
        method = Method(QUANTIZED, None, parameters["bits"], False)
        return shape, method, quantized_size(1, k, parameters["group"], method.bits, False)
    if "element" in parameters:
        method = microscaling(parameters["element"], False)
        return shape, method, quantized_size(1, k, BLOCK, method.bits, False, 1)
    method = Method(FLOATS, BY_CODE[parameters["dtype"]], 0, False)
    return shape, method, up(k * method.fmt.size, 16)


def check_sparse_size(h, parameters, e):
    """Step 3, payload_bytes of the form sparse (3.10)."""
    n = h.T * h.C
    need(n <= spec_sparse.MOST, "FORMAT", "values of a sparse sample")
    shape, _, V = values_of_sparse(h, parameters)
    if h.codec == CODEC_RANDK:
        need(e.payload_bytes == V, "FORMAT", "payload_bytes")
        return
    bounded = e.payload_bytes <= spec_sparse.most_bytes(shape, V)
    need(bounded, "FORMAT", "payload_bytes of a sparse payload")


def make_sparse(h, parameters, e, payload):
    """3.10. payload: (the places, the payload of the values), from plain_payload."""
    places, values = payload
    shape, method, _ = values_of_sparse(h, parameters)
    count, k = h.T * h.C, shape.k
    if method.form in (QUANTIZED, MICROSCALED):
        if method.form == QUANTIZED:
            made = Quantized(1, k, parameters["group"], method, None, None).read(values)
        else:
            made = Microscaled(1, k, method, None, None).read(values)
        all_values = [(False, 0)] * count
        for place, value in zip(places, made.values):
            all_values[place] = value
        return Made(all_values, None, None, None)
    made = make_floats(values, method.fmt, k, None)
    bits = [0] * count
    for place, b in zip(places, made.bits):
        bits[place] = convert(method.fmt, F32, b)
    all_values = [None if F32.is_nan(b) else F32.unpack(b) for b in bits]
    return Made(all_values, None, F32, bits)


def make_blocks(h, parameters, payload):
    """3.13."""
    how = parameters, h.T, h.C, payload, broken
    bits = spec_blocks.entries_of(*how)
    entries = [None if b is None or is_poison(b) else F32.unpack(b) for b in bits]
    blocks, values = spec_blocks.blocks_of(*how), []
    for block in blocks:
        if block.scale is not None and is_poison(block.scale):
            values += [None] * len(block.codes)
            continue
        scale = F32.unpack(0x3F800000 if block.scale is None else block.scale)
        if block.scale is None and "blocks-fitted-scaled" in broken:
            scale = max((e for e in entries if e), key=lambda e: e[1])
        if "blocks-negative" in broken:
            scale = False, scale[1]
        values += [product_of(entries[code], scale) for code in block.codes]
    if "blocks-poison-all" in broken and None in values:
        values = [None] * len(values)
    return Made(values, None, None, None)


def is_poison(bits):
    return F32.is_nan(bits) or (not F32.is_finite(bits) and "blocks-infinite" not in broken)


def product_of(entry, scale):
    """5 steps 3 and 4; None is NaN."""
    if entry is None:
        return None
    if INFINITY in (entry[1], scale[1]):
        return entry[0] != scale[0], INFINITY
    value = F32.unpack(F32.pack((entry[0] != scale[0], entry[1] * scale[1]), 149))
    return value if "blocks-minus-zero" in broken else add((False, 0), value)


def width_of(parameters, e):
    """3.11: H; 0 where an entry is not rotated."""
    if e.role == KEY and "rotate-key-plain" in broken:
        return 0
    return parameters.get("rotate", 0)


def factor_size(r, L, parameters):
    """3.12: the bytes of a factor, r rows of L values."""
    if "bits" in parameters:
        group = spec_lowrank.group_of(L, parameters["group"], broken)
        return quantized_size(r, L, group, parameters["bits"], False)
    return up(r * L * BY_CODE[parameters["dtype"]].size, 16)


def matrix_of(h, parameters):
    try:
        return spec_lowrank.matrix(h.T, h.C, parameters, broken)
    except spec_lowrank.Invalid as rule:
        raise Refused("FORMAT", str(rule)) from rule


def check_lowrank_size(h, parameters, e):
    """Step 3, payload_bytes of the form lowrank (3.12)."""
    R, W, r = matrix_of(h, parameters)
    size = factor_size(r, R, parameters) + factor_size(r, W, parameters)
    need(e.payload_bytes == size, "FORMAT", "payload_bytes")


def read_factor(payload, r, L, parameters):
    """3.12: the values of a factor, row by row; None is NaN or poisoned."""
    if "bits" in parameters:
        method = Method(QUANTIZED, None, parameters["bits"], False)
        group = spec_lowrank.group_of(L, parameters["group"], broken)
        values = Quantized(r, L, group, method, None, None).read(payload).values
        return [v if v is None else F32.unpack(rn(F32, v)) for v in values]
    made = make_floats(payload, BY_CODE[parameters["dtype"]], r * L, None)
    if "lowrank-infinite" in broken:
        return made.values
    return [None if v is not None and v[1] == INFINITY else v for v in made.values]


def rank_product_of(a, b):
    """The binary32 product of two binary32."""
    if INFINITY in (a[1], b[1]):  # only a break lets them come here
        return a[0] != b[0], INFINITY
    exact = a[0] != b[0], a[1] * b[1]
    if "lowrank-product-exact" in broken:
        return exact[0], exact[1] >> 149
    return F32.unpack(F32.pack(exact, 149))


def sum_of_ranks(pairs):
    """3.12: s, or None if it is NaN."""
    s = False, 0
    for p, q in pairs:
        if p is None or q is None:
            return None
        part = rank_product_of(p, q)
        if s[1] == part[1] == INFINITY and s[0] != part[0]:
            if "lowrank-meeting" not in broken:
                return None
        if "lowrank-sum-exact" in broken:
            total = (-s[1] if s[0] else s[1]) + (-part[1] if part[0] else part[1])
            s = total < 0, abs(total)
        else:
            s = add(s, part)
    return s


def make_lowrank(h, parameters, payload):
    """3.12."""
    R, W, r = matrix_of(h, parameters)
    sizes = factor_size(r, R, parameters), factor_size(r, W, parameters)
    first, second = payload[: sizes[0]], payload[sizes[0] :]
    if "lowrank-q-first" in broken:
        second, first = payload[: sizes[1]], payload[sizes[1] :]
    P = read_factor(first, r, R, parameters)
    Q = read_factor(second, r, W, parameters)
    if None in P + Q and "lowrank-poison-reached" not in broken:
        return Made([None] * (h.T * h.C), None, None, None)
    order, across = spec_lowrank.ranks(r, broken), "lowrank-transposed" in broken
    values = []
    for n in range(h.T * h.C):
        i, j = spec_lowrank.place(n, R, W, broken)
        pairs = [(P[i * r + k if across else k * R + i], Q[k * W + j]) for k in order]
        values.append(sum_of_ranks(pairs))
    return Made(values, None, None, None)


def is_audited(parameters):
    return parameters["audit"] != NEVER or "never-is-255" in broken


def method_of(codec, parameters, use):
    """1.3: the meaning of a use in a codec."""
    if use == NOTHING:
        return Method(NO_PAYLOAD, None, 0, False)
    if codec == CODEC_RAW:
        return Method(FLOATS, BY_CODE[parameters["dtype"]], 0, False)
    if codec in SPARSE_CODECS:
        return Method(SPARSE, None, 0, False)
    if codec == CODEC_BLOCKS:
        return Method(BLOCKS, None, 8, False)
    if codec == CODEC_TAH:
        return Method(TAH, None, 0, False)
    if codec == CODEC_LOWRANK:
        return Method(LOWRANK, None, 0, False)
    if codec == CODEC_MX:
        return microscaling(parameters["element"], False)
    if codec == CODEC_DIRECT and "form" in parameters:
        return Method(STEPPED, None, 8, False)
    if codec == CODEC_DIRECT:
        return Method(QUANTIZED, None, parameters["bits"], False)
    chooses, key = parameters.get("choose") == 1, parameters["key"]
    if use == EXACT:
        fmt = BY_CODE[parameters["prev"]]
        return Method(FLOATS, BY_KEY.get(key, fmt) if "exact-of-key" in broken else fmt, 0, False)
    if use == WHOLE and key in BY_KEY:
        return Method(FLOATS, BY_KEY[key], 0, False)
    if parameters.get("form") == STEPPED:
        return Method(STEPPED, None, 8, "step-choices" in broken and use == CHANGE)
    if "form" in parameters:
        return microscaled_use(parameters, use, chooses)
    bits = parameters["bits"]
    if use == CHANGE:
        return Method(QUANTIZED, None, bits, chooses)
    if use == BRIEF:
        choices = chooses and "brief-choices" in broken
        return Method(QUANTIZED, None, key if "brief-key-bits" in broken else bits, choices)
    return Method(QUANTIZED, None, bits if "key-bits" in broken else key, False)


def microscaling(number, choices):
    element = ELEMENTS[number]
    return Method(MICROSCALED, element, element.bits, choices)


def microscaled_use(parameters, use, chooses):
    """1.3: the meaning of a use with parameter 14, unless it is floats."""
    element, key = parameters["element"], parameters["key"] - KEY_ELEMENT
    if use == CHANGE:
        return microscaling(element, chooses and "mx-no-choices" not in broken)
    if use == BRIEF:
        return microscaling(key if "mx-brief" in broken and key > 0 else element, False)
    return microscaling(element if "mx-key" in broken else key, False)


def payload_size(h, parameters, use):
    """The size of an entry's payload in bytes (section 3)."""
    method = method_of(h.codec, parameters, use)
    if method.form == NO_PAYLOAD:
        return 0
    if method.form == FLOATS:
        return up(h.T * h.C * method.fmt.size, 16)
    if method.form == BLOCKS:
        return spec_blocks.payload_bytes(parameters, h.T, h.C, broken)
    if method.form == MICROSCALED:
        of_scale = 2 if "mx-scale-bf16" in broken else 1
        T, C = mx_shape(h.T, h.C)
        return quantized_size(T, C, BLOCK, method.bits, method.choices, of_scale)
    return quantized_size(h.T, h.C, parameters["group"], method.bits, method.choices)


def is_coded(h, parameters, use):
    """3.8: returns whether the payload of an entry with this use is entropy-coded."""
    form = method_of(h.codec, parameters, use).form
    floats = form == FLOATS and "entropy-floats" not in broken
    return "entropy" in parameters and form != NO_PAYLOAD and not floats


def coded_group(method, parameters):
    """Returns the number of elements of a segment, as the parameter `group` says it. Microscaled
    payloads have segments of one block."""
    return parameters["group"] if method.form in (QUANTIZED, STEPPED) else BLOCK


def groups_in(h, parameters, use):
    """3.8: returns how many groups of tiles the payload of an entry with this use has. It is
    computed without a loop, because T and C are not checked yet."""
    group = coded_group(method_of(h.codec, parameters, use), parameters)
    segments, cut = h.T * pieces_per_row(h.C, group), long_rows(h.C, group)
    tiles = segments if cut else -(-segments // (TILE // cut_row(h.C, group)[1]))
    per_row = pieces_per_row(h.C, group) if cut else 0
    return spec_entropy.count_groups(h.T, per_row, tiles, broken)


def plain_payload(h, parameters, e, payload):
    """3.8: returns the plain payload of an entry, which is `payload` itself if that is not
    entropy-coded; of a sparse one (3.10) the places and the payload of the values. Refuses it with
    FORMAT if a rule is broken."""
    if h.codec in SPARSE_CODECS:
        return sparse_parts(h, parameters, e, payload)
    if h.codec == CODEC_TAH:
        try:
            spec_tah.check(sys.modules[__name__], h.T, h.C, parameters, payload, broken)
        except spec_tah.Invalid as rule:
            raise Refused("FORMAT", str(rule)) from rule
        return payload
    if not is_coded(h, parameters, e.use):
        return payload
    method = method_of(h.codec, parameters, e.use)
    group = coded_group(method, parameters)
    of_scale = 1 if method.form == MICROSCALED else 2
    widths = [p for p in (8, 4, 2, 1) if method.bits & p]
    tiles = [
        spec_entropy.Tile(
            up(of_scale * scales_in_tile(len(tile), group), 16),
            widths,
            [(piece.start, piece.w, piece.g) for piece in tile],
        )
        for tile in tiles_of(h.T, h.C, group)
    ]
    front = front_bytes(h.T, h.C, group, method.choices)
    per_row = pieces_per_row(h.C, group) if long_rows(h.C, group) else 0
    generator = generator_of(h, parameters, e)
    z = generator.z if generator else None
    try:
        in_steps = method.form == STEPPED
        return spec_entropy.plain_payload(payload, front, tiles, per_row, z, in_steps, broken)
    except spec_entropy.Invalid as rule:
        raise Refused("FORMAT", str(rule)) from rule


def sparse_parts(h, parameters, e, payload):
    """3.10: the places, and the payload of the values."""
    n = h.T * h.C
    shape, _, V = values_of_sparse(h, parameters)
    fields = [h.seed, e.sample, e.slice, h.sequence, h.incarnation]
    if h.flags & FLAG_ALIKE and "alike-unseen" not in broken:
        fields = fields[:4] if "alike-sequence" in broken else fields[:3]
    generator = Generator(*fields)
    if h.codec == CODEC_RANDK:
        return spec_sparse.drawn(n, shape.k, generator.part, broken), payload
    try:
        places, values = spec_sparse.places_of(payload, shape, V, broken)
    except spec_sparse.Invalid as rule:
        raise Refused("FORMAT", str(rule)) from rule
    if shape.draws and "cocktail-places" not in broken:
        drawn = spec_sparse.drawn(n, shape.m, generator.part, broken)
        places = [drawn[i] for i in places]
    return places, values


def check_keys(entries, forgotten):
    """Step 6: all entries with state have different keys, and none of these is forgotten."""
    keys = [(e.sample, e.slice) for e in entries if e.role in STATEFUL]
    need(len(set(keys)) == len(keys) or "doubled-unseen" in broken, "FORMAT", "doubled key")
    apart = not set(keys) & set(forgotten) or "forgotten-entry" in broken
    need(apart, "FORMAT", "forgotten key with an entry")


def cut_payloads(frame, h, entries):
    """Where the payloads lie (section 1)."""
    payloads, at = [], tables_end(h)
    if "payloads-from-behind" in broken:
        at += len(frame) - h.length
    for e in entries:
        payloads.append(frame[at : at + e.payload_bytes])
        at += e.payload_bytes
    return payloads


def chain_of(h, tables, e):
    """Section 2."""
    # If step 3 refuses a block, prev may be missing; then no chain that is held was made with it.
    prev = [value & 0xFF for number, _, value in PARAMETER.iter_unpack(tables.block) if number == 8]
    fields = {
        "base": e.base_chain,
        "incarnation": h.incarnation,
        "sample": e.sample,
        "slice": e.slice,
        "role": e.role,
        "form": e.form,
        "use": e.use,
        "prev": prev[0] if prev else 0,
        "sequence": h.sequence,
        "payload-digest": e.payload_digest,
        "tokens": h.T,
        "channels": h.C,
        "parameters": H(tables.block),
        "seed": h.seed,
        "codec": h.codec,
        "zero": bytes(7),
    }
    names = [name for name in CHAIN if f"chain-without-{name}" not in broken]
    return H(b"".join(struct.pack("<" + CHAIN[name], fields[name]) for name in names)) or 1


def digest(words, wanted):
    """Section 4: the sum over the wanted pairs."""
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


def phase_of(sample, slice_, sequence):
    """Section 4: which stretches of a visit of a key are audited."""
    if "audit-from-zero" in broken:
        return 0
    if "audit-of-sequence" in broken:
        return sequence
    if "audit-of-sample" in broken:
        slice_ = 0
    if "audit-of-key" in broken:
        sequence = 0
    return H(struct.pack("<QIIQ", sample, slice_, 0, sequence))


def state_digest(prev, fmt, audit, sample, slice_, sequence):
    """Section 4. `prev` is a list of bit patterns."""
    words = prev if fmt.size == 4 else [a | b << 16 for a, b in zip(prev[::2], prev[1::2] + [0])]
    pairs = TILE * fmt.size // 8  # per stretch
    wanted = phase_of(sample, slice_, sequence) % audit
    return digest(words, lambda i: "audit-all" in broken or i // pairs % audit == wanted)


def payload_digest(payload):
    """Section 4: the digest of all words of a payload."""
    return digest(elements(payload, F32), lambda i: "payload-half" not in broken or i % 2 == 0)


# ------------------------------------------------------------------------------------------------
# Reconstruction: sections 3 and 5

# The result of a payload: values, each exact or None for NaN; prev' as bit patterns, or None if
# there is no state; and, for stateless floats, the format and the bit patterns themselves.
Made = namedtuple("Made", "values prev fmt bits")


def make_floats(payload, fmt, count, prev_fmt):
    """3.1."""
    bits = elements(payload[: count * fmt.size], fmt)
    if prev_fmt is None:
        return Made([None if fmt.is_nan(b) else fmt.unpack(b) for b in bits], None, fmt, bits)
    finite = [fmt.is_finite(b) for b in bits]
    prev = [rn(prev_fmt, fmt.unpack(b)) if ok else 0 for b, ok in zip(bits, finite)]
    values = [prev_fmt.unpack(b) if ok else None for b, ok in zip(prev, finite)]
    return Made(values, prev, None, None)


def make_skip(held, prev_fmt):
    """3.4."""
    prev = [0] * len(held) if "skip-clears" in broken else list(held)
    return Made([prev_fmt.unpack(b) for b in prev], prev, None, None)


class Quantized:
    """Computes the values and prev' (5) of one quantized payload (3.2).

    `held` is the base for the role delta, otherwise None. prev is first what is held, or +0, and
    then becomes prev'; it is None if there is no state."""

    def __init__(self, T, C, group, method, held, prev_fmt):
        self.T, self.C, self.group = T, C, group
        self.bits, self.chooses = method.bits, method.choices
        self.held, self.prev_fmt = held, prev_fmt
        self.values = [None] * (T * C)
        self.prev = None
        if prev_fmt is not None:
            self.prev = list(held) if held is not None else [0] * (T * C)

    def read(self, payload):
        at, number, choices, by_channel = 0, 0, None, None
        if self.chooses:
            pieces = pieces_of(self.T, self.C, self.group)
            choices, at = read_choices(payload, pieces), choice_bytes(pieces)
        if self.group == CHANNEL:
            by_channel = elements(payload[at : at + 2 * self.C], BF16)
            at += up(2 * self.C, 16)
        of_sample = None
        if self.group == SAMPLE and scales_in_tile(1, SAMPLE) == 0:
            of_sample = elements(payload[at : at + 2], BF16)[0]
            at += 16
        for tile in tiles_of(self.T, self.C, self.group):
            n = sum(segment.g for segment in tile)
            in_tile = scales_in_tile(len(tile), self.group)
            scales = elements(payload[at : at + 2 * in_tile], BF16)
            codes = read_codes(payload[at + up(2 * in_tile, 16) :], n, self.bits)
            at += tile_bytes(in_tile, n, self.bits)
            first = 0
            for place, segment in enumerate(tile):
                part = codes[first : first + segment.w]
                if self.group == CHANNEL:
                    self.make_columns(segment.start, part, by_channel, choices)
                else:
                    direct = choices is not None and choices[number] == 1
                    scale = scales[place] if of_sample is None else of_sample
                    self.make_piece(segment.start, part, scale, direct)
                first += segment.g
                number += 1
        return Made(self.values, self.prev, None, None)

    def make_columns(self, start, codes, by_channel, choices):
        """A segment in which every channel is a piece."""
        for i, code in enumerate(codes, start):
            channel = i // self.C if "channel-of-row" in broken else i % self.C
            direct = choices is not None and choices[channel] == 1
            self.make_piece(i, [code], by_channel[channel], direct)

    def make_piece(self, start, codes, scale, direct):
        """Section 5, Reconstruction."""
        if self.is_poisoned(scale):  # step 2
            clears = "poison-clears" in broken or ("poison-direct-clears" in broken and direct)
            if self.prev is not None and clears:
                self.prev[start : start + len(codes)] = [0] * len(codes)
            return
        with_base = self.held is not None and (not direct or "base-in-direct" in broken)
        for i, value in enumerate(self.values_of(start, codes, scale), start):
            if value is None:
                continue  # only with a break
            base = self.prev_fmt.unpack(self.held[i]) if with_base else (False, 0)  # step 1
            r = add(base, value)  # step 4
            if "keep-minus-zero" in broken and not with_base:
                r = value
            self.values[i] = r  # step 5
            if self.prev is not None:
                self.prev[i] = rn(self.prev_fmt, r)
                if "y-from-r" not in broken:
                    self.values[i] = self.prev_fmt.unpack(self.prev[i])

    def is_poisoned(self, scale):
        return not BF16.is_finite(scale)

    def values_of(self, start, codes, scale):
        """Step 3, of the elements of a piece from element `start` of the sample on."""
        value_of = self.levels(codes, scale)
        return [value_of[code] for code in codes]

    def levels(self, codes, scale):
        """The value of each code."""
        s, middle = BF16.unpack(scale), 1 << (self.bits - 1)
        one_bit = self.bits == 1 and "one-bit-zero" not in broken
        return {code: scaled(2 * code - 1 if one_bit else code - middle, s) for code in set(codes)}


class Microscaled(Quantized):
    """The same for a microscaled payload (3.3), whose pieces are blocks."""

    def __init__(self, T, C, method, held, prev_fmt):
        super().__init__(*mx_shape(T, C), BLOCK, method, held, prev_fmt)
        self.element = method.fmt

    def read(self, payload):
        at, number, choices = 0, 0, None
        if self.chooses:
            blocks = pieces_of(self.T, self.C, BLOCK)
            choices, at = read_choices(payload, blocks, "mx-choices-reversed"), choice_bytes(blocks)
        for tile in tiles_of(self.T, self.C, BLOCK):
            codes_at = at + up(len(tile), 16)
            n = BLOCK * len(tile)
            codes = read_codes(payload[codes_at:], n, self.bits, self.element.widths())
            for place, block in enumerate(tile):
                part = codes[BLOCK * place : BLOCK * place + block.w]
                direct = choices is not None and choices[number] == 1
                self.make_piece(block.start, part, payload[at + place], direct)
                number += 1
            at += tile_bytes(len(tile), n, self.bits, 1)
        return Made(self.values, self.prev, None, None)

    def is_poisoned(self, scale):
        if scale == 254 and "mx-scale-254" in broken:
            return True
        return scale == 0xFF and "mx-scale-ff" not in broken

    def levels(self, codes, scale):
        return {code: microscaled(self.element.value(code), scale) for code in set(codes)}


class Stepped(Quantized):
    """The same for a payload in steps (3.4)."""

    def __init__(self, T, C, group, method, held, prev_fmt, generator):
        super().__init__(T, C, group, method, held, prev_fmt)
        self.generator = generator

    def make_piece(self, start, codes, scale, direct):
        if self.group == SAMPLE and start:
            scale = 0 if "step-sample-row" in broken else scale
            scale = 0 if "step-poison-segment" in broken and self.is_poisoned(scale) else scale
        super().make_piece(start, codes, scale, direct)

    def values_of(self, start, codes, scale):
        return [self.value_of(start, i, code, scale) for i, code in enumerate(codes)]

    def value_of(self, start, i, code, scale):
        """Of element i of a segment."""
        s, q = BF16.unpack(scale), code - (127 if "step-middle" in broken else 128)
        if "step-code-0" in broken:
            q = max(q, -127)
        if "step-negative" in broken:
            s = False, s[1]
        if self.generator is None:
            return scaled(q, s)
        element = start + i
        if "dither-of-piece" in broken:
            element = i
        if "dither-stored" in broken:
            element += start // self.C * (up(self.C, 32) - self.C)
        return dithered(q, self.generator.z(element), s)


def dithered(q, z, s):
    """(q - z) * s, the difference and the product rounded once; z is in units of 2^-17."""
    amount = (q << 17) + (z if "step-dither-added" in broken else -z)
    bits = abs(amount).bit_length() - F32.digits
    if bits > 0 and "step-dither-wide" not in broken:
        amount = (round_shift(abs(amount), bits) << bits) * (-1 if amount < 0 else 1)
    exact = s[0] != (amount < 0), abs(amount) * s[1]  # in units of 2^-(149 + 17)
    if "step-dither-product" in broken:
        of_z = F32.unpack(F32.pack((s[0] == (z > 0), abs(z) * s[1]), 17))
        return add(scaled(q, s), of_z)
    if "step-dither-exact" in broken:
        return exact[0], exact[1] >> 17
    return F32.unpack(F32.pack(exact, 17))


def write(made, y_fmt):
    """Returns y as bit patterns."""
    if made.bits is not None:
        return [convert(made.fmt, y_fmt, b) for b in made.bits]
    return [y_fmt.nan if v is None else rn(y_fmt, v) for v in made.values]


def write_added(made, y_fmt, factor, before):
    """Section 5, Adding: `factor` is the bit pattern of a binary32; `before` are those of y."""
    values = made.values
    if made.bits is None:  # quantized, or with state: first rounded to binary32 by RN
        values = [v if v is None else F32.unpack(rn(F32, v)) for v in values]
    return [add_scaled(y_fmt, b, factor, value) for b, value in zip(before, values)]


def add_scaled(y_fmt, before, factor, value):
    if value is None or F32.is_nan(factor) or y_fmt.is_nan(before):
        return y_fmt.nan
    a, b = F32.unpack(factor), value
    if INFINITY in (a[1], b[1]):
        if 0 in (a[1], b[1]):
            return y_fmt.nan
        product = a[0] != b[0], INFINITY
    else:
        product = F32.unpack(F32.pack((a[0] != b[0], a[1] * b[1]), 149))
    y = y_fmt.unpack(before)
    if y[1] == product[1] == INFINITY and y[0] != product[0]:
        return y_fmt.nan
    return y_fmt.pack(to_binary32(add(y, product)))


# ------------------------------------------------------------------------------------------------
# The decoder: section 2

Held = namedtuple("Held", "prev fmt T C incarnation version chain digest audit")


class Decoder:
    def __init__(self, codec, parameters, own=(), options=()):
        """codec: a name of CODECS; parameters: {name: number} as in 1.2; own: the names of those
        that the config does not fix, so that they depend on x's dtype; options: the encoder's, as
        text, for ruled_payloads."""
        self.options = dict(options)
        self.codec, self.parameters, self.own = CODECS[codec], dict(parameters), tuple(own)
        self.held = {}  # (sample, slice) -> Held
        self.incarnation = None  # of the last accepted frame with state
        self.replaced = []  # incarnations that were replaced, the latest last
        self.dropped = None, 0  # incarnation, and the highest sequence at which a key was dropped
        self.status = "OK"  # of the last frame
        self.first_x = None

    def prev(self, sample, slice_):
        """What is held for a key, as bit patterns, and its format; or nothing, and None."""
        held = self.held.get((sample, slice_))
        return ([], None) if held is None else (list(held.prev), held.fmt)

    def decode(self, frame, n, t, c, y_dtype, adds=None):
        """Returns (status, y). y is a list of the bit patterns of all entries, or None if the
        status is not OK. adds: (factor, y before) as bit patterns, to add to y instead of writing
        it."""
        try:
            y, self.status = self._decode(bytes(frame), (n, t, c), BY_NAME[y_dtype], adds), "OK"
        except Refused as refusal:
            y, self.status = None, refusal.status
        return self.status, y

    def _decode(self, frame, shape, y_fmt, adds):
        h = parse_header(frame)  # step 1
        tables = parse_tables(frame, h)  # steps 2 and 3
        need(len(frame) >= h.length or "cut-unseen" in broken, "FORMAT", "cut short")
        whole = len(frame) == h.length or "padding-refused" not in broken
        need(whole, "FORMAT", "bytes behind the frame")
        parameters = check_codec(h, tables)
        self._check_receiver(h, parameters, shape)  # steps 4 and 5
        payloads = cut_payloads(frame, h, tables.entries)
        plain = self._admit(h, parameters, tables, payloads)  # steps 6 to 8
        made = [self._make(h, parameters, e, p) for e, p in zip(tables.entries, plain)]  # step 9
        self._check_state(h, parameters, tables.entries, made)
        self._commit(h, parameters, tables, made)  # step 10
        count = h.T * h.C
        if adds is None:
            return [bits for m in made for bits in write(m, y_fmt)]
        factor, before = adds
        return [
            bits
            for i, m in enumerate(made)
            for bits in write_added(m, y_fmt, factor, before[i * count : (i + 1) * count])
        ]

    def _check_receiver(self, h, parameters, shape):
        """Steps 4 and 5."""
        if "mismatch-after-shape" in broken:
            need((h.N, h.T, h.C) == shape, "SHAPE")
        own = self._own_parameters(h)
        if "project-unseen" in broken:
            own = {**own, "project": parameters.get("project")}
            parameters = {"project": None, **parameters}
        mine = h.codec == self.codec and parameters == own
        if "mismatch-unseen" in broken:
            mine = h.codec == self.codec
        need(mine, "MISMATCH")
        need((h.N, h.T, h.C) == shape, "SHAPE")

    def _own_parameters(self, h):
        """The decoder's parameters; those that the config does not fix depend on x's dtype."""
        x = h.x
        if "own-of-first" in broken:
            x = self.first_x = self.first_x or x
        of_x = {"prev": x, "dtype": x, "key": BY_CODE[x].key}
        return {**self.parameters, **{name: of_x[name] for name in self.own}}

    def _admit(self, h, parameters, tables, payloads):
        """Does the steps 6 to 8. Returns the plain payload of each entry."""
        if "doubled-after-step" not in broken:
            check_keys(tables.entries, tables.forgotten)
        if "entropy-before-base" in broken:
            self._plain(h, parameters, tables.entries, payloads)
        if "corrupt-before-base" in broken:
            check_digests(tables.entries, payloads)
        self._check_in_step(h, parameters, tables.entries)
        if "doubled-after-step" in broken:
            check_keys(tables.entries, tables.forgotten)
        if "entropy-before-digests" in broken:
            self._plain(h, parameters, tables.entries, payloads)
        if "entropy-entry-by-entry" in broken:
            for one in zip(tables.entries, payloads):
                check_digests(*([part] for part in one))
                self._plain(h, parameters, *([part] for part in one))
        if "entropy-of-plain" in broken:
            payloads = self._plain(h, parameters, tables.entries, payloads)
            check_digests(tables.entries, payloads)
            return payloads
        check_digests(tables.entries, payloads)
        return self._plain(h, parameters, tables.entries, payloads)

    def _plain(self, h, parameters, entries, payloads):
        """3.8: returns the plain payload of each entry. payloads: those of the frame."""
        try:
            return [plain_payload(h, parameters, e, p) for e, p in zip(entries, payloads)]
        except Refused:
            if "entropy-drops" in broken:
                for e in entries:
                    self._drop_copy((e.sample, e.slice))
            raise

    def _check_in_step(self, h, parameters, entries):
        """Step 7. If entries disagree, BASE comes before STALE."""
        found = [self._step_of(h, parameters, e) for e in entries if e.role in STATEFUL]
        order = ("STALE", "BASE") if "stale-before-base" in broken else ("BASE", "STALE")
        for status in order:
            need(status not in found, status)

    def _step_of(self, h, parameters, e):
        held = self.held.get((e.sample, e.slice))
        same = held is not None and held.incarnation == h.incarnation
        if "no-stale" not in broken and (
            h.incarnation in self.replaced or (same and h.sequence <= held.version)
        ):
            return "STALE"
        if e.role not in FROM_BASE:
            refused = not same and self._refuses(h) and "take-dropped" not in broken
            return "STALE" if refused else "OK"
        shaped = same and ((held.T, held.C) == (h.T, h.C) or "any-shape" in broken)
        if not shaped or held.fmt is not BY_CODE[parameters["prev"]]:
            return "BASE"
        any_base = e.role == SKIP and "skip-any-base" in broken
        return "OK" if held.chain == e.base_chain or any_base else "BASE"

    def _make(self, h, parameters, e, payload):
        """Section 3."""
        prev_fmt = BY_CODE[parameters["prev"]] if e.role in STATEFUL else None
        held = self.held[e.sample, e.slice].prev if e.role in FROM_BASE else None
        if e.role == SKIP:
            return make_skip(held, prev_fmt)
        method = method_of(h.codec, parameters, e.use)
        if method.form == SPARSE:
            return make_sparse(h, parameters, e, payload)
        if method.form == BLOCKS:
            return make_blocks(h, parameters, payload)
        if method.form == TAH:
            values = spec_tah.make(sys.modules[__name__], h.T, h.C, parameters, payload, broken)
            return Made(values, None, None, None)
        if method.form == LOWRANK:
            return make_lowrank(h, parameters, payload)
        if method.form == FLOATS:
            return make_floats(payload, method.fmt, h.T * h.C, prev_fmt)
        if width_of(parameters, e):
            values = self._read(h, parameters, e, payload, None, None).values
            rotated = width_of(parameters, e), held, prev_fmt, broken
            return Made(*spec_rotated.made(sys.modules[__name__], values, *rotated), None, None)
        return self._read(h, parameters, e, payload, held, prev_fmt)

    def _read(self, h, parameters, e, payload, held, prev_fmt):
        """3.2 to 3.4."""
        method = method_of(h.codec, parameters, e.use)
        if method.form == MICROSCALED:
            return Microscaled(h.T, h.C, method, held, prev_fmt).read(payload)
        if method.form == STEPPED:
            how = parameters["group"], method, held, prev_fmt, generator_of(h, parameters, e)
            return Stepped(h.T, h.C, *how).read(payload)
        return Quantized(h.T, h.C, parameters["group"], method, held, prev_fmt).read(payload)

    def _refuses(self, h):
        """Step 7: a key of this incarnation was dropped at this sequence or at a later one."""
        life, sequence = self.dropped
        return h.incarnation == life and h.sequence <= sequence

    def _drop(self, life, sequence):
        before, highest = self.dropped
        self.dropped = life, max(sequence, highest) if life == before else sequence

    def _drop_copy(self, key):
        held = self.held.pop(key, None)
        if held is not None:
            self._drop(held.incarnation, held.version)

    def _check_state(self, h, parameters, entries, made):
        """Step 9: drops every base from which an entry was decoded with a wrong digest."""
        if "no-state-check" in broken:
            return
        wrong = [
            e
            for e, m in zip(entries, made)
            if e.state_digest and not (e.role == SKIP and "skip-unaudited" in broken)
            if e.state_digest != self._digest_of(h, parameters, e, m)
        ]
        for e in wrong:
            keeps = "keep-after-state" in broken
            keeps |= e.role == SKIP and "skip-keeps-copy" in broken
            if e.base_chain and not keeps:
                self._drop_copy((e.sample, e.slice))
        need(not wrong, "STATE")

    def _digest_of(self, h, parameters, e, made):
        fmt = BY_CODE[parameters["prev"]]
        audit = parameters["audit"]
        return state_digest(made.prev, fmt, audit, e.sample, e.slice, h.sequence)

    def _commit(self, h, parameters, tables, made):
        """Step 10."""
        for e, m in zip(tables.entries, made):
            if m.prev is None:
                continue
            version, chain = h.sequence, chain_of(h, tables, e)
            if e.role == SKIP and "skip-keeps-version" in broken:
                held = self.held[e.sample, e.slice]
                version, chain = held.version, held.chain
            fmt, audit = BY_CODE[parameters["prev"]], parameters["audit"]
            state = h.incarnation, version, chain, e.state_digest, audit
            self.held[e.sample, e.slice] = Held(m.prev, fmt, h.T, h.C, *state)
        if tables.forgotten and h.incarnation not in self.replaced:
            self._drop(h.incarnation, h.sequence)
        for key in tables.forgotten:
            self._forget(h, key)
        stateful = any(e.role in STATEFUL for e in tables.entries)
        if stateful or "replaced-by-stateless" in broken:
            self._follow(h.incarnation)

    def _forget(self, h, key):
        held = self.held.get(key)
        if held is None or "keep-forgotten" in broken:
            return
        older = held.version < h.sequence or "forget-newer" in broken
        if older and (held.incarnation == h.incarnation or "forget-other-lives" in broken):
            del self.held[key]

    def _follow(self, incarnation):
        """Step 7: an accepted frame with state replaces the incarnation before it."""
        before, self.incarnation = self.incarnation, incarnation
        if before != incarnation and "keep-other-lives" not in broken:
            self.held = {
                k: held for k, held in self.held.items() if held.incarnation == incarnation
            }
        if before not in (None, incarnation) and "forget-replaced" not in broken:
            remembered = 1 if "remember-one" in broken else REMEMBERED
            self.replaced = (self.replaced + [before])[-remembered:]

    # Section 6, as far as the decoder is concerned.

    def reply(self, frame):
        """The reply to a frame that was given to decode(), or b"" if it gets none."""
        try:
            h = parse_header(bytes(frame))
            tables = parse_tables(bytes(frame), h)
        except Refused:
            return b""
        entries = [e for e in tables.entries if e.role in STATEFUL]
        wanted = h.flags & FLAG_REPLY or "reply-unasked" in broken
        wanted = wanted and (len(frame) >= h.length or "reply-of-whole" not in broken)
        if not wanted or not (entries or tables.forgotten):
            return b""
        if self.status != "OK":
            self._drop_changed_copies(entries)
        accepted = self.status == "OK"
        if entries:
            accepted = all(self._holds(h, tables, e) for e in entries)
        if "duplicate-nack" in broken and self.status != "OK":
            accepted = False
        untold = "replaced-untold" in broken
        replaced = h.incarnation in self.replaced and not untold
        answer = ACK if accepted else REPLACED if replaced else NACK
        return build_reply(answer, h.incarnation, h.sequence, [self._named(h, e) for e in entries])

    def _holds(self, h, tables, e):
        held = self.held.get((e.sample, e.slice))
        return held is not None and held.chain == chain_of(h, tables, e)

    def _drop_changed_copies(self, entries):
        for key in ((e.sample, e.slice) for e in entries):
            held = self.held.get(key)
            if held is not None and held.digest and "no-state-check" not in broken:
                if held.digest != state_digest(held.prev, held.fmt, held.audit, *key, held.version):
                    self._drop_copy(key)

    def _named(self, h, e):
        held = self.held.get((e.sample, e.slice))
        if held is None and self._refuses(h):
            return ReplyEntry(e.sample, e.slice, 0, *self.dropped, 0)
        if held is None:
            return ReplyEntry(e.sample, e.slice, 0, 0, 0, 0)
        return ReplyEntry(e.sample, e.slice, 1, held.incarnation, held.version, held.chain)


def check_digests(entries, payloads):
    """Step 8."""
    for e, payload in zip(entries, payloads):
        if e.role != SKIP:
            need(e.payload_digest == payload_digest(payload), "CORRUPT", "payload_digest")


# ------------------------------------------------------------------------------------------------
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
    head = REPLY.pack(b"DWR1", 2, 0, answer, 0, incarnation, sequence, len(entries), 0, H(table), 0)
    return head[:40] + struct.pack("<Q", H(head[:40])) + table


def parse_reply(reply):
    """Returns a Reply, or raises Refused. The checks are in the same order as for a frame."""
    need(len(reply) >= REPLY.size and reply[:4] == b"DWR1", "FORMAT", "no reply")
    _, major, minor, answer, zero1, incarnation, sequence, N, zero2, table_digest, digest = (
        REPLY.unpack_from(reply)
    )
    need((major, minor) == (2, 0), "VERSION")
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
    not_held = chain == 0 and (incarnation == 0) == (version == 0)
    need(held or not_held, "FORMAT", "entry of a key that is not held")
    return ReplyEntry(sample, slice_, held, incarnation, version, chain)


# ------------------------------------------------------------------------------------------------
# How the library's encoder makes microscaled entries, and those in steps: section 5


def largest_of(differences):
    """Step 2: A. A NaN (None) counts as infinite."""
    return max(INFINITY if d is None else min(d[1], INFINITY) for d in differences)


def difference(x, base):
    """Step 1: rounded once."""
    return None if x is None else add(x, (not base[0], base[1]))


def chosen_block(element, x, base, chooses):
    """(choice bit, scale, codes) of a block; base: None if it is +0."""
    direct = base is None
    d = x if direct else [difference(a, b) for a, b in zip(x, base)]
    choice = 0
    if chooses:
        of_x, of_d = largest_of(x), largest_of(d)
        choice = int(of_x < of_d or (of_x == of_d and "mx-direct-of-equal" in broken))
        d = x if choice else d
    A = largest_of(d)
    if A >= INFINITY:
        return choice, 0xFF, [0] * len(d)
    s = element.scale_of(A)
    return choice, s, [element.code_of(value, s) for value in d]


def pack_planes(codes, widths):
    data, shift = b"", 0
    for p in widths:
        plane = sum((code >> shift & ((1 << p) - 1)) << (p * i) for i, code in enumerate(codes))
        data += plane.to_bytes(len(codes) * p // 8, "little")
        shift += p
    return data


def padded(data):
    return data + bytes(-len(data) % 16)


def mx_payload(method, T, C, x, base):
    """The payload for x, a list of values or None for NaN. base: the same, or None."""
    tiles, choices = b"", []
    for tile in tiles_of(T, C, BLOCK):
        scales, codes = [], []
        for block in tile:
            part = slice(block.start, block.start + block.w)
            under = None if base is None else base[part]
            choice, scale, own = chosen_block(method.fmt, x[part], under, method.choices)
            choices.append(choice)
            scales.append(scale)
            codes += own + [0] * (BLOCK - len(own))
        tiles += padded(bytes(scales)) + padded(pack_planes(codes, method.fmt.widths()))
    bits = sum(choice << i for i, choice in enumerate(choices))
    front = padded(bits.to_bytes(up(len(choices), 8) // 8, "little")) if method.choices else b""
    return front + tiles


def options_of(text):
    """The options of an encoder's config, as text."""
    return dict(word.split("=") for word in text.partition(":")[2].split(",") if "=" in word)


def thousandths(text):
    whole, _, part = text.partition(".")
    return int(whole) * 1000 + int(part.ljust(3, "0"))


def factor_of(h, e, options):
    """f of step 4; docs/codecs.md has the defaults."""
    step = thousandths(options.get("step", "1"))
    if h.codec == CODEC_DELTA and e.use == WHOLE and "step-write-factor" not in broken:
        quarter = max(step // 4, 10)
        step = thousandths(options["key_step"]) if "key_step" in options else quarter
    return step / 1000


def encoder_generator(h, parameters, e, options):
    """The generator of an encoder's z, or None for nearest rounding."""
    if "step-write-dither" in broken:
        return None
    if options.get("rounding") == "stochastic":
        fields = int(options.get("seed", "0")), e.sample, e.slice, h.sequence
        life = (h.incarnation,) if "step-write-incarnation" in broken else ()
        return Generator(*fields, *life)
    return generator_of(h, parameters, e)


def as_double(value):
    return math.ldexp(-value[1] if value[0] else value[1], -149)


def sum_of_squares(parts):
    """Step 2, of one tile. parts: [(the number of the first element, deltas)]."""
    lanes = [0.0] * 16
    for first, d in parts:
        for i, value in enumerate(d, first):
            lanes[i % 16] += as_double(value) ** 2
    return sum(lanes)


def step_of(sums, n, factor):
    """Step 4, as the bits of a bf16."""
    s = math.sqrt(sum(sums) / n) * factor
    if s < 2.0**-96 and "step-write-tiny" not in broken:
        return 0
    magnitude = int(math.ldexp(min(s, 2.0**128), 149 + 60))
    return min(BF16.pack(F32.unpack(F32.pack((False, magnitude), 60))), 0x7F7F)


def step_of_error(sums, largest, n, error):
    """Step 4 with error and a trellis, as the bits of a bf16. sums: those of x; largest: D."""
    s = error * math.sqrt(3.75 * (sum(sums) / n) / (1 + 4 / math.sqrt(n)))
    magnitude = int(math.ldexp(max(s, as_double((False, largest)) / 123), 149 + 60))
    return F32.pack((False, magnitude), 60) >> 16


def scaled_by(d, s):
    """Step 5: u."""
    if s == 0:
        return False, 0
    inverse = F32.unpack(F32.pack((False, (1 << 400) // s), 102))
    if "step-write-divides" in broken:
        return F32.unpack(F32.pack((d[0], (d[1] << 400) // s), 251))
    return F32.unpack(F32.pack((d[0], d[1] * inverse[1]), 149))


def level_of(d, s, z):
    """Step 5; z in units of 2^-17."""
    scaled_ = add(scaled_by(d, s), (z < 0, abs(z) << 132))
    level = round_shift(min(scaled_[1], 1000 << 149), 149)
    if "step-write-ties" in broken:
        level = min(scaled_[1], 1000 << 149) + (1 << 148) >> 149
    lowest = -128 if "step-write-128" in broken else -127
    return max(lowest, min(127, -level if scaled_[0] else level))


def pieces_in_steps(T, C, group):
    """[[tile of the piece: [(the number of its first element, segment)]]]"""
    tiles = tiles_of(T, C, group)
    if group == SAMPLE:
        numbered = []
        for tile in tiles:
            at = [sum(segment.g for segment in tile[:i]) for i in range(len(tile))]
            numbered.append(list(zip(at, tile)))
        return [numbered]
    if long_rows(C, group):
        per_row = pieces_per_row(C, group)
        return [[[(0, tiles[t * per_row + i][0])] for i in range(per_row)] for t in range(T)]
    return [[[(0, segment)]] for tile in tiles for segment in tile]


def added_in_order(sums, C):
    """Step 2: with group = sample, sums of 16 tiles, or of 8 rows, come first."""
    per = 8 * pieces_per_row(C, SAMPLE) if C > TILE else 16
    if "step-write-sums" in broken:
        per = len(sums)
    return [sum(sums[i : i + per]) for i in range(0, len(sums), per)]


def trellis_codes(h, group, d, steps, options):
    """Step 6: the codes of each segment, by the number of its first element. d: the deltas, or None
    where they are poisoned; steps: the scale of each segment, by that number."""
    tiles = [[(s.start, s.w, s.g) for s in tile] for tile in tiles_of(h.T, h.C, group)]
    per_row = pieces_per_row(h.C, group) if long_rows(h.C, group) else 0
    u = [None] * len(d)
    for start, w, _ in (segment for tile in tiles for segment in tile):
        if BF16.is_finite(steps[start]):
            s = BF16.unpack(steps[start])[1]
            u[start : start + w] = [as_double(scaled_by(v, s)) for v in d[start : start + w]]
    groups = spec_entropy.groups_of(tiles, per_row, broken)
    return spec_viterbi.codes_of(groups, u, "error" not in options, broken)


def stepped_payload(h, group, x, base, factor, generator, options):
    """The payload for x, a list of values or None for NaN. base: the same, or None."""
    d = x if base is None else [difference(a, b) for a, b in zip(x, base)]
    d = [None if v is None or v[1] >= INFINITY else v for v in d]
    steps, codes = {}, {}  # by the number of a segment's first element
    for piece in pieces_in_steps(h.T, h.C, group):
        cut = lambda segment: d[segment.start : segment.start + segment.w]
        segments = [segment for tile in piece for _, segment in tile]
        stored = "step-write-stored" in broken
        n = sum(segment.g if stored else segment.w for segment in segments)
        poisoned = any(v is None for segment in segments for v in cut(segment))
        bits = BF16.nan
        if not poisoned:
            sums = [sum_of_squares([(at, cut(segment)) for at, segment in tile]) for tile in piece]
            sums = added_in_order(sums, h.C) if group == SAMPLE else sums
            bits = step_of(sums, n, factor)
            if "error" in options:
                largest = max(v[1] for segment in segments for v in cut(segment))
                bits = step_of_error(sums, largest, n, float(options["error"]))
        s = 0 if poisoned else BF16.unpack(bits)[1]
        for segment in segments:
            z = lambda i: generator.z(segment.start + i) if generator else 0
            own = [
                128 if poisoned else level_of(v, s, z(i)) + 128 for i, v in enumerate(cut(segment))
            ]
            steps[segment.start], codes[segment.start] = bits, own + [128] * (segment.g - segment.w)
    if options.get("rounding") == "trellis":
        codes = trellis_codes(h, group, d, steps, options)
    front = padded(struct.pack("<H", steps[0])) if group == SAMPLE else b""
    for tile in tiles_of(h.T, h.C, group):
        own = [steps[segment.start] for segment in tile]
        front += b"" if group == SAMPLE else padded(struct.pack(f"<{len(own)}H", *own))
        front += padded(bytes(code for segment in tile for code in codes[segment.start]))
    return front


def ruled_payloads(decoder, step, frame):
    """Returns [(number of the entry, its plain payload, the payload that docs/format.md demands)]
    for the microscaled entries and those in steps of a golden step that contains x. It must be
    called before the decoder gets the frame, because it needs prev as it was."""
    h = parse_header(frame)
    tables = parse_tables(frame, h)
    parameters, fmt = check_codec(h, tables), BY_NAME[step["x_dtype"]]
    bits, count = elements(bytes.fromhex(step["x"]), fmt), h.T * h.C
    for i, (e, payload) in enumerate(zip(tables.entries, cut_payloads(frame, h, tables.entries))):
        method = method_of(h.codec, parameters, e.use)
        own = bits[i * count : (i + 1) * count]
        x = [None if fmt.is_nan(b) else fmt.unpack(b) for b in own]
        payload = plain_payload(h, parameters, e, payload)
        held = decoder.held.get((e.sample, e.slice)) if e.role == DELTA else None
        base = [held.fmt.unpack(b) for b in held.prev] if held else None
        if width_of(parameters, e) and method.form in (MICROSCALED, STEPPED):
            d = x if base is None else [difference(*pair) for pair in zip(x, base)]
            x = spec_rotated.rotated(
                sys.modules[__name__], d, width_of(parameters, e), broken
            )
            base = None
        if method.form == MICROSCALED:
            yield i, payload, mx_payload(method, h.T, h.C, x, base)
        if method.form == STEPPED:
            generator = encoder_generator(h, parameters, e, decoder.options)
            how = x, base, factor_of(h, e, decoder.options), generator
            yield i, payload, stepped_payload(h, parameters["group"], *how, decoder.options)


# ------------------------------------------------------------------------------------------------
# Golden files


def check_step(decoder, step):
    """Yields what differs from the golden file."""
    frame = bytes.fromhex(step["frame"])
    y_fmt = BY_NAME[step["y_dtype"]]
    for i, payload, ruled in ruled_payloads(decoder, step, frame) if "x" in step else ():
        if payload != ruled:
            yield f"payload {i} {payload.hex()}, by the page's rule {ruled.hex()}"
    status, y = decoder.decode(frame, step["n"], step["t"], step["c"], step["y_dtype"], adds(step))
    if status != step["status"]:
        yield f"status {status}, specified {step['status']}"
    elif status == "OK":
        yield from compare("y", y, elements(bytes.fromhex(step["y"]), y_fmt), y_fmt)
    yield from compare_reply(decoder.reply(frame), bytes.fromhex(step.get("reply") or ""))
    for wanted in step.get("prev") or []:
        name = f"prev of ({wanted['sample']}, {wanted['slice']})"
        got, fmt = decoder.prev(wanted["sample"], wanted["slice"])
        fmt = fmt or BF16
        yield from compare(name, got, elements(bytes.fromhex(wanted["bits"] or ""), fmt), fmt)


def adds(step):
    """The argument `adds` of decode() for a step that adds to y: {"factor": bits, "y": hex}."""
    if not step.get("adds"):
        return None
    y_fmt = BY_NAME[step["y_dtype"]]
    return step["adds"]["factor"], elements(bytes.fromhex(step["adds"]["y"]), y_fmt)


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


def check_file(path, stop=False):
    """Prints all mismatches of a golden file, or the first; returns (steps, mismatches)."""
    with open(path, encoding="utf-8") as file:
        golden = json.load(file)
    found = []
    for what in mismatches_of(golden):
        found.append(what)
        print(f"{path}: {what}")
        if stop:
            break
    return len(golden["steps"]), len(found)


def mismatches_of(golden):
    config = golden["config"]
    options = options_of(golden["encoder"]) if "encoder" in golden else {}
    decoder = Decoder(config["codec"], config["parameters"], config.get("own") or (), options)
    for number, step in enumerate(golden["steps"]):
        try:
            for what in check_step(decoder, step):
                yield f"step {number}: {what}"
        except (LookupError, ValueError, TypeError, ArithmeticError, struct.error, Refused):
            if not broken:
                raise
            yield f"step {number}: the broken decoder failed with an exception"


def main():
    about = "Checks golden files with a decoder written from docs/format.md alone."
    listed = "\n".join(f"  {name:30}{what}" for name, what in BREAKS.items())
    parser = argparse.ArgumentParser(
        description=about,
        epilog=f"names for --break:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="*", metavar="FILE.json")
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
    parser.add_argument("--stop", action="store_true", help="stop at the first mismatch")
    arguments = parser.parse_args()
    if arguments.list_breaks:
        print("\n".join(BREAKS))
        return 0
    if not arguments.files:
        parser.error("no files")
    broken.update(arguments.breaks)
    results = []
    for path in arguments.files:
        results.append(check_file(path, arguments.stop))
        if arguments.stop and results[-1][1]:
            break
    steps, mismatches = (sum(column) for column in zip(*results))
    if mismatches:
        print(f"{len(results)} files, {steps} steps: {mismatches} mismatches")
        return 1
    print(f"{len(results)} files, {steps} steps: all as specified")
    return 0


if __name__ == "__main__":
    sys.exit(main())
