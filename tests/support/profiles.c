/* SPDX-License-Identifier: Apache-2.0
 * profiles.c - profiles of channels whose values follow from the number of a channel. */
#include "support/profiles.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS = 3, FOUND = 400 };

typedef struct made {
    dw_profile *profile;
    uint32_t means, channels;
    struct made *next;
} made;

static made *all; /* tests that make profiles have one thread */

float test_profile_value(uint32_t row, uint32_t channel)
{
    float mantissa = 1 + (float)(channel * 37 % 128) / 128;
    if (row == 0) return ldexpf(mantissa, -1 - (int)(channel % 9));
    float mean = ((float)((channel * 29 + row * 50) % 255) - 127) / 16;
    return row == 2 && channel % 97 == 7 ? 4096 : mean;
}

const dw_profile *test_profile(uint32_t means, uint32_t channels)
{
    for (const made *m = all; m; m = m->next)
        if (m->means == means && m->channels == channels) return m->profile;
    float *values = malloc(ROWS * (size_t)channels * sizeof *values);
    made *m = malloc(sizeof *m);
    if (!values || !m) abort();
    for (uint32_t row = 0; row <= means; row++)
        for (uint32_t c = 0; c < channels; c++)
            values[row * (size_t)channels + c] = test_profile_value(row, c);
    dw_tensor tensor = dw_tensor_3d(values, DW_F32, 1, 1 + means, channels);
    *m = (made){NULL, means, channels, all};
    if (dw_profile_create(&m->profile, &tensor, NULL, NULL)) abort();
    free(values);
    all = m;
    return m->profile;
}

const dw_profile *test_profile_find(uint32_t digest, uint32_t *means)
{
    for (const made *m = all; m; m = m->next) {
        if (dw_profile_digest(m->profile) != digest) continue;
        *means = m->means;
        return m->profile;
    }
    for (uint32_t c = 1; c <= FOUND && (!all || all->channels != FOUND); c++)
        for (*means = 0; *means < ROWS; ++*means)
            if (dw_profile_digest(test_profile(*means, c)) == digest)
                return test_profile(*means, c);
    return NULL;
}
