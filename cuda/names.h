/* SPDX-License-Identifier: Apache-2.0
 * names.h - the kernels of message.h by number, and which of them a job needs. */
#ifndef DW_CUDA_NAMES_H
#define DW_CUDA_NAMES_H

#include "message.h"

/* The first number of each family, which has one kernel per pair of dtypes, one per dtype, or
 * one. */
enum {
    DW_CUDA_AT_CHOOSE = 0,
    DW_CUDA_AT_ENCODE = 1,
    DW_CUDA_AT_MSE = 10,
    DW_CUDA_AT_COLUMNS = 11,
    DW_CUDA_AT_DECODE = 12,
    DW_CUDA_AT_DECODE_COLUMNS = 15,
    DW_CUDA_AT_DIRECT = 16,
    DW_CUDA_AT_DIRECT_COLUMNS = 19,
    DW_CUDA_AT_AUDIT_ENCODE = 20,
    DW_CUDA_AT_AUDIT_DECODE = 21,
    DW_CUDA_AT_MX_ENCODE = 22,
    DW_CUDA_AT_MX_DECODE = 31,
    DW_CUDA_AT_MX_DIRECT = 34,
    DW_CUDA_AT_SEAL = 37,
    DW_CUDA_AT_FLOATS_ENCODE = 38,
    DW_CUDA_AT_FLOATS_DECODE = 39,
    DW_CUDA_AT_STEP_MEASURE = 40,
    DW_CUDA_AT_STEP_ENCODE = 41,
    DW_CUDA_AT_STEP_DECODE = 50,
    DW_CUDA_AT_STEP_DIRECT = 53,
    DW_CUDA_AT_BLOCKS_ENCODE = 56,
    DW_CUDA_AT_BLOCKS_DECODE = 57,
    DW_CUDA_AT_JOIN = 58,
    DW_CUDA_AT_ROTATED = 59, /* this and the next ones: with rotated blocks of channels */
    DW_CUDA_AT_MSE_ROTATED = 60,
    DW_CUDA_AT_DECODE_ROTATED = 61,
    DW_CUDA_AT_DIRECT_ROTATED = 62,
    DW_CUDA_AT_MX_ROTATED = 63,
    DW_CUDA_AT_MX_DECODE_ROTATED = 64,
    DW_CUDA_AT_MX_DIRECT_ROTATED = 65,
    DW_CUDA_AT_STEP_ROTATED = 66,
    DW_CUDA_AT_STEP_DECODE_ROTATED = 67,
    DW_CUDA_AT_STEP_DIRECT_ROTATED = 68,
    DW_CUDA_AT_CHOOSE_ROTATED = 69,
    DW_CUDA_AT_STEP_MEASURE_ROTATED = 70,
    DW_CUDA_AT_EXPAND_ENCODE = 71,
    DW_CUDA_AT_EXPAND_DECODE = 72,
    DW_CUDA_AT_COMPACT_ENCODE = 73,
    DW_CUDA_AT_COMPACT_DECODE = 74,
    DW_CUDA_KERNELS = 75,
    DW_CUDA_NAME_BYTES = 48
};

void dw_cuda_kernel_name(int kernel, char name[DW_CUDA_NAME_BYTES]);

/* kernel: the number of the kernel for each phase; -1: none; DW_CUDA_KERNELS: one that does not
 * exist. blocks: the number of blocks for each phase; where by_tile is set, the number of tiles, of
 * which a block may process several. chosen_room: how many elements of `chosen` are reserved;
 * has_chosen: whether they are used. plain_bytes, room_bytes: of the form's payload, and of the
 * whole room (room.h), where the job has one; else 0. expanded, expanded_bytes: where in the room
 * prev and the new prev begin, and how much each takes, where copies are compact; else 0. When a
 * captured launch is used again for another frame, all but has_chosen must be as captured
 * (dw_launch_refill). */
typedef struct dw_cuda_needs {
    int kernel[DW_CUDA_PHASES];
    uint64_t blocks[DW_CUDA_PHASES];
    bool by_tile[DW_CUDA_PHASES];
    uint64_t chosen_room, plain_bytes, room_bytes, expanded, expanded_bytes;
    bool has_chosen;
} dw_cuda_needs;

dw_cuda_needs dw_cuda_encode_needs(const dw_encode_job *job);
dw_cuda_needs dw_cuda_decode_needs(const dw_decode_job *job);

#endif
