/* SPDX-License-Identifier: Apache-2.0
 * test_group_paces.c - messages with the same body to all ranks, over links of different speed: a
 * fast one is ahead for a while, but not at the end, and nothing is lost or kept. */
#include "group.h"
#include "group_rig.h"

/* Rank 0 sends 16 messages of 128 KiB to all. The slow link takes 1.7 seconds for them, so that it
 * is slower than a rank under a sanitizer; the link to rank 2 takes half as long. */
enum { RANKS = 4, SLOW = 3, PIECE = 32768, PIECES = 16, LONG = PIECE * PIECES };
enum { PATIENCE_MS = 60000, TIMEOUT_MS = 10000 };

typedef struct scene {
    group_rig rig;
    uint32_t piece; /* the length of pieces in floats */
    dw_group_job job[RANKS];
    float x[RANKS][LONG], y[RANKS][LONG];
} scene;

static scene act;

static void open_groups(const char *codec, uint32_t hops, uint32_t piece)
{
    act.piece = piece;
    rig_link(&act.rig, "loop://paces-%d", RANKS, codec, NULL);
    rig_link_again(&act.rig, 0, 2, "shaped:rate=20mbit/");
    rig_link_again(&act.rig, 0, SLOW, "shaped:rate=10mbit/");
    for (uint32_t r = 0; r < RANKS; r++) {
        act.rig.config[r].piece = piece;
        act.rig.config[r].timeout_ms = TIMEOUT_MS;
        act.rig.config[r].hops = hops;
        act.rig.config[r].allocator = rig_allocator();
    }
    rig_open(&act.rig);
}

static void start(dw_operation operation)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        rig_fill(act.x[r], DW_F32, LONG, r);
        memset(act.y[r], 0, sizeof act.y[r]);
        act.job[r] = (dw_group_job){.struct_size = sizeof act.job[r],
                                    .operation = operation,
                                    .n = LONG,
                                    .x = act.x[r],
                                    .y = act.y[r]};
        assert_int_equal(dw_group_start(act.rig.group[r], &act.job[r]), DW_OK);
    }
}

/* How many messages rank 0 has given to a link: those that have left, and those that wait. */
static uint64_t given_to(uint32_t rank)
{
    dw_link_counters now = {.struct_size = sizeof now};
    assert_int_equal(dw_link_count(act.rig.links[0][rank], &now), DW_OK);
    return now.messages_sent + now.unsent_bytes / (act.piece * sizeof(float));
}

/* By how many messages the fast link is ahead of the slow one since `before`. */
static uint64_t lead_since(const uint64_t before[RANKS])
{
    uint64_t slow = given_to(SLOW) - before[SLOW], fast = given_to(1) - before[1];
    return fast > slow ? fast - slow : 0;
}

/* Runs an operation, and returns the largest lead. */
static uint64_t run(dw_operation operation)
{
    uint64_t before[RANKS] = {[1] = given_to(1), [SLOW] = given_to(SLOW)}, most = 0;
    start(operation);
    dw_status status;
    while ((status = dw_group_wait(act.rig.group[0], 0, 1)) == DW_PENDING) {
        uint64_t lead = lead_since(before);
        if (lead > most) most = lead;
    }
    assert_int_equal(status, DW_OK);
    for (uint32_t r = 1; r < RANKS; r++) {
        assert_int_equal(dw_group_wait(act.rig.group[r], 0, PATIENCE_MS), DW_OK);
        assert_memory_equal(act.y[0], act.y[r], sizeof act.y[0]);
    }
    return most;
}

static void close_groups(void)
{
    rig_close(&act.rig);
    assert_int_equal(atomic_load(&rig_live_bytes), 0);
    assert_int_equal(atomic_load(&rig_wrong_sizes), 0);
}

/* The slow link is given 8 messages (DW_LANE_UNSENT_BYTES), and the fast one 4 more, because the
 * slow one may lack as many as are left then. */
