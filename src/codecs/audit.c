/* SPDX-License-Identifier: Apache-2.0
 * audit.c - computes the sums of state digests over prev in main memory. */
#include "codecs/audit.h"

static const unsigned char *at(const void *prev, dw_dtype dtype, uint64_t element)
{
    return (const unsigned char *)prev + element * dw_dtype_bytes(dtype);
}

uint64_t dw_state_sum(const dw_kernels *kernels, const void *prev, dw_dtype dtype,
                      uint64_t elements, dw_audit audit)
{
    uint64_t sum = 0, apart = (uint64_t)audit.every * DW_TILE_ELEMENTS;
    if (!audit.every) return 0;
    for (uint64_t first = dw_next_stretch(audit, 0); first < elements; first += apart)
        sum += dw_stretch_sum(kernels, at(prev, dtype, first), dtype, first, elements);
    return sum;
}

uint64_t dw_seam_sum(const dw_kernels *kernels, const dw_layout *layout, const void *prev,
                     dw_dtype dtype, dw_audit audit)
{
    uint64_t elements = (uint64_t)layout->t * layout->c, sum = 0;
    uint64_t chunks = dw_layout_chunks(layout), last = UINT64_MAX;
    if (!audit.every) return 0;
    if (layout->by_channel) return dw_state_sum(kernels, prev, dtype, elements, audit);
    for (uint64_t i = 1; i < chunks; i++) {
        uint64_t seam = dw_layout_chunk(layout, i).first_element;
        uint64_t stretch = seam / DW_TILE_ELEMENTS * DW_TILE_ELEMENTS;
        if (seam == stretch || stretch == last || dw_next_stretch(audit, stretch) != stretch)
            continue;
        last = stretch;
        sum += dw_stretch_sum(kernels, at(prev, dtype, stretch), dtype, stretch, elements);
    }
    return sum;
}
