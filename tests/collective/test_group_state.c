/* SPDX-License-Identifier: Apache-2.0
 * test_group_state.c - what a group keeps: state of codecs, which can be saved, restored and
 * forgotten, and memory, of which any part may be refused. */
#include <stdatomic.h>

#include "group_rig.h"

enum { PATIENCE_MS = 60000, FLOATS = 9000 };

typedef struct deed {
    group_rig *rig;
    uint64_t slot, n;
    dw_operation operation;
    dw_status status[RIG_MOST];
    float x[RIG_MOST][FLOATS], y[RIG_MOST][FLOATS];
} deed;

static void run_one(void *context, uint32_t rank)
{
    deed *act = context;
    dw_group_job job = {.struct_size = sizeof job,
                        .operation = act->operation,
                        .slot = act->slot,
                        .n = act->n,
                        .x = act->x[rank],
                        .y = act->y[rank]};
    act->status[rank] = dw_group_run(act->rig->group[rank], &job, PATIENCE_MS);
}

/* Values of a visit; those of two visits are similar, as for delta codecs. */
static void run(deed *act, group_rig *rig, uint64_t slot, uint64_t n, int visit)
{
    act->rig = rig;
    act->slot = slot;
    act->n = n;
    act->operation = DW_ALL_REDUCE;
    for (uint32_t r = 0; r < rig->ranks; r++) {
        for (uint64_t i = 0; i < n; i++)
            act->x[r][i] =
                (float)((i * 7 + r * 3 + slot) % 50) + (float)visit * 0.01f * (float)(i % 9);
    }
    rig_each(rig, run_one, act);
    rig_all_well(rig, act->status);
}

static dw_counters contributed(const group_rig *rig, int rank)
{
    dw_counters first = {.struct_size = sizeof first}, second = first;
    assert_int_equal(dw_group_count(rig->group[rank], NULL, &first, &second), DW_OK);
    return first;
}

/* ---- Saving ---------------------------------------------------------------------------------- */

typedef struct pieces {
    size_t n, len[400];
    void *saved[400];
} pieces;

static dw_status keep(void *context, uint64_t slot, const void *saved, size_t len)
{
    pieces *all = context;
    assert_true(slot == 1 || slot == 2);
    assert_true(all->n < 400);
    all->saved[all->n] = malloc(len);
    memcpy(all->saved[all->n], saved, len);
    all->len[all->n++] = len;
    return DW_OK;
}

static dw_status stop(void *context, uint64_t slot, const void *saved, size_t len)
{
    return --*(int *)context == 0 ? DW_ERR_IO : DW_OK;
}

/* Two groups, of which one is interrupted by a save and a restore, get the same bits. */
static void continues_bit_for_bit(const char *codec, uint32_t hops)
{
    static deed act, control;
    static pieces all[3];
    group_rig rig, other;
    memset(all, 0, sizeof all);
    rig_start_hops(&rig, "loop://state-%d", 3, codec, hops);
    rig_start_hops(&other, "loop://state-%d", 3, codec, hops);
    for (int visit = 0; visit < 3; visit++) {
        for (uint64_t slot = 1; slot <= 2; slot++) {
            run(&act, &rig, slot, FLOATS - slot, visit);
            run(&control, &other, slot, FLOATS - slot, visit);
        }
    }
    for (int r = 0; r < 3; r++) {
        assert_int_equal(dw_group_export(rig.group[r], keep, &all[r]), DW_OK);
        assert_true(all[r].n > (hops == 1 ? 4 : 10)); /* in one hop there are no results */
        int left = 3;
        assert_int_equal(dw_group_export(rig.group[r], stop, &left), DW_ERR_IO);
    }
    rig_close_groups(&rig);
    rig_open(&rig);
    for (int r = 0; r < 3; r++) {
        for (size_t i = 0; i < all[r].n; i++) {
            assert_int_equal(dw_group_import(rig.group[r], all[r].saved[i], all[r].len[i]), DW_OK);
            dw_status wrong =
                dw_group_import(rig.group[(r + 1) % 3], all[r].saved[i], all[r].len[i]);
            assert_int_equal(wrong, DW_ERR_MISMATCH);
            assert_int_equal(dw_group_import(rig.group[r], all[r].saved[i], 31), DW_ERR_FORMAT);
            unsigned char *slot = (unsigned char *)all[r].saved[i] + 8;
            *slot ^= 4; /* not the slot of the state behind it */
            wrong = dw_group_import(rig.group[r], all[r].saved[i], all[r].len[i]);
            assert_int_equal(wrong, DW_ERR_FORMAT);
            *slot ^= 4;
        }
    }
    for (int visit = 3; visit < 6; visit++) {
        for (uint64_t slot = 1; slot <= 2; slot++) {
            run(&act, &rig, slot, FLOATS - slot, visit);
            run(&control, &other, slot, FLOATS - slot, visit);
            assert_memory_equal(act.y, control.y, sizeof act.y);
        }
    }
    /* Nothing began anew. */
    dw_counters counted = contributed(&rig, 1);
    assert_int_equal(counted.key_entries, 0);
    assert_true(counted.delta_entries + counted.stateless_entries > 0);
    assert_int_equal(dw_group_import(rig.group[0], all[0].saved[0], all[0].len[0]),
                     DW_ERR_ARGUMENT);
    for (int r = 0; r < 3; r++)
        for (size_t i = 0; i < all[r].n; i++) free(all[r].saved[i]);
    rig_close(&rig);
    rig_close(&other);
}

