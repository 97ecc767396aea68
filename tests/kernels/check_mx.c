/* SPDX-License-Identifier: Apache-2.0
 * check_mx.c - tests the microscaling kernels. The C kernels are compared with a slow model of the
 * format. Those of every other table that this processor can run are compared with the C kernels,
 * byte by byte.
 *
 * check_mx [--share N]: only one in N of the random draws, for emulated processors. */
#include <float.h>

#include "arithmetic/pack.h"
#include "kernel_rig.h"
#include "support/mx_model.h"

enum { BLOCKS = DW_TILE_ELEMENTS / DW_MX_BLOCK };

/* ---- Shapes and values ----------------------------------------------------------------------- */

typedef struct shape {
    dw_dtype x, prev;
    dw_element element;
    bool has_prev, has_next, chooses;
    uint32_t blocks, tile_blocks, first;
    uint64_t channels, first_piece;
} shape;

static const char *describe(const shape *s)
{
    static char text[256];
    snprintf(text, sizeof text, "%s x %s prev %s%s%s channels %lu of tile %u from %u, choice %d",
             mx_models[s->element].name, dtype_names[s->x], dtype_names[s->prev],
             s->has_prev ? "" : " (none)", s->has_next ? "" : " (no state)",
             (unsigned long)s->channels, (unsigned)s->tile_blocks, (unsigned)s->first, s->chooses);
    return text;
}

/* Draws a run of blocks somewhere in a tile; the rest of the tile must not be changed. */
static shape shape_of(bench *b, dw_dtype x, dw_dtype prev, dw_element element, uint64_t channels)
{
    shape s = {.x = x, .prev = prev, .element = element, .channels = channels};
    s.blocks = (uint32_t)((channels + DW_MX_BLOCK - 1) / DW_MX_BLOCK);
    uint32_t spare = BLOCKS - s.blocks;
    s.first = below(b, spare + 1);
    s.tile_blocks = s.first + s.blocks + below(b, spare - s.first + 1);
    s.first_piece = below(b, 100) + s.first;
    s.has_next = below(b, 4) != 0;
    s.has_prev = s.has_next && below(b, 4) != 0;
    s.chooses = s.has_prev && below(b, 2) != 0;
    return s;
}

static size_t choice_bytes_of(const shape *s)
{
    return (size_t)(s->first_piece + s->blocks + 7) / 8;
}

static size_t code_bytes_of(const shape *s)
{
    return (size_t)s->tile_blocks * DW_MX_BLOCK * (size_t)mx_models[s->element].bits / 8;
}

static float float_of(uint32_t bits)
{
    return dw_float_of(bits);
}

/* How the elements of one block are chosen. */
typedef struct mood {
    uint32_t kind, exponent, at; /* at: the place of the element that differs from the others */
} mood;

enum { ZERO, SAME, WIDE, TIES, LOW, HIGH, BRIM, POISON, NEAR, MOODS };

static float value_of(bench *b, const mx_model *model, mood m, uint32_t i, float base)
{
    uint32_t random = (uint32_t)test_next(&b->random), sign = random & 0x80000000u;
    switch (m.kind) {
    case ZERO: return float_of(sign);
    case SAME: return base;
    case WIDE: { /* exponents up to the given one */
        uint32_t drop = random >> 24 & 31, exponent = m.exponent > drop ? m.exponent - drop : 0;
        return float_of(sign | exponent << 23 | (random & 0x7fffffu));
    }
    case TIES: { /* elements, ties between them, and their neighbours */
        int code = (int)below(b, (uint32_t)model->last + 1);
        double low = mx_model_magnitude(model, code), high = mx_model_magnitude(model, code + 1);
        float value =
            (float)ldexp(below(b, 2) ? low : (low + high) / 2, (int)m.exponent - 127 - model->top);
        if (below(b, 2)) value = nextafterf(value, below(b, 2) ? FLT_MAX : 0);
        return sign ? -value : value;
    }
    case LOW: return float_of(sign | (random & (0x0fffffffu >> (m.exponent % 28))));
    case HIGH: return float_of(sign | (0xfcu + below(b, 3)) << 23 | (random & 0x7fffffu));
    case BRIM: /* x is the largest number, prev a little less: base + change can overflow */
        if (base == 0.0f) return float_of(sign | 0x7f000000u | (random & 0x7fffffu));
        return float_of((dw_bits_of(base) & 0x80000000u) |
                        (below(b, 2) ? 0x7f7fffffu : 0x7f7f0000u));
    case POISON:
        if (i == m.at) return float_of(sign | 0x7f800000u | (below(b, 2) ? random & 0x7fffffu : 0));
        return base;
    default: return base + test_normal(&b->random) * 0.01f;
    }
}

