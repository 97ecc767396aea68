/* SPDX-License-Identifier: Apache-2.0
 * inspect.c - frames and replies as readable structs, for whoever looks without decoding. */
#include <stdio.h>

#include "frame.h"

static void explain(dw_why *why, const char *what, const char *reason)
{
    if (!why) return;
    why->offset = -1;
    snprintf(why->text, sizeof why->text, "the %s cannot be read: %s", what, reason);
}

dw_status dw_frame_read(const void *frame, size_t len, dw_frame_info *info, dw_why *why)
{
    const char *reason;
    bool intact;
    dw_frame_info found;
    if (why) *why = (dw_why){.offset = -1};
    if (!frame || !info) return DW_ERR_ARGUMENT;
    dw_status status = dw_frame_open(frame, len, &found, &intact, &reason);
    if (status)
        explain(why, "frame", reason);
    else
        *info = found;
    return status;
}

dw_status dw_frame_entries(const void *frame, size_t len, uint32_t first, uint32_t n,
                           dw_entry_info *entries)
{
    dw_frame_info info;
    uint64_t at = 0;
    if (!entries) return DW_ERR_ARGUMENT;
    dw_status status = dw_frame_read(frame, len, &info, NULL);
    if (status) return status;
    if (first > info.n || n > info.n - first) return DW_ERR_ARGUMENT;
    (void)dw_frame_table_end(info.n, info.n_forgotten, &at);
    for (uint32_t i = 0; i < first + n; i++) {
        dw_entry_info entry;
        dw_frame_get_entry(frame, i, &entry);
        (void)dw_frame_payload_bytes(&info, entry.kind, &entry.payload_bytes);
        entry.payload_offset = at;
        at += entry.payload_bytes;
        if (i >= first) entries[i - first] = entry;
    }
    return DW_OK;
}

dw_status dw_frame_keys(const void *frame, size_t len, uint32_t n, dw_key *keys)
{
    dw_frame_info info;
    if (!keys) return DW_ERR_ARGUMENT;
    dw_status status = dw_frame_read(frame, len, &info, NULL);
    if (status) return status;
    if (n != info.n) return DW_ERR_SHAPE;
    for (uint32_t i = 0; i < n; i++) {
        dw_entry_info entry;
        dw_frame_get_entry(frame, i, &entry);
        keys[i] = entry.key;
    }
    return DW_OK;
}

dw_status dw_frame_forgotten(const void *frame, size_t len, uint32_t i, dw_key *key)
{
    dw_frame_info info;
    if (!key) return DW_ERR_ARGUMENT;
    dw_status status = dw_frame_read(frame, len, &info, NULL);
    if (status) return status;
    if (i >= info.n_forgotten) return DW_ERR_ARGUMENT;
    *key = dw_frame_get_forgotten(frame, info.n, i);
    return DW_OK;
}

dw_status dw_reply_read(const void *reply, size_t len, dw_reply_info *info, dw_why *why)
{
    const char *reason;
    dw_reply_info found;
    if (why) *why = (dw_why){.offset = -1};
    if (!reply || !info) return DW_ERR_ARGUMENT;
    dw_status status = dw_reply_open(reply, len, &found, &reason);
    if (status)
        explain(why, "reply", reason);
    else
        *info = found;
    return status;
}

dw_status dw_reply_entry_read(const void *reply, size_t len, uint32_t i, dw_reply_entry *entry)
{
    dw_reply_info info;
    if (!entry) return DW_ERR_ARGUMENT;
    dw_status status = dw_reply_read(reply, len, &info, NULL);
    if (status) return status;
    if (i >= info.n) return DW_ERR_ARGUMENT;
    dw_reply_get_entry(reply, i, entry);
    return DW_OK;
}
