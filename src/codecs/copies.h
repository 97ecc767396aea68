/* SPDX-License-Identifier: Apache-2.0
 * copies.h - expands compact copies of prev, and makes copies compact, in main memory.
 *
 * Errors: none. State: none. Threads: any, on different parts or memory. */
#ifndef DW_COPIES_H
#define DW_COPIES_H

#include "codecs/job.h"

/* A copy is divided into `parts` parts of nearly equal size; each call does one of them. expand:
 * writes the floats of the compact copy `held` to `base`. store: writes the floats `made` to the
 * compact copy `fresh`. kernels NULL: expand takes the best ones. */
void dw_copies_expand(const struct dw_kernels *kernels, const dw_copies *copies, uint64_t part,
                      uint64_t parts);
void dw_copies_store(const struct dw_kernels *kernels, const dw_copies *copies, uint64_t part,
                     uint64_t parts);

#endif
