/* SPDX-License-Identifier: Apache-2.0
 * check_kernels.c - every table of kernels that this processor can run, against the C table, byte
 * by byte.
 *
 * check_kernels [--share N] [--best NAME]: N: only one in N of the random draws, for processors
 * that are emulated; NAME: the table that the ladder must take here. */
#include <float.h>
#include <math.h>

#include "base/cpu.h"
#include "codecs/form.h"
#include "engine/engine.h"
#include "kernel_rig.h"

/* ---- Runs ------------------------------------------------------------------------------------ */

typedef struct shape {
    dw_dtype x, prev;
    bool has_prev, has_next, chooses, whole_row, dithers;
    int hostile; /* 1: values at the ends of the numbers; 2: also x that is not finite */
    dw_scale scale;
    dw_dither dither; /* taken where it dithers */
    uint32_t bits, width, pieces, tile_pieces, first;
    uint64_t channels, first_piece;
} shape;

static const char *describe(const shape *s)
{
    static char text[256];
    snprintf(text, sizeof text,
             "x %s prev %s%s%s bits %u width %u channels %lu of tile %u from %u, choice %d scale "
             "%d hostile %d row %d dither %d",
             dtype_names[s->x], dtype_names[s->prev], s->has_prev ? "" : " (none)",
             s->has_next ? "" : " (no state)", (unsigned)s->bits, (unsigned)s->width,
             (unsigned long)s->channels, (unsigned)s->tile_pieces, (unsigned)s->first, s->chooses,
             (int)s->scale, s->hostile, s->whole_row, s->dithers);
    return text;
}

/* A run somewhere in a tile; what follows it in the tile must stay as it is. */
static shape shape_of(bench *b, dw_dtype x, dw_dtype prev, uint32_t bits, uint32_t width,
                      uint64_t channels)
{
    shape s = {.x = x, .prev = prev, .bits = bits, .width = width, .channels = channels};
    s.pieces = (uint32_t)((channels + width - 1) / width);
    uint32_t most = DW_TILE_ELEMENTS / width, spare = most - s.pieces;
    s.first = spare ? below(b, spare + 1) : 0;
    s.tile_pieces = s.first + s.pieces + (spare > s.first ? below(b, spare - s.first + 1) : 0);
    s.first_piece = below(b, 100) + s.first;
    s.has_next = below(b, 4) != 0;
    s.has_prev = s.has_next && below(b, 4) != 0;
    s.chooses = s.has_prev && below(b, 2) != 0;
    s.scale = (dw_scale)(1 + below(b, 3));
    s.dither = (dw_dither){test_next(&b->random),
                           below(b, 2) ? below(b, 1000) : test_next(&b->random) >> below(b, 40)};
    s.dithers = below(b, 3) == 0;
    s.hostile = (int)below(b, 3);
    s.whole_row = s.pieces == 1 && below(b, 4) == 0;
    return s;
}

static size_t choice_bytes_of(const shape *s)
{
    return (size_t)(s->first_piece + s->pieces + 7) / 8;
}

static size_t code_bytes_of(const shape *s)
{
    return (size_t)s->tile_pieces * s->width * s->bits / 8;
}

/* x near prev in most pieces, equal in some, far away in others; mirrored values, so that signs
 * tie. */
static void fill_run(bench *b, const shape *s, void *x, void *prev)
{
    size_t n = s->channels;
    float sizes[] = {1, 1, 1e-3f, 1e30f, 1e-30f, 3e4f, 0x1p125f}; /* the last: to the very end */
    test_fill(&b->random, prev, s->prev, n, sizes[below(b, 7)]);
    if (s->hostile && n) test_spoil(&b->random, prev, s->prev, n, false);
    float far = sizes[below(b, 7)];
    for (size_t i = 0; i < n; i++) {
        float noise = test_normal(&b->random) * far,
              base = s->has_prev ? test_get(prev, s->prev, i) : 0.0f;
        uint32_t mood = (uint32_t)(i / s->width * 7 + b->random.state % 3) % 5;
        float value = mood == 0 ? base : mood == 1 ? noise : base + noise * 0.1f;
        if (i % 2 && below(b, 4) == 0) value = 2 * base - test_get(x, s->x, i - 1);
        test_set(x, s->x, i, value);
        if (!isfinite(test_get(x, s->x, i)) && s->hostile < 2) test_set(x, s->x, i, 1.0f);
    }
    if (s->hostile && n) test_spoil(&b->random, x, s->x, n, s->hostile == 2);
    if (s->hostile == 2 && s->x == DW_F16 && n) { /* signalling NaN keep their bits */
        uint16_t *halves = x;
        /* The ends more often. */
        uint32_t payload = below(b, 3) ? below(b, 0x1ff) : below(b, 2) * 0x1fe;
        halves[below(b, (uint32_t)n)] = (uint16_t)(0x7c01 + payload + (below(b, 2) << 15));
    }
}

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
                         .counts = &out->counts};
    kernels->encode(&run);
}

