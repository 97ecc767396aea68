/* SPDX-License-Identifier: Apache-2.0
 * draft.h - takes frames apart, changes or invents their parts, and assembles them again.
 *
 * A change to the parts (one parameter more, an entry doubled, another role) keeps the frame's
 * counts and its length right, so that the frame gets past the first checks; fuzz_change_field
 * changes any field of the assembled bytes. */
#ifndef DELTAWIRE_TESTS_FUZZ_DRAFT_H
#define DELTAWIRE_TESTS_FUZZ_DRAFT_H

#include "model.h"

enum { DRAFT_PARAMETERS = 34, DRAFT_ENTRIES = 8, DRAFT_FORGOTTEN = 8 };

typedef struct draft {
    uint8_t header[80];
    uint8_t parameter[DRAFT_PARAMETERS][8];
    uint8_t entry[DRAFT_ENTRIES][48];
    uint8_t forgotten[DRAFT_FORGOTTEN][16];
    uint8_t *payload[DRAFT_ENTRIES]; /* owned; as long as the entry's payload_bytes */
    uint32_t n_parameters, n_entries, n_forgotten;
} draft;

/* What a made-up frame may refer to. */
typedef struct draft_world {
    const model *model; /* its config, and what is held */
    const dw_key *keys;
    uint32_t n_keys;
    uint32_t n, t, c;
    dw_dtype x;
    uint64_t incarnation, sequence; /* of the frame that would be next */
} draft_world;

/* A frame of ours, which is valid. */
void draft_read(draft *d, const uint8_t *frame);

/* A frame whose entries have any roles that the codec allows, in step or nearly so, with payloads
 * of the right size and any bytes. */
void draft_make_up(draft *d, fuzz_input *input, const draft_world *world);

/* One change to the parts. */
void draft_change(draft *d, fuzz_input *input, const draft_world *world);

/* The frame, sealed; its length is *len. The caller frees it. */
uint8_t *draft_write(const draft *d, size_t *len);
void draft_free(draft *d);

/* Another value in one field of a frame, which its header's counts lead to. */
void fuzz_change_field(fuzz_input *input, uint8_t *frame, size_t len);

/* The same in a reply. */
void fuzz_change_reply_field(fuzz_input *input, uint8_t *reply, size_t len);

#endif
