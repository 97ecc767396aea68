# SPDX-License-Identifier: Apache-2.0
# spec_viterbi.py - chooses codes along a trellis as the library does, written from docs/format.md,
# 5, alone.
"""What the library's encoder does with the option rounding=trellis. Section 5 says it; it is not
part of the format. Numbers are Python's floats, which hold binary32 exactly, and sums, differences
and products are rounded to binary32 as the page says. Single letters (u, v, G, M, m, q, t) are the
page's own names, and `broken` is a set of names from BREAKS, as elsewhere."""

import struct

LANES = 32
MOST = 124
ZERO_COSTS = struct.unpack("<f", struct.pack("<f", 0.72))[0]
NOT_REACHED = float("inf")

BREAKS = {
    "trellis-write-whole": "encoders: G is always 1 (5)",
    "trellis-write-of-payload": "encoders: M is the mean of the tile and of those before it (5)",
    "trellis-write-padding": "encoders: M counts padding, too (5)",
    "trellis-write-zero": "encoders: q = 0 costs nothing more (5)",
    "trellis-write-frugal": "encoders: G and 0.72 count with `error`, too (5)",
    "trellis-write-tiles": "encoders: t begins at 0 with each tile (5)",
    "trellis-write-groups": "encoders: t goes on from group to group (5)",
    "trellis-write-limit": "encoders: v is at most 126 (5)",
    "trellis-write-from-higher": "encoders: of equal sums, the one from the higher t is taken (5)",
    "trellis-write-ends-higher": "encoders: of equal sums, the one to the higher t is taken (5)",
}


def single(value):
    """Rounds to binary32."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def candidate(v, table, odd):
    """Returns |q|: the nearest to v with this table, and with an odd or an even m."""
    if table and not odd and v < 1.5:
        return 0
    first = (1 if odd else 3) if table else (2 if odd else 0)
    return round(single(v - first) / 4) * 4 + first


class Lane:
    """Chooses the codes of one lane of a tile. values: v of each, or None for padding; t: the state
    in front of them, which becomes that behind them."""

    def __init__(self, values, t, zero_costs, broken):
        self.zero_costs, self.broken = zero_costs, broken
        self.sums = [0.0 if state == t else NOT_REACHED for state in range(4)]
        back = [self.extend(v) for v in values]
        best = min(self.sums)
        ends = [state for state in range(4) if self.sums[state] == best]
        self.t = state = ends[-1 if "trellis-write-ends-higher" in broken else 0]
        self.chosen = []
        for v, before in zip(reversed(values), reversed(back)):
            state, odd = before[state]
            self.chosen.insert(0, 0 if v is None else candidate(v, state >> 1, odd))

    def cost(self, v, table, odd):
        """Returns what it costs to go over v with this table."""
        if v is None:
            return NOT_REACHED if odd else 0.0
        q = candidate(v, table, odd)
        error = single(v - q)
        square = single(error * error)
        return single(square + self.zero_costs) if table and q == 0 else square

    def extend(self, v):
        """Goes on by one value. Returns, for each t, the t before it and whether m is odd."""
        sums, back = [NOT_REACHED] * 4, [None] * 4
        for t in range(4):
            for odd in (0, 1):
                to = ((t ^ odd) & 1) << 1 | t >> 1
                cost = self.sums[t] + self.cost(v, t >> 1, odd)
                cost = single(cost) if cost < NOT_REACHED else cost
                equal = cost == sums[to] and "trellis-write-from-higher" in self.broken
                if back[to] is None or cost < sums[to] or equal:
                    sums[to], back[to] = cost, (t, odd)
        self.sums = sums
        return back


class Chooser:
    """Chooses the codes of a payload. frugal: true without the option `error`."""

    def __init__(self, frugal, broken):
        self.frugal = frugal or "trellis-write-frugal" in broken
        self.broken = broken
        self.before = []
        self.t = [0] * LANES

    def begin_group(self):
        """Begins a group of tiles."""
        if "trellis-write-groups" not in self.broken:
            self.t = [0] * LANES

    def factor(self, us):
        """Returns G of a tile."""
        if "trellis-write-of-payload" in self.broken:
            self.before += us
            us = self.before
        sums, n = [0.0] * 16, 0
        for i, u in enumerate(us):
            sums[i % 16] += (u or 0.0) ** 2
            n += u is not None or "trellis-write-padding" in self.broken
        M = sum(sums) / n if n else 0.0
        if not self.frugal or not M < 1e9 or "trellis-write-whole" in self.broken:
            return 1.0
        return single(M / (M + 0.24))

    def tile(self, us):
        """Returns the codes of a tile. us: u of each, or None for padding."""
        G, codes = self.factor(us), [128] * len(us)
        if "trellis-write-tiles" in self.broken:
            self.t = [0] * LANES
        most = 126 if "trellis-write-limit" in self.broken else MOST
        free = not self.frugal or "trellis-write-zero" in self.broken
        for lane in range(LANES):
            own = us[lane::LANES]
            values = [None if u is None else min(abs(single(u * G)), most) for u in own]
            made = Lane(values, self.t[lane], 0.0 if free else ZERO_COSTS, self.broken)
            self.t[lane] = made.t
            codes[lane::LANES] = [
                128 + (-q if u is not None and u < 0 else q) for u, q in zip(own, made.chosen)
            ]
        return codes


def codes_of(groups, u, frugal, broken):
    """Returns the codes of each segment of a payload, by the number of its first element.

    groups: lists of the tiles of each group; a tile is a list of its segments, (start, w, g) as in
    spec_entropy.Tile. u: u of each element, or None where it is poisoned."""
    chooser, made = Chooser(frugal, broken), {}
    for group in groups:
        chooser.begin_group()
        for tile in group:
            us = []
            for start, w, g in tile:
                us += u[start : start + w] + [None] * (g - w)
            codes, at = chooser.tile(us), 0
            for start, _, g in tile:
                made[start], at = codes[at : at + g], at + g
    return made
