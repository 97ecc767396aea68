/* SPDX-License-Identifier: Apache-2.0
 * stage_rans.c - the entropy coder behind a form whose payload consists of tiles (docs/format.md,
 * 3.8).
 *
 * A form writes its plain payload into memory of its own. This stage recodes it, 16 tiles at a
 * time: every such block is coded by itself (entropy/rans.h), so that blocks can be worked on in
 * any order. Each chunk writes its blocks where they would begin in the plain payload, which is
 * never too early; `join` then moves them together. */
#include <string.h>

#include "arithmetic/pack.h"
#include "codecs/dither_parts.h"
#include "codecs/plan.h"
#include "codecs/tiles.h"
#include "entropy/rans.h"
#include "wire/bytes.h"

enum { BLOCK_TILES = 16, SIZE_BYTES = 4 };

/* The parts of a coded payload: a copy of what is in front of the tiles, the size of every block,
 * and the blocks. */
typedef struct parts {
    uint64_t front, blocks, blocks_at;
} parts;

static uint64_t blocks_of(uint64_t tiles)
{
    return (tiles + BLOCK_TILES - 1) / BLOCK_TILES;
}

static uint64_t chunk_blocks(const dw_layout *layout)
{
    return blocks_of(dw_layout_chunk_tiles(layout));
}

static parts parts_of(const dw_layout *layout)
{
    uint64_t each = dw_layout_chunk_tiles(layout), whole = layout->tiles / each;
    parts p = {.front = layout->choice_bytes + layout->scale_bytes};
    p.blocks = whole * blocks_of(each) + blocks_of(layout->tiles % each);
    p.blocks_at = p.front + dw_round_up(SIZE_BYTES * p.blocks, 16);
    return p;
}

/* A block, which is what the coder codes at once: up to BLOCK_TILES tiles. */
typedef struct block {
    uint64_t number, first_tile, tiles;
    uint64_t from, bytes; /* where it lies in the plain payload, and its size there */
    uint64_t scales;      /* how many of these bytes are scales */
    uint64_t codes;       /* the number of its codes, padding included */
} block;

static block block_of(const dw_layout *layout, uint64_t chunk, uint64_t i)
{
    dw_chunk all = dw_layout_chunk(layout, chunk);
    uint64_t skipped = i * BLOCK_TILES, left = all.tiles - skipped;
    block b = {.number = chunk * chunk_blocks(layout) + i,
               .first_tile = all.first_tile + skipped,
               .tiles = left < BLOCK_TILES ? left : (uint64_t)BLOCK_TILES};
    for (uint64_t k = 0; k < b.tiles; k++) {
        dw_tile tile = dw_layout_tile(layout, b.first_tile + k);
        if (k == 0) b.from = tile.offset;
        b.bytes = tile.offset + tile.bytes - b.from;
        b.scales += tile.codes - tile.offset;
        b.codes += tile.elements;
    }
    return b;
}

/* Returns whether blocks are bare: whether their bytes in the plain payload are nothing but their
 * codes, one per byte. */
static bool is_bare(const dw_layout *layout)
{
    return layout->bits == 8 && !layout->scales_in_tiles;
}

/* Returns how many codes the largest block has. No chunk has more tiles than the first chunk, and
 * no tile has more codes than the first tile. */
static uint64_t most_codes(const dw_layout *layout)
{
    uint64_t tiles = dw_layout_chunk(layout, 0).tiles;
    return (tiles < BLOCK_TILES ? tiles : BLOCK_TILES) * dw_layout_tile(layout, 0).elements;
}

/* The memory that coding a block needs besides its input and output. Every chunk has one, in the
 * scratch of the entry, and uses it for one block after the other. */
typedef struct block_work {
    uint8_t *codes;         /* the block's codes, one per byte; not used if the block is bare */
    uint8_t *high, *parted; /* with dither: see codecs/dither_parts.h */
    uint8_t *coder;         /* the memory `work` of entropy/rans.h */
    uint64_t bytes;         /* the size of all of it */
} block_work;

/* Divides memory among its uses. memory: NULL if the caller only needs the size. */
static block_work work_of(const dw_layout *layout, uint8_t *memory)
{
    uint64_t each = dw_round_up(most_codes(layout), 64), codes = is_bare(layout) ? 0 : each,
             sorting = layout->dithers ? each + dw_dither_parts_bytes(each) : 0;
    block_work w = {.bytes =
                        codes + sorting + dw_round_up(dw_rans_work_bytes(most_codes(layout)), 64)};
    if (!memory) return w;
    w.codes = memory;
    w.high = memory + codes;
    w.parted = w.high + each;
    w.coder = w.high + sorting;
    return w;
}

/* ---- Encode ---------------------------------------------------------------------------------- */

/* Copies the scales of all tiles to `scales`, and their codes to `codes`. */
static void take_apart(const dw_layout *layout, const block *b, const uint8_t *plain,
                       uint8_t *scales, uint8_t *codes)
{
    for (uint64_t k = 0; k < b->tiles; k++) {
        dw_tile tile = dw_layout_tile(layout, b->first_tile + k);
        memcpy(scales, plain + tile.offset, tile.codes - tile.offset);
        scales += tile.codes - tile.offset;
        dw_unpack(codes, tile.elements, layout->bits, plain + tile.codes, tile.elements, 0);
        codes += tile.elements;
    }
}

