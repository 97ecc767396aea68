#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# attempts.py - compares scales that the mean-square search could try, on recorded tensors.
"""Plays an encoder with scale=mse over records (`deltawire train --record`), keeps some of the
pieces that it quantizes, and compares on them: the scale of signed alone, the four attempts of
src/arithmetic/quant.h, the best few in 64ths of the largest magnitude that a greedy search finds
for all records together, and a search of every 64th. Errors are |d - its reconstruction| / |d| over
all pieces kept of one record; d are the changes of activations (choose=group) and gradients as they
are."""

import argparse
import struct

import numpy as np

NOW = (
    (11, 16, 20, 24),
    (42, 49, 55, 62),
    (48, 53, 58, 64),
    (57, 59, 61, 64),
    (61, 63, 64, 67),
    (63, 64, 66, 68),
    (64, 65, 66, 67),
    (64, 65, 66, 67),
)
PARTS = range(6, 85)  # 64ths of the largest magnitude
PIECES = 20000  # kept at most


def read(path, most):
    """(whether these are gradients, [(sample, first visit, (T, C))] in order), of the first `most`
    samples."""
    data = np.memmap(path, np.uint8, "r")
    magic, version, direction, _, tokens, channels, _ = struct.unpack("<8s6I", bytes(data[:32]))
    if magic != b"DW-SENT\0" or version != 1:
        raise SystemExit(f"attempts.py: {path} is no record")
    each = 16 + 4 * tokens * channels
    seen, visits = {}, []
    for at in range(32, len(data) - each + 1, each):
        (sample,) = struct.unpack("<Q", bytes(data[at + 8 : at + 16]))
        if sample not in seen and len(seen) == most:
            continue
        visits.append(
            (
                sample,
                sample not in seen,
                data[at + 16 : at + each].view(np.float32).reshape(tokens, channels),
            )
        )
        seen[sample] = True
    return direction == 2, visits


def scales_for(largest, levels):
    """docs/format.md, 5: the smallest bf16 s with s * levels >= largest."""
    bits = (largest / np.float32(levels)).astype(np.float32).view(np.uint32) >> 16
    below = (bits << 16).view(np.float32)
    return ((bits + (below * np.float32(levels) < largest)) << 16).view(np.float32)


def attempt(d, bits, part):
    """(reconstructions, squares lost per piece) of the pieces d (n, G) with the scales of `signed`
    for that part of the largest."""
    highest, lowest = d.max(axis=1), -d.min(axis=1)
    largest = np.maximum(np.maximum(highest, lowest), np.float32(2.0**-96))
    half = 1 << (bits - 1)
    scale = scales_for((largest * np.float32(part)).astype(np.float32), half)
    if bits > 1:
        scale = np.where(highest > lowest, -scale, scale)
    scaled = d * (np.float32(1) / scale)[:, None]
    level = np.where(scaled < 0, -1, 1) if bits == 1 else np.clip(np.rint(scaled), -half, half - 1)
    made = (level * scale[:, None]).astype(np.float32)
    return made, ((d - made).astype(np.float64) ** 2).sum(axis=1)


def quantize(d, bits):
    """The reconstructions that scale=mse sends."""
    tries = [attempt(d, bits, part / 64) for part in NOW[bits - 1]]
    best = np.argmin([lost for _, lost in tries], axis=0)
    return np.stack([made for made, _ in tries])[best, np.arange(len(d))]


def pieces_of(direct, visits, bits, group):
    """The pieces that an encoder quantizes with `bits`: gradients themselves, or changes of later
    visits (choose=group)."""
    prev, kept = {}, []
    for sample, first, x in visits:
        x = x.reshape(-1, group)
        if direct:
            kept.append(x)
        elif first:
            prev[sample] = quantize(x, 8)
        else:
            delta = x - prev[sample]
            takes_x = (np.abs(x).max(axis=1) < np.abs(delta).max(axis=1))[:, None]
            d = np.where(takes_x, x, delta)
            prev[sample] = np.where(takes_x, 0, prev[sample]) + quantize(d, bits)
            kept.append(d)
    pieces = np.concatenate(kept)
    return pieces[:: max(1, len(pieces) // PIECES)].astype(np.float32)


def arrives(d, made):
    """<made, d> / <d, d> over the largest 16th of the elements of each piece: 1 if errors have no
    preferred sign."""
    largest = np.abs(d) >= np.sort(np.abs(d), axis=1)[:, [-(d.shape[1] // 16)]]
    d = np.where(largest, d, 0).astype(np.float64)
    return (d * made).sum() / (d * d).sum()


def best_few(lost, count):
    """The parts whose best attempt has the smallest error: chosen greedily one by one, then
    exchanged as long as that helps. lost: (parts, pieces)."""
    total = lambda rows: np.min(lost[rows], axis=0).sum()
    chosen = []
    while len(chosen) < count:
        chosen.append(min(range(len(lost)), key=lambda row: total([*chosen, row])))
    helped = True
    while helped:
        helped = False
        for i in range(count):
            others = chosen[:i] + chosen[i + 1 :]
            better = min(range(len(lost)), key=lambda row: total([*others, row]))
            if total([*others, better]) < total(chosen):
                chosen[i], helped = better, True
    return sorted(chosen)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "records", nargs="+", metavar="RECORD", help="a file that `deltawire train --record` wrote"
    )
    parser.add_argument("--bits", default="1,2,3,4,5,6,7,8", help="widths (default: %(default)s)")
    parser.add_argument(
        "--group", type=int, default=64, help="channels of a piece (default: %(default)s)"
    )
    parser.add_argument(
        "--samples",
        type=int,
        default=40,
        help="samples to use of each record (default: %(default)s)",
    )
    parser.add_argument(
        "--few",
        default="2,4,8",
        help="numbers of attempts to choose, a search for each (default: %(default)s)",
    )
    options = parser.parse_args()
    records = [read(path, options.samples) for path in options.records]
    few = [int(word) for word in options.few.split(",")]
    print(
        "bits record   signed  now      " + "".join(f"best {count:<4d}" for count in few) + "fine"
    )
    for bits in map(int, options.bits.split(",")):
        kept = [pieces_of(direct, visits, bits, options.group) for direct, visits in records]
        # Relative to the squares of each record, so that all records have the same weight.
        lost = [
            np.stack([attempt(d, bits, part / 64)[1] for part in PARTS])
            / (d.astype(np.float64) ** 2).sum()
            for d in kept
        ]
        tables = [[64], list(NOW[bits - 1])]
        tables += [
            [PARTS[row] for row in best_few(np.concatenate(lost, axis=1), count)] for count in few
        ] + [list(PARTS)]
        for number, shares in enumerate(lost):
            errors = [
                np.sqrt(np.min(shares[[PARTS.index(part) for part in table]], axis=0).sum())
                for table in tables
            ]
            print(f"{bits:4d} {number:6d}   " + "  ".join(f"{error:.5f}" for error in errors))
        for number, d in enumerate(kept):
            print(
                f"     the largest of {number} arrive at: "
                f"signed {arrives(d, attempt(d, bits, 1.0)[0]):.3f}, "
                f"now {arrives(d, quantize(d, bits)):.3f}"
            )
        for table in tables[2:-1]:
            print("     in 64ths:", *table, flush=True)


if __name__ == "__main__":
    main()
