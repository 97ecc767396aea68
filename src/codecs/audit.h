/* SPDX-License-Identifier: Apache-2.0
 * audit.h - sums of state digests over prev in main memory (docs/format.md, 4).
 *
 * The digest goes over stretches of 2048 elements, one in so many; which ones, phase tells. Errors:
 * none. State: none. Threads: any. */
#ifndef DW_AUDIT_H
#define DW_AUDIT_H

#include "codecs/job.h"
#include "kernels/kernels.h"

/* The first audited stretch that does not begin before `element`, as an element. */
static inline uint64_t dw_next_stretch(dw_audit audit, uint64_t element)
{
    uint64_t stretch = (element + DW_TILE_ELEMENTS - 1) / DW_TILE_ELEMENTS;
    uint64_t behind = stretch % audit.every;
    return (stretch + (audit.phase + audit.every - behind) % audit.every) * DW_TILE_ELEMENTS;
}

/* Of the stretch that begins at element `first`, which lies at `from`; elements: of all of prev. */
static inline uint64_t dw_stretch_sum(const dw_kernels *kernels, const void *from, dw_dtype dtype,
                                      uint64_t first, uint64_t elements)
{
    uint64_t left = elements - first;
    return kernels->digest(from, dtype, first, left < DW_TILE_ELEMENTS ? left : DW_TILE_ELEMENTS);
}

/* Over all audited stretches. */
uint64_t dw_state_sum(const dw_kernels *kernels, const void *prev, dw_dtype dtype,
                      uint64_t elements, dw_audit audit);

/* Over those that lie in several chunks of a layout, so that no chunk has seen the whole of
 * them. */
uint64_t dw_seam_sum(const dw_kernels *kernels, const dw_layout *layout, const void *prev,
                     dw_dtype dtype, dw_audit audit);

#endif
