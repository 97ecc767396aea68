/* SPDX-License-Identifier: Apache-2.0
 * audit.h - computes the sums of state digests over prev in main memory (docs/format.md, 4).
 *
 * A state digest covers stretches of 2048 elements: every n-th one for audit=n, starting at a phase
 * that changes with every visit. Errors: none. State: none. Threads: any. */
#ifndef DW_AUDIT_H
#define DW_AUDIT_H

#include "codecs/job.h"
#include "kernels/kernels.h"

/* The first element of the first audited stretch that begins at `element` or later. */
static inline uint64_t dw_next_stretch(dw_audit audit, uint64_t element)
{
    uint64_t stretch = (element + DW_TILE_ELEMENTS - 1) / DW_TILE_ELEMENTS;
    uint64_t behind = stretch % audit.every;
    return (stretch + (audit.phase + audit.every - behind) % audit.every) * DW_TILE_ELEMENTS;
}

/* The sum of one stretch, whose first element has the number `first` and lies at `from`. elements:
 * the number of elements of prev. */
static inline uint64_t dw_stretch_sum(const dw_kernels *kernels, const void *from, dw_dtype dtype,
                                      uint64_t first, uint64_t elements)
{
    uint64_t left = elements - first;
    return kernels->digest(from, dtype, first, left < DW_TILE_ELEMENTS ? left : DW_TILE_ELEMENTS);
}

/* The sum over all audited stretches. */
uint64_t dw_state_sum(const dw_kernels *kernels, const void *prev, dw_dtype dtype,
                      uint64_t elements, dw_audit audit);

/* The sum over those audited stretches that lie in more than one chunk of a layout, so that no
 * chunk could compute it while it was in the cache. */
uint64_t dw_seam_sum(const dw_kernels *kernels, const dw_layout *layout, const void *prev,
                     dw_dtype dtype, dw_audit audit);

#endif