/* Sorts the codes of a block into parts, at work->parted, if they have dither. Returns whether the
 * block may have parts: only if every part has codes. counts: becomes the number of codes in
 * each. */
static bool sort_codes(const dw_encode_job *job, const block *b, const block_work *work,
                       const uint8_t *codes, uint32_t *counts)
{
    bool all_have_codes = true;
    if (!job->layout.dithers) return false;
    dw_dither_parts_draw(&job->layout, job->kernels, job->draws_key, b->first_tile, b->tiles,
                         work->high);
    job->kernels->count_parts(work->high, b->codes, counts);
    for (int i = 0; i < DW_PARTS; i++) all_have_codes = all_have_codes && counts[i] > 0;
    if (all_have_codes)
        dw_dither_parts_sort(job->kernels, work->high, codes, b->codes, counts, work->parted);
    return all_have_codes;
}

/* Returns the size of the block at `to`. A block as long as its plain bytes is a copy of them. */
static uint64_t encode_block(const dw_encode_job *job, const block *b, uint8_t *to,
                             const block_work *work)
{
    const dw_layout *layout = &job->layout;
    const uint8_t *codes = job->payload + b->from;
    uint32_t counts[DW_PARTS];
    if (b->bytes > b->scales + 1) {
        if (!is_bare(layout)) {
            take_apart(layout, b, job->payload, to, work->codes);
            codes = work->codes;
        }
        bool has_parts = sort_codes(job, b, work, codes, counts);
        dw_rans_codes all = {.codes = codes,
                             .parted = has_parts ? work->parted : NULL,
                             .n = b->codes,
                             .counts = counts};
        size_t coded = dw_rans_encode(job->kernels, &all, to + b->scales,
                                      (size_t)(b->bytes - b->scales - 1), work->coder);
        if (coded) return b->scales + coded;
    }
    memcpy(to, job->payload + b->from, (size_t)b->bytes);
    return b->bytes;
}

static void encode(const dw_encode_job *job, uint64_t chunk)
{
    const dw_layout *layout = &job->layout;
    parts p = parts_of(layout);
    uint64_t blocks = blocks_of(dw_layout_chunk(layout, chunk).tiles);
    uint64_t each = work_of(layout, NULL).bytes;
    block_work work = work_of(layout, job->scratch + chunk * each);
    for (uint64_t i = 0; i < blocks; i++) {
        block b = block_of(layout, chunk, i);
        uint64_t size = encode_block(job, &b, job->coded + p.blocks_at + (b.from - p.front), &work);
        dw_put(job->coded + p.front + SIZE_BYTES * b.number, size, SIZE_BYTES);
    }
}

static void join(const dw_encode_job *job, dw_chunk_result *result)
{
    const dw_layout *layout = &job->layout;
    parts p = parts_of(layout);
    uint64_t chunks = dw_layout_chunks(layout), end = p.blocks_at;
    uint64_t sizes_end = p.front + SIZE_BYTES * p.blocks;
    memcpy(job->coded, job->payload, (size_t)p.front);
    memset(job->coded + sizes_end, 0, (size_t)(p.blocks_at - sizes_end));
    for (uint64_t chunk = 0; chunk < chunks; chunk++) {
        uint64_t blocks = blocks_of(dw_layout_chunk(layout, chunk).tiles);
        for (uint64_t i = 0; i < blocks; i++) {
            block b = block_of(layout, chunk, i);
            uint64_t size = dw_get(job->coded + p.front + SIZE_BYTES * b.number, SIZE_BYTES);
            memmove(job->coded + end, job->coded + p.blocks_at + (b.from - p.front), (size_t)size);
            end += size;
        }
    }
    result->payload_bytes = dw_round_up(end, 16);
    memset(job->coded + end, 0, (size_t)(result->payload_bytes - end));
    result->payload_sum = job->kernels->digest_bytes(job->coded, 0, result->payload_bytes);
}

/* ---- Decode ---------------------------------------------------------------------------------- */

/* Where the blocks begin; behind it in the scratch lies the memory for blocks. */
static uint64_t *starts_of(const dw_decode_job *job)
{
    return (uint64_t *)(void *)job->scratch;
}

static uint64_t starts_bytes(const dw_layout *layout)
{
    return dw_round_up(8 * parts_of(layout).blocks, 64);
}

