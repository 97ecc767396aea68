/* SPDX-License-Identifier: Apache-2.0
 * rotate.cuh - transform=hadamard: rotates blocks of channels before a form's kernel codes them,
 * and back after it.
 *
 * A block has 16, 64 or 256 channels, which are 2, 8 or 32 neighbouring eights. These belong to as
 * many neighbouring lanes of one warp, because tiles, and the windows of choose.cuh, begin with
 * whole blocks. So a lane combines elements of its own eight for the strides 1, 2 and 4, and
 * exchanges elements with other lanes for the longer ones: no memory and no barrier is needed. All
 * threads of a warp must call these functions together, also those whose eights are padding, with
 * zeros.
 *
 * The forms code a rotated block as one that has no prev. What they would decode is a binary32,
 * which is rotated back and added to prev. Source: docs/format.md, 3.11. The specification is
 * arithmetic/rotate.h. */
#ifndef DW_CUDA_ROTATE_CUH
#define DW_CUDA_ROTATE_CUH

#include "arithmetic/rotate.h"
#include "block.cuh"

/* Computes a + b for the lower and a - b for the upper one of two elements `stride` apart, for all
 * of an eight. */
DW_DEVICE void dw_rotate_within(dw_eight *v, uint32_t stride)
{
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) {
        if (i & stride) continue;
        float a = v->of[i], b = v->of[i + stride];
        v->of[i] = a + b;
        v->of[i + stride] = a - b;
    }
}

/* The same where the two elements belong to lanes `apart` lanes from each other. */
DW_DEVICE void dw_rotate_across(dw_eight *v, uint32_t apart)
{
    bool is_upper = (threadIdx.x & apart) != 0;
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) {
        float other = dw_float_of(__shfl_xor_sync(DW_ALL_LANES, dw_bits_of(v->of[i]), (int)apart));
        v->of[i] = is_upper ? other - v->of[i] : v->of[i] + other;
    }
}

/* Rotates a block of so many channels, or rotates it back, which is the same. Each of its lanes
 * passes its own eight. */
DW_DEVICE void dw_rotate_eight(dw_eight *v, uint32_t width)
{
    float root = dw_rotate_root(width), first = 1.0f / (root * root);
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) v->of[i] *= first;
#pragma unroll
    for (uint32_t stride = 1; stride < DW_EIGHT; stride *= 2) dw_rotate_within(v, stride);
    for (uint32_t apart = 1; apart * DW_EIGHT < width; apart *= 2) dw_rotate_across(v, apart);
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) v->of[i] *= root;
}

/* True if the flag is set in any lane of the block. A piece, which shares one scale, can have
 * elements in several blocks; if it is poisoned, none of these blocks can be rotated back. */
DW_DEVICE bool dw_rotate_any(bool mine, uint32_t width)
{
    uint32_t lanes = width / DW_EIGHT, first = threadIdx.x % DW_WARP / lanes * lanes;
    uint32_t block = lanes == DW_WARP ? DW_ALL_LANES : ((1u << lanes) - 1) << first;
    return (__ballot_sync(DW_ALL_LANES, mine) & block) != 0;
}

/* Makes the values of an eight from those that a form has reconstructed without a base, which are
 * bits of a binary32: rotates them back, adds prev, and rounds to dtype. keeps: a poisoned block
 * keeps prev; otherwise it becomes NaN. *poisoned: passed in, whether the piece of this eight is
 * poisoned; passed out, whether any eight of its block belongs to a poisoned piece. */
DW_DEVICE void dw_unrotate_eight(uint32_t bits[DW_EIGHT], const dw_eight *prev, uint32_t width,
                                 dw_dtype dtype, bool keeps, bool *poisoned)
{
    dw_eight v;
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) v.of[i] = dw_float_of(bits[i]);
    dw_rotate_eight(&v, width);
    *poisoned = dw_rotate_any(*poisoned, width);
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) {
        float value = *poisoned ? prev->of[i] : prev->of[i] + v.of[i];
        bits[i] = *poisoned && !keeps ? dw_nan_of(dtype) : dw_narrow(value, dtype);
    }
}

#endif