static void check_encode(bench *b, const shape *s)
{
    static unsigned char plain_x[4 * MOST], plain_prev[4 * MOST];
    size_t x_bytes = s->channels * dw_dtype_bytes(s->x),
           prev_bytes = s->channels * dw_dtype_bytes(s->prev);
    fill_run(b, s, plain_x, plain_prev);
    const void *x = guarded_copy(b, SLOT_X, plain_x, x_bytes),
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
        extremes->positive += below(b, 2) << 23; /* of the rest of the row */
    row.scale = dw_scale_of(*extremes, s->bits, s->scale != DW_SCALE_ABSMAX);
    run_encode(specification, s, plain_x, plain_prev, &row, &spec);
    run_encode(b->kernels, s, x, prev, &row, &out);
    same_encoded(&spec, &out, b->kernels->name, describe(s));
}

/* Any codes and any scales: whatever a frame with the right digests can hold. */
static void check_decode(bench *b, const shape *s)
{
    static unsigned char plain_prev[4 * MOST], expected[4 * MOST];
    size_t bytes = s->channels * dw_dtype_bytes(s->prev);
    test_fill(&b->random, plain_prev, s->prev, s->channels, 1);
    if (s->hostile && s->channels) test_spoil(&b->random, plain_prev, s->prev, s->channels, false);
    uint8_t *scales = guarded(b, SLOT_SCALES, 2 * (size_t)s->pieces),
            *codes = guarded(b, SLOT_CODES, code_bytes_of(s));
    if (s->hostile < 2) /* mostly scales that occur */
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
    run.past = (int)below(b, 2); /* out lies at the beginning of a page, or anywhere */
    if (!run.past && below(b, 2)) run.sum = &sums[0];
    specification->decode(&run);
    if (s->has_prev) run.prev = guarded_copy(b, SLOT_PREV, plain_prev, bytes);
    run.out = out;
    if (run.sum) run.sum = &sums[1];
    b->kernels->decode(&run);
    if (run.past) b->kernels->stream(out, out, 0, 1);
    same_bytes("decoded", expected, out, bytes, b->kernels->name, describe(s));
    same_bytes("digest", &sums[0], &sums[1], sizeof sums[0], b->kernels->name, describe(s));
}

/* ---- Tests ----------------------------------------------------------------------------------- */

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

static void encodes_every_kind_of_run_as_c_does(bench *b)
{
    check_every_kind(b, check_encode, drawn(b, 8, 1));
}

static void decodes_any_bytes_as_c_does(bench *b)
{
    check_every_kind(b, check_decode, drawn(b, 5, 1));
}

static void takes_every_size_up_to_300(bench *b)
{
    for (uint64_t n = 0; n <= 300; n++)
        for (int w = (int)(n % (uint64_t)b->share); w < WIDTHS; w += b->share) {
            shape s = shape_of(b, any_dtype(b), any_dtype(b), 1 + below(b, 8), widths[w], n);
            check_encode(b, &s);
            check_decode(b, &s);
        }
}

static void finds_the_extremes_that_c_finds(bench *b)
{
    static unsigned char x[4 * MOST], prev[4 * MOST];
    for (int round = 0; round < drawn(b, 4000, 600); round++) {
        shape s = {.x = any_dtype(b),
                   .prev = any_dtype(b),
                   .has_prev = below(b, 2) != 0,
                   .width = 64,
                   .bits = 4,
                   .hostile = (int)below(b, 3),
                   .channels = round < 600 ? (uint64_t)round / 2 : below(b, MOST)};
        fill_run(b, &s, x, prev);
        dw_candidates expected = {{below(b, 2), 0}, {0, below(b, 2)}}, found = expected;
        const void *odd = guarded_copy(b, SLOT_X, x, s.channels * dw_dtype_bytes(s.x));
        const void *base =
            s.has_prev ? guarded_copy(b, SLOT_PREV, prev, s.channels * dw_dtype_bytes(s.prev))
                       : NULL;
        dw_dtype prev_dtype = base ? s.prev : (dw_dtype)0;
        specification->extremes(odd, s.x, base, prev_dtype, s.channels, &expected);
        b->kernels->extremes(odd, s.x, base, prev_dtype, s.channels, &found);
        same_bytes("extremes", &expected, &found, sizeof found, b->kernels->name, describe(&s));
    }
}

