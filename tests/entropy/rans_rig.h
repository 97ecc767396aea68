/* SPDX-License-Identifier: Apache-2.0
 * rans_rig.h - what all tests of entropy-coded blocks (docs/format.md, 3.7) share: random codes of
 * many distributions, the list of kernel tables, and memory between guard pages.
 *
 * A function that finds a difference fails the cmocka test that is running. */
#ifndef DW_TEST_RANS_RIG_H
#define DW_TEST_RANS_RIG_H

#include "entropy/rans.h"
#include "kernels/kernel_rig.h"
#include "rans_model.h"

/* MOST_CODES: the number of codes in the longest block. GAPS: the bytes of all gaps between the
 * parts of a block, which codes in parts need in addition to one byte per code. TABLES: the number
 * of kernel tables that there can be, C's included. */
enum { MOST_CODES = DW_RANS_MOST_CODES, GAPS = DW_PARTS * DW_PART_GAP, TABLES = KERNEL_TABLES + 1 };

/* The state of one test. The random numbers of every test begin with the same seed, so that no test
 * depends on the tests before it. */
typedef struct rig {
    test_random random;
    const dw_kernels *tables[TABLES]; /* those that this processor can run; C's is the first */
    int n_tables;
    /* Guarded memory: for the codes that are encoded, for a block that is decoded, for a block that
     * is encoded, for the codes that are decoded, and for the coder's working memory. */
    slot codes, from, to, back, work;
} rig;

/* The state that cmocka passes to on_a_rig. */
typedef struct rans_check {
    void (*check)(rig *r);
} rans_check;

/* The tests make one in `share` of their random draws; 1 means all of them. check_rans sets it from
 * its option --share, so that runs on emulated processors are short. */
extern uint32_t share;

/* Runs the check that *state, a rans_check, names. It opens a new rig before and closes it after.
 */
void on_a_rig(void **state);

/* Begins the definition of a test on a new rig: RANS_TEST(name) { ... }, where r is the rig. */
#define RANS_TEST(name) TEST_BY(on_a_rig, rans_check, name, rig *r)

/* Returns a random integer from 0 to n - 1. */
uint32_t less_than(rig *r, uint32_t n);

/* Returns `bytes` bytes of the memory of s, which begin or end directly at a guard page, so that an
 * access outside of them is a fault. All of them have the same random value, so that a function
 * that relies on zeroed memory fails. */
uint8_t *dirty(rig *r, slot s, size_t bytes);

/* How the codes of a source are distributed. `least` and `range` are the members of the source, and
 * "the range" means the codes least to least + range - 1.
 *
 * | kind     | codes                                                                              |
 * | GAUSS    | normal values with deviation 1, divided by step and rounded, plus 128              |
 * | LAPLACE  | the same with values of Laplace's distribution                                     |
 * | UNIFORM  | all codes of the range are equally frequent                                        |
 * | RARE     | `least`, and one code in 1000 is any code of the range                             |
 * | FAR      | the first code of the range, and one in ten times its last one                     |
 * | CONSTANT | `least`                                                                            |
 * | HALVES   | the first half of the block is `least`; the second half is like UNIFORM            |
 * | TURNS    | the codes of the range, one after the other, again and again                       |
 */
enum { GAUSS, LAPLACE, UNIFORM, RARE, FAR, CONSTANT, HALVES, TURNS, KINDS };

/* A source of random codes. GAUSS and LAPLACE use step, all other kinds least and range. */
typedef struct source {
    int kind;
    double step;
    uint32_t least, range;
} source;

/* Returns a source of a random kind with random members. */
source any_source(rig *r);

/* Returns a random number of codes, 1 to MOST_CODES: often a small one, or one at which a loop over
 * groups of codes has a special case. */
uint64_t any_n(rig *r);

/* Draws n codes from a source. Returns them; they are in r->codes. */
const uint8_t *draw(rig *r, const source *s, uint64_t n);

/* Returns a head and frequencies that are valid, but that our encoder would hardly choose. */
rans_model any_model(rig *r);

/* Returns a source and a number of codes as text, for failure messages. The text is valid until the
 * next call. */
const char *describe(const source *s, uint64_t n);

/* Encodes n codes as a plain block with a table of kernels. to: memory of `cap` bytes for the
 * block. Returns the bytes of the block; 0: the block would not be shorter than cap allows. */
size_t encode(rig *r, const dw_kernels *kernels, const uint8_t *codes, uint64_t n, uint8_t *to,
              size_t cap);

/* Decodes a plain block of n codes with a table of kernels, from a copy that begins or ends at a
 * guard page. Returns the codes, which are in r->back, and sets *wrong to NULL. If the block is
 * refused, it returns NULL and sets *wrong to the decoder's sentence. */
const uint8_t *decode(rig *r, const dw_kernels *kernels, const uint8_t *block, size_t bytes,
                      uint64_t n, const char **wrong);

/* Decodes a plain block, and fails unless it gives the n codes `codes`. what: names the block in
 * the failure message. */
void must_decode(rig *r, const dw_kernels *kernels, const uint8_t *block, size_t bytes,
                 const uint8_t *codes, uint64_t n, const char *what);

/* Runs the tests of blocks whose codes are divided into parts. Returns the number of tests that
 * failed. */
int check_parts(void);

/* The same for blocks whose codes follow a trellis. */
int check_trellis_blocks(void);

#endif
