/* SPDX-License-Identifier: Apache-2.0
 * published.h - the rules of CocktailSGD (ICML 2023), SparseLoCo (arXiv:2508.15706) and PowerSGD
 * (arXiv:1905.13727), as short as they can be written: what arrives of a gradient, and what is
 * added to the next one. */
#ifndef DW_BENCH_PUBLISHED_H
#define DW_BENCH_PUBLISHED_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { PUBLISHED_CHUNK = 4096, PUBLISHED_KEPT = 64 }; /* SparseLoCo: 64 of 64 x 64 values */

typedef struct published_random {
    uint64_t state;
} published_random;

static inline double published_uniform(published_random *random) /* [0, 1) */
{
    uint64_t z = random->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

typedef struct published_place {
    float value;
    uint32_t at;
} published_place;

static inline int published_larger_first(const void *a, const void *b)
{
    const published_place *one = a, *other = b;
    float difference = fabsf(other->value) - fabsf(one->value);
    if (difference != 0) return difference > 0 ? 1 : -1;
    return one->at < other->at ? -1 : 1;
}

/* CocktailSGD: of the values at random places, a tenth of all, the largest fifth, with 4 bits: in
 * steps of a seventh of the largest of 64 neighbours. error: what was not sent. */
static inline void published_cocktail(published_random *random, const float *gradient, float *error,
                                      float *sent, uint32_t n)
{
    published_place *places = malloc(n * sizeof *places);
    uint32_t candidates = 0;
    if (!places) abort();
    for (uint32_t i = 0; i < n; i++) {
        error[i] += gradient[i], sent[i] = 0;
        if (published_uniform(random) < 0.1) places[candidates++] = (published_place){error[i], i};
    }
    qsort(places, candidates, sizeof *places, published_larger_first);
    for (uint32_t i = 0; i < candidates / 5; i++) sent[places[i].at] = places[i].value;
    for (uint32_t i = 0, first = 0, in = 0; i <= n; i++) {
        if (i < n && (sent[i] == 0 || ++in < 64)) continue;
        float largest = 0;
        for (uint32_t k = first; k < n && k <= i; k++) largest = fmaxf(largest, fabsf(sent[k]));
        for (uint32_t k = first; k < n && k <= i; k++)
            if (largest > 0) sent[k] = rintf(sent[k] / (largest / 7)) * (largest / 7);
        first = i + 1, in = 0;
    }
    for (uint32_t i = 0; i < n; i++) error[i] -= sent[i];
    free(places);
}

/* SparseLoCo: the 64 largest of each 4096 values, with 2 bits: four bins around the mean, six
 * deviations wide together; what is sent for a bin is the mean of its values. The error fades by
 * `decay` with each visit. */
static inline void published_sparseloco(float decay, const float *gradient, float *error,
                                        float *sent, uint32_t n)
{
    for (uint32_t first = 0; first < n; first += PUBLISHED_CHUNK) {
        published_place places[PUBLISHED_CHUNK];
        uint32_t here = n - first < PUBLISHED_CHUNK ? n - first : (uint32_t)PUBLISHED_CHUNK,
                 k = here < PUBLISHED_KEPT ? here : (uint32_t)PUBLISHED_KEPT;
        double mean = 0, square = 0, sums[4] = {0}, counts[4] = {0};
        for (uint32_t i = first; i < first + here; i++) {
            error[i] = decay * error[i] + gradient[i], sent[i] = 0;
            places[i - first] = (published_place){error[i], i};
        }
        qsort(places, here, sizeof *places, published_larger_first);
        for (uint32_t i = 0; i < k; i++) mean += places[i].value / (double)k;
        for (uint32_t i = 0; i < k; i++) square += pow(places[i].value - mean, 2) / (double)k;
        for (int pass = 0; pass < 2; pass++)
            for (uint32_t i = 0; i < k; i++) {
                double step = sqrt(square) * 6 / 4;
                double bin = step > 0 ? rint((places[i].value - mean) / step + 2) : 0;
                int b = (int)fmin(fmax(bin, 0), 3);
                if (pass == 0) sums[b] += places[i].value, counts[b]++;
                if (pass == 1) sent[places[i].at] = (float)(sums[b] / counts[b]);
            }
    }
    for (uint32_t i = 0; i < n; i++) error[i] -= sent[i];
}

/* Gram-Schmidt: changes row k of the matrix p so that the rows 0 to k are orthonormal. The rows
 * before it must be so already. If row k is nearly a sum of these, its remainder is mostly rounding
 * errors and not orthogonal to them. So they are subtracted twice. If it is their sum, what is left
 * are rounding errors alone, and the row becomes 0: otherwise a direction would be sent twice. */
static inline void published_orthonormalize(float *p, uint32_t k, uint32_t columns)
{
    float *row = p + (size_t)k * columns;
    double square = 0, before = 0;
    for (uint32_t i = 0; i < columns; i++) before += (double)row[i] * row[i];
    for (uint32_t j = 0; j < 2 * k; j++) {
        const float *other = p + (size_t)(j % k) * columns;
        double dot = 0;
        for (uint32_t i = 0; i < columns; i++) dot += (double)row[i] * other[i];
        for (uint32_t i = 0; i < columns; i++) row[i] -= (float)dot * other[i];
    }
    for (uint32_t i = 0; i < columns; i++) square += (double)row[i] * row[i];
    float norm = square > 1e-10 * before ? (float)sqrt(square) : INFINITY;
    for (uint32_t i = 0; i < columns; i++) row[i] /= norm;
}

/* PowerSGD: P = M Q is made orthonormal, then Q = M^T P, and P Q^T is what arrives. Q is kept for
 * the next visit. The matrix M has rows of `width` values; q has `rank` rows of that length. The
 * workers average P and Q, and both are linear in M. So the mean of what they send is this rule,
 * applied once to the mean of what they have, and the mean of their errors is the error. A row of P
 * that is 0 leaves its row of Q as it was, for later visits. */
static inline void published_powersgd(uint32_t rank, uint32_t width, const float *gradient,
                                      float *error, float *q, float *sent, uint32_t n)
{
    uint32_t rows = (n + width - 1) / width;
    if (rank > rows) rank = rows;
    if (rank > width) rank = width;
    float *p = calloc((size_t)rank * rows, sizeof *p);
    if (!p) abort();
    for (uint32_t i = 0; i < n; i++) error[i] += gradient[i], sent[i] = 0;
    for (uint32_t k = 0; k < rank; k++)
        for (uint32_t i = 0; i < n; i++)
            p[k * rows + i / width] += error[i] * q[k * width + i % width];
    for (uint32_t k = 0; k < rank; k++) published_orthonormalize(p, k, rows);
    for (uint32_t k = 0; k < rank; k++) {
        bool is_zero = true;
        for (uint32_t i = 0; i < rows && is_zero; i++) is_zero = fabsf(p[k * rows + i]) <= 0;
        if (is_zero) continue;
        memset(q + (size_t)k * width, 0, width * sizeof *q);
        for (uint32_t i = 0; i < n; i++)
            q[k * width + i % width] += error[i] * p[k * rows + i / width];
    }
    for (uint32_t k = 0; k < rank; k++)
        for (uint32_t i = 0; i < n; i++)
            sent[i] += p[k * rows + i / width] * q[k * width + i % width];
    for (uint32_t i = 0; i < n; i++) error[i] -= sent[i];
    free(p);
}

#endif
