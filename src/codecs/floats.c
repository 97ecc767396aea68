/* SPDX-License-Identifier: Apache-2.0
 * floats.c - payloads of floats: value by value between a tensor, prev and the wire. */
#include <string.h>

#include "quantized.h"

/* One value between formats. Exact: IEEE, as kind RAW wants it; else RN, with NaN for all that is
 * not finite. */
static uint32_t load_bits(const unsigned char *from, dw_dtype dtype)
{
    uint32_t single = from[0] | (uint32_t)from[1] << 8;
    if (dtype == DW_F32) return single | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
    return dw_bits_of(dtype == DW_F16 ? dw_f16_widen((uint16_t)single)
                                      : dw_bf16_widen((uint16_t)single));
}

static uint32_t round_to(float value, dw_dtype dtype, int exact)
{
    if ((dw_bits_of(value) & 0x7f800000u) == DW_F32_INFINITY && !exact)
        return dtype == DW_F32 ? DW_F32_NAN : dtype == DW_F16 ? DW_F16_NAN : DW_BF16_NAN;
    if (dtype == DW_F32) return dw_bits_of(value);
    if (dtype == DW_F16) return exact ? dw_f16_round(value) : dw_f16_finite(value);
    return exact ? dw_bf16_round(value) : dw_bf16_finite(value);
}

static void store_bits(unsigned char *to, dw_dtype dtype, uint32_t bits)
{
    for (size_t i = 0; i < dw_dtype_bytes(dtype); i++) to[i] = (unsigned char)(bits >> (8 * i));
}

static void store_native(void *to, dw_dtype dtype, uint32_t bits)
{
    uint16_t half = (uint16_t)bits;
    if (dtype == DW_F32)
        memcpy(to, &bits, sizeof bits);
    else
        memcpy(to, &half, sizeof half);
}

static uint32_t load_native(const void *from, dw_dtype dtype, int same)
{
    uint32_t bits = 0;
    uint16_t half;
    if (dtype == DW_F32) {
        memcpy(&bits, from, sizeof bits);
        return bits;
    }
    memcpy(&half, from, sizeof half);
    if (same) return half;
    return dw_bits_of(dtype == DW_F16 ? dw_f16_widen(half) : dw_bf16_widen(half));
}

static bool is_finite(uint32_t bits)
{
    return (bits & DW_F32_INFINITY) != DW_F32_INFINITY;
}

/* Little-endian hosts hold floats as the wire does: whole rows can be copied. */
static bool wire_order(void)
{
    const uint16_t one = 1;
    unsigned char first;
    memcpy(&first, &one, 1);
    return first == 1;
}

void dw_put_floats(const dw_float_job *job)
{
    uint64_t size = dw_dtype_bytes(job->form), n = (uint64_t)job->t * job->c;
    int same = job->exact && job->form == job->dtype;
    memset(job->payload + n * size, 0, (size_t)(job->bytes - n * size));
    if (same && wire_order()) {
        for (uint64_t t = 0; t < job->t; t++)
            memcpy(job->payload + t * job->c * size,
                   dw_at(job->tensor, job->dtype, t * (uint64_t)job->stride), job->c * size);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        const void *x =
            dw_at(job->tensor, job->dtype, i / job->c * (uint64_t)job->stride + i % job->c);
        uint32_t bits = load_native(x, job->dtype, same);
        if (!same) bits = round_to(dw_float_of(bits), job->form, job->exact);
        store_bits(job->payload + i * size, job->form, bits);
        if (!same)
            job->sums->poisoned +=
                !is_finite(load_bits(job->payload + i * size, job->form)) && !job->exact;
    }
}

void dw_take_floats(const dw_float_job *job, int to_next)
{
    uint64_t size = dw_dtype_bytes(job->form);
    int same = job->exact && job->form == job->dtype;
    if (same && !to_next && wire_order()) {
        for (uint64_t t = 0; t < job->t; t++)
            memcpy(dw_at(job->tensor, job->dtype, t * (uint64_t)job->stride),
                   job->payload + t * job->c * size, job->c * size);
        return;
    }
    for (uint64_t i = 0; i < (uint64_t)job->t * job->c; i++) {
        const unsigned char *from = job->payload + i * size;
        if (to_next) {
            uint32_t bits = load_bits(from, job->form);
            uint32_t kept = is_finite(bits) ? round_to(dw_float_of(bits), job->prev_dtype, 0) : 0;
            store_native(dw_at(job->next, job->prev_dtype, i), job->prev_dtype, kept);
            continue;
        }
        void *y = dw_at(job->tensor, job->dtype, i / job->c * (uint64_t)job->stride + i % job->c);
        if (same) {
            uint32_t bits = from[0] | (uint32_t)from[1] << 8;
            if (size == 4) bits |= (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
            store_native(y, job->dtype, bits);
        } else if (job->exact) {
            store_native(y, job->dtype,
                         round_to(dw_float_of(load_bits(from, job->form)), job->dtype, 1));
        } else if (!is_finite(load_bits(from, job->form))) {
            store_native(y, job->dtype, round_to(dw_float_of(DW_F32_NAN), job->dtype, 0));
        } else { /* y = RN(prev') */
            uint32_t kept = load_native(dw_at(job->next, job->prev_dtype, i), job->prev_dtype, 0);
            store_native(y, job->dtype, round_to(dw_float_of(kept), job->dtype, 0));
        }
    }
}
