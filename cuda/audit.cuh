/* SPDX-License-Identifier: Apache-2.0
 * audit.cuh - the state digest where the number of channels is not a multiple of four, so that the
 * eight elements of a thread are not whole words of the digest: one stretch of the new prev per
 * block. */
#ifndef DW_CUDA_AUDIT_CUH
#define DW_CUDA_AUDIT_CUH

#include "block.cuh"

/* The sum over the audited stretch number `block` of a prev: four elements at a time, with zeros
 * behind the end. */
DW_DEVICE uint64_t dw_stretch_sum(const void *prev, dw_dtype dtype, uint64_t elements,
                                  dw_audit audit, uint64_t block)
{
    uint64_t first = (audit.phase + block * audit.every) * DW_TILE_ELEMENTS, sum = 0;
    for (uint32_t i = 4 * threadIdx.x; i < DW_TILE_ELEMENTS && first + i < elements;
         i += 4 * DW_CUDA_THREADS) {
        uint32_t bits[4];
        for (uint32_t k = 0; k < 4; k++)
            bits[k] = first + i + k < elements ? dw_load_bits(prev, dtype, first + i + k) : 0;
        /* In f32, four elements are two pairs of words; at the end the second one is missing. */
        bool no_second = dtype == DW_F32 && first + i + 2 >= elements;
        sum += no_second ? dw_digest_pair(bits[0], bits[1], (uint32_t)(first + i))
                         : dw_digest_four(bits, dtype, first + i);
    }
    return sum;
}

#endif
