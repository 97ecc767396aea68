# SPDX-License-Identifier: Apache-2.0
# spec_lowrank.py - the matrix of a lowrank payload, and how its factors are written; from
# docs/format.md, 3.12, alone.
"""Functions get `broken`, a set of names from BREAKS: the deliberate errors that they have to make,
with which golden.py shows that the golden files detect each of them. Section numbers are those of
docs/format.md."""

MOST_RANK, MOST_WIDTH = 1024, 0x7FFFFFFF  # 1.2
MOST_WORDS = 1 << 31  # 3.12: r * (R + W)
GROUPS = (16, 32, 64, 128, 256)

BREAKS = {
    "lowrank-q-first": "Q comes in front of P (3.12)",
    "lowrank-transposed": "P has R rows of r values (3.12)",
    "lowrank-group-kept": "short rows have the group of parameter 2 (3.12)",
    "lowrank-group-of-row": "... but only if parameter 2 is 65535 (3.12)",
    "lowrank-group-longer": "a short row has the smallest group that is longer than it (3.12)",
    "lowrank-width-long": "W is parameter 40, even if n is smaller (3.12)",
    "lowrank-rank-long": "with parameter 40, r is the parameter rank (3.12)",
    "lowrank-rank-any": "without parameter 40, r is cut down to R and W (3.12)",
    "lowrank-rank-refused": "a rank larger than R or W is FORMAT with parameter 40, too (3.12)",
    "lowrank-width-needed": "parameter 40 must be there (1.2)",
    "lowrank-width-unseen": "parameter 40 changes nothing (3.12)",
    "lowrank-rows-down": "R is rounded down (3.12)",
    "lowrank-column-major": "the values go through M column by column (3.12)",
    "lowrank-sum-exact": "sums are rounded once, at the end (3.12)",
    "lowrank-product-exact": "a product is not rounded before it is added (3.12)",
    "lowrank-reversed": "ranks are added from the last one to the first (3.12)",
    "lowrank-poison-reached": "only values that a factor reaches are poisoned (3.12)",
    "lowrank-infinite": "an infinite factor does not poison (3.12)",
    "lowrank-meeting": "infinities of both signs meet in 0 (3.12)",
}


class Invalid(Exception):
    """The shape does not allow the rank."""


def matrix(T, C, parameters, broken):
    """R, W and r."""
    n, rank = T * C, parameters["rank"]
    width = 0 if "lowrank-width-unseen" in broken else parameters.get("width", 0)
    R, W = T, C
    if width:
        W = width if "lowrank-width-long" in broken else min(width, n)
        R = max(n // W, 1) if "lowrank-rows-down" in broken else -(-n // W)
    fits = rank <= min(R, W) or "lowrank-rank-any" in broken
    if not fits and (not width or "lowrank-rank-refused" in broken):
        raise Invalid("rank")
    r = rank if width and "lowrank-rank-long" in broken else min(rank, R, W)
    if r * (R + W) >= MOST_WORDS:
        raise Invalid("too large")
    return R, W, r


def group_of(L, group, broken):
    """The group of rows of L values."""
    if "lowrank-group-kept" in broken:
        return group
    if group == 65535 and "lowrank-group-of-row" in broken:
        return group
    longer = "lowrank-group-longer" in broken
    narrow = [g for g in GROUPS if (g > L if longer else g >= L)]
    return min(group, narrow[0]) if narrow else group


def place(i, R, W, broken):
    """Row and column of value i."""
    return (i % R, i // R % W) if "lowrank-column-major" in broken else (i // W, i % W)


def ranks(r, broken):
    return range(r - 1, -1, -1) if "lowrank-reversed" in broken else range(r)
