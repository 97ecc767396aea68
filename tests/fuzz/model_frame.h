/* SPDX-License-Identifier: Apache-2.0
 * model_frame.h - how the model reads a frame: section 1 of docs/format.md, and steps 1 to 3. */
#ifndef DELTAWIRE_TESTS_FUZZ_MODEL_FRAME_H
#define DELTAWIRE_TESTS_FUZZ_MODEL_FRAME_H

#include "model.h"
#include "model_values.h"

/* The meaning of the numbers in fields. */
enum {
    DELTA = 1,
    DIRECT = 2,
    RAW = 3,
    MX = 4,
    TOPK = 5,
    RANDK = 6,
    COCKTAIL = 7,
    CHUNK = 8,
    LOW = 9,
    TAH = 10,
    IN_BLOCKS = 11
};
enum { STATELESS = 1, KEY = 2, CHANGE = 3, SKIP = 4, SYNC = 5 };
enum { HEADER = 80, PARAMETER = 8, ENTRY = 48, FORGOTTEN = 16 };
enum {
    BITS = 1,
    GROUP,
    ROUNDING = 4,
    KEY_AS = 6,
    DTYPE,
    PREV,
    CHOOSE,
    AUDIT = 11,
    FORM = 14,
    ELEMENT,
    CODING = 18,
    KEEP = 26,
    MASKED = 28,
    CHUNKED = 29,
    TRANSFORM = 32,
    ROTATE = 33,
    TILE = 34,
    SHARE = 36,
    RANK = 37,
    WIDTH = 40,
    CODEBOOK = 41,
    BLOCK = 42,
    PROFILE = 47
};
enum {
    FLOATS = 1,
    QUANTIZED = 2,
    MICROSCALED = 3,
    STEPPED = 4,
    SPARSE = 5,
    LOWRANK = 6,
    TILED = 7,
    BLOCKS = 8
};

typedef struct model_entry {
    dw_key key;
    uint8_t role, form, use, zero;
    uint64_t base_chain, payload_bytes, payload_digest, state_digest;
} model_entry;

/* Values, indexed by the numbers of the parameters; 0: the parameter is missing. */
typedef struct model_params {
    uint8_t codec;
    uint32_t of[MODEL_PARAMETERS];
    uint64_t digest;
} model_params;

/* The dtype of prev': bfloat16 where it is held in few bits. */
static inline uint8_t model_prev_dtype(const model_params *p)
{
    return p->of[PREV] > 3 ? 3 : (uint8_t)p->of[PREV];
}

uint64_t model_get(const uint8_t *at, int bytes);
void model_put(uint8_t *at, int bytes, uint64_t value);
uint64_t model_hash(const void *bytes, uint64_t n);

/* The places of the parts of a frame, and their contents. */
uint64_t model_entry_place(const model_header *h, uint32_t i);
uint64_t model_tables_end(const model_header *h);
model_entry model_entry_at(const uint8_t *frame, const model_header *h, uint32_t i);
dw_key model_forgotten_at(const uint8_t *frame, const model_header *h, uint32_t i);
bool model_has_state(const model_entry *e);

/* The last table in 1.3. Returns false if the codec has no such use. */
bool model_find_way(const model_params *p, uint32_t use, model_way *way);

/* Steps 1 to 3. *whole: steps 1 and 2 and the part of step 3 that does not depend on the codec are
 * passed, so that a reply can be made. */
dw_status model_open_frame(const uint8_t *frame, size_t len, model_header *h, model_params *p,
                           int *step, bool *whole);

#endif
