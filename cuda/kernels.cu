/* SPDX-License-Identifier: Apache-2.0
 * kernels.cu - the kernels by name (message.h): one for every pair of dtypes in common cases, one
 * for all dtypes in others. */
#include "audit.cuh"
#include "choose.cuh"
#include "copies.cuh"
#include "decode.cuh"
#include "encode.cuh"
#include "floats.cuh"
#include "head.cuh"
#include "join.cuh"
#include "mx.cuh"
#include "rans_decode.cuh"
#include "rans_encode.cuh"
#include "step.cuh"

/* How many blocks share a multiprocessor, and with it its registers. What was fastest on an H100:
 * five for encoders of 16-bit numbers, four for the others and for the form step. The search needs
 * so many registers that there are two. */
#define KERNEL_OF(blocks, name)                                                                    \
    extern "C" __global__ void __launch_bounds__(DW_CUDA_THREADS, blocks) name
#define KERNEL(name) KERNEL_OF(4, name)
#define KERNEL_OF_MANY_REGISTERS(name)                                                             \
    extern "C" __global__ void __launch_bounds__(DW_CUDA_THREADS, 2) name

/* The tensors that are prefetched (load.cuh): x and prev if both have 16 bits, or prev alone. */
#define IS_16_BITS(dtype)          ((dtype) == DW_F16 || (dtype) == DW_BF16)
#define PREFETCHED_OF_TWO(x, prev) (IS_16_BITS(x) && IS_16_BITS(prev) ? 2 : 0)
#define PREFETCHED_OF_ONE(type)    (IS_16_BITS(type) ? 1 : 0)
/* Declares `prefetched`, the memory for so many tensors, or NULL for none. */
#define PREFETCH_ROOM(tensors)                                                                     \
    __shared__ dw_sixteen memory[(tensors) ? (tensors)*DW_PREFETCH_SIXTEENS : 1];                  \
    dw_sixteen *prefetched = (tensors) ? memory : NULL

#define ENCODE(name, x, prev, variant)                                                             \
    KERNEL_OF(PREFETCHED_OF_TWO(x, prev) ? 5 : 4, name)                                            \
    (const dw_cuda_encode_part *parts, uint32_t n)                                                 \
    {                                                                                              \
        __shared__ dw_encode_room room;                                                            \
        PREFETCH_ROOM(PREFETCHED_OF_TWO(x, prev));                                                 \
        dw_encode_tiles<x, prev, variant>(parts, n, &room, prefetched, NULL);                      \
    }
ENCODE(dw_encode_f32_f32, DW_F32, DW_F32, DW_PLAIN)
ENCODE(dw_encode_f32_f16, DW_F32, DW_F16, DW_PLAIN)
ENCODE(dw_encode_f32_bf16, DW_F32, DW_BF16, DW_PLAIN)
ENCODE(dw_encode_f16_f32, DW_F16, DW_F32, DW_PLAIN)
ENCODE(dw_encode_f16_f16, DW_F16, DW_F16, DW_PLAIN)
ENCODE(dw_encode_f16_bf16, DW_F16, DW_BF16, DW_PLAIN)
ENCODE(dw_encode_bf16_f32, DW_BF16, DW_F32, DW_PLAIN)
ENCODE(dw_encode_bf16_f16, DW_BF16, DW_F16, DW_PLAIN)
ENCODE(dw_encode_bf16_bf16, DW_BF16, DW_BF16, DW_PLAIN)
ENCODE(dw_encode_columns, 0, 0, DW_BY_COLUMNS)
ENCODE(dw_encode_rotated, 0, 0, DW_ROTATED)

#define ENCODE_BY_SEARCH(name, variant)                                                            \
    KERNEL_OF_MANY_REGISTERS(name)(const dw_cuda_encode_part *parts, uint32_t n)                   \
    {                                                                                              \
        __shared__ dw_encode_room room;                                                            \
        __shared__ dw_search_room search;                                                          \
        dw_encode_tiles<0, 0, variant>(parts, n, &room, NULL, &search);                            \
    }
ENCODE_BY_SEARCH(dw_encode_mse, DW_SEARCHES)
ENCODE_BY_SEARCH(dw_encode_mse_rotated, DW_SEARCHES_ROTATED)

KERNEL(dw_choose_scales)(const dw_cuda_encode_part *parts, uint32_t n)
{
    __shared__ dw_choose_room room;
    dw_choose_part(parts, n, &room);
}

KERNEL(dw_choose_scales_rotated)(const dw_cuda_encode_part *parts, uint32_t n)
{
    __shared__ dw_choose_room room;
    __shared__ dw_window_room window;
    dw_choose_rotated(parts, n, &room, &window);
}

