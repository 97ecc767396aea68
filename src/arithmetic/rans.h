/* SPDX-License-Identifier: Apache-2.0
 * rans.h - the arithmetic of entropy-coded blocks, and the bytes in front of their words, in code
 * that C and CUDA share (docs/format.md, 3.7 and 3.9).
 *
 * The CPU (entropy/rans.c) calls these functions in loops. On a device the threads of a block share
 * the loops over symbols, and one thread alone reads or writes the front of a block, whose fields
 * follow each other bit by bit.
 *
 * wide table:
 * | name    | meaning                                                                                |
 * | weight  | of a symbol: its share of 2^24, at least 1 where the symbol occurs, else 0             |
 * | table   | the frequencies of codes, and what follows from them; a block has one, or one per part |
 * | way     | a symbol is made of 1, 2 or 4 codes; way w means 2^w                                   |
 *
 * Errors: readers return what is wrong with a block, as a number. State: none. */
#ifndef DW_RANS_ARITHMETIC_H
#define DW_RANS_ARITHMETIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arithmetic/trellis.h"
#include "common/shared.h"

enum {
    DW_RANS_STATES = 32,
    DW_RANS_BITS = 12,                 /* of a probability */
    DW_RANS_SLOTS = 1 << DW_RANS_BITS, /* what the probabilities of a block add up to */
    DW_RANS_LOWEST = 1 << 16,          /* no state is less than this between two symbols */
    DW_RANS_SYMBOLS = 256,             /* the most that a block can have */
    DW_RANS_WAYS = 3,
    DW_PARTS = 4, /* into which the dithered codes of a block may be sorted */
    /* Stands for the high byte of the random number of an element of padding, which has none: it is
     * in part 0, and unchanged. */
    DW_PART_PADDING = 128,
};

/* What can be wrong with an entropy-coded payload. The order has no meaning; the sentences are in
 * entropy/rans.c. */
typedef enum dw_rans_fault {
    DW_RANS_RIGHT = 0,
    DW_RANS_NO_HEADER,
    DW_RANS_NO_HEAD,
    DW_RANS_PARTS_BYTE,
    DW_RANS_PER_SYMBOL,
    DW_RANS_PAST_255,
    DW_RANS_ONE_CODE,
    DW_RANS_MANY_SYMBOLS,
    DW_RANS_LONG_FREQUENCY,
    DW_RANS_BITS_BEHIND,
    DW_RANS_SUM,
    DW_RANS_ENDS,
    DW_RANS_NEEDLESS_WORDS,
    DW_RANS_NOT_SHORTER,
    DW_RANS_CUT_OFF,
    DW_RANS_LOW_STATE,
    DW_RANS_WORDS_END,
    DW_RANS_WORDS_LEFT,
    DW_RANS_LAST_STATE,
    DW_RANS_EMPTY_PART,
    DW_RANS_TRELLIS_TABLE,
    DW_RANS_BLOCK_SHORT,
    DW_RANS_CODES_WIDE,
    DW_RANS_ESCAPES,
    DW_RANS_PAYLOAD_SHORT,
    DW_RANS_SIZE_RANGE,
    DW_RANS_SIZES_SUM,
    DW_RANS_FAULTS /* how many there are */
} dw_rans_fault;

/* ---- Slots ----------------------------------------------------------------------------------- */

enum {
    DW_WEIGHT_BITS = 24,
    DW_SLOT_WEIGHT = 1 << (DW_WEIGHT_BITS - DW_RANS_BITS) /* the worth of one slot */
};

/* What a code's count is multiplied by, where n codes were counted: one division in place of one
 * for each code. */
DW_INLINE uint64_t dw_weight_each(uint64_t n)
{
    return ((uint64_t)1 << 40) / n;
}

DW_INLINE uint32_t dw_weight_of_count(uint32_t count, uint64_t each)
{
    return (uint32_t)(count * each >> 16);
}

DW_INLINE uint32_t dw_weight_of_pair(uint32_t first, uint32_t second)
{
    uint64_t product = (uint64_t)first * second;
    uint32_t weight = (uint32_t)(product >> DW_WEIGHT_BITS);
    return weight == 0 && product > 0 ? 1 : weight;
}

DW_INLINE uint32_t dw_above_one_slot(uint32_t weight)
{
    return weight > DW_SLOT_WEIGHT ? weight - DW_SLOT_WEIGHT : 0;
}

/* The slots for a weight of 1 above the worth of one slot, times 2^32. occurring: how many symbols
 * have a weight. above: the sum of dw_above_one_slot over all symbols. It is not 0: 256 symbols at
 * most share 2^24, so some weight is above 4096. */
