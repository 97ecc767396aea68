/* SPDX-License-Identifier: Apache-2.0
 * sample.c - random samples, and the kernels of cuda/ executed on the CPU. */
#include "sample.h"

#include <math.h>

#include "arithmetic/half.h"
#include "codecs/elements.h"
#include "emulated.h"
#include "kernels/kernels.h"
#include "message.h"

static const char *const names[] = {"", "f32", "f16", "bf16"};

test_random sample_source;

uint32_t sample_below(uint32_t n)
{
    return (uint32_t)(test_next(&sample_source) % n);
}

unsigned char *sample_allocate(size_t bytes)
{
    unsigned char *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(memory);
    for (size_t i = 0; i < bytes; i++) memory[i] = (unsigned char)test_next(&sample_source);
    return memory;
}

void *sample_at(const unsigned char *base, dw_dtype dtype, size_t element)
{
    return (void *)(uintptr_t)(base + element * dw_dtype_bytes(dtype));
}

sample sample_draw(uint32_t t, uint32_t c, bool has_state)
{
    sample s = {.x_dtype = (dw_dtype)(1 + sample_below(3)),
                .prev_dtype = (dw_dtype)(1 + sample_below(3)),
                .y_dtype = (dw_dtype)(1 + sample_below(3)),
                .has_state = has_state,
                .has_prev = has_state && sample_below(4) != 0,
                .with_y = !has_state || sample_below(2),
                .dither_key = test_next(&sample_source),
                .draws_key = test_next(&sample_source),
                .stride = c + (sample_below(2) ? sample_below(20) : 0),
                .offset = sample_below(2) ? 1 + sample_below(7) : 0,
                .dense = (size_t)t * c};
    if (!has_state) s.prev_dtype = s.x_dtype; /* kernels without state are named by x's dtype */
    s.tensor = s.offset + (size_t)(t - 1) * (size_t)s.stride + c;
    s.audit.every = has_state ? sample_below(4) : 0;
    s.audit.phase = s.audit.every ? sample_below(s.audit.every) : 0;
    return s;
}

void sample_fill(sample *s, bool spoils)
{
    static const float sizes[] = {1, 1, 1e-3f, 1e30f, 1e-38f, 3e4f};
    s->x = sample_allocate(s->tensor * dw_dtype_bytes(s->x_dtype));
    s->prev = sample_allocate(s->dense * dw_dtype_bytes(s->prev_dtype));
    test_fill(&sample_source, s->prev, s->prev_dtype, s->dense, sizes[sample_below(6)]);
    test_fill(&sample_source, s->x, s->x_dtype, s->tensor, sizes[sample_below(6)]);
    if (spoils) test_spoil(&sample_source, s->x, s->x_dtype, s->tensor, (int)sample_below(2));
    for (size_t i = 0; i < s->dense; i++)
        if (!isfinite(test_get(s->prev, s->prev_dtype, i)))
            test_set(s->prev, s->prev_dtype, i, 2.0f);
}

/* Multiplies an element of x, which stays finite if it was. */
static void multiply(sample *s, size_t element, float factor)
{
    size_t c = s->plan.c, at = s->offset + element / c * (size_t)s->stride + element % c;
    float value = test_get(s->x, s->x_dtype, at), much = value * factor;
    if (much == 0) much = factor; /* among zeros */
    test_set(s->x, s->x_dtype, at, much);
    if (isfinite(value) && !isfinite(test_get(s->x, s->x_dtype, at)))
        test_set(s->x, s->x_dtype, at, value);
}

