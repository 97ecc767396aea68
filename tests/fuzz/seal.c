/* SPDX-License-Identifier: Apache-2.0
 * seal.c - the digests of a mutated frame or reply, computed anew from docs/format.md. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "fuzz.h"

enum {
    HEADER = 80,
    ENTRY = 40,
    FORGOTTEN = 16,
    REPLY_HEADER = 48,
};

static uint32_t load32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void store64(uint8_t *p, uint64_t value)
{
    for (int i = 0; i < 8; i++) p[i] = (uint8_t)(value >> (8 * i));
}

/* Every entry's payload has the same size unless kinds are mixed; then the frame's own reader says
 * where each lies, as soon as the header and the tables are sealed. */
static void seal_payloads(uint8_t *frame, size_t len, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        dw_entry_info entry;
        if (dw_frame_entries(frame, len, i, 1, &entry) != DW_OK) return;
        REQUIRE(entry.payload_offset <= len && entry.payload_bytes <= len - entry.payload_offset);
        store64(frame + HEADER + (size_t)ENTRY * i + 24,
                XXH3_64bits(frame + entry.payload_offset, (size_t)entry.payload_bytes));
    }
}

static void seal_tables(uint8_t *frame, size_t table_bytes)
{
    store64(frame + 64, XXH3_64bits(frame + HEADER, table_bytes));
    store64(frame + 72, XXH3_64bits(frame, 72));
}

void fuzz_seal_frame(uint8_t *frame, size_t len)
{
    if (len < HEADER) return;
    uint64_t n = load32(frame + 24), forgotten = load32(frame + 44);
    uint64_t table_bytes = (ENTRY * n + FORGOTTEN * forgotten + 15) / 16 * 16;
    if (table_bytes > len - HEADER) table_bytes = len - HEADER;
    seal_tables(frame, (size_t)table_bytes);
    if (ENTRY * n > table_bytes) return;
    seal_payloads(frame, len, (uint32_t)n);
    seal_tables(frame, (size_t)table_bytes);
}

void fuzz_seal_reply(uint8_t *reply, size_t len)
{
    if (len < REPLY_HEADER) return;
    uint64_t table_bytes = (uint64_t)ENTRY * load32(reply + 24);
    if (table_bytes > len - REPLY_HEADER) table_bytes = len - REPLY_HEADER;
    store64(reply + 32, XXH3_64bits(reply + REPLY_HEADER, (size_t)table_bytes));
    store64(reply + 40, XXH3_64bits(reply, 40));
}
