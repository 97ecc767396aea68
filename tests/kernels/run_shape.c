/* SPDX-License-Identifier: Apache-2.0
 * run_shape.c - draws shapes of runs and fills them. */
#include "run_shape.h"

#include <math.h>

const char *describe(const shape *s)
{
    static char text[256];
    snprintf(text, sizeof text,
             "x %s prev %s%s%s bits %u width %u channels %lu of tile %u from %u, choice %d scale "
             "%d hostile %d row %d dither %d rests %d past %d far %d",
             dtype_names[s->x], dtype_names[s->prev], s->has_prev ? "" : " (none)",
             s->has_next ? "" : " (no state)", (unsigned)s->bits, (unsigned)s->width,
             (unsigned long)s->channels, (unsigned)s->tile_pieces, (unsigned)s->first, s->chooses,
             (int)s->scale, s->hostile, s->whole_row, s->dithers, s->rests, s->past, s->far);
    return text;
}

shape shape_of(bench *b, dw_dtype x, dw_dtype prev, uint32_t bits, uint32_t width,
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
    s.rests = s.has_next && !s.chooses && s.prev == DW_F32 && below(b, 2);
    s.past = s.rests && below(b, 2); /* next may be aligned to a page or not */
    s.far = below(b, 2);
    return s;
}

shape stretch_of(bench *b, int round)
{
    return (shape){.x = any_dtype(b),
                   .prev = any_dtype(b),
                   .has_prev = below(b, 2) != 0,
                   .width = 64,
                   .bits = 4,
                   .hostile = (int)below(b, 3),
                   .channels = round < 600 ? (uint64_t)round / 2 : below(b, MOST)};
}

size_t choice_bytes_of(const shape *s)
{
    return (size_t)(s->first_piece + s->pieces + 7) / 8;
}

size_t code_bytes_of(const shape *s)
{
    return (size_t)s->tile_pieces * s->width * s->bits / 8;
}

void fill_run(bench *b, const shape *s, void *x, void *prev)
{
    size_t n = s->channels;
    float sizes[] = {1, 1, 1e-3f, 1e30f, 1e-30f, 3e4f, 0x1p125f}; /* the last nearly overflows */
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
    if (s->hostile == 2 && s->x == DW_F16 && n) { /* conversions keep the bits of signalling NaN */
        uint16_t *halves = x;
        /* The first and the last pattern are drawn more often. */
        uint32_t payload = below(b, 3) ? below(b, 0x1ff) : below(b, 2) * 0x1fe;
        halves[below(b, (uint32_t)n)] = (uint16_t)(0x7c01 + payload + (below(b, 2) << 15));
    }
}

const void *guarded_x(bench *b, const shape *s, const void *x)
{
    return guarded_copy(b, SLOT_X, x, s->channels * dw_dtype_bytes(s->x));
}

const void *guarded_prev(bench *b, const shape *s, const void *prev)
{
    if (!s->has_prev) return NULL;
    return guarded_copy(b, SLOT_PREV, prev, s->channels * dw_dtype_bytes(s->prev));
}
