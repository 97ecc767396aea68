/* SPDX-License-Identifier: Apache-2.0
 * kernels_compact_c.h - makes copies of prev compact, and expands them, in plain C: the
 * specification that all other tables must match.
 *
 * Included by kernels_c.c. */
#include "arithmetic/compact.h"

static void compact_group(const uint16_t *from, uint64_t n, uint32_t bits, uint8_t *codes,
                          uint8_t *scale)
{
    uint8_t made[DW_COMPACT_GROUP];
    uint32_t largest = 0;
    for (uint64_t i = 0; i < n; i++)
        if ((from[i] & 0x7fffu) > largest) largest = from[i] & 0x7fffu;
    *scale = (uint8_t)dw_compact_scale(largest, bits);
    float inverse = dw_compact_inverse(*scale, bits);
    for (uint64_t i = 0; i < DW_COMPACT_GROUP; i++)
        made[i] = (uint8_t)dw_compact_code(i < n ? from[i] : 0, inverse, bits);
    dw_pack(made, DW_COMPACT_GROUP, bits, codes, DW_COMPACT_GROUP, 0);
}

static void compact_c(const uint16_t *from, uint64_t n, uint32_t bits, uint8_t *codes,
                      uint8_t *scales)
{
    for (uint64_t i = 0; i < n; i += DW_COMPACT_GROUP)
        compact_group(from + i, n - i < DW_COMPACT_GROUP ? n - i : DW_COMPACT_GROUP, bits,
                      codes + i * bits / 8, scales++);
}

static void expand_c(const uint8_t *codes, const uint8_t *scales, uint64_t n, uint32_t bits,
                     uint16_t *to)
{
    uint8_t of[DW_COMPACT_GROUP];
    for (uint64_t i = 0; i < n; i += DW_COMPACT_GROUP) {
        float unit = dw_compact_unit(*scales++, bits);
        dw_unpack(of, DW_COMPACT_GROUP, bits, codes + i * bits / 8, DW_COMPACT_GROUP, 0);
        for (uint64_t k = i; k < n && k < i + DW_COMPACT_GROUP; k++)
            to[k] = dw_compact_element(of[k - i], unit, bits);
    }
}