/* Attempts of any piece, over any number of elements. */
static void searches_scales_as_c_does(bench *b)
{
    static unsigned char x[4 * MOST], prev[4 * MOST];
    for (int round = 0; round < drawn(b, 4000, 600); round++) {
        uint64_t n = round < 600 ? (uint64_t)round / 2 : below(b, MOST);
        shape s = {.x = any_dtype(b),
                   .prev = any_dtype(b),
                   .has_prev = below(b, 2) != 0,
                   .width = 64,
                   .bits = 1 + below(b, 8),
                   .channels = n};
        fill_run(b, &s, x, prev);
        dw_attempts attempts = dw_attempts_of(
            (dw_extremes){0x3f800000u + below(b, 1 << 24), below(b, 0x40000000)}, s.bits);
        float expected[DW_ATTEMPTS][DW_NORM_LANES], found[DW_ATTEMPTS][DW_NORM_LANES];
        for (int k = 0; k < DW_ATTEMPTS; k++)
            for (int i = 0; i < DW_NORM_LANES; i++)
                expected[k][i] = found[k][i] = (float)below(b, 100) * 0.1f;
        const void *odd = guarded_copy(b, SLOT_X, x, n * dw_dtype_bytes(s.x));
        const void *base =
            s.has_prev ? guarded_copy(b, SLOT_PREV, prev, n * dw_dtype_bytes(s.prev)) : NULL;
        specification->squares(odd, s.x, base, s.prev, n, s.bits, &attempts, expected);
        b->kernels->squares(odd, s.x, base, s.prev, n, s.bits, &attempts, found);
        same_bytes("squares", expected, found, sizeof found, b->kernels->name, describe(&s));
    }
}

/* Columns of every sort: alive, flat, poisoned, direct. Scales that fit what the row holds, or a
 * little less. */
static void fill_columns(bench *b, const shape *s, const void *x, const void *prev,
                         dw_columns *columns)
{
    static const float parts[] = {1, 1, 0.3f, 2};
    memset(columns, 0, sizeof *columns);
    columns->n = (uint32_t)s->channels;
    columns->stored = (columns->n + 31) / 32 * 32;
    for (uint32_t i = 0; i < columns->n; i++) {
        columns->base_mask[i] = below(b, 4) ? ~0u : 0;
        float base = s->has_prev && columns->base_mask[i] ? test_get(prev, s->prev, i) : 0.0f;
        float delta = (test_get(x, s->x, i) - base) * parts[below(b, 4)];
        uint32_t bits = dw_bits_of(delta);
        dw_extremes extremes = {bits >> 31 ? 0 : bits, bits >> 31 ? bits & 0x7fffffff : 0};
        uint16_t scale = below(b, 8) ? dw_scale_of(extremes, s->bits, (int)below(b, 2)) : 0;
        columns->keep_mask[i] = dw_scale_is_poisoned(scale) ? ~0u : 0;
        columns->scale[i] = dw_scale_is_flat(scale) ? 0.0f : dw_bf16_widen(scale);
        columns->inverse[i] = dw_scale_inverse(scale);
    }
}

/* Both tables on one row: reads what lies at guards, writes codes and new values at guards. */
static void check_columns(bench *b, const shape *s, dw_column_run *run, dw_columns *columns)
{
    static unsigned char x[4 * MOST], prev[4 * MOST], expected_out[4 * MOST],
        expected_codes[4 * MOST];
    fill_run(b, s, x, prev);
    fill_columns(b, s, x, prev, columns);
    uint32_t n = columns->n;
    run->first = 32 * below(b, 8);
    run->tile_elements = run->first + columns->stored + 32 * below(b, 3);
    size_t code_bytes = (size_t)run->tile_elements * s->bits / 8,
           out_bytes = n * dw_dtype_bytes(s->prev);
    const char *table = b->kernels->name, *text = describe(s);
    run->x = guarded_copy(b, SLOT_X, x, n * dw_dtype_bytes(s->x));
    run->prev = s->has_prev ? guarded_copy(b, SLOT_PREV, prev, n * dw_dtype_bytes(s->prev)) : NULL;
    uint8_t *codes = guarded(b, SLOT_CODES, code_bytes);
    void *out = guarded(b, SLOT_NEXT, out_bytes);
    memcpy(expected_codes, codes, code_bytes);
    memcpy(expected_out, out, out_bytes);
    dw_column_run spec = *run;
    spec.codes = expected_codes, run->codes = codes;
    spec.out = s->has_next ? expected_out : NULL, run->out = s->has_next ? out : NULL;
    specification->encode_columns(&spec);
    b->kernels->encode_columns(run);
    same_bytes("codes of columns", expected_codes, codes, code_bytes, table, text);
    same_bytes("next of columns", expected_out, out, out_bytes, table, text);
    random_bytes(b, codes, code_bytes);
    spec.codes = codes;
    spec.out = expected_out, run->out = out;
    spec.x_dtype = run->x_dtype = s->prev;
    spec.poison_keeps = run->poison_keeps = (int)below(b, 2);
    specification->decode_columns(&spec);
    b->kernels->decode_columns(run);
    same_bytes("decoded columns", expected_out, out, out_bytes, table, text);
}

