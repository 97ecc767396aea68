# SPDX-License-Identifier: Apache-2.0
# spec_rans.py - reads entropy-coded blocks, written from docs/format.md, 3.7, alone.
"""Decodes blocks of codes, with Python integers only. spec_decoder.py uses it.

Functions and classes get `broken`, a set of names from BREAKS: the deliberate errors that they
have to make. golden.py shows with them that the golden files detect each of these errors. Section
numbers are those of docs/format.md, and single letters (k, R, F, W, B, T, M, E) are the page's own
names."""

import struct
from collections import namedtuple

import spec_trellis

SLOTS = 4096
STATES = 32
LEAST_STATE = 1 << 16

BREAKS = {
    "rans-states": "there are 16 states (3.7)",
    "rans-codes-of-symbol": "the last code of a symbol is its lowest digit (3.7)",
    "rans-least": "codes count from 0 (3.7)",
    "rans-frequency-from-top": "the bits of frequencies count from the top of a byte (3.7)",
    "rans-frequency-leading": "the highest bit of a frequency is written, too (3.7)",
    "rans-frequency-high-first": "the bits of a frequency come highest first (3.7)",
    "rans-frequency-sum": "frequencies may add up to anything (3.7)",
    "rans-frequency-first": "F(0) may be 0 (3.7)",
    "rans-frequency-last": "F(R-1) may be 0 (3.7)",
    "rans-frequency-zeros": "the bits behind the frequencies are not checked (3.7)",
    "rans-frequency-ends": "the frequencies of a part go on in the byte of those before (3.7)",
    "rans-single-k": "k may be 2 where R is 1 (3.7)",
    "rans-single-words": "W need not be 0 where R is 1 (3.7)",
    "rans-single-states": "there are states where R is 1 (3.7)",
    "rans-single-first": "there are no states where R is 1 in part 0 (3.7)",
    "rans-k-3": "k = 3 is taken as 2 (3.7)",
    "rans-code-256": "least + R - 1 may be larger than 255 (3.7)",
    "rans-many-symbols": "R^k may be larger than 256 (3.7)",
    "rans-parts-any": "the field `parts` may be larger than 2, which is 1 then (3.7)",
    "rans-weight-nearest": "weights are rounded to the nearest (3.7)",
    "rans-weight-0": "a weight that is rounded down to 0 is 0 (3.7)",
    "rans-slots-whole": "slots are shared out by w, not by what is above 4096 (3.7)",
    "rans-slots-exact": "T is not rounded (3.7)",
    "rans-slots-alone": "the share of every symbol is rounded on its own (3.7)",
    "rans-slots-last": "B(R^k) is what step 3 makes of it (3.7)",
    "rans-word-early": "a word is read where x is 2^16, too (3.7)",
    "rans-word-below": "a word becomes the high half of x (3.7)",
    "rans-word-bytes": "words have their high byte first (3.7)",
    "rans-word-missing": "where a word is missing, 0 is read (3.7)",
    "rans-words-left": "words may be left over (3.7)",
    "rans-words-first": "words come before the states (3.7)",
    "rans-state-small": "a state may begin below 2^16 (3.7)",
    "rans-state-end": "a state may end with anything (3.7)",
    "rans-part-j": "j is not 0 again in the next part (3.7)",
    "rans-part-states": "every part has its own states (3.7)",
    "rans-fill-checked": "the digits that fill up the last symbol must be those of writers (3.7)",
    **spec_trellis.BREAKS,
}

# The head of one part, and its frequencies: a list of R numbers, or None if R is 1.
Table = namedtuple("Table", "k least F")


class Invalid(Exception):
    """Is raised for a block or payload that breaks a rule. Decoders answer with FORMAT."""


def need(condition, why):
    """Raises Invalid with the sentence `why` unless the condition is true."""
    if not condition:
        raise Invalid(why)


class Reader:
    """Reads bytes, and the bits of frequencies, from the front of a string of bytes."""

    def __init__(self, data, broken):
        self.data, self.at, self.broken = data, 0, broken
        self.bit = 0  # how many bits of the byte at `at` have been read

    def take(self, n):
        """Returns the next n bytes."""
        need(self.at + n <= len(self.data), "a block ends early")
        taken = self.data[self.at : self.at + n]
        self.at += n
        return taken

    def read_bit(self):
        """Returns the next bit. Bits are read from the lowest of each byte on."""
        need(self.at < len(self.data), "the frequencies end early")
        place = 7 - self.bit if "rans-frequency-from-top" in self.broken else self.bit
        bit = self.data[self.at] >> place & 1
        self.at, self.bit = self.at + (self.bit + 1) // 8, (self.bit + 1) % 8
        return bit

    def read_bits(self, n):
        """Returns a number of n bits, of which the lowest comes first."""
        return sum(self.read_bit() << i for i in range(n))

    def end_byte(self):
        """Goes on to the next byte, if some bits of this one were read. The others must be zero."""
        while self.bit:
            zero = self.read_bit() == 0
            need(zero or "rans-frequency-zeros" in self.broken, "bits behind the frequencies")


