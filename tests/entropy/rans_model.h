/* SPDX-License-Identifier: Apache-2.0
 * rans_model.h - entropy-coded blocks as docs/format.md, 3.7 describes them, written from that page
 * alone and without any thought of speed. */
#ifndef DW_TEST_RANS_MODEL_H
#define DW_TEST_RANS_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What stands at the beginning of a block. */
typedef struct rans_model {
    uint32_t k, least, range, f[256];
} rans_model;

enum { RANS_MODEL_MOST = 6 + 480 + 128 + 2 * 65536 };

/* Writes the block of these codes, however long it is (at most RANS_MODEL_MOST bytes), and returns
 * its length. */
size_t rans_model_encode(const rans_model *model, const uint8_t *codes, uint64_t n, uint8_t *block);

/* The beginning of a valid block. */
rans_model rans_model_read(const uint8_t *block, size_t bytes);

/* Reads a block of exactly so many bytes. Returns false where it breaks a rule that concerns its
 * words; the header and the frequencies must be valid. */
bool rans_model_decode(const uint8_t *block, size_t bytes, uint8_t *codes, uint64_t n);

#endif
