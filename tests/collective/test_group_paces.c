/* SPDX-License-Identifier: Apache-2.0
 * test_group_paces.c - messages with the same body to all ranks, over links of different speed: a
 * fast one is ahead for a while, but not at the end, and nothing is lost or kept. */
#include "group.h"
#include "group_rig.h"

/* Rank 0 sends 16 messages of 128 KiB to all. */
enum { RANKS = 4, SLOW = 3, PIECE = 32768, PIECES = 16, LONG = PIECE * PIECES };
enum { PATIENCE_MS = 60000, TIMEOUT_MS = 10000 };

/* Two rates of the link between the ranks 0 and SLOW. With the first, all messages of an operation
 * take 1.7 seconds. With the second, a message takes 16 seconds or more, so none arrives while a
 * test looks; greetings and other short messages do. */
#define SLOWLY "shaped:rate=10mbit/"
#define NEVER  "shaped:rate=64kbit/"

typedef struct scene {
    group_rig rig;
    uint32_t piece; /* the length of pieces in floats */
    dw_group_job job[RANKS];
    float x[RANKS][LONG], y[RANKS][LONG];
} scene;

static scene act;

/* The timeout_ms of the groups that are opened next. */
static uint32_t limit_ms[RANKS] = {TIMEOUT_MS, TIMEOUT_MS, TIMEOUT_MS, TIMEOUT_MS};

static void open_groups(const char *codec, uint32_t hops, uint32_t piece, const char *slow)
{
    act.piece = piece;
    rig_link(&act.rig, "loop://paces-%d", RANKS, codec, NULL);
    rig_link_again(&act.rig, 0, 2, "shaped:rate=20mbit/");
    rig_link_again(&act.rig, 0, SLOW, slow);
    for (uint32_t r = 0; r < RANKS; r++) {
        act.rig.config[r].piece = piece;
        act.rig.config[r].timeout_ms = limit_ms[r];
        act.rig.config[r].hops = hops;
        act.rig.config[r].allocator = rig_allocator();
    }
    rig_open(&act.rig);
}

static void start_rank(uint32_t rank)
{
    assert_int_equal(dw_group_start(act.rig.group[rank], &act.job[rank]), DW_OK);
}

static void fill(dw_operation operation)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        rig_fill(act.x[r], DW_F32, LONG, r);
        memset(act.y[r], 0, sizeof act.y[r]);
        act.job[r] = (dw_group_job){.struct_size = sizeof act.job[r],
                                    .operation = operation,
                                    .n = LONG,
                                    .x = act.x[r],
                                    .y = act.y[r]};
    }
}

static void start(dw_operation operation)
{
    fill(operation);
    for (uint32_t r = 0; r < RANKS; r++) start_rank(r);
}

/* How many messages rank 0 has given to a link: those that have left, and those that wait. */
static uint64_t given_to(uint32_t rank)
{
    dw_link_counters now = {.struct_size = sizeof now};
    assert_int_equal(dw_link_count(act.rig.links[0][rank], &now), DW_OK);
    return now.messages_sent + now.unsent_bytes / (act.piece * sizeof(float));
}

/* By how many messages the fast link is ahead of the slow one since `before`. The fast one is
 * looked at first: if messages are sent between the two looks, the answer is too small, never too
 * large. */
static uint64_t lead_since(const uint64_t before[RANKS])
{
    uint64_t fast = given_to(1) - before[1];
    uint64_t slow = given_to(SLOW) - before[SLOW];
    return fast > slow ? fast - slow : 0;
}

/* All ranks get the same bits. */
static void run(dw_operation operation)
{
    start(operation);
    for (uint32_t r = 0; r < RANKS; r++) {
        assert_int_equal(dw_group_wait(act.rig.group[r], 0, PATIENCE_MS), DW_OK);
        assert_memory_equal(act.y[0], act.y[r], sizeof act.y[0]);
    }
}

/* Closing waits for what is on its way, so a link that never delivers it is cancelled before. */
static void close_groups(bool is_stuck)
{
    if (is_stuck) dw_link_cancel(act.rig.links[0][SLOW]);
    rig_close(&act.rig);
    assert_int_equal(atomic_load(&rig_live_bytes), 0);
    assert_int_equal(atomic_load(&rig_wrong_sizes), 0);
}

/* ---- Ahead ----------------------------------------------------------------------------------- */

/* The slow link takes 8 messages (DW_PEER_UNSENT_BYTES), or 9 if one leaves. When rank 0 has made
 * 12, the slow link lacks 4, and 4 are left to be made, so the 13th is made, too. Then the slow
 * link lacks more than are left, and no other is made. */
enum { LEAST_LEAD = 4, MOST_LEAD = 5, WHILE_MS = 100 };

/* Looks how far the fast link is ahead, then has another rank leave: what was kept for the slow
 * link must be freed. timeout_ms is long, because ranks that wait tell each other so after an
 * eighth of it, and given_to would count these messages, too. */
