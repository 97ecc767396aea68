/* SPDX-License-Identifier: Apache-2.0
 * test_group_waiting.c - callers that wait do the group's work: what that means for other
 * operations, for other calls and for the caller's own floating point. And how much of an
 * operation waits on a link until the wire can take it. */
#include <fenv.h>
#include <unistd.h>

#include "group.h"
#include "group_rig.h"

enum { PATIENCE_MS = 60000, FLOATS = 200000, SHORT = 3000, ROUNDS = 100 };

typedef struct deed {
    group_rig *rig;
    int rounding; /* of all callers */
    float x[2][RIG_MOST][FLOATS], y[2][RIG_MOST][FLOATS];
    int is_wrong[RIG_MOST];
} deed;

static dw_group_job job_of(deed *act, uint32_t rank, uint32_t slot)
{
    return (dw_group_job){.struct_size = sizeof(dw_group_job),
                          .operation = DW_ALL_REDUCE,
                          .slot = slot,
                          .n = slot == 0 ? SHORT : FLOATS,
                          .mean = 1,
                          .x = act->x[slot][rank],
                          .y = act->y[slot][rank]};
}

static void fill(deed *act)
{
    for (uint32_t i = 0; i < 2 * RIG_MOST * FLOATS; i++)
        (&act->x[0][0][0])[i] = (float)(i * 2654435761u >> 8) * 0x1p-20f - 8.0f;
}

/* Has the ranks of a new group do something, each in a thread of its own, and checks that none of
 * them found anything wrong. */
static void each(deed *act, uint32_t ranks, const char *codec,
                 void (*does)(void *context, uint32_t rank))
{
    group_rig rig;
    rig_start(&rig, "loop://waiting-%d", ranks, codec);
    act->rig = &rig;
    fill(act);
    rig_each(&rig, does, act);
    for (uint32_t r = 0; r < ranks; r++) assert_int_equal(act->is_wrong[r], 0);
    rig_close(&rig);
}

/* ---- Other operations ------------------------------------------------------------------------ */

/* Waits for the first and shorter one of two operations. The other one must end without a call that
 * waits. */
static void wait_for_one(void *context, uint32_t rank)
{
    deed *act = context;
    dw_group *group = act->rig->group[rank];
    for (int round = 0; round < ROUNDS; round++) {
        dw_group_job first = job_of(act, rank, 0), second = job_of(act, rank, 1);
        act->is_wrong[rank] |= dw_group_start(group, &first) != DW_OK;
        act->is_wrong[rank] |= dw_group_start(group, &second) != DW_OK;
        act->is_wrong[rank] |= dw_group_wait(group, 0, PATIENCE_MS) != DW_OK;
        dw_status status = DW_PENDING;
        for (int ms = 0; ms < PATIENCE_MS && status == DW_PENDING; ms++) {
            status = dw_group_wait(group, 1, 0);
            if (status == DW_PENDING) usleep(1000);
        }
        act->is_wrong[rank] |= status != DW_OK;
        if (act->is_wrong[rank]) return;
    }
}

TEST(group_thread_continues_when_callers_stop_waiting)
{
    static deed act;
    each(&act, 3, "raw:f32", wait_for_one);
}

/* ---- Other calls ----------------------------------------------------------------------------- */

/* Rank 0 waits for an operation that rank 1 starts only after slot 1 of rank 0 was forgotten. */
static void wait_or_forget(void *context, uint32_t rank)
{
    deed *act = context;
    dw_group_job job = job_of(act, 0, 0);
    if (rank == 0) {
        act->is_wrong[0] |= dw_group_run(act->rig->group[0], &job, PATIENCE_MS) != DW_OK;
        return;
    }
    usleep(20000); /* so that rank 0 probably waits */
    for (int i = 0; i < ROUNDS; i++)
        act->is_wrong[1] |= dw_group_forget(act->rig->group[0], 1) != DW_OK;
    job = job_of(act, 1, 0);
    act->is_wrong[1] |= dw_group_run(act->rig->group[1], &job, PATIENCE_MS) != DW_OK;
}

TEST(forget_returns_while_another_thread_waits)
{
    static deed act;
    each(&act, 2, "delta:bits=4", wait_or_forget);
    assert_memory_equal(act.y[0][0], act.y[0][1], SHORT * sizeof(float));
}

/* ---- Floating point -------------------------------------------------------------------------- */

static void run_with_rounding(void *context, uint32_t rank)
{
    deed *act = context;
    dw_group_job job = job_of(act, rank, 0);
    fesetround(act->rounding);
    act->is_wrong[rank] |= dw_group_run(act->rig->group[rank], &job, PATIENCE_MS) != DW_OK;
    act->is_wrong[rank] |= fegetround() != act->rounding;
    fesetround(FE_TONEAREST);
}

TEST(sums_do_not_depend_on_the_rounding_mode_of_callers)
{
    static deed act;
    static float expected[SHORT];
    const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_TOWARDZERO};
    for (int i = 0; i < 3; i++) {
        act.rounding = modes[i];
        each(&act, 3, "raw:f32", run_with_rounding);
        if (i == 0) memcpy(expected, act.y[0][0], sizeof expected);
        for (uint32_t r = 0; r < 3; r++)
            assert_memory_equal(act.y[0][r], expected, sizeof expected);
    }
}

/* ---- Links ----------------------------------------------------------------------------------- */

enum { LONG = 1 << 20, PIECE_BYTES = 131072 };

/* The wire takes nearly two seconds for what a rank contributes, 2 MiB. The worker could encode all
 * of it in some milliseconds, and is much faster than the wire under ThreadSanitizer, too, on a
 * machine that has other work. */
TEST(encoding_waits_for_a_slow_link)
{
    static float x[2][LONG], y[2][LONG];
    group_rig rig;
    rig_link(&rig, "shaped:rate=10mbit/loop://waiting-%d", 2, "raw:f32", NULL);
    for (int r = 0; r < 2; r++) rig.config[r].piece = PIECE_BYTES / sizeof(float);
    rig_open(&rig);
    for (uint32_t r = 0; r < 2; r++) {
        rig_fill(x[r], DW_F32, LONG, r);
        dw_group_job job = {
            .struct_size = sizeof job, .operation = DW_ALL_REDUCE, .n = LONG, .x = x[r], .y = y[r]};
        assert_int_equal(dw_group_start(rig.group[r], &job), DW_OK);
    }
    dw_status status;
    uint64_t most = 0;
    while ((status = dw_group_wait(rig.group[0], 0, 1)) == DW_PENDING) {
        dw_link_counters now = {.struct_size = sizeof now};
        assert_int_equal(dw_link_count(rig.links[0][1], &now), DW_OK);
        if (now.unsent_bytes > most) most = now.unsent_bytes;
    }
    assert_int_equal(status, DW_OK);
    assert_in_range(most, DW_PEER_UNSENT_BYTES, DW_PEER_UNSENT_BYTES + 2 * PIECE_BYTES);
    assert_int_equal(dw_group_wait(rig.group[1], 0, PATIENCE_MS), DW_OK);
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    rig_close(&rig);
}

RUN_TESTS(NULL, NULL)
