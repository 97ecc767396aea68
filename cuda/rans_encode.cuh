/* SPDX-License-Identifier: Apache-2.0
 * rans_encode.cuh - encodes the blocks of a payload: a block of threads makes the tables of one
 * block, and then its first warp the words, with a lane for each of the 32 states.
 *
 * Source: docs/format.md, 3.7 and 3.8. The specification is src/codecs/stage_rans.c and
 * src/entropy/rans.c. */
#ifndef DW_CUDA_RANS_ENCODE_CUH
#define DW_CUDA_RANS_ENCODE_CUH

#include "rans_tables.cuh"

typedef struct dw_rans_encode_room {
    dw_block_room block;
    dw_tables_room make;
    /* The first is that of the block without parts, the others are those of the block with parts,
     * because both are made and compared. */
    dw_rans_table tables[1 + DW_PARTS];
    uint32_t states[DW_RANS_STATES], count, words;
    bool is_last;
} dw_rans_encode_room;

/* The symbol that begins with code number `at`. */
DW_DEVICE uint32_t dw_symbol_at(const dw_rans_table *table, const uint8_t *codes, uint32_t n,
                                uint32_t at)
{
    uint32_t symbol = 0;
    for (uint32_t i = table->per_symbol; i-- > 0;)
        symbol = symbol * table->range + (at + i < n ? codes[at + i] - table->least : table->fill);
    return symbol;
}

/* Makes the words of n codes with one warp, from the last symbol to the first. Lane j % 32 encodes
 * symbol j; *state is the lane's state. The words fill memory downwards from `end`, where `words`
 * of them have been written before the call. Returns how many there are after it, or a number above
 * `most` if they do not fit. */
DW_DEVICE uint32_t dw_put_part(const dw_rans_table *table, const uint8_t *codes, uint32_t n,
                               uint8_t *end, uint32_t words, uint32_t most, uint32_t *state)
{
    uint32_t lane = threadIdx.x, k = table->per_symbol, symbols = (n + k - 1) / k,
             rows = (symbols + DW_RANS_STATES - 1) / DW_RANS_STATES, x = *state;
    for (uint32_t row = rows; row-- > 0;) {
        uint32_t j = row * DW_RANS_STATES + lane;
        bool active = j < symbols;
        uint32_t symbol = active ? dw_symbol_at(table, codes, n, j * k) : 0,
                 start = table->start[symbol], f = table->start[symbol + 1] - start;
        bool is_full = active && x >> (32 - DW_RANS_BITS) >= f;
        uint32_t full = __ballot_sync(DW_ALL_LANES, is_full), made = (uint32_t)__popc(full);
        if (words + made > most) return most + 1;
        if (is_full) { /* the words of higher lanes come first, because j decreases */
            uint8_t *to = end - 2 * (words + 1 + (uint32_t)__popc(full >> lane >> 1));
            to[0] = (uint8_t)x;
            to[1] = (uint8_t)(x >> 8);
            x >>= 16;
        }
        words += made;
        if (active) x = (x / f << DW_RANS_BITS) + x % f + start;
    }
    *state = x;
    return words;
}

/* Makes the words of all parts, from the last part to the first. Called by the first warp. */
DW_DEVICE void dw_put_words(const dw_rans_draft *draft, const uint8_t *codes,
                            const uint32_t *counts, uint8_t *end, uint32_t most,
                            dw_rans_encode_room *room)
{
    uint32_t words = 0, state = DW_RANS_LOWEST;
    for (uint32_t i = 0; i < draft->parts; i++) codes += counts[i];
    for (uint32_t i = draft->parts; i-- > 0 && words <= most;) {
        codes -= counts[i];
        if (draft->tables[i].range == 1) continue;
        words = dw_put_part(&draft->tables[i], codes, counts[i], end, words, most, &state);
    }
    room->states[threadIdx.x] = state;
    if (threadIdx.x == 0) room->words = words;
}

/* Encodes the codes of a block to its region, and writes to *note where its bytes are. Returns
 * false if the block would not be shorter than its plain bytes. Only one thread writes the note.
 * escaped: how many bytes the escaped values of the plain payload take, which follow the words. */
DW_DEVICE bool dw_encode_codes(const dw_rans_draft *draft, const uint8_t *codes,
                               const uint32_t *counts, uint32_t escaped, const uint8_t *plain,
                               uint8_t *region, dw_cuda_note *note, dw_rans_encode_room *room)
{
    const dw_coded_block *b = &room->block.block;
    uint32_t most = (uint32_t)(b->bytes - b->scales - escaped - 1), bound = (uint32_t)b->codes - 1;
    most = most < bound ? most : bound;
    if (draft->front_bytes > most) return false;
    uint32_t fits = (most - draft->front_bytes) / 2,
             end = (uint32_t)b->scales + draft->front_bytes + 2 * fits;
    /* The estimate is exact to one byte in a hundred, so a block that it says is much too long need
     * not be tried. */
    if (draft->bits / 16 > fits + fits / 64 + DW_RANS_STATES) return false;
    if (threadIdx.x < DW_WARP) dw_put_words(draft, codes, counts, region + end, fits, room);
    __syncthreads();
    if (room->words > fits) return false;
    if (escaped) dw_gather_escapes(plain, &room->block, region + end);
    if (threadIdx.x != 0) return true;
    dw_rans_put_front(draft->tables, draft->parts, room->states, room->words, region + b->scales);
    note->front = (uint32_t)b->scales + draft->front_bytes;
    note->size = note->front + 2 * room->words + escaped;
    note->tail = end - 2 * room->words;
    note->is_raw = 0;
    return true;
}

