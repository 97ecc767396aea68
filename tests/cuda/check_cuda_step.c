/* SPDX-License-Identifier: Apache-2.0
 * check_cuda_step.c - compares the kernels of the form step in cuda/, executed on the CPU, with the
 * form on the CPU: payloads, new prev, y, sums and counts.
 *
 * check_cuda_step [--share N]: only one in N of the random draws. Every message runs twice, the
 * second time with blocks and threads from the last to the first. */
#include <math.h>

#include "codecs/plan.h"
#include "emulated.h"
#include "kernels/kernels.h"
#include "message.h"
#include "support/tool.h"

static int share = 1;
static test_random source;
static const char *const names[] = {"", "f32", "f16", "bf16"};

enum { PARTS = 2, WINDOW = 1024 /* of cuda/step.cuh: so many tiles are joined at a time */ };

typedef struct sample {
    dw_dtype x_dtype, prev_dtype, y_dtype;
    bool has_prev, has_state, with_y, is_stochastic;
    int64_t stride;
    size_t offset, dense, tensor; /* elements */
    dw_audit audit;
    dw_plan plan;
    uint64_t key, draws_key;
    unsigned char *x, *prev;
} sample;

typedef struct output {
    uint8_t *payload;
    unsigned char *next, *y;
    uint64_t payload_sum, state_sum, zero, poisoned, clamped;
} output;

static uint32_t below(uint32_t n)
{
    return (uint32_t)(test_next(&source) % n);
}

static unsigned char *allocate(size_t bytes)
{
    unsigned char *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(memory);
    for (size_t i = 0; i < bytes; i++) memory[i] = (unsigned char)test_next(&source);
    return memory;
}

static void *at(const unsigned char *base, dw_dtype dtype, size_t element)
{
    return (void *)(uintptr_t)(base + element * dw_dtype_bytes(dtype));
}

/* ---- Samples --------------------------------------------------------------------------------- */

static void fill_sample(sample *s)
{
    static const float sizes[] = {1, 1, 1e-3f, 1e30f, 1e-38f, 3e4f};
    uint32_t c = s->plan.c;
    s->x = allocate(s->tensor * dw_dtype_bytes(s->x_dtype));
    s->prev = allocate(s->dense * dw_dtype_bytes(s->prev_dtype));
    test_fill(&source, s->prev, s->prev_dtype, s->dense, sizes[below(6)]);
    test_fill(&source, s->x, s->x_dtype, s->tensor, sizes[below(6)]);
    if (below(4) == 0) test_spoil(&source, s->x, s->x_dtype, s->tensor, (int)below(2));
    bool near = below(2), equal = below(8) == 0;
    for (size_t i = 0; i < s->dense; i++) {
        if (!isfinite(test_get(s->prev, s->prev_dtype, i)))
            test_set(s->prev, s->prev_dtype, i, 2.0f);
        size_t place = s->offset + i / c * (size_t)s->stride + i % c;
        float held = s->has_prev ? test_get(s->prev, s->prev_dtype, i) : -0.0f;
        if ((near && i / 32 % 3 == 0) || equal || i / 256 % 7 == 0)
            test_set(s->x, s->x_dtype, place, near && i % 2 ? held * 1.01f : held);
    }
}

/* Values whose step lies so near to where it is rounded otherwise that the order of the sums shows.
 * Without any rounding, three times the root mean square is 1 + 13 * 2^-8 + 2^-24. That is half way
 * between two binary32, and the lower one of them is half way between two bf16. Two values are w
 * and 7 w in either order, whose root mean square is 5 w, so that no two sums are alike. They are
 * neighbours in a row; in a sample that shares a step they are half of it apart, so that its sums
 * of chunks differ as well. */