void sample_add_at_the_limit(sample *s)
{
    uint32_t c = s->plan.c, step = s->plan.params.step;
    double sum = 0, factor = (step > 70 ? step : 70) / 1000.0;
    for (size_t i = 0; i < s->dense; i++) {
        size_t at = s->offset + i / c * (size_t)s->stride + i % c;
        double delta = test_get(s->x, s->x_dtype, at);
        if (s->has_prev) delta -= test_get(s->prev, s->prev_dtype, i);
        sum += delta * delta;
    }
    double size = factor * sqrt(sum / (double)s->dense);
    for (size_t i = 0; i < s->dense && size < 1e30; i += DW_TILE_ELEMENTS) {
        uint32_t left = (uint32_t)(s->dense - i);
        size_t place = i + sample_below(left < DW_TILE_ELEMENTS ? left : DW_TILE_ELEMENTS),
               at = s->offset + place / c * (size_t)s->stride + place % c;
        double base = s->has_prev ? test_get(s->prev, s->prev_dtype, place) : 0,
               steps = 126.5 + sample_below(1200) / 1000.0;
        test_set(s->x, s->x_dtype, at,
                 (float)(base + steps * dw_bf16_widen(dw_bf16_finite((float)size))));
    }
}

void sample_add_outliers(sample *s)
{
    static const float sizes[] = {10, 100, 421, -3000, 1e5f};
    uint32_t kind = sample_below(4), dense = (uint32_t)s->dense, c = s->plan.c;
    if (kind == 0) /* single ones */
        for (uint32_t i = 1 + dense / 500; i > 0; i--)
            multiply(s, sample_below(dense), sizes[sample_below(5)]);
    if (kind == 1) /* rows */
        for (uint32_t i = 1 + sample_below(3); i > 0; i--) {
            size_t row = sample_below(s->plan.t);
            for (uint32_t at = 0; at < c; at++) multiply(s, row * c + at, 100);
        }
    if (kind == 2) { /* near each other, about as many as a tile may leave out */
        uint32_t first = sample_below(dense);
        for (uint32_t i = 25 + sample_below(12); i > 0; i--)
            multiply(s, (first + sample_below(1500)) % dense, sizes[sample_below(5)]);
    }
    if (kind == 3) sample_add_at_the_limit(s);
}

void sample_make_rooms_ordinary(const sample *s, uint8_t *payload)
{
    for (uint64_t i = 0; i < s->plan.layout.tiles; i++) {
        dw_tile tile = dw_layout_tile(&s->plan.layout, i);
        uint32_t count = sample_below(12);
        memcpy(payload + tile.escapes, &count, sizeof count);
        for (uint32_t k = 0; k < dw_escapes_most(tile.elements); k++) { /* a few lie outside */
            uint16_t place = (uint16_t)sample_below(tile.elements + 16);
            memcpy(payload + tile.escapes + 4 + 2 * (size_t)k, &place, sizeof place);
        }
    }
}

void sample_free(sample *s)
{
    free(s->x);
    free(s->prev);
}

/* Bytes behind each output, which nobody may write. */
enum { GUARD = 64 };

output output_make(const sample *s, const output *like)
{
    size_t next = s->dense * dw_dtype_bytes(s->prev_dtype) + GUARD,
           y = s->tensor * dw_dtype_bytes(s->y_dtype) + GUARD,
           payload = s->plan.payload_bytes + GUARD;
    output out = {.payload = sample_allocate(payload),
                  .next = sample_allocate(next),
                  .y = sample_allocate(y)};
    if (s->is_sync) memcpy(out.next, s->x, next - GUARD);
    if (!like) return out;
    memcpy(out.payload, like->payload, payload);
    memcpy(out.next, like->next, next);
    memcpy(out.y, like->y, y);
    return out;
}

static void free_output(output *out)
{
    free(out->payload);
    free(out->next);
    free(out->y);
}

void output_digest(const sample *s, output *out)
{
    out->payload_sum = dw_kernels_c.digest_bytes(out->payload, 0, s->plan.payload_bytes);
    out->state_sum = 0;
    for (uint64_t i = 0; s->audit.every && i * DW_TILE_ELEMENTS < s->dense; i++) {
        uint64_t first = i * DW_TILE_ELEMENTS, left = s->dense - first;
        if (i % s->audit.every == s->audit.phase)
            out->state_sum +=
                dw_kernels_c.digest(sample_at(out->next, s->prev_dtype, first), s->prev_dtype,
                                    first, left < DW_TILE_ELEMENTS ? left : DW_TILE_ELEMENTS);
    }
}

/* ---- The kernels ----------------------------------------------------------------------------- */

