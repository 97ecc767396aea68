/* SPDX-License-Identifier: Apache-2.0
 * dither.cuh - random numbers that are added before values are rounded, which follow from the
 * number of an element.
 *
 * Source: docs/format.md, 5. The specification is src/kernels/kernels_dither.h. */
#ifndef DW_CUDA_DITHER_CUH
#define DW_CUDA_DITHER_CUH

#include <Random123/philox.h>

#include "block.cuh"

/* The random numbers of eight elements of the sample from `at` on: number i is the half i % 2 of
 * word i / 2; the other words have no meaning. Eight elements that do not start at a multiple of
 * eight take numbers of two counters, which are moved into place in three steps, because registers
 * cannot be indexed. */
DW_DEVICE void dw_draw_eight(uint64_t dither_key, uint64_t at, uint32_t words[DW_EIGHT])
{
    philox4x32_key_t key = {{(uint32_t)dither_key, (uint32_t)(dither_key >> 32)}};
    uint64_t counter = at / DW_EIGHT;
    uint32_t skipped = (uint32_t)(at % DW_EIGHT);
#pragma unroll
    for (uint32_t call = 0; call < 2; call++, counter++) {
        philox4x32_ctr_t count = {{(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0}},
                         made = {{0, 0, 0, 0}};
        if (call == 0 || skipped) made = philox4x32_R(10, count, key);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) words[4 * call + i] = made.v[i];
    }
#pragma unroll
    for (uint32_t i = 0; i < 6; i++) words[i] = skipped & 4 ? words[i + 2] : words[i];
#pragma unroll
    for (uint32_t i = 0; i < 5; i++) words[i] = skipped & 2 ? words[i + 1] : words[i];
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        words[i] = skipped & 1 ? words[i] >> 16 | words[i + 1] << 16 : words[i];
}

/* The dithers of eight elements of the sample from `at` on; zero ones behind the n-th. */
DW_DEVICE dw_eight dw_dithers(uint64_t dither_key, uint64_t at, uint32_t n)
{
    uint32_t words[DW_EIGHT];
    dw_eight dithers;
    dw_draw_eight(dither_key, at, words);
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++)
        dithers.of[i] = dw_dither_of(
            (uint16_t)(i < n ? words[i / 2] >> (16 * (i % 2)) & 0xffffu : DW_DITHER_NONE));
    return dithers;
}

#endif