DW_INLINE uint64_t dw_slots_scale(uint32_t occurring, uint64_t above)
{
    return ((uint64_t)(DW_RANS_SLOTS - occurring) << 32) / above;
}

/* The first slot of a symbol. before: how many symbols in front of it have a weight. sum: the sum
 * of dw_above_one_slot over all symbols in front of it. */
DW_INLINE uint16_t dw_slot_of(uint32_t before, uint64_t sum, uint64_t scale)
{
    return (uint16_t)(before + (sum * scale >> 32));
}

/* 12 - log2(f), in units of 2^-12, for 1 <= f <= 4095. */
DW_INLINE uint32_t dw_bits_of_frequency(uint32_t f)
{
    /* 4096 * log2(1 + i / 32), rounded */
    static const uint16_t logarithms[33] = {0,    182,  358,  530,  696,  858,  1016, 1169, 1319,
                                            1465, 1607, 1746, 1882, 2015, 2145, 2272, 2396, 2518,
                                            2637, 2754, 2869, 2982, 3092, 3200, 3307, 3412, 3514,
                                            3615, 3715, 3812, 3908, 4003, 4096};
    uint32_t places = 0;
    while (f << places < DW_RANS_SLOTS / 2) places++;
    uint32_t fraction = (f << places) - DW_RANS_SLOTS / 2, i = fraction / 64, rest = fraction % 64;
    uint32_t logarithm = logarithms[i] + (logarithms[i + 1] - logarithms[i]) * rest / 64;
    return (places + 1) * 4096 - logarithm;
}

/* About how many bits n symbols take. sum: the sum, over all symbols with a weight, of the weight
 * times dw_bits_of_frequency of its slots. */
DW_INLINE uint64_t dw_bits_of_sum(uint64_t sum, uint64_t n)
{
    return n * sum >> (DW_WEIGHT_BITS + 12);
}

/* Returns whether a block should have more codes to a symbol. Several codes per symbol save time.
 * They cost bytes where many symbols occur that should have less than one slot; so they are chosen
 * only where they cost no more than one byte in 128. bits: an estimate with them; least_bits: with
 * one code per symbol. */
DW_INLINE bool dw_rans_pays(uint64_t bits, uint64_t least_bits)
{
    return bits <= least_bits + least_bits / 128;
}

/* ---- The front of a block -------------------------------------------------------------------- */

enum {
    DW_RANS_HEADER_BYTES = 6,
    DW_RANS_HEAD_BYTES = 3,  /* of each part but the first; that of the first is in the header */
    DW_RANS_LENGTH_BITS = 4, /* the bits that say how many bits a frequency has */
    DW_RANS_STATE_BYTES = 4 * DW_RANS_STATES,
};

/* The table of one part, or of a block without parts. Its codes are least to least + range - 1.
 * frequencies: indexed by code minus least. fill: the code minus least that fills the last symbol
 * up. start: symbol s has the slots start[s] to start[s + 1] - 1. */
typedef struct dw_rans_table {
    uint32_t per_symbol, least, range, fill;
    uint16_t frequencies[256], start[DW_RANS_SYMBOLS + 1];
} dw_rans_table;

/* Returns how many bits a frequency has without leading zeros. */
DW_INLINE uint32_t dw_frequency_length(uint32_t frequency)
{
    uint32_t length = 0;
    for (; frequency >> length > 0; length++) continue;
    return length;
}

/* Returns how many bits a frequency takes in the front of a block. */
DW_INLINE uint32_t dw_frequency_bits(uint32_t frequency)
{
    return DW_RANS_LENGTH_BITS - 1 + dw_frequency_length(frequency) + (frequency == 0);
}

/* Returns how many different symbols can be made of per_symbol codes out of `range`, or 0 where
 * there are more than 256. */
DW_INLINE uint32_t dw_symbols_of(uint32_t range, uint32_t per_symbol)
{
    uint32_t symbols = 1;
    for (uint32_t i = 0; i < per_symbol && symbols <= DW_RANS_SYMBOLS; i++) symbols *= range;
    return symbols <= DW_RANS_SYMBOLS ? symbols : 0;
}

/* Returns whether the block has states and words. It has none if the codes of every part are all
 * the same. */
DW_INLINE bool dw_rans_needs_states(const dw_rans_table *tables, uint32_t parts)
{
    bool needs = false;
    for (uint32_t i = 0; i < parts; i++) needs = needs || tables[i].range > 1;
    return needs;
}

