/* SPDX-License-Identifier: Apache-2.0
 * rans_decode.cuh - decodes the blocks of a payload to the plain payload: a block of threads makes
 * the tables of one block, and then its first warp reads the words, with a lane for each of the 32
 * states.
 *
 * Payloads come from outside, and their memory may change while it is read. So what decides about
 * an address is read once, by one thread, and checked. Source: docs/format.md, 3.7 and 3.8. The
 * specification is src/codecs/stage_rans.c and src/entropy/rans.c. */
#ifndef DW_CUDA_RANS_DECODE_CUH
#define DW_CUDA_RANS_DECODE_CUH

#include "rans_tables.cuh"

/* entries: for every slot its symbol, how many slots this has (from bit 8), and the number of the
 * slot among them (from bit 20); where codes follow a trellis, those of kind 1 behind those of kind
 * 0, with marks as symbols. spelling: the codes of every symbol, the first one lowest. parts: how
 * many tables the block has. from, bytes: the block in the frame. used: how many bytes its codes
 * take, behind its scales. */
typedef struct dw_rans_decode_room {
    dw_block_room block;
    dw_tables_room make;
    dw_rans_table tables[DW_PARTS];
    uint32_t entries[DW_TRELLIS_KINDS * DW_RANS_SLOTS], spelling[DW_RANS_SYMBOLS],
        states[DW_RANS_STATES];
    dw_rans_reader reader;
    uint64_t from;
    uint32_t bytes, used, parts, taken, is_wrong;
    dw_rans_fault fault;
    bool goes_on; /* the block can be read */
} dw_rans_decode_room;

/* ---- The words ------------------------------------------------------------------------------- */

/* The words that come next: 64 of them, two in each lane, loaded before they are needed. next: the
 * number of the first of them; behind the last word, zeros. */
typedef struct dw_rans_words {
    const uint8_t *from;
    uint32_t count, next, now, then;
} dw_rans_words;

DW_DEVICE uint32_t dw_word_at(const dw_rans_words *words, uint32_t i)
{
    const uint8_t *at = words->from + 2 * (uint64_t)i;
    return i < words->count ? at[0] | (uint32_t)at[1] << 8 : 0;
}

/* Begins with word number i. */
DW_DEVICE void dw_words_begin(dw_rans_words *words, uint32_t i)
{
    words->next = i;
    words->now = dw_word_at(words, i + threadIdx.x);
    words->then = dw_word_at(words, i + DW_WARP + threadIdx.x);
}

/* Returns word number i, which is one of the 64. */
DW_DEVICE uint32_t dw_words_get(const dw_rans_words *words, uint32_t i)
{
    uint32_t at = i - words->next, lane = at % DW_WARP,
             now = __shfl_sync(DW_ALL_LANES, words->now, (int)lane),
             then = __shfl_sync(DW_ALL_LANES, words->then, (int)lane);
    return at < DW_WARP ? now : then;
}

/* Advances the 64 loaded words, because all words before number i have been used. */
DW_DEVICE void dw_words_go_on(dw_rans_words *words, uint32_t i)
{
    if (i - words->next < DW_WARP) return;
    words->next += DW_WARP;
    words->now = words->then;
    words->then = dw_word_at(words, words->next + DW_WARP + threadIdx.x);
}

/* Stores the codes of a symbol, of which the part has `left`. */
DW_DEVICE void dw_put_symbol(uint8_t *to, uint32_t spelled, uint32_t per_symbol, uint32_t left)
{
    for (uint32_t i = 0; i < per_symbol && i < left; i++) to[i] = (uint8_t)(spelled >> (8 * i));
}

/* Decodes the n codes of a part with one warp. Lane j % 32 decodes symbol j; *state is the lane's
 * state. follows: the codes follow a trellis, of which every lane has a state of its own. taken:
 * how many words the earlier parts have used. Returns how many have been used after this part. If
 * that is more than the block has, zeros were read in place of the missing ones. */
