/* SPDX-License-Identifier: Apache-2.0
 * coded.cuh - what the encoder and the decoder of entropy-coded blocks share: the tiles of a block,
 * and its dithered codes in parts. A block of threads works on one block of tiles.
 *
 * Source: docs/format.md, 3.8 and 3.9. The specification is src/codecs/stage_rans.c. */
#ifndef DW_CUDA_CODED_CUH
#define DW_CUDA_CODED_CUH

#include "arithmetic/rans.h"
#include "decode.cuh"
#include "encode.cuh"
#include "room.h"

/* Shared memory: the tiles of a block. at: the number of each tile's first code in the block.
 * counts: how many codes each part has. escaped: how many escaped values the block has in front of
 * each tile, and at last in all. scan, sums: for the functions below. */
typedef struct dw_block_room {
    dw_coded_block block;
    dw_tile tiles[DW_BLOCK_TILES];
    uint32_t at[DW_BLOCK_TILES], counts[DW_PARTS], scan[DW_WARPS], escaped[DW_BLOCK_TILES + 1];
    uint64_t sums[DW_WARPS];
} dw_block_room;

/* Finds a block and its tiles, for all threads. */
DW_DEVICE void dw_share_block(const dw_layout *layout, uint64_t number, dw_block_room *room)
{
    if (threadIdx.x == 0) {
        uint32_t at = 0;
        room->block = dw_coded_block_of(layout, number);
        for (uint32_t k = 0; k < room->block.tiles; k++) {
            room->tiles[k] = dw_layout_tile(layout, room->block.first_tile + k);
            room->at[k] = at;
            at += room->tiles[k].elements;
        }
    }
    __syncthreads();
}

/* ---- The codes of a block -------------------------------------------------------------------- */

/* Stores eight codes, one per byte. to: aligned to eight bytes. */
DW_DEVICE void dw_store_codes(uint8_t *to, const uint32_t codes[DW_EIGHT])
{
    uint32_t words[2] = {0, 0};
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) words[i / 4] |= codes[i] << (8 * (i % 4));
    ((uint32_t *)to)[0] = words[0];
    ((uint32_t *)to)[1] = words[1];
}

DW_DEVICE void dw_load_codes(const uint8_t *from, uint32_t codes[DW_EIGHT])
{
    uint32_t words[2] = {((const uint32_t *)from)[0], ((const uint32_t *)from)[1]};
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) codes[i] = words[i / 4] >> (8 * (i % 4)) & 0xff;
}

/* Unpacks the codes of all tiles to `codes`, one per byte. */
DW_DEVICE void dw_unpack_block(const dw_layout *layout, const dw_block_room *room,
                               const uint8_t *plain, uint8_t *codes)
{
    for (uint32_t k = 0; k < room->block.tiles; k++) {
        const dw_tile *tile = &room->tiles[k];
        for (uint32_t at = DW_EIGHT * threadIdx.x; at < tile->elements;
             at += DW_EIGHT * DW_CUDA_THREADS) {
            uint32_t eight[DW_EIGHT];
            dw_get_codes(plain + tile->codes, layout->bits, tile->elements, at, eight);
            dw_store_codes(codes + room->at[k] + at, eight);
        }
    }
}

/* The inverse, with zeros behind the codes of every tile. */
DW_DEVICE void dw_pack_block(const dw_layout *layout, const dw_block_room *room,
                             const uint8_t *codes, uint8_t *plain)
{
    for (uint32_t k = 0; k < room->block.tiles; k++) {
        const dw_tile *tile = &room->tiles[k];
        for (uint32_t at = DW_EIGHT * threadIdx.x; at < tile->elements;
             at += DW_EIGHT * DW_CUDA_THREADS) {
            uint32_t eight[DW_EIGHT];
            dw_load_codes(codes + room->at[k] + at, eight);
            dw_put_codes(eight, layout->bits, plain + tile->codes, tile->elements, at);
        }
        uint64_t end = tile->codes + (uint64_t)tile->elements / 8 * layout->bits + threadIdx.x;
        if (end < tile->escapes) plain[end] = 0; /* less than 16 bytes */
    }
}

