/* SPDX-License-Identifier: Apache-2.0
 * copies.h - expands compact copies of prev, and makes copies compact, in main memory.
 *
 * Errors: none. State: none. Threads: any, on different parts or memory. */
#ifndef DW_COPIES_H
#define DW_COPIES_H

#include "codecs/job.h"

/* Each works on one of `parts` nearly equal parts of a copy. expand: held to base; store: made to
 * fresh. */
void dw_copies_expand(const struct dw_kernels *kernels, const dw_copies *copies, uint64_t part,
                      uint64_t parts);
void dw_copies_store(const struct dw_kernels *kernels, const dw_copies *copies, uint64_t part,
                     uint64_t parts);

#endif
