/* SPDX-License-Identifier: Apache-2.0
 * message.h - the interface between host and device: the parts of a launch, in device memory, and
 * the kernels that process them.
 *
 * A launch has an array of parts, one per sample, of one frame or of several. In the grid of a
 * phase, part i has the blocks [first[phase], first[phase] + blocks[phase]); each block looks up
 * which part it works on. Where a part has more tiles than blocks, its block b processes the tiles
 * b, b + blocks[phase], and so on. All pointers are addresses that the device can reach.
 *
 * wide table:
 * | name    | unit  | meaning                                                                              | memory        |
 * | job     |       | as for every engine (src/engine/engine.h); the payload is aligned to 16 bytes        | part          |
 * | chosen  |       | scale | direct << 16 of every piece, where a tile cannot decide alone or cannot      | device        |
 * |         |       | write whole bytes of choice bits; else NULL. With the form step instead: three       |               |
 * |         |       | arrays of a binary64 for every tile, sum, x_sum and least of dw_squares; or, for     |               |
 * |         |       | pieces that lie in one tile, if steps follow from an error, the step of every piece  |               |
 * | sums    |       | the sum over all blocks; zero before and after a launch, but for payload_bytes       | device        |
 * | report  |       | the result, written by the last block; serial is stored last                         | pinned, host  |
 * | serial  |       | identifies this use of the part; not 0                                               | part          |
 * | frame   |       | where the payloads of the frame begin; encode parts whose job has `coded`, else NULL | part          |
 * | entry   |       | the number of the part's entry in its frame: the sums of the frame's first entry are | part          |
 * |         |       | sums[-entry]                                                                         |               |
 * | prev_on_host |  | whether prev lies in the memory of the host; a wrong value changes only the speed    | part          |
 *
 * Parts whose job has `coded` also have a room in device memory, as cuda/room.h lays it out: it
 * begins at the job's payload, and its rest at the job's scratch. Where copies are compact, their
 * base and made lie in device memory, too.
 *
 * Kernels, each with the parameters (parts, number of parts) and DW_CUDA_THREADS threads per block,
 * in this order on one stream:
 *
 *   dw_expand_encode, dw_expand_decode
 *       phase EXPAND of jobs whose copies are compact (codecs/job.h): writes the floats of `held`
 *       to base, which is the job's prev. A block takes stretches of 2048 elements in turn, as it
 *       does tiles
 *   dw_choose_scales
 *       phase CHOOSE, if it has blocks: the scales of rows of several tiles, or of channels
 *   dw_encode_<x>_<prev>
 *       phase TILES; dw_encode_columns, for all dtypes, where there is a scale per channel;
 *       dw_encode_mse, for all dtypes, where a tile searches for its scales
 *   dw_decode_<prev>
 *       phase TILES, with state; also dw_decode_columns
 *   dw_decode_direct_<y>
 *       phase TILES, without state; also dw_decode_direct_columns
 *   dw_mx_encode_<x>_<prev>, dw_mx_decode_<prev>, dw_mx_decode_direct_<y>
 *       phase TILES, for microscaling; `chosen` is NULL, because a tile has whole blocks and whole
 *       bytes of choice bits
 *   dw_step_measure
 *       phase CHOOSE of the form step, for all dtypes: the sum of squares of each tile; only where
 *       a sample, or a row of several tiles, shares a step
 *   dw_step_encode_<x>_<prev>, dw_step_decode_<prev>, dw_step_decode_direct_<y>
 *       phase TILES, for the form step
 *   dw_encode_rotated, dw_encode_mse_rotated, dw_decode_rotated, dw_decode_direct_rotated, and the
 *   same of mx and step; dw_choose_scales_rotated, dw_step_measure_rotated
 *       variants of the kernels above, for all dtypes, for layouts that rotate blocks of channels
 *   dw_audit_encode, dw_audit_decode
 *       phase AUDIT: the state digest where the number of channels is not a multiple of four
 *   dw_floats_encode, dw_floats_decode
 *       phase TILES, for all dtypes: the form floats. Of the layout only t, c and tiles are set;
 *       tiles are stretches of 2048 elements here, whose state digest these kernels compute, too
 *
 *   dw_blocks_encode, dw_blocks_decode
 *       phase CODE: one block of threads for every group of tiles that is coded together
 *       (docs/format.md, 3.8). The encoder's kernel runs after the phases above, and leaves the
 *       groups in the room; its last block knows the size of the payload. The decoder's kernel runs
 *       before them, and leaves the plain payload in the room
 *   dw_compact_encode, dw_compact_decode
 *       phase COMPACT, after the phases TILES and AUDIT: stores the floats `made`, which the job
 *       has as its next, in `fresh`
 *   dw_join_payloads
 *       phase JOIN, of all parts after all other phases of all parts, because it must know the
 *       sizes of all payloads of a frame: moves what lies in the room to its place in the frame, up
 *       to DW_JOIN_BYTES with each block
 *
 * The dtypes are f32, f16 and bf16. An encode without state uses <prev> = <x>. */