template <bool follows>
DW_DEVICE uint32_t dw_take_part(const dw_rans_decode_room *room, const dw_rans_table *table,
                                dw_rans_words *words, uint32_t taken, uint32_t n, uint8_t *codes,
                                uint32_t *state)
{
    uint32_t lane = threadIdx.x, k = table->per_symbol, symbols = (n + k - 1) / k, x = *state,
             trellis = 0;
    dw_words_begin(words, taken);
    for (uint32_t first = 0; first < symbols; first += DW_RANS_STATES) {
        uint32_t j = first + lane;
        bool active = j < symbols;
        uint32_t kind = trellis >> 1,
                 entry = room->entries[kind * DW_RANS_SLOTS + x % DW_RANS_SLOTS],
                 next = (entry >> 8 & (DW_RANS_SLOTS - 1)) * (x >> DW_RANS_BITS) + (entry >> 20);
        bool is_low = active && next < DW_RANS_LOWEST;
        uint32_t low = __ballot_sync(DW_ALL_LANES, is_low), all = (uint32_t)__popc(low);
        uint32_t word = dw_words_get(words, taken + (uint32_t)__popc(low & ((1u << lane) - 1)));
        taken += all;
        dw_words_go_on(words, taken);
        if (!active) continue;
        x = is_low ? next << 16 | word : next;
        if (follows) {
            uint8_t mark = (uint8_t)entry;
            codes[j] = dw_trellis_code(mark);
            trellis = dw_trellis_next(trellis, dw_trellis_mark_is_odd(mark));
            continue;
        }
        dw_put_symbol(codes + (uint64_t)j * k, room->spelling[entry & 0xff], k, n - j * k);
    }
    *state = x;
    return taken;
}

/* ---- Tables ---------------------------------------------------------------------------------- */

/* Makes the entry of each slot of a table. first, apart: the number of the first symbol, and by how
 * much that of each symbol exceeds the one before. */
DW_DEVICE void dw_fill_entries(const dw_rans_table *table, uint32_t first, uint32_t apart,
                               uint32_t *entries)
{
    uint32_t symbols = dw_symbols_of(table->range, table->per_symbol);
    for (uint32_t slot = threadIdx.x; slot < DW_RANS_SLOTS; slot += DW_CUDA_THREADS) {
        uint32_t low = 0, high = symbols;
        while (high - low > 1) { /* the last symbol that begins at the slot or before */
            uint32_t middle = (low + high) / 2;
            if (table->start[middle] <= slot)
                low = middle;
            else
                high = middle;
        }
        uint32_t start = table->start[low], f = table->start[low + 1] - start;
        entries[slot] = (first + apart * low) | f << 8 | (slot - start) << 20;
    }
}

/* Makes entries and spelling from the slots of a table. */
DW_DEVICE void dw_make_entries(const dw_rans_table *table, dw_rans_decode_room *room)
{
    uint32_t symbols = dw_symbols_of(table->range, table->per_symbol);
    dw_fill_entries(table, 0, 1, room->entries);
    for (uint32_t s = threadIdx.x; s < symbols; s += DW_CUDA_THREADS) {
        uint32_t rest = s, spelled = 0;
        for (uint32_t i = 0; i < table->per_symbol; i++, rest /= table->range)
            spelled |= (table->least + rest % table->range) << (8 * i);
        room->spelling[s] = spelled;
    }
    __syncthreads();
}

/* Reads the tables of frequencies and the lengths, which precede the states; called by one thread.
 * counts: how many codes each part has. */
DW_DEVICE dw_rans_fault dw_read_front(dw_rans_decode_room *room, const uint32_t *counts)
{
    size_t used = 0;
    dw_rans_reader *r = &room->reader;
    for (uint32_t i = 0; room->parts == DW_PARTS && i < DW_PARTS; i++)
        if (counts[i] == 0) return DW_RANS_EMPTY_PART;
    dw_rans_fault wrong = dw_rans_read_front(r, room->tables, room->parts);
    if (!wrong)
        wrong = dw_rans_judge_length(r, dw_rans_needs_states(room->tables, room->parts),
                                     room->block.block.codes, &used);
    room->used = (uint32_t)used;
    return wrong;
}

