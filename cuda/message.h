/* SPDX-License-Identifier: Apache-2.0
 * message.h - what host and device agree on: the parts of a message, in device memory, and the
 * kernels that work on them.
 *
 * A launch is given an array of parts, one per sample, of one message or of several. Part i has the
 * blocks [first[phase], first[phase] + blocks[phase]) of the grid of a phase; a block looks up
 * whose it is. All pointers are addresses that the device can reach.
 *
 * wide table:
 * | name    | unit  | meaning                                                                              | memory        |
 * | job     |       | as for every engine (src/engine/engine.h); payload lies at a multiple of 16 bytes           | part          |
 * | chosen  |       | scale | direct << 16 of every piece, where tiles cannot decide alone, or cannot       | device        |
 * |         |       | write whole bytes of choice bits; else NULL                                          |               |
 * | sums    |       | what the blocks add; zero before and after                                           | device        |
 * | report  |       | what the last block found; serial is stored last                                     | pinned, host  |
 * | serial  |       | a number of this use of the message, not 0                                           | part          |
 *
 * Kernels, each with the parameters (parts, number of parts), DW_CUDA_THREADS threads a block:
 *
 *   dw_choose_scales
 *       where phase CHOOSE has blocks: scales of whole rows over several tiles, and of channels
 *   dw_encode_<x>_<prev>
 *       phase TILES; for all dtypes dw_encode_columns where there is a scale per channel, and
 *       dw_encode_mse where a tile has to search for scales
 *   dw_decode_<prev>
 *       phase TILES, with state; dw_decode_columns
 *   dw_decode_direct_<y>
 *       phase TILES, without state; dw_decode_direct_columns
 *   dw_mx_encode_<x>_<prev>, dw_mx_decode_<prev>, dw_mx_decode_direct_<y>
 *       phase TILES, where the layout is one of microscaling: `chosen` is NULL, for a tile has
 *       whole blocks, and whole bytes of choice bits
 *   dw_audit_encode, dw_audit_decode
 *       phase AUDIT: the state digest where rows are no multiple of four channels
 *   dw_floats_encode, dw_floats_decode
 *       phase TILES, for all dtypes: the form floats, of which layout says t, c and tiles, here
 *       stretches of 2048 elements; these digest the state too
 *
 * in this order on one stream. The dtypes are f32, f16 and bf16; without state an encode takes
 * <prev> = <x>. */
#ifndef DW_CUDA_MESSAGE_H
#define DW_CUDA_MESSAGE_H

#include "engine/engine.h"

enum { DW_CUDA_THREADS = 128 };
typedef enum dw_cuda_phase {
    DW_CUDA_CHOOSE,
    DW_CUDA_TILES,
    DW_CUDA_AUDIT,
    DW_CUDA_PHASES
} dw_cuda_phase;

typedef struct dw_cuda_sums {
    /* arrived: blocks that are done, of all phases but CHOOSE. */
    unsigned long long payload, state, direct, zero, poisoned, arrived;
} dw_cuda_sums;

typedef struct dw_cuda_report {
    uint64_t payload, state, direct, zero, poisoned;
    uint64_t serial; /* of the use that the others belong to */
} dw_cuda_report;

typedef struct dw_cuda_share {
    uint64_t first[DW_CUDA_PHASES], blocks[DW_CUDA_PHASES];
    uint32_t *chosen;
    dw_cuda_sums *sums;
    dw_cuda_report *report;
    uint64_t serial;
} dw_cuda_share;

typedef struct dw_cuda_encode_part {
    dw_cuda_share share;
    dw_encode_job job;
} dw_cuda_encode_part;

typedef struct dw_cuda_decode_part {
    dw_cuda_share share;
    dw_decode_job job; /* y may go with next: it is written in the same sweep */
} dw_cuda_decode_part;

#endif
