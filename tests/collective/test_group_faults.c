/* SPDX-License-Identifier: Apache-2.0
 * test_group_faults.c - how groups fail: everybody gets the same error, which names a rank, buffers
 * are as before, and later calls answer at once. And what is repaired. */
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "group_rig.h"

enum { PATIENCE_MS = 60000, FLOATS = 9000 };
static const char *const loop = "loop://faults-%d";

/* ---- One operation on all ranks -------------------------------------------------------------- */

typedef struct deed {
    group_rig *rig;
    dw_group_job job[RIG_MOST];
    dw_status status[RIG_MOST];
    float x[RIG_MOST][FLOATS], y[RIG_MOST][FLOATS];
    int skips[RIG_MOST]; /* the rank does not take part */
} deed;

static void run_one(void *context, uint32_t rank)
{
    deed *act = context;
    if (!act->skips[rank])
        act->status[rank] = dw_group_run(act->rig->group[rank], &act->job[rank], PATIENCE_MS);
}

static void prepare(deed *act, group_rig *rig, dw_operation operation, uint64_t n)
{
    memset(act, 0, sizeof *act);
    act->rig = rig;
    for (uint32_t r = 0; r < rig->ranks; r++) {
        for (int i = 0; i < FLOATS; i++) {
            act->x[r][i] = (float)((i * 7 + (int)r * 3) % 50) - 20;
            act->y[r][i] = -5;
        }
        act->job[r] = (dw_group_job){.struct_size = sizeof act->job[r],
                                     .operation = operation,
                                     .slot = 3,
                                     .n = n,
                                     .x = act->x[r],
                                     .y = act->y[r]};
    }
}

static void run_all(deed *act)
{
    rig_each(act->rig, run_one, act);
}

/* Checks that an operation failed on a rank: the status is this one, one of the two ranks is named,
 * its buffer is as before, and every later call returns the same error. */
static void has_failed(const deed *act, uint32_t rank, dw_status status, int names, int or_names)
{
    dw_group *group = act->rig->group[rank];
    dw_group_job job = act->job[rank];
    if (act->status[rank] != status)
        fail_msg("rank %u: %d, not %d: %s", rank, (int)act->status[rank], (int)status,
                 dw_group_why(group, NULL));
    for (int i = 0; i < FLOATS; i++) assert_true(act->y[rank][i] == -5);
    int named = rig_failed_rank(group);
    if (named != names && named != or_names)
        fail_msg("names %d: %s", named, dw_group_why(group, NULL));
    assert_string_not_equal(dw_group_why(group, NULL), "");
    job.slot = 999;
    assert_int_equal(dw_group_start(group, &job), status);
    assert_int_equal(dw_group_wait(group, 999, PATIENCE_MS), status);
    assert_int_equal(dw_group_forget(group, 3), status);
}

/* ---- What is repaired ------------------------------------------------------------------------ */

/* Sums do not depend on what kind of links there are. */
TEST(links_may_be_of_different_backends)
{
    static deed act, other;
    group_rig rig, plain;
    rig_link(&rig, loop, 3, "direct:bits=4", NULL);
    rig_link(&plain, "tcp://127.0.0.1:0", 3, "direct:bits=4", NULL);
    /* Rank 2 is reached by tcp. */
    rig.links[0][2] = plain.links[0][2];
    rig.links[2][0] = plain.links[2][0];
    rig_open(&rig);
    prepare(&act, &rig, DW_ALL_REDUCE, FLOATS);
    run_all(&act);
    rig_all_well(act.rig, act.status);
    rig_close_groups(&rig);
    rig_open(&plain); /* the id may be used again */
    prepare(&other, &plain, DW_ALL_REDUCE, FLOATS);
    run_all(&other);
    rig_all_well(other.rig, other.status);
    assert_memory_equal(act.y, other.y, sizeof act.y);
    rig_close(&plain);
    rig_close(&rig);
}

