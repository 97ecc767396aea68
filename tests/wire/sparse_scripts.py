# SPDX-License-Identifier: Apache-2.0
# sparse_scripts.py - makes scripts of frames with sparse payloads, for test_spec_decoder.py.
"""Written from docs/format.md, 3.10, alone. Payloads have any places, in any of the three ways and
with any w, also those that our encoder does not take because they are longer."""

import random

from spec_encoder import (
    BF16,
    F16,
    F32,
    MILLION,
    ROW,
    STATELESS,
    Entry,
    Payloads,
    Script,
    converted,
    dither_numbers,
    folded,
    up,
)
from spec_scripts import A, B, row, rows

MASK, NUMBERS, GAPS = 1, 2, 3
SPARSE = 5
ALIKE = 2  # 1.1, flags


def part(a, p):
    return -(-a * p // MILLION)


class Shape:
    """Which values of n may be sent, and how many."""

    def __init__(self, n, p):
        self.n, self.m = n, part(n, p["mask"]) if "mask" in p else n
        self.s = min(p.get("chunk", self.m), self.m)
        self.chunks = [(at, min(self.s, self.m - at)) for at in range(0, self.m, self.s)]
        self.sent = [part(size, p["keep"]) for _, size in self.chunks]
        self.k = sum(self.sent)


def drawn(n, d, key):
    """The numbers of d values that are drawn. key: that of the generator (3.6)."""
    places, start = [], 0
    parts = dither_numbers(key, 4 * d)
    for j in range(d):
        size = n // d + (j < n % d)
        u = sum((parts[4 * j + i] >> 8) << 8 * i for i in range(4))
        places.append(start + u * size // 2**32)
        start += size
    return places


def string(fields):
    """A string of bits, from (number, bits)."""
    whole = at = 0
    for number, bits in fields:
        whole |= number << at
        at += bits
    return whole.to_bytes(up(at, 8) // 8, "little")


def described(shape, numbers, way, w=None):
    """The head and the places. numbers: of the candidates. w: of gaps."""
    if way == MASK:
        w, bits = 0, string([(1 if i in set(numbers) else 0, 1) for i in range(shape.m)])
    elif way == NUMBERS:
        w = (shape.s - 1).bit_length()
        bits = string([(i % shape.s, w) for i in numbers])
    else:
        gaps = [i - last - 1 for last, i in zip([-1, *numbers], numbers)]
        low = [(gap & (1 << w) - 1, w) for gap in gaps]
        bits = string(low + [(1 << (gap >> w), (gap >> w) + 1) for gap in gaps])
    head = bytes((way, w, 0, 0)) + len(bits).to_bytes(4, "little") + bytes(8)
    return head + bits + bytes(-len(bits) % 16)


def chosen(s, shape):
    """Candidates at random: as many of each chunk as it must have."""
    numbers = []
    for (at, size), sent in zip(shape.chunks, shape.sent):
        numbers += sorted(s.random.sample(range(at, at + size), sent))
    return numbers


def add(s, frame, key=A, way=MASK, w=None, numbers=None, may_be_long=False):
    """Adds an entry, with random values. numbers: of the candidates; otherwise random ones. What
    would be longer than a mask is written as one, unless it may be too long."""
    shape, p = Shape(s.T * s.C, s.parameters), s.parameters
    floats = "dtype" in p
    make = Payloads(s.random, 1, shape.k, F32 if floats else s.y, calm=s.calm)
    if "element" in p:
        values, y, _ = make.microscaled(p["element"], False, None, False)
    elif not floats:
        values, y, _ = make.quantized(p["bits"], p["group"], False, None, False)
    else:
        values, y, _ = make.floats(p["dtype"], False)
        y = [converted(b, F32, s.y) for b in y]
    generator = (frame.seed, *key, frame.sequence, frame.incarnation)
    if frame.flags & ALIKE:
        generator = generator[:3]
    if s.codec == "randk":
        places, payload = drawn(shape.n, shape.k, generator), values
    else:
        numbers = numbers or chosen(s, shape)
        told, places = described(shape, numbers, way, w), numbers
        if len(told) > 16 + up(up(shape.m, 8) // 8, 16) and not may_be_long:
            told = described(shape, numbers, MASK)
        payload = told + values
    if "mask" in p:
        all_ = drawn(shape.n, shape.m, generator)
        places = [all_[i] for i in numbers]
    whole = [0] * shape.n
    for place, b in zip(places, y):
        if place < shape.n:
            whole[place] = b
    frame.entries.append(Entry(key, STATELESS, SPARSE, 1, payload, whole, None))
    return frame.entries[-1]


def script(codec, shape, y=F32, seed=1, calm=False, **parameters):
    return Script(random.Random(seed), codec, parameters, shape, y, calm=calm)


def send(s, *ways, status="OK", change=None, alike=False):
    """Sends a frame with an entry for each way, (way, w). change: of the payload of the first.
    alike: places are drawn by seed and key alone."""
    frame = s.frame()
    frame.flags |= ALIKE if alike else 0
    for key, (way, w) in zip((A, B, (9, 9)), ways):
        add(s, frame, key, way, w)
    if change:
        e = frame.entries[0]
        payload = bytes(change(bytearray(e.payload)))
        e.payload, e.payload_bytes, e.payload_digest = payload, len(payload), folded(payload)
    s.deliver(frame, status, 0)


def random_scripts():
    """Every codec, way and dtype, and every w of gaps that is possible in so small a sample."""
    for number in range(12):
        y, n = (F32, F16, BF16)[number % 3], ((3, 70), (1, 200), (5, 33), (1, 1))[number % 4]
        keep = (100000, 20000, 400000, 1, MILLION)[number % 5]
        values = {"dtype": (F32, F16, BF16)[number // 3 % 3]}
        if number % 2:
            values = {"bits": number % 8 + 1, "group": (16, ROW, 64)[number % 3]}
        s = script("topk", n, y, number, keep=keep, **values)
        send(s, (MASK, 0), (NUMBERS, None), (GAPS, number % 5))
        send(s, (GAPS, 31), (GAPS, 5 + number), (MASK, 0))
        yield f"sparse_topk_{number}", s
        s = script("randk", n, y, number, keep=keep, **values)
        s.seed = number * 2**60 % 2**64
        send(s, (None, None), (None, None))
        yield f"sparse_randk_{number}", s
        quantized = {"bits": number % 8 + 1, "group": (16, 128, ROW)[number % 3], "keep": keep}
        mask = (100000, 500000, MILLION, 333333)[number % 4]
        s = script("cocktail", n, y, number, mask=mask, **quantized)
        s.seed = number
        send(s, (MASK, 0), (NUMBERS, None), (GAPS, number % 5))
        yield f"sparse_cocktail_{number}", s
        n = ((3, 70), (1, 300), (5, 33), (1, 1), (9, 70))[number % 5]
        s = script("chunk", n, y, number, chunk=(128, 256, 65536)[number % 3], **quantized)
        send(s, (MASK, 0), (NUMBERS, None), (GAPS, number % 5))
        yield f"sparse_chunk_{number}", s


def microscaled_scripts():
    """Every codec with every element; more and fewer values than a block has."""
    more = {"topk": {}, "randk": {}, "cocktail": {"mask": 500000}, "chunk": {"chunk": 128}}
    for element in range(1, 7):
        for number, codec in enumerate(more):
            y, n = (F32, F16, BF16)[(element + number) % 3], ((3, 70), (1, 300))[element % 2]
            keep = (400000, 50000, 700000)[element % 3]
            s = script(codec, n, y, element, keep=keep, element=element, **more[codec])
            s.seed = 0 if codec in ("topk", "chunk") else element
            ways = ((None, None),) * 2 if codec == "randk" else ((MASK, 0), (NUMBERS, None))
            send(s, *ways)
            yield f"sparse_{codec}_element_{element}", s


def alike():
    """Frames whose places are drawn by seed and key alone, of two encoders, and in between others.
    Only randk and cocktail may write them."""
    s = script("cocktail", (3, 70), keep=200000, mask=400000, bits=4, group=16)
    for s.seed in (7, 7, 0, 2**64 - 1):
        send(s, (MASK, 0), (GAPS, 2), alike=True)
        send(s, (MASK, 0))
    s.incarnation += 5
    send(s, (NUMBERS, None), (MASK, 0), alike=True)
    s.codec, s.parameters = "topk", {"keep": 200000, "bits": 4, "group": 16}
    s.seed = 0
    send(s, (MASK, 0), status="FORMAT", alike=True)
    return s


def alike_randk():
    """The same with randk, of which places are all that differs."""
    s = script("randk", (2, 90), keep=300000, dtype=F32)
    for s.seed in (7, 7, 0):
        send(s, (None, None), (None, None), alike=True)
        send(s, (None, None))
    return s


# ------------------------------------------------------------------------------------------------
# Frames that are refused


def byte(at, value):
    """Sets a byte of the payload."""

    def change(payload):
        assert payload[at] != value
        payload[at] = value
        return payload

    return change


def longer(payload):
    """16 bytes more behind the places, which L does not count."""
    return payload[:16] + bytes(16) + payload[16:]


def bad_sparse_places():
    """Every rule of 3.10 about the head and the places; what is at the limit of a rule is taken."""
    s = script("topk", (1, 200), keep=20000, bits=4, group=16)
    for way, w, change in (
        (MASK, 0, byte(0, 0)),
        (MASK, 0, byte(0, 4)),
        (MASK, 0, byte(1, 1)),
        (MASK, 0, byte(2, 1)),
        (MASK, 0, byte(3, 128)),
        (MASK, 0, byte(4, 24)),
        (MASK, 0, byte(7, 1)),
        (MASK, 0, byte(8, 1)),
        (MASK, 0, byte(15, 1)),
        (MASK, 0, longer),
        (NUMBERS, None, byte(1, 7)),
        (NUMBERS, None, byte(1, 9)),
        (NUMBERS, None, byte(4, 5)),
        (NUMBERS, None, byte(16, 250)),
        (GAPS, 3, byte(1, 32)),
        (GAPS, 3, byte(4, 1)),
        (GAPS, 3, longer),
    ):
        send(s, (way, w), status="FORMAT", change=change)
    for numbers in ([5, 5, 9, 9], [199, 5, 6, 7], [0, 1, 3, 2]):
        frame = s.frame()
        add(s, frame, A, NUMBERS, None, numbers)
        s.deliver(frame, "FORMAT", 0)
    for numbers in ([196, 197, 198, 199], [0, 1, 2, 199]):
        frame = s.frame()
        for way, w in ((MASK, 0), (NUMBERS, None), (GAPS, 0), (GAPS, 31)):
            add(s, frame, A, way, w, numbers)
        s.deliver(frame, "OK", 0)
    for numbers in ([1, 2, 3, 200], [1, 2, 3, 207], [0, 100, 190, 2**20]):
        frame = s.frame()
        add(s, frame, A, GAPS, 15, numbers)
        s.deliver(frame, "FORMAT", 0)
    for w, status in ((31, "OK"), (30, "OK"), (0, "FORMAT")):
        frame = s.frame()  # 200 bits take 32 bytes
        add(s, frame, A, GAPS, w, [7, 8, 9, 199] if w else [60, 120, 180, 199 + 200], True)
        s.deliver(frame, status, 0)
    return s


def bad_chunks():
    """A chunk has more or fewer values than its number: refused in all ways that can say it."""
    s = script("chunk", (1, 300), keep=10000, chunk=128, bits=2, group=16)
    taken = [3, 127, 128, 130, 299]
    for numbers, status in (
        (taken, "OK"),
        ([3, 4, 127, 130, 299], "FORMAT"),
        ([3, 128, 129, 130, 299], "FORMAT"),
        ([3, 4, 128, 298, 299], "FORMAT"),
    ):
        for way, w in ((MASK, 0), (GAPS, 6)):
            frame = s.frame()
            add(s, frame, A, way, w, numbers)
            s.deliver(frame, status, 0)
    send(s, (NUMBERS, None))
    return s


def bad_sparse_fields():
    """Parameters that do not belong to the codec, or have other values. In rows 0 to 3 the codecs
    have bits, group, keep and mask or chunk."""
    s = script("cocktail", (2, 40), keep=200000, mask=500000, bits=4, group=64)
    send(s, (MASK, 0))
    for change in (
        *(row(3, 2, value) for value in (0, MILLION + 1, 2**31)),
        *(row(2, 2, value) for value in (0, MILLION + 1)),
        *(row(1, 2, value) for value in (0, 65533, 65534)),
        row(3, 0, 27),
        row(3, 0, 29),
        rows(lambda r: r[:-1]),
        rows(lambda r: r[1:]),
        rows(lambda r: r[:2] + [[7, 0, F32]] + r[2:]),
        rows(lambda r: [[7, 0, F32]] + r[2:]),
        rows(lambda r: r + [[29, 0, 4096]]),
    ):
        frame = s.frame()
        add(s, frame)
        change(frame)
        s.deliver(frame, "FORMAT", 0)
    s.parameters["mask"] = 500001
    frame = s.frame()
    add(s, frame)
    s.deliver(frame, "MISMATCH", 0)
    s.codec, s.parameters = "chunk", {"keep": 200000, "chunk": 128, "bits": 4, "group": 64}
    for change, status in (
        *((row(3, 2, value), "FORMAT") for value in (0, 1, 64, 127, 129, 4095, 131072, 2**31)),
        (row(3, 2, 65536), "MISMATCH"),
        (rows(lambda r: r[:-1]), "FORMAT"),
        (lambda frame: setattr(frame, "seed", 1), "FORMAT"),
    ):
        frame = s.frame()
        add(s, frame)
        change(frame)
        s.deliver(frame, status, 0)
    return s


def bad_elements():
    """Parameter 15 of sparse codecs: not beside parameters 1 and 2, or 7, and only elements that
    there are. In rows 0 and 1 the codec has element and keep."""
    s = script("topk", (1, 200), keep=300000, element=6)
    send(s, (MASK, 0))
    for change, status in (
        *((row(0, 2, value), "FORMAT") for value in (0, 7, 2**31)),
        (row(0, 2, 5), "MISMATCH"),
        (rows(lambda r: [[1, 0, 4], [2, 0, 32]] + r), "FORMAT"),
        (rows(lambda r: [[1, 0, 4]] + r), "FORMAT"),
        (rows(lambda r: [[7, 0, F32]] + r), "FORMAT"),
        (rows(lambda r: r[1:]), "FORMAT"),
    ):
        frame = s.frame()
        add(s, frame)
        change(frame)
        s.deliver(frame, status, 0)
    return s


ALONE = (alike, alike_randk, bad_sparse_places, bad_chunks, bad_sparse_fields, bad_elements)