/* For f16, exponents that f16 can represent are preferred, because most others become infinity. */
static void fill_run(bench *b, const shape *s, void *x, void *prev)
{
    mood m = {0, 0, 0}, held = m;
    const mx_model *model = &mx_models[s->element];
    for (uint64_t i = 0; i < s->channels; i++) {
        if (i % DW_MX_BLOCK == 0) {
            m = (mood){below(b, MOODS), below(b, 255), below(b, DW_MX_BLOCK)};
            held = (mood){below(b, 2) ? ZERO : below(b, 8) ? NEAR : WIDE, below(b, 254), 0};
            if (m.kind == BRIM) held.kind = BRIM;
            if (s->x == DW_F16 && below(b, 4)) m.exponent = 100 + below(b, 42);
        }
        test_set(prev, s->prev, i, value_of(b, model, held, 0, 0));
        if (!isfinite(test_get(prev, s->prev, i))) test_set(prev, s->prev, i, -1.0f);
        float base = s->has_prev ? test_get(prev, s->prev, i) : 0.0f;
        test_set(x, s->x, i, value_of(b, model, m, i % DW_MX_BLOCK, base));
    }
}

/* ---- Encode ---------------------------------------------------------------------------------- */

static dw_mx_encode_run encode_run(const shape *s, const void *x, const void *prev, encoded *out)
{
    return (dw_mx_encode_run){.x_dtype = s->x,
                              .prev_dtype = s->has_next ? s->prev : (dw_dtype)0,
                              .element = s->element,
                              .blocks = s->blocks,
                              .channels = s->channels,
                              .x = x,
                              .prev = s->has_prev ? prev : NULL,
                              .next = s->has_next ? out->next : NULL,
                              .scales = out->scales,
                              .choices = s->chooses ? out->choices : NULL,
                              .codes = out->codes,
                              .first_piece = s->first_piece,
                              .tile_elements = s->tile_blocks * DW_MX_BLOCK,
                              .first = s->first * DW_MX_BLOCK,
                              .counts = &out->counts};
}

/* base + value, rounded to dtype, where value may be infinite. Double has more than twice the
 * digits of binary32, so that rounding from double to binary32 gives the same as rounding the exact
 * sum. */
static float model_sum(float base, double value, dw_dtype dtype)
{
    float sum = dw_f32_finite((float)((double)base + (double)(float)value));
    if (dtype == DW_F16) return dw_f16_widen(dw_f16_finite(sum));
    return dtype == DW_BF16 ? dw_bf16_widen(dw_bf16_finite(sum)) : sum;
}

/* Encodes one block as docs/format.md says. Returns its scale, and stores the codes and, if
 * has_next is set, the new prev. */
static int model_block(const shape *s, const float *x, const float *base, uint32_t n, int *direct,
                       uint8_t codes[DW_MX_BLOCK], float next[DW_MX_BLOCK])
{
    const mx_model *model = &mx_models[s->element];
    double most[2] = {0, 0}, delta[DW_MX_BLOCK];
    int poisoned[2] = {0, 0};
    memset(codes, 0, DW_MX_BLOCK);
    for (uint32_t i = 0; i < n; i++) {
        float d = (float)((double)x[i] - (double)base[i]), both[2] = {d, x[i]};
        for (int k = 0; k < 2; k++) {
            if (!isfinite(both[k])) poisoned[k] = 1;
            if (isfinite(both[k])) most[k] = fmax(most[k], fabs((double)both[k]));
        }
        next[i] = base[i];
    }
    *direct = s->chooses && (poisoned[1] < poisoned[0] || (!poisoned[0] && most[1] < most[0]));
    if (poisoned[*direct]) return DW_MX_POISONED;
    int scale = mx_model_scale(model, most[*direct]);
    for (uint32_t i = 0; i < n; i++) {
        float from = *direct ? 0.0f : base[i];
        delta[i] = (double)(float)((double)x[i] - (double)from);
        codes[i] = (uint8_t)mx_model_code(model, ldexp(delta[i], 127 - scale));
        double value = ldexp(mx_model_value(model, codes[i]), scale - 127);
        if (s->has_next) next[i] = model_sum(from, value, s->prev);
    }
    return scale;
}

