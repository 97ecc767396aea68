# SPDX-License-Identifier: Apache-2.0
# spec_tah.py - the second decoder's payloads of the form tah, written from docs/format.md, 3.14.
"""The functions are given spec_decoder.py as `spec`, whose arithmetic they use."""

import spec_rotated

WIDTHS = (16, 64, 256)
MILLION = 1000000
MOST = 1 << 31

BREAKS = {
    "tah-share-rounded-down": "the number of wide tiles is rounded down (3.14)",
    "tah-narrow-first": "the codes of the narrow tiles come first (3.14)",
    "tah-mask-reversed": "bit 7 of a byte of the mask is that of the first tile (3.14)",
    "tah-in-order": "wide tiles are the first ones (3.14)",
    "tah-narrow-4": "narrow tiles have 4 bits, too (3.14)",
    "tah-offset-late": "the offset is added after the exchange (3.14)",
    "tah-offset-all": "the offset is added to every value before the rotation (3.14)",
    "tah-no-exchange": "pivots are not used (3.14)",
    "tah-moved": "the pivot is put in place, and the values between move up (3.14)",
    "tah-count-unchecked": "the mask may have any number of bits (3.14)",
    "tah-left-over": "bits that are left over in the mask may be 1 (3.14)",
    "tah-pivot-unchecked": "a pivot may be larger than G - 1 (3.14)",
    "tah-offset-nan": "an offset that is NaN does not poison its tile (3.14)",
    "tah-unfit": "G need not divide C (3.14)",
}


class Invalid(Exception):
    """A payload breaks a rule."""


def wide_of(n, share, broken):
    return n * share // MILLION if "tah-share-rounded-down" in broken else -(-n * share // MILLION)


def bits_of(broken):
    """Of the codes of narrow and of wide tiles."""
    return (4 if "tah-narrow-4" in broken else 3), 4


def front_of(n, up):
    """Where the pivots, the offsets and the codes begin."""
    pivots = up(-(-n // 8), 16)
    offsets = pivots + up(n, 16)
    return pivots, offsets, offsets + up(2 * n, 16)


def kinds_of(spec, T, C, parameters, broken):
    """n, G, and of narrow and wide tiles their number and the bytes of their codes."""
    G = parameters["tile"]
    n = T * (C // G)
    wide = wide_of(n, parameters["share"], broken)
    numbers = n - wide, wide
    sizes = [
        spec.quantized_size(count, G, G, bits, False) if count else 0
        for count, bits in zip(numbers, bits_of(broken))
    ]
    return n, G, numbers, sizes


def payload_bytes(spec, T, C, parameters, broken):
    n, _, _, sizes = kinds_of(spec, T, C, parameters, broken)
    return front_of(n, spec.up)[2] + sum(sizes)


def mask_of(payload, n, broken):
    order = range(7, -1, -1) if "tah-mask-reversed" in broken else range(8)
    return [payload[i // 8] >> order[i % 8] & 1 for i in range(n)]


def check(spec, T, C, parameters, payload, broken):
    """The rules for the contents of a payload."""
    n, G, (_, wide), _ = kinds_of(spec, T, C, parameters, broken)
    if n % 8 and payload[n // 8] >> n % 8 and "tah-left-over" not in broken:
        raise Invalid("bits that are left over in a mask")
    if sum(mask_of(payload, n, broken)) != wide and "tah-count-unchecked" not in broken:
        raise Invalid("number of wide tiles")
    pivots = front_of(n, spec.up)[0]
    if any(p >= G for p in payload[pivots : pivots + n]) and "tah-pivot-unchecked" not in broken:
        raise Invalid("pivot")


def make(spec, T, C, parameters, payload, broken):
    """The values of all elements; None where a tile is poisoned."""
    n, G, numbers, sizes = kinds_of(spec, T, C, parameters, broken)
    pivots, offsets, at = front_of(n, spec.up)
    values, places = [None, None], [0, 0]
    for kind in (0, 1) if "tah-narrow-first" in broken else (1, 0):
        method = spec.Method(spec.QUANTIZED, None, bits_of(broken)[kind], False)
        part = payload[at : at + sizes[kind]]
        values[kind] = spec.Quantized(numbers[kind], G, G, method, None, None).read(part).values
        at += sizes[kind]
    mask = mask_of(payload, n, broken)
    if "tah-in-order" in broken:
        mask = sorted(mask, reverse=True)
    made = []
    for i, kind in enumerate(mask):
        tile = values[kind][places[kind] : places[kind] + G]
        places[kind] += G
        offset = int.from_bytes(payload[offsets + 2 * i : offsets + 2 * i + 2], "little")
        made += make_tile(spec, tile, payload[pivots + i], offset, broken)
    return made


def make_tile(spec, tile, pivot, offset, broken):
    fine = spec.BF16.is_finite(offset) or "tah-offset-nan" in broken
    if any(v is None for v in tile) or not fine:
        return [None] * len(tile)
    shift = spec.BF16.unpack(offset)
    v = [spec.F32.unpack(spec.rn(spec.F32, value)) for value in tile]
    if "tah-offset-all" in broken:
        v = [spec.add(value, shift) for value in v]
    v = spec_rotated.rotate(spec, v, broken)
    if not {"tah-offset-late", "tah-offset-all"} & broken:
        v[0] = spec.add(v[0], shift)
    if "tah-moved" in broken:
        v.insert(pivot, v.pop(0))
    elif "tah-no-exchange" not in broken:
        v[0], v[pivot] = v[pivot], v[0]
    if "tah-offset-late" in broken:
        v[0] = spec.add(v[0], shift)
    return [spec.add((False, 0), value) for value in v]