static void fill_sensitive(sample *s)
{
    float w = 1175279 * 0x1p-24f;
    size_t c = s->plan.c, half = s->plan.t / 2;
    uint8_t *coins = allocate(s->dense);
    s->x = allocate(s->tensor * sizeof(float));
    s->prev = allocate(s->dense * dw_dtype_bytes(s->prev_dtype));
    memset(s->x, 0, s->tensor * sizeof(float));
    memset(s->prev, 0, s->dense * dw_dtype_bytes(s->prev_dtype));
    for (size_t i = 0; i < s->dense; i++) {
        size_t row = i / c, column = i % c;
        bool apart = s->plan.layout.by_sample && row < 2 * half;
        bool is_second = apart ? row >= half : column % 2;
        bool is_alone = !apart && !is_second && column + 1 == c;
        bool swapped = coins[!is_second ? i : apart ? i - half * c : i - 1] % 2;
        float value = is_alone ? 5 * w : swapped == is_second ? w : 7 * w;
        test_set(s->x, DW_F32, s->offset + row * (size_t)s->stride + column,
                 coins[i] & 64 ? value : -value);
    }
    free(coins);
}

static sample make_sample(uint32_t t, uint32_t c, uint32_t group, bool has_state, bool is_sensitive)
{
    static const uint32_t steps[] = {10, 350, 1400, 4000, 100000};
    sample s = {.x_dtype = (dw_dtype)(1 + below(3)),
                .prev_dtype = (dw_dtype)(1 + below(3)),
                .y_dtype = (dw_dtype)(1 + below(3)),
                .has_state = has_state,
                .has_prev = has_state && below(4) != 0,
                .with_y = !has_state || below(2),
                .key = test_next(&source),
                .draws_key = test_next(&source),
                .stride = c + (below(2) ? below(20) : 0),
                .offset = below(2) ? 1 + below(7) : 0,
                .dense = (size_t)t * c};
    uint32_t rounding = below(3);
    if (is_sensitive) s.x_dtype = DW_F32;
    s.is_stochastic = rounding == 1;
    if (!has_state) s.prev_dtype = s.x_dtype; /* kernels without state are named by x's dtype */
    s.tensor = s.offset + (size_t)(t - 1) * (size_t)s.stride + c;
    s.audit.every = has_state ? below(4) : 0;
    s.audit.phase = s.audit.every ? below(s.audit.every) : 0;
    s.plan = (dw_plan){.form = &dw_form_step,
                       .params = {.form = &dw_form_step,
                                  .bits = 8,
                                  .group = group,
                                  .step = is_sensitive ? 3000 : steps[below(5)],
                                  .dithers = rounding == 2},
                       .t = t,
                       .c = c};
    assert_true(dw_form_step.plan(&s.plan));
    if (is_sensitive)
        fill_sensitive(&s);
    else
        fill_sample(&s);
    return s;
}

static sample draw_sample(void)
{
    static const uint32_t widths[] = {1, 31, 32, 33, 64, 100, 256, 1000, 2048, 2500, 4097};
    static const uint32_t groups[] = {
        16, 32, 64, 128, 256, DW_LAYOUT_ROW, DW_LAYOUT_ROW, DW_LAYOUT_SAMPLE, DW_LAYOUT_SAMPLE};
    uint32_t c = widths[below(11)], most = below(4) ? 5000 : 50000;
    uint32_t t = 1 + below(most / c > 60 ? 60 : most / c + 1);
    return make_sample(t, c, groups[below(9)], below(4) != 0, below(4) == 0);
}

