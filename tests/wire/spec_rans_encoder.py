# SPDX-License-Identifier: Apache-2.0
# spec_rans_encoder.py - makes entropy-coded blocks from docs/format.md, 3.7, alone.
"""Encodes blocks for the tests of decoders. It shares no code with spec_rans.py, which it tests.
Single letters (k, R, F, W, B, T) are the page's own names."""

import struct


def frequencies(codes):
    """Returns F of the codes least, least + 1, ...: proportional to how often each of them occurs,
    and at least 1 for each that does. They add up to 4096."""
    least, R = min(codes), max(codes) - min(codes) + 1
    counts = [codes.count(least + i) for i in range(R)]
    F = [max(1, 4096 * count // len(codes)) if count else 0 for count in counts]
    while sum(F) != 4096:
        largest = F.index(max(F))
        F[largest] = max(F[largest] // 2, F[largest] + 4096 - sum(F))
    return F


def slots(F, k):
    """Returns [(B(s), B(s+1) - B(s))]: the first slot of each symbol s, and how many it has."""
    weights = [4096 * f for f in F]
    for _ in range(k // 2):
        weights = [a and b and max(1, a * b // 2**24) for b in weights for a in weights]
    extra = [max(0, w - 4096) for w in weights]
    there = [int(w > 0) for w in weights]
    T = (4096 - sum(there)) * 2**32 // sum(extra)
    at, edges = [0, 0], []
    for i, e in zip(there, extra):
        edges.append(at[0] + T * at[1] // 2**32)
        at = [at[0] + i, at[1] + e]
    edges.append(4096)
    return [(a, b - a) for a, b in zip(edges, edges[1:])]


class Block:
    """A block, encoded from its codes. Its fields may be changed before bytes() puts them together,
    so that the block breaks a rule: heads ([k, least, R - 1] of each part), cut (the field
    `parts`), x (the states), words, W (the number of words in the header, or None for the right
    one), ones (if true, the bits behind the frequencies are ones), tail (bytes behind the block),
    and states (the states that are written: x, or none).

    parts: the codes of each part, or [all codes] for a block without parts. ks: k of each part. F:
    the frequencies of each part, or None for those that the codes have. least: the smallest code of
    each part, or None for that which occurs. fill: the digit that fills up the last symbol, or None
    for that which the page wants. ends: the value that state 31 has at the end of decoding; any but
    2^16 breaks a rule. small: if true, one word too many is written, so that state 0 begins below
    2^16.
    """

    def __init__(
        self, parts, ks=(1, 1, 1, 1), F=None, least=None, fill=None, ends=2**16, small=False
    ):
        self.parts, self.cut = parts, int(len(parts) > 1)
        self.heads, self.F = [], []
        for i, (codes, k) in enumerate(zip(parts, ks)):
            own = F[i] if F else frequencies(codes)
            first = least[i] if least else min(codes)
            self.heads.append([k if len(own) > 1 else 1, first, len(own) - 1])
            self.F.append(own)
        self.fill, self.ones, self.tail = fill, 0, b""
        self.small = small
        self.x, self.words, self.W = [2**16] * 31 + [ends], [], None
        for codes, head, own in reversed(list(zip(parts, self.heads, self.F))):
            if len(own) > 1:
                self.encode(codes, head, own)
        self.states = self.x if any(len(own) > 1 for own in self.F) else []

    def encode(self, codes, head, F):
        """Encodes the codes of a part: changes the states, and puts words in front of those
        there."""
        k, least, R = head[0], head[1], len(F)
        of, N = slots(F, k), -(-len(codes) // k)
        fill = F.index(max(F)) if self.fill is None else self.fill
        digits = [code - least for code in codes] + [fill] * (N * k - len(codes))
        for j in reversed(range(N)):
            s = sum(d * R**i for i, d in enumerate(digits[j * k : j * k + k]))
            B, f = of[s]
            x = self.x[j % 32]
            if x >= 2**20 * f or (self.small and j == 0):
                self.words.insert(0, x % 2**16)
                x //= 2**16
            self.x[j % 32] = 4096 * (x // f) + x % f + B

    def string(self, F):
        """Returns the frequencies of a part as bytes. With `ones`, ones stand in place of the zero
        bits behind them."""
        text = ""
        for f in F if len(F) > 1 else ():
            bits = bin(f)[2:] if f else ""
            text += format(len(bits), "04b")[::-1] + bits[1:][::-1]
        text += (str(int(self.ones)) * 7)[: -len(text) % 8]
        return bytes(int(text[i : i + 8][::-1], 2) for i in range(0, len(text), 8))

    def bytes(self):
        """Returns the block."""
        W = len(self.words) if self.W is None else self.W
        data = struct.pack("<BBBBH", *self.heads[0], self.cut, W) + self.string(self.F[0])
        for head, own in list(zip(self.heads, self.F))[1:]:
            data += bytes(head) + self.string(own)
        data += struct.pack(f"<{len(self.states)}I", *self.states)
        return data + struct.pack(f"<{len(self.words)}H", *self.words) + self.tail


class Walk:
    """Goes through the codes of a block with a trellis, one after the other."""

    def __init__(self):
        self.t, self.i = [0] * 32, 0

    def table(self):
        """Returns which table the next code is written with."""
        return int(self.t[self.i % 32] >= 2)

    def step(self, m):
        """Goes over a code of this index. Returns the code."""
        lane, nearer = self.i % 32, self.table() if m else 0
        self.t[lane] = ((self.t[lane] ^ m) & 1) << 1 | self.t[lane] >> 1
        self.i += 1
        return 128 + (2 * m - nearer if m > 0 else 2 * m + nearer)

    def over(self, code):
        """Goes over this code, which must be possible here. Returns its table and its index."""
        q, table = code - 128, self.table()
        m = (abs(q) + 1) // 2 * (-1 if q < 0 else 1)
        assert self.step(m) == code, "a code that cannot be here"
        return table, m


def possible(random_, n, spread, is_padding=lambda i: False, begins=()):
    """Returns n random codes that a block with a trellis can hold. spread: the standard deviation
    of indices; is_padding: whether code i is of padding, which is 128; begins: the codes with which
    further blocks begin."""
    codes, walk = [], Walk()
    for i in range(n):
        walk = Walk() if i in begins else walk
        m = 0 if is_padding(i) else round(random_.gauss(0, spread))
        codes.append(walk.step(max(-63, min(63, m))))
    return codes


class TrellisBlock(Block):
    """A block with a trellis. Its fields are those of Block, with a head and frequencies for each
    of the two tables. codes: codes that can be in such a block. F, least: for each table, or None
    for those of the indices that occur; ends, small: as for Block."""

    def __init__(self, codes, F=None, least=None, ends=2**16, small=False):
        walk = Walk()
        pairs = [walk.over(code) for code in codes]
        # A table must have two codes or more, also if fewer occur.
        occur = [[128 + m for table, m in pairs if table == i] or [128] for i in (0, 1)]
        occur = [own if min(own) < max(own) else [*own, own[0] + 1] for own in occur]
        self.F = F or [frequencies(own) for own in occur]
        least = least or [min(own) for own in occur]
        self.heads = [[1, first, len(own) - 1] for first, own in zip(least, self.F)]
        self.cut, self.ones, self.tail, self.W, self.small = 2, 0, b"", None, small
        self.x, self.words = [2**16] * 31 + [ends], []
        of = [slots(own, 1) for own in self.F]
        for i, (table, m) in reversed(list(enumerate(pairs))):
            B, f = of[table][128 + m - least[table]]
            x = self.x[i % 32]
            if x >= 2**20 * f or (small and i == 0):
                self.words.insert(0, x % 2**16)
                x //= 2**16
            self.x[i % 32] = 4096 * (x // f) + x % f + B
        self.states = self.x
