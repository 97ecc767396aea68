/* SPDX-License-Identifier: Apache-2.0
 * blocks.h - entropy-coded blocks by one table of kernels, for the benchmark. Not for threads. */
#ifndef DELTAWIRE_BENCH_BLOCKS_H
#define DELTAWIRE_BENCH_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { DW_BENCH_CODES = 32768 }; /* of a block; blocks and codes have room for so many bytes */

/* The functions below use the table of this name. */
void dw_bench_blocks_use(const char *table);

/* Returns the bytes of the block, or 0. */
size_t dw_bench_block_encode(const uint8_t *codes, uint8_t *block);

/* Returns whether the block is valid. */
int dw_bench_block_decode(const uint8_t *block, size_t bytes, uint8_t *codes);

void dw_bench_count(const uint8_t *codes, uint32_t counts[256]);

#ifdef __cplusplus
}
#endif
#endif
