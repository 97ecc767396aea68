/* SPDX-License-Identifier: Apache-2.0
 * stage_rans.c - the entropy coder behind a form whose payload consists of tiles (docs/format.md,
 * 3.8).
 *
 * A form writes its plain payload into memory of its own. This stage recodes it, 16 tiles at a
 * time: every such block is coded by itself (entropy/rans.h), so that blocks can be worked on in
 * any order. Each chunk writes its blocks where they would begin in the plain payload, which is
 * never too early; `join` then moves them together. */
#include <string.h>

#include "arithmetic/coded.h"
#include "arithmetic/pack.h"
#include "base/bytes.h"
#include "codecs/dither_parts.h"
#include "codecs/escapes.h"
#include "codecs/plan.h"
#include "codecs/tiles.h"
#include "entropy/rans.h"

/* The memory that coding a block needs besides its input and output: an area of the entry's
 * scratch, which a chunk uses for one block after the other. */
typedef struct block_work {
    uint8_t *codes;         /* the block's codes, one per byte; not used if the block is bare */
    uint8_t *high, *parted; /* with dither: see codecs/dither_parts.h */
    uint8_t *marks;         /* of codes that follow a trellis */
    uint8_t *coder;         /* the memory `work` of entropy/rans.h */
    uint64_t bytes;         /* the size of all of it */
} block_work;

/* Divides memory among its uses. memory: NULL if the caller only needs the size. */
static block_work work_of(const dw_layout *layout, uint8_t *memory)
{
    uint64_t each = dw_round_up(dw_block_most_codes(layout), 64),
             codes = dw_blocks_are_bare(layout) ? 0 : each,
             sorting = layout->dithers       ? each + dw_dither_parts_bytes(each)
                       : layout->may_trellis ? each
                                             : 0;
    block_work w = {
        .bytes =
            codes + sorting +
            dw_round_up(dw_rans_work_bytes(dw_block_most_codes(layout), layout->may_trellis), 64)};
    if (!memory) return w;
    w.codes = memory;
    w.high = w.marks = memory + codes; /* no codes have both */
    w.parted = w.high + each;
    w.coder = w.high + sorting;
    return w;
}

/* ---- Encode ---------------------------------------------------------------------------------- */