static bool has_floats(const sample *s)
{
    return s->plan.form == &dw_form_floats;
}

dw_encode_job sample_encode_job(const sample *s, const output *out)
{
    return (dw_encode_job){
        .layout = s->plan.layout,
        .rule = {.scale = s->scale, .is_stochastic = s->is_stochastic, .dither_key = s->dither_key},
        .step = s->plan.params.step / 1000.0,
        .error = s->plan.params.error,
        .x = s->is_sync ? out->next : sample_at(s->x, s->x_dtype, s->offset),
        .x_dtype = s->x_dtype,
        .stride = s->stride,
        .prev = s->has_prev ? s->prev : NULL,
        .next = s->has_state ? out->next : NULL,
        .prev_dtype = s->prev_dtype,
        .payload = out->payload,
        .audit = s->audit,
        .draws_key = s->draws_key,
        .channels = s->channels,
        .keeps_residual = s->keeps_residual,
        .is_exact = has_floats(s) && (s->is_sync || !s->has_state),
        .wire_dtype = s->plan.params.dtype};
}

dw_decode_job sample_decode_job(const sample *s, const output *out)
{
    return (dw_decode_job){.layout = s->plan.layout,
                           .payload = out->payload,
                           .prev = s->has_prev ? s->prev : NULL,
                           .next = s->has_state ? out->next : NULL,
                           .prev_dtype = s->prev_dtype,
                           .y = s->with_y ? sample_at(out->y, s->y_dtype, s->offset) : NULL,
                           .y_dtype = s->y_dtype,
                           .stride = s->stride,
                           .audit = s->audit,
                           .draws_key = s->draws_key,
                           .channels = s->channels,
                           .is_exact = has_floats(s) && !s->has_state,
                           .wire_dtype = s->plan.params.dtype};
}

/* A message in host memory, apart from its jobs. */
typedef struct message {
    dw_cuda_sums sums[SAMPLE_PARTS];
    dw_cuda_report reports[SAMPLE_PARTS];
    uint64_t grid[DW_CUDA_PHASES]; /* the blocks of all parts */
} message;

/* Returns the share of the next part of a message. Phase CHOOSE is needed where several tiles share
 * a scale or a choice; the caller frees `chosen`. In that phase the form quantized has a block for
 * every row, or for 32 channels. */
static dw_cuda_share make_share(const sample *s, bool encodes, message *m, int part)
{
    const dw_layout *layout = &s->plan.layout;
    dw_cuda_share made = {.sums = &m->sums[part],
                          .report = &m->reports[part],
                          .serial = 1 + test_next(&sample_source) / 2};
    uint64_t stretches = (s->dense + DW_TILE_ELEMENTS - 1) / DW_TILE_ELEMENTS;
    /* They share the tiles. */
    uint64_t blocks = 1 + test_next(&sample_source) % layout->tiles;
    made.blocks[DW_CUDA_TILES] = blocks;
    bool is_quantized = s->plan.form == &dw_form_quantized;
    bool shares_scales =
        layout->by_sample || layout->by_channel || layout->cut_rows || s->plan.params.error > 0;
    if (encodes && shares_scales && !has_floats(s))
        made.blocks[DW_CUDA_CHOOSE] = !is_quantized        ? blocks
                                      : layout->by_channel ? ((uint64_t)layout->c + 31) / 32
                                                           : layout->t;
    if (encodes && (shares_scales || (layout->chooses && layout->tile_segments % 8))) {
        uint64_t most = layout->pieces > 6 * layout->tiles ? layout->pieces : 6 * layout->tiles;
        made.chosen = (uint32_t *)(void *)sample_allocate(most * sizeof *made.chosen);
    }
    if (s->audit.every && layout->c % 4 != 0 && !has_floats(s))
        made.blocks[DW_CUDA_AUDIT] = (stretches + s->audit.every - 1) / s->audit.every;
    for (int phase = 0; phase < DW_CUDA_PHASES; phase++) {
        made.first[phase] = m->grid[phase];
        m->grid[phase] += made.blocks[phase];
    }
    return made;
}

