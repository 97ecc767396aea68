/* SPDX-License-Identifier: Apache-2.0
 * rans_model.h - entropy-coded blocks as docs/format.md, 3.7 describes them, written from that page
 * alone and without any thought of speed. */
#ifndef DW_TEST_RANS_MODEL_H
#define DW_TEST_RANS_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What stands in front of a part's words; a plain block has one part. */
typedef struct rans_model {
    uint32_t k, least, range, f[256];
} rans_model;

enum { RANS_MODEL_PARTS = 4, RANS_MODEL_MOST = 6 + 3 * 3 + 4 * 480 + 128 + 2 * 65536 };

/* Writes the block of these codes, however long it is (at most RANS_MODEL_MOST bytes), and returns
 * its length. parts: 1 or 4; counts: the codes of each, which follow one behind the other. */
size_t rans_model_encode(const rans_model *models, const uint32_t *counts, uint32_t parts,
                         const uint8_t *codes, uint8_t *block);

/* The beginnings of the parts of a valid block; returns how many. */
uint32_t rans_model_read(const uint8_t *block, size_t bytes, rans_model *models);

/* Reads a block of exactly so many bytes. Returns false where it breaks a rule that concerns its
 * words; the heads and the frequencies must be valid, and as many parts as counts are given. */
bool rans_model_decode(const uint8_t *block, size_t bytes, const uint32_t *counts, uint32_t parts,
                       uint8_t *codes);

#endif
