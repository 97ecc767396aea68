/* SPDX-License-Identifier: Apache-2.0
 * fields.h - little-endian integers in the headers of messages. */
#ifndef DW_FIELDS_H
#define DW_FIELDS_H

#include <stdint.h>

static inline void dw_put32(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) at[i] = (unsigned char)(value >> (8 * i));
}

static inline uint32_t dw_get32(const unsigned char *at)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) value |= (uint32_t)at[i] << (8 * i);
    return value;
}

static inline void dw_put64(unsigned char *at, uint64_t value)
{
    for (int i = 0; i < 8; i++) at[i] = (unsigned char)(value >> (8 * i));
}

static inline uint64_t dw_get64(const unsigned char *at)
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

#endif