static void codes_columns_as_c_does(bench *b)
{
    static dw_columns columns;
    static dw_column_extremes extremes[2];
    static dw_column_squares squares[2];
    for (int round = 0; round < drawn(b, 6000, 256); round++) {
        uint32_t n = round < 2560 ? 1 + (uint32_t)round % 256 : 1 + below(b, 256);
        shape s = shape_of(b, any_dtype(b), any_dtype(b), 1 + below(b, 8), 256, n);
        dw_column_run run = {.x_dtype = s.x,
                             .prev_dtype = s.prev,
                             .bits = s.bits,
                             .columns = &columns,
                             .poison_keeps = 1,
                             .dither = s.dithers ? &s.dither : NULL};
        check_columns(b, &s, &run, &columns);
        run.x_dtype = s.x;
        memset(extremes, 0, sizeof extremes), memset(squares, 0, sizeof squares);
        for (uint32_t i = 0; i < n; i++) {
            extremes[0].delta_positive[i] = extremes[1].delta_positive[i] = below(b, 0x40000000);
            for (int k = 0; k < DW_ATTEMPTS; k++)
                squares[0].inverse[k][i] = squares[1].inverse[k][i] = (float)(1 + below(b, 100));
        }
        specification->column_extremes(&run, &extremes[0]);
        b->kernels->column_extremes(&run, &extremes[1]);
        for (uint32_t i = 0; i < n; i++)
            assert_true(extremes[0].delta_positive[i] == extremes[1].delta_positive[i] &&
                        extremes[0].delta_negative[i] == extremes[1].delta_negative[i] &&
                        extremes[0].direct_positive[i] == extremes[1].direct_positive[i] &&
                        extremes[0].direct_negative[i] == extremes[1].direct_negative[i]);
        if (s.hostile == 2) continue; /* a NaN has more than one pattern */
        specification->column_squares(&run, &squares[0]);
        b->kernels->column_squares(&run, &squares[1]);
        for (int k = 0; k < DW_ATTEMPTS; k++)
            same_bytes("column squares", squares[0].sum[k], squares[1].sum[k], n * sizeof(float),
                       b->kernels->name, describe(&s));
    }
}

static void digests_payloads_as_c_does(bench *b)
{
    static uint8_t payload[4096];
    random_bytes(b, payload, sizeof payload);
    for (uint64_t from = 0; from <= 512; from += 16)
        for (uint64_t n = 0; n <= 1024; n += 16) {
            uint8_t *at_guard = slot_place(b->slots[SLOT_X], from + n, true);
            memcpy(at_guard, payload, from + n);
            assert_true(specification->digest_bytes(payload, from, n) ==
                        b->kernels->digest_bytes(at_guard, from, n));
        }
}

/* Every finite half, and binary32 with the bits that decide a rounding set in all ways. */
static void converts_as_c_does(bench *b)
{
    static unsigned char from[4 * MOST], expected[4 * MOST];
    for (int round = 0; round < drawn(b, 4000, 600); round++) {
        dw_dtype a = any_dtype(b), c = any_dtype(b);
        size_t n = round < 600 ? (size_t)round / 2 : below(b, MOST);
        random_bytes(b, from, sizeof from);
        for (size_t i = 0; i < n; i++) {
            if (a == DW_F32 && below(b, 2)) { /* a tie, or next to one, of f16 or bf16 */
                uint32_t bits =
                    (uint32_t)test_next(&b->random) & (below(b, 2) ? 0xfffff000u : 0xffff8000u);
                bits += below(b, 3) - 1u;
                if (below(b, 2))
                    bits = (bits & 0x80ffffffu) | (0x38000000u - below(b, 16) * 0x800000u);
                memcpy(from + 4 * i, &bits, 4);
            }
            if (!isfinite(test_get(from, a, i)))
                test_set(from, a, i, below(b, 2) ? FLT_MAX / 65536 : -0.0f);
            if (!isfinite(test_get(from, a, i))) test_set(from, a, i, 65504.0f);
        }
        const void *odd = guarded_copy(b, SLOT_X, from, n * dw_dtype_bytes(a));
        void *to = guarded(b, SLOT_NEXT, n * dw_dtype_bytes(c));
        specification->convert(from, a, expected, c, n);
        b->kernels->convert(odd, a, to, c, n);
        char text[64];
        snprintf(text, sizeof text, "%s to %s, %zu", dtype_names[a], dtype_names[c], n);
        same_bytes("converted", expected, to, n * dw_dtype_bytes(c), b->kernels->name, text);
    }
}