/* Sorts the codes of a block into parts, if they have dither. Returns whether the block may have
 * parts: only if every part has codes. */
DW_DEVICE bool dw_part_codes(const dw_encode_job *job, uint8_t *codes, uint8_t *parted,
                             dw_block_room *room)
{
    if (!job->layout.dithers) return false;
    dw_count_parts(&job->layout, job->draws_key, room);
    for (uint32_t i = 0; i < DW_PARTS; i++)
        if (room->counts[i] == 0) return false;
    dw_sort_parts<false>(&job->layout, job->draws_key, room, codes, parted);
    return true;
}

/* Copies the scales of all tiles to the region. */
DW_DEVICE void dw_copy_scales(const uint8_t *plain, const dw_block_room *room, uint8_t *region)
{
    for (uint32_t k = 0; k < room->block.tiles; k++) {
        const dw_tile *tile = &room->tiles[k];
        uint32_t bytes = (uint32_t)(tile->codes - tile->offset);
        for (uint32_t at = 16 * threadIdx.x; at < bytes; at += 16 * DW_CUDA_THREADS)
            *(dw_sixteen *)(region + at) = dw_payload_load(plain + tile->offset + at);
        region += bytes;
    }
}

/* Encodes the block of tiles that the room describes. note: in shared memory,
 * and not in that of the room. */
DW_DEVICE bool dw_encode_block(const dw_encode_job *job, const dw_cuda_room *offsets,
                               dw_cuda_note *note, dw_rans_encode_room *room)
{
    const dw_layout *layout = &job->layout;
    const dw_coded_block *b = &room->block.block;
    uint8_t *work = job->scratch + offsets->work + b->number * offsets->each,
            *region = job->scratch + (b->from - (layout->choice_bytes + layout->scale_bytes)),
            *codes = job->payload + b->from, *parted = work + offsets->codes_bytes;
    const uint32_t escaped = dw_find_escapes(layout, job->payload, &room->block);
    if (b->bytes <= b->scales + escaped + 1) return false;
    dw_copy_scales(job->payload, &room->block, region);
    if (!dw_blocks_are_bare(layout)) {
        codes = work;
        dw_unpack_block(layout, &room->block, job->payload, codes);
    }
    if (threadIdx.x == 0) room->count = (uint32_t)b->codes;
    __syncthreads();
    dw_rans_draft best = dw_plan_block(room->tables, codes, &room->count, 1, &room->make);
    bool has_parts = dw_part_codes(job, codes, parted, &room->block);
    if (has_parts) {
        dw_rans_draft draft =
            dw_plan_block(room->tables + 1, parted, room->block.counts, DW_PARTS, &room->make);
        has_parts = 8 * (uint64_t)draft.front_bytes + draft.bits <
                    8 * (uint64_t)best.front_bytes + best.bits;
        if (has_parts) best = draft;
    }
    return dw_encode_codes(&best, has_parts ? parted : codes,
                           has_parts ? room->block.counts : &room->count, escaped, job->payload,
                           region, note, room);
}

/* Finds where every block begins in the payload, and the size of the payload. */
DW_DEVICE void dw_place_blocks(const dw_cuda_share *share, const dw_coded *coded,
                               dw_cuda_note *notes, dw_block_room *room)
{
    uint64_t end = coded->blocks_at;
    for (uint64_t first = 0; first < coded->blocks; first += DW_CUDA_THREADS) {
        uint64_t i = first + threadIdx.x;
        uint32_t all, size = i < coded->blocks ? __ldcg(&notes[i].size) : 0,
                      before = dw_block_scan(size, room->scan, &all);
        if (i < coded->blocks) notes[i].start = end + before;
        end += all;
    }
    if (threadIdx.x != 0) return;
    notes[coded->blocks].start = end;
    share->sums->payload_bytes = dw_round_up(end, 16);
}

/* The kernel of phase CODE in an encoder. */
DW_DEVICE void dw_rans_encode_part(const dw_cuda_encode_part *parts, uint32_t n,
                                   dw_rans_encode_room *room)
{
    uint64_t number;
    const dw_cuda_encode_part *part = parts + dw_find_part(parts, n, DW_CUDA_CODE, &number);
    const dw_layout *layout = &part->job.layout;
    dw_cuda_room offsets = dw_cuda_room_of(layout, true);
    dw_cuda_note *notes = (dw_cuda_note *)(part->job.scratch + offsets.notes);
    dw_share_block(layout, number, &room->block);
    const dw_coded_block *b = &room->block.block;
    dw_cuda_note note = {0, b->from, (uint32_t)b->bytes, 0, 0, 1};
    (void)dw_encode_block(&part->job, &offsets, &note, room);
    if (threadIdx.x == 0) notes[number] = note;
    if (!dw_is_last_measured(&part->share, DW_CUDA_CODE, &room->is_last)) return;
    dw_coded coded = dw_coded_of(layout);
    dw_place_blocks(&part->share, &coded, notes, &room->block);
}

#endif
