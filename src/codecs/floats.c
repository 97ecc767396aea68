/* SPDX-License-Identifier: Apache-2.0
 * floats.c - the form of plain floats: converts values between a tensor, prev and the payload
 * (docs/format.md, 3.1). */
#include <string.h>

#include "base/mem.h"
#include "codecs/audit.h"
#include "codecs/emitting.h"
#include "codecs/plan.h"
#include "codecs/tiles.h"
#include "wire/bytes.h"

/* Conversions of one value between dtypes. exact: an IEEE conversion, as entries without state use
 * it; otherwise rounded to nearest and clamped, and everything not finite becomes NaN. */
static uint32_t load_bits(const unsigned char *from, dw_dtype dtype)
{
    uint32_t single = from[0] | (uint32_t)from[1] << 8;
    if (dtype == DW_F32) return single | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
    return dw_bits_of(dtype == DW_F16 ? dw_f16_widen((uint16_t)single)
                                      : dw_bf16_widen((uint16_t)single));
}

static uint32_t round_to(float value, dw_dtype dtype, int exact)
{
    if (!dw_is_finite(value) && !exact)
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

static uint64_t values_of(const dw_plan *plan)
{
    return (uint64_t)plan->t * plan->c;
}

/* Copies rows between tensor and payload where both have the same dtype and byte order. */
static void copy_rows(const dw_plan *plan, unsigned char *to, uint64_t to_stride,
                      const unsigned char *from, uint64_t from_stride)
{
    size_t row = plan->c * dw_dtype_bytes(plan->params.dtype);
    for (uint64_t t = 0; t < plan->t; t++) memcpy(to + t * to_stride, from + t * from_stride, row);
}

/* Sends x and the residual of error feedback together (codecs/residual.h), and makes the new
 * residual. Values that do not become finite are sent as they are, and leave their residual as it
 * was. */
static void write_with_residual(const dw_encode_job *job)
{
    const dw_plan *plan = job->plan;
    dw_dtype form = plan->params.dtype;
    uint64_t size = dw_dtype_bytes(form), n = values_of(plan);
    const float *prev = job->prev;
    float *next = job->next;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t element = i / plan->c * (uint64_t)job->stride + i % plan->c;
        float held = prev ? prev[i] : 0,
              x = dw_float_of(load_native(dw_at(job->x, job->x_dtype, element), job->x_dtype, 0));
        uint32_t bits = round_to(x - held, form, job->is_exact);
        store_bits(job->payload + i * size, form, bits);
        float sent = dw_float_of(load_bits(job->payload + i * size, form));
        next[i] = dw_residual_next(held, sent, x);
    }
}

static void write_payload(const dw_encode_job *job, dw_sums *sums)
{
    const dw_plan *plan = job->plan;
    dw_dtype form = plan->params.dtype;
    uint64_t size = dw_dtype_bytes(form), n = values_of(plan);
    bool same = job->is_exact && form == job->x_dtype;
    memset(job->payload + n * size, 0, (size_t)(plan->payload_bytes - n * size));
    if (job->keeps_residual) {
        write_with_residual(job);
        return;
    }
    if (same && dw_host_is_little_endian()) {
        copy_rows(plan, job->payload, plan->c * size, job->x, (uint64_t)job->stride * size);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t element = i / plan->c * (uint64_t)job->stride + i % plan->c;
        uint32_t bits = load_native(dw_at(job->x, job->x_dtype, element), job->x_dtype, same);
        if (!same) bits = round_to(dw_float_of(bits), form, job->is_exact);
        store_bits(job->payload + i * size, form, bits);
        bool poisoned = !same && !job->is_exact &&
                        !dw_is_finite(dw_float_of(load_bits(job->payload + i * size, form)));
        sums->poisoned += poisoned;
    }
}

/* Writes the new prev: RN of finite values, +0 for all others. */
static void keep(const dw_plan *plan, const uint8_t *payload, void *next)
{
    uint64_t size = dw_dtype_bytes(plan->params.dtype), n = values_of(plan);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits = load_bits(payload + i * size, plan->params.dtype);
        uint32_t kept =
            dw_is_finite(dw_float_of(bits)) ? round_to(dw_float_of(bits), plan->prev, 0) : 0;
        store_native(dw_at(next, plan->prev, i), plan->prev, kept);
    }
}

static uint32_t wire_bits(const unsigned char *from, uint64_t size)
{
    uint32_t bits = from[0] | (uint32_t)from[1] << 8;
    return size == 4 ? bits | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24 : bits;
}

/* The value for y: an exact conversion where there is no state; where there is, RN of the new prev,
 * or NaN where the transmitted value was not finite. */
