/* SPDX-License-Identifier: Apache-2.0
 * rans_model.h - entropy-coded blocks as docs/format.md, 3.7 describes them, written from that page
 * alone and without any thought of speed. */
#ifndef DW_TEST_RANS_MODEL_H
#define DW_TEST_RANS_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The head of one part: k, least, R and the frequencies F, as the page names them. range is R. A
 * plain block, without parts, has one such head. */
typedef struct rans_model {
    uint32_t k, least, range, f[256];
} rans_model;

/* RANS_MODEL_PARTS: the number of parts of a block that has parts. RANS_MODEL_TRELLIS: what stands
 * for that number in a block with a trellis; it is that of its tables. RANS_MODEL_MOST: the largest
 * number of bytes of a block: a header, the heads of three parts, four tables of frequencies, 32
 * states, and two bytes per code for words. */
enum {
    RANS_MODEL_PARTS = 4,
    RANS_MODEL_TRELLIS = 2,
    RANS_MODEL_MOST = 6 + 3 * 3 + 4 * 480 + 128 + 2 * 65536
};

/* Encodes codes as one block, even if that is longer than the codes.
 *
 * | parameter | meaning                                                                           |
 * | models    | the head and the frequencies of each part, or of each table of a trellis          |
 * | counts    | the number of codes in each part; with a trellis only that of all codes           |
 * | parts     | the number of parts: 1 for a plain block, or 4; or RANS_MODEL_TRELLIS             |
 * | codes     | the codes of all parts, one part directly behind the other                        |
 * | block     | room for RANS_MODEL_MOST bytes; the block is written there                        |
 *
 * Returns the number of bytes of the block. */
size_t rans_model_encode(const rans_model *models, const uint32_t *counts, uint32_t parts,
                         const uint8_t *codes, uint8_t *block);

/* Reads the heads and the frequencies of a valid block into `models`, which has room for
 * RANS_MODEL_PARTS. Returns the number of parts, 1 or 4, or RANS_MODEL_TRELLIS. */
uint32_t rans_model_read(const uint8_t *block, size_t bytes, rans_model *models);

/* Decodes a block of exactly `bytes` bytes, whose heads and frequencies must be valid. counts and
 * parts: as for rans_model_encode; codes: room for all codes. Returns true and writes the codes.
 * Returns false if the block has another number of parts, or if its length, states or words break a
 * rule of the page. */
bool rans_model_decode(const uint8_t *block, size_t bytes, const uint32_t *counts, uint32_t parts,
                       uint8_t *codes);

/* Makes from n indices, -63 to 63, the codes of a block with a trellis that has these indices. */
void rans_model_along(const int8_t *indices, uint64_t n, uint8_t *codes);

#endif