static void launch(const char *kernel, const void *parts, uint64_t grid)
{
    if (grid && !dw_shim_launch(kernel, parts, SAMPLE_PARTS, grid))
        fail_msg("there is no kernel %s", kernel);
}

/* Takes over what the kernels have reported of a part. The sums must be zero again, so that a graph
 * can launch the same parts once more. */
static void take_report(const message *m, int part, uint64_t serial, output *out)
{
    static const dw_cuda_sums nothing;
    const dw_cuda_report *report = &m->reports[part];
    assert_int_equal(report->serial, serial);
    out->payload_sum = report->payload;
    out->state_sum = report->state;
    out->direct = report->direct;
    out->zero = report->zero;
    out->poisoned = report->poisoned;
    out->escaped = report->escaped;
    out->overflowed = report->overflowed;
    assert_memory_equal(&m->sums[part], &nothing, sizeof nothing);
}

static void encode(const sample *s, const char *family, output *out)
{
    dw_cuda_encode_part parts[SAMPLE_PARTS];
    message m = {0};
    char kernel[64], choose[64];
    memset(parts, 0, sizeof parts);
    for (int i = 0; i < SAMPLE_PARTS; i++) {
        parts[i].share = make_share(s, true, &m, i);
        parts[i].job = sample_encode_job(s, &out[i]);
    }
    const dw_layout *layout = &s->plan.layout;
    bool searches = s->scale == DW_SCALE_MSE && !m.grid[DW_CUDA_CHOOSE];
    if (layout->rotates || layout->weighs)
        snprintf(kernel, sizeof kernel, "%s_encode%s_rotated", family, searches ? "_mse" : "");
    else if (has_floats(s) || layout->by_channel || searches)
        snprintf(kernel, sizeof kernel, "%s_encode%s", family,
                 layout->by_channel ? "_columns"
                 : searches         ? "_mse"
                                    : "");
    else
        snprintf(kernel, sizeof kernel, "%s_encode_%s_%s", family, names[s->x_dtype],
                 names[s->prev_dtype]);
    snprintf(choose, sizeof choose, "%s%s",
             s->plan.form == &dw_form_quantized ? "dw_choose_scales" : "dw_step_measure",
             layout->rotates || layout->weighs ? "_rotated" : "");
    launch(choose, parts, m.grid[DW_CUDA_CHOOSE]);
    launch(kernel, parts, m.grid[DW_CUDA_TILES]);
    launch("dw_audit_encode", parts, m.grid[DW_CUDA_AUDIT]);
    for (int i = 0; i < SAMPLE_PARTS; i++) {
        take_report(&m, i, parts[i].share.serial, &out[i]);
        free(parts[i].share.chosen);
    }
}

static void decode(const sample *s, const char *family, output *out)
{
    dw_cuda_decode_part parts[SAMPLE_PARTS];
    message m = {0};
    char kernel[64];
    memset(parts, 0, sizeof parts);
    for (int i = 0; i < SAMPLE_PARTS; i++) {
        parts[i].share = make_share(s, false, &m, i);
        parts[i].job = sample_decode_job(s, &out[i]);
    }
    const dw_layout *layout = &s->plan.layout;
    if (has_floats(s))
        snprintf(kernel, sizeof kernel, "%s_decode", family);
    else
        snprintf(kernel, sizeof kernel, "%s_decode_%s%s", family, s->has_state ? "" : "direct_",
                 layout->rotates || layout->weighs ? "rotated"
                 : layout->by_channel              ? "columns"
                                      : names[s->has_state ? s->prev_dtype : s->y_dtype]);
    launch(kernel, parts, m.grid[DW_CUDA_TILES]);
    launch("dw_audit_decode", parts, m.grid[DW_CUDA_AUDIT]);
    for (int i = 0; i < SAMPLE_PARTS; i++) take_report(&m, i, parts[i].share.serial, &out[i]);
}

/* ---- The forms on the CPU -------------------------------------------------------------------- */

