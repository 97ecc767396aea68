/* SPDX-License-Identifier: Apache-2.0
 * rans_rig.h - what all tests of entropy-coded blocks work with: codes of many kinds, the tables of
 * kernels, and memory between guard pages. */
#ifndef DW_TEST_RANS_RIG_H
#define DW_TEST_RANS_RIG_H

#include "entropy/rans.h"
#include "kernels/kernel_rig.h"
#include "rans_model.h"

enum { MOST_CODES = DW_RANS_MOST_CODES, GAPS = DW_PARTS * DW_PART_GAP, TABLES = KERNEL_TABLES + 1 };

/* What every test works with; its random numbers begin with the same seed. */
typedef struct rig {
    test_random random;
    const dw_kernels *tables[TABLES]; /* C's first */
    int n_tables;
    slot codes, from, to, back, work;
} rig;

typedef struct rans_check {
    void (*check)(rig *r);
} rans_check;

/* Only one in so many of the random draws is made. */
extern uint32_t share;

/* Runs the check of *state on a new rig. */
void on_a_rig(void **state);

#define rans_test(function)                                                                        \
    {                                                                                              \
        .name = #function, .test_func = on_a_rig, .initial_state = &(rans_check)                   \
        {                                                                                          \
            function                                                                               \
        }                                                                                          \
    }

uint32_t less_than(rig *r, uint32_t n);

/* Memory of dirty bytes directly at a guard page. */
uint8_t *dirty(rig *r, slot s, size_t bytes);

enum { GAUSS, LAPLACE, UNIFORM, RARE, FAR, CONSTANT, HALVES, TURNS, KINDS };

typedef struct source {
    int kind;
    double step;           /* GAUSS, LAPLACE: of deviations */
    uint32_t least, range; /* the others */
} source;

source any_source(rig *r);
uint64_t any_n(rig *r);
const uint8_t *draw(rig *r, const source *s, uint64_t n);

/* The frequencies of an encoder that chooses unlike ours. */
rans_model any_model(rig *r);

/* A text that is valid until the next call. */
const char *describe(const source *s, uint64_t n);

size_t encode(rig *r, const dw_kernels *kernels, const uint8_t *codes, uint64_t n, uint8_t *to,
              size_t cap);

/* Decodes a block that ends at a guard page, or begins at one. NULL where it is refused. */
const uint8_t *decode(rig *r, const dw_kernels *kernels, const uint8_t *block, size_t bytes,
                      uint64_t n, const char **wrong);
void must_decode(rig *r, const dw_kernels *kernels, const uint8_t *block, size_t bytes,
                 const uint8_t *codes, uint64_t n, const char *what);

/* The tests of blocks in parts. Returns how many failed. */
int check_parts(void);

#endif
