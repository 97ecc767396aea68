/* SPDX-License-Identifier: Apache-2.0
 * codebook.h - codebooks of the form blocks: what the 256 codes stand for, and which code is the
 * nearest to a value (docs/format.md, 3.13 and 5).
 *
 * | name    | shape       | unit     | meaning                                     | owner  |
 * | entries | (n), <= 256 | binary32 | what the codes stand for, never decreasing  | caller |
 * | codes   | (n)         | bytes    |                                             | caller |
 *
 * Errors: none. State: none. Threads: any, on different memory. */
#ifndef DW_CODEBOOK_H
#define DW_CODEBOOK_H

#include "codecs/job.h"

enum {
    DW_CODEBOOK_ENTRIES = 256,
    DW_CODEBOOK_SAMPLED = 16384, /* how many values of a sample a codebook is fitted to */
    DW_CODEBOOK_CELLS = 1 << 15
};

/* Write the entries of the codebooks that are the same for all samples. */
void dw_codebook_linear(float entries[DW_CODEBOOK_ENTRIES]);
void dw_codebook_dynamic(float entries[DW_CODEBOOK_ENTRIES]);

/* A number that orders finite floats as their values are; -0 and +0 give the same. */
static inline uint32_t dw_order_of(float value)
{
    uint32_t bits = dw_bits_of(value + 0.0f);
    return bits ^ ((0u - (bits >> 31)) | 0x80000000u);
}

static inline float dw_order_value(uint32_t order)
{
    return dw_float_of(order >> 31 ? order & 0x7fffffffu : ~order);
}

/* Finds codes without bisecting the whole codebook: the upper bits of a value say in which cell it
 * lies, and first[cell] is the lowest code that a value of the cell can have. A few comparisons
 * with the bounds, as many for every value, decide among the codes of a cell. */
typedef struct dw_nearest {
    /* The largest value to which entry i is at least as near as entry i + 1; infinite for the last
     * entry, and behind it. */
    float bounds[2 * DW_CODEBOOK_ENTRIES];
    uint32_t half; /* half of the codes that can be in one cell, rounded up to a power of two */
    uint8_t first[DW_CODEBOOK_CELLS];
} dw_nearest;

void dw_nearest_make(dw_nearest *nearest, const float *entries, uint32_t n);

/* Writes the codes of the entries that are nearest to RN(value * factor), of two equally near ones
 * the smaller. The code of a product that is not finite is any. */
void dw_nearest_codes(const dw_nearest *nearest, const float *values, float factor, uint64_t n,
                      uint8_t *codes);

/* What a codebook is fitted to. */
typedef struct dw_fit {
    float least, most; /* of all values that are finite; both +0 if there are none */
    bool has_bad;      /* there are values that are not finite */
    uint32_t entries;  /* how many the codebook has: 4 to 256 */
    uint32_t *sampled; /* dw_order_of some finite values of the sample, in any order; overwritten */
    uint32_t n_sampled; /* how many; 0 is allowed */
    uint32_t *spare;    /* room for as many */
} dw_fit;

/* Writes the entries of a codebook for these values: least, most, +0 and quantiles, in ascending
 * order; the last one is NaN if there are values that are not finite. */
void dw_codebook_fit(const dw_fit *fit, float entries[DW_CODEBOOK_ENTRIES]);

#endif