def read_table(reader, head, broken):
    """Reads the frequencies of a part, and returns its Table. head: (k, least, R - 1, ...), the
    part's head, which the caller has read."""
    k, least, R = head[0], head[1], head[2] + 1
    if k == 3 and "rans-k-3" in broken:
        k = 2
    need(k in (1, 2, 4), "k")
    need(least + R - 1 <= 255 or "rans-code-256" in broken, "codes above 255")
    need(R**k <= 256 or "rans-many-symbols" in broken, "more than 256 symbols")
    if "rans-least" in broken:
        least = 0
    if R == 1:
        need(k == 1 or "rans-single-k" in broken, "k of a single code")
        return Table(k, least, None)
    F = [read_frequency(reader, broken) for _ in range(R)]
    if "rans-frequency-ends" not in broken:
        reader.end_byte()
    need(sum(F) == SLOTS or "rans-frequency-sum" in broken, "the sum of the frequencies")
    need(F[0] or "rans-frequency-first" in broken, "the first frequency is 0")
    need(F[-1] or "rans-frequency-last" in broken, "the last frequency is 0")
    return Table(k, least, F)


def read_frequency(reader, broken):
    """Reads and returns one F."""
    bits = reader.read_bits(4)
    need(bits <= 12, "a frequency of more than 12 bits")
    if bits == 0:
        return 0
    if "rans-frequency-leading" in broken:
        return reader.read_bits(bits)
    if "rans-frequency-high-first" in broken:
        return int("1" + "".join(str(reader.read_bit()) for _ in range(bits - 1)), 2)
    return reader.read_bits(bits - 1) + (1 << bits - 1)


def pairs(w, broken):
    """Returns v of all pairs of symbols, where w are the weights of the symbols."""
    return [product(a * b, broken) for b in w for a in w]


def product(exact, broken):
    """Returns v for the exact product of two weights: divided by 2^24, but not rounded to 0."""
    if exact == 0:
        return 0
    rounded = exact >> 24
    if "rans-weight-nearest" in broken:
        rounded = exact + (1 << 23) >> 24
    return rounded if "rans-weight-0" in broken else max(1, rounded)


def weights_of(table, broken):
    """Returns w of all R^k symbols."""
    w = [SLOTS * F for F in table.F]
    for _ in range({1: 0, 2: 1, 4: 2}[table.k]):
        w = pairs(w, broken)
    return w


def slots_of(table, broken):
    """Returns the list B(0) to B(R^k): the first slot of each symbol, and the end of the last."""
    w = weights_of(table, broken)
    whole = "rans-slots-whole" in broken
    e = [x if whole else max(0, x - SLOTS) for x in w]
    M, E = sum(x > 0 for x in w), sum(e)
    T = ((SLOTS - M) << 32) // E
    before = shared = alone = 0
    B = []
    for x, extra in zip(w, e):
        share = T * shared >> 32
        if "rans-slots-exact" in broken:
            share = (SLOTS - M) * shared // E
        B.append(before + (alone if "rans-slots-alone" in broken else share))
        before, shared, alone = before + (x > 0), shared + extra, alone + (T * extra >> 32)
    return B + [before + (T * shared >> 32) if "rans-slots-last" in broken else SLOTS]


class Slots:
    """The slots of a table. B: as in 3.7; symbols: the symbol of each slot."""

    def __init__(self, table, broken):
        self.B = slots_of(table, broken)
        ends = zip(self.B, self.B[1:])
        self.symbols = [s for s, (first, end) in enumerate(ends) for _ in range(first, end)]


