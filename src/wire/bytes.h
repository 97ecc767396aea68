/* SPDX-License-Identifier: Apache-2.0
 * bytes.h - little-endian integers of one to eight bytes, as frames and replies hold them. */
#ifndef DW_BYTES_H
#define DW_BYTES_H

#include <stdint.h>

static inline void dw_put(uint8_t *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) to[i] = (uint8_t)(value >> (8 * i));
}

static inline uint64_t dw_get(const uint8_t *from, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)from[i] << (8 * i);
    return value;
}

#endif