#define DECODE(name, type, has_state, variant)                                                     \
    KERNEL(name)(const dw_cuda_decode_part *parts, uint32_t n)                                     \
    {                                                                                              \
        __shared__ dw_decode_room room;                                                            \
        PREFETCH_ROOM(PREFETCHED_OF_ONE(type));                                                    \
        dw_decode_tiles<type, has_state, variant>(parts, n, &room, prefetched);                    \
    }
DECODE(dw_decode_f32, DW_F32, true, DW_PLAIN)
DECODE(dw_decode_f16, DW_F16, true, DW_PLAIN)
DECODE(dw_decode_bf16, DW_BF16, true, DW_PLAIN)
DECODE(dw_decode_columns, 0, true, DW_BY_COLUMNS)
DECODE(dw_decode_rotated, 0, true, DW_ROTATED)
DECODE(dw_decode_direct_f32, DW_F32, false, DW_PLAIN)
DECODE(dw_decode_direct_f16, DW_F16, false, DW_PLAIN)
DECODE(dw_decode_direct_bf16, DW_BF16, false, DW_PLAIN)
DECODE(dw_decode_direct_columns, 0, false, DW_BY_COLUMNS)
DECODE(dw_decode_direct_rotated, 0, false, DW_ROTATED)

KERNEL(dw_floats_encode)(const dw_cuda_encode_part *parts, uint32_t n)
{
    __shared__ dw_floats_room room;
    dw_floats_encode_stretches(parts, n, &room);
}

KERNEL(dw_floats_decode)(const dw_cuda_decode_part *parts, uint32_t n)
{
    __shared__ dw_floats_room room;
    dw_floats_decode_stretches(parts, n, &room);
}

KERNEL(dw_audit_encode)(const dw_cuda_encode_part *parts, uint32_t n)
{
    __shared__ dw_encode_room room;
    uint64_t block;
    const dw_cuda_encode_part *part = parts + dw_find_part(parts, n, DW_CUDA_AUDIT, &block);
    const dw_encode_job *job = &part->job;
    uint64_t elements = (uint64_t)job->layout.t * job->layout.c;
    dw_found found = {0};
    found.state = dw_stretch_sum(job->next, job->prev_dtype, elements, job->audit, block);
    dw_end_encode(part, &found, &room);
}

KERNEL(dw_audit_decode)(const dw_cuda_decode_part *parts, uint32_t n)
{
    __shared__ dw_decode_room room;
    uint64_t block;
    const dw_cuda_decode_part *part = parts + dw_find_part(parts, n, DW_CUDA_AUDIT, &block);
    const dw_decode_job *job = &part->job;
    uint64_t elements = (uint64_t)job->layout.t * job->layout.c;
    dw_found found = {0};
    found.state = dw_stretch_sum(job->next, job->prev_dtype, elements, job->audit, block);
    dw_end_decode(part, &found, &room);
}

