/* SPDX-License-Identifier: Apache-2.0
 * test_group_feedback.c - groups whose codecs keep residuals (feedback=ef): what is not sent now is
 * sent later, on both hops, and an operation that fails leaves the residuals as they were. */
#include <math.h>
#include <stdatomic.h>

#include "group_rig.h"

enum { PATIENCE_MS = 60000, FLOATS = 9000, RANKS = 3, MOST_RECORDS = 100 };
static const char *const loop = "loop://feedback-%d";
static const char *const coarse = "direct:bits=2,feedback=ef";

typedef struct deed {
    group_rig *rig;
    dw_group_job job;
    dw_status status[RIG_MOST];
    float x[RIG_MOST][FLOATS], y[RIG_MOST][FLOATS];
} deed;

static dw_group_job job_of(const deed *act, uint32_t rank)
{
    dw_group_job job = act->job;
    job.struct_size = sizeof job;
    if (job.slot == 0) job.slot = 3;
    job.x = act->x[rank];
    job.y = (void *)(uintptr_t)act->y[rank];
    return job;
}

static void run_one(void *context, uint32_t rank)
{
    deed *act = context;
    dw_group_job job = job_of(act, rank);
    act->status[rank] = dw_group_run(act->rig->group[rank], &job, PATIENCE_MS);
}

/* Gradients of a visit, as they are in training: a part that stays, and one that changes. */
static void fill(deed *act, unsigned visit)
{
    for (uint32_t r = 0; r < act->rig->ranks; r++) {
        for (unsigned i = 0; i < FLOATS; i++)
            act->x[r][i] = 0.1f * (float)((i * 7 + r * 3) % 50) - 2.0f +
                           0.01f * (float)((i * 13 + r + visit * 29) % 101);
        if (act->job.dtype == DW_BF16) /* the upper halves */
            for (unsigned i = 0; i < FLOATS; i++)
                memcpy((uint16_t *)act->x[r] + i, (uint16_t *)act->x[r] + 2 * i + 1, 2);
    }
}

static void run(deed *act, unsigned visit)
{
    fill(act, visit);
    rig_each(act->rig, run_one, act);
    rig_all_well(act->rig, act->status);
}

/* ---- What a failure leaves ------------------------------------------------------------------- */

/* A piece of state of slot 3 that a rank exports, with the values of its residual. */
typedef struct record {
    unsigned char head[32];
    uint32_t slice, side;
    size_t n;
    float *values;
} record;

typedef struct records {
    size_t n;
    record at[MOST_RECORDS];
} records;

static dw_status keep(void *context, uint64_t slot, const void *saved, size_t len)
{
    records *all = context;
    const unsigned char *bytes = saved;
    if (slot != 3) return DW_OK;
    assert_true(all->n < MOST_RECORDS && len >= 32 + 96);
    record *one = &all->at[all->n++];
    memcpy(one->head, bytes, 32);
    memcpy(&one->slice, bytes + 32 + 16, 4);
    one->side = bytes[32 + 6];
    one->n = (len - 32 - 96) / 4;
    one->values = malloc(len);
    memcpy(one->values, bytes + 32 + 96, len - 32 - 96);
    return DW_OK;
}

static void export(const group_rig *rig, uint32_t rank, records *all)
{
    all->n = 0;
    assert_int_equal(dw_group_export(rig->group[rank], keep, all), DW_OK);
    assert_true(all->n > 0);
}

static void let_go(records *all)
{
    for (size_t i = 0; i < all->n; i++) free(all->at[i].values);
}

static const record *same_key(const records *all, const record *as)
{
    for (size_t i = 0; i < all->n; i++)
        if (memcmp(all->at[i].head, as->head, 32) == 0 && all->at[i].slice == as->slice)
            return &all->at[i];
    return NULL;
}

