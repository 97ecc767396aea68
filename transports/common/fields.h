/* SPDX-License-Identifier: Apache-2.0
 * fields.h - little-endian integers of 32 and 64 bits in the headers of messages. */
#ifndef DW_FIELDS_H
#define DW_FIELDS_H

#include <stdint.h>

#include "wire/bytes.h"

static inline void dw_put32(unsigned char *at, uint32_t value)
{
    dw_put(at, value, 4);
}

static inline uint32_t dw_get32(const unsigned char *at)
{
    return (uint32_t)dw_get(at, 4);
}

static inline void dw_put64(unsigned char *at, uint64_t value)
{
    dw_put(at, value, 8);
}

static inline uint64_t dw_get64(const unsigned char *at)
{
    return dw_get(at, 8);
}

#endif