TEST(saved_state_continues_bit_for_bit)
{
    for (uint32_t hops = 1; hops <= 2; hops++) {
        continues_bit_for_bit("delta:bits=3", hops);
        continues_bit_for_bit("delta:bits=3,prev=8", hops);
        continues_bit_for_bit("delta:form=step,error=0.1,prev=4", hops);
        continues_bit_for_bit("direct:bits=2,feedback=ef", hops);
    }
}

/* The bytes of the state of contributions, of both ranks, after two visits. */
static uint64_t bytes_held(const char *codec, uint32_t hops)
{
    static deed act;
    group_rig rig;
    rig_start_hops(&rig, "loop://state-%d", 2, codec, hops);
    for (int visit = 0; visit < 2; visit++) run(&act, &rig, 1, FLOATS, visit);
    uint64_t held[2];
    for (int r = 0; r < 2; r++) held[r] = contributed(&rig, r).state_bytes;
    rig_close(&rig);
    return held[0] + held[1];
}

/* A value takes 17/16 bytes in 8 bits, and 9/16 in 4; records are some bytes more. */
TEST(prev_in_few_bits_takes_a_half_or_a_quarter_of_bf16)
{
    for (uint32_t hops = 1; hops <= 2; hops++) {
        uint64_t bf16 = bytes_held("delta:bits=4,prev=bf16", hops);
        assert_in_range(bytes_held("delta:bits=4,prev=8", hops) * 100, bf16 * 50, bf16 * 60);
        assert_in_range(bytes_held("delta:bits=4,prev=4", hops) * 100, bf16 * 25, bf16 * 35);
    }
}

/* ---- Forgetting ------------------------------------------------------------------------------ */

static void forget_slot_1(uint32_t hops)
{
    static deed act;
    group_rig rig;
    rig_start_hops(&rig, "loop://state-%d", 3, "delta:bits=3", hops);
    for (int visit = 0; visit < 2; visit++) {
        run(&act, &rig, 1, FLOATS, visit);
        run(&act, &rig, 2, FLOATS, visit);
    }
    dw_group_counters before = {.struct_size = sizeof before}, after = before;
    dw_group_count(rig.group[1], &before, NULL, NULL);
    uint64_t keys_held = contributed(&rig, 1).keys_held;
    for (int r = 0; r < 3; r++) assert_int_equal(dw_group_forget(rig.group[r], 1), DW_OK);
    assert_int_equal(dw_group_forget(rig.group[0], 77), DW_OK);
    dw_group_count(rig.group[1], &after, NULL, NULL);
    assert_true(after.state_bytes < before.state_bytes);
    dw_counters codec = contributed(&rig, 1);
    assert_int_equal(codec.keys_held, keys_held / 2);
    /* Slot 2 continues, slot 1 begins anew. */
    run(&act, &rig, 2, FLOATS, 2);
    assert_int_equal(contributed(&rig, 1).key_entries, codec.key_entries);
    run(&act, &rig, 1, FLOATS, 2);
    assert_int_equal(contributed(&rig, 1).key_entries, 2 * codec.key_entries);
    for (int visit = 3; visit < 5; visit++) {
        run(&act, &rig, 2, FLOATS, visit);
        run(&act, &rig, 1, FLOATS, visit);
    }
    rig_close(&rig);
}

TEST(a_forgotten_slot_begins_anew)
{
    forget_slot_1(1);
    forget_slot_1(2);
}