#define COPIES(side, part, end_part)                                                               \
    KERNEL(dw_expand_##side)(const part *parts, uint32_t n)                                        \
    {                                                                                              \
        dw_expand_copy(parts, n);                                                                  \
    }                                                                                              \
    KERNEL(dw_compact_##side)(const part *parts, uint32_t n)                                       \
    {                                                                                              \
        __shared__ dw_##side##_room room;                                                          \
        const dw_found found = {0};                                                                \
        end_part(dw_compact_copy(parts, n), &found, &room);                                        \
    }
COPIES(encode, dw_cuda_encode_part, dw_end_encode)
COPIES(decode, dw_cuda_decode_part, dw_end_decode)

#define MX_ENCODE(name, x, prev)                                                                   \
    KERNEL_OF(PREFETCHED_OF_TWO(x, prev) ? 5 : 4, name)                                            \
    (const dw_cuda_encode_part *parts, uint32_t n)                                                 \
    {                                                                                              \
        __shared__ dw_encode_room room;                                                            \
        PREFETCH_ROOM(PREFETCHED_OF_TWO(x, prev));                                                 \
        dw_mx_encode_tiles<x, prev, (x) == 0>(parts, n, &room, prefetched);                        \
    }
MX_ENCODE(dw_mx_encode_f32_f32, DW_F32, DW_F32)
MX_ENCODE(dw_mx_encode_f32_f16, DW_F32, DW_F16)
MX_ENCODE(dw_mx_encode_f32_bf16, DW_F32, DW_BF16)
MX_ENCODE(dw_mx_encode_f16_f32, DW_F16, DW_F32)
MX_ENCODE(dw_mx_encode_f16_f16, DW_F16, DW_F16)
MX_ENCODE(dw_mx_encode_f16_bf16, DW_F16, DW_BF16)
MX_ENCODE(dw_mx_encode_bf16_f32, DW_BF16, DW_F32)
MX_ENCODE(dw_mx_encode_bf16_f16, DW_BF16, DW_F16)
MX_ENCODE(dw_mx_encode_bf16_bf16, DW_BF16, DW_BF16)
MX_ENCODE(dw_mx_encode_rotated, 0, 0)

#define MX_DECODE(name, type, has_state)                                                           \
    KERNEL(name)(const dw_cuda_decode_part *parts, uint32_t n)                                     \
    {                                                                                              \
        __shared__ dw_decode_room room;                                                            \
        PREFETCH_ROOM(PREFETCHED_OF_ONE(type));                                                    \
        dw_mx_decode_tiles<type, has_state, (type) == 0>(parts, n, &room, prefetched);             \
    }
MX_DECODE(dw_mx_decode_f32, DW_F32, true)
MX_DECODE(dw_mx_decode_f16, DW_F16, true)
MX_DECODE(dw_mx_decode_bf16, DW_BF16, true)
MX_DECODE(dw_mx_decode_rotated, 0, true)
MX_DECODE(dw_mx_decode_direct_f32, DW_F32, false)
MX_DECODE(dw_mx_decode_direct_f16, DW_F16, false)
MX_DECODE(dw_mx_decode_direct_bf16, DW_BF16, false)
MX_DECODE(dw_mx_decode_direct_rotated, 0, false)

#define STEP_MEASURE(name, rotates)                                                                \
    KERNEL(name)(const dw_cuda_encode_part *parts, uint32_t n)                                     \
    {                                                                                              \
        __shared__ dw_measure_room room;                                                           \
        dw_step_measure_tiles<rotates>(parts, n, &room);                                           \
    }
STEP_MEASURE(dw_step_measure, false)
STEP_MEASURE(dw_step_measure_rotated, true)

#define STEP_ENCODE(name, x, prev)                                                                 \
    KERNEL(name)(const dw_cuda_encode_part *parts, uint32_t n)                                     \
    {                                                                                              \
        __shared__ dw_encode_room room;                                                            \
        PREFETCH_ROOM(PREFETCHED_OF_TWO(x, prev));                                                 \
        __shared__ dw_step_room steps;                                                             \
        dw_step_encode_tiles<x, prev, (x) == 0>(parts, n, &room, prefetched, &steps);              \
    }
STEP_ENCODE(dw_step_encode_f32_f32, DW_F32, DW_F32)
STEP_ENCODE(dw_step_encode_f32_f16, DW_F32, DW_F16)
STEP_ENCODE(dw_step_encode_f32_bf16, DW_F32, DW_BF16)
STEP_ENCODE(dw_step_encode_f16_f32, DW_F16, DW_F32)
STEP_ENCODE(dw_step_encode_f16_f16, DW_F16, DW_F16)
STEP_ENCODE(dw_step_encode_f16_bf16, DW_F16, DW_BF16)
STEP_ENCODE(dw_step_encode_bf16_f32, DW_BF16, DW_F32)
STEP_ENCODE(dw_step_encode_bf16_f16, DW_BF16, DW_F16)
STEP_ENCODE(dw_step_encode_bf16_bf16, DW_BF16, DW_BF16)
STEP_ENCODE(dw_step_encode_rotated, 0, 0)

#define STEP_DECODE(name, type, has_state)                                                         \
    KERNEL(name)(const dw_cuda_decode_part *parts, uint32_t n)                                     \
    {                                                                                              \
        __shared__ dw_decode_room room;                                                            \
        PREFETCH_ROOM(PREFETCHED_OF_ONE(type));                                                    \
        dw_step_decode_tiles<type, has_state, (type) == 0>(parts, n, &room, prefetched);           \
    }
STEP_DECODE(dw_step_decode_f32, DW_F32, true)
STEP_DECODE(dw_step_decode_f16, DW_F16, true)
STEP_DECODE(dw_step_decode_bf16, DW_BF16, true)
STEP_DECODE(dw_step_decode_rotated, 0, true)
STEP_DECODE(dw_step_decode_direct_f32, DW_F32, false)
STEP_DECODE(dw_step_decode_direct_f16, DW_F16, false)
STEP_DECODE(dw_step_decode_direct_bf16, DW_BF16, false)
STEP_DECODE(dw_step_decode_direct_rotated, 0, false)

KERNEL(dw_blocks_encode)(const dw_cuda_encode_part *parts, uint32_t n)
{
    __shared__ dw_rans_encode_room room;
    dw_rans_encode_part(parts, n, &room);
}

KERNEL(dw_blocks_decode)(const dw_cuda_decode_part *parts, uint32_t n)
{
    __shared__ dw_rans_decode_room room;
    dw_rans_decode_part(parts, n, &room);
}

KERNEL(dw_join_payloads)(const dw_cuda_encode_part *parts, uint32_t n)
{
    __shared__ dw_join_place_room room;
    dw_join_part(parts, n, &room);
}

KERNEL(dw_finalize_heads)(const dw_cuda_head_part *parts, uint32_t n)
{
    __shared__ dw_head_room room;
    (void)n;
    dw_finalize_head(parts, &room);
}
