/* SPDX-License-Identifier: Apache-2.0
 * rans_tables.cuh - the tables of entropy-coded blocks: how the slots are shared out among symbols.
 * The threads of a block divide the symbols among themselves, two for each.
 *
 * Source: docs/format.md, 3.7. The specification is src/entropy: all sums are of integers, so their
 * order does not matter. */
#ifndef DW_CUDA_RANS_TABLES_CUH
#define DW_CUDA_RANS_TABLES_CUH

#include "coded.cuh"

/* Shared memory for making a table. In way w, a symbol consists of 2^w codes. weights: the weights
 * of symbols that follow from frequencies. counted: those that follow from counts. Way w uses array
 * w % 2 of both. start: the slots of the way that is being tried, which may be rejected. */
typedef struct dw_tables_room {
    uint32_t counts[256];
    uint32_t weights[2][DW_RANS_SYMBOLS], counted[2][DW_RANS_SYMBOLS];
    uint16_t start[DW_RANS_SYMBOLS + 1];
    uint32_t scan[DW_WARPS], least, last, fill, bits;
    uint64_t sums[DW_WARPS], sum;
} dw_tables_room;

/* Computes how many of the 4096 slots each symbol gets, with the same result as dw_slots_of_weights
 * (entropy/frequencies.h). start: symbol s gets the slots start[s] to start[s + 1] - 1. */
DW_DEVICE void dw_share_slots(const uint32_t *weights, uint32_t symbols, uint16_t *start,
                              dw_tables_room *room)
{
    uint32_t s = 2 * threadIdx.x, w[2], occurring, above;
    for (uint32_t i = 0; i < 2; i++) w[i] = s + i < symbols ? weights[s + i] : 0;
    uint32_t before = dw_block_scan((w[0] > 0) + (w[1] > 0), room->scan, &occurring),
             sum = dw_block_scan(dw_above_one_slot(w[0]) + dw_above_one_slot(w[1]), room->scan,
                                 &above);
    uint64_t scale = dw_slots_scale(occurring, above);
    for (uint32_t i = 0; i < 2; i++) {
        if (s + i < symbols) start[s + i] = dw_slot_of(before, sum, scale);
        before += w[i] > 0;
        sum += dw_above_one_slot(w[i]);
    }
    if (threadIdx.x == 0) start[symbols] = DW_RANS_SLOTS;
    __syncthreads();
}

/* Computes the weights of all pairs of symbols, from array (way - 1) % 2 to array way % 2. */
DW_DEVICE void dw_share_pairs(uint32_t weights[2][DW_RANS_SYMBOLS], uint32_t way, uint32_t symbols)
{
    const uint32_t *from = weights[(way - 1) % 2];
    for (uint32_t pair = threadIdx.x; pair < symbols * symbols; pair += DW_CUDA_THREADS)
        weights[way % 2][pair] = dw_weight_of_pair(from[pair % symbols], from[pair / symbols]);
}

/* About how many bits n symbols take, as dw_bits_of_slots computes it. */
DW_DEVICE uint64_t dw_share_bits(const uint32_t *weights, uint32_t symbols, const uint16_t *start,
                                 uint64_t n, dw_tables_room *room)
{
    uint64_t sum = 0;
    for (uint32_t s = threadIdx.x; s < symbols; s += DW_CUDA_THREADS)
        if (weights[s] > 0)
            sum += (uint64_t)weights[s] * dw_bits_of_frequency((uint32_t)start[s + 1] - start[s]);
    sum = dw_block_sum(sum, room->sums);
    if (threadIdx.x == 0) room->sum = sum;
    __syncthreads();
    return dw_bits_of_sum(room->sum, n);
}

/* Computes the slots of a table from its frequencies. */
DW_DEVICE void dw_find_slots(dw_rans_table *table, dw_tables_room *room)
{
    uint32_t way = 0, symbols = table->range;
    for (uint32_t c = threadIdx.x; c < symbols; c += DW_CUDA_THREADS)
        room->weights[0][c] = (uint32_t)table->frequencies[c] * DW_SLOT_WEIGHT;
    __syncthreads();
    while (1u << way < table->per_symbol) {
        dw_share_pairs(room->weights, ++way, symbols);
        symbols *= symbols;
        __syncthreads();
    }
    dw_share_slots(room->weights[way % 2], symbols, table->start, room);
}

/* ---- Encode ---------------------------------------------------------------------------------- */

/* Counts how often each of n codes occurs. Equal codes often follow each other, and additions to
 * one counter wait for each other; so a thread adds them up as long as they are equal. */
DW_DEVICE void dw_count_codes(const uint8_t *codes, uint32_t n, dw_tables_room *room)
{
    uint32_t same = 0, code = 0;
    for (uint32_t c = threadIdx.x; c < 256; c += DW_CUDA_THREADS) room->counts[c] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += DW_CUDA_THREADS) {
        if (codes[i] != code) {
            if (same) atomicAdd(&room->counts[code], same);
            same = 0;
            code = codes[i];
        }
        same++;
    }
    if (same) atomicAdd(&room->counts[code], same);
    __syncthreads();
}