/* Sets the fault if any thread has found one, and returns the fault. Called by all threads. */
DW_DEVICE dw_rans_fault dw_agree(dw_rans_decode_room *room, bool is_wrong, dw_rans_fault fault)
{
    if (is_wrong) atomicOr(&room->is_wrong, 1u);
    __syncthreads();
    if (threadIdx.x == 0 && room->is_wrong) {
        if (!room->fault) room->fault = fault;
        room->is_wrong = 0;
    }
    __syncthreads();
    return room->fault;
}

/* Decodes the n codes of a block that follow a trellis. The other parameters are those of
 * dw_take_part. */
DW_DEVICE uint32_t dw_take_trellis(dw_rans_decode_room *room, dw_rans_words *words, uint32_t n,
                                   uint8_t *codes, uint32_t *state)
{
    uint32_t taken = 0;
    for (uint32_t kind = 0; kind < DW_TRELLIS_KINDS; kind++) {
        dw_rans_table *table = &room->tables[kind];
        dw_find_slots(table, &room->make);
        dw_fill_entries(table, 2 * table->least - DW_TRELLIS_ZERO + kind, 2,
                        room->entries + kind * DW_RANS_SLOTS);
        __syncthreads();
    }
    if (threadIdx.x < DW_WARP)
        taken = dw_take_part<true>(room, &room->tables[0], words, 0, n, codes, state);
    return taken;
}

/* Decodes the parts of a block whose front has been read: their codes, one part behind the other.
 * counts: how many codes each part has. */
DW_DEVICE dw_rans_fault dw_take_parts(dw_rans_decode_room *room, const uint32_t *counts,
                                      uint8_t *codes)
{
    bool in_warp = threadIdx.x < DW_WARP, follows = room->parts == DW_TRELLIS_KINDS,
         has_states = dw_rans_needs_states(room->tables, room->parts);
    const dw_rans_reader *r = &room->reader;
    const uint8_t *states = r->from + r->states;
    uint32_t x = DW_RANS_LOWEST, parts = follows ? 1 : room->parts;
    dw_rans_words words = {states + DW_RANS_STATE_BYTES, r->words, 0, 0, 0};
    for (uint32_t i = 0; has_states && in_warp && i < 4; i++)
        x = (i ? x : 0) | (uint32_t)states[4 * threadIdx.x + i] << (8 * i);
    if (dw_agree(room, x < DW_RANS_LOWEST, DW_RANS_LOW_STATE)) return room->fault;
    for (uint32_t i = 0; i < parts; codes += counts[i++]) {
        dw_rans_table *table = &room->tables[i];
        uint32_t taken = 0;
        if (!follows && table->range == 1) {
            for (uint32_t at = threadIdx.x; at < counts[i]; at += DW_CUDA_THREADS)
                codes[at] = (uint8_t)table->least;
            continue;
        }
        if (follows) {
            taken = dw_take_trellis(room, &words, counts[i], codes, &x);
        } else {
            dw_find_slots(table, &room->make);
            dw_make_entries(table, room);
            if (in_warp)
                taken = dw_take_part<false>(room, table, &words, room->taken, counts[i], codes, &x);
        }
        __syncthreads();
        if (threadIdx.x == 0) room->taken = taken;
        if (dw_agree(room, taken > r->words, DW_RANS_WORDS_END)) return room->fault;
    }
    if (!has_states) return DW_RANS_RIGHT;
    if (dw_agree(room, room->taken < r->words, DW_RANS_WORDS_LEFT)) return room->fault;
    return dw_agree(room, x != DW_RANS_LOWEST, DW_RANS_LAST_STATE);
}

/* ---- A block --------------------------------------------------------------------------------- */