enum { LEAST_LEAD = 3, MOST_LEAD = 5 };

static void is_ahead_for_a_while(uint64_t lead)
{
    assert_in_range(lead, LEAST_LEAD, MOST_LEAD);
}

static void a_slow_link_does_not_hold_up_a_broadcast(void **state)
{
    (void)state;
    open_groups("raw:f32", 2, PIECE);
    is_ahead_for_a_while(run(DW_BROADCAST));
    assert_memory_equal(act.y[0], act.x[0], sizeof act.y[0]);
    close_groups();
}

/* The whole buffer of every rank goes to all ranks, with residuals, so frames are kept twice. */
static void nor_a_sum_in_one_hop(void **state)
{
    (void)state;
    open_groups("direct:bits=8,feedback=ef", 1, PIECE);
    run(DW_ALL_REDUCE);
    run(DW_ALL_REDUCE);
    close_groups();
    open_groups("raw:f32", 1, PIECE);
    is_ahead_for_a_while(run(DW_ALL_REDUCE));
    close_groups();
}

static void nor_the_results_of_a_sum(void **state)
{
    (void)state;
    open_groups("raw:f32", 2, PIECE);
    run(DW_ALL_REDUCE);
    close_groups();
}

/* Messages are kept for the slow link when another rank leaves. */
static void what_is_kept_is_freed_when_the_group_fails(void **state)
{
    (void)state;
    open_groups("raw:f32", 2, PIECE);
    uint64_t before[RANKS] = {[1] = given_to(1), [SLOW] = given_to(SLOW)};
    start(DW_BROADCAST);
    while (dw_group_wait(act.rig.group[0], 0, 1) == DW_PENDING && lead_since(before) < LEAST_LEAD) {
    }
    assert_true(lead_since(before) >= LEAST_LEAD);
    dw_group_close(act.rig.group[1]);
    act.rig.group[1] = NULL;
    assert_int_equal(dw_group_wait(act.rig.group[0], 0, PATIENCE_MS), DW_ERR_PEER);
    close_groups();
}

/* Starts operations of slot 1 that do not agree, so that the group fails. */
static void disagree(void)
{
    for (uint32_t r = 0; r < 2; r++) {
        dw_group_job job = act.job[r];
        job.operation = DW_ALL_REDUCE;
        job.slot = 1;
        job.n = RANKS * 2048 + r;
        job.y = act.x[2] + r * PIECE;
        assert_int_equal(dw_group_start(act.rig.group[r], &job), DW_OK);
    }
}

/* The root has made the last of eight messages, and one rank lacks it, when the group fails: if the
 * root ends well nevertheless, then that rank must do so, too. */
static void the_root_is_not_safe_before_all_is_sent(void **state)
{
    (void)state;
    dw_group_thresholds usual = dw_group_all_thresholds;
    dw_group_all_thresholds = (dw_group_thresholds){0, 0, 0};
    open_groups("raw:f32", 2, LONG / 8);
    uint64_t before = given_to(1);
    start(DW_BROADCAST);
    while (dw_group_wait(act.rig.group[0], 0, 1) == DW_PENDING && given_to(1) < before + 8) {
    }
    assert_int_equal(dw_group_wait(act.rig.group[1], 0, PATIENCE_MS), DW_OK);
    disagree();
    dw_status root = dw_group_wait(act.rig.group[0], 0, PATIENCE_MS),
              slow = dw_group_wait(act.rig.group[SLOW], 0, PATIENCE_MS);
    assert_true(root == DW_ERR_MISMATCH || (root == DW_OK && slow == DW_OK));
    close_groups();
    dw_group_all_thresholds = usual;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_link_does_not_hold_up_a_broadcast),
        cmocka_unit_test(nor_a_sum_in_one_hop),
        cmocka_unit_test(nor_the_results_of_a_sum),
        cmocka_unit_test(what_is_kept_is_freed_when_the_group_fails),
        cmocka_unit_test(the_root_is_not_safe_before_all_is_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