static void digests_as_c_does(bench *b)
{
    enum { SAMPLE = 3 * DW_TILE_ELEMENTS };
    static uint32_t sample[SAMPLE];
    random_bytes(b, sample, sizeof sample);
    for (uint64_t n = 1; n <= DW_TILE_ELEMENTS; n += n < 300 ? 1 : 97)
        for (int d = 0; d < DTYPES; d++)
            for (uint64_t first = 0; first < SAMPLE; first += DW_TILE_ELEMENTS) {
                /* the sample ends with the audited stretch, at a guard */
                size_t bytes = (size_t)(first + n) * dw_dtype_bytes(dtypes[d]);
                if (bytes > SLOT_BYTES) continue;
                void *at_guard = slot_place(b->slots[SLOT_X], bytes, true);
                memcpy(at_guard, sample, bytes);
                size_t skipped = (size_t)first * dw_dtype_bytes(dtypes[d]);
                uint64_t expected =
                    specification->digest((unsigned char *)sample + skipped, dtypes[d], first, n);
                uint64_t found =
                    b->kernels->digest((unsigned char *)at_guard + skipped, dtypes[d], first, n);
                assert_true(found == expected);
            }
}

static void streams_every_byte_and_no_more(bench *b)
{
    static unsigned char from[8192];
    for (size_t n = 0; n <= 600; n++) {
        random_bytes(b, from, n);
        unsigned char *to = b->slots[SLOT_NEXT].end - (n + 63) / 64 * 64;
        memset(to, 0, (size_t)(b->slots[SLOT_NEXT].end - to));
        b->kernels->stream(to, guarded_copy(b, SLOT_X, from, n), n, n % 2 == 0);
        same_bytes("streamed", from, to, n, b->kernels->name, "");
        for (unsigned char *rest = to + n; rest < b->slots[SLOT_NEXT].end; rest++)
            assert_int_equal(*rest, 0);
    }
}

static void sums_squares_as_c_does(bench *b)
{
    static unsigned char x[4 * MOST], base[4 * MOST], back[4 * MOST];
    for (int round = 0; round < drawn(b, 3000, 600); round++) {
        shape s = {.x = any_dtype(b),
                   .prev = any_dtype(b),
                   .has_prev = below(b, 2) != 0,
                   .width = 64,
                   .bits = 4,
                   .hostile = (int)below(b, 3),
                   .channels = round < 600 ? (uint64_t)round / 2 : below(b, MOST)};
        dw_dtype back_dtype = any_dtype(b);
        fill_run(b, &s, x, base);
        test_fill(&b->random, back, back_dtype, s.channels, 1);
        if (s.hostile && s.channels) test_spoil(&b->random, back, back_dtype, s.channels, false);
        dw_norms expected = {1, 2, 3}, found = expected;
        dw_norms_run run = {
            .x = guarded_copy(b, SLOT_X, x, s.channels * dw_dtype_bytes(s.x)),
            .x_dtype = s.x,
            .base = s.has_prev
                        ? guarded_copy(b, SLOT_PREV, base, s.channels * dw_dtype_bytes(s.prev))
                        : NULL,
            .base_dtype = s.prev,
            .back = guarded_copy(b, SLOT_NEXT, back, s.channels * dw_dtype_bytes(back_dtype)),
            .back_dtype = back_dtype,
            .n = s.channels};
        specification->norms(&run, &expected);
        b->kernels->norms(&run, &found);
        same_bytes("norms", &expected, &found, sizeof found, b->kernels->name, describe(&s));
    }
}

/* Any bits at all, sums next to ties, products that are rounded away, ends of the numbers. */
static void fill_sums(bench *b, float *from, void *to, dw_dtype dtype, size_t n)
{
    float sizes[] = {1, 1e-3f, 3e4f, 1e-38f, 0x1p125f};
    random_bytes(b, from, n * sizeof *from);
    random_bytes(b, to, n * dw_dtype_bytes(dtype));
    if (below(b, 3) == 0 || n == 0) return;
    test_fill(&b->random, from, DW_F32, n, sizes[below(b, 5)]);
    test_fill(&b->random, to, dtype, n, sizes[below(b, 5)]);
    if (below(b, 2)) test_spoil(&b->random, from, DW_F32, n, below(b, 2) != 0);
    if (below(b, 2)) test_spoil(&b->random, to, dtype, n, below(b, 2) != 0);
}

