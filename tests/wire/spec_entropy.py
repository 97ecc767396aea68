# SPDX-License-Identifier: Apache-2.0
# spec_entropy.py - decodes entropy-coded payloads, written from docs/format.md, 3.8 and 3.9, alone.
"""Turns entropy-coded payloads into the plain payloads that 3.2, 3.3 and 3.4 describe. The blocks
in them are decoded by spec_rans.py.

Functions and classes get `broken`, a set of names from BREAKS: the deliberate errors that they have
to make, with which golden.py shows that the golden files detect each of them. Section numbers are
those of docs/format.md."""

import struct
from collections import namedtuple

from spec_rans import Invalid, need, read_block

GROUP = 16  # 3.8: the tiles of a group
ROWS = 8  # 3.8: where rows are cut into several tiles, a new group begins with every 8th row

BREAKS = {
    "entropy-group-8": "a group has 8 tiles (3.8)",
    "entropy-group-runs-on": "groups go on over every 8th row where rows are cut (3.8)",
    "entropy-group-of-row": "a new group begins with every row where rows are cut (3.8)",
    "entropy-rows-4": "a new group begins with every 4th row where rows are cut (3.8)",
    "entropy-sizes-first": "sizes come in front of choice bits and of scales (3.8)",
    "entropy-sizes-loose": "no zeros follow the sizes (3.8)",
    "entropy-sizes-big": "sizes have their high byte first (3.8)",
    "entropy-groups-apart": "every group is followed by zeros (3.8)",
    "entropy-zeros-sizes": "the zeros behind the sizes are checked (3.8)",
    "entropy-zeros-end": "the zeros at the end of the payload are checked (3.8)",
    "entropy-zeros-scales": "the zeros behind scales are checked (3.2, 3.8)",
    "entropy-never-plain": "groups are never stored as their tiles (3.8)",
    "entropy-scales-loose": "no zeros follow the scales of a tile (3.8)",
    "entropy-no-padding": "padding has no codes (3.8)",
    "entropy-wide-codes": "a code may have any 8 bits (3.8)",
    "entropy-size-large": "a size may be larger than that of the tiles (3.8)",
    "entropy-size-of-block": "a block may be shorter than its group (3.8)",
    "entropy-sum": "payload_bytes need not be what the sizes say (3.8)",
    "parts-refused": "no block has parts (3.9)",
    "parts-undithered": "payloads without dither may have parts (3.9)",
    "parts-empty": "a part may have no codes (3.9)",
    "parts-mirrored-not": "codes are as they are where z < 0 (3.9)",
    "parts-mirrored-always": "codes of blocks without parts are mirrored, too (3.9)",
    "parts-mirrored-255": "codes are mirrored to 255 - c (3.9)",
    "parts-mirrored-0": "code 0 is refused where z < 0 (3.9)",
    "parts-signed": "the part follows z instead of |z| (3.9)",
    "parts-of-4": "the part is floor(4 |z|) (3.9)",
    "parts-padding": "padding belongs to no part (3.9)",
    "parts-padding-z": "padding has the z of the element of that number (3.9)",
}

# A tile. scales: the bytes of its scales, with the zeros behind them; widths: the bits of each of
# its planes; segments: (start, w, g) of each of its segments, where start is the number of the
# segment's first element in the sample, w the number of its elements, and g that of its codes, with
# padding.
Tile = namedtuple("Tile", "scales widths segments")


