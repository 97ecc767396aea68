# SPDX-License-Identifier: Apache-2.0
# spec_encoder.py - makes frames of format 2 and their expected results from docs/format.md alone.
"""For tests of decoders. Payloads are random bytes that docs/format.md allows, hostile ones among
them. What they must be decoded to is computed here with Python's floats. (The sum of two binary32,
rounded to binary64 and then to binary32, is the same as rounded once.) The only code shared with
spec_decoder.py, which it tests, is H. Section numbers are those of docs/format.md.
"""

import struct

from spec_rans_encoder import Block
from xxh3 import xxh3_64 as H

F32, F16, BF16 = 1, 2, 3
SIZE = {F32: 4, F16: 2, BF16: 2}
NAMES = {F32: "f32", F16: "f16", BF16: "bf16"}
NAN = {F32: 0x7FC00000, F16: 0x7E00, BF16: 0x7FC0}
LARGEST = {F32: 0x7F7FFFFF, F16: 0x7BFF, BF16: 0x7F7F}
OF_KEY = {32: F32, 16: F16, 17: BF16}
NUMBERS = {"bits": 1, "group": 2, "key": 6, "dtype": 7, "prev": 8, "choose": 9, "audit": 11}
NUMBERS.update({"rounding": 4, "form": 14, "element": 15, "entropy": 18})
NUMBERS.update({"keep": 26, "mask": 28, "chunk": 29})
CODECS = {"delta": 1, "direct": 2, "raw": 3, "mx": 4}
CODECS.update({"topk": 5, "randk": 6, "cocktail": 7, "chunk": 8})
MILLION = 1000000  # 1.2, keep and mask
STATELESS, KEY, DELTA, SKIP, SYNC = 1, 2, 3, 4, 5
NOTHING, WHOLE, CHANGE, BRIEF, EXACT = 0, 1, 2, 3, 4
ROW, CHANNEL, SAMPLE = 65535, 65534, 65533
STEPS, KEY_STEP, DITHER = 4, 128, 3  # 1.2: form, key and rounding
RANS = 2  # 1.2: the value of entropy
INT8, E4M3, E5M2, E3M2, E2M3, E2M1 = 1, 2, 3, 4, 5, 6
ELEMENTS = {INT8: "int8", E4M3: "e4m3", E5M2: "e5m2", E3M2: "e3m2", E2M3: "e2m3", E2M1: "e2m1"}
ELEMENT_BITS = {INT8: 8, E4M3: 8, E5M2: 8, E3M2: 6, E2M3: 6, E2M1: 4}
POISONED = 0xFF  # the scale of a block (3.3)