/* Copies the scales of all tiles to `scales`, and their codes to `codes`. */
static void take_apart(const dw_layout *layout, const dw_coded_block *b, const uint8_t *plain,
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
static bool sort_codes(const dw_encode_job *job, const dw_coded_block *b, const block_work *work,
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
static uint64_t encode_block(const dw_encode_job *job, const dw_coded_block *b, uint8_t *to,
                             const block_work *work)
{
    const dw_layout *layout = &job->layout;
    const uint8_t *codes = job->payload + b->from;
    uint32_t counts[DW_PARTS];
    uint64_t escapes = DW_ESCAPE_BYTES * dw_escapes_of_block(layout, b, job->payload),
             most = b->scales + escapes + 1; /* how long a coded block is at least, and 1 more */
    if (b->bytes > most) {
        if (!dw_blocks_are_bare(layout)) {
            take_apart(layout, b, job->payload, to, work->codes);
            codes = work->codes;
        }
        bool has_parts = sort_codes(job, b, work, codes, counts), is_trellis = job->rule.is_trellis;
        if (is_trellis) {
            uint8_t states[DW_TRELLIS_LANES] = {0};
            job->kernels->trellis_marks(codes, b->codes, states, work->marks);
        }
        dw_rans_codes all = {.codes = codes,
                             .parted = has_parts ? work->parted : NULL,
                             .marks = is_trellis ? work->marks : NULL,
                             .n = b->codes,
                             .counts = counts};
        size_t coded = dw_rans_encode(job->kernels, &all, to + b->scales, (size_t)(b->bytes - most),
                                      work->coder);
        if (coded) {
            dw_escapes_gather(layout, b, job->payload, to + b->scales + coded);
            return b->scales + coded + escapes;
        }
    }
    memcpy(to, job->payload + b->from, (size_t)b->bytes);
    return b->bytes;
}

static void encode(const dw_encode_job *job, uint64_t chunk, uint64_t area)
{
    const dw_layout *layout = &job->layout;
    dw_coded p = dw_coded_of(layout);
    uint64_t blocks = dw_blocks_of(dw_layout_chunk(layout, chunk).tiles);
    uint64_t each = work_of(layout, NULL).bytes;
    block_work work = work_of(layout, job->scratch + area * each);
    for (uint64_t i = 0; i < blocks; i++) {
        dw_coded_block b = dw_coded_block_of(layout, chunk * dw_chunk_blocks(layout) + i);
        uint64_t size = encode_block(job, &b, job->coded + p.blocks_at + (b.from - p.front), &work);
        dw_put(job->coded + p.front + DW_SIZE_BYTES * b.number, size, DW_SIZE_BYTES);
    }
}

static void join(const dw_encode_job *job, dw_chunk_result *result)
{
    const dw_layout *layout = &job->layout;
    dw_coded p = dw_coded_of(layout);
    uint64_t chunks = dw_layout_chunks(layout), end = p.blocks_at;
    uint64_t sizes_end = p.front + DW_SIZE_BYTES * p.blocks;
    memcpy(job->coded, job->payload, (size_t)p.front);
    memset(job->coded + sizes_end, 0, (size_t)(p.blocks_at - sizes_end));
    for (uint64_t chunk = 0; chunk < chunks; chunk++) {
        uint64_t blocks = dw_blocks_of(dw_layout_chunk(layout, chunk).tiles);
        for (uint64_t i = 0; i < blocks; i++) {
            dw_coded_block b = dw_coded_block_of(layout, chunk * dw_chunk_blocks(layout) + i);
            uint64_t size = dw_get(job->coded + p.front + DW_SIZE_BYTES * b.number, DW_SIZE_BYTES);
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
    return dw_round_up(8 * dw_coded_of(layout).blocks, 64);
}

static const char *prepare(const dw_decode_job *job)
{
    const dw_layout *layout = &job->layout;
    dw_coded p = dw_coded_of(layout);
    uint64_t chunks = dw_layout_chunks(layout), at = p.blocks_at, *starts = starts_of(job);
    if (job->payload_bytes < p.blocks_at) return dw_rans_sentence(DW_RANS_PAYLOAD_SHORT);
    for (uint64_t chunk = 0; chunk < chunks; chunk++) {
        uint64_t blocks = dw_blocks_of(dw_layout_chunk(layout, chunk).tiles);
        for (uint64_t i = 0; i < blocks; i++) {
            dw_coded_block b = dw_coded_block_of(layout, chunk * dw_chunk_blocks(layout) + i);
            uint64_t size = dw_get(job->coded + p.front + DW_SIZE_BYTES * b.number, DW_SIZE_BYTES);
            if (size <= b.scales || size > b.bytes) return dw_rans_sentence(DW_RANS_SIZE_RANGE);
            starts[b.number] = at;
            at += size;
        }
    }
    if (dw_round_up(at, 16) != job->payload_bytes) return dw_rans_sentence(DW_RANS_SIZES_SUM);
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
static void put_together(const dw_layout *layout, const dw_coded_block *b, uint8_t *plain,
                         const uint8_t *scales, const uint8_t *codes)
{
    for (uint64_t k = 0; k < b->tiles; k++) {
        dw_tile tile = dw_layout_tile(layout, b->first_tile + k);
        uint64_t end = tile.codes + (uint64_t)tile.elements * layout->bits / 8;
        memcpy(plain + tile.offset, scales, tile.codes - tile.offset);
        scales += tile.codes - tile.offset;
        dw_pack(codes, tile.elements, layout->bits, plain + tile.codes, tile.elements, 0);
        memset(plain + end, 0, (size_t)(tile.escapes - end));
        codes += tile.elements;
    }
}

/* Decodes a block that has parts, and puts its codes back into the order of the payload. Returns
 * NULL, or what is wrong with the block. *used: becomes the length of the block. */
static const char *decode_parts(const dw_decode_job *job, const dw_coded_block *b,
                                const block_work *work, const uint8_t *from, size_t bytes,
                                uint8_t *codes, size_t *used)
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

static const char *decode_block(const dw_decode_job *job, const dw_coded_block *b,
                                const block_work *work)
{
    const dw_layout *layout = &job->layout;
    dw_coded p = dw_coded_of(layout);
    uint64_t size = dw_get(job->coded + p.front + DW_SIZE_BYTES * b->number, DW_SIZE_BYTES);
    const uint8_t *from = job->coded + starts_of(job)[b->number], *block_from = from + b->scales;
    size_t used = 0, coded = (size_t)(size - b->scales);
    if (size == b->bytes) {
        memcpy(job->plain + b->from, from, (size_t)size);
        return NULL;
    }
    uint8_t *codes = dw_blocks_are_bare(layout) ? job->plain + b->from : work->codes;
    const char *why =
        layout->dithers && dw_rans_has_parts(block_from, coded)
            ? decode_parts(job, b, work, block_from, coded, codes, &used)
        : layout->may_trellis && dw_rans_has_trellis(block_from, coded)
            ? dw_rans_decode_trellis(job->kernels, block_from, coded, codes, b->codes, work->coder,
                                     &used)
            : dw_rans_decode(job->kernels, block_from, coded, codes, b->codes, work->coder, &used);
    if (why) return why;
    if (used != coded && !layout->escapes) return dw_rans_sentence(DW_RANS_BLOCK_SHORT);
    if (!dw_blocks_are_bare(layout)) {
        if (layout->bits < 8 && !codes_fit(codes, b->codes, layout->bits))
            return dw_rans_sentence(DW_RANS_CODES_WIDE);
        put_together(layout, b, job->plain, from, codes);
    }
    if (layout->escapes &&
        !dw_escapes_spread(layout, b, block_from + used, coded - used, job->plain))
        return dw_rans_sentence(DW_RANS_ESCAPES);
    return NULL;
}

static const char *decode(const dw_decode_job *job, uint64_t chunk, uint64_t area)
{
    const dw_layout *layout = &job->layout;
    uint64_t blocks = dw_blocks_of(dw_layout_chunk(layout, chunk).tiles);
    uint64_t each = work_of(layout, NULL).bytes;
    block_work work = work_of(layout, job->scratch + starts_bytes(layout) + area * each);
    const char *why = NULL;
    for (uint64_t i = 0; i < blocks && !why; i++) {
        dw_coded_block b = dw_coded_block_of(layout, chunk * dw_chunk_blocks(layout) + i);
        why = decode_block(job, &b, &work);
    }
    return why;
}

static dw_status plan(dw_plan *made, dw_why *why)
{
    const dw_layout *layout = &made->layout;
    dw_coded p = dw_coded_of(layout);
    made->plain_bytes = made->payload_bytes;
    made->size_varies = true;
    bool fits = dw_size_multiply(dw_areas(dw_layout_chunks(layout)), work_of(layout, NULL).bytes,
                                 &made->scratch_bytes) &&
                dw_size_add(made->scratch_bytes, starts_bytes(layout), &made->scratch_bytes) &&
                dw_size_add(made->payload_bytes, p.blocks_at - p.front, &made->payload_bytes) &&
                made->payload_bytes <= PTRDIFF_MAX;
    return fits ? DW_OK : dw_plan_too_large(made, 0, why);
}

const dw_stage dw_stage_rans = {
    .wire = DW_ENTROPY_RANS,
    .plan = plan,
    .encode = encode,
    .join = join,
    .prepare = prepare,
    .decode = decode,
    .sentence = dw_rans_sentence,
    .encode_on_device = "dw_blocks_encode",
    .decode_on_device = "dw_blocks_decode",
};