/* ---- Disagreement ---------------------------------------------------------------------------- */

TEST(ranks_that_disagree_get_an_error)
{
    static deed act;
    for (int what = 0; what < 6; what++) {
        group_rig rig;
        rig_start(&rig, loop, 3, "direct:bits=4");
        prepare(&act, &rig, what == 5 ? DW_BROADCAST : DW_ALL_REDUCE, 5000);
        if (what == 0) act.job[1].n = 4999;
        if (what == 1) act.job[1].n = 0;
        if (what == 2) act.job[1].mean = 1;
        if (what == 3) act.job[1].dtype = DW_BF16;
        if (what == 4) act.job[1].operation = DW_REDUCE_SCATTER;
        /* Two roots: rank 0 and rank 1. */
        if (what == 5) act.job[1].root = 1;
        run_all(&act);
        int failed = 0;
        for (uint32_t r = 0; r < 3; r++) {
            /* The rank that first sees a difference names the other rank; its sentence has both. */
            if (act.status[r] == DW_OK) continue;
            has_failed(&act, r, DW_ERR_MISMATCH, rig_failed_rank(rig.group[r]), 0);
            assert_in_range(rig_failed_rank(rig.group[r]), 0, 2);
            assert_non_null(strstr(dw_group_why(rig.group[r], NULL), "rank 1"));
            failed++;
        }
        /* Of two roots none has finished, though rank 2 may have what one of them sent. */
        assert_true(failed >= (what == 5 ? 2 : what == 4 ? 1 : 3));
        rig_close(&rig);
    }
}

TEST(slot_in_use_is_refused)
{
    static deed act;
    group_rig rig;
    rig_start(&rig, loop, 2, "raw:f32");
    prepare(&act, &rig, DW_ALL_REDUCE, 100);
    assert_int_equal(dw_group_wait(rig.group[0], 3, 0), DW_ERR_ARGUMENT);
    assert_int_equal(dw_group_start(rig.group[0], &act.job[0]), DW_OK);
    assert_int_equal(dw_group_start(rig.group[0], &act.job[0]), DW_ERR_ARGUMENT);
    assert_non_null(strstr(dw_group_why(rig.group[0], NULL), "slot 3"));
    assert_int_equal(dw_group_wait(rig.group[0], 3, 0), DW_PENDING);
    assert_int_equal(dw_group_wait(rig.group[0], 3, 5), DW_PENDING);
    assert_int_equal(dw_group_forget(rig.group[0], 3), DW_ERR_ARGUMENT);
    /* The other rank comes, and all is well. */
    assert_int_equal(dw_group_run(rig.group[1], &act.job[1], PATIENCE_MS), DW_OK);
    assert_int_equal(dw_group_wait(rig.group[0], 3, PATIENCE_MS), DW_OK);
    assert_int_equal(dw_group_wait(rig.group[0], 3, PATIENCE_MS), DW_ERR_ARGUMENT);
    assert_true(act.y[0][5] == act.x[0][5] + act.x[1][5]);
    rig_close(&rig);
}

TEST(bad_jobs_are_refused)
{
    static deed act;
    group_rig rig;
    rig_start(&rig, loop, 2, "raw:f32");
    for (int what = 0; what < 7; what++) {
        prepare(&act, &rig, DW_ALL_REDUCE, 100);
        dw_group_job *job = &act.job[0];
        dw_status expected = DW_ERR_ARGUMENT;
        if (what == 0) job->operation = 0;
        if (what == 1) job->dtype = 9;
        if (what == 2) job->x = NULL;
        if (what == 3) job->y = NULL;
        if (what == 4) job->struct_size = 5000;
        if (what == 5) job->n = (UINT64_C(1) << 40) + 1, expected = DW_ERR_LIMIT;
        if (what == 6) job->operation = DW_BROADCAST, job->root = 2;
        assert_int_equal(dw_group_start(rig.group[0], job), expected);
        assert_string_not_equal(dw_group_why(rig.group[0], NULL), "");
        assert_int_equal(rig_failed_rank(rig.group[0]), -1);
    }
    assert_int_equal(dw_group_start(NULL, &act.job[0]), DW_ERR_ARGUMENT);
    assert_int_equal(dw_group_start(rig.group[0], NULL), DW_ERR_ARGUMENT);
    rig_close(&rig);
}