def up(n, m):
    return -(-n // m) * m


# ------------------------------------------------------------------------------------------------
# Floats (3.1 and 5)


def single(x):
    """x rounded to binary32; too large values become infinite."""
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return float("inf") if x > 0 else float("-inf")


def widen(bits, dtype):
    if dtype == F16:
        return struct.unpack("<e", struct.pack("<H", bits))[0]
    return struct.unpack("<f", struct.pack("<I", bits << 16 if dtype == BF16 else bits))[0]


def nearest(x, dtype):
    """The bits of a binary32 in the range of dtype, rounded to dtype."""
    if dtype == F16:
        return struct.unpack("<H", struct.pack("<e", x))[0]
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return bits if dtype == F32 else bits + 0x7FFF + (bits >> 16 & 1) >> 16


def clamped(x, dtype):
    """RN of section 5."""
    largest = widen(LARGEST[dtype], dtype)
    return nearest(max(-largest, min(largest, x)), dtype)


def added(before, factor, value):
    """Section 5, Adding; all values are bits of binary32."""
    total = single(widen(before, F32) + single(widen(factor, F32) * widen(value, F32)))
    return NAN[F32] if total != total else nearest(total, F32)


def converted(bits, source, target):
    """3.1, role stateless."""
    if source == target:
        return bits
    x, sign = widen(bits, source), bits >> 8 * SIZE[source] - 1
    top = sign << 8 * SIZE[target] - 1
    if x != x:
        if target == F32:
            fraction = bits & (0x3FF if source == F16 else 0x7F)
            return top | 0x7F800000 | fraction << (13 if source == F16 else 16)
        return top | NAN[target]
    infinite = {F32: 0x7F800000, F16: 0x7C00, BF16: 0x7F80}[target]
    # The smallest binary32 that rounds to infinity is half a step above the largest finite number.
    limit = {F16: 65520.0, BF16: float.fromhex("0x1.ffp127"), F32: float("inf")}[target]
    return top | infinite if abs(x) >= limit else nearest(x, target)


def pack(bits, dtype):
    return struct.pack(f"<{len(bits)}{'I' if SIZE[dtype] == 4 else 'H'}", *bits)


# ------------------------------------------------------------------------------------------------
# Digests (4)


def folded(data, wanted=lambda pair: True):
    data += bytes(-len(data) % 8)
    pairs = struct.iter_unpack("<II", data)
    S = sum(
        (a + 0x9E3779B1 * (2 * i + 1)) % 2**32 * ((b + 0x9E3779B1 * (2 * i + 2)) % 2**32)
        for i, (a, b) in enumerate(pairs)
        if wanted(i)
    )
    S %= 2**64
    S ^= S >> 33
    S = S * 0xC2B2AE3D27D4EB4F % 2**64
    S ^= S >> 29
    S = S * 0x165667B19E3779F9 % 2**64
    S ^= S >> 32
    return S or 1


def state_digest(prev, dtype, audit, key, sequence):
    phase = H(struct.pack("<QIIQ", *key, 0, sequence)) % audit
    return folded(pack(prev, dtype), lambda pair: pair * 8 // SIZE[dtype] // 2048 % audit == phase)


# ------------------------------------------------------------------------------------------------
# Payloads (3)


def tiles_of(T, C, group):
    """Tiles as lists of segments, a segment as (token, first channel, w, g)."""
    rows = group in (ROW, CHANNEL, SAMPLE)
    width = min(C, 2048) if rows else group
    segments = []
    for t in range(T):
        for at in range(0, C, width):
            w = min(width, C - at)
            segments.append((t, at, w, up(w, 32) if rows else group))
    if rows and C > 2048:
        return [[s] for s in segments]
    per = 2048 // segments[0][3]
    return [segments[i : i + per] for i in range(0, len(segments), per)]


def planes(codes, bits):
    """The planes of a tile. The first one has the low bits of the codes."""
    out, shift = b"", 0
    for p in (8, 4, 2, 1):
        if bits & p:
            whole = sum((c >> shift & (1 << p) - 1) << p * i for i, c in enumerate(codes))
            out += whole.to_bytes(len(codes) * p // 8, "little")
            shift += p
    return out


def ladder(smallest, largest, fraction, codes):
    """The values of all codes of a float element. Steps double from exponent to exponent, up to the
    largest value, which all further codes have, too."""
    values = [0.0]
    for code in range(codes - 1):
        step = smallest * 2.0 ** max(0, (code >> fraction) - 1)
        values.append(min(values[-1] + step, largest))
    return values + [-v for v in values]


CODES = {  # the values of all codes (3.3)
    INT8: [level / 64.0 for level in (*range(128), *range(-128, 0))],
    E4M3: ladder(2.0**-9, 448.0, 3, 128),
    E5M2: ladder(2.0**-16, 57344.0, 2, 128),
    E3M2: ladder(2.0**-4, 28.0, 2, 32),
    E2M3: ladder(2.0**-3, 7.5, 3, 32),
    E2M1: ladder(2.0**-1, 6.0, 1, 8),
}


def philox(key, block):
    """The eight 16-bit numbers of block `block` of Philox4x32-10."""
    words, keys = [block % 2**32, block >> 32, 0, 0], [key % 2**32, key >> 32]
    for _ in range(10):
        first, second = 0xD2511F53 * words[0], 0xCD9E8D57 * words[2]
        words = [
            (second >> 32) ^ words[1] ^ keys[0],
            second % 2**32,
            (first >> 32) ^ words[3] ^ keys[1],
            first % 2**32,
        ]
        keys = [(keys[0] + 0x9E3779B9) % 2**32, (keys[1] + 0xBB67AE85) % 2**32]
    return struct.unpack("<8H", struct.pack("<4I", *words))


class Dither:
    """z of the elements of an entry (3.6 and 5)."""

    def __init__(self, seed, key, sequence, incarnation):
        self.key = H(struct.pack("<QQQQQ", seed, *key, sequence, incarnation))
        self.block = None, ()

    def z(self, element):
        if self.block[0] != element // 8:
            self.block = element // 8, philox(self.key, element // 8)
        return (self.block[1][element % 8] + 0.5) / 65536 - 0.5


def dither_numbers(fields, n):
    """The first n 16-bit numbers of the generator. fields: what its key is made of (3.6)."""
    key = H(struct.pack(f"<{len(fields)}Q", *fields))
    return [number for block in range(up(n, 8) // 8) for number in philox(key, block)][:n]


def parts_of(codes, zs):
    """3.9: returns the codes of the four parts, as they are written. zs: z of each code."""
    parts = [[], [], [], []]
    for code, z in zip(codes, zs):
        parts[int(8 * abs(z))].append((256 - code) % 256 if z < 0 else code)
    return parts


class Payloads:
    """Makes random payloads of one shape, and their results: y as bits, and prev'."""

    def __init__(self, random, T, C, y, prev=None, calm=False, coded=False):
        """y, prev: the dtypes of the decoded values and of prev. calm: if true, scales and floats
        have usual values only. coded: if true, payloads are entropy-coded (3.8).

        The fields that are set here may be changed before a payload is made: block, a function that
        makes the block of a group from its codes and their dither; resize, a function that changes
        the list of sizes, so that it breaks a rule; too_long, true if blocks may be longer than
        their group's tiles; padding, the code of padding, or None for random ones."""
        self.random, self.T, self.C, self.y, self.prev, self.calm = random, T, C, y, prev, calm
        # The tiles that are made so far: (token, scales, codes, planes, dither), see end_tile.
        self.coded, self.tiles = coded, []
        # The standard deviation of codes, if they are entropy-coded.
        self.spread = random.choice((0, 0.3, 0.5, 1, 3, 30)) if coded else None
        self.is_cut = False  # whether rows have several tiles each
        self.block, self.resize = self.block_of, lambda sizes: sizes
        self.too_long, self.padding = False, None

    def padded(self, data):
        """Fills data up to a multiple of 16 bytes with random ones, which readers must ignore."""
        return data + self.random.randbytes(-len(data) % 16)

    def codes(self, bits, n):
        """Returns n random codes. If payloads are entropy-coded, codes near the middle are more
        frequent than others; otherwise all are equally frequent."""
        if not self.coded:
            return [self.random.getrandbits(bits) for _ in range(n)]
        middle, most = 1 << bits - 1, (1 << bits) - 1
        near = lambda: middle + round(self.random.gauss(0, self.spread))
        return [max(0, min(most, near())) for _ in range(n)]

    def end_tile(self, token, scales, codes, bits, dither=None):
        """Keeps a tile for joined(). token: the row of its first element; scales: the bytes of its
        scales; codes: its codes, of so many bits; dither: z of every code, or None. The planes are
        followed by random bytes, which readers must ignore."""
        self.tiles.append((token, scales, codes, self.padded(planes(codes, bits)), dither))

    def joined(self, front):
        """Returns the payload: `front`, which is what lies in front of the tiles, and the tiles
        that end_tile has kept, entropy-coded if payloads are (3.8). Forgets these tiles."""
        tiles, self.tiles = self.tiles, []
        if not self.coded:
            return front + b"".join(scales + own for _, scales, _, own, _ in tiles)
        groups, last = [], None
        for tile in tiles:
            eighth = tile[0] % 8 == 0 and tile[0] != last and self.is_cut
            if not groups or len(groups[-1]) == 16 or eighth:
                groups.append([])
            groups[-1].append(tile)
            last = tile[0]
        made = [self.group(own) for own in groups]
        sizes = self.resize([len(own) for own in made])
        told = self.padded(struct.pack(f"<{len(sizes)}I", *sizes))
        return front + told + self.padded(b"".join(made))

    def group(self, tiles):
        """Returns the bytes of a group: entropy-coded, or its tiles, whichever is shorter."""
        codes = [code for tile in tiles for code in tile[2]]
        zs = [z for tile in tiles for z in tile[4]] if tiles[0][4] else None
        plain = b"".join(scales + own for _, scales, _, own, _ in tiles)
        coded = b"".join(tile[1] for tile in tiles) + self.block(codes, zs)
        return coded if len(coded) < len(plain) or self.too_long else plain

    def block_of(self, codes, zs):
        """Returns a block of these codes (3.7), with any k that is allowed. If the codes are
        dithered (zs is not None), it mostly has parts (3.9)."""
        parts = parts_of(codes, zs) if zs and self.random.random() < 0.8 else None
        parts = parts if parts and all(parts) else [codes]
        ks = []
        for own in parts:
            R = max(own) - min(own) + 1
            ks.append(self.random.choice([k for k in (1, 2, 4) if R**k <= 256]))
        return Block(parts, ks).bytes()

    def floats(self, dtype, stateful):
        bits = [self.float(dtype) for _ in range(self.T * self.C)]
        payload = self.padded(pack(bits, dtype))
        if not stateful:
            return payload, [converted(b, dtype, self.y) for b in bits], None
        prev, y = [], []
        for b in bits:
            x = widen(b, dtype)
            finite = abs(x) < float("inf")
            prev.append(clamped(x, self.prev) if finite else 0)
            y.append(clamped(widen(prev[-1], self.prev), self.y) if finite else NAN[self.y])
        return payload, y, prev

    def float(self, dtype):
        if self.calm or self.random.random() < 0.3:
            return clamped(single(self.random.gauss(0, 1)), dtype)
        return self.random.getrandbits(8 * SIZE[dtype])

    def scale(self):
        kind = 0.9 if self.calm else self.random.random()
        if kind < 0.1:
            return self.random.choice(
                (0, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 0x7F7F, 0xFF7F, 1, 0x8001)
            )
        if kind < 0.3:
            return self.random.getrandbits(16)
        return self.random.randrange(0x3C00, 0x3F80) | self.random.getrandbits(1) << 15

    def quantized(self, bits, group, chooses, base, stateful):
        """base: prev as bits, or None if there is no base."""
        tiles = tiles_of(self.T, self.C, group)
        self.is_cut = group == ROW and self.C > 2048
        pieces = self.C if group == CHANNEL else sum(len(tile) for tile in tiles)
        choices = [self.random.getrandbits(1) if chooses else 0 for _ in range(pieces)]
        scales = [self.scale() for _ in range(pieces)]
        payload, number = b"", 0
        if chooses:
            whole = sum(choice << i for i, choice in enumerate(choices))
            whole |= self.random.getrandbits(8) << pieces & (1 << up(pieces, 8)) - 1
            payload += self.padded(whole.to_bytes(up(pieces, 8) // 8, "little"))
        if group == CHANNEL:
            payload += self.padded(struct.pack(f"<{pieces}H", *scales))
        y, prev = [0] * (self.T * self.C), list(base or [0] * (self.T * self.C))
        for tile in tiles:
            head, codes = b"", []
            if group != CHANNEL:
                own = scales[number : number + len(tile)]
                head = self.padded(struct.pack(f"<{len(own)}H", *own))
            for t, at, w, g in tile:
                part = self.codes(bits, g)
                codes += part
                for i in range(w):
                    piece = at + i if group == CHANNEL else number
                    to = t * self.C + at + i
                    under = base[to] if base is not None and not choices[piece] else None
                    self.element(y, prev, to, under, part[i], bits, scales[piece], stateful)
                number += 1
            self.end_tile(tile[0][0], head, codes, bits)
        return self.joined(payload), y, prev if stateful else None

    def scale_of_block(self):
        kind = 0.9 if self.calm else self.random.random()
        if kind < 0.2:
            return self.random.choice((0, 1, 254, POISONED))
        return self.random.randrange(256) if kind < 0.3 else self.random.randrange(110, 130)

    def microscaled(self, element, chooses, base, stateful, scales=None, codes=None):
        """3.3; base: prev as bits, or None. scales and codes: None for random ones."""
        width = ELEMENT_BITS[element]
        per_row = up(self.C, 32) // 32
        blocks = self.T * per_row
        choices = [self.random.getrandbits(1) if chooses else 0 for _ in range(blocks)]
        scales = scales or [self.scale_of_block() for _ in range(blocks)]
        codes = codes or self.codes(width, 32 * blocks)
        payload = b""
        if chooses:
            whole = sum(choice << i for i, choice in enumerate(choices))
            payload += self.padded(whole.to_bytes(up(blocks, 8) // 8, "little"))
        for first in range(0, blocks, 64):
            head = self.padded(bytes(scales[first : first + 64]))
            self.end_tile(0, head, codes[32 * first : 32 * (first + 64)], width)
        payload = self.joined(payload)
        y, prev = [0] * (self.T * self.C), list(base or [0] * (self.T * self.C))
        for to in range(self.T * self.C):
            t, c = divmod(to, self.C)
            block, code = t * per_row + c // 32, codes[32 * t * per_row + c]
            under = None if base is None or choices[block] else base[to]
            if scales[block] == POISONED:
                y[to] = NAN[self.y]
            else:
                value = single(CODES[element][code] * 2.0 ** (scales[block] - 127))
                self.add(y, prev, to, under, value, stateful)
        return payload, y, prev if stateful else None

    def stepped(self, group, base, stateful, dither, scales=None, codes=None):
        """3.4; base: prev as bits, or None; dither: None without. scales and codes: by the segment
        and by the element of the sample, or None for random ones."""
        tiles, payload, number = tiles_of(self.T, self.C, group), b"", 0
        self.is_cut = group in (ROW, SAMPLE) and self.C > 2048
        scales = scales or [self.scale() for _ in range(sum(len(tile) for tile in tiles))]
        if group == SAMPLE:
            scales = [scales[0]] * len(scales)
            payload += self.padded(struct.pack("<H", scales[0]))
        y, prev = [0] * (self.T * self.C), list(base or [0] * (self.T * self.C))
        for tile in tiles:
            stored, zs, head = [], [], b""
            if group != SAMPLE:
                own = scales[number : number + len(tile)]
                head = self.padded(struct.pack(f"<{len(own)}H", *own))
            for t, at, w, g in tile:
                first = t * self.C + at
                part = codes[first : first + w] if codes else self.bytes(w)
                pads = self.bytes(g - w) if self.padding is None else [self.padding] * (g - w)
                stored += list(part) + list(pads)
                zs += [dither.z(to) for to in range(first, first + w)] if dither else []
                zs += [0] * (g - w)
                for to, code in enumerate(part, first):
                    self.step(y, prev, to, base, code, scales[number], dither, stateful)
                number += 1
            self.end_tile(tile[0][0], head, stored, 8, zs if dither else None)
        return self.joined(payload), y, prev if stateful else None

    def bytes(self, n):
        """Returns n random codes of 8 bits."""
        return self.codes(8, n) if self.coded else self.random.randbytes(n)

    def step(self, y, prev, to, base, code, scale, dither, stateful):
        """Section 5, Reconstruction."""
        if scale & 0x7F80 == 0x7F80:
            y[to] = NAN[self.y]
            return
        amount = single(code - 128 - (dither.z(to) if dither else 0))
        value = single(amount * widen(scale, BF16))
        self.add(y, prev, to, None if base is None else base[to], value, stateful)

    def element(self, y, prev, to, under, code, bits, scale, stateful):
        """Section 5, Reconstruction; under: the base that is added, or None."""
        if scale & 0x7F80 == 0x7F80:
            y[to] = NAN[self.y]
            return
        level = 2 * code - 1 if bits == 1 else code - 2 ** (bits - 1)
        value = single(level * widen(scale, BF16))  # -0 if level is 0 and the scale is negative
        self.add(y, prev, to, under, value, stateful)

    def add(self, y, prev, to, under, value, stateful):
        """Steps 4 and 5."""
        r = single((0.0 if under is None else widen(under, self.prev)) + value)
        if stateful:
            prev[to] = clamped(r, self.prev)
            r = widen(prev[to], self.prev)
        y[to] = clamped(r, self.y)


# ------------------------------------------------------------------------------------------------
# Frames (1) and replies (6)


class Entry:
    def __init__(self, key, role, form, use, payload, y, prev):
        self.key, self.role, self.form, self.use, self.zero = key, role, form, use, 0
        self.payload, self.y, self.prev = payload, y, prev
        self.payload_bytes = len(payload)
        self.payload_digest = folded(payload) if payload else 0
        self.base_chain = self.state_digest = 0

    @property
    def stateful(self):
        return self.role != STATELESS

    def packed(self):
        return struct.pack(
            "<QIBBBBQQQQ",
            *self.key,
            self.role,
            self.form,
            self.use,
            self.zero,
            self.base_chain,
            self.payload_bytes,
            self.payload_digest,
            self.state_digest,
        )


class Frame:
    """All fields of a frame, which may be changed before bytes() computes the digests."""

    def __init__(self, codec, parameters, incarnation, sequence, T, C, x):
        self.magic, self.version, self.codec, self.flags = b"DWF1", (2, 0), CODECS[codec], 1
        self.incarnation, self.sequence, self.T, self.C, self.x = incarnation, sequence, T, C, x
        self.rows = [[NUMBERS[name], 0, value] for name, value in parameters.items()]
        self.rows.sort()
        self.entries, self.forgotten = [], []  # forgotten: (sample, slice, zero)
        self.seed, self.zero, self.zeros_behind = 0, bytes(6), None
        self.N = self.F = self.P = self.length = self.table_digest = self.header_digest = None

    def block(self):
        return b"".join(struct.pack("<BBHI", n, zero, 0, value) for n, zero, value in self.rows)

    def chain(self, e):
        prev = [value for number, _, value in self.rows if number == 8]
        head = struct.pack("<QQQI", e.base_chain, self.incarnation, *e.key)
        head += struct.pack("<BBBB", e.role, e.form, e.use, prev[0])
        head += struct.pack("<QQII", self.sequence, e.payload_digest, self.T, self.C)
        return H(head + struct.pack("<QQB7x", H(self.block()), self.seed, self.codec)) or 1

    def tables(self):
        tables = self.block() + b"".join(e.packed() for e in self.entries)
        tables += b"".join(struct.pack("<QII", *key) for key in self.forgotten)
        zeros = bytes(-len(tables) % 16)
        return tables + (zeros if self.zeros_behind is None else self.zeros_behind)

    def bytes(self):
        tables = self.tables()
        payloads = b"".join(e.payload for e in self.entries)
        given = lambda field, usual: usual if field is None else field
        head = struct.pack("<4sBBBB", self.magic, *self.version, self.codec, self.flags)
        head += struct.pack("<QQ", self.incarnation, self.sequence)
        head += struct.pack("<III", given(self.N, len(self.entries)), self.T, self.C)
        head += struct.pack("<IB", given(self.F, len(self.forgotten)), self.x)
        head += struct.pack("<B6s", given(self.P, len(self.rows)), self.zero)
        length = given(self.length, 80 + len(tables) + len(payloads))
        head += struct.pack("<QQQ", length, self.seed, given(self.table_digest, H(tables)))
        return head + struct.pack("<Q", given(self.header_digest, H(head))) + tables + payloads


def reply(answer, frame, held):
    """held: [(key, None or (incarnation, version, chain))]."""
    table = b""
    for key, state in held:
        table += struct.pack("<QIB3x", *key, state is not None)
        table += struct.pack("<QQQ", *(state or (0, 0, 0)))
    head = struct.pack("<4sBBBB", b"DWR1", 2, 0, answer, 0)
    head += struct.pack("<QQ", frame.incarnation, frame.sequence)
    head += struct.pack("<IIQ", len(held), 0, H(table))
    return head + struct.pack("<Q", H(head)) + table


# ------------------------------------------------------------------------------------------------
# Golden files


class Script:
    """Frames for one decoder, with their expected results: the contents of a golden file."""

    def __init__(self, random, codec, parameters, shape, y=F32, x=F32, own=(), calm=False):
        self.random, self.codec, self.parameters = random, codec, dict(parameters)
        self.codec_told, self.told = codec, dict(parameters)  # the config of the decoder
        self.T, self.C = shape
        self.y, self.x, self.own, self.calm = y, x, list(own), calm
        self.incarnation, self.sequence = 0x0123456789ABCDEF, 0
        self.held = (
            {}
        )  # key -> (prev, its dtype, incarnation, version, chain), as the decoder has it
        self.keys = []  # all keys that were ever held
        self.steps, self.seed = [], 0

    def frame(self, *entries, sequence=None, incarnation=None):
        """entries: (role, key), (role, key, use), or (role, key, use, another base)."""
        if sequence is None:
            self.sequence += 1
        life = incarnation or self.incarnation
        at = sequence or self.sequence
        frame = Frame(self.codec, self.parameters, life, at, self.T, self.C, self.x)
        frame.seed = self.seed
        for entry in entries:
            frame.entries.append(self.entry(frame, *entry))
        return frame

    def entry(self, frame, role, key, use=None, base=None):
        """base: (prev, ..., chain) instead of what is held."""
        usual = {STATELESS: WHOLE, KEY: WHOLE, DELTA: CHANGE, SKIP: NOTHING, SYNC: EXACT}
        use = usual[role] if use is None else use
        base = (base or self.held[key]) if role in (DELTA, SKIP) else None
        p, stateful = self.parameters, role != STATELESS
        prev = p.get("prev")
        make = Payloads(self.random, self.T, self.C, self.y, prev, self.calm, "entropy" in p)
        if use == NOTHING:
            y = [clamped(widen(b, prev), self.y) for b in base[0]]
            e = Entry(key, role, 0, use, b"", y, list(base[0]))
        elif self.codec == "raw" or use == EXACT or (use == WHOLE and p.get("key") in OF_KEY):
            dtype = (
                p["dtype"] if self.codec == "raw" else prev if use == EXACT else OF_KEY[p["key"]]
            )
            e = Entry(key, role, 1, use, *make.floats(dtype, stateful))
        elif p.get("form") == STEPS:
            dither = None
            if "rounding" in p:
                dither = Dither(frame.seed, key, frame.sequence, frame.incarnation)
            under = base[0] if role == DELTA else None
            e = Entry(key, role, 4, use, *make.stepped(p["group"], under, stateful, dither))
        elif "element" in p:
            whole = self.codec == "delta" and use == WHOLE
            element = p["key"] - 64 if whole else p["element"]
            chooses = use == CHANGE and p["choose"] == 1
            under = base[0] if role == DELTA else None
            e = Entry(key, role, 3, use, *make.microscaled(element, chooses, under, stateful))
        else:
            bits = p["key"] if self.codec == "delta" and use == WHOLE else p["bits"]
            chooses = use == CHANGE and p["choose"] == 1
            under = base[0] if role == DELTA else None
            made = make.quantized(bits, p["group"], chooses, under, stateful)
            e = Entry(key, role, 2, use, *made)
        if base:
            e.base_chain = base[-1]
        if stateful and p["audit"] != 255:
            e.state_digest = state_digest(e.prev, prev, p["audit"], key, frame.sequence)
        return e

    def deliver(self, frame, status="OK", answer=1, gone=(), data=None, shape=None, adds=None):
        """gone: keys that the decoder has dropped afterwards; answer 0: no reply; data: bytes to be
        sent instead of the frame; adds: (factor, y before) as bits, if y is f32 and added to."""
        if status == "OK":
            for e in frame.entries:
                if e.stateful:
                    life = frame.incarnation, frame.sequence, frame.chain(e)
                    self.held[e.key] = (e.prev, self.parameters["prev"], *life)
                    self.keys += [e.key] if e.key not in self.keys else []
        for key in gone:
            del self.held[key]
        data = frame.bytes() if data is None else data
        named = [(e.key, self.held[e.key][2:] if e.key in self.held else None)
                 for e in frame.entries if e.stateful]  # fmt: skip
        n, t, c = shape or (len(frame.entries), self.T, self.C)
        y = [bits for e in frame.entries for bits in e.y] if status == "OK" else []
        told = {}
        if adds:  # 5, Adding: here y, which is f32, is the value
            factor, before = adds
            told["adds"] = {"factor": factor, "y": pack(before, F32).hex()}
            y = [added(b, factor, value) for b, value in zip(before, y)]
        self.steps.append({
            "frame": data.hex(), "n": n, "t": t, "c": c, "y_dtype": NAMES[self.y], **told,
            "status": status, "y": pack(y, self.y).hex(),
            "reply": reply(answer, frame, named).hex() if answer else "",
            "prev": [{"sample": k[0], "slice": k[1], "bits": self.bits_of(k)} for k in self.keys],
        })  # fmt: skip

    def bits_of(self, key):
        return pack(*self.held[key][:2]).hex() if key in self.held else ""

    def send(self, *entries, **how):
        """Makes and delivers a frame that must be accepted."""
        frame = self.frame(*entries)
        self.deliver(frame, **how)
        return frame

    def text(self):
        """The config of the decoder as text (include/deltawire/deltawire.h)."""
        names = {ROW: "row", CHANNEL: "channel", SAMPLE: "sample"}
        words = []
        for name, value in self.told.items():
            if name in self.own:
                words += ["key=raw"] if name == "key" else []
            elif name == "dtype":
                words.append(NAMES[value] if self.codec_told == "raw" else f"dtype={NAMES[value]}")
            elif name in ("keep", "mask"):
                words.append(f"{name}={value / MILLION}")
            elif name == "key" and value in OF_KEY:
                words.append(f"key={NAMES[OF_KEY[value]]}")
            elif name == "form":
                words.append("form=step" if value == STEPS else "form=mx")
            elif name == "rounding":
                words.append("rounding=dither")
            elif name == "entropy":
                words.append("entropy=rans")
            elif name == "key" and value == KEY_STEP:
                words.append("key=step")
            elif name == "element" or (name == "key" and value > 64):
                words.append(f"{name}={ELEMENTS[value % 64]}")
            elif name == "prev":
                words.append(f"prev={NAMES[value]}")
            elif name == "choose":
                words.append(f"choose={'group' if value == 1 else 'never'}")
            else:
                words.append(f"{name}={names.get(value, value)}")
        return self.codec_told + (":" + ",".join(words) if words else "")

    def golden(self):
        config = {"codec": self.codec_told, "parameters": self.told, "own": self.own}
        return {"config": config, "encoder": self.text(), "steps": self.steps}