/* ---- Escaped values -------------------------------------------------------------------------- */

/* Finds how many escaped values the tiles of a plain payload have in front of each tile. Returns
 * how many bytes the list of all takes. */
DW_DEVICE uint32_t dw_find_escapes(const dw_layout *layout, const uint8_t *plain,
                                   dw_block_room *room)
{
    const uint32_t tiles = (uint32_t)room->block.tiles;
    if (!layout->escapes) return 0;
    if (threadIdx.x == 0) room->escaped[0] = 0;
    for (uint32_t k = 0; threadIdx.x == 0 && k < tiles; k++) {
        const dw_tile *tile = &room->tiles[k];
        uint32_t count = *(const uint32_t *)(plain + tile->escapes),
                 most = dw_escapes_most(tile->elements);
        room->escaped[k + 1] = room->escaped[k] + (count < most ? count : most);
    }
    __syncthreads();
    return DW_ESCAPE_BYTES * room->escaped[tiles];
}

/* Writes the list of a block to `to`. */
DW_DEVICE void dw_gather_escapes(const uint8_t *plain, const dw_block_room *room, uint8_t *to)
{
    for (uint32_t k = 0; k < room->block.tiles; k++) {
        const dw_tile *tile = &room->tiles[k];
        const uint8_t *escapes = plain + tile->escapes;
        uint32_t first = room->escaped[k], count = room->escaped[k + 1] - first;
        for (uint32_t i = threadIdx.x; i < count; i += DW_CUDA_THREADS) {
            uint8_t *entry = to + DW_ESCAPE_BYTES * (first + i);
            dw_escape escape = dw_escape_at(escapes, tile->elements, i);
            uint32_t place = room->at[k] + escape.place;
            for (uint32_t b = 0; b < 2; b++) entry[b] = (uint8_t)(place >> (8 * b));
            for (uint32_t b = 0; b < 4; b++) entry[2 + b] = (uint8_t)(escape.bits >> (8 * b));
        }
    }
}

/* Fills the room of tile number threadIdx.x of a plain payload, which holds zeros, with the values
 * of a list of n that belong to it. Returns false if there are more than it has room for, or if the
 * place of one is in no tile. */
DW_DEVICE bool dw_spread_escapes(const uint8_t *list, uint32_t n, const dw_block_room *room,
                                 uint8_t *plain)
{
    const uint32_t k = threadIdx.x;
    if (k >= room->block.tiles) return true;
    const dw_tile *tile = &room->tiles[k];
    uint32_t count = 0, most = dw_escapes_most(tile->elements);
    uint8_t *escapes = plain + tile->escapes;
    for (uint32_t i = 0; i < n; i++, list += DW_ESCAPE_BYTES) {
        uint32_t place = list[0] | (uint32_t)list[1] << 8, bits = 0;
        if (place >= room->block.codes) return false;
        if (place < room->at[k] || place - room->at[k] >= tile->elements) continue;
        if (count == most) return false;
        for (uint32_t b = 0; b < 4; b++) bits |= (uint32_t)list[2 + b] << (8 * b);
        dw_escape escape = {place - room->at[k], bits};
        dw_escape_store(escapes, tile->elements, count++, &escape);
    }
    *(uint32_t *)escapes = count;
    return true;
}

/* Sets the rooms of all tiles of a plain payload to zeros. */
DW_DEVICE void dw_clear_rooms(const dw_block_room *room, uint8_t *plain)
{
    for (uint32_t k = 0; k < room->block.tiles; k++) {
        const dw_tile *tile = &room->tiles[k];
        uint32_t *words = (uint32_t *)(plain + tile->escapes);
        for (uint32_t i = threadIdx.x; i < dw_escapes_bytes(tile->elements) / 4;
             i += DW_CUDA_THREADS)
            words[i] = 0;
    }
    __syncthreads();
}

