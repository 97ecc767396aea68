/* SPDX-License-Identifier: Apache-2.0
 * message.c - writes and reads the header of a message. */
#include "message.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { DIGEST_AT = 56 };

void dw_message_text(char *text, size_t cap, const void *from, uint64_t len)
{
    const unsigned char *bytes = from;
    size_t i = 0;
    for (; i + 1 < cap && i < len && bytes[i]; i++)
        text[i] = bytes[i] >= 32 && bytes[i] < 127 ? (char)bytes[i] : '?';
    text[i] = 0;
}

bool dw_message_is_numbered(uint8_t kind)
{
    return kind == DW_MESSAGE_DATA || kind == DW_MESSAGE_CLOSE;
}

uint64_t dw_message_digest(const void *bytes, size_t len, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, len, seed);
}

uint64_t dw_message_seed(uint64_t from_nonce, uint64_t to_nonce, uint32_t from)
{
    unsigned char bytes[20];
    dw_put(bytes, from_nonce, 8);
    dw_put(bytes + 8, to_nonce, 8);
    dw_put(bytes + 16, from, 4);
    return XXH3_64bits(bytes, sizeof bytes);
}

/* The digest of the body becomes the seed of the header's, so one number covers both. */
static uint64_t digest_of(const unsigned char *at, uint64_t body_len, uint64_t seed, bool with_body)
{
    if (with_body && body_len > 0)
        seed = XXH3_64bits_withSeed(at + DW_MESSAGE_BYTES, (size_t)body_len, seed);
    return XXH3_64bits_withSeed(at, DIGEST_AT, seed);
}

void dw_message_finalize(unsigned char *at, const dw_message *head, uint64_t seed, bool with_body)
{
    at[0] = head->kind;
    at[1] = head->operation;
    at[2] = head->dtype;
    at[3] = head->flags;
    dw_put(at + 4, head->rank, 4);
    dw_put(at + 8, head->number, 8);
    dw_put(at + 16, head->slot, 8);
    dw_put(at + 24, head->visit, 8);
    dw_put(at + 32, head->n, 8);
    dw_put(at + 40, head->part, 4);
    dw_put(at + 44, head->piece, 4);
    dw_put(at + 48, head->body_len, 8);
    dw_put(at + DIGEST_AT, digest_of(at, head->body_len, seed, with_body), 8);
}

bool dw_message_read(const unsigned char *at, size_t len, uint64_t seed, bool with_body,
                     dw_message *head)
{
    if (len < DW_MESSAGE_BYTES) return false;
    uint64_t body_len = dw_get(at + 48, 8);
    if (body_len != len - DW_MESSAGE_BYTES) return false;
    if (dw_get(at + DIGEST_AT, 8) != digest_of(at, body_len, seed, with_body)) return false;
    *head = (dw_message){.kind = at[0],
                         .operation = at[1],
                         .dtype = at[2],
                         .flags = at[3],
                         .rank = (uint32_t)dw_get(at + 4, 4),
                         .number = dw_get(at + 8, 8),
                         .slot = dw_get(at + 16, 8),
                         .visit = dw_get(at + 24, 8),
                         .n = dw_get(at + 32, 8),
                         .part = (uint32_t)dw_get(at + 40, 4),
                         .piece = (uint32_t)dw_get(at + 44, 4),
                         .body_len = body_len};
    return true;
}
