/* SPDX-License-Identifier: Apache-2.0
 * check_cuda.c - compares the kernels of cuda/, executed on the CPU, with the C engine: payloads,
 * new prev, y and sums, byte by byte.
 *
 * check_cuda [--share N]: only one in N of the random draws. Every message runs twice, the second
 * time with blocks and threads from the last to the first. Buffers have exactly the bytes that may
 * be accessed, so that a sanitizer detects any access outside. */
#include <math.h>

#include "codecs/audit.h"
#include "codecs/form.h"
#include "emulated.h"
#include "engine/engine.h"
#include "kernels/kernels.h"
#include "message.h"
#include "support/tool.h"

enum { MOST_PARTS = 3 };
static int share = 1;

/* ---- Samples --------------------------------------------------------------------------------- */

/* What the samples of a message have in common, and one sample's memory. */
typedef struct shape {
    dw_dtype x, prev, y;
    uint32_t t, c, bits, group;
    int has_prev, has_state, chooses, hostile, stochastic;
    dw_scale scale;
    dw_audit audit;
    int64_t stride;
    size_t offset; /* how many elements behind an aligned address the tensors begin */
} shape;

typedef struct sample {
    dw_layout layout;
    void *x, *prev;
    uint64_t dither_key;
} sample;

typedef struct output {
    uint8_t *payload;
    void *next, *y;
    dw_chunk_result result;
} output;

static test_random source;

static uint32_t below(uint32_t n)
{
    return (uint32_t)(test_next(&source) % n);
}

static const char *describe(const shape *s)
{
    static char text[256];
    snprintf(text, sizeof text,
             "x %d prev %d y %d (%u, %u) stride %d + %d bits %u group %u scale %d choice %d prev "
             "%d state %d stochastic %d hostile %d audit %u",
             (int)s->x, (int)s->prev, (int)s->y, (unsigned)s->t, (unsigned)s->c, (int)s->stride,
             (int)s->offset, (unsigned)s->bits, (unsigned)s->group, (int)s->scale, s->chooses,
             s->has_prev, s->has_state, s->stochastic, s->hostile, (unsigned)s->audit.every);
    return text;
}

static void *allocate(size_t bytes)
{
    /* Whole blocks of 64 bytes: `offset` places the data at the end of the memory. */
    unsigned char *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(memory);
    for (size_t i = 0; i < bytes; i++) memory[i] = (unsigned char)test_next(&source);
    return memory;
}

static size_t tensor_elements(const shape *s)
{
    return s->offset + (size_t)(s->t - 1) * (size_t)s->stride + s->c;
}

static size_t dense_elements(const shape *s)
{
    return (size_t)s->t * s->c;
}

static shape draw_shape(void)
{
    static const uint32_t groups[] = {16, 32, 64, 128, 256, DW_GROUP_ROW, DW_GROUP_CHANNEL};
    static const uint32_t widths[] = {1,   3,   16,  31,  64,   65,   96,   100,  128,
                                      252, 256, 300, 640, 1028, 2048, 2049, 2500, 4100};
    shape s = {.x = (dw_dtype)(1 + below(3)),
               .prev = (dw_dtype)(1 + below(3)),
               .y = (dw_dtype)(1 + below(3)),
               .bits = 1 + below(8)};
    s.group = groups[below(7)];
    s.c = below(3) ? widths[below(18)] : 1 + below(700);
    s.t = 1 + below(s.c > 2000 ? 3 : 6000 / s.c > 40 ? 40 : 6000 / s.c);
    s.has_state = below(4) != 0;
    s.has_prev = s.has_state && below(4) != 0;
    s.chooses = s.has_prev && below(2);
    s.scale = (dw_scale)(1 + below(3));
    s.stochastic = below(3) == 0;
    s.hostile = (int)below(3);
    s.audit.every = s.has_state ? below(4) : 0;
    s.audit.phase = s.audit.every ? below(s.audit.every) : 0;
    s.stride = s.c + (below(2) ? below(20) : 0);
    s.offset = below(2) ? 1 + below(7) : 0;
    if (!s.has_state) s.prev = s.x; /* kernels without state are named by x's dtype alone */
    return s;
}