void sample_spec_encode(const sample *s, output *out)
{
    const dw_form *form = s->plan.form;
    dw_encode_job job = sample_encode_job(s, out);
    dw_chunk_result joined = {0}, one;
    job.kernels = &dw_kernels_c;
    job.plan = &s->plan;
    for (uint64_t i = 0; i < s->plan.chunks && s->plan.measures; i++) {
        form->measure(&job, i, &one);
        dw_squares_add(&joined.squares, &one.squares);
    }
    if (s->plan.measures) form->choose_scale(&job, &joined);
    for (uint64_t i = 0; i < s->plan.chunks; i++) {
        form->encode(&job, i, &one);
        dw_sums_add(&joined.sums, &one.sums);
    }
    out->direct = joined.sums.direct;
    out->zero = joined.sums.zero;
    out->poisoned = joined.sums.poisoned;
    out->escaped = joined.sums.escaped;
    out->overflowed = dw_elements_overflowed(&job, 0, 1);
    output_digest(s, out);
}

void sample_spec_decode(const sample *s, output *out)
{
    const dw_form *form = s->plan.form;
    dw_decode_job job = sample_decode_job(s, out);
    dw_counters counters = {0};
    job.kernels = &dw_kernels_c;
    job.plan = &s->plan;
    for (uint64_t i = 0; i < s->plan.chunks; i++) {
        dw_chunk_result unused;
        form->decode(&job, i, &unused);
        if (job.next && job.y) form->write_output(&job, i);
    }
    if (form->count) form->count(&job, &counters);
    out->direct = counters.direct_groups;
    out->zero = counters.zero_groups;
    out->poisoned = counters.poisoned_groups;
    output_digest(s, out);
}

/* ---- Comparisons ----------------------------------------------------------------------------- */

/* Fails the test at the first byte that differs, with a description of the sample. */
static void same(const char *what, const void *expected, const void *found, size_t n,
                 const sample *s)
{
    const dw_layout *layout = &s->plan.layout;
    for (size_t i = 0; i < n; i++)
        if (((const uint8_t *)expected)[i] != ((const uint8_t *)found)[i])
            fail_msg("%s: byte %zu of %zu: x %d prev %d y %d (%u, %u) group %u element %u choice "
                     "%d dither %d stochastic %d state %d bits %u scale %d rotates %u",
                     what, i, n, (int)s->x_dtype, (int)s->prev_dtype, (int)s->y_dtype, layout->t,
                     layout->c, s->plan.params.group, layout->element, (int)layout->chooses,
                     (int)layout->dithers, (int)s->is_stochastic, (int)s->has_state, layout->bits,
                     (int)s->scale, layout->rotates);
}

static void compare(const sample *s, const output *expected, const output *found)
{
    same("payload", expected->payload, found->payload, s->plan.payload_bytes + GUARD, s);
    same("next", expected->next, found->next, s->dense * dw_dtype_bytes(s->prev_dtype) + GUARD, s);
    same("y", expected->y, found->y, s->tensor * dw_dtype_bytes(s->y_dtype) + GUARD, s);
    same("sums and counts", &expected->payload_sum, &found->payload_sum,
         sizeof *expected - offsetof(output, payload_sum), s);
}

/* Runs specification and kernels, and compares. cuda: encode or decode. */
static void run(const sample *s, const char *family, output *expected, sample_work *spec,
                void (*cuda)(const sample *, const char *, output *), bool backwards)
{
    output found[SAMPLE_PARTS];
    for (int i = 0; i < SAMPLE_PARTS; i++) found[i] = output_make(s, expected);
    expected->direct = expected->zero = expected->poisoned = expected->escaped =
        expected->overflowed = 0;
    spec(s, expected);
    dw_shim_turn_round(backwards);
    cuda(s, family, found);
    for (int i = 0; i < SAMPLE_PARTS; i++) {
        compare(s, expected, &found[i]);
        free_output(&found[i]);
    }
    free_output(expected);
}

void sample_compare_encode(const sample *s, const char *family, output *expected, sample_work *spec,
                           bool backwards)
{
    run(s, family, expected, spec, encode, backwards);
}

void sample_compare_decode(const sample *s, const char *family, output *expected, sample_work *spec,
                           bool backwards)
{
    run(s, family, expected, spec, decode, backwards);
}
