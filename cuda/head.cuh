/* SPDX-License-Identifier: Apache-2.0
 * head.cuh - completes the head of a frame after the kernels that made its payloads: writes their
 * digests to the entries, and then the digests of tables and header.
 *
 * Source: docs/format.md, 1. The specification is src/wire/frame.c. */
#ifndef DW_CUDA_HEAD_CUH
#define DW_CUDA_HEAD_CUH

#include "message_head.h"
#include "xxh3.cuh"

enum { DW_HEADER_WORDS = DW_HEADER_BYTES / 8 };

/* The shared memory of a block. A chunk has one word per thread; the last words of the previous
 * chunk are kept in front of it. */
typedef struct dw_head_room {
    union {
        dw_cuda_head_part part;
        uint64_t part_words[sizeof(dw_cuda_head_part) / 8];
    };
    uint64_t words[DW_XXH3_LANES + DW_CUDA_THREADS];
    uint64_t lanes[DW_XXH3_LANES], saved[DW_WARPS];
    uint64_t header[DW_HEADER_WORDS];
} dw_head_room;

/* Bypasses the caches, because the host may have written since the last replay. */
DW_DEVICE uint64_t dw_fresh_word(const uint64_t *from)
{
    return *(const volatile uint64_t *)from;
}

/* Returns eight bytes of the head, with digests, and sizes of payloads that have become shorter,
 * taken from the reports of the launch. *saved: the bytes that they have become shorter by are
 * added. */
DW_DEVICE uint64_t dw_head_word(const dw_cuda_head_part *part, uint64_t at, uint64_t *saved)
{
    uint64_t word = dw_fresh_word(part->draft + at / 8);
    if (word == 0 || at < part->entries) return word;
    uint64_t entry = (at - part->entries) / DW_ENTRY_BYTES;
    uint32_t within = (uint32_t)((at - part->entries) % DW_ENTRY_BYTES);
    if (entry >= part->n) return word;
    const dw_cuda_report *report = part->reports + entry;
    if (within == DW_PAYLOAD_BYTES_AT) {
        uint64_t bytes = dw_fresh_word(&report->payload_bytes);
        *saved += bytes ? word - bytes : 0;
        return bytes ? bytes : word;
    }
    if (within == DW_PAYLOAD_DIGEST_AT) return dw_digest_of_sum(dw_fresh_word(&report->payload));
    if (within == DW_STATE_DIGEST_AT) return dw_digest_of_sum(dw_fresh_word(&report->state));
    return word;
}

/* Loads the next chunk of the tables for all threads, and writes it to the frame. */
DW_DEVICE void dw_next_chunk(dw_head_room *room, uint64_t from, uint64_t *saved)
{
    const dw_cuda_head_part *part = &room->part;
    uint64_t at = DW_HEADER_BYTES + from + 8 * threadIdx.x, before = 0;
    if (threadIdx.x < DW_XXH3_LANES) before = room->words[DW_CUDA_THREADS + threadIdx.x];
    __syncthreads();
    if (threadIdx.x < DW_XXH3_LANES) room->words[threadIdx.x] = before;
    if (at < part->bytes) {
        uint64_t word = dw_head_word(part, at, saved);
        room->words[DW_XXH3_LANES + threadIdx.x] = word;
        part->frame[at / 8] = word;
    }
    __syncthreads();
}

/* Called by one thread when the frame has its tables. */
DW_DEVICE void dw_end_head(dw_head_room *room, uint64_t tables, uint64_t saved)
{
    const dw_cuda_head_part *part = &room->part;
    room->header[DW_LENGTH_AT / 8] -= saved;
    bool is_used = dw_fresh_word(part->sealed) == part->serial;
    room->header[DW_TABLE_DIGEST_AT / 8] =
        tables <= DW_XXH3_SHORT ? dw_xxh3_of_short(room->words + DW_XXH3_LANES, (uint32_t)tables)
                                : dw_xxh3_of_lanes(room->lanes, tables);
    room->header[DW_HEADER_DIGEST_AT / 8] = dw_xxh3_of_short(room->header, DW_HEADER_DIGEST_AT);
    for (uint32_t i = 0; i < DW_HEADER_WORDS; i++) part->frame[i] = is_used ? 0 : room->header[i];
    __threadfence_system();
    *(volatile uint64_t *)part->sealed = part->serial;
}

DW_DEVICE void dw_finalize_head(const dw_cuda_head_part *parts, dw_head_room *room)
{
    if (threadIdx.x < sizeof(dw_cuda_head_part) / 8)
        room->part_words[threadIdx.x] =
            dw_fresh_word((const uint64_t *)(parts + blockIdx.x) + threadIdx.x);
    __syncthreads();
    uint64_t tables = room->part.bytes - DW_HEADER_BYTES, saved = 0,
             sum = dw_xxh3_begin[threadIdx.x % DW_XXH3_LANES];
    if (threadIdx.x < DW_HEADER_WORDS)
        room->header[threadIdx.x] = dw_fresh_word(room->part.draft + threadIdx.x);
    for (uint64_t from = 0; from < tables; from += DW_XXH3_CHUNK_BYTES) {
        dw_next_chunk(room, from, &saved);
        if (tables > DW_XXH3_SHORT && threadIdx.x < DW_XXH3_LANES)
            sum = dw_xxh3_chunk(sum, room->words + DW_XXH3_LANES, tables - from, threadIdx.x);
    }
    saved = dw_block_sum(saved, room->saved);
    if (threadIdx.x < DW_XXH3_LANES) room->lanes[threadIdx.x] = sum;
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) dw_end_head(room, tables, saved);
}

#endif
