/* SPDX-License-Identifier: Apache-2.0
 * compact.h - how much memory a copy of prev takes, and which dtype its values have in use.
 *
 * A copy is made of floats, or it is compact: codes of 8 or 4 bits for all elements in the order of
 * (T, C), then a scale of one byte for each group of 16 consecutive elements. The last group is
 * padded with codes 0. docs/format.md, 5, defines the values. */
#ifndef DW_COMPACT_H
#define DW_COMPACT_H

#include "common/shared.h"
#include "deltawire/deltawire.h"

enum { DW_COMPACT_GROUP = 16 };

/* The bits of a code in copies that are kept in this way; 0: they are floats. kept: a value of the
 * option prev, as a dw_dtype wherever that of copies is meant. */
DW_INLINE uint32_t dw_compact_bits(uint32_t kept)
{
    return kept == 8 || kept == 4 ? kept : 0;
}

DW_INLINE uint64_t dw_compact_groups(uint64_t elements)
{
    return elements / DW_COMPACT_GROUP + (elements % DW_COMPACT_GROUP != 0);
}

/* The codes of all groups, behind which the scales begin. */
DW_INLINE uint64_t dw_compact_codes_bytes(uint32_t bits, uint64_t groups)
{
    return groups * (DW_COMPACT_GROUP / 8) * bits;
}

#ifndef __CUDACC__
/* The dtype in which prev is read and made, of copies that are kept in this way. */
static inline dw_dtype dw_prev_dtype(uint32_t kept)
{
    return dw_compact_bits(kept) ? DW_BF16 : (dw_dtype)kept;
}

/* The bytes of a copy; 0: it cannot be kept in this way. */
static inline uint64_t dw_prev_bytes(uint32_t kept, uint64_t elements)
{
    uint32_t bits = dw_compact_bits(kept);
    uint64_t groups = dw_compact_groups(elements);
    return bits ? dw_compact_codes_bytes(bits, groups) + groups
                : elements * dw_dtype_bytes((dw_dtype)kept);
}
#endif

#endif
