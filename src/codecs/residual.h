/* SPDX-License-Identifier: Apache-2.0
 * residual.h - error feedback: what an encoder did not send of a key's tensor stays with the
 * encoder, and is added to the key's next tensor. The decoder knows nothing of it.
 *
 * The residual is held with the opposite sign: it is the sum of all y minus the sum of all x, that
 * is, how far the decoder is ahead. Then the forms need nothing new: they code x - prev as they
 * would code a change, and make next = prev + y. Only one step remains, next - x, and that is what
 * this file does, for kernels that do not do it themselves (`rests` in kernels/kernels.h).
 *
 *     coded            x + e           = x - prev      where prev = -e
 *     next residual    x + e - y       = -(prev + y - x)
 *
 * Where y is poisoned, nothing was sent, and the residual stays as it was.
 *
 * | name | shape  | meaning                                                      | owner |
 * | prev | (T, C) | f32: the residual before, negated; NULL: it is 0             | state |
 * | next | (T, C) | f32: the form wrote prev + y; becomes the residual, negated  | state |
 *
 * Errors: none. State: none. Threads: any, on different chunks. Source: Seide, Fu, Droppo, Li and
 * Yu (Interspeech 2014); Karimireddy, Rebjock, Stich and Jaggi (arXiv:1901.09847), algorithm 2. */
#ifndef DW_RESIDUAL_H
#define DW_RESIDUAL_H

#include "codecs/tiles.h"

/* Complete the residual of a run of tiles, or of one row of a strip of channels. The payload has
 * been written, at least its scales. */
void dw_residual_of_run(const dw_encode_job *job, const dw_run *run);
void dw_residual_of_columns(const dw_encode_job *job, const dw_column_run *run);

/* The option decay, which is in thousandths, as a number. It is rounded, so call this and the next
 * function in the exact floating-point mode (common/cpu.h). */
static inline float dw_residual_factor(uint32_t decay)
{
    return (float)decay / 1000;
}

/* Multiplies n residuals by the option decay, once in each visit. So the longer ago a value was
 * left out, the less of it is sent (SparseLoCo, arXiv:2508.15706). */
void dw_residual_fade(float *residual, uint64_t n, uint32_t decay);

/* Completes the residual of a run, if the job keeps one. */
static inline void dw_residual_follow(const dw_encode_job *job, const dw_run *run)
{
    if (job->keeps_residual) dw_residual_of_run(job, run);
}

#endif
