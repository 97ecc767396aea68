/* SPDX-License-Identifier: Apache-2.0
 * same_places.h - with the setting same_places: gradients go back through exactly those elements
 * whose activations were sent (deltawire/places.h; Rudakov et al., arXiv:2401.07788).
 *
 * A boundary has one of these at each of its two ranks. It reads the places of every activation
 * from its frame, and keeps them until the next one of the same piece: a slice of a micro-batch,
 * whose number is slot * slices + slice.
 *
 * | name | shape     | meaning                                                                   |
 * | x    | (N, T, C) | the gradient of a piece at this boundary, dense; f32                      |
 * | z    | (N, 1, k) | its elements at the places, which the channel carries; f32                |
 *
 * Errors: with a sentence in *why. Threads: that of the stage. */
#ifndef DW_TRAINER_SAME_PLACES_H
#define DW_TRAINER_SAME_PLACES_H

#include <stdbool.h>
#include <stdint.h>

#include "deltawire/deltawire.h"

typedef struct dw_same_places dw_same_places;

/* pieces: how many are in flight at a time. elements: of the longest one. sends: activations are
 * sent to this boundary, not received from it. Returns NULL: no memory. */
dw_same_places *dw_same_places_create(uint32_t pieces, uint64_t elements, bool sends);
void dw_same_places_destroy(dw_same_places *places); /* NULL is allowed */

/* For dw_channel_config.on_frame, with a dw_same_places as the context. */
void dw_same_places_on_frame(void *context, int is_sent, const void *frame, size_t len);

/* To be called when the activation of a piece was sent or received: the places of the last frame
 * are those of this piece. Errors: those of dw_places_read. */
dw_status dw_same_places_keep(dw_same_places *places, uint32_t piece, dw_why *why);

/* Makes *z a tensor in memory of `places`, and, with gather, writes the elements of x to it. */
dw_status dw_same_places_gather(dw_same_places *places, uint32_t piece, const dw_tensor *x,
                                dw_tensor *z, dw_why *why);
dw_status dw_same_places_view(dw_same_places *places, uint32_t piece, const dw_tensor *x,
                              dw_tensor *z, dw_why *why);
dw_status dw_same_places_scatter(dw_same_places *places, uint32_t piece, const dw_tensor *z,
                                 const dw_tensor *x, dw_why *why);

/* The time that these calls have taken, also those of on_frame. */
uint64_t dw_same_places_busy_ns(const dw_same_places *places);

/* The bytes, as f32, of those elements of the received gradients that were not sent, so far. */
uint64_t dw_same_places_left_out(const dw_same_places *places);

#endif