static float any_factor(bench *b)
{
    float factors[] = {1, -1, 0.5f, 1.0f / 3, -3.1f, 0, -0.0f, 0x1p-140f, FLT_MAX, INFINITY, NAN};
    uint32_t bits = (uint32_t)test_next(&b->random);
    return below(b, 4) ? factors[below(b, sizeof factors / sizeof *factors)] : dw_float_of(bits);
}

/* One element by the definition; volatile keeps compilers from joining the steps. */
static uint32_t sum_by_definition(float from, float factor, float old, dw_dtype dtype)
{
    volatile float product = factor * from;
    volatile float sum = old + product;
    if (isnan(sum)) return dtype == DW_F32 ? 0x7fc00000 : dtype == DW_F16 ? 0x7e00 : 0x7fc0;
    return dtype == DW_F32   ? dw_bits_of(sum)
           : dtype == DW_F16 ? dw_f16_round(sum)
                             : dw_bf16_round(sum);
}

static void adds_in_steps_that_are_rounded_each(bench *b)
{
    static float from[MOST];
    static unsigned char to[4 * MOST], before[4 * MOST];
    for (int round = 0; round < drawn(b, 4000, 900); round++) {
        dw_dtype dtype = dtypes[round % 3];
        size_t n = round < 900 ? (size_t)round / 3 : below(b, MOST), size = dw_dtype_bytes(dtype);
        float factor = any_factor(b);
        fill_sums(b, from, to, dtype, n);
        memcpy(before, to, n * size);
        void *odd = guarded_copy(b, SLOT_NEXT, to, n * size);
        specification->add(from, factor, to, dtype, n);
        b->kernels->add(guarded_copy(b, SLOT_X, from, n * sizeof *from), factor, odd, dtype, n);
        char text[64];
        snprintf(text, sizeof text, "%s, factor %a, %zu", dtype_names[dtype], (double)factor, n);
        same_bytes("sums", to, odd, n * size, b->kernels->name, text);
        for (size_t i = 0; i < n; i++) {
            uint32_t bits = 0;
            memcpy(&bits, to + i * size, size); /* of a little-endian machine, as all tables are */
            assert_int_equal(bits,
                             sum_by_definition(from[i], factor, test_get(before, dtype, i), dtype));
        }
    }
}

/* Three frames of one key by a pair that uses one table; the decoder gets the other's. */
typedef struct journey {
    test_pair pair;
    void *frames[3];
    size_t lens[3];
} journey;

static void travel(journey *j, const char *config, const dw_tensor *x, const dw_kernels *encodes,
                   const dw_kernels *decodes)
{
    dw_key key = {3, 0};
    dw_tensor y = *x;
    y.data = NULL;
    test_pair_open(&j->pair, config, 1, x->t, x->c, x->dtype);
    dw_encoder_use(j->pair.encoder, encodes);
    dw_decoder_use(j->pair.decoder, decodes);
    for (int i = 0; i < 3; i++) {
        dw_tensor now = *x;
        /* x moves along by an element a visit. */
        now.data = (unsigned char *)x->data + (size_t)i * dw_dtype_bytes(x->dtype);
        test_pair_encode(&j->pair, &key, &now);
        j->lens[i] = j->pair.len;
        j->frames[i] = malloc(j->pair.len);
        assert_non_null(j->frames[i]);
        memcpy(j->frames[i], j->pair.frame, j->pair.len);
        assert_int_equal(test_pair_decode(&j->pair, &y), DW_OK);
        test_pair_feedback(&j->pair);
        test_pair_in_step(&j->pair, key);
    }
    /* A duplicate makes the decoder digest what it holds anew: it must be what was digested on its
     * way to memory. */
    dw_reply_info reply = {.struct_size = sizeof reply};
    assert_int_equal(test_pair_decode(&j->pair, &y), DW_ERR_STALE);
    assert_int_equal(dw_reply_read(j->pair.reply, j->pair.reply_len, &reply, NULL), DW_OK);
    assert_true(reply.accepted);
}

static void arrive(journey *j)
{
    for (int i = 0; i < 3; i++) free(j->frames[i]);
    test_pair_close(&j->pair);
}