/* A rank may forget a slot and use it again before another rank has forgotten it. */
TEST(ranks_may_forget_a_slot_at_different_times)
{
    static deed act;
    group_rig rig;
    rig_start(&rig, "loop://state-%d", 2, "delta:bits=3");
    run(&act, &rig, 1, 5000, 0);
    assert_int_equal(dw_group_forget(rig.group[0], 1), DW_OK);
    dw_group_job job = {.struct_size = sizeof job,
                        .operation = DW_ALL_REDUCE,
                        .slot = 1,
                        .n = 5000,
                        .x = act.x[0],
                        .y = act.y[0]};
    assert_int_equal(dw_group_start(rig.group[0], &job), DW_OK);
    assert_int_equal(dw_group_wait(rig.group[0], 1, 100), DW_PENDING);
    assert_int_equal(dw_group_forget(rig.group[1], 1), DW_OK);
    job.x = act.x[1];
    job.y = act.y[1];
    assert_int_equal(dw_group_run(rig.group[1], &job, PATIENCE_MS), DW_OK);
    assert_int_equal(dw_group_wait(rig.group[0], 1, PATIENCE_MS), DW_OK);
    assert_memory_equal(act.y[0], act.y[1], 5000 * sizeof(float));
    rig_close(&rig);
}

/* With an incarnation a run can be repeated. But a slot that was forgotten does not draw the random
 * numbers from before again: errors would add up. */
TEST(a_forgotten_slot_draws_other_random_numbers)
{
    enum { N = 2000 }; /* one piece, so frames have the same numbers in every run */
    static deed act;
    static float first[N];
    static const char *const codecs[] = {
        "delta:form=step,step=2,rounding=dither,entropy=rans,incarnation=5",
        "delta:bits=2,key=2,rounding=stochastic,incarnation=5"};
    for (int i = 0; i < 2; i++) {
        group_rig rig;
        rig_start(&rig, "loop://state-%d", 2, codecs[i]);
        run(&act, &rig, 1, N, 0);
        memcpy(first, act.y[0], sizeof first);
        for (int r = 0; r < 2; r++) assert_int_equal(dw_group_forget(rig.group[r], 1), DW_OK);
        run(&act, &rig, 1, N, 0);
        assert_memory_not_equal(act.y[0], first, sizeof first);
        rig_close_groups(&rig);
        rig_open(&rig);
        run(&act, &rig, 1, N, 0);
        assert_memory_equal(act.y[0], first, sizeof first);
        rig_close(&rig);
    }
}

/* ---- Limits ---------------------------------------------------------------------------------- */

TEST(group_counters_count)
{
    static deed act;
    group_rig rig;
    rig_start(&rig, "loop://state-%d", 2, "direct:bits=4");
    run(&act, &rig, 1, FLOATS, 0);
    dw_group_counters counters = {.struct_size = sizeof counters};
    /* The worker shows its counts at the end of a turn. */
    for (int i = 0; i < 1000 && counters.received_bytes == 0; i++) {
        suite_sleep_ms(5);
        dw_group_count(rig.group[1], &counters, NULL, NULL);
    }
    assert_int_equal(counters.started, 1);
    assert_int_equal(counters.finished, 1);
    assert_int_equal(counters.slots, 1);
    /* A rank encodes the whole buffer, and its part of the sum. */
    uint64_t begin, count;
    dw_group_part(FLOATS, 1, 2, &begin, &count);
    assert_int_equal(counters.raw_bytes, 4 * (FLOATS + count));
    assert_true(counters.encoded_bytes * 6 < counters.raw_bytes);
    assert_true(counters.sent_bytes > 0 && counters.sent_bytes < counters.encoded_bytes * 2);
    assert_int_equal(counters.repeated, 0);
    counters.struct_size = 0;
    assert_int_equal(dw_group_count(rig.group[1], &counters, NULL, NULL), DW_ERR_ARGUMENT);
    rig_close(&rig);
}