/* ---- Lost and late ranks --------------------------------------------------------------------- */

/* A rank that has received a broadcast may leave before another one has even started it. */
TEST(a_rank_may_leave_when_it_has_finished)
{
    static deed act;
    group_rig rig;
    rig_start(&rig, loop, 3, "raw:f32");
    prepare(&act, &rig, DW_BROADCAST, FLOATS);
    for (int r = 0; r < 3; r++) act.job[r].root = 1;
    assert_int_equal(dw_group_start(rig.group[1], &act.job[1]), DW_OK);
    run_one(&act, 2);
    assert_int_equal(act.status[2], DW_OK);
    dw_group_close(rig.group[2]);
    rig.group[2] = NULL;
    run_one(&act, 0);
    assert_int_equal(act.status[0], DW_OK);
    assert_int_equal(dw_group_wait(rig.group[1], act.job[1].slot, PATIENCE_MS), DW_OK);
    for (int r = 0; r < 3; r += 2)
        assert_memory_equal(act.y[r], act.y[1], FLOATS * sizeof act.y[1][0]);
    /* What needs this rank fails at once. */
    run_one(&act, 1);
    assert_int_equal(act.status[1], DW_ERR_PEER);
    assert_int_equal(rig_failed_rank(rig.group[1]), 2);
    rig_close(&rig);
}

/* One rank does not start the operation, and the others must name it. In the first and the last
 * world the whole buffer is the part of rank 2. In the first one, rank 0 waits only for a result of
 * rank 2, which itself waits for rank 1. In the last one, ranks 0 and 1 wait for a result of rank
 * 2, and for digests of each other, which come after the result. */
TEST(late_rank_is_named_at_all_ranks)
{
    static deed act;
    static const struct {
        const char *uri;
        uint64_t n;
        int late, verifies;
    } worlds[] = {{"loop://faults-%d", 100, 1, 0},
                  {"shaped:loss=10%,seed=11/loop://faults-%d", FLOATS, 1, 0},
                  {"loop://faults-%d", 100, 2, 1}};
    for (int u = 0; u < 3; u++) {
        int late = worlds[u].late, other = 3 - late;
        /* With a short limit on a busy machine, the other ranks are late for each other, too. */
        bool is_named = false;
        for (uint32_t limit = 400; !is_named; limit *= 4) {
            group_rig rig;
            rig_link(&rig, worlds[u].uri, 3, "raw:f32", NULL);
            for (int r = 0; r < 3; r++) {
                rig.config[r].timeout_ms = limit;
                rig.config[r].verify = worlds[u].verifies;
            }
            rig_open(&rig);
            prepare(&act, &rig, DW_ALL_REDUCE, worlds[u].n);
            act.skips[late] = 1;
            run_all(&act);
            is_named = (rig_failed_rank(rig.group[0]) == late &&
                        rig_failed_rank(rig.group[other]) == late) ||
                       limit > SUITE_LONGEST_LIMIT_MS;
            if (is_named) {
                has_failed(&act, 0, DW_ERR_TIMEOUT, late, late);
                has_failed(&act, other, DW_ERR_TIMEOUT, late, late);
                /* The late rank learns it at its next call. */
                act.status[late] = dw_group_run(rig.group[late], &act.job[late], PATIENCE_MS);
                has_failed(&act, late, DW_ERR_TIMEOUT, late, late);
            }
            rig_close(&rig);
        }
    }
}

