/* SPDX-License-Identifier: Apache-2.0
 * frame.h - the bytes of a frame: header, parameter block, tables (docs/format.md, 1).
 *
 * This file knows where every field lies and which values it may have. It knows nothing of codecs:
 * the parameter block is a sequence of bytes, and a form is a number.
 *
 * Errors of the readers: FORMAT, VERSION, CORRUPT, in the order of docs/format.md, 2, steps 1 to 3;
 * *why is then the end of a sentence, "the frame cannot be read: %s". State: none. Threads: any. */
#ifndef DW_FRAME_H
#define DW_FRAME_H

#include "base/mem.h"

enum {
    DW_HEADER_BYTES = 80,
    DW_PARAMETER_BYTES = 8, /* one parameter: the option's number and its value */
    DW_PARAMETERS_MOST = 32,
    DW_ENTRY_BYTES = 48,
    DW_FORGOTTEN_BYTES = 16,
    /* Offsets of what a device fills in: the length of the frame and the digests of tables and
     * header in the header, the size of the payload and the digests of payload and state in an
     * entry. */
    DW_LENGTH_AT = 48,
    DW_TABLE_DIGEST_AT = 64,
    DW_HEADER_DIGEST_AT = 72,
    DW_PAYLOAD_BYTES_AT = 24,
    DW_PAYLOAD_DIGEST_AT = 32,
    DW_STATE_DIGEST_AT = 40,
};

/* How an entry uses the config: which values it carries, and so which form of the config writes
 * them. */
typedef enum dw_use {
    DW_USE_NONE = 0,   /* no payload */
    DW_USE_WHOLE = 1,  /* x itself: key entries and stateless entries */
    DW_USE_CHANGE = 2, /* x - prev: delta entries */
    DW_USE_BRIEF = 3,  /* x itself, in the form of changes: stateless entries that must be short */
    DW_USE_EXACT = 4,  /* prev itself, or with error=abs x, as floats: sync entries */
} dw_use;
enum { DW_USES = 5 };

typedef struct dw_header {
    uint8_t version_major, version_minor;
    uint8_t codec; /* its number in frames */
    bool wants_reply;
    bool draws_alike; /* places follow from seed and key alone */
    uint64_t incarnation, sequence, seed;
    uint32_t n, t, c;
    dw_dtype x;
    uint32_t n_parameters, n_forgotten;
    uint64_t length; /* of the whole frame; bytes behind it do not belong to the frame */
} dw_header;

typedef struct dw_entry {
    dw_key key;
    dw_role role;
    uint8_t form; /* its number in frames; 0: no payload */
    dw_use use;
    uint64_t base_chain, payload_bytes, payload_digest, state_digest;
    uint64_t payload_offset; /* within the frame; computed, not stored in it */
} dw_entry;

static inline bool dw_role_has_state(dw_role role)
{
    return role != DW_ROLE_STATELESS;
}

/* H of docs/format.md: XXH3-64. */
uint64_t dw_digest_bytes(const void *bytes, uint64_t len);

/* Where the tables begin and end, in bytes from the start of the frame. Returns false where the end
 * exceeds PTRDIFF_MAX. */
static inline uint64_t dw_frame_tables(uint32_t n_parameters)
{
    return DW_HEADER_BYTES + (uint64_t)n_parameters * DW_PARAMETER_BYTES;
}
bool dw_frame_table_end(uint32_t n_parameters, uint32_t n, uint32_t n_forgotten, uint64_t *bytes);

/* The chain value of an entry: the digest of its key's history, including this entry. parameters: H
 * of the parameter block. */
uint64_t dw_frame_chain(const dw_header *header, uint64_t parameters, dw_dtype prev,
                        const dw_entry *entry);

/* Writers. Call them for the parameter block and the tables first, then dw_frame_finalize, which
 * writes the header with the digests. The frame must have room for all of it. */
void dw_frame_put_parameters(uint8_t *frame, const uint8_t *block, uint32_t n_parameters);
void dw_frame_put_entry(uint8_t *frame, const dw_header *header, uint32_t i, const dw_entry *entry);
void dw_frame_put_forgotten(uint8_t *frame, const dw_header *header, uint32_t i, dw_key key);
void dw_frame_finalize(uint8_t *frame, const dw_header *header);

/* Step 1: checks and reads the header, given the first `have` bytes of the frame. */
dw_status dw_frame_open_header(const uint8_t *frame, uint64_t have, dw_header *header,
                               const char **why);

/* Steps 1 to 3, except for the rules of the codec (the contents of the parameter block, and payload
 * sizes that follow from them). head: the first head_len bytes of the frame, which must include
 * header, parameters and tables. len: how many bytes of the frame have arrived; at least
 * header->length is needed. *tables_intact: the keys could be read. */
dw_status dw_frame_open(const uint8_t *head, uint64_t head_len, uint64_t len, dw_header *header,
                        bool *tables_intact, const char **why);

/* The end of the tables, as the header says, but at most head_len. */
uint64_t dw_frame_reach(const uint8_t *head, uint64_t head_len);

/* For a frame that was opened. dw_frame_get_entry sets payload_offset to 0. */
void dw_frame_get_entry(const uint8_t *frame, const dw_header *header, uint32_t i, dw_entry *entry);
dw_key dw_frame_get_forgotten(const uint8_t *frame, const dw_header *header, uint32_t i);

#endif
