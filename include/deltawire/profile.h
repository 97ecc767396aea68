/* SPDX-License-Identifier: Apache-2.0
 * profile.h - profiles of channels: what both ends know of the channels of a tensor, for the form
 * step.
 *
 * Real activations have a few channels that are hundreds of times as large as the others, and rows
 * (of the first token, for example) with a mean of their own. A profile has a weight for each
 * channel, by which the step of a row is multiplied, and up to two means, one of which is
 * subtracted from rows that are sent without a base. Fitted on other samples before, it takes fewer
 * bits for the same loss: docs/codecs/profile.md has figures and says where it loses.
 *
 * | name     | shape     | meaning                                                  | owner  |
 * | values   | (1, R, C) | f32. Row 0: weights, above 0 and at most 1; rows 1 and 2,| caller |
 * |          |           | if there are any: means                                  |        |
 * | x        | (N, T, C) | what will be sent, of other samples; any dtype           | caller |
 * | gradient | (N, T, C) | of the loss, for x; NULL: the weights follow from x alone| caller |
 *
 * Both ends need the same profile: dw_config.profile, or the last two functions, with which a
 * profile can be fitted anew while frames are sent. Frames say a digest of it, so a decoder without
 * it refuses them with MISMATCH. Errors: ARGUMENT, SHAPE, NO_MEMORY, with a sentence in *why, which
 * may be NULL; *profile is then NULL. State: a profile does not change. Threads: any number may use
 * one. */
#ifndef DELTAWIRE_PROFILE_H
#define DELTAWIRE_PROFILE_H

#include "deltawire/deltawire.h"
#ifdef __cplusplus
extern "C" {
#endif
typedef struct dw_profile dw_profile;

/* Makes a profile of values, which are rounded to bf16. allocator: as in a config; NULL: malloc and
 * free. Errors: ARGUMENT also where a weight is below 2^-24 or above 1, or a mean is not finite. */
DW_API dw_status dw_profile_create(dw_profile **profile, const dw_tensor *values,
                                   const dw_allocator *allocator, dw_why *why);

/* Fits a profile. The first means are those of all rows but the unusual ones, which are more than 3
 * times as large as the median row; the second means are those of the unusual rows. With a
 * gradient, the weight of a channel is 1 / (h + h' / 10): h is the root mean square, over the usual
 * rows, of the gradient times the row's own root mean square, which says what a change of this
 * channel means for a loss behind a norm, and h' the median of h. Without one, the weight is
 * the root of the standard deviation of the channel and a tenth of the median one. Weights are then
 * scaled so that the largest is 1. Rows with values that are not finite are left out. All sums are
 * in a fixed order. */
DW_API dw_status dw_profile_fit(dw_profile **profile, const dw_tensor *x, const dw_tensor *gradient,
                                const dw_allocator *allocator, dw_why *why);

/* Frees a profile, which no encoder, decoder or config may use any more. NULL is allowed. */
DW_API void dw_profile_destroy(dw_profile *profile);

/* The value of the option `profile`: 32 bits of a digest of all values; never 0. 0 for NULL. */
DW_API uint32_t dw_profile_digest(const dw_profile *profile);

/* The values, f32 of shape (1, R, C), to be saved or sent to the other end, where
 * dw_profile_create makes the same profile of them. They belong to the profile. */
DW_API dw_tensor dw_profile_values(const dw_profile *profile);

/* use: the encoder's later frames have this profile, or none where it is NULL, in place of the one
 * before; what is held of keys stays as it is, and is the base of what follows. The decoder must
 * have been given the profile with dw_decoder_add_profile before such a frame arrives. It takes
 * frames with any of the last four different profiles that were added, and those that its config
 * stands for: with the config's profile, or without one if it has none. Frames may need the room
 * that dw_frame_bound returns for a config with a profile. Both functions copy the profile. Errors,
 * with a sentence in dw_encoder_why or dw_decoder_why, after which nothing has changed: ARGUMENT
 * where a frame is in flight or captured, CONFIG where the config's form is not step, or cannot
 * have a profile, NO_MEMORY. */
DW_API dw_status dw_encoder_use_profile(dw_encoder *encoder, const dw_profile *profile);
DW_API dw_status dw_decoder_add_profile(dw_decoder *decoder, const dw_profile *profile);
#ifdef __cplusplus
}
#endif
#endif