#ifndef DW_CUDA_MESSAGE_H
#define DW_CUDA_MESSAGE_H

#include "engine/engine.h"

enum { DW_CUDA_THREADS = 128, DW_JOIN_BYTES = 1 << 14 };
typedef enum dw_cuda_phase {
    DW_CUDA_CHOOSE,
    DW_CUDA_TILES,
    DW_CUDA_AUDIT,
    DW_CUDA_CODE,
    DW_CUDA_JOIN,
    DW_CUDA_EXPAND,
    DW_CUDA_COMPACT,
    DW_CUDA_PHASES
} dw_cuda_phase;

typedef struct dw_cuda_sums {
    /* arrived: how many blocks have finished, of the phases TILES, AUDIT and COMPACT, and then of
     * the phase JOIN. measured: how many blocks of phase CHOOSE have finished, and then of the
     * encoder's phase CODE; of CHOOSE counted only for the form step with one step per sample. */
    unsigned long long payload, state, direct, zero, poisoned, escaped, overflowed;
    unsigned long long arrived, measured;
    /* Used only where the job has `coded` set. coded: the digest of the payload in the frame. bad:
     * the fault that was found in a payload while it was decoded, as packed by dw_cuda_bad, or 0.
     * payload_bytes: the size that an encoded payload has in the frame. It is set by the host for a
     * payload that is only moved, otherwise by the last block of phase CODE. */
    unsigned long long coded, bad, payload_bytes;
} dw_cuda_sums;

/* What is wrong with an entropy-coded payload. Of several faults, the one with the largest number
 * is reported, which is the one that the CPU finds first. step: 0 to 2 for the checks of the sizes,
 * in their order; 3 for those of the blocks. */
DW_INLINE unsigned long long dw_cuda_bad(uint32_t step, uint64_t block, uint32_t fault)
{
    return ~((unsigned long long)step << 56 | block << 8 | fault);
}
DW_INLINE uint32_t dw_cuda_fault_of(uint64_t bad)
{
    return bad ? (uint32_t)(~bad & 0xff) : 0;
}

/* payload: the digest of the payload in the frame. payload_bytes: its size, where it was coded or
 * moved; else 0. bad: as in the sums. */
typedef struct dw_cuda_report {
    uint64_t payload, state, direct, zero, poisoned, escaped, overflowed, payload_bytes, bad;
    uint64_t serial; /* identifies the use of the part that the other fields belong to */
} dw_cuda_report;

typedef struct dw_cuda_share {
    uint64_t first[DW_CUDA_PHASES], blocks[DW_CUDA_PHASES];
    uint32_t *chosen;
    dw_cuda_sums *sums;
    dw_cuda_report *report;
    uint64_t serial;
    uint8_t *frame;
    uint32_t entry;
    bool prev_on_host;
} dw_cuda_share;

typedef struct dw_cuda_encode_part {
    dw_cuda_share share;
    dw_encode_job job;
} dw_cuda_encode_part;

typedef struct dw_cuda_decode_part {
    dw_cuda_share share;
    dw_decode_job job; /* y and next may both be set; both are then written in the same pass */
} dw_cuda_decode_part;

#endif