/* Shapes that would be drawn too seldom: searches for a scale over several tiles, over channels and
 * over rows of odd width, with ordinary values. */
enum { ALWAYS = 12 };
static shape shape_to_search(uint32_t i)
{
    static const uint32_t widths[] = {2500, 300, 96},
                          groups[] = {DW_GROUP_ROW, DW_GROUP_CHANNEL, DW_GROUP_ROW};
    shape s = draw_shape();
    s.c = widths[i % 3];
    s.t = i % 3 ? 20 : 3;
    s.group = groups[i % 3];
    s.bits = 1 + i / 3;
    s.scale = DW_SCALE_MSE;
    s.hostile = s.stochastic = 0;
    s.stride = s.c;
    return s;
}

static void fill_sample(const shape *s, sample *made)
{
    static const float sizes[] = {1, 1, 1e-3f, 1e30f, 1e-30f, 3e4f};
    size_t n = tensor_elements(s), dense = dense_elements(s);
    float far = sizes[below(6)];
    assert_true(dw_layout_make(&made->layout, s->t, s->c, s->bits, s->group, s->chooses));
    made->dither_key = test_next(&source);
    made->x = allocate(n * dw_dtype_bytes(s->x));
    made->prev = allocate(dense * dw_dtype_bytes(s->prev));
    test_fill(&source, made->prev, s->prev, dense, sizes[below(6)]);
    if (s->hostile) test_spoil(&source, made->prev, s->prev, dense, false);
    for (size_t i = 0; i < dense; i++) /* prev is always finite */
        if (!isfinite(test_get(made->prev, s->prev, i))) test_set(made->prev, s->prev, i, 2.0f);
    test_fill(&source, made->x, s->x, n, far);
    for (uint32_t t = 0; t < s->t; t++) {
        for (uint32_t i = 0; i < s->c; i++) {
            size_t at = s->offset + t * (size_t)s->stride + i;
            float base = s->has_prev ? test_get(made->prev, s->prev, t * (size_t)s->c + i) : 0.0f;
            uint32_t mood = (t + i / 32) % 5;
            float value = mood == 0   ? base
                          : mood == 1 ? test_get(made->x, s->x, at)
                                      : base + 0.1f * test_get(made->x, s->x, at);
            test_set(made->x, s->x, at, value);
            if (!isfinite(test_get(made->x, s->x, at)) && s->hostile < 2)
                test_set(made->x, s->x, at, 1.0f);
        }
    }
    if (s->hostile) test_spoil(&source, made->x, s->x, n, s->hostile == 2);
}

static output make_output(const shape *s, const sample *given, const output *like)
{
    size_t next_bytes = dense_elements(s) * dw_dtype_bytes(s->prev),
           y_bytes = tensor_elements(s) * dw_dtype_bytes(s->y);
    output out = {.payload = allocate(given->layout.payload_bytes),
                  .next = allocate(next_bytes),
                  .y = allocate(y_bytes)};
    if (!like) return out;
    memcpy(out.payload, like->payload, given->layout.payload_bytes);
    memcpy(out.next, like->next, next_bytes);
    memcpy(out.y, like->y, y_bytes);
    return out;
}

static void free_output(output *out)
{
    free(out->payload);
    free(out->next);
    free(out->y);
}

static dw_encode_job encode_job(const shape *s, const sample *given, const output *out)
{
    dw_encode_job job = {.layout = given->layout,
                         .rule = {.scale = s->scale,
                                  .is_stochastic = s->stochastic,
                                  .dither_key = given->dither_key},
                         .x_dtype = s->x,
                         .x = (unsigned char *)given->x + s->offset * dw_dtype_bytes(s->x),
                         .stride = s->stride,
                         .prev = s->has_prev ? given->prev : NULL,
                         .next = s->has_state ? out->next : NULL,
                         .prev_dtype = s->prev,
                         .payload = out->payload,
                         .audit = s->audit};
    return job;
}

/* with_y: y is written as well as prev. Without state, y is always written. */
static dw_decode_job decode_job(const shape *s, const sample *given, const output *out, int with_y)
{
    dw_decode_job job = {.layout = given->layout,
                         .payload = out->payload,
                         .prev = s->has_prev ? given->prev : NULL,
                         .next = s->has_state ? out->next : NULL,
                         .prev_dtype = s->prev,
                         .y_dtype = s->y,
                         .stride = s->stride,
                         .audit = s->audit};
    if (with_y || !s->has_state) job.y = (unsigned char *)out->y + s->offset * dw_dtype_bytes(s->y);
    return job;
}

