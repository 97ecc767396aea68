/* SPDX-License-Identifier: Apache-2.0
 * runs.c - tests kernels that quantize and dequantize pieces with one scale each. */
#include "check_kernels.h"
#include "run_shape.h"

static void run_encode(const dw_kernels *kernels, const shape *s, const void *x, const void *prev,
                       const dw_chosen *row, encoded *out)
{
    dw_encode_run run = {.x_dtype = s->x,
                         .prev_dtype = s->has_next ? s->prev : (dw_dtype)0,
                         .bits = s->bits,
                         .width = s->width,
                         .pieces = s->pieces,
                         .scale = s->scale,
                         .dither = s->dithers ? &s->dither : NULL,
                         .channels = s->channels,
                         .x = x,
                         .prev = s->has_prev ? prev : NULL,
                         .next = s->has_next ? out->next : NULL,
                         .scales = out->scales,
                         .choices = s->chooses ? out->choices : NULL,
                         .codes = out->codes,
                         .first_piece = s->first_piece,
                         .tile_elements = s->tile_pieces * s->width,
                         .first = s->first * s->width,
                         .row = s->whole_row ? row : NULL,
                         .is_far = s->far,
                         .rests = s->rests,
                         .past = s->past,
                         .counts = &out->counts};
    kernels->encode(&run);
    if (run.past) kernels->stream(out->next, out->next, 0, 1);
}

/* Completes the residual of an encoded run in a step of its own. */
static void take_x_away(const shape *s, const unsigned char *x, encoded *out)
{
    for (uint32_t i = 0; i < s->pieces; i++) {
        uint64_t from = (uint64_t)i * s->width, n = s->channels - from;
        if (n > s->width) n = s->width;
        uint16_t scale = (uint16_t)(out->scales[2 * i] | out->scales[2 * i + 1] << 8);
        if (!dw_scale_is_poisoned(scale))
            specification->subtract(x + from * dw_dtype_bytes(s->x), s->x,
                                    (float *)out->next + from, n);
    }
}

static void check_encode(bench *b, const shape *s)
{
    static unsigned char plain_x[4 * MOST], plain_prev[4 * MOST];
    size_t prev_bytes = s->channels * dw_dtype_bytes(s->prev);
    fill_run(b, s, plain_x, plain_prev);
    const void *x = guarded_x(b, s, plain_x),
               *prev = guarded_copy(b, SLOT_PREV, plain_prev, prev_bytes);
    encoded out = {.scale_bytes = 2 * (size_t)s->pieces,
                   .choice_bytes = choice_bytes_of(s),
                   .code_bytes = code_bytes_of(s),
                   .next_bytes = prev_bytes};
    encoded_place(b, &out);
    memset(out.choices, 0, out.choice_bytes);
    encoded spec = encoded_twin(&out);
    dw_candidates found = {{0, 0}, {0, 0}};
    specification->extremes(plain_x, s->x, s->has_prev ? plain_prev : NULL, s->prev, s->channels,
                            &found);
    dw_chosen row = {0, s->chooses && below(b, 2)};
    dw_extremes *extremes = row.direct ? &found.direct : &found.delta;
    if (extremes->positive < DW_F32_INFINITY / 2)
        extremes->positive += below(b, 2) << 23; /* as if the rest of the row had larger values */
    row.scale = dw_scale_of(*extremes, s->bits, s->scale != DW_SCALE_ABSMAX);
    shape in_two_steps = *s;
    in_two_steps.rests = in_two_steps.past = false;
    run_encode(specification, &in_two_steps, plain_x, plain_prev, &row, &spec);
    if (s->rests) take_x_away(s, plain_x, &spec);
    run_encode(b->kernels, s, x, prev, &row, &out);
    same_encoded(&spec, &out, b->kernels->name, describe(s));
}

/* Decodes any codes and any scales: everything that a frame with valid digests can contain. */
static void check_decode(bench *b, const shape *s)
{
    static unsigned char plain_prev[4 * MOST], expected[4 * MOST];
    size_t bytes = s->channels * dw_dtype_bytes(s->prev);
    test_fill(&b->random, plain_prev, s->prev, s->channels, 1);
    if (s->hostile && s->channels) test_spoil(&b->random, plain_prev, s->prev, s->channels, false);
    uint8_t *scales = guarded(b, SLOT_SCALES, 2 * (size_t)s->pieces),
            *codes = guarded(b, SLOT_CODES, code_bytes_of(s));
    if (s->hostile < 2) /* scales that are common in practice */
        for (uint32_t i = 0; i < s->pieces; i++)
            scales[2 * i + 1] = (uint8_t)(0x3c + below(b, 6) + (below(b, 2) << 7));
    uint8_t *choices = guarded(b, SLOT_CHOICES, choice_bytes_of(s));
    void *out = guarded(b, SLOT_NEXT, bytes);
    memcpy(expected, out, bytes);
    dw_decode_run run = {.out_dtype = s->prev,
                         .prev_dtype = s->has_prev ? s->prev : (dw_dtype)0,
                         .bits = s->bits,
                         .width = s->width,
                         .pieces = s->pieces,
                         .channels = s->channels,
                         .prev = s->has_prev ? plain_prev : NULL,
                         .out = expected,
                         .poison_keeps = s->has_next,
                         .scales = scales,
                         .choices = s->chooses ? choices : NULL,
                         .codes = codes,
                         .first_piece = s->first_piece,
                         .tile_elements = s->tile_pieces * s->width,
                         .first = s->first * s->width,
                         .element = 4 * (uint64_t)below(b, 1 << 30)};
    uint64_t sums[2] = {s->channels, s->channels};
    run.past = (int)below(b, 2); /* out may be aligned to a page or not */
    if (!run.past && below(b, 2)) run.sum = &sums[0];
    specification->decode(&run);
    run.prev = guarded_prev(b, s, plain_prev);
    run.out = out;
    if (run.sum) run.sum = &sums[1];
    b->kernels->decode(&run);
    if (run.past) b->kernels->stream(out, out, 0, 1);
    same_bytes("decoded", expected, out, bytes, b->kernels->name, describe(s));
    same_bytes("digest", &sums[0], &sums[1], sizeof sums[0], b->kernels->name, describe(s));
}

