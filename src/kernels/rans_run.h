/* SPDX-License-Identifier: Apache-2.0
 * rans_run.h - what the kernels of the entropy coder work on: the symbols of one block, encoded or
 * decoded (docs/format.md, 3.7).
 *
 * wide table:
 * | name       | meaning                                                                               |
 * | codes, n   | the codes of the block; all are at least `least` and less than least + range          |
 * | per_symbol | codes to a symbol: 1, 2 or 4; range to the power of per_symbol is at most 256         |
 * | fill       | code minus least that fills the last symbol up                                        |
 * | start      | encode: the first slot of each symbol. decode: (symbols + 1) symbol s has the slots   |
 * |            | start[s] to start[s + 1] - 1; the last entry is 4096. No symbol has all slots         |
 * | frequencies| encode: how many slots each symbol has                                                |
 * | states     | (DW_RANS_STATES) in: where coding starts; out: where it ended                         |
 * | scratch    | (DW_RANS_SCRATCH) for tables that the kernel makes; aligned to 64 bytes               |
 *
 * Errors: none; sizes and frequencies were checked before. Threads: the functions have no state. */
#ifndef DW_RANS_RUN_H
#define DW_RANS_RUN_H

#include "arithmetic/rans.h"
#include "arithmetic/trellis.h"

enum {
    DW_RANS_SCRATCH = DW_RANS_SLOTS + 512,                /* words of 32 bits */
    DW_TRELLIS_SCRATCH = DW_RANS_SCRATCH + DW_RANS_SLOTS, /* the same of a dw_rans_trellis_run */
    DW_RANS_ROOM = 128 /* bytes in front of the words that an encoder may overwrite */
};

/* The dithered codes of a block may be sorted into DW_PARTS parts (docs/format.md, 3.9). In memory
 * the parts follow each other, with DW_PART_GAP unused bytes behind each, so that kernels can
 * always load and store up to 64 codes at a time.
 *
 * | name  | meaning                                                                              |
 * | high  | (n) the high byte of each code's 16-bit random number, from which its part follows   |
 * | codes | (n) the codes in the order of the payload                                            |
 * | next  | (DW_PARTS) in: where each part begins; out: where it ends                            |
 */
enum { DW_PART_GAP = 64 };

/* Encodes from the last symbol to the first. The words are written downwards from `end`, and up to
 * DW_RANS_ROOM bytes below the first of them have no meaning. All symbols that occur must have
 * slots. */
typedef struct dw_rans_encode_run {
    const uint8_t *codes;
    uint64_t n;
    uint32_t per_symbol, least, range, fill;
    const uint16_t *start, *frequencies;
    uint32_t *states, *scratch;
    uint8_t *end;
    uint64_t most; /* where more words than this are needed, encoding stops */
} dw_rans_encode_run;

/* Decodes from the first symbol to the last. Nothing behind the words is read, and nothing but the
 * n codes is written. */
typedef struct dw_rans_decode_run {
    uint8_t *codes;
    uint64_t n;
    uint32_t per_symbol, least, range;
    const uint16_t *start;
    uint32_t *states, *scratch;
    const uint8_t *words;
    uint64_t count; /* of words; where there are fewer than the symbols need, decoding stops */
} dw_rans_decode_run;

/* The same for a block whose codes follow a trellis: its tables are those of the two kinds, with
 * indices plus 128 as codes, and all trellis states begin at 0. */
typedef struct dw_rans_trellis_run {
    uint8_t *codes;
    uint64_t n;
    const dw_rans_table *tables;
    uint32_t *states, *scratch;
    const uint8_t *words;
    uint64_t count;
} dw_rans_trellis_run;

#endif