static void is_ahead_but_not_far(dw_operation operation, uint32_t hops)
{
    for (uint32_t r = 0; r < RANKS; r++) limit_ms[r] = 2 * PATIENCE_MS;
    open_groups("raw:f32", hops, PIECE, NEVER);
    uint64_t before[RANKS] = {[1] = given_to(1), [SLOW] = given_to(SLOW)};
    start(operation);
    for (int ms = 0; ms < TIMEOUT_MS && lead_since(before) < LEAST_LEAD; ms++)
        assert_int_equal(dw_group_wait(act.rig.group[0], 0, 1), DW_PENDING);
    assert_int_equal(dw_group_wait(act.rig.group[0], 0, WHILE_MS), DW_PENDING);
    assert_in_range(lead_since(before), LEAST_LEAD, MOST_LEAD);
    dw_group_close(act.rig.group[1]);
    act.rig.group[1] = NULL;
    assert_int_equal(dw_group_wait(act.rig.group[0], 0, PATIENCE_MS), DW_ERR_PEER);
    close_groups(true);
    for (uint32_t r = 0; r < RANKS; r++) limit_ms[r] = TIMEOUT_MS;
}

TEST(slow_link_delays_no_other_rank_of_a_broadcast)
{
    is_ahead_but_not_far(DW_BROADCAST, 2);
}

TEST(slow_link_delays_no_other_rank_of_a_one_hop_sum)
{
    is_ahead_but_not_far(DW_ALL_REDUCE, 1);
}

/* ---- To the end ------------------------------------------------------------------------------ */

TEST(a_broadcast_over_a_slow_link_is_complete)
{
    open_groups("raw:f32", 2, PIECE, SLOWLY);
    run(DW_BROADCAST);
    assert_memory_equal(act.y[0], act.x[0], sizeof act.x[0]);
    run(DW_ALL_REDUCE);
    close_groups(false);
}

/* The whole buffer of every rank goes to all ranks, with residuals, so frames are kept twice. */
TEST(a_one_hop_sum_over_a_slow_link_is_complete)
{
    open_groups("direct:bits=8,feedback=ef", 1, PIECE, SLOWLY);
    run(DW_ALL_REDUCE);
    run(DW_ALL_REDUCE);
    close_groups(false);
    open_groups("raw:f32", 1, PIECE, SLOWLY);
    run(DW_ALL_REDUCE);
    close_groups(false);
}

/* ---- Errors ---------------------------------------------------------------------------------- */

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

/* A short message takes 100 ms over the slow link. */
enum { CONFIRM_MS = 1000 };

/* All ranks have told the root that they take part, it has made its last message, and one rank
 * lacks it, when the group fails: the broadcast must fail at the root, too, because that rank
 * cannot end well. */
TEST(broadcast_root_fails_while_a_rank_lacks_data)
{
    dw_group_thresholds usual = dw_group_all_thresholds;
    dw_group_all_thresholds = (dw_group_thresholds){0, 0, 0};
    open_groups("raw:f32", 2, LONG / 2, NEVER);
    fill(DW_BROADCAST);
    for (uint32_t r = 1; r < RANKS; r++) start_rank(r);
    assert_int_equal(dw_group_wait(act.rig.group[SLOW], 0, CONFIRM_MS), DW_PENDING);
    start_rank(0);
    assert_int_equal(dw_group_wait(act.rig.group[1], 0, PATIENCE_MS), DW_OK);
    assert_int_equal(dw_group_wait(act.rig.group[0], 0, 0), DW_PENDING);
    disagree();
    assert_int_equal(dw_group_wait(act.rig.group[0], 0, PATIENCE_MS), DW_ERR_MISMATCH);
    assert_int_equal(dw_group_wait(act.rig.group[SLOW], 0, PATIENCE_MS), DW_ERR_MISMATCH);
    close_groups(true);
    dw_group_all_thresholds = usual;
}

/* The root has given everything to the other ranks, and owes it only to one that takes nothing:
 * this rank, and no other, is late. */
TEST(rank_that_accepts_no_data_is_a_timeout)
{
    limit_ms[0] = TIMEOUT_MS / 3;
    open_groups("raw:f32", 2, LONG / 2, NEVER);
    limit_ms[0] = TIMEOUT_MS;
    start(DW_BROADCAST);
    assert_int_equal(dw_group_wait(act.rig.group[1], 0, PATIENCE_MS), DW_OK);
    assert_int_equal(dw_group_wait(act.rig.group[0], 0, PATIENCE_MS), DW_ERR_TIMEOUT);
    assert_int_equal(rig_failed_rank(act.rig.group[0]), SLOW);
    assert_non_null(strstr(dw_group_why(act.rig.group[0], NULL), "taken nothing"));
    close_groups(true);
}

RUN_TESTS(NULL, NULL)