static void model_encode(const shape *s, const void *x, const void *prev, encoded *out)
{
    for (uint32_t block = 0; block < s->blocks; block++) {
        float wide[DW_MX_BLOCK], base[DW_MX_BLOCK], next[DW_MX_BLOCK] = {0};
        uint8_t codes[DW_MX_BLOCK];
        uint64_t at = (uint64_t)block * DW_MX_BLOCK, left = s->channels - at;
        uint32_t n = left < DW_MX_BLOCK ? (uint32_t)left : (uint32_t)DW_MX_BLOCK, zeros = 0;
        int direct;
        for (uint32_t i = 0; i < n; i++) {
            wide[i] = test_get(x, s->x, at + i);
            base[i] = s->has_prev ? test_get(prev, s->prev, at + i) : 0.0f;
        }
        int scale = model_block(s, wide, base, n, &direct, codes, next);
        for (uint32_t i = 0; i < n; i++) zeros += wide[i] - (direct ? 0.0f : base[i]) == 0.0f;
        uint64_t bit = s->first_piece + block;
        if (direct) out->choices[bit / 8] = (uint8_t)(out->choices[bit / 8] | 1u << bit % 8);
        out->scales[block] = (uint8_t)scale;
        dw_pack(codes, DW_MX_BLOCK, (uint32_t)mx_models[s->element].bits, out->codes,
                s->tile_blocks * DW_MX_BLOCK, (s->first + block) * DW_MX_BLOCK);
        out->counts.pieces++;
        out->counts.direct += (uint64_t)direct;
        out->counts.zero += zeros == n;
        out->counts.poisoned += scale == DW_MX_POISONED;
        for (uint32_t i = 0; i < n && s->has_next; i++)
            test_set(out->next, s->prev, at + i, next[i]);
    }
}

/* The C kernels are compared with the model, the kernels of other tables with the C kernels. */
static void check_encode(bench *b, const shape *s)
{
    static unsigned char plain_x[4 * MOST], plain_prev[4 * MOST];
    fill_run(b, s, plain_x, plain_prev);
    encoded out = {.scale_bytes = s->blocks,
                   .choice_bytes = choice_bytes_of(s),
                   .code_bytes = code_bytes_of(s),
                   .next_bytes = s->channels * dw_dtype_bytes(s->prev)};
    const void *x = guarded_copy(b, SLOT_X, plain_x, s->channels * dw_dtype_bytes(s->x)),
               *prev = guarded_copy(b, SLOT_PREV, plain_prev, out.next_bytes);
    encoded_place(b, &out);
    for (size_t i = s->first_piece; i < s->first_piece + s->blocks; i++)
        out.choices[i / 8] = (uint8_t)(out.choices[i / 8] & ~(1u << i % 8));
    encoded spec = encoded_twin(&out);
    dw_mx_encode_run run = encode_run(s, x, prev, &out),
                     by_c = encode_run(s, plain_x, plain_prev, &spec);
    if (b->kernels == specification)
        model_encode(s, plain_x, plain_prev, &spec);
    else
        specification->mx_encode(&by_c);
    b->kernels->mx_encode(&run);
    same_encoded(&spec, &out, b->kernels->name, describe(s));
}

/* ---- Decode ---------------------------------------------------------------------------------- */

static void put_nan(void *to, dw_dtype dtype)
{
    uint32_t single = DW_F32_NAN;
    uint16_t half = dtype == DW_F16 ? DW_F16_NAN : DW_BF16_NAN;
    memcpy(to, dtype == DW_F32 ? (void *)&single : (void *)&half, dw_dtype_bytes(dtype));
}

static void model_decode(const shape *s, const dw_mx_decode_run *run)
{
    const mx_model *model = &mx_models[s->element];
    for (uint64_t i = 0; i < s->channels; i++) {
        uint8_t codes[DW_MX_BLOCK];
        uint64_t block = i / DW_MX_BLOCK, bit = s->first_piece + block;
        float held = s->has_prev ? test_get(run->prev, s->prev, i) : 0.0f;
        int scale = run->scales[block],
            direct = s->chooses && (run->choices[bit / 8] >> bit % 8 & 1);
        dw_unpack(codes, DW_MX_BLOCK, (uint32_t)model->bits, run->codes, run->tile_elements,
                  (s->first + block) * DW_MX_BLOCK);
        double value = ldexp(mx_model_value(model, codes[i % DW_MX_BLOCK]), scale - 127);
        float made = model_sum(direct ? 0.0f : held, value, s->prev);
        if (scale == DW_MX_POISONED) made = held;
        test_set(run->out, s->prev, i, made);
        if (scale == DW_MX_POISONED && !run->poison_keeps)
            put_nan((unsigned char *)run->out + i * dw_dtype_bytes(s->prev), s->prev);
    }
    if (run->sum)
        *run->sum += specification->digest(run->out, s->prev, run->element_number, s->channels);
}

static dw_mx_decode_run decode_run(bench *b, const shape *s, const void *prev, void *out)
{
    return (dw_mx_decode_run){.out_dtype = s->prev,
                              .prev_dtype = s->has_prev ? s->prev : (dw_dtype)0,
                              .element = s->element,
                              .blocks = s->blocks,
                              .channels = s->channels,
                              .prev = s->has_prev ? prev : NULL,
                              .out = out,
                              .poison_keeps = s->has_next,
                              .first_piece = s->first_piece,
                              .tile_elements = s->tile_blocks * DW_MX_BLOCK,
                              .first = s->first * DW_MX_BLOCK,
                              .element_number = 4 * (uint64_t)below(b, 1 << 30)};
}