class States:
    """The 32 states of a block, and the words that they read. Reads both from the reader."""

    def __init__(self, reader, W, broken):
        self.broken = broken
        self.count = 16 if "rans-states" in broken else STATES
        words = reader.take(2 * W) if "rans-words-first" in broken else None
        self.x = list(struct.unpack(f"<{self.count}I", reader.take(4 * self.count)))
        words = reader.take(2 * W) if words is None else words
        order = ">" if "rans-word-bytes" in broken else "<"
        self.words, self.next = struct.unpack(f"{order}{W}H", words), 0
        small = min(self.x) < LEAST_STATE
        need(not small or "rans-state-small" in broken, "a state below 2^16")
        self.first, self.j = list(self.x), 0

    def word(self):
        """Returns the next word."""
        if self.next == len(self.words) and "rans-word-missing" in self.broken:
            return 0
        need(self.next < len(self.words), "a word is missing")
        self.next += 1
        return self.words[self.next - 1]

    def part(self, table, count):
        """Decodes the next part. count: how many codes it has. Returns them, without the digits
        that fill up the last symbol."""
        slots, R, codes = Slots(table, self.broken), len(table.F), []
        if "rans-part-j" not in self.broken:
            self.j = 0
        if "rans-part-states" in self.broken:
            self.x = list(self.first)
        for _ in range(-(-count // table.k)):
            codes += self.codes_of(self.symbol(slots), table, R)
        self.check_fill(table, codes[count:])
        return codes[:count]

    def symbol(self, slots):
        """Reads the next symbol. slots: those of its table."""
        B, at = slots.B, self.j % self.count
        x, self.j = self.x[at], self.j + 1
        slot = x % SLOTS
        # Without a deliberate error, every slot belongs to a symbol.
        need(slot < len(slots.symbols), "a slot of no symbol")
        s = slots.symbols[slot]
        x = (B[s + 1] - B[s]) * (x // SLOTS) + slot - B[s]
        if x < LEAST_STATE + ("rans-word-early" in self.broken):
            below = "rans-word-below" in self.broken
            x = x + (self.word() << 16) if below else (x << 16) + self.word()
        self.x[at] = x
        return s

    def trellis(self, tables, count, kept):
        """Decodes the codes of a block with a trellis. count: how many there are; kept: as for
        spec_trellis.Trellis. Returns them."""
        trellis, codes = spec_trellis.Trellis(self.broken, kept), []
        tables = [table._replace(k=1, F=table.F or [SLOTS]) for table in tables]
        slots = [Slots(table, self.broken) for table in tables]
        for _ in range(count):
            number = trellis.table()
            codes.append(trellis.code(tables[number].least + self.symbol(slots[number])))
        return codes

    def codes_of(self, s, table, R):
        """Returns the k codes of symbol s."""
        codes = []
        for _ in range(table.k):
            codes.append(table.least + s % R)
            s //= R
        return codes[::-1] if "rans-codes-of-symbol" in self.broken else codes

    def check_fill(self, table, fill):
        """Ignores the codes that fill up the last symbol, unless a deliberate error compares
        them."""
        usual = table.least + table.F.index(max(table.F))
        other = any(code != usual for code in fill)
        need(not other or "rans-fill-checked" not in self.broken, "digits that fill up")

    def end(self):
        """Checks that all words were used, and that all states have ended as they began."""
        used = self.next == len(self.words) or "rans-words-left" in self.broken
        need(used, "words are left over")
        ended = all(x == LEAST_STATE for x in self.x) or "rans-state-end" in self.broken
        need(ended, "a state does not end with 2^16")


def read_block(data, n, parts, kept, broken):
    """Decodes the block at the front of `data`.

    n: the number of its codes. parts: the number of codes in each of the four parts, or None if the
    block must not have parts. kept: as for spec_trellis.Trellis, or None if the block must not have
    a trellis. Returns (made, size): made is a list with one list of codes for each part, or with a
    single list if the block has no parts; size is the number of the block's bytes.
    """
    reader = Reader(data, broken)
    *head, cut, W = struct.unpack("<BBBBH", reader.take(6))
    need(cut <= 2 or "rans-parts-any" in broken, "the field parts")
    if cut == 2 and "trellis-refused" not in broken:
        need(kept is not None, "a trellis that a block must not have")
        return read_trellis(reader, head, W, n, kept)
    need(not cut or parts is not None, "parts that a block must not have")
    tables = [read_table(reader, head, broken)]
    for _ in range(3 if cut else 0):
        tables.append(read_table(reader, reader.take(3), broken))
    reader.end_byte()
    single = [table.F is None for table in tables]
    states = None
    if all(single) or (single[0] and "rans-single-first" in broken):
        need(W == 0 or "rans-single-words" in broken, "words without states")
    if not all(single) or "rans-single-states" in broken:
        states = States(reader, W, broken)
    made = []
    for table, count in zip(tables, parts if cut else [n]):
        one = table.F is None
        made.append([table.least] * count if one else states.part(table, count))
    if states:
        states.end()
    return made, reader.at


def read_trellis(reader, head, W, n, kept):
    """Decodes a block with a trellis, of which the header was read. The other arguments and the
    result are those of read_block."""
    broken = reader.broken
    tables = [read_table(reader, head, broken)]
    tables.append(read_table(reader, reader.take(3), broken))
    reader.end_byte()
    fault = spec_trellis.fault_of(tables, broken)
    need(fault is None, fault)
    states = States(reader, W, broken)
    codes = states.trellis(tables, n, kept)
    states.end()
    return [codes], reader.at
