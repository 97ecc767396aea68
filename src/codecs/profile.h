/* SPDX-License-Identifier: Apache-2.0
 * profile.h - a profile as encoders and decoders use it (include/deltawire/profile.h). */
#ifndef DW_CODECS_PROFILE_H
#define DW_CODECS_PROFILE_H

#include "arithmetic/profile.h"
#include "deltawire/profile.h"

/* What forms need of a profile; weights are NULL where profile is NULL. */
dw_channels dw_profile_channels(const dw_profile *profile);

/* Copies a profile. NULL: there is no memory. */
dw_profile *dw_profile_copy(const dw_profile *profile, const dw_allocator *allocator);

/* SHAPE, with a sentence, where the profile is not NULL and has another number of channels. */
dw_status dw_profile_fits(const dw_profile *profile, uint32_t c, dw_why *why);

#endif
