/* SPDX-License-Identifier: Apache-2.0
 * check_cuda_mx.c - compares the microscaling kernels of cuda/, executed on the CPU, with the C
 * kernels, block by block: payloads, new prev, y and sums.
 *
 * check_cuda_mx [--share N]: only one in N of the random draws. Every message runs twice, the
 * second time with blocks and threads from the last to the first. */
#include <math.h>

#include "emulated.h"
#include "kernels/kernels.h"
#include "message.h"
#include "support/tool.h"

static int share = 1;
static test_random source;
static const char *const names[] = {"", "f32", "f16", "bf16"};

enum { PARTS = 2 };

typedef struct sample {
    dw_dtype x_dtype, prev_dtype, y_dtype;
    dw_element element;
    bool has_prev, has_state, with_y;
    int64_t stride;
    size_t offset, dense, tensor; /* elements */
    dw_audit audit;
    dw_layout layout;
    unsigned char *x, *prev;
} sample;

typedef struct output {
    uint8_t *payload;
    unsigned char *next, *y;
    uint64_t payload_sum, state_sum;
    dw_piece_counts counts;
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

static sample draw_sample(void)
{
    static const uint32_t widths[] = {1, 31, 32, 33, 64, 100, 256, 1000, 2048, 2500};
    sample s = {.x_dtype = (dw_dtype)(1 + below(3)),
                .prev_dtype = (dw_dtype)(1 + below(3)),
                .y_dtype = (dw_dtype)(1 + below(3)),
                .element = (dw_element)(1 + below(DW_ELEMENTS))};
    uint32_t c = widths[below(10)], t = 1 + below(5000 / c > 30 ? 30 : 5000 / c);
    s.has_state = below(4) != 0;
    s.has_prev = s.has_state && below(4) != 0;
    s.with_y = !s.has_state || below(2);
    if (!s.has_state) s.prev_dtype = s.x_dtype; /* kernels without state are named by x's dtype */
    s.stride = c + (below(2) ? below(20) : 0);
    s.offset = below(2) ? 1 + below(7) : 0;
    s.dense = (size_t)t * c;
    s.tensor = s.offset + (size_t)(t - 1) * (size_t)s.stride + c;
    s.audit.every = s.has_state ? below(4) : 0;
    s.audit.phase = s.audit.every ? below(s.audit.every) : 0;
    assert_true(dw_layout_make_mx(&s.layout, t, c, s.element, dw_element_facts_of(s.element).bits,
                                  s.has_prev && below(2)));
    s.x = allocate(s.tensor * dw_dtype_bytes(s.x_dtype));
    s.prev = allocate(s.dense * dw_dtype_bytes(s.prev_dtype));
    static const float sizes[] = {1, 1, 1e-3f, 1e30f, 1e-38f, 3e4f};
    test_fill(&source, s.prev, s.prev_dtype, s.dense, sizes[below(6)]);
    test_fill(&source, s.x, s.x_dtype, s.tensor, sizes[below(6)]);
    if (below(2)) test_spoil(&source, s.x, s.x_dtype, s.tensor, (int)below(2));
    for (size_t i = 0; i < s.dense; i++) {
        if (!isfinite(test_get(s.prev, s.prev_dtype, i))) test_set(s.prev, s.prev_dtype, i, 2.0f);
        size_t at = s.offset + i / c * (size_t)s.stride + i % c;
        if (i / 32 % 3 == 0) /* some blocks of x are near prev, or equal */
            test_set(s.x, s.x_dtype, at,
                     test_get(s.prev, s.prev_dtype, i) * (i % 2 ? 1.0f : 1.01f));
        if (i / 32 % 7 == 0)
            test_set(s.x, s.x_dtype, at, s.has_prev ? test_get(s.prev, s.prev_dtype, i) : -0.0f);
    }
    return s;
}

static output make_output(const sample *s, const output *like)
{
    size_t next = s->dense * dw_dtype_bytes(s->prev_dtype),
           y = s->tensor * dw_dtype_bytes(s->y_dtype);
    output out = {
        .payload = allocate(s->layout.payload_bytes), .next = allocate(next), .y = allocate(y)};
    if (!like) return out;
    memcpy(out.payload, like->payload, s->layout.payload_bytes);
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

/* Where block `piece` lies in prev (dense) and in x or y (tensor). */
typedef struct place {
    size_t dense, tensor;
    uint32_t channels;
    dw_tile tile;
    uint32_t within; /* the number of the block within its tile */
} place;

static place place_of(const sample *s, uint64_t piece)
{
    const dw_layout *layout = &s->layout;
    uint64_t row = piece / layout->row_segments,
             column = piece % layout->row_segments * DW_MX_BLOCK, left = layout->c - column;
    return (place){(size_t)(row * layout->c + column),
                   s->offset + (size_t)(row * (uint64_t)s->stride + column),
                   left < DW_MX_BLOCK ? (uint32_t)left : (uint32_t)DW_MX_BLOCK,
                   dw_layout_tile(layout, piece / layout->tile_segments),
                   (uint32_t)(piece % layout->tile_segments)};
}

static void *at(const unsigned char *base, dw_dtype dtype, size_t element)
{
    return (void *)(uintptr_t)(base + element * dw_dtype_bytes(dtype));
}

static void take_sums(const sample *s, output *out)
{
    out->payload_sum = dw_kernels_c.digest_bytes(out->payload, 0, s->layout.payload_bytes);
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
    memset(out->payload, 0, s->layout.payload_bytes);
    for (uint64_t piece = 0; piece < s->layout.pieces; piece++) {
        place p = place_of(s, piece);
        dw_mx_encode_run run = {
            .x_dtype = s->x_dtype,
            .prev_dtype = s->prev_dtype,
            .element = s->element,
            .blocks = 1,
            .channels = p.channels,
            .x = at(s->x, s->x_dtype, p.tensor),
            .prev = s->has_prev ? at(s->prev, s->prev_dtype, p.dense) : NULL,
            .next = s->has_state ? at(out->next, s->prev_dtype, p.dense) : NULL,
            .scales = out->payload + dw_layout_scale(&s->layout, piece),
            .choices = s->layout.chooses ? out->payload : NULL,
            .codes = out->payload + p.tile.codes,
            .first_piece = piece,
            .tile_elements = p.tile.elements,
            .first = p.within * DW_MX_BLOCK,
            .counts = &out->counts,
        };
        dw_kernels_c.mx_encode(&run);
    }
    take_sums(s, out);
}

static void put_nan(void *to, dw_dtype dtype)
{
    uint32_t single = DW_F32_NAN;
    uint16_t half = dtype == DW_F16 ? DW_F16_NAN : DW_BF16_NAN;
    memcpy(to, dtype == DW_F32 ? (void *)&single : (void *)&half, dw_dtype_bytes(dtype));
}

static void spec_decode(const sample *s, output *out)
{
    dw_dtype dtype = s->has_state ? s->prev_dtype : s->y_dtype;
    for (uint64_t piece = 0; piece < s->layout.pieces; piece++) {
        place p = place_of(s, piece);
        uint32_t scale = out->payload[dw_layout_scale(&s->layout, piece)];
        dw_mx_decode_run run = {
            .out_dtype = dtype,
            .prev_dtype = s->prev_dtype,
            .element = s->element,
            .blocks = 1,
            .channels = p.channels,
            .prev = s->has_prev ? at(s->prev, s->prev_dtype, p.dense) : NULL,
            .out = s->has_state ? at(out->next, dtype, p.dense) : at(out->y, dtype, p.tensor),
            .poison_keeps = s->has_state,
            .scales = out->payload + dw_layout_scale(&s->layout, piece),
            .choices = s->layout.chooses ? out->payload : NULL,
            .codes = out->payload + p.tile.codes,
            .first_piece = piece,
            .tile_elements = p.tile.elements,
            .first = p.within * DW_MX_BLOCK,
        };
        dw_kernels_c.mx_decode(&run);
        out->counts.direct += s->layout.chooses && (out->payload[piece / 8] >> piece % 8 & 1);
        out->counts.zero += scale == 0;
        out->counts.poisoned += scale == DW_MX_POISONED;
        for (uint32_t i = 0; s->has_state && s->with_y && i < p.channels; i++) {
            dw_kernels_c.convert(at(out->next, dtype, p.dense + i), dtype,
                                 at(out->y, s->y_dtype, p.tensor + i), s->y_dtype, 1);
            if (scale == DW_MX_POISONED) put_nan(at(out->y, s->y_dtype, p.tensor + i), s->y_dtype);
        }
    }
    take_sums(s, out);
}

static dw_cuda_share share_of(const sample *s, uint64_t grid[DW_CUDA_PHASES], dw_cuda_sums *sums,
                              dw_cuda_report *report)
{
    dw_cuda_share made = {.sums = sums, .report = report, .serial = 1 + test_next(&source) / 2};
    uint64_t stretches = (s->dense + DW_TILE_ELEMENTS - 1) / DW_TILE_ELEMENTS;
    made.blocks[DW_CUDA_TILES] = s->layout.tiles;
    if (s->audit.every && s->layout.c % 4 != 0)
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

static void take_report(const dw_cuda_report *report, output *out)
{
    out->payload_sum = report->payload;
    out->state_sum = report->state;
    out->counts.direct = report->direct;
    out->counts.zero = report->zero;
    out->counts.poisoned = report->poisoned;
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
        parts[i].share = share_of(s, grid, &sums[i], &reports[i]);
        parts[i].job = (dw_encode_job){.layout = s->layout,
                                       .x = at(s->x, s->x_dtype, s->offset),
                                       .x_dtype = s->x_dtype,
                                       .stride = s->stride,
                                       .prev = s->has_prev ? s->prev : NULL,
                                       .next = s->has_state ? out[i].next : NULL,
                                       .prev_dtype = s->prev_dtype,
                                       .payload = out[i].payload,
                                       .audit = s->audit};
    }
    snprintf(kernel, sizeof kernel, "dw_mx_encode_%s_%s", names[s->x_dtype], names[s->prev_dtype]);
    launch(kernel, parts, grid[DW_CUDA_TILES]);
    launch("dw_audit_encode", parts, grid[DW_CUDA_AUDIT]);
    for (int i = 0; i < PARTS; i++) take_report(&reports[i], &out[i]);
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
        parts[i].share = share_of(s, grid, &sums[i], &reports[i]);
        parts[i].job = (dw_decode_job){.layout = s->layout,
                                       .payload = out[i].payload,
                                       .prev = s->has_prev ? s->prev : NULL,
                                       .next = s->has_state ? out[i].next : NULL,
                                       .prev_dtype = s->prev_dtype,
                                       .y = s->with_y ? at(out[i].y, s->y_dtype, s->offset) : NULL,
                                       .y_dtype = s->y_dtype,
                                       .stride = s->stride,
                                       .audit = s->audit};
    }
    snprintf(kernel, sizeof kernel, "dw_mx_decode_%s%s", s->has_state ? "" : "direct_",
             names[s->has_state ? s->prev_dtype : s->y_dtype]);
    launch(kernel, parts, grid[DW_CUDA_TILES]);
    launch("dw_audit_decode", parts, grid[DW_CUDA_AUDIT]);
    for (int i = 0; i < PARTS; i++) take_report(&reports[i], &out[i]);
}

static void same(const char *what, const void *expected, const void *found, size_t n,
                 const sample *s)
{
    for (size_t i = 0; i < n; i++)
        if (((const uint8_t *)expected)[i] != ((const uint8_t *)found)[i])
            fail_msg(
                "%s: byte %zu of %zu: element %d x %d prev %d y %d (%u, %u) choice %d state %d",
                what, i, n, (int)s->element, (int)s->x_dtype, (int)s->prev_dtype, (int)s->y_dtype,
                s->layout.t, s->layout.c, (int)s->layout.chooses, (int)s->has_state);
}

static void check(void (*spec)(const sample *, output *), void (*cuda)(const sample *, output *),
                  int draws)
{
    source.state = test_seed();
    for (int draw = 0; draw < draws / share; draw++) {
        sample s = draw_sample();
        output expected = make_output(&s, NULL), found[PARTS];
        for (uint64_t i = 0; i < s.layout.pieces && below(4); i++) /* scales that are common */
            expected.payload[dw_layout_scale(&s.layout, i)] = (uint8_t)(110 + below(30));
        for (int i = 0; i < PARTS; i++) found[i] = make_output(&s, &expected);
        spec(&s, &expected);
        expected.counts.pieces = 0; /* kernels do not report this one */
        dw_shim_turn_round(draw % 2);
        cuda(&s, found);
        for (int i = 0; i < PARTS; i++) {
            same("payload", expected.payload, found[i].payload, s.layout.payload_bytes, &s);
            same("next", expected.next, found[i].next, s.dense * dw_dtype_bytes(s.prev_dtype), &s);
            same("y", expected.y, found[i].y, s.tensor * dw_dtype_bytes(s.y_dtype), &s);
            same("sums", &expected.payload_sum, &found[i].payload_sum, 8, &s);
            same("state sums", &expected.state_sum, &found[i].state_sum, 8, &s);
            same("counts", &expected.counts, &found[i].counts, sizeof expected.counts, &s);
            free_output(&found[i]);
        }
        free_output(&expected);
        free(s.x);
        free(s.prev);
    }
}

static void frames_equal_those_of_the_c_kernels(void **state)
{
    (void)state;
    check(spec_encode, cuda_encode, 1200);
}

static void tensors_equal_those_of_the_c_kernels(void **state)
{
    (void)state;
    check(spec_decode, cuda_decode, 1200);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--share")) share = atoi(argv[2]) > 0 ? atoi(argv[2]) : 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(frames_equal_those_of_the_c_kernels),
                                       cmocka_unit_test(tensors_equal_those_of_the_c_kernels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
