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

/* A table of kernels other than C's, and the flags DW_CPU_... that a processor must have for it. Of
 * the list, the last table that a processor can run is its best. */
typedef struct kernel_table {
    const char *name;
    uint32_t needs;
} kernel_table;

enum { KERNEL_TABLES = 4 };
extern const kernel_table kernel_tables[KERNEL_TABLES];

extern const dw_kernels *const specification; /* C's table, with which all others are compared */

enum { DTYPES = 3 };
extern const dw_dtype dtypes[DTYPES];
extern const char *const dtype_names[DTYPES + 1]; /* indexed by dtype, which start at 1 */

/* MOST: how many elements of any dtype fit into a slot: more than a tile, and not a round number.
 */
enum { MOST = DW_TILE_ELEMENTS + 304, SLOT_BYTES = 4 * MOST + 4096 };
enum { SLOT_X, SLOT_PREV, SLOT_NEXT, SLOT_SCALES, SLOT_CHOICES, SLOT_CODES, SLOTS };

typedef struct bench {
    slot slots[SLOTS];
    test_random random;
    const dw_kernels *kernels; /* the table that is tested */
    int share;                 /* only one in so many of the random draws is done */
} bench;

uint32_t below(bench *b, uint32_t n); /* 0 to n - 1 */
dw_dtype any_dtype(bench *b);

/* How many of `all` draws to do. The first `always` draws are special cases, which are never left
 * out. */
int drawn(const bench *b, int all, int always);

void random_bytes(bench *b, void *to, size_t n);

/* Memory in a slot, directly at one of its guard pages, so that reading or writing one element too
 * many is a fault. It is aligned to an element and to nothing more. It is filled with random bytes,
 * or with those of `from`. */
void *guarded(bench *b, int which, size_t bytes);
void *guarded_copy(bench *b, int which, const void *from, size_t bytes);

/* Fails if the bytes differ, and names the first one that does. */
void same_bytes(const char *what, const void *expected, const void *found, size_t n,
                const char *table, const char *run);

/* The result of encoding a run. */
typedef struct encoded {
    uint8_t *scales, *choices, *codes;
    void *next;
    size_t scale_bytes, choice_bytes, code_bytes, next_bytes;
    dw_piece_counts counts;
} encoded;

/* Allocates guarded memory full of random bytes for each part. The caller has set the sizes. */
void encoded_place(bench *b, encoded *made);
/* Copies the same bytes to other memory, which the next call uses again. */
encoded encoded_twin(const encoded *made);
void same_encoded(const encoded *expected, const encoded *found, const char *table,
                  const char *run);

/* Runs one check with a table, on a new bench. */
void try_table(const dw_kernels *kernels, void (*check)(bench *b));
/* Runs the check with each table that this processor can run, except C's. Returns their number. */
int try_tables(void (*check)(bench *b));

/* What the state of the functions below points to. */
typedef struct kernel_check {
    void (*check)(bench *b);
} kernel_check;

/* Runs the check of *state with each table; skips the test if C's table is the only one. */
void for_each_table(void **state);
/* Runs it with C's table, which checks compare with a model, and with each other one. */
void for_all_tables(void **state);

/* Begins the definition of a test that runs with each table: KERNEL_TEST(name) { ... }, where b is
 * its bench. KERNEL_TEST_BY: `how` runs it. */
#define KERNEL_TEST_BY(how, name) TEST_BY(how, kernel_check, name, bench *b)
#define KERNEL_TEST(name)         KERNEL_TEST_BY(for_each_table, name)

/* The main of a program whose tests stand in one file. */
#define RUN_KERNEL_TESTS                                                                           \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        if (!test_can_run()) return 77;                                                            \
        if (!kernel_rig_read(argc, argv, NULL)) return 2;                                          \
        return test_run(NULL, NULL);                                                               \
    }

/* Reads the arguments --share N and, if best is not NULL, --best NAME. Returns false after a
 * message if it does not understand them. */
bool kernel_rig_read(int argc, char **argv, char **best);

#endif
