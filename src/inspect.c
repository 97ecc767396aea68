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
    if (!frame || !info) return DW_ERR_ARGUMENT;
    dw_status status = dw_frame_open(frame, len, &found, &intact, &reason);
    if (status)
        explain(why, "frame", reason);
    else
        *info = found;
    return status;
}

dw_status dw_frame_entry(const void *frame, size_t len, uint32_t i, dw_entry_info *entry)
{
    dw_frame_info info;
    uint64_t at = 0;
    if (!entry) return DW_ERR_ARGUMENT;
    dw_status status = dw_frame_read(frame, len, &info, NULL);
    if (status) return status;
    if (i >= info.n) return DW_ERR_ARGUMENT;
    (void)dw_frame_table_end(info.n, info.n_forgotten, &at);
    for (uint32_t k = 0;; k++) {
        uint64_t bytes = 0;
        dw_frame_get_entry(frame, k, entry);
        (void)dw_frame_payload_bytes(&info, entry->kind, &bytes);
        entry->payload_offset = at;
        entry->payload_bytes = bytes;
        if (k == i) return DW_OK;
        at += bytes;
    }
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
