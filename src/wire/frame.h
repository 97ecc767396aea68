/* SPDX-License-Identifier: Apache-2.0
 * frame.h - the only room that knows bytes on the wire: headers, tables, replies (docs/format.md,
 * 1, 2, 6).
 *
 * Errors of the readers: FORMAT, VERSION, CORRUPT, in the order of docs/format.md, 2, steps 1 to 3.
 * On error nothing is written, but that dw_frame_open gives the header of a frame whose tables are
 * intact and whose sizes are wrong. State: none. Threads: any. */
#ifndef DW_FRAME_H
#define DW_FRAME_H

#include "layout.h"
#include "mem.h"

enum {
    DW_HEADER_BYTES = 80,
    DW_ENTRY_BYTES = 40,
    DW_FORGOTTEN_BYTES = 16,
    DW_REPLY_BYTES = 48,
    DW_HELD_BYTES = 40
};
enum { DW_FLAG_CHOOSES = 1, DW_FLAG_WANTS_REPLY = 2 };

/* Bytes of the payload of an entry of this kind; false where they overflow. info gives shape and
 * parameters. */
bool dw_frame_payload_bytes(const dw_frame_info *info, dw_entry_kind kind, uint64_t *bytes);

/* Bytes of header and tables; false on overflow. */
bool dw_frame_table_end(uint32_t n, uint32_t n_forgotten, uint64_t *bytes);

/* The layout of the payload of a quantized kind; false where its size overflows. */
bool dw_frame_layout(const dw_frame_info *info, dw_entry_kind kind, dw_layout *layout);

/* The dtype of a form (16, 17, 32); 0 where it is none. */
dw_dtype dw_dtype_of(uint32_t form);

/* The dtype of the payload of a kind of floats: RAW, KEY_RAW, SYNC. */
dw_dtype dw_frame_form(const dw_frame_info *info, dw_entry_kind kind);

bool dw_kind_has_state(dw_entry_kind kind);
bool dw_kind_is_floats(dw_entry_kind kind);

/* H of docs/format.md: XXH3-64. */
uint64_t dw_digest_bytes(const void *bytes, uint64_t len);

/* The chain that an entry of a frame makes. */
uint64_t dw_frame_chain(const dw_frame_info *info, const dw_entry_info *entry);

/* Writers: the tables first, then the header, which seals them. frame has room for all of it. */
void dw_frame_put_entry(uint8_t *frame, uint32_t i, const dw_entry_info *entry);
void dw_frame_put_forgotten(uint8_t *frame, uint32_t n, uint32_t i, dw_key key);
void dw_frame_seal(uint8_t *frame, const dw_frame_info *info);

void dw_reply_put_entry(uint8_t *reply, uint32_t i, const dw_reply_entry *entry);
void dw_reply_seal(uint8_t *reply, const dw_reply_info *info);

/* Readers. dw_frame_open is dw_frame_read without the sentence; *tables_intact says whether the
 * keys could be read. */
dw_status dw_frame_open(const uint8_t *frame, uint64_t len, dw_frame_info *info,
                        bool *tables_intact, const char **why);
/* The same where only head_len bytes of the frame are at hand, which hold header and tables. */
dw_status dw_frame_open_head(const uint8_t *head, uint64_t head_len, uint64_t len,
                             dw_frame_info *info, bool *tables_intact, const char **why);
uint64_t dw_frame_reach(const uint8_t *head, uint64_t head_len); /* the end of the tables by what
                                                                    the header says, at most
                                                                    head_len */
void dw_frame_get_entry(const uint8_t *frame, uint32_t i, dw_entry_info *entry); /* without payload
                                                                                    offset and bytes
                                                                                  */
dw_key dw_frame_get_forgotten(const uint8_t *frame, uint32_t n, uint32_t i);
dw_status dw_reply_open(const uint8_t *reply, uint64_t len, dw_reply_info *info, const char **why);
void dw_reply_get_entry(const uint8_t *reply, uint32_t i, dw_reply_entry *entry);

#endif
