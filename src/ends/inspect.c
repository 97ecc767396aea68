/* SPDX-License-Identifier: Apache-2.0
 * inspect.c - reads frames and replies into structs without decoding them. */
#include "ends/inspect.h"
#include "base/sentence.h"
#include "base/sized.h"
#include "wire/reply.h"

dw_status dw_frame_inspect(const uint8_t *frame, size_t len, dw_header *header, dw_plans *plans,
                           dw_config *config, const char **reason)
{
    bool intact;
    dw_status status = dw_frame_open(frame, len, len, header, &intact, reason);
    if (status) return status;
    *reason = dw_frame_check(frame, header, plans, config);
    return *reason ? DW_ERR_FORMAT : DW_OK;
}

static dw_status open_frame(const void *frame, size_t len, dw_header *header, dw_config *config,
                            const char **reason)
{
    dw_plans plans;
    return dw_frame_inspect(frame, len, header, &plans, config, reason);
}

dw_status dw_frame_read(const void *frame, size_t len, dw_frame_info *info, dw_why *why)
{
    const char *reason;
    dw_header header;
    dw_config config;
    if (why) *why = (dw_why){.offset = -1};
    if (!frame || !info) return DW_ERR_ARGUMENT;
    dw_status status = open_frame(frame, len, &header, &config, &reason);
    if (status) return dw_say(why, status, "the frame cannot be read: %s", reason);
    config.replies = header.wants_reply ? DW_REPLIES_ALWAYS : DW_REPLIES_NEVER;
    dw_frame_info found = {.version_major = header.version_major,
                           .version_minor = header.version_minor,
                           .incarnation = header.incarnation,
                           .sequence = header.sequence,
                           .seed = header.seed,
                           .length = header.length,
                           .n = header.n,
                           .t = header.t,
                           .c = header.c,
                           .x = header.x,
                           .wants_reply = header.wants_reply,
                           .draws_alike = header.draws_alike,
                           .n_forgotten = header.n_forgotten,
                           .config = config};
    return dw_give_told(info, &found, sizeof found, "dw_frame_info", why);
}

dw_status dw_frame_length(const void *frame, size_t have, uint64_t *len)
{
    dw_header header;
    const char *reason;
    if (!frame || !len) return DW_ERR_ARGUMENT;
    if (have < DW_HEADER_BYTES) {
        *len = DW_HEADER_BYTES;
        return DW_PENDING;
    }
    dw_status status = dw_frame_open_header(frame, have, &header, &reason);
    if (!status) *len = header.length;
    return status;
}

dw_status dw_frame_entries(const void *frame, size_t len, uint32_t first, uint32_t n,
                           dw_entry_info *entries)
{
    dw_header header;
    dw_config config;
    const char *reason;
    uint64_t at = 0;
    if (!frame || !entries) return DW_ERR_ARGUMENT;
    dw_status status = open_frame(frame, len, &header, &config, &reason);
    if (status) return status;
    if (first > header.n || n > header.n - first) return DW_ERR_ARGUMENT;
    (void)dw_frame_table_end(header.n_parameters, header.n, header.n_forgotten, &at);
    for (uint32_t i = 0; i < first + n; i++) {
        dw_entry entry;
        dw_frame_get_entry(frame, &header, i, &entry);
        if (i >= first)
            entries[i - first] = (dw_entry_info){.key = entry.key,
                                                 .role = entry.role,
                                                 .form = (dw_form_name)entry.form,
                                                 .base_chain = entry.base_chain,
                                                 .payload_digest = entry.payload_digest,
                                                 .state_digest = entry.state_digest,
                                                 .payload_offset = at,
                                                 .payload_bytes = entry.payload_bytes};
        at += entry.payload_bytes;
    }
    return DW_OK;
}

dw_status dw_frame_keys(const void *frame, size_t len, uint32_t n, dw_key *keys)
{
    dw_header header;
    dw_config config;
    const char *reason;
    if (!frame || !keys) return DW_ERR_ARGUMENT;
    dw_status status = open_frame(frame, len, &header, &config, &reason);
    if (status) return status;
    if (n != header.n) return DW_ERR_SHAPE;
    for (uint32_t i = 0; i < n; i++) {
        dw_entry entry;
        dw_frame_get_entry(frame, &header, i, &entry);
        keys[i] = entry.key;
    }
    return DW_OK;
}

dw_status dw_frame_forgotten(const void *frame, size_t len, uint32_t i, dw_key *key)
{
    dw_header header;
    dw_config config;
    const char *reason;
    if (!frame || !key) return DW_ERR_ARGUMENT;
    dw_status status = open_frame(frame, len, &header, &config, &reason);
    if (status) return status;
    if (i >= header.n_forgotten) return DW_ERR_ARGUMENT;
    *key = dw_frame_get_forgotten(frame, &header, i);
    return DW_OK;
}

dw_status dw_reply_read(const void *reply, size_t len, dw_reply_info *info, dw_why *why)
{
    const char *reason;
    dw_reply_info found;
    if (why) *why = (dw_why){.offset = -1};
    if (!reply || !info) return DW_ERR_ARGUMENT;
    dw_status status = dw_reply_open(reply, len, &found, &reason);
    if (status) return dw_say(why, status, "the reply cannot be read: %s", reason);
    return dw_give_told(info, &found, sizeof found, "dw_reply_info", why);
}

dw_status dw_reply_entry_read(const void *reply, size_t len, uint32_t i, dw_reply_entry *entry)
{
    dw_reply_info info;
    const char *reason;
    if (!reply || !entry) return DW_ERR_ARGUMENT;
    dw_status status = dw_reply_open(reply, len, &info, &reason);
    if (status) return status;
    if (i >= info.n) return DW_ERR_ARGUMENT;
    dw_reply_get_entry(reply, i, entry);
    return DW_OK;
}