/* The last shapes are larger than what goes past the caches. */
static void makes_the_frames_that_c_makes(bench *b)
{
    static const struct {
        const char *config;
        uint32_t t, c;
        dw_dtype x;
    } cases[] = {
        {"delta:bits=4,incarnation=7", 9, 1000, DW_F32},
        {"delta:bits=3,group=row,incarnation=7,audit=2", 5, 4100, DW_BF16},
        {"delta:bits=5,group=32,scale=signed,prev=f16,incarnation=7", 7, 2048, DW_F16},
        {"delta:bits=3,group=channel,scale=mse,incarnation=7", 9, 2100, DW_BF16},
        {"delta:bits=1,rounding=stochastic,incarnation=7", 9, 1000, DW_F32},
        {"delta:bits=2,group=row,scale=mse,rounding=stochastic,incarnation=7", 5, 4100, DW_F32},
        {"delta:bits=4,choose=never,incarnation=7", 4099, 2112, DW_F32},
        {"delta:bits=4,group=row,incarnation=7", 4001, 2112, DW_F32},
        {"delta:bits=2,group=row,prev=bf16,incarnation=7,audit=3", 4100, 4096, DW_F32},
    };
    size_t small = 6, all = sizeof cases / sizeof *cases;
    for (size_t i = 0; i < (b->share > 1 ? small : all); i++) {
        size_t n = (size_t)cases[i].t * cases[i].c + 3;
        void *data = malloc(n * dw_dtype_bytes(cases[i].x));
        assert_non_null(data);
        test_fill(&b->random, data, cases[i].x, n < 40000 ? n : 40000, 1);
        size_t filled = (n < 40000 ? n : 40000) * dw_dtype_bytes(cases[i].x),
               bytes = n * dw_dtype_bytes(cases[i].x);
        for (size_t at = filled; at < bytes; at += filled)
            memcpy((unsigned char *)data + at, data, bytes - at < filled ? bytes - at : filled);
        dw_tensor x = dw_tensor_3d(data, cases[i].x, 1, cases[i].t, cases[i].c);
        journey expected, found;
        travel(&expected, cases[i].config, &x, specification, b->kernels);
        travel(&found, cases[i].config, &x, b->kernels, specification);
        for (int k = 0; k < 3; k++) {
            assert_int_equal(expected.lens[k], found.lens[k]);
            same_bytes("frame", expected.frames[k], found.frames[k], found.lens[k],
                       b->kernels->name, cases[i].config);
        }
        dw_counters a = test_encoder_counters(expected.pair.encoder),
                    c = test_encoder_counters(found.pair.encoder);
        if (!strstr(cases[i].config, "bits=2") && !strstr(cases[i].config, "bits=1"))
            assert_true(a.error_square < 0.25 * a.x_square);
        same_bytes("counters", &a, &c, sizeof a, b->kernels->name, cases[i].config);
        arrive(&expected);
        arrive(&found);
        free(data);
    }
}

/* A sample of a decoder without state, by both tables: to the same bytes of y, and the same bytes
 * between its rows. skew: bytes from a page to y. */
typedef struct large {
    uint32_t bits, group, t, c;
    dw_dtype y;
    uint32_t gap, skew;
} large;

static void decode_large(const dw_kernels *kernels, const large *l, const uint8_t *payload,
                         unsigned char *memory, size_t bytes)
{
    dw_decode_job job = {.kernels = kernels,
                         .payload = payload,
                         .y = memory + l->skew,
                         .y_dtype = l->y,
                         .stride = (int64_t)l->c + l->gap};
    assert_true(dw_layout_make(&job.layout, l->t, l->c, l->bits, l->group, false));
    memset(memory, 0x55, bytes);
    for (uint64_t chunk = 0; chunk < dw_layout_chunks(&job.layout); chunk++) {
        dw_chunk_result unused;
        dw_form_quantized.decode(&job, chunk, &unused);
    }
}