TEST(parts_of_ranks_begin_at_multiples_of_2048)
{
    static const uint64_t lengths[] = {0, 1, 2048, 2049, 100000, UINT64_C(1) << 40};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (uint32_t ranks = 1; ranks < 9; ranks++) {
            uint64_t end = 0, begin, count;
            for (uint32_t r = 0; r < ranks; r++) {
                assert_int_equal(dw_group_part(lengths[i], r, ranks, &begin, &count), DW_OK);
                assert_int_equal(begin, end);
                end = begin + count;
                assert_true(end % 2048 == 0 || end == lengths[i]);
                assert_true(count <= lengths[i] / ranks + 4096);
            }
            assert_int_equal(end, lengths[i]);
            assert_true(lengths[i] == 0 || count > 0); /* of the last rank */
        }
    }
    uint64_t begin, count;
    assert_int_equal(dw_group_part(10, 2, 2, &begin, &count), DW_ERR_ARGUMENT);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static void use_allocator(group_rig *rig)
{
    static dw_host host;
    host = (dw_host){.struct_size = sizeof host, .allocator = rig_allocator()};
    rig->config[1].allocator = host.allocator;
    rig->config[1].host = &host;
}

/* A rank that cannot open its group gives its link up, as a program that ends would. */
static void open_or_leave(void *context, uint32_t rank)
{
    group_rig *rig = context;
    rig->status[rank] = dw_group_open(&rig->group[rank], &rig->config[rank], &rig->why[rank]);
    if (rig->status[rank] != DW_OK) dw_link_cancel(rig->links[rank][1 - rank]);
}

/* The same for a rank that cannot start an operation. */
static void run_or_leave(void *context, uint32_t rank)
{
    deed *act = context;
    run_one(act, rank);
    if (act->status[rank] == DW_OK) return;
    dw_group_close(act->rig->group[rank]);
    act->rig->group[rank] = NULL;
}

/* Rank 1 lacks memory at one point after the other: opening, an operation, or nothing fails, and no
 * memory is lost. On a link that may lose messages there are copies, too, and with feedback frames
 * that are kept. */
TEST(any_allocation_may_fail)
{
    static deed act;
    static const char *const uris[] = {"loop://state-%d", "shaped:duplicate=1%/loop://state-%d"};
    static const char *const codecs[] = {"delta:bits=4", "direct:bits=4,feedback=ef"};
    for (int kind = 0; kind < 4; kind++) {
        int ends = 0, u = kind % 2;
        for (long n = 0; !ends; n++) {
            group_rig rig;
            rig_link(&rig, uris[u], 2, codecs[u], NULL);
            for (int r = 0; r < 2; r++) rig.config[r].hops = kind < 2 ? 2 : 1;
            use_allocator(&rig);
            atomic_store(&rig_calls, 0);
            atomic_store(&rig_refused_call, n);
            rig_each(&rig, open_or_leave, &rig);
            if (rig.status[0] == DW_OK && rig.status[1] == DW_OK) {
                act = (deed){.rig = &rig, .slot = 1, .n = 5000, .operation = DW_ALL_REDUCE};
                rig_each(&rig, run_or_leave, &act);
                for (int r = 0; r < 2; r++) {
                    int is_known = act.status[r] == DW_OK || act.status[r] == DW_ERR_NO_MEMORY ||
                                   (r == 0 && act.status[r] == DW_ERR_PEER);
                    if (!is_known)
                        fail_msg("allocation %ld, rank %d: %d", n, r, (int)act.status[r]);
                }
            } else {
                assert_int_equal(rig.status[1], DW_ERR_NO_MEMORY);
            }
            ends = atomic_load(&rig_calls) <= n;
            rig_close(&rig);
            assert_int_equal(atomic_load(&rig_live_bytes), 0);
            assert_int_equal(atomic_load(&rig_wrong_sizes), 0);
        }
    }
    atomic_store(&rig_refused_call, -1);
}

static void little_is_allocated(uint32_t hops)
{
    static deed act;
    group_rig rig;
    atomic_store(&rig_refused_call, -1);
    rig_link(&rig, "loop://state-%d", 2, "delta:bits=4", NULL);
    for (int r = 0; r < 2; r++) rig.config[r].hops = hops;
    use_allocator(&rig);
    rig_open(&rig);
    /* How many messages wait at the same time depends on the threads: hence some operations before,
     * and hence a few allocations, but fewer than one in two operations. */
    for (int visit = 0; visit < 20; visit++) run(&act, &rig, 1, FLOATS, visit);
    long before = atomic_load(&rig_calls);
    for (int visit = 20; visit < 60; visit++) run(&act, &rig, 1, FLOATS, visit);
    assert_in_range(atomic_load(&rig_calls) - before, 0, 19);
    rig_close(&rig);
}

TEST(nothing_is_allocated_in_steady_state)
{
    little_is_allocated(1);
    little_is_allocated(2);
}

RUN_TESTS(NULL, NULL)