def up(n, m):
    """Returns n, rounded up to a multiple of m."""
    return -(-n // m) * m


def codes_in(tile):
    """Returns the number of codes in a tile, padding included."""
    return sum(g for _, _, g in tile.segments)


def bytes_of(tile):
    """Returns the number of bytes of a tile in the plain payload."""
    return tile.scales + up(codes_in(tile) * sum(tile.widths) // 8, 16)


def count_groups(T, per_row, tiles, broken):
    """Returns the number of groups of a payload. It has no loop over tiles, because it is computed
    before it is known whether the sizes in the header are sensible. T: the tokens of the sample;
    per_row: the tiles of a row if rows are cut, else 0; tiles: the tiles of the payload."""
    of_group = 8 if "entropy-group-8" in broken else GROUP
    rows = rows_of_group(broken)
    if not per_row or rows is None:
        return -(-tiles // of_group)
    full, rest = divmod(T, rows)
    return full * -(-rows * per_row // of_group) + -(-rest * per_row // of_group)


def rows_of_group(broken):
    """Returns after how many cut rows a new group begins; None: rows begin no group."""
    if "entropy-group-runs-on" in broken:
        return None
    if "entropy-group-of-row" in broken:
        return 1
    return 4 if "entropy-rows-4" in broken else ROWS


def groups_of(tiles, per_row, broken):
    """Returns the tiles of each group. per_row: as for count_groups."""
    of_group = 8 if "entropy-group-8" in broken else GROUP
    rows = rows_of_group(broken)
    run = rows * per_row if per_row and rows else len(tiles)
    return [
        tiles[at : min(at + of_group, first + run)]
        for first in range(0, len(tiles), run)
        for at in range(first, min(first + run, len(tiles)), of_group)
    ]


def pack_planes(codes, widths):
    """Returns the planes of these codes as in the plain payload (3.2), with the zeros behind
    them."""
    data, shift = b"", 0
    for p in widths:
        plane = 0
        if p == 8:
            data += bytes(codes)
            continue
        for i, code in enumerate(codes):
            plane |= (code >> shift & (1 << p) - 1) << p * i
        data += plane.to_bytes(len(codes) * p // 8, "little")
        shift += p
    return data + bytes(-len(data) % 16)


class Payload:
    """Decodes one payload.

    front: the number of bytes in front of its tiles. tiles, per_row: all tiles, and as for
    count_groups. z: a function that returns the dither of an element, given by its number in the
    sample, in units of 2^-17; None: the payload is without dither. in_steps: its form is 4."""

    def __init__(self, front, tiles, per_row, z, in_steps, broken):
        self.front, self.z, self.broken = front, z, broken
        follows = in_steps or "trellis-any-form" in broken
        undithered = z is None or "trellis-dithered" in broken
        # What read_block is given: its blocks may have a trellis.
        self.kept = [0] * 32 if follows and undithered else None
        self.groups = groups_of(tiles, per_row, broken)

    def plain(self, payload):
        """Returns the plain payload."""
        broken, of_sizes = self.broken, 4 * len(self.groups)
        need(len(payload) >= self.front + up(of_sizes, 16), "no place for the sizes")
        at = 0 if "entropy-sizes-first" in broken else self.front
        order = ">" if "entropy-sizes-big" in broken else "<"
        sizes = struct.unpack_from(f"{order}{len(self.groups)}I", payload, at)
        behind = of_sizes if "entropy-sizes-loose" in broken else up(of_sizes, 16)
        zeros = not any(payload[at + of_sizes : at + behind])
        need(zeros or "entropy-zeros-sizes" not in broken, "zeros behind the sizes")
        at = self.front + behind
        apart = "entropy-groups-apart" in broken
        end = at + sum(up(size, 16) if apart else size for size in sizes)
        summed = up(end, 16) == len(payload) or "entropy-sum" in broken
        need(summed, "payload_bytes is not what the sizes say")
        zeros = not any(payload[end:])
        need(zeros or "entropy-zeros-end" not in broken, "zeros behind the groups")
        front_at = behind if "entropy-sizes-first" in broken else 0
        plain = payload[front_at : front_at + self.front]
        for size, tiles in zip(sizes, self.groups):
            plain += self.plain_group(payload[at : at + size], tiles)
            at += up(size, 16) if apart else size
        return plain

    def plain_group(self, data, tiles):
        """Returns the tiles of a group as in the plain payload. data: the bytes of the group."""
        broken, most = self.broken, sum(bytes_of(tile) for tile in tiles)
        of_scales = sum(tile.scales for tile in tiles)
        need(len(data) > of_scales, "a size is too small")
        need(len(data) <= most or "entropy-size-large" in broken, "a size is too large")
        if len(data) == most and "entropy-never-plain" not in broken:
            return data
        scales, at = [], 0
        for tile in tiles:
            own = data[at : at + tile.scales]
            if "entropy-scales-loose" in broken:
                own = own.rstrip(b"\0")
            scales.append(own)
            zeros = not any(own[2 * len(tile.segments) :])
            need(zeros or "entropy-zeros-scales" not in broken, "zeros behind the scales")
            at += len(own)
        codes = self.codes_of(data[at:], tiles)
        plain, first = b"", 0
        for tile, own in zip(tiles, scales):
            plain += own.ljust(tile.scales, b"\0")
            plain += pack_planes(codes[first : first + codes_in(tile)], tile.widths)
            first += codes_in(tile)
        return plain

    def codes_of(self, data, tiles):
        """Decodes the block of a group, and returns the group's codes, padding included."""
        broken, n = self.broken, sum(codes_in(tile) for tile in tiles)
        unpadded = "entropy-no-padding" in broken
        stored = sum(w for tile in tiles for _, w, _ in tile.segments) if unpadded else n
        zs = self.dither(tiles)
        parts = self.parts(zs) if zs else None
        counts = [len(part) for part in parts] if parts else None
        if counts and 0 in counts and "parts-empty" not in broken:
            counts = None
        if not zs and "parts-undithered" in broken:
            parts = [range(i * n // 4, (i + 1) * n // 4) for i in range(4)]
            counts = [len(part) for part in parts]
        if "parts-refused" in broken:
            counts = None
        made, size = read_block(data, stored, counts, self.kept, broken)
        need(size == len(data) or "entropy-size-of-block" in broken, "bytes behind a block")
        most = 255 if "entropy-wide-codes" in broken else (1 << sum(tiles[0].widths)) - 1
        need(max(map(max, filter(None, made))) <= most, "a code of too many bits")
        codes = made[0] + [0] * (n - len(made[0]))
        for part, own in zip(parts, made) if len(made) > 1 else ():
            for i, code in zip(part, own):
                codes[i] = code
        if zs and (len(made) > 1 or "parts-mirrored-always" in broken):
            codes = [self.mirrored(code, z) for code, z in zip(codes, zs)]
        return codes

    def dither(self, tiles):
        """Returns z of each code of a group, where padding has 0; None: there is no dither."""
        if self.z is None:
            return None
        of_padding = self.z if "parts-padding-z" in self.broken else lambda i: 0
        return [
            self.z(start + i) if i < w else of_padding(start + i)
            for tile in tiles
            for start, w, g in tile.segments
            for i in range(g)
        ]

    def parts(self, zs):
        """Returns, for each of the four parts, the places of its codes in the group."""
        parts = [[] for _ in range(4)]
        for i, z in enumerate(zs):
            amount = z + (1 << 16) >> 1 if "parts-signed" in self.broken else abs(z)
            amount >>= 1 if "parts-of-4" in self.broken else 0
            if z or "parts-padding" not in self.broken:  # z of an element is never 0
                parts[amount >> 14].append(i)
        return parts

    def mirrored(self, code, z):
        """Turns the sign of a code if z < 0. Writers do so, and the same operation undoes it."""
        if z >= 0 or "parts-mirrored-not" in self.broken:
            return code
        if "parts-mirrored-255" in self.broken:
            return 255 - code
        need(code or "parts-mirrored-0" not in self.broken, "code 0")
        return (256 - code) % 256


def plain_payload(payload, front, tiles, per_row, z, in_steps, broken):
    """Returns the plain payload; raises Invalid if a rule is broken. The arguments are those of the
    class Payload."""
    return Payload(front, tiles, per_row, z, in_steps, broken).plain(payload)


__all__ = ["BREAKS", "Invalid", "Tile", "count_groups", "plain_payload"]