/* Writes the frequencies of a table. Returns the end of what was written. */
DW_INLINE uint8_t *dw_rans_put_frequencies(const dw_rans_table *table, uint8_t *to)
{
    /* `waiting` holds the bits that do not fill a byte yet: less than 8 between two frequencies. */
    uint32_t waiting = 0, bits = 0;
    if (table->range == 1) return to;
    for (uint32_t c = 0; c < table->range; c++) {
        uint32_t f = table->frequencies[c], length = dw_frequency_length(f),
                 below = length > 0 ? length - 1 : 0;
        waiting |= (length | (f ^ (f > 0 ? 1u << below : 0)) << DW_RANS_LENGTH_BITS) << bits;
        for (bits += DW_RANS_LENGTH_BITS + below; bits >= 8; bits -= 8, waiting >>= 8)
            *to++ = (uint8_t)waiting;
    }
    if (bits > 0) *to++ = (uint8_t)waiting;
    return to;
}

/* The byte of a block's header that says how many tables it has: one, those of dithered codes in
 * parts, or those of codes that follow a trellis. */
DW_INLINE uint8_t dw_rans_parts_byte(uint32_t tables)
{
    return tables == 1 ? 0 : tables == DW_PARTS ? 1 : 2;
}

/* Writes what stands in front of the words. Returns the end of what was written. */
DW_INLINE uint8_t *dw_rans_put_front(const dw_rans_table *tables, uint32_t parts,
                                     const uint32_t *states, uint32_t words, uint8_t *to)
{
    for (uint32_t i = 0; i < parts; i++) {
        const dw_rans_table *table = &tables[i];
        *to++ = (uint8_t)table->per_symbol;
        *to++ = (uint8_t)table->least;
        *to++ = (uint8_t)(table->range - 1);
        if (i == 0) {
            *to++ = dw_rans_parts_byte(parts);
            *to++ = (uint8_t)words;
            *to++ = (uint8_t)(words >> 8);
        }
        to = dw_rans_put_frequencies(table, to);
    }
    if (!dw_rans_needs_states(tables, parts)) return to;
    for (int i = 0; i < DW_RANS_STATE_BYTES; i++) *to++ = (uint8_t)(states[i / 4] >> 8 * (i % 4));
    return to;
}

/* A block that is being read. */
typedef struct dw_rans_reader {
    const uint8_t *from;
    size_t bytes;   /* readable bytes: the block, and perhaps others behind it */
    uint32_t words; /* the number of words, as the header says */
    size_t bit;     /* the position, in bits from the start of the block, of what is read next */
    size_t states;  /* the position of the states, in bytes */
} dw_rans_reader;

/* Reads and checks the head of a part, which is at byte `at`. */
DW_INLINE dw_rans_fault dw_rans_read_head(const dw_rans_reader *r, size_t at, dw_rans_table *table)
{
    if (at + DW_RANS_HEAD_BYTES > r->bytes) return DW_RANS_NO_HEAD;
    table->per_symbol = r->from[at];
    table->least = r->from[at + 1];
    table->range = r->from[at + 2] + 1u;
    table->fill = 0;
    if (table->per_symbol != 1 && table->per_symbol != 2 && table->per_symbol != 4)
        return DW_RANS_PER_SYMBOL;
    if (table->least + table->range > 256) return DW_RANS_PAST_255;
    if (table->range == 1 && table->per_symbol != 1) return DW_RANS_ONE_CODE;
    if (dw_symbols_of(table->range, table->per_symbol) == 0) return DW_RANS_MANY_SYMBOLS;
    return DW_RANS_RIGHT;
}

/* Returns the next `count` bits of the block, at most 12. Behind the last readable byte, all bits
 * count as zero. */
DW_INLINE uint32_t dw_rans_take_bits(dw_rans_reader *r, uint32_t count)
{
    size_t at = r->bit / 8;
    uint32_t bits = 0;
    for (uint32_t i = 0; i < 3 && at + i < r->bytes; i++)
        bits |= (uint32_t)r->from[at + i] << 8 * i;
    bits = bits >> r->bit % 8 & ((1u << count) - 1);
    r->bit += count;
    return bits;
}

DW_INLINE dw_rans_fault dw_rans_read_frequencies(dw_rans_reader *r, dw_rans_table *table)
{
    uint16_t *frequencies = table->frequencies;
    uint32_t sum = 0;
    if (table->range == 1) return DW_RANS_RIGHT;
    for (uint32_t c = 0; c < table->range; c++) {
        uint32_t length = dw_rans_take_bits(r, DW_RANS_LENGTH_BITS);
        if (length > DW_RANS_BITS) return DW_RANS_LONG_FREQUENCY;
        frequencies[c] =
            length == 0 ? 0 : (uint16_t)(1u << (length - 1) | dw_rans_take_bits(r, length - 1));
        sum += frequencies[c];
    }
    if (dw_rans_take_bits(r, (8 - r->bit % 8) % 8) != 0) return DW_RANS_BITS_BEHIND;
    if (sum != DW_RANS_SLOTS) return DW_RANS_SUM;
    if (frequencies[0] == 0 || frequencies[table->range - 1] == 0) return DW_RANS_ENDS;
    return DW_RANS_RIGHT;
}