/* ---- The C engine ---------------------------------------------------------------------------- */

static void spec_encode(const shape *s, const sample *given, output *out)
{
    dw_encode_job job = encode_job(s, given, out);
    job.kernels = &dw_kernels_c;
    for (uint64_t i = 0; i < dw_layout_chunks(&job.layout); i++) {
        dw_chunk_result one;
        dw_form_quantized.encode(&job, i, &one);
        dw_sums_add(&out->result.sums, &one.sums);
        out->result.state_sum += one.state_sum;
    }
    out->result.payload_sum = job.kernels->digest_bytes(job.payload, 0, job.layout.payload_bytes);
    if (s->has_state && s->audit.every)
        out->result.state_sum += dw_seam_sum(job.kernels, &job.layout, job.next, s->prev, s->audit);
}

static void spec_decode(const shape *s, const sample *given, output *out, int with_y)
{
    dw_decode_job job = decode_job(s, given, out, with_y);
    job.kernels = &dw_kernels_c;
    for (uint64_t i = 0; i < dw_layout_chunks(&job.layout); i++) {
        dw_chunk_result one;
        dw_form_quantized.decode(&job, i, &one);
        out->result.state_sum += one.state_sum;
    }
    for (uint64_t i = 0; s->has_state && with_y && i < dw_layout_chunks(&job.layout); i++)
        dw_form_quantized.emit(&job, i);
    out->result.payload_sum = job.kernels->digest_bytes(job.payload, 0, job.layout.payload_bytes);
    if (s->has_state && s->audit.every)
        out->result.state_sum += dw_seam_sum(job.kernels, &job.layout, job.next, s->prev, s->audit);
    for (uint64_t i = 0; i < job.layout.pieces; i++) {
        const uint8_t *scale = job.payload + dw_layout_scale(&job.layout, i);
        out->result.sums.direct += job.layout.chooses && (job.payload[i / 8] >> i % 8 & 1);
        out->result.sums.zero += !scale[0] && !scale[1];
        out->result.sums.poisoned += (scale[1] & 0x7f) == 0x7f && (scale[0] & 0x80);
    }
}

/* ---- The kernels ----------------------------------------------------------------------------- */

static const char *const names[] = {"", "f32", "f16", "bf16"};

/* Counts how many blocks a part has in each phase of the kernel. */
static void count_blocks(const dw_layout *layout, int has_state, dw_audit audit, int encodes,
                         uint64_t blocks[DW_CUDA_PHASES])
{
    uint64_t elements = (uint64_t)layout->t * layout->c,
             stretches = (elements + DW_TILE_ELEMENTS - 1) / DW_TILE_ELEMENTS;
    memset(blocks, 0, DW_CUDA_PHASES * sizeof *blocks);
    /* They share the tiles. */
    blocks[DW_CUDA_TILES] = 1 + test_next(&source) % layout->tiles;
    if (encodes && layout->by_channel) blocks[DW_CUDA_CHOOSE] = ((uint64_t)layout->c + 31) / 32;
    if (encodes && layout->cut_rows && !layout->by_channel) blocks[DW_CUDA_CHOOSE] = layout->t;
    if (!has_state || !audit.every || layout->c % 4 == 0) return;
    uint64_t phase = audit.phase;
    blocks[DW_CUDA_AUDIT] =
        phase < stretches ? (stretches - phase + audit.every - 1) / audit.every : 1;
}

typedef struct message {
    dw_cuda_encode_part encode[MOST_PARTS];
    dw_cuda_decode_part decode[MOST_PARTS];
    dw_cuda_sums sums[MOST_PARTS];
    dw_cuda_report reports[MOST_PARTS];
    uint64_t grid[DW_CUDA_PHASES];
} message;

