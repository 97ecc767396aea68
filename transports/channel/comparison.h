/* SPDX-License-Identifier: Apache-2.0
 * comparison.h - finds the keys of which an encoder and its decoder do not hold the same, by
 * digests of ranges of keys. It makes and reads messages; who carries them is not its concern.
 *
 * A key has a *place*, the XXH3-64 of sample (8 bytes) and slice (4), and a *print*, that of both
 * and of incarnation, version and chain (8 each). A *range* is all keys whose places begin with the
 * same bits. Each end sends its root. Then the two take turns: whoever gets digests marks the
 * ranges that differ, and sends digests of their parts, until ranges are small; then the *lister*,
 * which is the end with fewer keys (the encoder, if both have as many), sends the prints of all its
 * keys in them, and the other marks those that it has not. It has not found a partner for some of
 * its own, either. These keys differ.
 *
 * n: the keys of the lister. depth: the smallest for which n / 2^depth (rounded down) is at most
 * DW_COMPARISON_SMALL, and at most DW_COMPARISON_DEEPEST. The first split has up to
 * DW_COMPARISON_FIRST bits, the second the rest of depth; one that has no bits is left out. Lists
 * have all of a print if the other end has n2 keys, and n2 / 2^depth (rounded down) is more than
 * twice DW_COMPARISON_SMALL: with half of it too many keys would be taken for another one. All
 * integers are little-endian, marks are bits from the lowest of the first byte on, 1: differs.
 *
 * wide table:
 * | step          | from                  | body                                                        |
 * | 0             | both                  | how many keys (8), and the root: the sum of all prints (8)  |
 * | 1 .. splits   | in turns, so that the | marks of the ranges in the message before, if there is one; |
 * |               | lister's turn is next | of each part of each range that differs, the sum of its     |
 * |               |                       | prints (4)                                                  |
 * | then          | lister                | marks, as above; of each range that differs, how many keys  |
 * |               |                       | (4), and their prints in ascending order, the low half of   |
 * |               |                       | each (4), or all of it (8)                                  |
 * | then, and end | the other             | marks of these keys                                         |
 *
 * If roots and numbers are equal, nothing follows: nothing differs. If an end has no keys, all of
 * the other's differ. With 10^6 keys at each end of which 1,000 differ, six messages have 146 kB.
 * A key that differs is taken for equal with a probability of at most about 2^-27: its print of 32
 * bits equals one of at most about 32. Roots of ends that differ are equal with 2^-64. The frame
 * with such a key is refused, as all are without a comparison.
 *
 * Errors: PROTOCOL (a message that cannot follow), NO_MEMORY; then it is never done, and can only
 * be released. Memory: at most 100 bytes for each own key (twice 32, and sorting, while the array
 * of keys grows), and as much again for messages and results, whatever the peer sends. Threads: one
 * at a time. */
#ifndef DW_COMPARISON_H
#define DW_COMPARISON_H

#include "base/held_keys.h"
#include "base/mem.h"

enum { DW_COMPARISON_SMALL = 16, DW_COMPARISON_FIRST = 12, DW_COMPARISON_DEEPEST = 24 };

typedef struct dw_compared_key {
    uint64_t place, print;
    dw_key key;
} dw_compared_key;

typedef struct dw_comparison {
    const dw_allocator *allocator;
    bool is_encoder, is_lister, is_done;
    dw_compared_key *keys; /* by their places */
    uint64_t n, cap, root;
    uint64_t n_of_lister;
    unsigned splits, bits[2]; /* of each split */
    unsigned listed_bytes;    /* of each print in a list */
    uint64_t awaited;         /* the step of the next message */
    /* The ranges that differ: the first `depth` bits of their places. */
    uint32_t *ranges;
    uint64_t n_ranges, ranges_cap;
    unsigned depth;
    /* The next message, for the caller to send, and its step. */
    bool has_out;
    uint8_t *out;
    uint64_t out_len, out_cap, out_step;
    uint64_t n_listed; /* the keys that the lister named */
    /* When it is done: the own keys that the other end has not, or with another print. */
    dw_key *differing;
    uint64_t n_differing, differing_cap;
} dw_comparison;

/* add: one more key of this end, before begin. begin: makes the message of step 0. take: reads the
 * peer's next message. Both may leave a message in `out`. release: frees everything; it may follow
 * anything. */
void dw_comparison_init(dw_comparison *c, const dw_allocator *allocator, bool is_encoder);
dw_status dw_comparison_add(dw_comparison *c, const dw_held_key *held);
dw_status dw_comparison_begin(dw_comparison *c);
dw_status dw_comparison_take(dw_comparison *c, uint64_t step, const uint8_t *body, size_t len);
void dw_comparison_release(dw_comparison *c);

#endif
