/* SPDX-License-Identifier: Apache-2.0
 * projection.h - what a projection on a GPU needs of one in main memory. */
#ifndef DW_PROJECTION_INTERNAL_H
#define DW_PROJECTION_INTERNAL_H

#include "deltawire/projection.h"

/* Checks x, of c channels, and its r coordinates z. written: the one of both that is to be written.
 * Errors: ARGUMENT, LIMIT, SHAPE, with a sentence in *why, which may be NULL. */
dw_status dw_projection_check(uint32_t c, uint32_t r, const dw_tensor *x, const dw_tensor *z,
                              const dw_tensor *written, dw_why *why);

/* The matrix transposed, (R, C). It belongs to the projection. */
const float *dw_projection_columns(const dw_projection *projection);

#endif
