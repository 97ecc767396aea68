/* SPDX-License-Identifier: Apache-2.0
 * trellis.c - chooses the codes of a tile along a trellis. */
#include "codecs/trellis.h"

#include <string.h>

enum { ESCAPE = 0x7fc0e5ca /* a NaN that tells an escaped value from padding */ };

void dw_trellis_begin(dw_trellis_tile *tile, bool is_first)
{
    if (is_first) memset(tile->states, 0, sizeof tile->states);
    memset(tile->scaled, 0xff, sizeof tile->scaled); /* NaN */
    memset(tile->lanes, 0, sizeof tile->lanes);
    tile->n = 0;
    tile->escapes = false;
}

void dw_trellis_load(dw_trellis_tile *tile, const dw_kernels *kernels, const dw_trellis_span *span,
                     uint32_t at)
{
    float *to = tile->scaled + at, inverse = dw_step_inverse(span->scale);
    uint32_t largest = 0, limit = dw_bits_of((float)DW_TRELLIS_MOST);
    if (dw_scale_is_poisoned(span->scale)) return;
    kernels->rotate(span->x, span->x_dtype, span->prev, span->prev_dtype, span->n, 1, to);
    for (uint64_t i = 0; i < span->n; i++) to[i] *= inverse;
    uint64_t escapes =
        kernels->step_squares(to, DW_F32, NULL, DW_F32, span->n, limit, tile->lanes, &largest);
    tile->n += span->n - escapes;
    if (escapes == 0) return;
    tile->escapes = true;
    for (uint64_t i = 0; i < span->n; i++)
        if ((dw_bits_of(to[i]) & 0x7fffffffu) > limit) to[i] = dw_float_of(ESCAPE);
}

void dw_trellis_finish(dw_trellis_tile *tile, const dw_kernels *kernels, uint32_t elements,
                       uint8_t *codes)
{
    uint8_t made[DW_TRELLIS_VALUES];
    double mean_square = tile->n ? dw_step_sum(tile->lanes) / (double)tile->n : 0;
    dw_trellis_run run = {.scaled = tile->scaled,
                          .rows = (elements + DW_TRELLIS_LANES - 1) / DW_TRELLIS_LANES,
                          .shrink = tile->frugal ? dw_trellis_shrink(mean_square) : 1,
                          .zero_costs = tile->frugal ? DW_TRELLIS_ZERO_COSTS : 0,
                          .states = tile->states,
                          .codes = made};
    kernels->trellis_encode(&run);
    for (uint32_t i = 0; tile->escapes && i < elements; i++)
        if (dw_bits_of(tile->scaled[i]) == ESCAPE) made[i] = 0;
    memcpy(codes, made, elements);
}