static dw_cuda_share share_of(message *m, uint32_t i, const shape *s, const dw_layout *layout,
                              int encodes)
{
    dw_cuda_share made = {
        .sums = &m->sums[i], .report = &m->reports[i], .serial = 1 + test_next(&source) / 2};
    count_blocks(layout, s->has_state, s->audit, encodes, made.blocks);
    for (int phase = 0; phase < DW_CUDA_PHASES; phase++) {
        made.first[phase] = m->grid[phase];
        m->grid[phase] += made.blocks[phase];
    }
    if (encodes &&
        (layout->by_channel || layout->cut_rows || (layout->chooses && layout->tile_segments % 8)))
        made.chosen = allocate(layout->pieces * sizeof *made.chosen);
    return made;
}

static void launch(const char *kernel, const void *parts, uint32_t n, uint64_t grid, const shape *s)
{
    if (grid && !dw_shim_launch(kernel, parts, n, grid))
        fail_msg("there is no kernel %s: %s", kernel, describe(s));
}

static void take_report(const message *m, uint32_t i, uint64_t serial, output *out)
{
    static const dw_cuda_sums none;
    assert_int_equal(m->reports[i].serial, serial);
    assert_memory_equal(&m->sums[i], &none, sizeof none); /* zeros again, for the next launch */
    out->result.payload_sum = m->reports[i].payload;
    out->result.state_sum = m->reports[i].state;
    out->result.sums.direct = m->reports[i].direct;
    out->result.sums.zero = m->reports[i].zero;
    out->result.sums.poisoned = m->reports[i].poisoned;
}

static void cuda_encode(const shape *s, const sample *given, output *out, uint32_t n)
{
    message m;
    char kernel[64];
    memset(&m, 0, sizeof m);
    for (uint32_t i = 0; i < n; i++)
        m.encode[i] = (dw_cuda_encode_part){share_of(&m, i, s, &given[i].layout, 1),
                                            encode_job(s, &given[i], &out[i])};
    launch("dw_choose_scales", m.encode, n, m.grid[DW_CUDA_CHOOSE], s);
    snprintf(kernel, sizeof kernel, "dw_encode_%s_%s", names[s->x], names[s->prev]);
    if (s->scale == DW_SCALE_MSE && !m.grid[DW_CUDA_CHOOSE]) strcpy(kernel, "dw_encode_mse");
    if (given->layout.by_channel) strcpy(kernel, "dw_encode_columns");
    launch(kernel, m.encode, n, m.grid[DW_CUDA_TILES], s);
    launch("dw_audit_encode", m.encode, n, m.grid[DW_CUDA_AUDIT], s);
    for (uint32_t i = 0; i < n; i++) {
        take_report(&m, i, m.encode[i].share.serial, &out[i]);
        free(m.encode[i].share.chosen);
    }
}

static void cuda_decode(const shape *s, const sample *given, output *out, uint32_t n, int with_y)
{
    message m;
    char kernel[64];
    memset(&m, 0, sizeof m);
    for (uint32_t i = 0; i < n; i++)
        m.decode[i] = (dw_cuda_decode_part){share_of(&m, i, s, &given[i].layout, 0),
                                            decode_job(s, &given[i], &out[i], with_y)};
    snprintf(kernel, sizeof kernel, "dw_decode_%s%s", s->has_state ? "" : "direct_",
             given->layout.by_channel ? "columns" : names[s->has_state ? s->prev : s->y]);
    launch(kernel, m.decode, n, m.grid[DW_CUDA_TILES], s);
    launch("dw_audit_decode", m.decode, n, m.grid[DW_CUDA_AUDIT], s);
    for (uint32_t i = 0; i < n; i++) take_report(&m, i, m.decode[i].share.serial, &out[i]);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void same_bytes(const char *what, const void *expected, const void *found, size_t n,
                       const shape *s)
{
    const unsigned char *a = expected, *b = found;
    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i])
            fail_msg("%s: byte %zu of %zu is %02x, C has %02x: %s", what, i, n, b[i], a[i],
                     describe(s));
}