/* Decodes the codes of a block to `codes`, in the order of the payload. from: the block, behind the
 * scales. parted: room for its codes, with dither. */
DW_DEVICE dw_rans_fault dw_decode_codes(const dw_decode_job *job, const uint8_t *from,
                                        uint32_t bytes, uint8_t *codes, uint8_t *parted,
                                        dw_rans_decode_room *room)
{
    const dw_layout *layout = &job->layout;
    if (threadIdx.x == 0) {
        room->reader.from = from;
        room->reader.bytes = bytes;
        bool has_kinds = layout->may_trellis && dw_rans_says_trellis(from, bytes);
        room->parts = layout->dithers && dw_rans_says_parts(from, bytes) ? DW_PARTS
                      : has_kinds                                        ? DW_TRELLIS_KINDS
                                                                         : 1;
        room->taken = room->is_wrong = 0;
        room->block.counts[0] = (uint32_t)room->block.block.codes;
    }
    __syncthreads();
    bool has_parts = room->parts == DW_PARTS;
    if (has_parts) dw_count_parts(layout, job->draws_key, &room->block);
    if (threadIdx.x == 0) room->fault = dw_read_front(room, room->block.counts);
    __syncthreads();
    if (room->fault) return room->fault;
    if (dw_take_parts(room, room->block.counts, has_parts ? parted : codes)) return room->fault;
    __syncthreads();
    if (has_parts) dw_sort_parts<true>(layout, job->draws_key, &room->block, codes, parted);
    return dw_agree(room, room->used != bytes && !layout->escapes, DW_RANS_BLOCK_SHORT);
}

/* Copies the scales of all tiles to the plain payload. */
DW_DEVICE void dw_restore_scales(const uint8_t *from, const dw_block_room *room, uint8_t *plain)
{
    for (uint32_t k = 0; k < room->block.tiles; k++) {
        const dw_tile *tile = &room->tiles[k];
        uint32_t bytes = (uint32_t)(tile->codes - tile->offset);
        for (uint32_t at = threadIdx.x; at < bytes; at += DW_CUDA_THREADS)
            plain[tile->offset + at] = from[at];
        from += bytes;
    }
}

/* Makes the plain bytes of the block that the room describes. */
DW_DEVICE dw_rans_fault dw_decode_block(const dw_decode_job *job, dw_rans_decode_room *room)
{
    const dw_layout *layout = &job->layout;
    const dw_coded_block *b = &room->block.block;
    const uint8_t *from = job->coded + room->from;
    uint32_t bytes = room->bytes, scales = (uint32_t)b->scales;
    uint8_t *plain = job->plain;
    if (bytes == b->bytes) {
        for (uint32_t at = threadIdx.x; at < bytes; at += DW_CUDA_THREADS)
            plain[b->from + at] = from[at];
        return DW_RANS_RIGHT;
    }
    dw_cuda_room offsets = dw_cuda_room_of(layout, false);
    uint8_t *work = job->scratch + offsets.work + b->number * offsets.each,
            *codes = dw_blocks_are_bare(layout) ? plain + b->from : work;
    dw_rans_fault fault = dw_decode_codes(job, from + scales, bytes - scales, codes,
                                          work + offsets.codes_bytes, room);
    if (fault || dw_blocks_are_bare(layout)) return fault;
    uint32_t all = 0;
    for (uint32_t at = threadIdx.x; at < b->codes; at += DW_CUDA_THREADS) all |= codes[at];
    if (dw_agree(room, all >> layout->bits != 0, DW_RANS_CODES_WIDE)) return room->fault;
    dw_restore_scales(from, &room->block, plain);
    dw_pack_block(layout, &room->block, codes, plain);
    if (!layout->escapes) return DW_RANS_RIGHT;
    uint32_t list = scales + room->used, n = (bytes - list) / DW_ESCAPE_BYTES;
    dw_clear_rooms(&room->block, plain);
    bool fits = (bytes - list) % DW_ESCAPE_BYTES == 0 &&
                dw_spread_escapes(from + list, n, &room->block, plain);
    return dw_agree(room, !fits, DW_RANS_ESCAPES);
}

