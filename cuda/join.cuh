/* SPDX-License-Identifier: Apache-2.0
 * join.cuh - moves the payloads of a frame together, when their sizes are known: each block of
 * threads writes up to DW_JOIN_BYTES of one payload to the frame.
 *
 * Source: docs/format.md, 3.8. */
#ifndef DW_CUDA_JOIN_CUH
#define DW_CUDA_JOIN_CUH

#include "block.cuh"
#include "room.h"

/* Shared memory. offset: how far the payload begins behind the first one of the frame. */
typedef struct dw_join_place_room {
    uint64_t sums[DW_WARPS], offset;
    bool is_last;
} dw_join_place_room;

/* Finds where the payload of a part begins. */
DW_DEVICE uint64_t dw_payload_offset(const dw_cuda_share *share, dw_join_place_room *room)
{
    const dw_cuda_sums *first = share->sums - share->entry;
    uint64_t offset = 0;
    for (uint32_t i = threadIdx.x; i < share->entry; i += DW_CUDA_THREADS)
        offset += first[i].payload_bytes;
    offset = dw_block_sum(offset, room->sums);
    if (threadIdx.x == 0) room->offset = offset;
    __syncthreads();
    return room->offset;
}

/* The byte of a block that is `at` bytes behind its start. */
DW_DEVICE uint8_t dw_block_byte(const dw_encode_job *job, uint64_t front, const dw_cuda_note *note,
                                uint32_t at)
{
    if (note->is_raw) return job->payload[note->from + at];
    const uint8_t *region = job->scratch + (note->from - front);
    return region[at < note->front ? at : note->tail + (at - note->front)];
}

/* Sixteen bytes of the blocks, from byte `at` of the payload on; zeros behind the last block. */
DW_DEVICE dw_sixteen dw_blocks_sixteen(const dw_encode_job *job, const dw_coded *coded,
                                       const dw_cuda_note *notes, uint64_t at)
{
    uint64_t low = 0, high = coded->blocks;
    dw_sixteen all = {{0, 0, 0, 0}};
    while (high - low > 1) { /* the last block that begins at `at` or before */
        uint64_t middle = low + (high - low) / 2;
        if (notes[middle].start <= at)
            low = middle;
        else
            high = middle;
    }
    for (uint32_t i = 0; i < 16; i++) {
        if (at + i >= notes[low + 1].start) low++; /* no block is empty */
        if (low == coded->blocks) break;
        uint32_t within = (uint32_t)(at + i - notes[low].start);
        all.word[i / 4] |= (uint32_t)dw_block_byte(job, coded->front, &notes[low], within)
                           << (8 * (i % 4));
    }
    return all;
}

/* Sixteen bytes of a coded payload. */
DW_DEVICE dw_sixteen dw_coded_sixteen(const dw_encode_job *job, const dw_coded *coded,
                                      const dw_cuda_note *notes, uint64_t at)
{
    dw_sixteen all = {{0, 0, 0, 0}};
    if (at < coded->front) return dw_payload_load(job->payload + at);
    if (at >= coded->blocks_at) return dw_blocks_sixteen(job, coded, notes, at);
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t block = (at - coded->front) / DW_SIZE_BYTES + i;
        if (block < coded->blocks) all.word[i] = notes[block].size;
    }
    return all;
}

/* The kernel of phase JOIN. */
DW_DEVICE void dw_join_part(const dw_cuda_encode_part *parts, uint32_t n, dw_join_place_room *room)
{
    uint64_t index, sum = 0;
    const dw_cuda_encode_part *part = parts + dw_find_part(parts, n, DW_CUDA_JOIN, &index);
    const dw_cuda_share *share = &part->share;
    const dw_encode_job *job = &part->job;
    bool is_coded = share->blocks[DW_CUDA_CODE] != 0;
    uint64_t bytes = share->sums->payload_bytes, from = index * DW_JOIN_BYTES,
             end = bytes < from + DW_JOIN_BYTES ? bytes : from + DW_JOIN_BYTES;
    uint8_t *to = share->frame + dw_payload_offset(share, room);
    dw_coded coded = {0, 0, 0};
    const dw_cuda_note *notes = NULL;
    if (is_coded) {
        coded = dw_coded_of(&job->layout);
        notes = (const dw_cuda_note *)(job->scratch + dw_cuda_room_of(&job->layout, true).notes);
    }
    for (uint64_t at = from + 16 * threadIdx.x; at < end; at += 16 * DW_CUDA_THREADS) {
        dw_sixteen all = is_coded ? dw_coded_sixteen(job, &coded, notes, at)
                                  : dw_payload_load(job->payload + at);
        dw_payload_store(to + at, all);
        sum += dw_digest_sixteen(all, at);
    }
    sum = dw_block_sum(sum, room->sums);
    if (threadIdx.x == 0 && sum) atomicAdd(&share->sums->coded, (unsigned long long)sum);
    if (!dw_is_last_of(share, share->blocks[DW_CUDA_JOIN], &room->is_last)) return;
    if (threadIdx.x == 0) dw_report_part(share, dw_taken(&share->sums->coded), bytes);
}

#endif
