/* SPDX-License-Identifier: Apache-2.0
 * copies.c - expands compact copies of prev, and makes copies compact, in main memory. */
#include "codecs/copies.h"

#include "common/compact.h"
#include "kernels/kernels.h"

/* Whole groups; the last part may end within one. */
typedef struct range {
    uint64_t group, element, n;
} range;

static range range_of(uint64_t elements, uint64_t part, uint64_t parts)
{
    uint64_t groups = dw_compact_groups(elements), each = groups / parts, rest = groups % parts;
    uint64_t first = each * part + (part < rest ? part : rest), count = each + (part < rest);
    range r = {first, first * DW_COMPACT_GROUP, count * DW_COMPACT_GROUP};
    if (r.n > elements - r.element) r.n = elements - r.element;
    return r;
}

void dw_copies_expand(const dw_kernels *kernels, const dw_copies *copies, uint64_t part,
                      uint64_t parts)
{
    range r = range_of(copies->elements, part, parts);
    const uint8_t *codes = copies->held;
    const uint8_t *scales =
        codes + dw_compact_codes_bytes(copies->bits, dw_compact_groups(copies->elements));
    if (!kernels) kernels = dw_kernels_choose(~0u); /* the engine is a device */
    kernels->expand(codes + dw_compact_codes_bytes(copies->bits, r.group), scales + r.group, r.n,
                    copies->bits, (uint16_t *)copies->base + r.element);
}

void dw_copies_store(const dw_kernels *kernels, const dw_copies *copies, uint64_t part,
                     uint64_t parts)
{
    range r = range_of(copies->elements, part, parts);
    uint8_t *codes = copies->fresh;
    uint8_t *scales =
        codes + dw_compact_codes_bytes(copies->bits, dw_compact_groups(copies->elements));
    kernels->compact((const uint16_t *)copies->made + r.element, r.n, copies->bits,
                     codes + dw_compact_codes_bytes(copies->bits, r.group), scales + r.group);
}
