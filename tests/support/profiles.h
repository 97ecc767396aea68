/* SPDX-License-Identifier: Apache-2.0
 * profiles.h - profiles of channels whose values follow from the number of a channel, so that tests
 * and the fuzzers' model know them without the library. */
#ifndef DW_TEST_PROFILES_H
#define DW_TEST_PROFILES_H

#include "deltawire/profile.h"

/* Entry `channel` of a row: 0 is that of the weights, 1 and 2 are means. It is a bf16. */
float test_profile_value(uint32_t row, uint32_t channel);

/* A profile with none, one or two lists of means. It is made once and never destroyed. */
const dw_profile *test_profile(uint32_t means, uint32_t channels);

/* The one of these with this digest, of at most 400 channels or among those made before; NULL: none
 * has it. *means: how many lists it has. */
const dw_profile *test_profile_find(uint32_t digest, uint32_t *means);

#endif
