/* SPDX-License-Identifier: Apache-2.0
 * model_coded.c - how the model reads entropy-coded payloads: 3.7 to 3.9 of docs/format.md. It
 * tells fuzz_reach which kinds of groups it reads, and which rules a payload breaks. */
#include "../entropy/rans_model.h"
#include "model_frame.h"
#include "reach.h"

/* A block of tiles, in the plain payload and here. */
typedef struct coded_block {
    uint64_t first, tiles; /* tiles */
    uint64_t plain, scales, codes;
    const model_part *parts; /* the part of each of its codes; NULL: the codes have no dither */
    bool may_trellis;        /* the codes may follow a trellis */
} coded_block;

static coded_block block_at(const model_tile *tiles, uint64_t first, uint64_t n)
{
    coded_block b = {.first = first};
    while (first + b.tiles < n && b.tiles < 16 &&
           (b.tiles == 0 || !tiles[first + b.tiles].breaks)) {
        const model_tile *tile = &tiles[first + b.tiles++];
        b.plain += tile->scales + tile->bytes + tile->room;
        b.scales += tile->scales;
        b.codes += tile->n;
    }
    return b;
}

static uint64_t blocks_of(const model_tile *tiles, uint64_t n)
{
    uint64_t blocks = 0;
    for (uint64_t i = 0; i < n; blocks++) i += block_at(tiles, i, n).tiles;
    return blocks;
}

static uint64_t up16(uint64_t n)
{
    return (n + 15) / 16 * 16;
}

uint64_t model_coded_most(const model_way *way, uint32_t t, uint32_t c, uint64_t plain)
{
    uint64_t n;
    model_tile *tiles = model_tiles(way, t, c, &n);
    uint64_t sizes = up16(4 * blocks_of(tiles, n));
    free(tiles);
    return plain + sizes;
}

void model_store_sizes(const model_way *way, uint32_t t, uint32_t c, uint8_t *payload)
{
    uint64_t n;
    model_tile *tiles = model_tiles(way, t, c, &n);
    uint8_t *size = payload + tiles[0].offset;
    memset(size, 0, (size_t)up16(4 * blocks_of(tiles, n)));
    for (uint64_t i = 0; i < n; size += 4) {
        coded_block b = block_at(tiles, i, n);
        model_put(size, 4, b.plain);
        i += b.tiles;
    }
    free(tiles);
}

/* ---- Blocks (3.7). --------------------------------------------------------------------------- */

static uint32_t bit_at(const uint8_t *from, uint64_t at)
{
    return from[at / 8] >> at % 8 & 1;
}

/* Notes that a payload breaks this rule. Returns false, for callers that return whether a payload
 * is valid. */
static bool breaks(const char *rule)
{
    fuzz_reach(rule);
    return false;
}

/* Checks the frequencies of a part, which begin at byte `from` of the block. range: how many they
 * are. Returns the number of the byte behind them, or 0 if they break a rule. */
static uint64_t check_frequencies(const uint8_t *block, uint64_t bytes, uint64_t from,
                                  uint32_t range)
{
    uint64_t at = 8 * from, sum = 0;
    for (uint32_t i = 0; i < range; i++) {
        uint32_t length = 0, f = 0;
        if ((at + 16 + 7) / 8 > bytes) return 0; /* the states follow, so this is no limit */
        for (uint32_t k = 0; k < 4; k++) length |= bit_at(block, at++) << k;
        if (length > 12) return 0;
        for (uint32_t k = 0; k + 1 < length; k++) f |= bit_at(block, at++) << k;
        if (length) f |= 1u << (length - 1);
        if (f == 0 && (i == 0 || i + 1 == range)) return 0;
        sum += f;
    }
    for (; at % 8; at++)
        if (bit_at(block, at)) return 0;
    return sum == 4096 ? at / 8 : 0;
}

/* Checks the head of a part, which begins at byte `head`, and its frequencies, which begin at byte
 * `behind`. Sets *has_states if the part needs states. Returns the number of the byte behind the
 * frequencies, or 0 if they break a rule. */
static uint64_t check_part(const uint8_t *block, uint64_t bytes, uint64_t head, uint64_t behind,
                           bool *has_states)
{
    uint64_t symbols = 1;
    if (behind > bytes) return 0;
    uint32_t k = block[head], range = block[head + 2] + 1u;
    if ((k != 1 && k != 2 && k != 4) || block[head + 1] + range > 256) return 0;
    if (range == 1) return k == 1 ? behind : 0;
    for (uint32_t i = 0; i < k; i++) symbols *= range;
    *has_states = true;
    return symbols > 256 ? 0 : check_frequencies(block, bytes, behind, range);
}

