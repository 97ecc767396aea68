# SPDX-License-Identifier: Apache-2.0
# spec_rotated.py - the second decoder's rotated values, written from docs/format.md, 3.11.
"""Values are pairs (negative, magnitude in units of 2^-149), as in spec_decoder.py, whose
arithmetic the functions are given as `spec`; None is NaN."""

WIDTHS = (16, 64, 256)
HADAMARD = 2

BREAKS = {
    "rotate-descending": "the strides of a rotation go from H / 2 to 1 (3.11)",
    "rotate-minus": "b - a in place of a - b (3.11)",
    "rotate-late": "values are multiplied by the inverse root of H, after the sums (3.11)",
    "rotate-half": "values are multiplied by 1 / H alone (3.11)",
    "rotate-base-first": "the base is added before the rotation (3.11)",
    "rotate-poison-piece": "a poisoned piece poisons itself alone, not its block (3.11)",
    "rotate-key-plain": "key entries are not rotated (3.11)",
    "rotate-width-any": "parameter 33 may be any power of two (1.2)",
    "rotate-transform-any": "parameter 32 may be 1 or 3 (1.2)",
    "rotate-unfit": "H need not divide C (3.11)",
    "rotate-of-channels": "parameter 32 goes together with a scale per channel (1.2)",
    "rotate-alone": "parameter 33 may be without 32 (1.2)",
}


def times_power(spec, value, power):
    """value * 2^power, rounded once to binary32."""
    if power < 0:
        return spec.F32.unpack(spec.F32.pack(value, -power))
    return spec.to_binary32((value[0], value[1] << power))


def rotate(spec, block, broken):
    width, halves = len(block), len(block).bit_length() // 2  # the root of H is 2^halves
    first, last = (0, -halves) if "rotate-late" in broken else (-2 * halves, halves)
    if "rotate-half" in broken:
        last = 0
    block = [times_power(spec, v, first) for v in block]
    strides = [1 << i for i in range(2 * halves)]
    for s in reversed(strides) if "rotate-descending" in broken else strides:
        for i in range(width):
            if i // s % 2 == 0:
                a, b = block[i], block[i + s]
                less = (b, (not a[0], a[1])) if "rotate-minus" in broken else (a, (not b[0], b[1]))
                block[i], block[i + s] = spec.add(a, b), spec.add(*less)
    return [times_power(spec, v, last) for v in block]


def rotated(spec, values, width, broken):
    """What an encoder codes: all blocks of d, rotated. A block with NaN or infinity is NaN."""
    made = []
    for at in range(0, len(values), width):
        block = values[at : at + width]
        usable = all(v is not None and v[1] < spec.INFINITY for v in block)
        block = rotate(spec, block, broken) if usable else [None] * width
        usable = usable and all(v[1] < spec.INFINITY for v in block)
        made += block if usable else [None] * width
    return made


def made(spec, values, width, held, prev_fmt, broken):
    """3.11, steps 2 and 3: (values of y, prev'), from the values that step 1 made."""
    prev = None
    if prev_fmt is not None:
        prev = list(held) if held is not None else [0] * len(values)
    y = [None] * len(values)
    for at in range(0, len(values), width):
        own = range(at, at + width)
        block = [
            (False, 0) if values[i] is None else spec.F32.unpack(spec.rn(spec.F32, values[i]))
            for i in own
        ]
        bases = [prev_fmt.unpack(held[i]) if held is not None else (False, 0) for i in own]
        if "rotate-base-first" in broken:
            block, bases = [spec.add(b, v) for b, v in zip(bases, block)], [(False, 0)] * width
        block = rotate(spec, block, broken)
        poisoned = any(values[i] is None for i in own)
        for i, base, v in zip(own, bases, block):
            if values[i] is None if "rotate-poison-piece" in broken else poisoned:
                continue
            y[i] = spec.add(base, v)
            if prev is not None:
                prev[i] = spec.rn(prev_fmt, y[i])
                y[i] = prev_fmt.unpack(prev[i])
    return y, prev
