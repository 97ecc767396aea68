/* SPDX-License-Identifier: Apache-2.0
 * model_values.h - the model's arithmetic and layouts: sections 3 and 5 of docs/format.md. */
#ifndef DELTAWIRE_TESTS_FUZZ_MODEL_VALUES_H
#define DELTAWIRE_TESTS_FUZZ_MODEL_VALUES_H

#include "fuzz.h"

/* How the values of one use are written (the last table in 1.3). */
typedef struct model_way {
    uint8_t form; /* 0: no payload */
    uint32_t bits, group;
    bool chooses;
    uint8_t dtype;   /* for the form floats */
    uint8_t element; /* for the forms mx and sparse; otherwise 0 */
    bool dithers;    /* for the form step */
    bool coded;      /* entropy-coded (3.8) */
    /* For the form sparse; bits, group, element and dtype are those of its values. */
    uint32_t keep, mask, chunk; /* mask, chunk: 0 without the parameter */
    bool is_random;
    /* For the form lowrank; bits, group and dtype are those of its factors. width 0: not given. */
    uint32_t rank, width;
    uint32_t codebook, block; /* for the form blocks */
    uint32_t rotates;         /* 3.11: channels of a rotated block; 0: none */
    uint32_t tile, share;     /* for the form tah */
    uint32_t profile;         /* 3.15: the digest of the profile; 0: none */
} model_way;

/* 3.3: the way of writing microscaled values with this element. */
model_way model_microscaled(uint32_t element);

/* Section 3: the size of a payload, or SIZE_MAX if it is more than `most`. */
size_t model_size(const model_way *way, uint32_t t, uint32_t c, size_t most);

/* A tile of a plain payload, which is not one of floats: its scales at an offset, behind them the
 * bytes of its n codes, and in steps behind those the room for escaped values (3.4). breaks: it
 * begins a row whose number is a multiple of 8, where rows are cut. */
typedef struct model_tile {
    uint64_t offset, scales, bytes, room;
    uint32_t n;
    bool breaks;
} model_tile;

/* 3.4: the bytes of the room of a tile of n codes, and how many values it holds at most. */
uint64_t model_room(const model_way *way, uint64_t n);
uint32_t model_room_most(uint64_t n);

/* All tiles of a payload, to be freed. */
model_tile *model_tiles(const model_way *way, uint32_t t, uint32_t c, uint64_t *n);

/* The part that a code of a payload belongs to, and whether its sign is turned there (3.9). */
typedef struct model_part {
    uint8_t part;
    bool turned;
} model_part;

/* Sets parts[i] for every code i of a payload, in the order of its tiles, padding included. draws:
 * the key of the random numbers of the entry. */
void model_parts(const model_way *way, uint32_t t, uint32_t c, uint64_t draws, model_part *parts);

/* model_coded.c. coded_most: the largest size of a coded payload whose plain one has so many bytes.
 * plain: the plain payload, to be freed, or NULL where a rule is broken (step 8). store_sizes:
 * writes the sizes of a payload whose blocks are all as in the plain one. */
uint64_t model_coded_most(const model_way *way, uint32_t t, uint32_t c, uint64_t plain);
uint8_t *model_plain(const model_way *way, uint32_t t, uint32_t c, uint64_t draws,
                     const uint8_t *payload, uint64_t bytes);
void model_store_sizes(const model_way *way, uint32_t t, uint32_t c, uint8_t *payload);

/* model_sparse.c (3.10). most: the largest size of a payload; SIZE_MAX where that is more than
 * `most`, or the sample is too large. store: writes places to a payload of this size. */
size_t model_sparse_most(const model_way *way, uint32_t t, uint32_t c, size_t most);
void model_sparse_store(const model_way *way, uint32_t t, uint32_t c, uint8_t *payload);

/* model_lowrank.c (3.12). size: of a payload; SIZE_MAX if it is more than `most`, or if the shape
 * does not allow it. */
size_t model_lowrank_size(const model_way *way, uint32_t t, uint32_t c, size_t most);
/* model_blocks.c (3.13): the size of a payload, or SIZE_MAX if it is more than `most`. */
size_t model_blocks_size(const model_way *way, uint32_t t, uint32_t c, size_t most);

/* One element as section 5 computes it, before it is rounded to y or prev. */
typedef struct model_value {
    float r;       /* the result of step 4; for floats the value itself */
    bool poisoned; /* y is NaN; prev is kept (deltas) or becomes +0 */
    uint32_t bits; /* for floats, the bits of the payload, in their dtype; with a profile, the
                      scale of the piece */
} model_value;

/* Computes all t*c elements of an entry. prev: the base of deltas, otherwise NULL. draws: the key
 * of the random numbers that both ends share (3.6). */
void model_values(const model_way *way, uint32_t t, uint32_t c, const uint8_t *payload,
                  const uint8_t *prev, uint8_t prev_dtype, uint64_t draws, model_value *values);

/* model_sparse.c: the same for the form sparse. Returns false if the payload breaks a rule (step
 * 8). */
bool model_sparse_values(const model_way *way, uint32_t t, uint32_t c, const uint8_t *payload,
                         uint64_t bytes, uint64_t draws, model_value *values);

/* model_lowrank.c: the same for the form lowrank, whose payloads all can be read. */
void model_lowrank_values(const model_way *way, uint32_t t, uint32_t c, const uint8_t *payload,
                          model_value *values);
/* model_blocks.c: the same for the form blocks, whose payloads break no rule. */
void model_blocks_values(const model_way *way, uint32_t t, uint32_t c, const uint8_t *payload,
                         model_value *values);
/* model_tah.c (3.14): the size of a payload, or SIZE_MAX if it is more than `most`; writes a mask
 * and pivots that keep the rules to a payload; makes the values, or returns false if the payload
 * breaks a rule (step 8). */
size_t model_tah_size(const model_way *way, uint32_t t, uint32_t c, size_t most);
void model_tah_store(const model_way *way, uint32_t t, uint32_t c, uint8_t *payload);
bool model_tah_values(const model_way *way, uint32_t t, uint32_t c, const uint8_t *payload,
                      model_value *values);

/* model_rotated.c (3.11): makes the values of an entry of those that were reconstructed without a
 * base. */
void model_rotate_back(uint32_t width, size_t n, const uint8_t *prev, uint8_t prev_dtype,
                       model_value *values);

/* The same (3.15): multiplies with the weights of channels and adds bases. profile: its digest. */
void model_weigh_back(uint32_t profile, uint32_t t, uint32_t c, const uint8_t *prev,
                      uint8_t prev_dtype, model_value *values);

/* The bits of a value of a dtype, in the machine's byte order. */
size_t model_bytes(uint8_t dtype); /* the size of a value; 0: not a dtype */
uint32_t model_load(const uint8_t *data, uint8_t dtype, size_t i);
void model_store(uint8_t *data, uint8_t dtype, size_t i, uint32_t bits);
float model_widen(uint32_t bits, uint8_t dtype);
bool model_is_finite(uint32_t bits, uint8_t dtype);

uint32_t model_rn(float value, uint8_t dtype);      /* RN of section 5 */
uint32_t model_convert(float value, uint8_t dtype); /* 3.1, role stateless: to another dtype */
uint32_t model_nan(uint8_t dtype);                  /* y of a poisoned piece */

/* Section 4. */
uint64_t model_payload_digest(const uint8_t *payload, size_t bytes);
uint64_t model_state_digest(const uint8_t *prev, uint8_t dtype, size_t n, uint32_t audit,
                            uint32_t phase);

#endif
