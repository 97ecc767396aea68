/* SPDX-License-Identifier: Apache-2.0
 * test_pool.c - slots of any size do not overlap, are reused, and are returned to the allocator. */
#include "common/pool.h"
#include "support/tool.h"

enum { MIB = 1 << 20 };

typedef struct world {
    test_allocator counts;
    dw_allocator allocator;
    dw_pool pool;
} world;

static void open_world(world *w)
{
    memset(w, 0, sizeof *w);
    w->counts.fail_at = -1;
    w->allocator = test_allocator_hooks(&w->counts);
    dw_pool_init(&w->pool, &w->allocator);
}

static void close_world(world *w)
{
    dw_pool_release(&w->pool);
    assert_int_equal(w->counts.out_blocks, 0);
    assert_int_equal(w->counts.out_bytes, 0);
}

/* Makes a chunk of the longest kind, all of which is free. */
static void add_whole_chunk(world *w)
{
    dw_pool_give(&w->pool, dw_pool_take(&w->pool, MIB));
    assert_int_equal(w->pool.chunk_bytes, DW_POOL_CHUNK_BYTES);
}

/* The pool's own count must equal what it requested from its allocator. */
static void check_sums(const world *w)
{
    assert_int_equal(w->pool.taken_bytes + dw_pool_slack(&w->pool), w->counts.out_bytes);
}

TEST(pools_reuse_slots)
{
    enum { SLOTS = 64, BYTES = 100000 };
    world w;
    void *slots[SLOTS];
    open_world(&w);
    for (int round = 0; round < 100; round++) {
        long calls = w.counts.calls;
        for (int i = 0; i < SLOTS; i++) {
            slots[i] = dw_pool_take(&w.pool, BYTES);
            assert_non_null(slots[i]);
            assert_int_equal((uintptr_t)slots[i] % 64, 0);
            memset(slots[i], i, BYTES);
        }
        for (int i = 0; i < SLOTS; i++) assert_int_equal(((unsigned char *)slots[i])[BYTES - 1], i);
        for (int i = 0; i < SLOTS; i++) dw_pool_give(&w.pool, slots[i]);
        if (round) assert_int_equal(w.counts.calls, calls);
        assert_int_equal(w.pool.taken_bytes, 0);
        check_sums(&w);
    }
    assert_null(dw_pool_take(&w.pool, UINT64_MAX));
    assert_null(dw_pool_take(&w.pool, 0));
    dw_pool_give(&w.pool, NULL);
    close_world(&w);
}

/* Slots of many lengths, one after another, share a chunk if they fit. */
TEST(one_chunk_serves_every_size_that_fits)
{
    world w;
    open_world(&w);
    add_whole_chunk(&w);
    for (int round = 0; round < 4; round++)
        for (uint64_t bytes = 1; bytes < MIB; bytes += 1 + bytes / 7) {
            void *slot = dw_pool_take(&w.pool, bytes);
            assert_non_null(slot);
            memset(slot, 1, bytes);
            dw_pool_give(&w.pool, slot);
        }
    assert_int_equal(w.pool.chunk_bytes, DW_POOL_CHUNK_BYTES);
    close_world(&w);
}

/* The slots of a chunk fill it exactly; no part is lost. */
TEST(power_of_two_slots_fill_a_chunk_without_waste)
{
    for (uint64_t bytes = 64; bytes <= MIB; bytes *= 2) {
        world w;
        open_world(&w);
        for (uint64_t i = 0; i < DW_POOL_CHUNK_BYTES / bytes; i++)
            assert_non_null(dw_pool_take(&w.pool, bytes));
        assert_int_equal(w.pool.chunk_bytes, DW_POOL_CHUNK_BYTES);
        assert_non_null(dw_pool_take(&w.pool, bytes));
        assert_int_equal(w.pool.chunk_bytes, 2 * DW_POOL_CHUNK_BYTES);
        check_sums(&w);
        close_world(&w);
    }
}

/* Chunks grow with what the pool holds, so that few small slots take little. */
TEST(small_pools_take_little_memory)
{
    for (uint64_t bytes = 64; bytes <= MIB; bytes *= 4) {
        world w;
        open_world(&w);
        assert_non_null(dw_pool_take(&w.pool, bytes));
        assert_true(w.pool.chunk_bytes <= 2 * bytes + DW_POOL_FIRST_BYTES);
        while (w.pool.taken_bytes < 2 * MIB) {
            assert_non_null(dw_pool_take(&w.pool, bytes));
            assert_true(w.pool.chunk_bytes <= 2 * w.pool.taken_bytes + DW_POOL_FIRST_BYTES);
        }
        close_world(&w);
    }
}

/* Keys of several lengths whose copies come and go, as in training: after the first rounds nothing
 * is allocated or released any more. */
TEST(a_steady_state_allocates_nothing)
{
    enum { KEYS = 60 };
    uint64_t bytes[KEYS];
    test_random random = {test_seed()};
    for (int lengths = 1; lengths <= 8; lengths *= 2)
        for (uint64_t largest = 4096; largest <= 8 * MIB; largest *= 4) {
            void *held[KEYS] = {NULL};
            world w;
            long calls = 0;
            open_world(&w);
            for (int i = 0; i < KEYS; i++)
                bytes[i] = i < lengths ? 64 + test_next(&random) % largest : bytes[i - lengths];
            for (int round = 0; round < 60; round++) {
                if (round == 20) calls = w.counts.calls;
                for (int i = 0; i < KEYS; i++) {
                    void *fresh = dw_pool_take(&w.pool, bytes[i]);
                    assert_non_null(fresh);
                    dw_pool_give(&w.pool, held[i]);
                    held[i] = fresh;
                }
            }
            assert_int_equal(w.counts.calls, calls);
            assert_true(w.pool.chunk_bytes <= 2 * w.pool.taken_bytes + 2 * DW_POOL_CHUNK_BYTES);
            check_sums(&w);
            close_world(&w);
        }
}