/* The residuals are there, and are the same up to the rounding of what was added and taken off. */
static void compare(const records *before, const records *after)
{
    assert_int_equal(before->n, after->n);
    for (size_t k = 0; k < before->n; k++) {
        const record *was = &before->at[k], *is = same_key(after, was);
        double largest = 0, worst = 0;
        assert_non_null(is);
        assert_int_equal(was->side, 3);
        assert_int_equal(was->n, is->n);
        for (size_t i = 0; i < was->n; i++) {
            largest = fmax(largest, fabs(was->values[i]));
            worst = fmax(worst, fabs((double)was->values[i] - is->values[i]));
        }
        assert_true(largest > 1e-3); /* there is something that could have been lost */
        if (!(worst < 1e-5))
            fail_msg("kind %d, rank %d, piece %u: a residual is off by %g", was->head[4],
                     was->head[24], was->slice, worst);
    }
}

static suite_verdict swallow(void *context, unsigned char *message, size_t *len, uint64_t n)
{
    return atomic_load((atomic_int *)context) ? SUITE_DROP : SUITE_PASS;
}

/* A group of three in which what ranks 0 and 1 send to rank 2 can be swallowed. */
typedef struct trap {
    group_rig rig;
    suite_pair pairs[2];
    atomic_int swallows;
} trap;

static void set_trap(trap *t, const char *codec, const char *result)
{
    atomic_store(&t->swallows, 0);
    rig_link(&t->rig, loop, RANKS, codec, result);
    for (uint32_t r = 0; r < 2; r++)
        rig_spoil_link(&t->rig, r, 2, &t->pairs[r], "loop://swallowed-%d",
                       (suite_spoiler){swallow, &t->swallows});
    rig_open(&t->rig);
}

static void remove_trap(trap *t)
{
    rig_close_groups(&t->rig);
    for (int r = 0; r < 2; r++) suite_close(&t->pairs[r]);
    rig_close(&t->rig);
}

static uint64_t results_of(const group_rig *rig, int rank)
{
    dw_counters first = {.struct_size = sizeof first}, second = first;
    assert_int_equal(dw_group_count(rig->group[rank], NULL, &first, &second), DW_OK);
    return second.frames;
}

static void wait_for_results(const group_rig *rig, const uint64_t *before)
{
    for (int r = 0; r < 2; r++)
        for (int i = 0; results_of(rig, r) == before[r]; i++) {
            assert_true(i < 10000);
            suite_sleep_ms(2);
        }
}

/* Rank 2 is lost in an operation when ranks 0 and 1 have sent it their contributions and their
 * results: they take all of it back. in_place: y is x. */
static void lose_rank_2(dw_group_job job, const char *codec, const char *result, int in_place)
{
    static deed act;
    static records before[2], after[2];
    static trap t;
    uint64_t results[2];
    set_trap(&t, codec, result);
    act = (deed){.rig = &t.rig, .job = job};
    for (unsigned visit = 0; visit < 3; visit++) run(&act, visit);
    fill(&act, 3);
    for (uint32_t r = 0; r < 2; r++) {
        export(&t.rig, r, &before[r]);
        results[r] = results_of(&t.rig, (int)r);
    }
    atomic_store(&t.swallows, 1);
    for (uint32_t r = 0; r < RANKS; r++) {
        dw_group_job own = job_of(&act, r);
        if (in_place) own.y = act.x[r];
        if (r == 2 && job.operation != DW_ALL_REDUCE) continue; /* its part would complete y */
        assert_int_equal(dw_group_start(t.rig.group[r], &own), DW_OK);
    }
    wait_for_results(&t.rig, results);
    for (int r = 0; r < 2; r++) dw_link_cancel(t.rig.links[2][r]);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(dw_group_wait(t.rig.group[r], 3, PATIENCE_MS), DW_ERR_PEER);
        export(&t.rig, r, &after[r]);
        compare(&before[r], &after[r]);
        let_go(&before[r]);
        let_go(&after[r]);
    }
    remove_trap(&t);
}