static uint32_t value_of(const dw_decode_job *job, uint64_t i, bool same)
{
    dw_dtype form = job->plan->params.dtype;
    uint64_t size = dw_dtype_bytes(form);
    const unsigned char *from = job->payload + i * size;
    if (same) return wire_bits(from, size);
    uint32_t bits = load_bits(from, form);
    if (job->is_exact) return round_to(dw_float_of(bits), job->y_dtype, 1);
    if (!dw_is_finite(dw_float_of(bits))) return round_to(dw_float_of(DW_F32_NAN), job->y_dtype, 0);
    uint32_t kept = load_native(dw_at(job->next, job->prev_dtype, i), job->prev_dtype, 0);
    return round_to(dw_float_of(kept), job->y_dtype, 0);
}

/* Adds all values to y as binary32, part of a row at a time. */
static void add_to_y(const dw_decode_job *job)
{
    const dw_plan *plan = job->plan;
    dw_decode_job wide = *job; /* like *job, but with a y of f32 */
    float values[DW_TILE_ELEMENTS];
    wide.y_dtype = DW_F32;
    bool same = job->is_exact && plan->params.dtype == DW_F32;
    for (uint64_t t = 0; t < plan->t; t++)
        for (uint64_t c = 0, now; c < plan->c; c += now) {
            now = plan->c - c < DW_TILE_ELEMENTS ? plan->c - c : DW_TILE_ELEMENTS;
            for (uint64_t k = 0; k < now; k++)
                values[k] = dw_float_of(value_of(&wide, t * plan->c + c + k, same));
            dw_emit_added(job, values, t * (uint64_t)job->stride + c, now);
        }
}

static void write_y(const dw_decode_job *job)
{
    if (job->adds) {
        add_to_y(job);
        return;
    }
    const dw_plan *plan = job->plan;
    uint64_t size = dw_dtype_bytes(plan->params.dtype), n = values_of(plan);
    bool same = job->is_exact && plan->params.dtype == job->y_dtype;
    if (same && dw_host_is_little_endian()) {
        copy_rows(plan, job->y, (uint64_t)job->stride * size, job->payload, plan->c * size);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t element = i / plan->c * (uint64_t)job->stride + i % plan->c;
        store_native(dw_at(job->y, job->y_dtype, element), job->y_dtype, value_of(job, i, same));
    }
}

static void encode(const dw_encode_job *job, uint64_t chunk, dw_chunk_result *result)
{
    (void)chunk; /* always 0: this form has one chunk */
    *result = (dw_chunk_result){0};
    write_payload(job, &result->sums);
    result->payload_sum = job->kernels->digest_bytes(job->payload, 0, job->plan->payload_bytes);
    if (!job->next || job->keeps_residual) return;
    if (job->next != job->x) keep(job->plan, job->payload, job->next);
    result->state_sum =
        dw_state_sum(job->kernels, job->next, job->prev_dtype, values_of(job->plan), job->audit);
}

static void decode(const dw_decode_job *job, uint64_t chunk, dw_chunk_result *result)
{
    (void)chunk;
    if (!job->next) {
        write_y(job);
        return;
    }
    keep(job->plan, job->payload, job->next);
    result->state_sum =
        dw_state_sum(job->kernels, job->next, job->prev_dtype, values_of(job->plan), job->audit);
}

static void emit(const dw_decode_job *job, uint64_t chunk)
{
    (void)chunk;
    write_y(job);
}

static dw_status plan(dw_plan *made, dw_why *why)
{
    uint64_t elements, bytes;
    if (!dw_size_multiply(made->t, made->c, &elements) ||
        !dw_size_multiply(elements, dw_dtype_bytes(made->params.dtype), &bytes) ||
        bytes > PTRDIFF_MAX)
        return dw_plan_too_large(why);
    made->payload_bytes = dw_round_up(bytes, 16);
    made->chunks = 1;
    /* On a device the work is divided into the stretches of the state digest, since there are no
     * tiles. */
    made->layout = (dw_layout){.t = made->t,
                               .c = made->c,
                               .tiles = (elements + DW_TILE_ELEMENTS - 1) / DW_TILE_ELEMENTS,
                               .payload_bytes = made->payload_bytes};
    return DW_OK;
}

/* Values that are too large for the dtype, and so become infinite, leave their residuals as they
 * are. */
static dw_contraction contracts(const dw_form_params *params, const dw_config *config)
{
    (void)config;
    double part = params->dtype == DW_F32 ? 0 : params->dtype == DW_F16 ? 0x1p-11 : 0x1p-8;
    return dw_contraction_by(DW_CONTRACTS_ALWAYS, part);
}

static const dw_device_kernels kernels_on_a_device = {.encode = "dw_floats_encode",
                                                      .decode = "dw_floats_decode",
                                                      .decode_direct = "dw_floats_decode",
                                                      .blocks_are_stretches = true};

const dw_form dw_form_floats = {
    .wire = DW_FORM_FLOATS,
    .name = "floats",
    .plan = plan,
    .encode = encode,
    .decode = decode,
    .emit = emit,
    .contracts = contracts,
    .device = &kernels_on_a_device,
};
