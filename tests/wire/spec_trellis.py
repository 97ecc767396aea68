# SPDX-License-Identifier: Apache-2.0
# spec_trellis.py - turns the symbols of blocks with a trellis into codes, written from
# docs/format.md, 3.7, alone.
"""The rules of *Trellis* in 3.7, for spec_rans.py. Single letters (k, R, F, m, q, t) are the page's
own names, and `broken` is a set of names from BREAKS, as there."""

LANES = 32

BREAKS = {
    "trellis-refused": "no block has a trellis (3.7)",
    "trellis-dithered": "payloads with dither may have a trellis (3.8)",
    "trellis-any-form": "payloads of other forms may have a trellis (3.8)",
    "trellis-k": "k need not be 1 with a trellis (3.7)",
    "trellis-single": "R may be 1 with a trellis (3.7)",
    "trellis-least": "least may be below 65 with a trellis (3.7)",
    "trellis-most": "least + R - 1 may be above 191 with a trellis (3.7)",
    "trellis-first-table": "only table 0 has to obey the rules of a trellis (3.7)",
    "trellis-lanes": "there are 16 lanes (3.7)",
    "trellis-of-payload": "t goes on from block to block (3.7)",
    "trellis-begins": "t begins at 2 (3.7)",
    "trellis-tables": "the tables are exchanged (3.7)",
    "trellis-table-low": "the table is t mod 2 (3.7)",
    "trellis-next-high": "t becomes ((t + m) mod 2) + 2 floor(t / 2) (3.7)",
    "trellis-next-index": "t becomes 2 (m mod 2) + floor(t / 2) (3.7)",
    "trellis-next-level": "t becomes 2 ((t + q) mod 2) + floor(t / 2) (3.7)",
    "trellis-zero": "m = 0 is q = -1 with table 1 (3.7)",
    "trellis-away": "with table 1, q is one farther from 0 than 2 m (3.7)",
    "trellis-negative": "with table 1, q is 2 m - 1 if m < 0, too (3.7)",
    "trellis-whole": "q is 2 m with both tables (3.7)",
}


def fault_of(tables, broken):
    """Returns what is wrong with tables (spec_rans.Table) in a block with a trellis, or None."""
    for table in tables[:1] if "trellis-first-table" in broken else tables:
        R = len(table.F or "1")
        rules = (
            ("trellis-k", table.k == 1, "k"),
            ("trellis-single", R > 1, "R"),
            ("trellis-least", table.least >= 65, "least"),
            ("trellis-most", table.least + R - 1 <= 191, "least + R - 1"),
        )
        for name, right, what in rules:
            if not right and name not in broken:
                return f"{what} with a trellis"
    return None


class Trellis:
    """The trellis states of the lanes of a block. kept: those of the block before, a list that is
    changed, for a deliberate error."""

    def __init__(self, broken, kept):
        self.broken, self.i = broken, 0
        self.lanes = 16 if "trellis-lanes" in broken else LANES
        self.t = [2 if "trellis-begins" in broken else 0] * LANES
        if "trellis-of-payload" in broken:
            self.t = kept

    def table(self):
        """Returns the number of the table of the next code."""
        t = self.t[self.i % self.lanes]
        number = t % 2 if "trellis-table-low" in self.broken else t // 2
        return 1 - number if "trellis-tables" in self.broken else number

    def code(self, symbol):
        """Returns the next code, which was read as this code of its table, and goes on to the
        one behind it."""
        m, number, lane = symbol - 128, self.table(), self.i % self.lanes
        q, t = self.level(m, number), self.t[lane]
        index = q if "trellis-next-level" in self.broken else m
        odd = index % 2 if "trellis-next-index" in self.broken else (t + index) % 2
        self.t[lane] = 2 * odd + t // 2
        if "trellis-next-high" in self.broken:
            self.t[lane] = odd + t // 2 * 2
        self.i += 1
        return (128 + q) % 256  # without a deliberate error, q is from -126 to 126

    def level(self, m, number):
        """Returns q of an index, by the table with this number."""
        if number == 0 or "trellis-whole" in self.broken:
            return 2 * m
        if m == 0:
            return -1 if "trellis-zero" in self.broken else 0
        nearer = -1 if m > 0 or "trellis-negative" in self.broken else 1
        return 2 * m - nearer if "trellis-away" in self.broken else 2 * m + nearer