/* What the rules of a trellis demand of the head of a table, which begins at byte `head`. */
static bool is_of_trellis(const uint8_t *block, uint64_t head)
{
    uint32_t least = block[head + 1], range = block[head + 2] + 1u;
    return (block[head] == 1 && range > 1 && least >= 65 && least + range - 1 <= 191) ||
           breaks("head of a table of a trellis");
}

static uint32_t byte_of_parts(uint32_t parts)
{
    return parts == RANS_MODEL_TRELLIS ? 2 : parts > 1;
}

/* bytes: how many there are from the begin of the block on. *length: becomes how many it has. */
static bool block_is_possible(const uint8_t *block, uint64_t bytes, uint64_t n, uint32_t parts,
                              uint64_t *length)
{
    if (bytes < 6 || block[3] != byte_of_parts(parts)) return breaks("header of a block");
    uint64_t words = model_get(block + 4, 2), at = 0;
    bool has_states = false;
    for (uint32_t i = 0; i < parts; i++) {
        uint64_t head = at;
        at = check_part(block, bytes, at, at + (i ? 3 : 6), &has_states);
        if (!at) return breaks("head or frequencies of a part");
        if (parts == RANS_MODEL_TRELLIS && !is_of_trellis(block, head)) return false;
    }
    *length = has_states ? at + 128 + 2 * words : at;
    if (!has_states && words) return breaks("words of a block of one code");
    if (*length > bytes || *length >= n) return breaks("number of words");
    if (!has_states) return true;
    for (uint32_t i = 0; i < 32; i++)
        if (model_get(block + at + 4 * (size_t)i, 4) < 65536) return breaks("state below 65536");
    return true;
}

/* Writes to `codes` the n codes in the order of the payload. sorted: the same codes, those of part
 * 0 first, and with the signs of 3.9 turned. parts: the part of each code of the payload. */
static void order_codes(const model_part *parts, const uint8_t *sorted, uint64_t n, uint8_t *codes)
{
    for (uint32_t part = 0; part < RANS_MODEL_PARTS; part++)
        for (uint64_t i = 0; i < n; i++) {
            if (parts[i].part != part) continue;
            codes[i] = parts[i].turned ? (uint8_t)(256 - *sorted) : *sorted;
            sorted++;
        }
}

/* 3.8: puts the values behind a block into the rooms of its tiles. */
static bool put_rooms(const model_tile *tiles, const coded_block *b, const uint8_t *from,
                      uint64_t bytes, uint8_t *plain)
{
    for (; bytes >= 6; bytes -= 6, from += 6) {
        uint64_t place = model_get(from, 2), k = 0;
        while (k < b->tiles && place >= tiles[k].n) place -= tiles[k++].n;
        if (k == b->tiles) return breaks("place of an escaped value");
        uint8_t *room = plain + tiles[k].offset + tiles[k].scales + tiles[k].bytes;
        uint64_t held = model_get(room, 4), most = model_room_most(tiles[k].n);
        if (held == most) return breaks("number of escaped values");
        model_put(room, 4, held + 1);
        model_put(room + 4 + 2 * held, 2, place);
        memcpy(room + 4 + 2 * most + 4 * held, from + 2, 4);
    }
    return bytes == 0 || breaks("bytes behind escaped values");
}

/* bytes, length: as for block_is_possible. */
static bool decode_block(const coded_block *b, const uint8_t *block, uint64_t bytes, uint8_t *codes,
                         uint64_t *length)
{
    uint32_t counts[RANS_MODEL_PARTS] = {(uint32_t)b->codes};
    bool in_parts = b->parts && bytes >= 6 && block[3];
    if (b->may_trellis && bytes >= 6 && block[3] == 2)
        return block_is_possible(block, bytes, b->codes, RANS_MODEL_TRELLIS, length) &&
               (rans_model_decode(block, (size_t)*length, counts, RANS_MODEL_TRELLIS, codes) ||
                breaks("words of a block with a trellis"));
    if (!in_parts)
        return block_is_possible(block, bytes, b->codes, 1, length) &&
               (rans_model_decode(block, (size_t)*length, counts, 1, codes) || breaks("words"));
    counts[0] = 0;
    for (uint64_t i = 0; i < b->codes; i++) counts[b->parts[i].part]++;
    for (uint32_t i = 0; i < RANS_MODEL_PARTS; i++)
        if (counts[i] == 0) return breaks("part without codes");
    uint8_t *sorted = malloc((size_t)b->codes);
    REQUIRE(sorted != NULL);
    bool valid = block_is_possible(block, bytes, b->codes, RANS_MODEL_PARTS, length) &&
                 (rans_model_decode(block, (size_t)*length, counts, RANS_MODEL_PARTS, sorted) ||
                  breaks("words of a block in parts"));
    if (valid) order_codes(b->parts, sorted, b->codes, codes);
    free(sorted);
    return valid;
}