static void decodes_what_no_cache_holds_as_c_does(bench *b)
{
    static const large cases[] = {
        {4, 64, 4200, 1000, DW_F32, 0, 0},
        {4, 64, 4100, 1024, DW_F32, 0, 0},
        {4, 64, 4100, 1024, DW_BF16, 1024, 0},
        {4, 64, 4100, 2048, DW_BF16, 0, 2},
        {3, 16, 4100, 2048, DW_BF16, 0, 0},
        {2, 128, 4100, 1024, DW_F32, 16, 64},
        {5, 32, 4100, 1025, DW_F32, 15, 0},
        {4, 64, 4100, 2048, DW_F16, 0, 0},
        {8, DW_LAYOUT_ROW, 1030, 4100, DW_F32, 0, 4},
        {1, DW_LAYOUT_CHANNEL, 2100, 2048, DW_F32, 0, 0},
    };
    size_t all = sizeof cases / sizeof *cases;
    for (size_t i = 0; i < (b->share > 1 ? 2 : all); i++) {
        const large *l = &cases[i];
        dw_layout layout;
        assert_true(dw_layout_make(&layout, l->t, l->c, l->bits, l->group, false));
        size_t bytes = (size_t)l->t * (l->c + l->gap) * dw_dtype_bytes(l->y) + 4096;
        unsigned char *memory[2];
        uint8_t *payload = malloc(layout.payload_bytes);
        assert_non_null(payload);
        random_bytes(b, payload, layout.payload_bytes); /* one scale in 256 is poisoned */
        for (int k = 0; k < 2; k++) {
            memory[k] = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
            assert_non_null(memory[k]);
            decode_large(k ? b->kernels : specification, l, payload, memory[k], bytes);
        }
        char text[64];
        snprintf(text, sizeof text, "case %zu", i);
        same_bytes("large", memory[0], memory[1], bytes, b->kernels->name, text);
        free(memory[0]);
        free(memory[1]);
        free(payload);
    }
}

/* Of all that the processor has and the mask allows, the widest. */
static const char *best_of(uint32_t features)
{
    const char *best = "c";
    for (int i = 0; i < KERNEL_TABLES; i++)
        if (features & kernel_tables[i].needs) best = kernel_tables[i].name;
    return best;
}

/* Its state: the table that must be the best one here, if the caller knows. */
static void the_ladder_takes_what_the_mask_allows(void **state)
{
    const char *expected = *state;
    uint32_t features = dw_cpu_features();
    for (uint32_t mask = 0; mask < 8; mask++)
        assert_string_equal(dw_kernels_choose(mask)->name, best_of(features & mask));
    assert_string_equal(dw_kernels_choose(~0u)->name, best_of(features));
    if (expected) assert_string_equal(dw_kernels_choose(~0u)->name, expected);
    assert_ptr_equal(dw_kernels_find("c"), &dw_kernels_c);
    assert_null(dw_kernels_find("no such table"));
    for (int i = 0; i < KERNEL_TABLES; i++) {
        bool is_found = dw_kernels_find(kernel_tables[i].name) != NULL;
        assert_true(is_found == ((features & kernel_tables[i].needs) != 0));
    }
}

/* What a mask leaves must make the same bytes, whoever is at the other end. */
static void every_mask_makes_the_same_frames(void **state)
{
    static float data[9 * 1000 + 3];
    test_random random = {test_seed()};
    (void)state;
    test_fill(&random, data, DW_F32, sizeof data / sizeof *data, 1);
    dw_tensor x = dw_tensor_3d(data, DW_F32, 1, 9, 1000);
    journey expected;
    travel(&expected, "delta:bits=4,incarnation=7", &x, specification, specification);
    for (uint32_t out = 0; out < 8; out++)
        for (uint32_t in = 0; in < 8; in++) {
            journey found;
            travel(&found, "delta:bits=4,incarnation=7", &x, dw_kernels_choose(out),
                   dw_kernels_choose(in));
            for (int k = 0; k < 3; k++) {
                assert_int_equal(found.lens[k], expected.lens[k]);
                same_bytes("frame", expected.frames[k], found.frames[k], found.lens[k],
                           dw_kernels_choose(out)->name, "masks");
            }
            arrive(&found);
        }
    arrive(&expected);
}

int main(int argc, char **argv)
{
    char *best = NULL;
    if (!test_can_run()) return 77;
    if (!kernel_rig_read(argc, argv, &best)) return 2;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(the_ladder_takes_what_the_mask_allows, best),
        kernel_test(for_each_table, encodes_every_kind_of_run_as_c_does),
        kernel_test(for_each_table, decodes_any_bytes_as_c_does),
        kernel_test(for_each_table, decodes_what_no_cache_holds_as_c_does),
        kernel_test(for_each_table, takes_every_size_up_to_300),
        kernel_test(for_each_table, finds_the_extremes_that_c_finds),
        kernel_test(for_each_table, searches_scales_as_c_does),
        kernel_test(for_each_table, codes_columns_as_c_does),
        kernel_test(for_each_table, digests_payloads_as_c_does),
        kernel_test(for_each_table, converts_as_c_does),
        kernel_test(for_each_table, digests_as_c_does),
        kernel_test(for_each_table, streams_every_byte_and_no_more),
        kernel_test(for_each_table, makes_the_frames_that_c_makes),
        cmocka_unit_test(every_mask_makes_the_same_frames),
        kernel_test(for_each_table, sums_squares_as_c_does),
        kernel_test(for_each_table, adds_in_steps_that_are_rounded_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
