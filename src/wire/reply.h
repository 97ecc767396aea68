/* SPDX-License-Identifier: Apache-2.0
 * reply.h - the bytes of a reply, which says what a decoder holds of a frame's keys
 * (docs/format.md, 6).
 *
 * Errors of the reader: FORMAT, VERSION, CORRUPT. State: none. Threads: any. */
#ifndef DW_REPLY_H
#define DW_REPLY_H

#include "base/mem.h"

enum { DW_REPLY_BYTES = 48, DW_HELD_BYTES = 40 };

/* Writers: call dw_reply_put_entry for all entries first, then dw_reply_finalize, which writes the
 * header with the digests. */
void dw_reply_put_entry(uint8_t *reply, uint32_t i, const dw_reply_entry *entry);
void dw_reply_finalize(uint8_t *reply, const dw_reply_info *info);

dw_status dw_reply_open(const uint8_t *reply, uint64_t len, dw_reply_info *info, const char **why);
void dw_reply_get_entry(const uint8_t *reply, uint32_t i, dw_reply_entry *entry);

#endif