/* ---- Payloads (3.8). ------------------------------------------------------------------------- */

/* Code i of a tile, written into its planes. */
static void put_code(uint8_t *planes, uint32_t bits, uint32_t n, uint32_t i, uint32_t code)
{
    for (uint32_t plane = 8; plane; plane /= 2) {
        if (!(bits & plane)) continue;
        for (uint32_t k = 0; k < plane; k++, code >>= 1) {
            uint32_t at = plane * i + k;
            planes[at / 8] = (uint8_t)(planes[at / 8] | (code & 1) << at % 8);
        }
        planes += (size_t)n * plane / 8;
    }
}

static bool read_block(const model_way *way, const model_tile *tiles, const coded_block *b,
                       const uint8_t *from, uint64_t size, uint8_t *plain)
{
    const model_tile *tile = tiles + b->first;
    if (size <= b->scales || size > b->plain) return breaks("size of a group");
    if (size == b->plain) {
        fuzz_reach("group that is stored");
        memcpy(plain + tile->offset, from, (size_t)size);
        return true;
    }
    uint8_t *codes = malloc((size_t)b->codes), *code = codes;
    REQUIRE(codes != NULL);
    uint64_t length = 0, left = size - b->scales;
    bool valid = decode_block(b, from + b->scales, left, codes, &length);
    if (valid && way->form == STEPPED)
        valid = put_rooms(tile, b, from + b->scales + length, left - length, plain);
    else if (valid)
        valid = length == left || breaks("number of words");
    for (uint64_t i = 0; valid && i < b->codes; i++)
        valid = codes[i] >> way->bits == 0 || breaks("bits of a code");
    if (valid)
        fuzz_reach(!from[b->scales + 3] ? "block"
                   : b->parts           ? "block in parts"
                                        : "block with a trellis");
    for (uint64_t i = 0; valid && i < b->tiles; i++, tile++) {
        memcpy(plain + tile->offset, from, tile->scales);
        from += tile->scales;
        for (uint32_t k = 0; k < tile->n; k++)
            put_code(plain + tile->offset + tile->scales, way->bits, tile->n, k, *code++);
    }
    free(codes);
    return valid;
}

static model_part *parts_of(const model_way *way, uint32_t t, uint32_t c, uint64_t draws,
                            const model_tile *tiles, uint64_t n)
{
    uint64_t codes = 0;
    if (!way->dithers) return NULL;
    for (uint64_t i = 0; i < n; i++) codes += tiles[i].n;
    model_part *parts = malloc((size_t)codes * sizeof *parts);
    REQUIRE(parts != NULL);
    model_parts(way, t, c, draws, parts);
    return parts;
}

uint8_t *model_plain(const model_way *way, uint32_t t, uint32_t c, uint64_t draws,
                     const uint8_t *payload, uint64_t bytes)
{
    uint64_t n, codes = 0;
    model_tile *tiles = model_tiles(way, t, c, &n);
    model_part *parts = parts_of(way, t, c, draws, tiles, n);
    uint64_t front = tiles[0].offset, at = front + up16(4 * blocks_of(tiles, n)), number = 0;
    uint8_t *plain = calloc(1, (size_t)(tiles[n - 1].offset + tiles[n - 1].scales +
                                        tiles[n - 1].bytes + tiles[n - 1].room));
    REQUIRE(plain != NULL);
    bool valid = bytes >= at || breaks("end of a payload within its sizes");
    if (valid) memcpy(plain, payload, (size_t)front);
    for (uint64_t i = 0; valid && i < n; number++) {
        coded_block b = block_at(tiles, i, n);
        b.parts = parts ? parts + codes : NULL;
        b.may_trellis = way->form == STEPPED && !way->dithers;
        uint64_t size = model_get(payload + front + 4 * number, 4);
        valid = at + size <= bytes ? read_block(way, tiles, &b, payload + at, size, plain)
                                   : breaks("end of a payload within a group");
        at += size;
        codes += b.codes;
        i += b.tiles;
    }
    free(parts);
    free(tiles);
    if (valid && (up16(at) == bytes || breaks("length of a payload"))) return plain;
    free(plain);
    return NULL;
}
