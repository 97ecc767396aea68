/* SPDX-License-Identifier: Apache-2.0
 * audit.cuh - the state digest where a thread's eight elements are no whole words of it: a stretch of the new prev a block. */
#ifndef DW_CUDA_AUDIT_CUH
#define DW_CUDA_AUDIT_CUH

#include "block.cuh"

/* The audited stretch number `block` of a prev: a thread's four pairs of words, zeros behind the end. */
DW_DEVICE uint64_t dw_stretch_sum(const void *prev, dw_dtype dtype, uint64_t elements, dw_audit audit, uint64_t block)
{
    uint64_t stretch = audit.sequence % audit.every + block * audit.every, sum = 0;
    uint64_t first = stretch * DW_TILE_ELEMENTS + threadIdx.x * DW_EIGHT;
    for (uint32_t i = 0; i < DW_EIGHT; i += 4) {
        uint32_t bits[4];
        if (first + i >= elements) break;
        for (uint32_t k = 0; k < 4; k++) bits[k] = first + i + k < elements ? dw_load_bits(prev, dtype, first + i + k) : 0;
        if (dtype == DW_F32 && first + i + 2 >= elements) {
            sum += dw_digest_pair(bits[0], bits[1], (uint32_t)(first + i)); /* the last pair of words: there is no other */
            break;
        }
        sum += dw_digest_four(bits, dtype, first + i);
    }
    return sum;
}

#endif
