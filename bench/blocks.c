/* SPDX-License-Identifier: Apache-2.0
 * blocks.c - entropy-coded blocks for the benchmark, in C. */
#include "blocks.h"

#include "entropy/rans.h"

static const dw_kernels *kernels;
static uint8_t work[1 << 17]; /* more than dw_rans_work_bytes of DW_BENCH_CODES */

void dw_bench_blocks_use(const char *table)
{
    kernels = dw_kernels_find(table);
    if (dw_rans_work_bytes(DW_BENCH_CODES, false) > sizeof work) kernels = NULL;
}

size_t dw_bench_block_encode(const uint8_t *codes, uint8_t *block)
{
    if (!kernels) return 0;
    return dw_rans_encode(kernels, &(dw_rans_codes){.codes = codes, .n = DW_BENCH_CODES}, block,
                          DW_BENCH_CODES, work);
}

int dw_bench_block_decode(const uint8_t *block, size_t bytes, uint8_t *codes)
{
    size_t used;
    return !dw_rans_decode(kernels, block, bytes, codes, DW_BENCH_CODES, work, &used);
}

void dw_bench_count(const uint8_t *codes, uint32_t counts[256])
{
    kernels->histogram(codes, DW_BENCH_CODES, counts);
}
