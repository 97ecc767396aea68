# SPDX-License-Identifier: Apache-2.0
# spec_sparse.py - finds which values a sparse payload holds, written from docs/format.md, 3.10,
# alone.
"""Functions get `broken`, a set of names from BREAKS: the deliberate errors that they have to make,
with which golden.py shows that the golden files detect each of them. Section numbers are those of
docs/format.md."""

HEAD = 16
MASK, NUMBERS, GAPS = 1, 2, 3  # 3.10, way
MILLION = 1000000
MOST = 1 << 31  # 3.10: values of a sample

BREAKS = {
    "sparse-kept-down": "k is rounded down (3.10)",
    "sparse-one-byte-more": "L is as long as it wants to be (3.10)",
    "sparse-mask-reversed": "bit 0 of a mask is the highest bit of a byte (3.10)",
    "sparse-mask-any": "a mask may have fewer or more bits than k (3.10)",
    "sparse-numbers-high-first": "numbers have their highest bit first (3.10)",
    "sparse-numbers-wide": "w is the number of bits of n (3.10)",
    "sparse-numbers-any-order": "numbers may be in any order (3.10)",
    "sparse-range-any": "numbers that are too large are left out (3.10)",
    "sparse-gaps-beside": "the rest of a gap follows its lower bits at once (3.10)",
    "sparse-gaps-inverted": "the rest of a gap is written in ones (3.10)",
    "sparse-gaps-from-one": "a gap is the distance of two numbers (3.10)",
    "sparse-gaps-first": "the rests of all gaps come first (3.10)",
    "sparse-left-over": "bits that are left over may be 1 (3.10)",
    "sparse-zeros-any": "the zeros of the head may be anything (3.10)",
    "sparse-values-first": "the values come in front of the places (3.10)",
    "sparse-long-last": "the last stretches are the longer ones (3.10)",
    "sparse-draw-lower": "draws are made of the lower bytes (3.10)",
    "sparse-draw-big": "draws have their high byte first (3.10)",
    "sparse-draw-mod": "a draw is taken mod m (3.10)",
    "sparse-seed-refused": "a seed is refused with randk (1.1)",
    "alike-unseen": "places that are drawn alike are drawn as otherwise (3.6)",
    "alike-sequence": "places that are drawn alike depend on the sequence (3.6)",
    "alike-refused": "bit 1 of the flags is refused with all codecs (1.1)",
    "alike-any": "bit 1 of the flags is allowed with all codecs (1.1)",
    "alike-with-dither": "bit 1 of the flags is allowed with dither (1.1)",
    "sparse-bits-and-dtype": "parameter 7 must be there beside parameter 1 (1.2)",
    "sparse-element-refused": "the sparse codecs do not have parameter 15 (1.2)",
    "sparse-element-beside-bits": "parameters 1 and 2 may be there beside 15 (1.2)",
    "cocktail-kept-of-all": "k is a part of the values, not of the candidates (3.10)",
    "cocktail-mask-down": "the number of candidates is rounded down (3.10)",
    "cocktail-places": "places of cocktail are those in the sample (3.10)",
    "chunk-kept-of-all": "k is a part of the sample, not of each chunk (3.10)",
    "chunk-last-whole": "the last chunk has as many values as the others (3.10)",
    "chunk-numbers-of-all": "numbers of chunk are counted from the start of the sample (3.10)",
    "chunk-wide": "w of chunk is the number of bits of n - 1 (3.10)",
    "chunk-short-wide": "w of chunk is that of whole chunks in short samples (3.10)",
    "chunk-any": "a chunk may have more or fewer values than its number (3.10)",
    "chunk-gaps-anew": "the first gap of a chunk is counted from its start (3.10)",
}


class Invalid(Exception):
    """A payload breaks a rule of 3.10."""


def need(condition, rule):
    if not condition:
        raise Invalid(rule)


