/* SPDX-License-Identifier: Apache-2.0
 * saved.h - the bytes of one key's saved state, and of what an encoder keeps beside its copies
 * (docs/format.md, 7).
 *
 * Errors of the reader: FORMAT, VERSION, CORRUPT. State: none. Threads: any. */
#ifndef DW_SAVED_H
#define DW_SAVED_H

#include "base/mem.h"

enum { DW_SAVED_HEADER_BYTES = 96, DW_SAVED_RATE_WORDS = 4 };

typedef enum dw_side {
    DW_SIDE_ENCODER = 1,
    DW_SIDE_DECODER = 2,
    DW_SIDE_RESIDUAL = 3, /* an encoder with error feedback: the values are a residual */
    DW_SIDE_STREAM = 4,   /* an encoder itself, of no key: see DW_STREAM_KEY */
    DW_SIDE_FORGOTTEN = 5 /* an encoder without a copy of the key, which the decoder may have */
} dw_side;

/* The key of what an encoder keeps beside its keys: its incarnation, the number of its last frame,
 * and, with the option rate, in DW_SAVED_RATE_WORDS words (there are no values), dw_rate. */
#define DW_STREAM_KEY ((dw_key){UINT64_MAX, UINT32_MAX})

typedef struct dw_saved {
    dw_side side;
    dw_dtype dtype;
    bool is_base; /* the next delta may start from this copy */
    dw_key key;
    uint32_t t, c, audit;
    uint32_t more;                  /* how many words of 4 bytes follow the values */
    uint64_t incarnation, sequence; /* sequence: number of the encoder's last frame; 0 for a decoder
                                     */
    uint64_t version, chain, state_digest;
    /* T*C values, and then those words: in this machine's byte order when written, in little-endian
     * order after a read.
     */
    const void *prev;
    uint64_t counted; /* FORGOTTEN, in place of t and c: bytes that the key takes of the quota */
} dw_saved;

uint64_t dw_saved_bytes(const dw_saved *saved);
void dw_saved_write(uint8_t *to, const dw_saved *saved);
dw_status dw_saved_read(const uint8_t *from, uint64_t len, dw_saved *saved, const char **why);

/* Copies the values of a saved state that was read, converting them to this machine's byte
 * order. */
void dw_saved_load(void *prev, const dw_saved *saved);

#endif