/* ---- A payload ------------------------------------------------------------------------------- */

DW_DEVICE void dw_note_fault(dw_cuda_sums *sums, uint32_t step, uint64_t number,
                             dw_rans_fault fault)
{
    if (threadIdx.x == 0) atomicMax(&sums->bad, dw_cuda_bad(step, number, fault));
}

/* The size of a block, as the payload says. */
DW_DEVICE uint32_t dw_size_in(const dw_decode_job *job, const dw_coded *coded, uint64_t number)
{
    return __ldcg((const uint32_t *)(job->coded + coded->front) + number);
}

/* Digests this block's share of the payload, and copies its share of the front. */
DW_DEVICE void dw_take_front(const dw_cuda_decode_part *part, const dw_coded *coded,
                             uint64_t number, uint64_t *room)
{
    const dw_decode_job *job = &part->job;
    uint64_t sum = 0, all = 16 * DW_CUDA_THREADS * part->share.blocks[DW_CUDA_CODE];
    for (uint64_t at = 16 * (number * DW_CUDA_THREADS + threadIdx.x); at < job->payload_bytes;
         at += all) {
        dw_sixteen sixteen = dw_payload_load(job->coded + at);
        sum += dw_digest_sixteen(sixteen, at);
        if (at < coded->front) dw_payload_store(job->plain + at, sixteen);
    }
    sum = dw_block_sum(sum, room);
    if (threadIdx.x == 0 && sum) atomicAdd(&part->share.sums->coded, (unsigned long long)sum);
    __syncthreads();
}

/* Finds where the block lies in the payload, and checks its size. Returns whether it can be
 * read. */
DW_DEVICE bool dw_find_block(const dw_cuda_decode_part *part, const dw_coded *coded,
                             dw_rans_decode_room *room)
{
    const dw_decode_job *job = &part->job;
    const dw_coded_block *b = &room->block.block;
    uint64_t from = 0;
    for (uint64_t i = threadIdx.x; i < b->number; i += DW_CUDA_THREADS)
        from += dw_size_in(job, coded, i);
    from = coded->blocks_at + dw_block_sum(from, room->block.sums);
    if (threadIdx.x == 0) {
        uint32_t bytes = dw_size_in(job, coded, b->number);
        bool fits = bytes > b->scales && bytes <= b->bytes;
        if (!fits) dw_note_fault(part->share.sums, 1, b->number, DW_RANS_SIZE_RANGE);
        if (b->number + 1 == coded->blocks && dw_round_up(from + bytes, 16) != job->payload_bytes)
            dw_note_fault(part->share.sums, 2, 0, DW_RANS_SIZES_SUM);
        room->from = from;
        room->bytes = bytes;
        room->goes_on = fits && from + bytes <= job->payload_bytes;
    }
    __syncthreads();
    return room->goes_on;
}

/* The kernel of phase CODE in a decoder. */
DW_DEVICE void dw_rans_decode_part(const dw_cuda_decode_part *parts, uint32_t n,
                                   dw_rans_decode_room *room)
{
    uint64_t number;
    const dw_cuda_decode_part *part = parts + dw_find_part(parts, n, DW_CUDA_CODE, &number);
    const dw_decode_job *job = &part->job;
    dw_coded coded = dw_coded_of(&job->layout);
    dw_take_front(part, &coded, number, room->block.sums);
    if (job->payload_bytes < coded.blocks_at) {
        dw_note_fault(part->share.sums, 0, 0, DW_RANS_PAYLOAD_SHORT);
        return;
    }
    dw_share_block(&job->layout, number, &room->block);
    if (!dw_find_block(part, &coded, room)) return;
    dw_rans_fault fault = dw_decode_block(job, room);
    if (fault) dw_note_fault(part->share.sums, 3, number, fault);
}

#endif