/* Decodes any codes and any scales, and adds them to any values. */
static void check_add(bench *b, const shape *s)
{
    static float values[MOST];
    static unsigned char expected[4 * MOST];
    static const float factors[] = {1, -1, 0.3f, 0x1p40f, 0, INFINITY};
    size_t bytes = s->channels * dw_dtype_bytes(s->prev);
    uint8_t *scales = guarded(b, SLOT_SCALES, 2 * (size_t)s->pieces),
            *codes = guarded(b, SLOT_CODES, code_bytes_of(s));
    if (s->hostile < 2) /* scales that are common in practice */
        for (uint32_t i = 0; i < s->pieces; i++)
            scales[2 * i + 1] = (uint8_t)(0x3c + below(b, 6) + (below(b, 2) << 7));
    unsigned char *out = guarded(b, SLOT_NEXT, bytes);
    if (s->hostile < 2) test_fill(&b->random, out, s->prev, s->channels, 1);
    if (s->hostile && s->channels) test_spoil(&b->random, out, s->prev, s->channels, true);
    memcpy(expected, out, bytes);
    dw_decode_run run = {.out_dtype = DW_F32,
                         .bits = s->bits,
                         .width = s->width,
                         .pieces = s->pieces,
                         .channels = s->channels,
                         .out = values,
                         .poison_keeps = s->has_next,
                         .scales = scales,
                         .codes = codes,
                         .first_piece = s->first_piece,
                         .tile_elements = s->tile_pieces * s->width,
                         .first = s->first * s->width};
    specification->decode(&run);
    run.factor = factors[below(b, sizeof factors / sizeof *factors)];
    specification->add(values, run.factor, expected, s->prev, s->channels);
    run.adds = 1;
    run.out_dtype = s->prev;
    run.out = out;
    b->kernels->decode(&run);
    same_bytes("added", expected, out, bytes, b->kernels->name, describe(s));
}

static const uint32_t widths[] = {16, 32, 64, 128, 256, 96, 160, 1024, 2048};
enum { WIDTHS = sizeof widths / sizeof *widths };

static void check_every_kind(bench *b, void (*check)(bench *, const shape *), int draws)
{
    for (int x = 0; x < DTYPES; x++)
        for (int prev = 0; prev < DTYPES; prev++)
            for (uint32_t bits = 1; bits <= 8; bits++)
                for (int w = 0; w < WIDTHS; w++)
                    for (int draw = 0; draw < draws; draw++) {
                        uint32_t cap = DW_TILE_ELEMENTS / widths[w] * widths[w];
                        uint64_t channels = draw == 0   ? cap
                                            : draw == 1 ? cap - 1
                                                        : below(b, draw % 2 ? cap + 1 : 301);
                        shape s = shape_of(b, dtypes[x], dtypes[prev], bits, widths[w], channels);
                        check(b, &s);
                    }
}

KERNEL_TEST(encoded_runs_equal_those_of_c)
{
    check_every_kind(b, check_encode, drawn(b, 8, 1));
}

KERNEL_TEST(decoded_runs_equal_those_of_c)
{
    check_every_kind(b, check_decode, drawn(b, 5, 1));
}

KERNEL_TEST(added_runs_equal_those_of_c)
{
    check_every_kind(b, check_add, drawn(b, 5, 1));
}

KERNEL_TEST(every_size_up_to_300_equals_that_of_c)
{
    for (uint64_t n = 0; n <= 300; n++)
        for (int w = (int)(n % (uint64_t)b->share); w < WIDTHS; w += b->share) {
            shape s = shape_of(b, any_dtype(b), any_dtype(b), 1 + below(b, 8), widths[w], n);
            check_encode(b, &s);
            check_decode(b, &s);
            check_add(b, &s);
        }
}

int check_runs(void)
{
    return test_run(NULL, NULL);
}
