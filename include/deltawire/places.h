/* SPDX-License-Identifier: Apache-2.0
 * places.h - which elements of its samples a frame carries: for the codecs topk, randk, cocktail
 * and chunk. With them a program sends the gradients of exactly those elements whose activations it
 * has sent, without sending their places a second time: both ends read the places from the
 * forward's frame; one gathers the gradients there and sends them, and the other scatters what
 * arrives.
 *
 * | name  | shape     | meaning                                                         | owner   |
 * | frame | (len)     | bytes; what an encoder made, before or after it was decoded     | caller  |
 * | list  | (k)       | places in a sample, t * C + c, in ascending order               | *places |
 * | x, y  | (N, T, C) | any dtype and strides; N, T and C are those of the frame        | caller  |
 * | z     | (N, 1, k) | the values at these places, f32                                 | caller  |
 *
 * Any codec for rows of k values can carry z that keeps nothing of earlier tensors: what it kept of
 * an element would be added to another one at the next visit. So `delta` and feedback are not for
 * z, nor are lowrank, tah, rotations and projections, which want other shapes. The codec raw sends
 * z in f32 unless it has another dtype (`raw:bf16`).
 *
 * Tensors are in main memory; z shares none with x or y. Errors, with nothing written: ARGUMENT,
 * LIMIT; SHAPE where extents differ, with both in *why, which may be NULL. Threads: any number, on
 * the same places, too. Source: Rudakov et al. (arXiv:2401.07788): a model whose gradients have a
 * mask of their own may diverge. */
#ifndef DELTAWIRE_PLACES_H
#define DELTAWIRE_PLACES_H

#include "deltawire/deltawire.h"
#ifdef __cplusplus
extern "C" {
#endif
typedef struct dw_places dw_places;

/* Reads which elements of each sample a frame carries. The frame may be damaged or malicious: it is
 * checked. *places takes 4 N k bytes, at most 32 for each byte of the frame, and the call another
 * T * C / 4 at most until it returns. So look at the shape of an untrusted frame first
 * (dw_frame_read). allocator: as in a config; NULL: malloc and free. Errors: also NO_MEMORY, and as
 * dw_frame_read; CORRUPT (a payload does not match its digest); FORMAT (a payload breaks a rule);
 * UNSUPPORTED (the frame's codec sends all elements). *places is then NULL.
 */
DW_API dw_status dw_places_read(dw_places **places, const void *frame, size_t len,
                                const dw_allocator *allocator, dw_why *why);

/* Frees places. NULL is allowed. */
DW_API void dw_places_destroy(dw_places *places);

/* How many elements of each sample the frame carries: k. */
DW_API uint32_t dw_places_count(const dw_places *places);

/* The list of a sample; NULL where there is no such sample. */
DW_API const uint32_t *dw_places_list(const dw_places *places, uint32_t sample);

/* Writes the values of x at the places to z. */
DW_API dw_status dw_places_gather(const dw_places *places, const dw_tensor *x, const dw_tensor *z,
                                  dw_why *why);

/* Writes the values of z to y at the places, and 0 to all other elements of y. 16-bit dtypes are
 * rounded to nearest, ties to even, and clamped to their largest number; NaN and infinities are
 * kept. With the option scaling=unbiased of randk, values have been multiplied by the lengths of
 * their stretches (docs/format.md, 3.10), and so should be their gradients: this function does not
 * do it. */
DW_API dw_status dw_places_scatter(const dw_places *places, const dw_tensor *z, const dw_tensor *y,
                                   dw_why *why);
#ifdef __cplusplus
}
#endif
#endif
