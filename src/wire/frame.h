/* SPDX-License-Identifier: Apache-2.0
 * frame.h - the bytes of a frame: header, parameter block, tables (docs/format.md, 1).
 *
 * This room knows where every byte lies and what it may be by itself. It does not know codecs: the
 * parameter block is a run of bytes here, and a form is a number.
 *
 * Errors of the readers: FORMAT, VERSION, CORRUPT, in the order of docs/format.md, 2, steps 1 to 3;
 * *why is then a part of a sentence, "the frame cannot be read: %s".
 * State: none. Threads: any. */
#ifndef DW_FRAME_H
#define DW_FRAME_H

#include "base/mem.h"

enum {
    DW_HEADER_BYTES = 80,
    DW_PARAMETER_BYTES = 8, /* one parameter: its number, and its value */
    DW_PARAMETERS_MOST = 32,
    DW_ENTRY_BYTES = 48,
    DW_FORGOTTEN_BYTES = 16,
    /* Where digests lie: of tables and header in the header, of payload and state in an entry. */
    DW_TABLE_DIGEST_AT = 64,
    DW_HEADER_DIGEST_AT = 72,
    DW_PAYLOAD_DIGEST_AT = 32,
    DW_STATE_DIGEST_AT = 40,
};

/* Which of a config's ways of writing values an entry uses. */
typedef enum dw_use {
    DW_USE_NONE = 0,   /* there is no payload */
    DW_USE_WHOLE = 1,  /* x itself: key entries, and stateless ones */
    DW_USE_CHANGE = 2, /* x - prev: delta entries */
    DW_USE_BRIEF = 3,  /* x itself, written as changes are: stateless entries that must be short */
    DW_USE_EXACT = 4,  /* prev as it is: sync entries */
} dw_use;
enum { DW_USES = 5 };

typedef struct dw_header {
    uint8_t version_major, version_minor;
    uint8_t codec; /* its number on the wire */
    bool wants_reply;
    uint64_t incarnation, sequence, seed;
    uint32_t n, t, c;
    dw_dtype x;
    uint32_t n_parameters, n_forgotten;
    uint64_t length; /* of the whole frame, without what may lie behind it */
} dw_header;

typedef struct dw_entry {
    dw_key key;
    dw_role role;
    uint8_t form; /* its number on the wire; 0: no payload */
    dw_use use;
    uint64_t base_chain, payload_bytes, payload_digest, state_digest;
    uint64_t payload_offset; /* within the frame; not on the wire */
} dw_entry;

static inline bool dw_role_has_state(dw_role role)
{
    return role != DW_ROLE_STATELESS;
}

/* H of docs/format.md: XXH3-64. */
uint64_t dw_digest_bytes(const void *bytes, uint64_t len);

/* Where the tables begin and end; false where the size passes what an address can be. */
static inline uint64_t dw_frame_tables(uint32_t n_parameters)
{
    return DW_HEADER_BYTES + (uint64_t)n_parameters * DW_PARAMETER_BYTES;
}
bool dw_frame_table_end(uint32_t n_parameters, uint32_t n, uint32_t n_forgotten, uint64_t *bytes);

/* The chain that an entry of a frame makes. parameters: H of the parameter block. */
uint64_t dw_frame_chain(const dw_header *header, uint64_t parameters, dw_dtype prev,
                        const dw_entry *entry);

/* Writers: parameter block and tables first, then the header, which seals them. The frame has room
 * for all of it. */
void dw_frame_put_parameters(uint8_t *frame, const uint8_t *block, uint32_t n_parameters);
void dw_frame_put_entry(uint8_t *frame, const dw_header *header, uint32_t i, const dw_entry *entry);
void dw_frame_put_forgotten(uint8_t *frame, const dw_header *header, uint32_t i, dw_key key);
void dw_frame_seal(uint8_t *frame, const dw_header *header);

/* Step 1: the header alone, of which `have` bytes are there. */
dw_status dw_frame_open_header(const uint8_t *frame, uint64_t have, dw_header *header,
                               const char **why);

/* Steps 1 to 3, but for what only a codec can judge (the parameter block, and whether a payload has
 * the size that they give it). head: the first head_len bytes, which hold header, parameters and
 * tables; len: of all that came, at least header->length. *tables_intact: the keys could be
 * read. */
dw_status dw_frame_open(const uint8_t *head, uint64_t head_len, uint64_t len, dw_header *header,
                        bool *tables_intact, const char **why);

/* The end of the tables by what the header says, at most head_len. */
uint64_t dw_frame_reach(const uint8_t *head, uint64_t head_len);

/* Of a frame that was opened. get_entry leaves payload_offset 0. */
void dw_frame_get_entry(const uint8_t *frame, const dw_header *header, uint32_t i, dw_entry *entry);
dw_key dw_frame_get_forgotten(const uint8_t *frame, const dw_header *header, uint32_t i);

#endif
