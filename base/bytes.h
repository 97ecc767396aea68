/* SPDX-License-Identifier: Apache-2.0
 * bytes.h - little-endian integers of one to eight bytes, as frames and messages hold them. */
#ifndef DW_BYTES_H
#define DW_BYTES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Whether this machine stores integers in the byte order of frames. Compilers evaluate this to a
 * constant. */
static inline bool dw_host_is_little_endian(void)
{
    uint16_t one = 1;
    uint8_t first;
    memcpy(&first, &one, 1);
    return first == 1;
}

static inline void dw_put(uint8_t *to, uint64_t value, int bytes)
{
    if (dw_host_is_little_endian()) { /* a single store; compilers do not turn the loop below into
                                         one */
        memcpy(to, &value, (size_t)bytes);
        return;
    }
    for (int i = 0; i < bytes; i++) to[i] = (uint8_t)(value >> (8 * i));
}

static inline uint64_t dw_get(const uint8_t *from, int bytes)
{
    uint64_t value = 0;
    if (dw_host_is_little_endian()) {
        memcpy(&value, from, (size_t)bytes);
        return value;
    }
    for (int i = 0; i < bytes; i++) value |= (uint64_t)from[i] << (8 * i);
    return value;
}

static inline void dw_put32(uint8_t *to, uint32_t value)
{
    dw_put(to, value, 4);
}

static inline uint32_t dw_get32(const uint8_t *from)
{
    return (uint32_t)dw_get(from, 4);
}

static inline void dw_put64(uint8_t *to, uint64_t value)
{
    dw_put(to, value, 8);
}

static inline uint64_t dw_get64(const uint8_t *from)
{
    return dw_get(from, 8);
}

#endif
