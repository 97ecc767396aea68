/* SPDX-License-Identifier: Apache-2.0
 * floats.c - the form of plain floats: converts values between a tensor, prev and the payload
 * (docs/format.md, 3.1). */
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "codecs/audit.h"
#include "codecs/output.h"
#include "codecs/plan.h"
#include "codecs/tiles.h"

/* ---- Stretches of a sample ------------------------------------------------------------------- */

/* Consecutive values of one row, or of several without gaps: few enough to stay in the first-level
 * cache between the steps. first: their place in the payload and in prev; place: in the tensor. */
typedef struct stretch {
    uint64_t first, place, n;
} stretch;

static uint64_t values_of(const dw_plan *plan)
{
    return (uint64_t)plan->t * plan->c;
}

/* Advances to the next stretch; begin with {0, 0, 0}. false: there is none. stride: that of the
 * tensor. */
static bool next_stretch(stretch *p, const dw_plan *plan, int64_t stride)
{
    uint64_t all = values_of(plan), c = plan->c;
    p->first += p->n;
    if (p->first == all) return false;
    bool is_dense = stride == (int64_t)c;
    p->place = is_dense ? p->first : p->first / c * (uint64_t)stride + p->first % c;
    p->n = is_dense ? all - p->first : c - p->first % c;
    if (p->n > DW_TILE_ELEMENTS) p->n = DW_TILE_ELEMENTS;
    return true;
}

/* Values of any dtype, in the byte order of the processor. */
typedef union values {
    float wide[DW_TILE_ELEMENTS];
    uint16_t half[DW_TILE_ELEMENTS];
} values;

/* Reads and writes the bits of value number i. */
static uint32_t bits_at(const void *from, dw_dtype dtype, uint64_t i)
{
    uint32_t bits;
    uint16_t half;
    if (dtype == DW_F32) {
        memcpy(&bits, (const char *)from + 4 * i, sizeof bits);
        return bits;
    }
    memcpy(&half, (const char *)from + 2 * i, sizeof half);
    return half;
}

static void store(void *to, dw_dtype dtype, uint64_t i, uint32_t bits)
{
    uint16_t half = (uint16_t)bits;
    if (dtype == DW_F32)
        memcpy((char *)to + 4 * i, &bits, sizeof bits);
    else
        memcpy((char *)to + 2 * i, &half, sizeof half);
}

/* Copies n values to or from the payload, where they are little-endian and not aligned. */
static void put_wire(const void *from, dw_dtype dtype, uint64_t n, uint8_t *payload)
{
    size_t size = dw_dtype_bytes(dtype);
    if (dw_host_is_little_endian())
        memcpy(payload, from, n * size);
    else
        for (uint64_t i = 0; i < n; i++)
            dw_put(payload + i * size, bits_at(from, dtype, i), (int)size);
}

