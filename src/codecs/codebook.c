/* SPDX-License-Identifier: Apache-2.0
 * codebook.c - codebooks of the form blocks: makes the entries of each, and finds the entry that is
 * nearest to a value.
 *
 * Sources: Dettmers, 8-Bit Approximations for Parallelism (arXiv:1511.04561), for the dynamic tree;
 * Dettmers, Lewis, Shleifer and Zettlemoyer, 8-bit Optimizers via Block-wise Quantization
 * (arXiv:2110.02861), for blocks; Ryabinin et al., SWARM (arXiv:2301.11913) for both in training.
 */
#include "codecs/codebook.h"

#include <math.h>
#include <string.h>

/* ---- Entries --------------------------------------------------------------------------------- */

void dw_codebook_linear(float entries[DW_CODEBOOK_ENTRIES])
{
    for (int i = 0; i < DW_CODEBOOK_ENTRIES; i++) entries[i] = (float)(i - 128) / 127.0f;
}

/* Every decade below 1 has twice as many entries as the one below it: the middles of intervals of
 * equal length. Numerator and denominator are whole numbers that binary64 holds exactly. The
 * quotient is rounded twice, to binary64 and to binary32, which gives the same bits as rounding it
 * once (those of the table in docs/format.md, 3.13). */
void dw_codebook_dynamic(float entries[DW_CODEBOOK_ENTRIES])
{
    double power = 1e7;
    int at = 0;
    entries[127] = 0.0f;
    entries[255] = 1.0f;
    for (int i = 0; i < 7; i++, power /= 10)
        for (int k = 0; k < 1 << i; k++, at++) {
            double parts = 2 << i, above = parts + 9 * (2 * k + 1);
            entries[128 + at] = (float)(above / (parts * power));
            entries[126 - at] = -entries[128 + at];
        }
}

/* ---- The nearest entry ----------------------------------------------------------------------- */

enum { CELL_SHIFT = 17 }; /* the bits of a float below its sign, exponent and 6 of its fraction */

/* The largest binary32 that is not above the middle of two entries. */
static float bound_between(float low, float high)
{
    double a = low, b = high, sum = a + b, of_b = sum - a;
    double lost = (a - (sum - of_b)) + (b - of_b); /* what the sum lost by rounding, exactly */
    double middle = sum / 2;
    float bound = (float)middle;
    if ((double)bound < middle || ((double)bound == middle && lost >= 0)) return bound + 0.0f;
    /* The middle of two numbers below 0 may have been rounded to 0. */
    return bound == 0 ? dw_float_of(0x80000001u) : dw_order_value(dw_order_of(bound) - 1);
}

void dw_nearest_make(dw_nearest *nearest, const float *entries, uint32_t n)
{
    uint32_t most = 1, cell = 0, in_cell = 0;
    for (uint32_t i = 0; i < 2 * DW_CODEBOOK_ENTRIES; i++) nearest->bounds[i] = INFINITY;
    for (uint32_t i = 0; i + 1 < n; i++) {
        nearest->bounds[i] = bound_between(entries[i], entries[i + 1]);
        uint32_t own = dw_order_of(nearest->bounds[i]) >> CELL_SHIFT;
        in_cell = own < cell ? in_cell + 1 : 1;
        if (own >= cell) memset(nearest->first + cell, (int)i, own + 1 - cell);
        if (own >= cell) cell = own + 1;
        if (in_cell > most) most = in_cell;
    }
    memset(nearest->first + cell, (int)(n - 1), DW_CODEBOOK_CELLS - cell);
    for (nearest->half = 1; 2 * nearest->half <= most;) nearest->half *= 2;
}

/* The cell of a value. -0 is in another cell than +0, which has the same code nevertheless. */
static inline uint32_t cell_of(float value)
{
    uint32_t bits = dw_bits_of(value);
    return (bits ^ ((0u - (bits >> 31)) | 0x80000000u)) >> CELL_SHIFT;
}

/* The codes where no cell has more than two: with one comparison for each. */
static void codes_of_two(const dw_nearest *nearest, const float *values, float factor, uint64_t n,
                         uint8_t *codes)
{
    for (uint64_t i = 0; i < n; i++) {
        float value = values[i] * factor;
        uint32_t code = nearest->first[cell_of(value)];
        codes[i] = (uint8_t)(code + (value > nearest->bounds[code]));
    }
}

void dw_nearest_codes(const dw_nearest *nearest, const float *values, float factor, uint64_t n,
                      uint8_t *codes)
{
    if (nearest->half == 1) {
        codes_of_two(nearest, values, factor, n, codes);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        float value = values[i] * factor;
        codes[i] = nearest->first[cell_of(value)];
    }
    for (uint32_t half = nearest->half; half; half /= 2) {
        const float *bounds = nearest->bounds + half - 1;
        for (uint64_t i = 0; i < n; i++) {
            float value = values[i] * factor;
            codes[i] = (uint8_t)(codes[i] + (value > bounds[codes[i]] ? half : 0));
        }
    }
}

/* ---- Fitting --------------------------------------------------------------------------------- */

/* Sorts by counting 11, 11 and 10 bits at a time, the low ones first. The result is in fit->spare.
 */
static void sort(const dw_fit *fit)
{
    enum { BITS = 11, BINS = 1 << BITS };
    uint32_t *from = fit->sampled, *to = fit->spare, *other;
    for (int shift = 0; shift < 32; shift += BITS) {
        uint32_t next[BINS] = {0}, sum = 0;
        for (uint32_t i = 0; i < fit->n_sampled; i++) next[from[i] >> shift & (BINS - 1)]++;
        for (int i = 0; i < BINS; i++) {
            uint32_t count = next[i];
            next[i] = sum;
            sum += count;
        }
        for (uint32_t i = 0; i < fit->n_sampled; i++)
            to[next[from[i] >> shift & (BINS - 1)]++] = from[i];
        other = from, from = to, to = other;
    }
}

/* Puts a value into its place among n entries in ascending order. */
static void insert(float *entries, uint32_t n, float value)
{
    uint32_t at = n;
    for (; at > 0 && entries[at - 1] > value; at--) entries[at] = entries[at - 1];
    entries[at] = value;
}

void dw_codebook_fit(const dw_fit *fit, float entries[DW_CODEBOOK_ENTRIES])
{
    uint32_t quantiles = fit->entries - 3 - fit->has_bad, n = 0;
    sort(fit);
    for (; n < quantiles && fit->n_sampled; n++)
        entries[n] =
            dw_order_value(fit->spare[(uint64_t)(2 * n + 1) * fit->n_sampled / (2 * quantiles)]);
    insert(entries, n++, fit->least);
    insert(entries, n++, fit->most);
    insert(entries, n++, 0.0f);
    while (n < fit->entries - fit->has_bad) { /* no finite value was sampled */
        entries[n] = entries[n - 1];
        n++;
    }
    if (fit->has_bad) entries[n] = dw_float_of(DW_F32_NAN);
}
