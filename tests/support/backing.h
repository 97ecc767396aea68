/* SPDX-License-Identifier: Apache-2.0
 * backing.h - a backing store in memory that fails when a test wants it to. */
#ifndef DW_TEST_BACKING_H
#define DW_TEST_BACKING_H

#include <stdatomic.h>

#include "support/tool.h"

enum { TEST_BACKING_RECORDS = 4096 };

/* Objects that share it may call it from several threads at the same time. */
typedef struct test_backing {
    dw_backing calls;
    atomic_flag is_locked;
    test_random random;
    /* Of so many writes, or reads, one fails; 0: none. */
    uint64_t writes_fail, reads_fail;
    uint8_t *records[TEST_BACKING_RECORDS];
    uint64_t bytes[TEST_BACKING_RECORDS];
    uint64_t n, writes, reads, lost, prefetched; /* n: records that are held */
} test_backing;

static inline test_backing *test_backing_lock(void *context)
{
    test_backing *b = context;
    while (atomic_flag_test_and_set(&b->is_locked)) {
    }
    return b;
}

static inline dw_status test_backing_write(void *context, const void *copy, uint64_t bytes,
                                           uint64_t *record, dw_why *why)
{
    test_backing *b = test_backing_lock(context);
    if (b->writes_fail && test_next(&b->random) % b->writes_fail == 0) {
        atomic_flag_clear(&b->is_locked);
        snprintf(why->text, sizeof why->text, "the disk is full");
        return DW_ERR_LIMIT; /* becomes IO */
    }
    uint64_t at = 0;
    while (b->records[at]) at++;
    assert_true(at < TEST_BACKING_RECORDS);
    b->records[at] = malloc(bytes);
    memcpy(b->records[at], copy, bytes);
    b->bytes[at] = bytes;
    b->n++;
    b->writes++;
    *record = at + 1;
    atomic_flag_clear(&b->is_locked);
    return DW_OK;
}

static inline dw_status test_backing_read(void *context, uint64_t record, void *copy,
                                          uint64_t bytes, dw_why *why)
{
    test_backing *b = test_backing_lock(context);
    (void)why;
    assert_non_null(b->records[record - 1]);
    assert_int_equal(b->bytes[record - 1], bytes);
    b->reads++;
    bool is_lost = b->reads_fail && test_next(&b->random) % b->reads_fail == 0;
    b->lost += is_lost;
    if (is_lost)
        memset(copy, 0xee, bytes);
    else
        memcpy(copy, b->records[record - 1], bytes);
    atomic_flag_clear(&b->is_locked);
    return is_lost ? DW_ERR_CORRUPT : DW_OK;
}

static inline void test_backing_prefetch(void *context, uint64_t record)
{
    test_backing *b = test_backing_lock(context);
    assert_non_null(b->records[record - 1]);
    b->prefetched++;
    atomic_flag_clear(&b->is_locked);
}

static inline void test_backing_release(void *context, uint64_t record)
{
    test_backing *b = test_backing_lock(context);
    assert_non_null(b->records[record - 1]); /* each once */
    free(b->records[record - 1]);
    b->records[record - 1] = NULL;
    b->n--;
    atomic_flag_clear(&b->is_locked);
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
