/* SPDX-License-Identifier: Apache-2.0
 * draft.h - takes frames apart, changes or invents their parts, and assembles them again.
 *
 * A change to the parts (a parameter is added, an entry is duplicated, a role is replaced) keeps
 * the counts and the length of the frame right, so that the frame passes the first checks.
 * fuzz_change_field changes any field of the assembled bytes. */
#ifndef DELTAWIRE_TESTS_FUZZ_DRAFT_H
#define DELTAWIRE_TESTS_FUZZ_DRAFT_H

#include "model.h"

enum { DRAFT_PARAMETERS = 34, DRAFT_ENTRIES = 8, DRAFT_FORGOTTEN = 8 };

typedef struct draft {
    uint8_t header[80];
    uint8_t parameter[DRAFT_PARAMETERS][8];
    uint8_t entry[DRAFT_ENTRIES][48];
    uint8_t forgotten[DRAFT_FORGOTTEN][16];
    uint8_t *payload[DRAFT_ENTRIES]; /* owned; each has the payload_bytes of its entry */
    uint32_t n_parameters, n_entries, n_forgotten;
} draft;

/* What an invented frame may refer to. */
typedef struct draft_world {
    const model *model; /* its config, and the keys that it holds */
    const dw_key *keys;
    uint32_t n_keys;
    uint32_t n, t, c;
    dw_dtype x;
    uint64_t incarnation, sequence; /* those of the frame that would be next */
} draft_world;

/* Takes apart a valid frame of our own encoder. */
void draft_read(draft *d, const uint8_t *frame);

/* Invents a frame. Its entries have any roles that the codec allows, with the right base or nearly
 * so, and payloads of the right size with any bytes. */
void draft_make_up(draft *d, fuzz_input *input, const draft_world *world);

/* Makes one random change to the parts. */
void draft_change(draft *d, fuzz_input *input, const draft_world *world);

/* Assembles the frame and computes its digests; its length is *len. The caller frees it. */
uint8_t *draft_write(const draft *d, size_t *len);
void draft_free(draft *d);

/* Changes one field of a frame, whose place is found by the counts in the header. */
void fuzz_change_field(fuzz_input *input, uint8_t *frame, size_t len);

/* The same for a reply. */
void fuzz_change_reply_field(fuzz_input *input, uint8_t *reply, size_t len);

#endif