TEST(all_reduce_that_fails_leaves_residuals_unchanged)
{
    dw_group_job job = {.operation = DW_ALL_REDUCE, .n = FLOATS, .dtype = DW_F32};
    lose_rank_2(job, coarse, coarse, 0);
    lose_rank_2(job, coarse, coarse, 1);
    lose_rank_2(job, "direct:bits=2,feedback=ef,decay=0.9", "mx:feedback=ef,decay=0.5", 0);
    job.mean = 1;
    lose_rank_2(job, coarse, "mx:element=e2m1,feedback=ef", 0);
    job.dtype = DW_BF16;
    lose_rank_2(job, "direct:form=step,group=sample,rounding=dither,feedback=ef", coarse, 1);
}

TEST(all_gather_that_fails_leaves_residuals_unchanged)
{
    dw_group_job job = {.operation = DW_ALL_GATHER, .n = FLOATS, .dtype = DW_F32};
    lose_rank_2(job, "raw:f32", coarse, 0);
}

/* Waits until a rank has made so many frames of contributions. */
static void wait_for_contributions(const group_rig *rig, int rank, uint64_t frames)
{
    dw_counters first = {.struct_size = sizeof first}, second = first;
    for (int i = 0; i < 10000 && first.frames < frames; i++) {
        assert_int_equal(dw_group_count(rig->group[rank], NULL, &first, &second), DW_OK);
        suite_sleep_ms(2);
    }
    assert_int_equal(first.frames, frames);
}

/* Rank 2 never starts the operation, so ranks 0 and 1 have only contributed when they learn that it
 * is lost. Values that are no numbers keep their residuals, too. forgets: slot 4, which all ranks
 * have used before, is forgotten in between. */
static void wait_in_vain_for_rank_2(int forgets, dw_operation operation, uint32_t hops)
{
    enum { VISITS = 3, PIECES = 5 }; /* of the whole buffer */
    static deed act;
    static records before[2], after[2];
    group_rig rig;
    rig_start_hops(&rig, loop, RANKS, "direct:bits=2,group=64,feedback=ef,decay=0.9", hops);
    act = (deed){.rig = &rig, .job = {.operation = operation, .n = FLOATS, .dtype = DW_F32}};
    for (unsigned visit = 0; visit < VISITS; visit++) run(&act, visit);
    act.job.slot = 4;
    for (unsigned visit = 0; forgets && visit < VISITS; visit++) run(&act, visit);
    act.job.slot = 3;
    fill(&act, VISITS);
    act.x[0][5000] = NAN;
    act.x[1][1] = INFINITY;
    for (uint32_t r = 0; r < 2; r++) {
        export(&rig, r, &before[r]);
        dw_group_job own = job_of(&act, r);
        assert_int_equal(dw_group_start(rig.group[r], &own), DW_OK);
    }
    for (int r = 0; r < 2; r++) {
        wait_for_contributions(&rig, r, (forgets ? 2 * VISITS + 1 : VISITS + 1) * PIECES);
        if (forgets) assert_int_equal(dw_group_forget(rig.group[r], 4), DW_OK);
    }
    for (uint32_t r = 0; r < 2; r++) dw_link_cancel(rig.links[2][r]);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(dw_group_wait(rig.group[r], 3, PATIENCE_MS), DW_ERR_PEER);
        export(&rig, r, &after[r]);
        compare(&before[r], &after[r]);
        let_go(&before[r]);
        let_go(&after[r]);
    }
    rig_close(&rig);
}

TEST(missing_rank_leaves_residuals_unchanged)
{
    wait_in_vain_for_rank_2(0, DW_REDUCE_SCATTER, 2);
    wait_in_vain_for_rank_2(0, DW_ALL_REDUCE, 1);
}

TEST(missing_rank_leaves_residuals_unchanged_when_a_slot_is_forgotten)
{
    wait_in_vain_for_rank_2(1, DW_REDUCE_SCATTER, 2);
    wait_in_vain_for_rank_2(1, DW_ALL_REDUCE, 1);
}

RUN_TESTS(NULL, NULL)