static void same_sums(const output *expected, const output *found, const shape *s)
{
    const dw_chunk_result *a = &expected->result, *b = &found->result;
    if (a->payload_sum != b->payload_sum || a->state_sum != b->state_sum)
        fail_msg("digests: %d %d: %s", a->payload_sum != b->payload_sum,
                 a->state_sum != b->state_sum, describe(s));
    if (a->sums.direct != b->sums.direct || a->sums.zero != b->sums.zero ||
        a->sums.poisoned != b->sums.poisoned)
        fail_msg("counts of pieces, direct %d zero %d poisoned %d, C has %d %d %d: %s",
                 (int)b->sums.direct, (int)b->sums.zero, (int)b->sums.poisoned, (int)a->sums.direct,
                 (int)a->sums.zero, (int)a->sums.poisoned, describe(s));
}

static void check_encodes(const shape *s, const sample *given, uint32_t n)
{
    for (int backwards = 0; backwards < 2; backwards++) {
        output expected[MOST_PARTS], found[MOST_PARTS];
        dw_shim_turn_round(backwards);
        for (uint32_t i = 0; i < n; i++) {
            expected[i] = make_output(s, &given[i], NULL);
            found[i] = make_output(s, &given[i], &expected[i]);
            spec_encode(s, &given[i], &expected[i]);
        }
        cuda_encode(s, given, found, n);
        for (uint32_t i = 0; i < n; i++) {
            same_bytes("payload", expected[i].payload, found[i].payload,
                       given[i].layout.payload_bytes, s);
            same_bytes("next", expected[i].next, found[i].next,
                       dense_elements(s) * dw_dtype_bytes(s->prev), s);
            same_sums(&expected[i], &found[i], s);
            free_output(&expected[i]);
            free_output(&found[i]);
        }
    }
}

/* Makes most random scales such as are common in practice, some of them 0. With shapes of `hostile`
 * 2 they stay random bytes, like choices and codes. */
static void make_scales_ordinary(const shape *s, const sample *given, uint8_t *payload)
{
    for (uint64_t i = 0; i < given->layout.pieces; i++) {
        uint8_t *scale = payload + dw_layout_scale(&given->layout, i);
        if (s->hostile < 2) scale[1] = (uint8_t)(0x3c + below(6) + (below(2) << 7));
        if (below(16) == 0) scale[0] = scale[1] = 0;
    }
}

static void check_decodes(const shape *s, const sample *given, uint32_t n)
{
    for (int round = 0; round < 4; round++) {
        output expected[MOST_PARTS], found[MOST_PARTS];
        int with_y = round / 2;
        dw_shim_turn_round(round % 2);
        for (uint32_t i = 0; i < n; i++) {
            expected[i] = make_output(s, &given[i], NULL);
            make_scales_ordinary(s, &given[i], expected[i].payload);
            found[i] = make_output(s, &given[i], &expected[i]);
            spec_decode(s, &given[i], &expected[i], with_y);
        }
        cuda_decode(s, given, found, n, with_y);
        for (uint32_t i = 0; i < n; i++) {
            same_bytes("next", expected[i].next, found[i].next,
                       dense_elements(s) * dw_dtype_bytes(s->prev), s);
            same_bytes("y", expected[i].y, found[i].y, tensor_elements(s) * dw_dtype_bytes(s->y),
                       s);
            same_sums(&expected[i], &found[i], s);
            free_output(&expected[i]);
            free_output(&found[i]);
        }
    }
}

static void for_shapes(int draws, void (*check)(const shape *, const sample *, uint32_t))
{
    source.state = test_seed();
    for (int i = 0; i < ALWAYS + draws / share; i++) {
        sample given[MOST_PARTS];
        shape s = i < ALWAYS ? shape_to_search((uint32_t)i) : draw_shape();
        uint32_t n = 1 + below(MOST_PARTS);
        for (uint32_t k = 0; k < n; k++) fill_sample(&s, &given[k]);
        check(&s, given, n);
        for (uint32_t k = 0; k < n; k++) {
            free(given[k].x);
            free(given[k].prev);
        }
    }
}

static void frames_equal_those_of_the_c_engine(void **state)
{
    (void)state;
    for_shapes(600, check_encodes);
}

static void tensors_equal_those_of_the_c_engine(void **state)
{
    (void)state;
    for_shapes(300, check_decodes);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--share")) share = atoi(argv[2]) > 0 ? atoi(argv[2]) : 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(frames_equal_those_of_the_c_engine),
                                       cmocka_unit_test(tensors_equal_those_of_the_c_engine)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