def up(n, m):
    return -(-n // m) * m


def part_of(a, p, down):
    return max(a * p // MILLION, 1) if down else -(-a * p // MILLION)


class Shape:
    """How many values are candidates (m), and how many are sent of each chunk; k is the sum of
    these. mask, chunk: parameters 28 and 29, or None."""

    def __init__(self, n, keep, mask, chunk, broken):
        self.m, self.draws = n, mask is not None
        down = "sparse-kept-down" in broken
        if self.draws:
            self.m = part_of(n, mask, "cocktail-mask-down" in broken)
        self.s = min(chunk or self.m, self.m)
        self.wide = self.s
        if chunk and "chunk-wide" in broken:
            self.wide = self.m
        if chunk and "chunk-short-wide" in broken:
            self.wide = chunk
        starts = range(0, self.m, self.s)
        self.chunks = [range(at, min(at + self.s, self.m)) for at in starts]
        self.sent = [part_of(len(chunk), keep, down) for chunk in self.chunks]
        if chunk and "chunk-last-whole" in broken:
            self.sent[-1] = min(self.sent[0], len(self.chunks[-1]))
        if chunk and "chunk-kept-of-all" in broken:
            self.sent = [part_of(n, keep, down)] + [0] * (len(self.chunks) - 1)
        if self.draws and "cocktail-kept-of-all" in broken:
            self.sent = [min(part_of(n, keep, down), self.m)]
        self.k = sum(self.sent)


def most_bytes(shape, values):
    """The limit of payload_bytes, but of the codec randk. values: V."""
    return HEAD + up(-(-shape.m // 8), 16) + values


def drawn(n, d, part, broken):
    """The numbers of d values that are drawn. part: a function that returns the 16-bit part of an
    element."""
    places, start = [], 0
    for j in range(d):
        longer = j >= d - n % d if "sparse-long-last" in broken else j < n % d
        m = n // d + longer
        shift = 0 if "sparse-draw-lower" in broken else 8
        four = [part(4 * j + i) >> shift & 0xFF for i in range(4)]
        u = int.from_bytes(bytes(four), "big" if "sparse-draw-big" in broken else "little")
        places.append(start + (u % m if "sparse-draw-mod" in broken else u * m >> 32))
        start += m
    return places


class Bits:
    """A string of bits."""

    def __init__(self, data):
        self.value, self.n, self.at = int.from_bytes(data, "little"), 8 * len(data), 0

    def next(self):
        need(self.at < self.n, "bits are missing")
        self.at += 1
        return self.value >> (self.at - 1) & 1

    def number(self, w, broken):
        bits = [self.next() for _ in range(w)]
        if "sparse-numbers-high-first" in broken:
            bits.reverse()
        return sum(bit << i for i, bit in enumerate(bits))


def read_mask(bits, n, k, broken):
    reverse = 7 if "sparse-mask-reversed" in broken else 0
    places = sorted(i ^ reverse for i in range(n) if bits.next())
    if "sparse-mask-any" in broken:
        return (places + list(range(n)))[:k]
    need(len(places) == k, "the number of ones")
    return places


def read_numbers(bits, shape, w, broken):
    places = []
    for chunk, sent in zip(shape.chunks, shape.sent):
        numbers = [bits.number(w, broken) for _ in range(sent)]
        if "chunk-numbers-of-all" in broken:
            places += in_order(numbers, shape.m, broken)
        else:
            places += [chunk.start + i for i in in_order(numbers, len(chunk), broken)]
    return places


def in_order(places, n, broken):
    if "sparse-range-any" in broken:
        places = [min(place, n - 1) for place in places]
        return places
    need(all(place < n for place in places), "a number is too large")
    rising = all(a < b for a, b in zip(places, places[1:]))
    need(rising or "sparse-numbers-any-order" in broken, "numbers are out of order")
    return places


def rest_of_gap(bits, broken):
    high, end = 0, 0 if "sparse-gaps-inverted" in broken else 1
    while bits.next() != end:
        high += 1
    return high


def read_gaps(bits, shape, w, broken):
    k = shape.k
    if "sparse-gaps-beside" in broken:
        pairs = [(bits.number(w, broken), rest_of_gap(bits, broken)) for _ in range(k)]
    elif "sparse-gaps-first" in broken:
        high = [rest_of_gap(bits, broken) for _ in range(k)]
        pairs = [(bits.number(w, broken), h) for h in high]
    else:
        low = [bits.number(w, broken) for _ in range(k)]
        pairs = [(part, rest_of_gap(bits, broken)) for part in low]
    places, last = [], -1
    starts = {sum(shape.sent[:i]): chunk.start for i, chunk in enumerate(shape.chunks)}
    for j, (part, high) in enumerate(pairs):
        if "chunk-gaps-anew" in broken and j in starts:
            last = starts[j] - 1
        last += part + (high << w) + (0 if "sparse-gaps-from-one" in broken else 1)
        places.append(last)
    return places


def places_of(payload, shape, values, broken):
    """Returns which candidates are in a payload with a head, and the payload of the values.
    values: V."""
    n, k = shape.m, shape.k
    need(len(payload) >= HEAD + values, "too short")
    way, w, L = payload[0], payload[1], int.from_bytes(payload[4:8], "little")
    zeros = payload[2:4] + payload[8:HEAD]
    need(not any(zeros) or "sparse-zeros-any" in broken, "zeros")
    need(HEAD + up(L, 16) + values == len(payload), "the sum of sizes")
    data, rest = payload[HEAD : HEAD + L], payload[len(payload) - values :]
    if "sparse-values-first" in broken:
        data, rest = payload[HEAD + values :][:L], payload[HEAD : HEAD + values]
    bits = Bits(data)
    width = (shape.wide if "sparse-numbers-wide" in broken else shape.wide - 1).bit_length()
    allowed = {MASK: w == 0, NUMBERS: w == width, GAPS: w <= 31}
    need(allowed.get(way, False), "way or w")
    if way == MASK:
        places = read_mask(bits, n, k, broken)
    elif way == NUMBERS:
        places = read_numbers(bits, shape, w, broken)
    else:
        places = in_order(read_gaps(bits, shape, w, broken), n, broken)
    for chunk, sent in zip(shape.chunks, shape.sent):
        there = sum(place in chunk for place in places)
        need(there == sent or "chunk-any" in broken, "values of a chunk")
    if "sparse-one-byte-more" not in broken:
        need(L == -(-bits.at // 8), "L")
    left = [bits.next() for _ in range(bits.n - bits.at)]
    need(not any(left) or "sparse-left-over" in broken, "bits that are left over")
    return places, rest
