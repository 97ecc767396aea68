/* SPDX-License-Identifier: Apache-2.0
 * elements.c - reads what an encoder codes. */
#include "codecs/elements.h"

#include <string.h>

#include "arithmetic/half.h"
#include "codecs/plan.h"
#include "codecs/tiles.h"

/* The loops below have inner ones of fixed length, which compilers vectorize. */
enum { ONCE = 16 };

void dw_elements_widen(const void *from, dw_dtype dtype, uint64_t n, float *to)
{
    const uint16_t *half = from;
    uint64_t i = 0;
    if (dtype == DW_F32) {
        memcpy(to, from, n * sizeof *to);
        return;
    }
    for (; dtype == DW_BF16 && i + ONCE <= n; i += ONCE)
        for (int k = 0; k < ONCE; k++) to[i + k] = dw_bf16_widen(half[i + k]);
    for (; dtype == DW_F16 && i + ONCE <= n; i += ONCE)
        for (int k = 0; k < ONCE; k++) to[i + k] = dw_f16_widen(half[i + k]);
    for (; i < n; i++) to[i] = dtype == DW_F16 ? dw_f16_widen(half[i]) : dw_bf16_widen(half[i]);
}

static void subtract(float *from, const float *values, uint64_t n)
{
    uint64_t i = 0;
    for (; i + ONCE <= n; i += ONCE)
        for (int k = 0; k < ONCE; k++) from[i + k] -= values[i + k];
    for (; i < n; i++) from[i] -= values[i];
}

const float *dw_elements_load(const dw_encode_job *job, uint64_t at, uint64_t n, float *block)
{
    uint64_t c = job->layout.c, stride = (uint64_t)job->stride;
    bool is_dense = stride == c || job->layout.t == 1;
    if (is_dense && !job->prev && job->x_dtype == DW_F32) return dw_at(job->x, DW_F32, at);
    for (uint64_t done = 0, now; done < n; done += now) {
        uint64_t row = (at + done) / c, column = (at + done) % c;
        uint64_t left = is_dense ? n : c - column;
        now = n - done < left ? n - done : left;
        uint64_t from = is_dense ? at + done : row * stride + column;
        dw_elements_widen(dw_at(job->x, job->x_dtype, from), job->x_dtype, now, block + done);
    }
    const float *prev = job->prev;
    if (prev) subtract(block, prev + at, n);
    return block;
}

void dw_elements_gather(const dw_encode_job *job, const uint32_t *places, uint64_t n, float *values)
{
    const float *x = job->x, *prev = job->prev;
    bool is_dense = job->stride == (int64_t)job->layout.c || job->layout.t == 1;
    if (!is_dense || job->x_dtype != DW_F32) {
        for (uint64_t i = 0; i < n; i++)
            values[i] = *dw_elements_load(job, places[i], 1, &values[i]);
        return;
    }
    for (uint64_t i = 0; i < n; i++) values[i] = x[places[i]];
    for (uint64_t i = 0; prev && i < n; i++) values[i] -= prev[places[i]];
}

uint32_t dw_elements_largest(const float *values, uint64_t n)
{
    int32_t most[ONCE] = {0};
    uint64_t whole = n / ONCE * ONCE;
    for (uint64_t i = 0; i < whole; i += ONCE)
        for (int k = 0; k < ONCE; k++) {
            int32_t magnitude = (int32_t)(dw_bits_of(values[i + k]) & 0x7fffffffu);
            most[k] = magnitude > most[k] ? magnitude : most[k];
        }
    for (uint64_t i = whole; i < n; i++) {
        int32_t magnitude = (int32_t)(dw_bits_of(values[i]) & 0x7fffffffu);
        most[0] = magnitude > most[0] ? magnitude : most[0];
    }
    for (int k = 1; k < ONCE; k++) most[0] = most[k] > most[0] ? most[k] : most[0];
    return (uint32_t)most[0];
}

uint64_t dw_elements_at_end(const dw_decode_job *job, uint64_t part, uint64_t parts)
{
    uint64_t c = job->plan->c, all = (uint64_t)job->plan->t * c, count = 0, each = all / parts;
    uint64_t at = each * part, end = part + 1 == parts ? all : at + each;
    if (!job->y || job->y_dtype != DW_F16) return 0;
    for (uint64_t n; at < end; at += n) {
        const uint16_t *y = dw_at(job->y, DW_F16, at / c * (uint64_t)job->stride + at % c);
        uint32_t found = 0; /* of 32 bits, for the vectorizer */
        n = c - at % c < end - at ? c - at % c : end - at;
        for (uint64_t i = 0; i < n; i++) found += (uint16_t)((y[i] & 0x7fffu) - 0x7bffu) <= 1;
        count += found;
    }
    return count;
}

uint64_t dw_elements_overflowed(const dw_encode_job *job, uint64_t part, uint64_t parts)
{
    float block[DW_ELEMENTS_BLOCK];
    dw_encode_job x = *job; /* x itself, without its base */
    x.prev = NULL;
    dw_dtype to = dw_narrows_to(job->x_dtype, dw_kept_dtype(job, job->prev_dtype), job->wire_dtype);
    uint64_t all = (uint64_t)job->layout.t * job->layout.c, count = 0;
    uint64_t each = all / parts, at = each * part, end = part + 1 == parts ? all : at + each;
    for (uint64_t n; to != DW_F32 && at < end; at += n) {
        n = end - at < DW_ELEMENTS_BLOCK ? end - at : DW_ELEMENTS_BLOCK;
        const float *values = dw_elements_load(&x, at, n, block);
        uint32_t found = 0; /* of 32 bits, for the vectorizer */
        for (uint64_t i = 0; i < n; i++) found += dw_overflows(values[i], to == DW_F16);
        count += found;
    }
    return count;
}