/* ---- Parts ----------------------------------------------------------------------------------- */

/* The high bytes of the random numbers of a thread's eight of a tile; those of padding are
 * DW_PART_PADDING. Returns false where the tile has no such eight. *first becomes the number of its
 * first code in the tile. */
DW_DEVICE bool dw_draw_highs(const dw_layout *layout, uint64_t key, const dw_tile *tile,
                             uint32_t slot, uint32_t *first, uint8_t highs[DW_EIGHT])
{
    dw_place place = dw_place_of(layout, tile, (int64_t)layout->c, slot);
    uint32_t words[DW_EIGHT];
    *first = place.first;
    if (!place.stored) return false;
    dw_draw_eight(key, place.dense, words);
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++)
        highs[i] =
            i < place.n ? (uint8_t)(words[i / 2] >> (16 * (i % 2) + 8)) : (uint8_t)DW_PART_PADDING;
    return true;
}

/* How many of these codes each part has, packed with 16 bits each. */
DW_DEVICE uint64_t dw_parts_of_highs(const uint8_t highs[DW_EIGHT])
{
    uint64_t counts = 0;
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) counts += (uint64_t)1 << 16 * dw_part_of(highs[i]);
    return counts;
}

/* Counts the codes of each part, in room->counts. A block has at most 32768 codes, so every count
 * fits into 16 bits. */
DW_DEVICE void dw_count_parts(const dw_layout *layout, uint64_t key, dw_block_room *room)
{
    uint64_t counts = 0;
    uint32_t first;
    for (uint32_t k = 0; k < room->block.tiles; k++)
        for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
            uint8_t highs[DW_EIGHT];
            if (dw_draw_highs(layout, key, &room->tiles[k], slot, &first, highs))
                counts += dw_parts_of_highs(highs);
        }
    counts = dw_block_sum(counts, room->sums);
    for (uint32_t i = 0; threadIdx.x == 0 && i < DW_PARTS; i++)
        room->counts[i] = (uint32_t)(counts >> 16 * i & 0xffff);
    __syncthreads();
}

/* Sorts the codes of a block into their parts, or puts sorted ones back (Restores), part by part in
 * the order of the payload. The parts follow each other in `parted` without gaps. */
template <bool Restores>
DW_DEVICE void dw_sort_parts(const dw_layout *layout, uint64_t key, dw_block_room *room,
                             uint8_t *codes, uint8_t *parted)
{
    uint64_t next = 0; /* where the next code of each part goes, packed with 16 bits each */
    uint32_t begin = 0;
    for (uint32_t i = 0; i < DW_PARTS; begin += room->counts[i++])
        next |= (uint64_t)begin << 16 * i;
    for (uint32_t k = 0; k < room->block.tiles; k++)
        for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
            uint8_t highs[DW_EIGHT];
            uint32_t first, all[2];
            bool stored = dw_draw_highs(layout, key, &room->tiles[k], slot, &first, highs);
            uint64_t mine = stored ? dw_parts_of_highs(highs) : 0;
            uint64_t before = dw_block_scan((uint32_t)mine, room->scan, &all[0]);
            before |= (uint64_t)dw_block_scan((uint32_t)(mine >> 32), room->scan, &all[1]) << 32;
            uint64_t at = next + before;
            next += all[0] | (uint64_t)all[1] << 32;
            uint8_t *place = codes + room->at[k] + first;
            for (uint32_t i = 0; stored && i < DW_EIGHT; i++) {
                uint32_t part = dw_part_of(highs[i]);
                uint8_t *sorted = parted + (at >> 16 * part & 0xffff);
                if (Restores)
                    place[i] = dw_part_turned(*sorted, highs[i]);
                else
                    *sorted = dw_part_turned(place[i], highs[i]);
                at += (uint64_t)1 << 16 * part;
            }
        }
    __syncthreads();
}

#endif
