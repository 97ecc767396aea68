/* SPDX-License-Identifier: Apache-2.0
 * reply.c - the bytes of a reply. */
#include "wire/reply.h"

#include <string.h>

#include "base/bytes.h"
#include "wire/frame.h"

static const uint8_t magic[4] = {'D', 'W', 'R', '1'};

/* Offsets of the fields (docs/format.md, 6). */
enum {
    AT_MAJOR = 4,
    AT_MINOR = 5,
    AT_ANSWER = 6,
    AT_ZERO = 7,
    AT_INCARNATION = 8,
    AT_SEQUENCE = 16,
    AT_N = 24,
    AT_ZERO2 = 28,
    AT_TABLE_DIGEST = 32,
    AT_HEADER_DIGEST = 40,
};

void dw_reply_put_entry(uint8_t *reply, uint32_t i, const dw_reply_entry *entry)
{
    uint8_t *e = reply + DW_REPLY_BYTES + (uint64_t)i * DW_HELD_BYTES;
    memset(e, 0, DW_HELD_BYTES);
    dw_put(e, entry->key.sample, 8);
    dw_put(e + 8, entry->key.slice, 4);
    e[12] = entry->held != 0;
    dw_put(e + 16, entry->incarnation, 8);
    dw_put(e + 24, entry->version, 8);
    dw_put(e + 32, entry->chain, 8);
}

void dw_reply_finalize(uint8_t *reply, const dw_reply_info *info)
{
    memset(reply, 0, DW_REPLY_BYTES);
    memcpy(reply, magic, 4);
    reply[AT_MAJOR] = DW_FORMAT_MAJOR;
    reply[AT_MINOR] = DW_FORMAT_MINOR;
    reply[AT_ANSWER] = info->accepted ? 1 : info->replaced ? 3 : 2;
    dw_put(reply + AT_INCARNATION, info->incarnation, 8);
    dw_put(reply + AT_SEQUENCE, info->sequence, 8);
    dw_put(reply + AT_N, info->n, 4);
    dw_put(reply + AT_TABLE_DIGEST,
           dw_digest_bytes(reply + DW_REPLY_BYTES, (uint64_t)info->n * DW_HELD_BYTES), 8);
    dw_put(reply + AT_HEADER_DIGEST, dw_digest_bytes(reply, AT_HEADER_DIGEST), 8);
}

dw_status dw_reply_open(const uint8_t *reply, uint64_t len, dw_reply_info *info, const char **why)
{
    *why = "it is shorter than a reply";
    if (len < DW_REPLY_BYTES) return DW_ERR_FORMAT;
    *why = "it does not begin with DWR1";
    if (memcmp(reply, magic, 4) != 0) return DW_ERR_FORMAT;
    *why = "it was written in another version of the format";
    if (reply[AT_MAJOR] != DW_FORMAT_MAJOR || reply[AT_MINOR] != DW_FORMAT_MINOR)
        return DW_ERR_VERSION;
    *why = "the header's checksum does not match";
    if (dw_get(reply + AT_HEADER_DIGEST, 8) != dw_digest_bytes(reply, AT_HEADER_DIGEST))
        return DW_ERR_CORRUPT;
    uint64_t n = dw_get(reply + AT_N, 4);
    *why = "its length or a reserved byte is wrong";
    if (len != DW_REPLY_BYTES + n * DW_HELD_BYTES || reply[AT_ZERO] ||
        dw_get(reply + AT_ZERO2, 4) || reply[AT_ANSWER] < 1 || reply[AT_ANSWER] > 3)
        return DW_ERR_FORMAT;
    *why = "the entries' checksum does not match";
    if (dw_get(reply + AT_TABLE_DIGEST, 8) !=
        dw_digest_bytes(reply + DW_REPLY_BYTES, n * DW_HELD_BYTES))
        return DW_ERR_CORRUPT;
    *why = "an entry's fields contradict each other";
    for (uint64_t i = 0; i < n; i++) {
        const uint8_t *e = reply + DW_REPLY_BYTES + i * DW_HELD_BYTES;
        bool names = dw_get(e + 16, 8) != 0, counts = dw_get(e + 24, 8) != 0;
        if (e[12] > 1 || dw_get(e + 13, 3) ||
            (e[12] == 0 && (dw_get(e + 32, 8) || names != counts)))
            return DW_ERR_FORMAT;
    }
    *info = (dw_reply_info){.struct_size = sizeof *info,
                            .accepted = reply[AT_ANSWER] == 1,
                            .replaced = reply[AT_ANSWER] == 3,
                            .incarnation = dw_get(reply + AT_INCARNATION, 8),
                            .sequence = dw_get(reply + AT_SEQUENCE, 8),
                            .n = (uint32_t)n};
    *why = "";
    return DW_OK;
}

void dw_reply_get_entry(const uint8_t *reply, uint32_t i, dw_reply_entry *entry)
{
    const uint8_t *e = reply + DW_REPLY_BYTES + (uint64_t)i * DW_HELD_BYTES;
    *entry = (dw_reply_entry){{dw_get(e, 8), (uint32_t)dw_get(e + 8, 4)},
                              e[12] != 0,
                              dw_get(e + 16, 8),
                              dw_get(e + 24, 8),
                              dw_get(e + 32, 8)};
}
