/* SPDX-License-Identifier: Apache-2.0
 * rans.h - blocks of entropy-coded codes (docs/format.md, 3.7): order-0 rANS, the same bytes on
 * every instruction set.
 *
 * wide table:
 * | name    | meaning                                                                                |
 * | codes   | (n) one code per byte; n is 1 to 65536, and both ends know it                          |
 * | parted  | the same codes, sorted into DW_PARTS parts; each part has frequencies of its own. The  |
 * |         | parts follow each other with DW_PART_GAP unused bytes behind each. NULL: no parts      |
 * | counts  | (DW_PARTS) the number of codes in each part, at least 1; both ends know them           |
 * | marks   | (n) the marks of codes that follow a trellis (arithmetic/trellis.h); NULL: they follow |
 * |         | none. Never together with parted                                                      |
 * | kernels | the table whose loops are used; all tables make the same block                         |
 * | work    | memory of dw_rans_work_bytes(n, ...) bytes, of any contents and alignment                   |
 *
 * Errors: encode returns 0 where a block would be too long, and decode a sentence where a block is
 * damaged. Neither allocates. Threads: the functions have no state; each call needs a work of its
 * own. */
#ifndef DW_RANS_H
#define DW_RANS_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/kernels.h"

enum { DW_RANS_MOST_CODES = 1 << 16 };

/* The longest block of n codes. A block is always shorter than its codes. */
size_t dw_rans_bound(uint64_t n);

/* may_trellis: blocks whose codes follow a trellis are decoded, too, which takes more. */
size_t dw_rans_work_bytes(uint64_t n, bool may_trellis);

/* What an encoder is given: see the table above. */
typedef struct dw_rans_codes {
    const uint8_t *codes, *parted, *marks;
    uint64_t n;
    const uint32_t *counts;
} dw_rans_codes;

/* Writes a block with one table, or one with a table for each part or kind, whichever is shorter.
 * Returns its length in bytes. Returns 0, and leaves `to` unchanged, where the block would be
 * longer than cap or dw_rans_bound(n), so that coding would not save anything. A caller that can
 * store the codes without coding in fewer than n bytes passes one byte less than that as cap. */
size_t dw_rans_encode(const dw_kernels *kernels, const dw_rans_codes *codes, uint8_t *to,
                      size_t cap, void *work);

/* Returns what is wrong with a block or a payload, as a sentence; NULL where nothing is. fault: a
 * dw_rans_fault. */
const char *dw_rans_sentence(uint32_t fault);

/* Returns whether a block has parts. The answer is not reliable for a block that is damaged or cut
 * off; the functions that decode it find that out. */
bool dw_rans_has_parts(const uint8_t *from, size_t bytes);

/* Decodes a block. Returns NULL, and sets *used to the length of the block; the bytes behind it, up
 * to `bytes`, may belong to other blocks. Or returns a sentence that says what is wrong with the
 * block; then codes has any contents, and *used is not set. Reads nothing beyond from + bytes, and
 * writes nothing beyond codes + n. Damage that leaves a valid block gives other codes. */
const char *dw_rans_decode(const dw_kernels *kernels, const uint8_t *from, size_t bytes,
                           uint8_t *codes, uint64_t n, void *work, size_t *used);

/* Like dw_rans_decode, for a block that has parts. The codes are written part by part, with
 * DW_PART_GAP unused bytes behind each. */
const char *dw_rans_decode_parts(const dw_kernels *kernels, const uint8_t *from, size_t bytes,
                                 uint8_t *codes, const uint32_t *counts, void *work, size_t *used);

/* The same two functions for a block whose codes follow a trellis. */
bool dw_rans_has_trellis(const uint8_t *from, size_t bytes);
const char *dw_rans_decode_trellis(const dw_kernels *kernels, const uint8_t *from, size_t bytes,
                                   uint8_t *codes, uint64_t n, void *work, size_t *used);

#endif
