/* SPDX-License-Identifier: Apache-2.0
 * model.h - a second decoder, with which fuzzers compare the one of the library.
 *
 * It is written from docs/format.md, is simple and slow, and shares no code with src/: it handles
 * one value at a time, finds positions by walking over the layout, and keeps the state of a decoder
 * in an array. Numbers of sections and steps in its comments refer to that page. */
#ifndef DELTAWIRE_TESTS_FUZZ_MODEL_H
#define DELTAWIRE_TESTS_FUZZ_MODEL_H

#include "fuzz.h"

enum { MODEL_KEYS = 64, MODEL_RETIRED = 16, MODEL_PARAMETERS = 64 };

/* What is held for one key (2). */
typedef struct model_held {
    bool used;
    dw_key key;
    uint32_t t, c;
    uint8_t dtype, kept; /* kept: the parameter prev */
    uint64_t incarnation, version, chain;
    uint8_t *prev; /* in the byte order of this machine, as dw_decoder_peek gives it */
} model_held;

typedef struct model {
    dw_config config;
    model_held held[MODEL_KEYS];
    uint64_t incarnation; /* of the last accepted frame with state; 0: none yet */
    uint64_t retired[MODEL_RETIRED], n_retired;
    uint64_t dropped_incarnation, drop_number; /* 2, step 7 */
} model;

void model_open(model *m, const dw_config *config);
void model_close(model *m);

const model_held *model_find(const model *m, dw_key key); /* NULL: nothing is held */
uint32_t model_keys(const model *m);
size_t model_prev_bytes(const model_held *held);

/* What a decoder must do with a frame. step: the step of section 2 that refused it, or MODEL_TAKEN.
 * y is written if the frame is accepted; its data may be NULL. reply: room for dw_reply_bound of
 * any N that reply_cap allows. */
enum { MODEL_TAKEN = 11 };
typedef struct model_answer {
    dw_status status;
    int step;
    size_t reply_len;
} model_answer;
model_answer model_decode(model *m, const uint8_t *frame, size_t len, const dw_tensor *y,
                          const dw_decode_options *options, uint8_t *reply, size_t reply_cap);

/* Steps 1 to 3: what functions that only read a frame must find. */
typedef struct model_header {
    uint8_t codec, flags, x, n_parameters;
    uint64_t incarnation, sequence, seed, length;
    uint32_t n, t, c, n_forgotten;
} model_header;
dw_status model_read(const uint8_t *frame, size_t len, model_header *h);

/* What dw_frame_length must return. */
dw_status model_length(const uint8_t *frame, size_t have, uint64_t *len);

/* The size of the payload that an entry of this config must have, for x of one dtype. SIZE_MAX: the
 * codec has no such use, or the payload takes more than `most`. */
size_t model_payload_bytes(const dw_config *config, uint8_t x, uint32_t use, uint32_t t, uint32_t c,
                           size_t most, uint8_t *form);

/* If the payload is entropy-coded, writes the sizes that it has where no block is; if it is sparse,
 * places of its values. */
void model_store_payload(const dw_config *config, uint8_t x, uint32_t use, uint32_t t, uint32_t c,
                         uint8_t *payload);

/* Writes the parameter block of a config into block, and returns the number of parameters. */
uint32_t model_parameters(const dw_config *config, uint8_t x, uint8_t *block);

/* Computes the state digests of a frame that passes steps 1 to 7, and then all other digests, as if
 * its payloads were made by its encoder. Other frames, and those of many samples or very large
 * ones, are not changed. */
void model_seal_states(const model *m, uint8_t *frame, size_t len);

#endif
