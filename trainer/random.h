/* SPDX-License-Identifier: Apache-2.0
 * random.h - seeded random numbers: Philox4x32-10 (Random123), addressed by their purpose.
 *
 * A number depends on (seed, purpose, a, b) alone and not on how many were drawn before. So a stage
 * that draws only its own parameters gets the same numbers as a single stage that draws all.
 * Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011). */
#ifndef DW_TRAINER_RANDOM_H
#define DW_TRAINER_RANDOM_H

#include <Random123/philox.h>
#include <stdint.h>

typedef enum dw_random_purpose {
    DW_RANDOM_PARAMETERS = 1,
    DW_RANDOM_SHUFFLE = 2
} dw_random_purpose;

static inline philox4x32_ctr_t dw_random(uint64_t seed, dw_random_purpose purpose, uint32_t a,
                                         uint64_t b)
{
    philox4x32_key_t key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    philox4x32_ctr_t counter = {{(uint32_t)b, (uint32_t)(b >> 32), a, (uint32_t)purpose}};
    return philox4x32(counter, key);
}

#endif
