/* SPDX-License-Identifier: Apache-2.0
 * bulk.c - measures the squares of a tile without its outliers. */
#include "codecs/bulk.h"

#include "codecs/tiles.h"
#include "codecs/weighing.h"

/* Adds the squares of a range to lanes: of what is coded, or of x. With a profile both are divided
 * by the weights of channels. With a rotation only what is coded is rotated, because a rotation of
 * x would change no more than the last digits of its norm. The other parameters and what is
 * returned are those of step_squares. */
static uint64_t add_squares(const dw_encode_job *job, const dw_bulk_range *s, bool of_x,
                            uint32_t limit, double *lanes, uint32_t *largest)
{
    float rotated[DW_TILE_ELEMENTS];
    const void *x = dw_at(job->x, job->x_dtype, of_x ? s->x_at : s->coded_at),
               *prev = of_x ? NULL : dw_at(job->prev, job->prev_dtype, s->element);
    dw_dtype x_dtype = job->x_dtype;
    if (job->layout.weighs) {
        dw_weighing_load(job, of_x ? s->x_at : s->coded_at, s->element, s->n, of_x, rotated);
        x = rotated;
        x_dtype = DW_F32;
        prev = NULL;
    } else if (job->layout.rotates && !of_x) {
        job->kernels->rotate(x, x_dtype, prev, job->prev_dtype, s->n, job->layout.rotates, rotated);
        x = rotated;
        x_dtype = DW_F32;
        prev = NULL;
    }
    return job->kernels->step_squares(x, x_dtype, prev, job->prev_dtype, s->n, limit, lanes,
                                      largest);
}

/* What one pass over a tile has kept. */
typedef struct kept {
    double sum;
    uint64_t left_out;
    uint32_t largest;
} kept;

static kept pass(const dw_encode_job *job, const dw_bulk_tile *tile, bool of_x, uint32_t limit)
{
    double lanes[DW_NORM_LANES] = {0};
    kept k = {0, 0, 0};
    for (uint32_t i = 0; i < tile->count; i++)
        k.left_out += add_squares(job, &tile->of[i], of_x, limit, lanes, &k.largest);
    k.sum = dw_step_sum(lanes);
    return k;
}

/* Returns the sum of the squares of the bulk of a tile (arithmetic/step.h). *largest and
 * *largest_kept become the largest magnitudes, with and without outliers. */
static double bulk_of(const dw_encode_job *job, const dw_bulk_tile *tile, bool of_x,
                      uint32_t *largest, uint32_t *largest_kept)
{
    kept k = pass(job, tile, of_x, DW_NO_LIMIT);
    *largest = k.largest;
    for (int i = 0; i < DW_BULK_PASSES; i++) {
        uint32_t limit = dw_bulk_limit(k.sum, tile->n - k.left_out, k.largest);
        if (limit == DW_NO_LIMIT) break;
        kept less = pass(job, tile, of_x, limit);
        if (!dw_bulk_counts(less.sum, tile->n, less.left_out)) break;
        bool goes_on = dw_bulk_goes_on(k.sum, less.sum);
        k = less;
        if (!goes_on) break;
    }
    *largest_kept = k.largest;
    return dw_bulk_sum(k.sum, tile->n, k.left_out);
}

void dw_bulk_measure(const dw_encode_job *job, const dw_encode_job *coded, dw_bulk_tile *tile,
                     bool needs_x, dw_squares *to)
{
    dw_squares of = {.n = tile->n};
    uint32_t largest_kept, unused;
    if (tile->n == 0) return;
    of.sum = bulk_of(coded, tile, false, &of.largest, &largest_kept);
    of.peak = of.sum / (double)of.n;
    of.least = dw_step_of_tile(of.peak, largest_kept);
    if (needs_x) of.x_sum = bulk_of(job, tile, true, &of.x_largest, &unused);
    dw_squares_add(to, &of);
    dw_bulk_begin(tile);
}