/* Finds the least and the last of the codes that were counted. Returns how many codes the table
 * has. */
DW_DEVICE uint32_t dw_find_range(dw_rans_table *table, dw_tables_room *room)
{
    if (threadIdx.x == 0) {
        room->least = 255;
        room->last = room->fill = room->bits = 0;
    }
    __syncthreads();
    for (uint32_t c = threadIdx.x; c < 256; c += DW_CUDA_THREADS)
        if (room->counts[c]) {
            atomicMin(&room->least, c);
            atomicMax(&room->last, c);
        }
    __syncthreads();
    uint32_t range = room->last - room->least + 1;
    if (threadIdx.x == 0) {
        table->per_symbol = 1;
        table->least = room->least;
        table->range = range;
        table->fill = 0;
    }
    __syncthreads();
    return range;
}

/* Chooses how many codes make a symbol, and sets per_symbol and start of the table, which are those
 * of one code so far. Returns an estimate of the bits that n codes take with one. */
DW_DEVICE uint64_t dw_choose_per_symbol(dw_rans_table *table, uint64_t n, dw_tables_room *room)
{
    uint32_t symbols = table->range;
    uint64_t least_bits = dw_share_bits(room->counted[0], symbols, table->start, n, room);
    for (uint32_t way = 1; way < DW_RANS_WAYS && dw_symbols_of(symbols, 2) > 0; way++) {
        uint32_t k = 1u << way;
        dw_share_pairs(room->counted, way, symbols);
        dw_share_pairs(room->weights, way, symbols);
        symbols *= symbols;
        __syncthreads();
        dw_share_slots(room->weights[way % 2], symbols, room->start, room);
        uint64_t bits =
            dw_share_bits(room->counted[way % 2], symbols, room->start, (n + k - 1) / k, room);
        if (!dw_rans_pays(bits, least_bits)) continue;
        for (uint32_t s = threadIdx.x; s < symbols + 1; s += DW_CUDA_THREADS)
            table->start[s] = room->start[s];
        if (threadIdx.x == 0) table->per_symbol = k;
        __syncthreads();
    }
    return least_bits;
}

/* A block for which all is decided but its words: the tables, the length of what stands in front of
 * the words, and an estimate of the bits that these take. */
typedef struct dw_rans_draft {
    const dw_rans_table *tables;
    uint32_t parts, front_bytes;
    uint64_t bits;
} dw_rans_draft;

/* Makes the table of a part with n codes, and adds to the draft what the part takes. */
DW_DEVICE void dw_plan_part(dw_rans_table *table, const uint8_t *codes, uint32_t n,
                            dw_rans_draft *draft, dw_tables_room *room)
{
    dw_count_codes(codes, n, room);
    uint32_t range = dw_find_range(table, room);
    uint64_t each = dw_weight_each(n);
    if (range == 1) return;
    for (uint32_t c = threadIdx.x; c < range; c += DW_CUDA_THREADS)
        room->counted[0][c] = dw_weight_of_count(room->counts[room->least + c], each);
    __syncthreads();
    dw_share_slots(room->counted[0], range, table->start, room);
    for (uint32_t c = threadIdx.x; c < range; c += DW_CUDA_THREADS) {
        uint32_t f = (uint32_t)table->start[c + 1] - table->start[c];
        table->frequencies[c] = (uint16_t)f;
        room->weights[0][c] = f * DW_SLOT_WEIGHT;
        atomicMax(&room->fill, f << 8 | (255 - c)); /* the first of the largest */
        atomicAdd(&room->bits, dw_frequency_bits(f));
    }
    __syncthreads();
    if (threadIdx.x == 0) table->fill = 255 - (room->fill & 0xff);
    draft->front_bytes += (room->bits + 7) / 8;
    draft->bits += dw_choose_per_symbol(table, n, room);
}

/* Makes the tables of a block. counts: the number of codes in each of its parts, which follow each
 * other. */
DW_DEVICE dw_rans_draft dw_plan_block(dw_rans_table *tables, const uint8_t *codes,
                                      const uint32_t *counts, uint32_t parts, dw_tables_room *room)
{
    dw_rans_draft draft = {tables, parts, DW_RANS_HEADER_BYTES + DW_RANS_HEAD_BYTES * (parts - 1),
                           0};
    for (uint32_t i = 0; i < parts; codes += counts[i++])
        dw_plan_part(&tables[i], codes, counts[i], &draft, room);
    __syncthreads();
    if (dw_rans_needs_states(tables, parts)) draft.front_bytes += DW_RANS_STATE_BYTES;
    return draft;
}

#endif
