/* SPDX-License-Identifier: Apache-2.0
 * seal.c - computes the digests of a mutated frame or reply again. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "fuzz.h"
#include "support/seal.h"

enum { REPLY_HEADER = 48, REPLY_ENTRY = 40 };

static uint32_t load32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void store64(uint8_t *p, uint64_t value)
{
    for (int i = 0; i < 8; i++) p[i] = (uint8_t)(value >> (8 * i));
}

void fuzz_seal_frame(uint8_t *frame, size_t len)
{
    test_seal(frame, len);
}

void fuzz_seal_reply(uint8_t *reply, size_t len)
{
    if (len < REPLY_HEADER) return;
    uint64_t table_bytes = (uint64_t)REPLY_ENTRY * load32(reply + 24);
    if (table_bytes > len - REPLY_HEADER) table_bytes = len - REPLY_HEADER;
    store64(reply + 32, XXH3_64bits(reply + REPLY_HEADER, (size_t)table_bytes));
    store64(reply + 40, XXH3_64bits(reply, 40));
}