/* Half of all messages are lost, also those with the error of the group. So the error is sent again
 * to a rank that has not answered. */
TEST(group_error_is_repeated_over_a_lossy_link)
{
    static deed act;
    for (int world = 0; world < 6; world++) {
        group_rig rig;
        char uri[64];
        snprintf(uri, sizeof uri, "shaped:loss=50%%,seed=%d/loop://faults-%%d", 20 + world);
        rig_link(&rig, uri, 2, "raw:f32", NULL);
        rig.config[0].timeout_ms = 100;
        rig_open(&rig);
        prepare(&act, &rig, DW_ALL_REDUCE, FLOATS);
        act.skips[1] = 1;
        run_all(&act);
        has_failed(&act, 0, DW_ERR_TIMEOUT, 1, 1);
        /* Rank 1 learns of it without an operation of its own. */
        for (int i = 0; i < 10000 && rig_failed_rank(rig.group[1]) < 0; i++) suite_sleep_ms(2);
        act.status[1] = dw_group_run(rig.group[1], &act.job[1], PATIENCE_MS);
        has_failed(&act, 1, DW_ERR_TIMEOUT, 1, 1);
        /* Half of the goodbyes would be lost, too, and closing would wait for them. */
        dw_link_cancel(rig.links[0][1]);
        dw_link_cancel(rig.links[1][0]);
        rig_close(&rig);
    }
}

/* ---- Bad bytes and bad numbers --------------------------------------------------------------- */

static suite_verdict damage(void *context, unsigned char *message, size_t *len, uint64_t n)
{
    atomic_int *left = context;
    if (*len > 3000 && atomic_fetch_sub(left, 1) == 1) message[*len - 100] ^= 4;
    return SUITE_PASS;
}

/* Over a link that promises to deliver messages unchanged, damage is found by the digests of
 * frames.
 */
TEST(damaged_frame_on_a_reliable_link_fails_the_group)
{
    static deed act;
    atomic_int left = 2;
    group_rig rig;
    suite_pair pair;
    rig_link(&rig, loop, 2, "raw:f32", NULL);
    rig_spoil_link(&rig, 0, 1, &pair, "loop://spoiled-%d", (suite_spoiler){damage, &left});
    rig_open(&rig);
    prepare(&act, &rig, DW_ALL_REDUCE, FLOATS);
    run_all(&act);
    has_failed(&act, 0, DW_ERR_CORRUPT, 0, 1);
    has_failed(&act, 1, DW_ERR_CORRUPT, 0, 1);
    rig_close_groups(&rig);
    suite_close(&pair);
    rig_close(&rig);
}

TEST(nan_poisons_only_its_group_of_channels)
{
    static deed act;
    for (uint32_t hops = 1; hops <= 2; hops++) {
        group_rig rig;
        rig_start_hops(&rig, loop, 3, "direct:bits=8,group=64", hops);
        prepare(&act, &rig, DW_ALL_REDUCE, FLOATS);
        act.x[1][5000] = NAN;
        act.x[2][64] = INFINITY;
        run_all(&act);
        rig_all_well(act.rig, act.status);
        for (int r = 0; r < 3; r++) {
            for (int i = 0; i < FLOATS; i++) {
                int poisoned = i / 64 == 5000 / 64 || i / 64 == 1;
                assert_int_equal(isnan(act.y[r][i]) != 0, poisoned);
                float sum = act.x[0][i] + act.x[1][i] + act.x[2][i];
                if (!poisoned) assert_true(fabsf(act.y[r][i] - sum) < 2);
            }
            dw_group_counters counters = {.struct_size = sizeof counters};
            assert_int_equal(dw_group_count(rig.group[r], &counters, NULL, NULL), DW_OK);
            assert_int_equal(counters.poisoned, 2);
            assert_memory_equal(act.y[r], act.y[0], sizeof act.y[0]);
        }
        rig_close(&rig);
    }
}

RUN_TESTS(NULL, NULL)
