/* SPDX-License-Identifier: Apache-2.0
 * kernel_rig.h - the list of kernel tables, and a bench for testing one of them: guarded memory,
 * random numbers, and comparison byte by byte.
 *
 * Every bench starts its random numbers with the same seed, so that no check depends on earlier
 * ones. */
#ifndef DW_TEST_KERNEL_RIG_H
#define DW_TEST_KERNEL_RIG_H

#include "arithmetic/layout.h"
#include "guarded.h"
#include "kernels/kernels.h"
#include "support/tool.h"

/* A table beside C's, and the DW_CPU_... that a processor must have for it. In the order of the
 * ladder: the last one that a processor can run is its best. */
typedef struct kernel_table {
    const char *name;
    uint32_t needs;
} kernel_table;

enum { KERNEL_TABLES = 3 };
extern const kernel_table kernel_tables[KERNEL_TABLES];

extern const dw_kernels *const specification; /* C's, which all others are compared with */

enum { DTYPES = 3 };
extern const dw_dtype dtypes[DTYPES];
extern const char *const dtype_names[DTYPES + 1]; /* by dtype, which begin with 1 */

/* MOST: elements that a slot has room for in any dtype: more than a tile, and not a round number.
 */
enum { MOST = DW_TILE_ELEMENTS + 304, SLOT_BYTES = 4 * MOST + 4096 };
enum { SLOT_X, SLOT_PREV, SLOT_NEXT, SLOT_SCALES, SLOT_CHOICES, SLOT_CODES, SLOTS };

typedef struct bench {
    slot slots[SLOTS];
    test_random random;
    const dw_kernels *kernels; /* on trial */
    int share;                 /* only one in so many of the random draws */
} bench;

uint32_t below(bench *b, uint32_t n); /* 0 to n - 1 */
dw_dtype any_dtype(bench *b);

/* So many of `all` draws; the first `always` of them are there for a reason of their own. */
int drawn(const bench *b, int all, int always);

void random_bytes(bench *b, void *to, size_t n);

/* Memory in a slot, flush with one of its guards, so that an element too many read or written is a
 * fault; aligned to an element and to nothing more. Full of random bytes, or of those of `from`. */
void *guarded(bench *b, int which, size_t bytes);
void *guarded_copy(bench *b, int which, const void *from, size_t bytes);

/* Fails and names the first byte that is not the expected one. */
void same_bytes(const char *what, const void *expected, const void *found, size_t n,
                const char *table, const char *run);

/* What a run is encoded to. */
typedef struct encoded {
    uint8_t *scales, *choices, *codes;
    void *next;
    size_t scale_bytes, choice_bytes, code_bytes, next_bytes;
    dw_piece_counts counts;
} encoded;

/* Guarded memory full of random bytes for each part, whose size the caller has set. */
void encoded_place(bench *b, encoded *made);
/* The same bytes in other memory, which the next call takes again. */
encoded encoded_twin(const encoded *made);
void same_encoded(const encoded *expected, const encoded *found, const char *table,
                  const char *run);

/* One check on a bench of its own. */
void try_table(const dw_kernels *kernels, void (*check)(bench *b));
/* On a bench for each table that this processor can run, besides C's. How many there are. */
int try_tables(void (*check)(bench *b));

/* A test of cmocka, named like its check: how is for_each_table, or another function that finds a
 * kernel_check as its state. */
typedef struct kernel_check {
    void (*check)(bench *b);
} kernel_check;

#define kernel_test(how, function)                                                                 \
    {                                                                                              \
        .name = #function, .test_func = how, .initial_state = &(kernel_check)                      \
        {                                                                                          \
            function                                                                               \
        }                                                                                          \
    }

/* Skips where C's table is the only one. */
void for_each_table(void **state);

/* --share N, and --best NAME where the program takes it: best is not NULL. false: not understood,
 * and said so. */
bool kernel_rig_read(int argc, char **argv, char **best);

#endif