static output make_output(const sample *s, const output *like)
{
    size_t next = s->dense * dw_dtype_bytes(s->prev_dtype),
           y = s->tensor * dw_dtype_bytes(s->y_dtype), payload = s->plan.payload_bytes;
    output out = {.payload = allocate(payload), .next = allocate(next), .y = allocate(y)};
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

/* ---- The form on the CPU --------------------------------------------------------------------- */

static dw_encode_job encode_job(const sample *s, const output *out)
{
    return (dw_encode_job){.layout = s->plan.layout,
                           .rule = {0, s->is_stochastic, s->key},
                           .step = s->plan.params.step / 1000.0,
                           .x = at(s->x, s->x_dtype, s->offset),
                           .x_dtype = s->x_dtype,
                           .stride = s->stride,
                           .prev = s->has_prev ? s->prev : NULL,
                           .next = s->has_state ? out->next : NULL,
                           .prev_dtype = s->prev_dtype,
                           .payload = out->payload,
                           .audit = s->audit,
                           .draws_key = s->draws_key};
}

static dw_decode_job decode_job(const sample *s, const output *out)
{
    return (dw_decode_job){.layout = s->plan.layout,
                           .payload = out->payload,
                           .prev = s->has_prev ? s->prev : NULL,
                           .next = s->has_state ? out->next : NULL,
                           .prev_dtype = s->prev_dtype,
                           .y = s->with_y ? at(out->y, s->y_dtype, s->offset) : NULL,
                           .y_dtype = s->y_dtype,
                           .stride = s->stride,
                           .audit = s->audit,
                           .draws_key = s->draws_key};
}

static void take_sums(const sample *s, output *out)
{
    out->payload_sum = dw_kernels_c.digest_bytes(out->payload, 0, s->plan.payload_bytes);
    out->state_sum = 0;
    for (uint64_t i = 0; s->audit.every && i * DW_TILE_ELEMENTS < s->dense; i++) {
        uint64_t first = i * DW_TILE_ELEMENTS, left = s->dense - first;
        if (i % s->audit.every == s->audit.phase)
            out->state_sum +=
                dw_kernels_c.digest(at(out->next, s->prev_dtype, first), s->prev_dtype, first,
                                    left < DW_TILE_ELEMENTS ? left : DW_TILE_ELEMENTS);
    }
}

static void spec_encode(const sample *s, output *out)
{
    dw_encode_job job = encode_job(s, out);
    dw_chunk_result joined = {0}, one;
    job.kernels = &dw_kernels_c;
    job.plan = &s->plan;
    for (uint64_t i = 0; i < s->plan.chunks && s->plan.measures; i++) {
        dw_form_step.measure(&job, i, &one);
        dw_squares_add(&joined.squares, &one.squares);
    }
    if (s->plan.measures) dw_form_step.settle(&job, &joined);
    for (uint64_t i = 0; i < s->plan.chunks; i++) {
        dw_form_step.encode(&job, i, &one);
        dw_sums_add(&joined.sums, &one.sums);
    }
    out->zero = joined.sums.zero;
    out->poisoned = joined.sums.poisoned;
    out->clamped = joined.sums.clamped;
    take_sums(s, out);
}

static void spec_decode(const sample *s, output *out)
{
    dw_decode_job job = decode_job(s, out);
    dw_counters counters = {0};
    job.kernels = &dw_kernels_c;
    job.plan = &s->plan;
    for (uint64_t i = 0; i < s->plan.chunks; i++) {
        dw_chunk_result unused;
        dw_form_step.decode(&job, i, &unused);
        if (job.next && job.y) dw_form_step.emit(&job, i);
    }
    dw_form_step.count(&job, &counters);
    out->zero = counters.zero_groups;
    out->poisoned = counters.poisoned_groups;
    take_sums(s, out);
}

/* ---- The kernels ----------------------------------------------------------------------------- */

static bool has_chosen(const dw_layout *layout)
{
    return layout->by_sample || layout->cut_rows;
}

static dw_cuda_share share_of(const sample *s, bool encodes, uint64_t grid[DW_CUDA_PHASES],
                              dw_cuda_sums *sums, dw_cuda_report *report)
{
    const dw_layout *layout = &s->plan.layout;
    dw_cuda_share made = {.sums = sums, .report = report, .serial = 1 + test_next(&source) / 2};
    uint64_t stretches = (s->dense + DW_TILE_ELEMENTS - 1) / DW_TILE_ELEMENTS;
    made.blocks[DW_CUDA_TILES] = layout->tiles;
    if (encodes && has_chosen(layout)) {
        made.blocks[DW_CUDA_CHOOSE] = layout->tiles;
        made.chosen = (uint32_t *)(void *)allocate(layout->tiles * sizeof(double));
    }
    if (s->audit.every && layout->c % 4 != 0)
        made.blocks[DW_CUDA_AUDIT] = (stretches + s->audit.every - 1) / s->audit.every;
    for (int phase = 0; phase < DW_CUDA_PHASES; phase++) {
        made.first[phase] = grid[phase];
        grid[phase] += made.blocks[phase];
    }
    return made;
}

static void launch(const char *kernel, const void *parts, uint64_t grid)
{
    if (grid && !dw_shim_launch(kernel, parts, PARTS, grid))
        fail_msg("there is no kernel %s", kernel);
}

/* The sums must be zero again, so that a graph can launch the same parts once more. */
static void take_report(const dw_cuda_report *report, const dw_cuda_sums *sums, output *out)
{
    static const dw_cuda_sums nothing;
    out->payload_sum = report->payload;
    out->state_sum = report->state;
    out->zero = report->zero;
    out->poisoned = report->poisoned;
    out->clamped = report->clamped;
    assert_memory_equal(sums, &nothing, sizeof nothing);
}

static void cuda_encode(const sample *s, output *out)
{
    dw_cuda_encode_part parts[PARTS];
    dw_cuda_sums sums[PARTS];
    dw_cuda_report reports[PARTS];
    uint64_t grid[DW_CUDA_PHASES] = {0};
    char kernel[64];
    memset(parts, 0, sizeof parts), memset(sums, 0, sizeof sums);
    for (int i = 0; i < PARTS; i++) {
        parts[i].share = share_of(s, true, grid, &sums[i], &reports[i]);
        parts[i].job = encode_job(s, &out[i]);
    }
    snprintf(kernel, sizeof kernel, "dw_step_encode_%s_%s", names[s->x_dtype],
             names[s->prev_dtype]);
    launch("dw_step_measure", parts, grid[DW_CUDA_CHOOSE]);
    launch(kernel, parts, grid[DW_CUDA_TILES]);
    launch("dw_audit_encode", parts, grid[DW_CUDA_AUDIT]);
    for (int i = 0; i < PARTS; i++) {
        take_report(&reports[i], &sums[i], &out[i]);
        free(parts[i].share.chosen);
    }
}

static void cuda_decode(const sample *s, output *out)
{
    dw_cuda_decode_part parts[PARTS];
    dw_cuda_sums sums[PARTS];
    dw_cuda_report reports[PARTS];
    uint64_t grid[DW_CUDA_PHASES] = {0};
    char kernel[64];
    memset(parts, 0, sizeof parts), memset(sums, 0, sizeof sums);
    for (int i = 0; i < PARTS; i++) {
        parts[i].share = share_of(s, false, grid, &sums[i], &reports[i]);
        parts[i].job = decode_job(s, &out[i]);
    }
    snprintf(kernel, sizeof kernel, "dw_step_decode_%s%s", s->has_state ? "" : "direct_",
             names[s->has_state ? s->prev_dtype : s->y_dtype]);
    launch(kernel, parts, grid[DW_CUDA_TILES]);
    launch("dw_audit_decode", parts, grid[DW_CUDA_AUDIT]);
    for (int i = 0; i < PARTS; i++) take_report(&reports[i], &sums[i], &out[i]);
}

/* ---- Comparisons ----------------------------------------------------------------------------- */

static void same(const char *what, const void *expected, const void *found, size_t n,
                 const sample *s)
{
    for (size_t i = 0; i < n; i++)
        if (((const uint8_t *)expected)[i] != ((const uint8_t *)found)[i])
            fail_msg("%s: byte %zu of %zu: x %d prev %d y %d (%u, %u) group %u dither %d "
                     "stochastic %d state %d",
                     what, i, n, (int)s->x_dtype, (int)s->prev_dtype, (int)s->y_dtype, s->plan.t,
                     s->plan.c, s->plan.params.group, (int)s->plan.params.dithers,
                     (int)s->is_stochastic, (int)s->has_state);
}

typedef void work(const sample *s, output *out);

static void compare(sample *s, work *spec, work *cuda, bool backwards)
{
    output expected = make_output(s, NULL), found[PARTS];
    if (below(2) == 0) spec_encode(s, &expected); /* a payload that an encoder has written */
    for (int i = 0; i < PARTS; i++) found[i] = make_output(s, &expected);
    expected.zero = expected.poisoned = expected.clamped = 0;
    spec(s, &expected);
    dw_shim_turn_round(backwards);
    cuda(s, found);
    for (int i = 0; i < PARTS; i++) {
        same("payload", expected.payload, found[i].payload, s->plan.payload_bytes, s);
        same("next", expected.next, found[i].next, s->dense * dw_dtype_bytes(s->prev_dtype), s);
        same("y", expected.y, found[i].y, s->tensor * dw_dtype_bytes(s->y_dtype), s);
        same("sums and counts", &expected.payload_sum, &found[i].payload_sum,
             sizeof expected - offsetof(output, payload_sum), s);
        free_output(&found[i]);
    }
    free_output(&expected);
    free(s->x);
    free(s->prev);
}

static void check(work *spec, work *cuda, int draws)
{
    source.state = test_seed();
    for (int draw = 0; draw < draws / share; draw++) {
        sample s = draw_sample();
        compare(&s, spec, cuda, draw % 2);
    }
}

static void frames_equal_those_of_the_cpu(void **state)
{
    (void)state;
    check(spec_encode, cuda_encode, 1800);
}

static void tensors_equal_those_of_the_cpu(void **state)
{
    (void)state;
    check(spec_decode, cuda_decode, 1200);
}

/* The sum of squares of a tile of a sensitive sample, whose rows are cut and whose prev is 0. */
static double tile_sum(const sample *s, uint64_t tile)
{
    const dw_layout *layout = &s->plan.layout;
    uint64_t row = tile / layout->row_segments,
             column = tile % layout->row_segments * DW_TILE_ELEMENTS;
    uint64_t left = layout->c - column, n = left < DW_TILE_ELEMENTS ? left : DW_TILE_ELEMENTS;
    double lanes[DW_NORM_LANES] = {0};
    uint32_t largest = 0;
    dw_kernels_c.step_squares(at(s->x, DW_F32, s->offset + row * (size_t)s->stride + column),
                              DW_F32, NULL, DW_F32, n, lanes, &largest);
    return dw_step_sum(lanes);
}

/* The step of such a sample. window: chunks are cut where so many tiles are joined; 0: nowhere. */
static uint16_t step_of(const sample *s, uint64_t window)
{
    const dw_layout *layout = &s->plan.layout;
    uint64_t each = dw_layout_chunk_tiles(layout);
    dw_squares all = {.n = s->dense};
    double chunk = 0;
    for (uint64_t i = 0; i < layout->tiles; i++) {
        chunk += tile_sum(s, i);
        if ((i + 1) % each && i + 1 < layout->tiles && (!window || (i + 1) % window)) continue;
        all.sum += chunk;
        chunk = 0;
    }
    return dw_step_scale(&all, s->plan.params.step / 1000.0);
}

/* A sample whose step would be another one if its chunks were cut into windows. One in a few is. */
static sample make_cut_sample(uint32_t t, uint32_t c)
{
    for (int tries = 0;; tries++) {
        sample s = make_sample(t, c, DW_LAYOUT_SAMPLE, false, true);
        if (step_of(&s, 0) != step_of(&s, WINDOW)) return s;
        if (tries == 99) fail_msg("no sample of (%u, %u) shows the order of its sums", t, c);
        free(s.x);
        free(s.prev);
    }
}

/* More tiles than the last block joins at a time: in chunks that end in such a window, in chunks
 * that go on in the next, and in chunks longer than a window. */
static void large_samples_have_the_step_of_the_cpu(void **state)
{
    static const struct {
        uint32_t t, c;
    } shapes[] = {{64 * 1100 + 1, 1}, {64 * WINDOW, 2}, {343, 4097}, {9, 2048 * 129 + 1}};
    (void)state;
    source.state = test_seed();
    for (uint32_t i = 0; i < 4 && (i < 2 || share <= 6); i++) {
        sample s = i < 2 ? make_sample(shapes[i].t, shapes[i].c, DW_LAYOUT_SAMPLE, i, true)
                         : make_cut_sample(shapes[i].t, shapes[i].c);
        compare(&s, spec_encode, cuda_encode, i % 2);
    }
    for (int i = 0; i < 96 / share; i++) { /* chunks of 24 tiles */
        sample s = make_sample(20, 4097, DW_LAYOUT_SAMPLE, i % 2, true);
        compare(&s, spec_encode, cuda_encode, i % 2);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--share")) share = atoi(argv[2]) > 0 ? atoi(argv[2]) : 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(frames_equal_those_of_the_cpu),
                                       cmocka_unit_test(tensors_equal_those_of_the_cpu),
                                       cmocka_unit_test(large_samples_have_the_step_of_the_cpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