/* Decodes these scales of the blocks and these codes of the tile; if both are NULL, random ones. */
static void check_decode_of(bench *b, const shape *s, const uint8_t *scales, const uint8_t *codes)
{
    static unsigned char plain_prev[4 * MOST], x[4 * MOST], expected[4 * MOST];
    size_t bytes = s->channels * dw_dtype_bytes(s->prev), code_bytes = code_bytes_of(s);
    fill_run(b, s, x, plain_prev);
    void *out = guarded(b, SLOT_NEXT, bytes);
    memcpy(expected, out, bytes);
    dw_mx_decode_run run = decode_run(b, s, plain_prev, expected);
    uint8_t *own = guarded(b, SLOT_SCALES, s->blocks);
    for (uint32_t i = 0; i < s->blocks && scales; i++) own[i] = scales[i];
    for (uint32_t i = 0; i < s->blocks && !scales && below(b, 2); i++)
        own[i] = (uint8_t)(100 + below(b, 60)); /* scales that are common in practice */
    run.scales = own;
    run.choices = s->chooses ? guarded(b, SLOT_CHOICES, choice_bytes_of(s)) : NULL;
    run.codes =
        codes ? guarded_copy(b, SLOT_CODES, codes, code_bytes) : guarded(b, SLOT_CODES, code_bytes);
    uint64_t sums[2] = {s->channels, s->channels};
    bool has_sum = below(b, 2) != 0;
    run.sum = has_sum ? &sums[0] : NULL;
    if (b->kernels == specification)
        model_decode(s, &run);
    else
        specification->mx_decode(&run);
    if (s->has_prev) run.prev = guarded_copy(b, SLOT_PREV, plain_prev, bytes);
    run.out = out;
    run.sum = has_sum ? &sums[1] : NULL;
    b->kernels->mx_decode(&run);
    same_bytes("decoded", expected, out, bytes, b->kernels->name, describe(s));
    same_bytes("digest", &sums[0], &sums[1], sizeof sums[0], b->kernels->name, describe(s));
}

static void check_decode(bench *b, const shape *s)
{
    check_decode_of(b, s, NULL, NULL);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void check_every_kind(bench *b, void (*check)(bench *, const shape *))
{
    int draws = drawn(b, 24, 3);
    for (int x = 0; x < DTYPES; x++)
        for (int prev = 0; prev < DTYPES; prev++)
            for (int element = 1; element <= DW_ELEMENTS; element++)
                for (int draw = 0; draw < draws; draw++) {
                    uint64_t channels = draw == 0 ? DW_TILE_ELEMENTS
                                        : draw == 1
                                            ? DW_TILE_ELEMENTS - 1
                                            : 1 + below(b, draw % 2 ? DW_TILE_ELEMENTS : 200);
                    shape s = shape_of(b, dtypes[x], dtypes[prev], (dw_element)element, channels);
                    check(b, &s);
                }
}

KERNEL_TEST_BY(for_all_tables, encodes_as_specified)
{
    check_every_kind(b, check_encode);
}

KERNEL_TEST_BY(for_all_tables, decodes_as_specified)
{
    check_every_kind(b, check_decode);
}

/* Decodes all codes at all scales. The 256 codes take 8 blocks, so a tile can have 8 scales. */
KERNEL_TEST_BY(for_all_tables, decodes_every_code_at_every_scale)
{
    for (int kind = 0; kind < 3 * 3 * DW_ELEMENTS; kind++) {
        dw_element element = (dw_element)(1 + kind / 9);
        uint8_t all[DW_TILE_ELEMENTS], tile[DW_TILE_ELEMENTS], scales[BLOCKS];
        uint32_t bits = (uint32_t)mx_models[element].bits;
        for (uint32_t i = 0; i < DW_TILE_ELEMENTS; i++) all[i] = (uint8_t)(i & ((1u << bits) - 1));
        dw_pack(all, DW_TILE_ELEMENTS, bits, tile, DW_TILE_ELEMENTS, 0);
        for (uint32_t scale = 0; scale < 256; scale += 8) {
            shape s = {.x = DW_F32,
                       .prev = dtypes[kind % 3],
                       .element = element,
                       .has_prev = kind / 3 % 3 != 0,
                       .has_next = kind / 3 % 3 != 1,
                       .chooses = kind / 3 % 3 == 2,
                       .blocks = BLOCKS,
                       .tile_blocks = BLOCKS,
                       .channels = DW_TILE_ELEMENTS};
            for (uint32_t i = 0; i < BLOCKS; i++) scales[i] = (uint8_t)(scale + i / 8);
            check_decode_of(b, &s, scales, tile);
        }
    }
}

RUN_KERNEL_TESTS