static void get_wire(const uint8_t *payload, dw_dtype dtype, uint64_t n, void *to)
{
    size_t size = dw_dtype_bytes(dtype);
    if (dw_host_is_little_endian()) {
        memcpy(to, payload, n * size);
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        store(to, dtype, i, (uint32_t)dw_get(payload + i * size, (int)size));
}

/* ---- Conversions ----------------------------------------------------------------------------- */

static float value_at(const void *from, dw_dtype dtype, uint64_t i)
{
    uint32_t bits = bits_at(from, dtype, i);
    if (dtype == DW_F32) return dw_float_of(bits);
    return dtype == DW_F16 ? dw_f16_widen((uint16_t)bits) : dw_bf16_widen((uint16_t)bits);
}

/* exact: an IEEE conversion, as entries without state use it; otherwise rounded to nearest and
 * clamped, and everything not finite becomes NaN. */
static uint32_t round_to(float value, dw_dtype dtype, bool exact)
{
    if (!dw_is_finite(value) && !exact)
        return dtype == DW_F32 ? DW_F32_NAN : dtype == DW_F16 ? DW_F16_NAN : DW_BF16_NAN;
    if (dtype == DW_F32) return dw_bits_of(value);
    if (dtype == DW_F16) return exact ? dw_f16_round(value) : dw_f16_finite(value);
    return exact ? dw_bf16_round(value) : dw_bf16_finite(value);
}

/* Whether all magnitudes are smaller than a limit, given as the bits of the dtype: without the
 * sign, bits are in the order of the numbers, and NaN is above infinity. If limit - 1 - magnitude
 * is negative, its highest bit is set; all differences are combined by OR, which compilers turn
 * into vector instructions. */
static bool are_below(uint32_t limit, const void *from, dw_dtype dtype, uint64_t n)
{
    uint32_t found = 0;
    uint16_t found_half = 0;
    for (uint64_t i = 0; dtype == DW_F32 && i < n; i++)
        found |= limit - 1 - (bits_at(from, DW_F32, i) & 0x7fffffffu);
    for (uint64_t i = 0; dtype != DW_F32 && i < n; i++)
        found_half |= (uint16_t)(limit - 1 - (bits_at(from, DW_F16, i) & 0x7fffu));
    return !(found >> 31) && !(found_half >> 15);
}

static bool are_finite(const void *from, dw_dtype dtype, uint64_t n)
{
    static const uint32_t infinity[] = {DW_F32_INFINITY, 0x7c00, 0x7f80};
    return are_below(infinity[dtype - DW_F32], from, dtype, n);
}

/* too_large[from][to]: the smallest magnitude, as bits of `from`, that is infinite or becomes so by
 * an exact conversion to `to`. */
static const uint32_t too_large[3][3] = {
    {DW_F32_INFINITY, 0x477ff000, 0x7f7f8000}, {0x7c00, 0x7c00, 0x7c00}, {0x7f80, 0x4780, 0x7f80}};

/* Converts n values. If all of them become finite, then exact and clamped conversion do the same,
 * and a kernel does it; otherwise they are converted one by one. */
static void convert(const dw_kernels *kernels, const void *from, dw_dtype from_dtype, uint64_t n,
                    void *to, dw_dtype to_dtype, bool exact)
{
    uint32_t limit = too_large[from_dtype - DW_F32][to_dtype - DW_F32];
    bool same = exact && from_dtype == to_dtype; /* NaN keeps its bits, too */
    if (same || are_below(limit, from, from_dtype, n)) {
        kernels->convert(from, from_dtype, to, to_dtype, n);
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        store(to, to_dtype, i, round_to(value_at(from, from_dtype, i), to_dtype, exact));
}

/* ---- Encode ---------------------------------------------------------------------------------- */

/* What is sent of a stretch: x and the residual of error feedback together (codecs/residual.h).
 * Makes the new residual. */
static void make_with_residual(const dw_encode_job *job, const stretch *p, values *wire,
                               dw_sums *sums)
{
    dw_dtype form = job->plan->params.dtype;
    static const float nothing[DW_TILE_ELEMENTS];
    const float *prev = job->prev ? (const float *)job->prev + p->first : nothing;
    float *next = (float *)job->next + p->first;
    values x, coded, sent;
    convert(job->kernels, dw_at(job->x, job->x_dtype, p->place), job->x_dtype, p->n, &x, DW_F32,
            true);
    for (uint64_t i = 0; i < p->n; i++) coded.wide[i] = x.wide[i] - prev[i];
    convert(job->kernels, &coded, DW_F32, p->n, wire, form, job->is_exact);
    convert(job->kernels, wire, form, p->n, &sent, DW_F32, true);
    if (!are_finite(&sent, DW_F32, p->n)) {
        for (uint64_t i = 0; i < p->n; i++) {
            next[i] = dw_residual_next(prev[i], sent.wide[i], x.wide[i]);
            sums->overflowed += dw_residual_overflows(sent.wide[i], x.wide[i], form == DW_F16);
        }
        return;
    }
    for (uint64_t i = 0; i < p->n; i++) next[i] = prev[i] + sent.wide[i];
    job->kernels->subtract(&x, DW_F32, next, p->n);
}

static void write_payload(const dw_encode_job *job, dw_sums *sums)
{
    const dw_plan *plan = job->plan;
    dw_dtype form = plan->params.dtype;
    uint64_t size = dw_dtype_bytes(form), n = values_of(plan);
    memset(job->payload + n * size, 0, (size_t)(plan->payload_bytes - n * size));
    for (stretch p = {0, 0, 0}; next_stretch(&p, plan, job->stride);) {
        const void *x = dw_at(job->x, job->x_dtype, p.place);
        values wire;
        if (job->keeps_residual) {
            make_with_residual(job, &p, &wire, sums);
        } else if (job->is_exact && form == job->x_dtype) {
            put_wire(x, form, p.n, job->payload + p.first * size);
            continue;
        } else {
            convert(job->kernels, x, job->x_dtype, p.n, &wire, form, job->is_exact);
        }
        put_wire(&wire, form, p.n, job->payload + p.first * size);
        bool counts = !job->is_exact && !job->keeps_residual && !are_finite(&wire, form, p.n);
        for (uint64_t i = 0; i < p.n && counts; i++)
            sums->poisoned += !dw_is_finite(value_at(&wire, form, i));
    }
}

/* Writes the new prev: RN of finite values, +0 for all others. */
static void keep(const dw_plan *plan, const dw_kernels *kernels, const uint8_t *payload, void *next)
{
    dw_dtype form = plan->params.dtype;
    for (stretch p = {0, 0, 0}; next_stretch(&p, plan, (int64_t)plan->c);) {
        values wire;
        void *to = dw_at(next, plan->prev, p.first);
        get_wire(payload + p.first * dw_dtype_bytes(form), form, p.n, &wire);
        if (are_finite(&wire, form, p.n)) {
            kernels->convert(&wire, form, to, plan->prev, p.n);
            continue;
        }
        for (uint64_t i = 0; i < p.n; i++) {
            float value = value_at(&wire, form, i);
            store(to, plan->prev, i, dw_is_finite(value) ? round_to(value, plan->prev, false) : 0);
        }
    }
}

/* ---- Decode ---------------------------------------------------------------------------------- */

/* The values of a stretch for y: an exact conversion where there is no state; where there is, RN of
 * the new prev, or NaN where the transmitted value was not finite. */
static void make_y(const dw_decode_job *job, const stretch *p, void *to, dw_dtype dtype)
{
    dw_dtype form = job->plan->params.dtype;
    values wire;
    get_wire(job->payload + p->first * dw_dtype_bytes(form), form, p->n, &wire);
    if (job->is_exact) {
        convert(job->kernels, &wire, form, p->n, to, dtype, true);
        return;
    }
    job->kernels->convert(dw_at(job->next, job->prev_dtype, p->first), job->prev_dtype, to, dtype,
                          p->n);
    if (are_finite(&wire, form, p->n)) return;
    for (uint64_t i = 0; i < p->n; i++)
        if (!dw_is_finite(value_at(&wire, form, i)))
            store(to, dtype, i, round_to(dw_float_of(DW_F32_NAN), dtype, false));
}

static void write_y(const dw_decode_job *job)
{
    const dw_plan *plan = job->plan;
    dw_dtype form = plan->params.dtype;
    bool copies = job->is_exact && !job->adds && form == job->y_dtype;
    for (stretch p = {0, 0, 0}; next_stretch(&p, plan, job->stride);) {
        values wide;
        void *y = dw_at(job->y, job->y_dtype, p.place);
        if (copies) {
            get_wire(job->payload + p.first * dw_dtype_bytes(form), form, p.n, y);
        } else if (!job->adds) {
            make_y(job, &p, y, job->y_dtype);
        } else {
            make_y(job, &p, &wide, DW_F32);
            dw_output_add(job, wide.wide, p.place, p.n);
        }
    }
}

static void encode(const dw_encode_job *job, uint64_t chunk, dw_chunk_result *result)
{
    (void)chunk; /* always 0: this form has one chunk */
    *result = (dw_chunk_result){0};
    write_payload(job, &result->sums);
    result->payload_sum = job->kernels->digest_bytes(job->payload, 0, job->plan->payload_bytes);
    if (!job->next || job->keeps_residual) return;
    if (job->next != job->x) keep(job->plan, job->kernels, job->payload, job->next);
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
    keep(job->plan, job->kernels, job->payload, job->next);
    result->state_sum =
        dw_state_sum(job->kernels, job->next, job->prev_dtype, values_of(job->plan), job->audit);
}

static void write_output(const dw_decode_job *job, uint64_t chunk)
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
        return dw_plan_too_large(made, 0, why);
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

/* Values that are too large for the dtype become infinite, and leave no residual. */
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
    .write_output = write_output,
    .contracts = contracts,
    .device = &kernels_on_a_device,
};