static const char *prepare(const dw_decode_job *job)
{
    const dw_layout *layout = &job->layout;
    parts p = parts_of(layout);
    uint64_t chunks = dw_layout_chunks(layout), at = p.blocks_at, *starts = starts_of(job);
    if (job->payload_bytes < p.blocks_at) return "an entropy-coded payload is too short";
    for (uint64_t chunk = 0; chunk < chunks; chunk++) {
        uint64_t blocks = blocks_of(dw_layout_chunk(layout, chunk).tiles);
        for (uint64_t i = 0; i < blocks; i++) {
            block b = block_of(layout, chunk, i);
            uint64_t size = dw_get(job->coded + p.front + SIZE_BYTES * b.number, SIZE_BYTES);
            if (size <= b.scales || size > b.bytes)
                return "the size of an entropy-coded block is out of range";
            starts[b.number] = at;
            at += size;
        }
    }
    if (dw_round_up(at, 16) != job->payload_bytes)
        return "the sizes of entropy-coded blocks do not add up to that of their payload";
    memcpy(job->plain, job->coded, (size_t)p.front);
    return NULL;
}

static bool codes_fit(const uint8_t *codes, uint64_t n, uint32_t bits)
{
    uint8_t all = 0;
    for (uint64_t i = 0; i < n; i++) all |= codes[i];
    return all >> bits == 0;
}

/* The inverse of take_apart, with zeros behind the codes of every tile. */
static void put_together(const dw_layout *layout, const block *b, uint8_t *plain,
                         const uint8_t *scales, const uint8_t *codes)
{
    for (uint64_t k = 0; k < b->tiles; k++) {
        dw_tile tile = dw_layout_tile(layout, b->first_tile + k);
        uint64_t end = tile.codes + (uint64_t)tile.elements * layout->bits / 8;
        memcpy(plain + tile.offset, scales, tile.codes - tile.offset);
        scales += tile.codes - tile.offset;
        dw_pack(codes, tile.elements, layout->bits, plain + tile.codes, tile.elements, 0);
        memset(plain + end, 0, (size_t)(tile.offset + tile.bytes - end));
        codes += tile.elements;
    }
}

/* Decodes a block that has parts, and puts its codes back into the order of the payload. Returns
 * NULL, or what is wrong with the block. *used: becomes the length of the block. */
static const char *decode_parts(const dw_decode_job *job, const block *b, const block_work *work,
                                const uint8_t *from, size_t bytes, uint8_t *codes, size_t *used)
{
    uint32_t counts[DW_PARTS];
    dw_dither_parts_draw(&job->layout, job->kernels, job->draws_key, b->first_tile, b->tiles,
                         work->high);
    job->kernels->count_parts(work->high, b->codes, counts);
    const char *why =
        dw_rans_decode_parts(job->kernels, from, bytes, work->parted, counts, work->coder, used);
    if (!why)
        dw_dither_parts_restore(job->kernels, work->high, work->parted, b->codes, counts, codes);
    return why;
}

static const char *decode_block(const dw_decode_job *job, const block *b, const block_work *work)
{
    const dw_layout *layout = &job->layout;
    parts p = parts_of(layout);
    uint64_t size = dw_get(job->coded + p.front + SIZE_BYTES * b->number, SIZE_BYTES);
    const uint8_t *from = job->coded + starts_of(job)[b->number], *block_from = from + b->scales;
    size_t used = 0, coded = (size_t)(size - b->scales);
    if (size == b->bytes) {
        memcpy(job->plain + b->from, from, (size_t)size);
        return NULL;
    }
    uint8_t *codes = is_bare(layout) ? job->plain + b->from : work->codes;
    const char *why =
        layout->dithers && dw_rans_has_parts(block_from, coded)
            ? decode_parts(job, b, work, block_from, coded, codes, &used)
            : dw_rans_decode(job->kernels, block_from, coded, codes, b->codes, work->coder, &used);
    if (why) return why;
    if (used != coded) return "an entropy-coded block is shorter than its size says";
    if (is_bare(layout)) return NULL;
    if (!codes_fit(codes, b->codes, layout->bits))
        return "an entropy-coded block has codes of more bits than its form";
    put_together(layout, b, job->plain, from, codes);
    return NULL;
}

static const char *decode(const dw_decode_job *job, uint64_t chunk)
{
    const dw_layout *layout = &job->layout;
    uint64_t blocks = blocks_of(dw_layout_chunk(layout, chunk).tiles);
    uint64_t each = work_of(layout, NULL).bytes;
    block_work work = work_of(layout, job->scratch + starts_bytes(layout) + chunk * each);
    const char *why = NULL;
    for (uint64_t i = 0; i < blocks && !why; i++) {
        block b = block_of(layout, chunk, i);
        why = decode_block(job, &b, &work);
    }
    return why;
}

static bool plan(dw_plan *made)
{
    const dw_layout *layout = &made->layout;
    parts p = parts_of(layout);
    made->plain_bytes = made->payload_bytes;
    made->size_varies = true;
    return dw_size_multiply(dw_layout_chunks(layout), work_of(layout, NULL).bytes,
                            &made->scratch_bytes) &&
           dw_size_add(made->scratch_bytes, starts_bytes(layout), &made->scratch_bytes) &&
           dw_size_add(made->payload_bytes, p.blocks_at - p.front, &made->payload_bytes) &&
           made->payload_bytes <= PTRDIFF_MAX;
}

const dw_stage dw_stage_rans = {
    .wire = DW_ENTROPY_RANS,
    .name = "rans",
    .plan = plan,
    .encode = encode,
    .join = join,
    .prepare = prepare,
    .decode = decode,
};