/* Checks the head of one of the tables of codes that follow a trellis. Its codes are indices plus
 * 128, and a code that always follows would have all slots. */
DW_INLINE dw_rans_fault dw_rans_judge_trellis(const dw_rans_table *table)
{
    uint32_t least = DW_TRELLIS_ZERO - DW_TRELLIS_INDEX, most = DW_TRELLIS_ZERO + DW_TRELLIS_INDEX;
    bool is_right = table->per_symbol == 1 && table->range > 1 && table->least >= least &&
                    table->least + table->range - 1 <= most;
    return is_right ? DW_RANS_RIGHT : DW_RANS_TRELLIS_TABLE;
}

/* Reads and checks what stands in front of the states. */
DW_INLINE dw_rans_fault dw_rans_read_front(dw_rans_reader *r, dw_rans_table *tables, uint32_t parts)
{
    dw_rans_fault wrong = DW_RANS_RIGHT;
    if (r->bytes < DW_RANS_HEADER_BYTES) return DW_RANS_NO_HEADER;
    if (r->from[3] != dw_rans_parts_byte(parts)) return DW_RANS_PARTS_BYTE;
    r->words = r->from[4] | (uint32_t)r->from[5] << 8;
    r->bit = 0;
    for (uint32_t i = 0; i < parts && !wrong; i++) {
        size_t at = r->bit / 8;
        wrong = dw_rans_read_head(r, at, &tables[i]);
        if (!wrong && parts == DW_TRELLIS_KINDS) wrong = dw_rans_judge_trellis(&tables[i]);
        r->bit += (size_t)8 * (i == 0 ? DW_RANS_HEADER_BYTES : DW_RANS_HEAD_BYTES);
        if (!wrong) wrong = dw_rans_read_frequencies(r, &tables[i]);
    }
    r->states = r->bit / 8;
    return wrong;
}

/* Computes the length of the block when what stands in front of the states is known, and checks it.
 * n: the number of codes. */
DW_INLINE dw_rans_fault dw_rans_judge_length(const dw_rans_reader *r, bool has_states, uint64_t n,
                                             size_t *used)
{
    *used = r->states + (has_states ? DW_RANS_STATE_BYTES : 0) + (size_t)2 * r->words;
    if (!has_states && r->words != 0) return DW_RANS_NEEDLESS_WORDS;
    if (*used >= n) return DW_RANS_NOT_SHORTER;
    return *used > r->bytes ? DW_RANS_CUT_OFF : DW_RANS_RIGHT;
}

/* Returns whether a block has parts. The answer is not reliable for a block that is damaged or cut
 * off; reading its front finds that out. */
DW_INLINE bool dw_rans_says_parts(const uint8_t *from, size_t bytes)
{
    return bytes >= DW_RANS_HEADER_BYTES && from[3] == 1;
}

/* The same for whether its codes follow a trellis. */
DW_INLINE bool dw_rans_says_trellis(const uint8_t *from, size_t bytes)
{
    return bytes >= DW_RANS_HEADER_BYTES && from[3] == 2;
}

/* ---- Parts of dithered codes ----------------------------------------------------------------- */

/* Returns a mask from the high byte of a code's random number: all bits are set where the dither z
 * is negative. It is a mask because processors cannot predict branches that depend on random
 * signs. */
DW_INLINE uint8_t dw_part_mask(uint8_t high)
{
    return (uint8_t)((high >> 7) - 1);
}

/* Returns the part of a code, which is |z| in units of 1/8, rounded down. high: the high byte of
 * the code's random number. If this byte is 128 or more, z is not negative. The bytes 127 - b and
 * 128 + b stand for the same |z|. */
DW_INLINE uint32_t dw_part_of(uint8_t high)
{
    return (uint8_t)(high ^ 0x80 ^ dw_part_mask(high)) >> 5;
}

/* Returns the code with the sign of its level changed if its dither is negative, and otherwise the
 * code itself. Changing the sign of the level means 256 - code, modulo 256; so code 128, which is
 * level 0, stays as it is, and so does code 0. */
DW_INLINE uint8_t dw_part_turned(uint8_t code, uint8_t high)
{
    uint8_t mask = dw_part_mask(high);
    return (uint8_t)((code ^ mask) - mask);
}

#endif