/* All slots at once, then released one by one in random order: no slot overlaps another, and one
 * chunk remains at the end. */
TEST(pool_slots_do_not_overlap)
{
    enum { SLOTS = 300 };
    static unsigned char *slots[SLOTS];
    static uint64_t bytes[SLOTS];
    test_random random = {test_seed()};
    world w;
    open_world(&w);
    for (int step = 0; step < 40000; step++) {
        uint64_t i = test_next(&random) % SLOTS;
        if (slots[i]) {
            for (uint64_t k = 0; k < bytes[i]; k += 1 + bytes[i] / 50)
                assert_int_equal(slots[i][k], i % 251);
            assert_int_equal(slots[i][bytes[i] - 1], i % 251);
            dw_pool_give(&w.pool, slots[i]);
            slots[i] = NULL;
        } else {
            int size = (int)(test_next(&random) % 22);
            bytes[i] = 1 + test_next(&random) % (UINT64_C(1) << size);
            slots[i] = dw_pool_take(&w.pool, bytes[i]);
            assert_non_null(slots[i]);
            memset(slots[i], (int)(i % 251), bytes[i]);
        }
        if (step % 1000 == 0) check_sums(&w);
    }
    for (int i = 0; i < SLOTS; i++) dw_pool_give(&w.pool, slots[i]);
    for (int i = 0; i < 1000; i++) dw_pool_give(&w.pool, dw_pool_take(&w.pool, 1));
    assert_int_equal(w.pool.taken_bytes, 0);
    assert_true(w.pool.chunk_bytes <= DW_POOL_CHUNK_BYTES);
    memset(slots, 0, sizeof slots);
    close_world(&w);
}

/* Long-lived records do not fragment the memory of short-lived copies. */
TEST(small_records_do_not_split_chunks_of_copies)
{
    enum { KEYS = 8 };
    void *copies[KEYS];
    world w;
    open_world(&w);
    add_whole_chunk(&w);
    for (int i = 0; i < KEYS; i++) {
        assert_non_null(dw_pool_take(&w.pool, 200));
        copies[i] = dw_pool_take(&w.pool, 200000);
    }
    for (int i = 0; i < KEYS; i++) dw_pool_give(&w.pool, copies[i]);
    assert_non_null(dw_pool_take(&w.pool, MIB));
    assert_int_equal(w.pool.chunk_bytes, DW_POOL_CHUNK_BYTES);
    close_world(&w);
}

/* Memory of many removed keys is returned while a few other keys remain. */
TEST(memory_is_returned_when_fewer_keys_remain)
{
    enum { MANY = 200 };
    static void *slots[MANY];
    for (uint64_t bytes = 60000; bytes <= 3 * MIB; bytes += 2 * MIB) {
        world w;
        open_world(&w);
        for (int i = 0; i < MANY; i++) slots[i] = dw_pool_take(&w.pool, bytes);
        for (int i = 0; i < MANY; i++) dw_pool_give(&w.pool, slots[i]);
        assert_true(w.pool.chunk_bytes >= MANY * bytes); /* kept at first: keys may come back */
        for (int i = 0; i < 600; i++) dw_pool_give(&w.pool, dw_pool_take(&w.pool, bytes));
        assert_true(w.pool.chunk_bytes <= 2 * bytes + 2 * DW_POOL_CHUNK_BYTES);
        check_sums(&w);
        close_world(&w);
    }
}

/* Sizes that are not used again do not accumulate. */
TEST(sizes_used_once_do_not_accumulate)
{
    world w;
    open_world(&w);
    for (uint64_t bytes = MIB + MIB / 2; bytes < 40 * (uint64_t)MIB; bytes += MIB) {
        dw_pool_give(&w.pool, dw_pool_take(&w.pool, bytes));
        assert_true(w.pool.chunk_bytes <= 2 * (bytes + bytes / 16) + DW_POOL_CHUNK_BYTES);
    }
    close_world(&w);
}

/* When the allocator fails, the pool returns all free chunks and asks again; a failed take changes
 * nothing. */
TEST(free_chunks_are_returned_when_memory_ends)
{
    world w;
    open_world(&w);
    void *small = dw_pool_take(&w.pool, 1000), *large = dw_pool_take(&w.pool, 5 * MIB);
    dw_pool_give(&w.pool, large);
    uint64_t taken = w.pool.taken_bytes;
    assert_int_equal(w.pool.chunk_bytes, 5 * MIB + DW_POOL_FIRST_BYTES);
    w.counts.fail_at = w.counts.calls;
    w.counts.only_once = 1;
    large = dw_pool_take(&w.pool, 6 * MIB);
    assert_non_null(large);
    assert_int_equal(w.pool.chunk_bytes, 6 * MIB + DW_POOL_FIRST_BYTES);
    dw_pool_give(&w.pool, large);
    w.counts.fail_at = w.counts.calls;
    w.counts.only_once = 0;
    assert_null(dw_pool_take(&w.pool, 7 * MIB));
    assert_int_equal(w.pool.taken_bytes, taken);
    assert_int_equal(w.pool.chunk_bytes, DW_POOL_FIRST_BYTES);
    assert_ptr_equal(dw_pool_take(&w.pool, 1000), (unsigned char *)small + 1024);
    check_sums(&w);
    close_world(&w);
}

RUN_TESTS(NULL, NULL)
