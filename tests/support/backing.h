/* SPDX-License-Identifier: Apache-2.0
 * backing.h - a backing store in memory that fails when a test wants it to. */
#ifndef DW_TEST_BACKING_H
#define DW_TEST_BACKING_H

#include <sched.h>
#include <stdatomic.h>

#include "support/tool.h"

enum { TEST_BACKING_RECORDS = 4096 };
static const char test_backing_full[] = "the disk is full";
static const char test_backing_read_says[] = "said by each read, also by one that succeeds";

/* Objects that share it may call it from several threads at the same time. */
typedef struct test_backing {
    dw_backing calls;
    atomic_flag is_locked;
    test_random random;
    /* Of so many writes, or reads, one fails; 0: none. Half of the writes that fail have a number
     * all the same, and the others return OK without one. */
    uint64_t writes_fail, reads_fail;
    bool has_no_memory; /* is why they fail; then no copy is lost */
    uint8_t *records[TEST_BACKING_RECORDS];
    uint64_t bytes[TEST_BACKING_RECORDS];
    uint64_t n, writes, reads, lost, prefetched; /* n: records that are held */
} test_backing;

static inline test_backing *test_backing_lock(void *context)
{
    test_backing *b = context;
    while (atomic_flag_test_and_set(&b->is_locked)) sched_yield();
    return b;
}

static inline void test_backing_unlock(test_backing *b)
{
    atomic_flag_clear(&b->is_locked);
}

static inline dw_status test_backing_write(void *context, const void *copy, uint64_t bytes,
                                           uint64_t *record, dw_why *why)
{
    test_backing *b = test_backing_lock(context);
    bool fails = b->writes_fail && test_next(&b->random) % b->writes_fail == 0;
    bool has_no_number = fails && !b->has_no_memory && test_next(&b->random) % 2;
    uint64_t at = 0;
    while (at + 1 < TEST_BACKING_RECORDS && b->records[at]) at++;
    bool is_full = b->records[at] != NULL;
    if (!fails && !is_full) {
        b->records[at] = memcpy(malloc(bytes), copy, bytes);
        b->bytes[at] = bytes;
        b->n++;
        b->writes++;
    }
    test_backing_unlock(b);
    assert_false(is_full);
    *record = has_no_number ? 0 : at + 1;
    if (!fails || has_no_number) return DW_OK;
    if (b->has_no_memory) return DW_ERR_NO_MEMORY;
    snprintf(why->text, sizeof why->text, "%s", test_backing_full);
    return DW_ERR_LIMIT; /* becomes IO */
}

static inline dw_status test_backing_read(void *context, uint64_t record, void *copy,
                                          uint64_t bytes, dw_why *why)
{
    test_backing *b = test_backing_lock(context);
    const uint8_t *held = b->records[record - 1];
    uint64_t held_bytes = b->bytes[record - 1];
    bool is_lost = b->reads_fail && test_next(&b->random) % b->reads_fail == 0;
    b->reads++;
    b->lost += is_lost && !b->has_no_memory;
    test_backing_unlock(b);
    snprintf(why->text, sizeof why->text, "%s", test_backing_read_says);
    assert_non_null(held);
    assert_int_equal(held_bytes, bytes);
    memcpy(copy, held, bytes);
    if (is_lost) memset(copy, 0xee, bytes);
    if (!is_lost) return DW_OK;
    return b->has_no_memory ? DW_ERR_NO_MEMORY : DW_ERR_CORRUPT;
}

static inline void test_backing_prefetch(void *context, uint64_t record)
{
    test_backing *b = test_backing_lock(context);
    bool is_held = b->records[record - 1] != NULL;
    b->prefetched++;
    test_backing_unlock(b);
    assert_true(is_held);
}

static inline void test_backing_release(void *context, uint64_t record)
{
    test_backing *b = test_backing_lock(context);
    uint8_t *held = b->records[record - 1];
    b->records[record - 1] = NULL;
    b->n--;
    test_backing_unlock(b);
    assert_non_null(held); /* each once */
    free(held);
}

static inline void test_backing_open(test_backing *b, uint64_t cache_bytes)
{
    memset(b, 0, sizeof *b);
    b->random.state = test_seed();
    b->calls = (dw_backing){cache_bytes,           test_backing_write,   test_backing_read,
                            test_backing_prefetch, test_backing_release, b};
}

/* Gives the ends of a pair this backing store, in place of those that they were made with. */
static inline void test_pair_page(test_pair *pair, test_backing *b)
{
    pair->host.backing = &b->calls;
    test_pair_renew_encoder(pair);
    test_pair_renew_decoder(pair);
}

#endif
