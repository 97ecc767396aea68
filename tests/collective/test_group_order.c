/* SPDX-License-Identifier: Apache-2.0
 * test_group_order.c - in which order a rank does its work: what other ranks wait for comes first.
 * And what becomes of an operation whose results have all arrived when the group fails. */
#include <stdlib.h>
#include <string.h>

#include "group_rig.h"

#include "lone_group.h"

enum { RANKS = 3, PIECE = 2048, OWN_PIECES = 2, PART = OWN_PIECES * PIECE, N = RANKS * PART };

/* A group without links, and an operation that has begun. */
typedef struct bench {
    dw_group group;
    dw_peer peers[RANKS];
    dw_group_slot slot;
    dw_encoder *encoder[RANKS]; /* of the other ranks */
    float x[N], y[N], before[N];
} bench;

static void set_up(bench *b, uint32_t rank)
{
    memset(b, 0, sizeof *b);
    dw_group *group = &b->group;
    lone_group_open(group, b->peers, RANKS, rank, PIECE, "direct:bits=4,replies=never");
    group->exchange.settings.thresholds.large_from = 0;
    dw_tensor piece = dw_tensor_3d(b->x, DW_F32, 1, 1, PIECE);
    group->exchange.coding.scratch_bytes = dw_frame_bound(&group->exchange.settings.codec, &piece);
    assert_int_equal(dw_coding_open(&group->exchange.coding), DW_OK);
    for (uint32_t r = 0; r < RANKS; r++)
        assert_int_equal(
            dw_encoder_create(&b->encoder[r], &group->exchange.settings.codec, NULL, NULL), DW_OK);
    for (int i = 0; i < N; i++) b->x[i] = (float)(i % 61 - 30) * 0.125f;
    for (int i = 0; i < N; i++) b->before[i] = b->y[i] = (float)i;
    dw_group_job job = {.operation = DW_ALL_REDUCE, .dtype = DW_F32, .n = N, .x = b->x, .y = b->y};
    assert_int_equal(
        dw_slot_prepare(&group->slots, &group->exchange.settings, &b->slot, &job, NULL), DW_OK);
    b->slot.state = DW_SLOT_RUNNING;
    dw_slot_append(&group->exchange.running, &b->slot);
    dw_operation_begin(&group->exchange, &b->slot);
}

static void take_down(bench *b)
{
    dw_group *group = &b->group;
    for (dw_received *left; (left = dw_received_pop(&b->slot.gather.arrived)) != NULL;)
        dw_received_give(&group->exchange.pool, left);
    for (uint32_t i = 0; b->slot.is_begun && i < OWN_PIECES * RANKS; i++)
        dw_received_give(&group->exchange.pool, b->slot.reduce.waiting[i]);
    dw_slot_empty(&group->slots, &group->exchange.coding, &b->slot);
    dw_coding_close(&group->exchange.coding);
    for (uint32_t r = 0; r < RANKS; r++) dw_encoder_destroy(b->encoder[r]);
    lone_group_close(group);
}

/* A message of rank `from` about a piece: of x, or, in hop 2, of x + 1. */
static dw_received *message(bench *b, uint32_t from, int hop, uint32_t part, uint32_t piece)
{
    unsigned char frame[8192];
    float values[PIECE];
    size_t len;
    for (int i = 0; i < PIECE; i++)
        values[i] = b->x[part * PART + piece * PIECE + (uint32_t)i] + (float)(hop - 1);
    dw_tensor x = dw_tensor_3d(values, DW_F32, 1, 1, PIECE);
    dw_key key = {.sample = b->slot.number, .slice = piece};
    assert_int_equal(dw_encode(b->encoder[from], &key, &x, NULL, frame, sizeof frame, &len), DW_OK);
    dw_received *received = dw_received_take(&b->group.exchange.pool, DW_MESSAGE_BYTES + len);
    assert_non_null(received);
    memcpy(dw_received_room(received) + DW_MESSAGE_BYTES, frame, len);
    received->from = from;
    received->head = dw_frame_header(&b->slot, hop, part, piece);
    received->head.body_len = len;
    return received;
}

/* A contribution of rank `from` arrives. */
static void arrive(bench *b, uint32_t from, uint32_t part, uint32_t piece)
{
    dw_reduce_scatter_take(&b->group.exchange, &b->slot, message(b, from, 1, part, piece));
}

/* ---- Contributions --------------------------------------------------------------------------- */

TEST(received_contributions_wait_for_own_contributions)
{
    bench b;
    set_up(&b, 2);
    assert_int_equal(b.slot.reduce.left_to_contribute, (RANKS - 1) * OWN_PIECES);
    arrive(&b, 1, 2, 0); /* not the first one to be added */
    arrive(&b, 0, 2, 1);
    arrive(&b, 0, 2, 0);
    assert_int_equal(b.slot.reduce.added[0], 0);
    assert_int_equal(b.slot.reduce.added[1], 0);
    /* Piece 1 was due first, and rank 1 is missing. */
    assert_true(dw_reduce_scatter_add(&b.group.exchange, &b.slot));
    assert_int_equal(b.slot.reduce.added[0], 0);
    assert_int_equal(b.slot.reduce.added[1], 1);
    assert_true(dw_reduce_scatter_add(&b.group.exchange, &b.slot));
    assert_int_equal(b.slot.reduce.added[0], RANKS);
    assert_int_equal(b.slot.gather.ready_end, 1);
    assert_false(dw_reduce_scatter_add(&b.group.exchange, &b.slot));
    b.slot.reduce.left_to_contribute = 0; /* nothing to wait for any more */
    arrive(&b, 1, 2, 1);
    assert_int_equal(b.slot.reduce.added[1], RANKS);
    assert_false(dw_reduce_scatter_add(&b.group.exchange, &b.slot));
    assert_int_equal(b.group.exchange.failure.status, DW_OK);
    take_down(&b);
}

TEST(rank_0_adds_its_own_contribution_first)
{
    bench b;
    set_up(&b, 0);
    arrive(&b, 1, 0, 1);
    assert_int_equal(b.slot.reduce.added[1], 0);
    assert_true(dw_reduce_scatter_add(&b.group.exchange, &b.slot));
    assert_true(dw_reduce_scatter_add(&b.group.exchange, &b.slot));
    assert_int_equal(b.slot.reduce.added[0], 1);
    assert_int_equal(b.slot.reduce.added[1], 2);
    assert_false(dw_reduce_scatter_add(&b.group.exchange, &b.slot));
    take_down(&b);
}

/* Long frames are added at once. */
TEST(long_contributions_do_not_wait)
{
    for (uint32_t rank = 0; rank < RANKS; rank += 2) {
        bench b;
        set_up(&b, rank);
        b.slot.reduce.may_wait = false;
        for (uint32_t from = 0; from < RANKS; from++)
            if (from != rank) arrive(&b, from, rank, 1);
        assert_int_equal(b.slot.reduce.added[1], RANKS);
        assert_int_equal(b.slot.gather.ready_end, 1);
        /* Of piece 0 there is its own. */
        assert_int_equal(dw_reduce_scatter_add(&b.group.exchange, &b.slot), rank == 0);
        assert_int_equal(b.slot.reduce.added[0], rank == 0);
        assert_false(dw_reduce_scatter_add(&b.group.exchange, &b.slot));
        assert_int_equal(b.slot.gather.ready_end, 1);
        assert_int_equal(b.slot.reduce.left_to_add, OWN_PIECES - 1);
        take_down(&b);
    }
}

/* ---- Lengths --------------------------------------------------------------------------------- */

/* Messages wait in memory, so those that are longer than any frame of their piece are refused. Both
 * contributions and results are f32 here; results are also where the buffers are halves. */
TEST(message_longer_than_any_frame_is_refused)
{
    for (int i = 0; i < 8; i++) {
        bool is_result = i & 1, is_too_long = i & 2;
        dw_dtype dtype = i & 4 ? DW_BF16 : DW_F32;
        bench b;
        set_up(&b, 2);
        b.slot.now.job.dtype = dtype;
        dw_tensor piece = dw_tensor_3d(NULL, is_result ? DW_F32 : dtype, 1, 1, PIECE);
        size_t len = dw_frame_bound(&b.group.exchange.settings.codec, &piece) + is_too_long;
        dw_received *received = dw_received_take(&b.group.exchange.pool, DW_MESSAGE_BYTES + len);
        assert_non_null(received);
        received->from = 1;
        received->head = dw_frame_header(&b.slot, is_result ? 2 : 1, is_result ? 1 : 2, 0);
        received->head.body_len = len;
        if (is_result)
            dw_all_gather_take(&b.group.exchange, &b.slot, received);
        else
            dw_reduce_scatter_take(&b.group.exchange, &b.slot, received);
        assert_int_equal(b.group.exchange.failure.status, is_too_long ? DW_ERR_PROTOCOL : DW_OK);
        if (is_too_long) assert_int_equal(b.group.exchange.failure.rank, 1);
        if (is_too_long) assert_non_null(strstr(b.group.exchange.failure.why.text, "too long"));
        take_down(&b);
    }
}

/* ---- Results --------------------------------------------------------------------------------- */

enum { PIECES = RANKS * OWN_PIECES };

/* As if all contributions and own results were sent. but: this piece (of all) has not arrived. */
static void let_arrive(bench *b, uint32_t but)
{
    b->slot.reduce.left_to_contribute = b->slot.reduce.left_to_add = b->slot.gather.left_to_share =
        0;
    for (uint32_t i = 0; i < PIECES; i++) {
        if (i == but) continue;
        dw_received *result = message(b, i / OWN_PIECES, 2, i / OWN_PIECES, i % OWN_PIECES);
        dw_all_gather_take(&b->group.exchange, &b->slot, result);
        assert_int_equal(b->group.exchange.failure.status, DW_OK);
    }
}

/* Whether y has the result of this piece; else it must be what it was. */
static int has_result(const bench *b, uint32_t piece)
{
    const float *y = b->y + piece * PIECE, *x = b->x + piece * PIECE;
    if (memcmp(y, b->before + piece * PIECE, PIECE * sizeof *y) == 0) return 0;
    for (int i = 0; i < PIECE; i++) assert_in_range((long)((y[i] - x[i]) * 1000), 500, 1500);
    return 1;
}

static int results(const bench *b)
{
    int n = 0;
    for (uint32_t piece = 0; piece < PIECES; piece++) n += has_result(b, piece);
    return n;
}

static void lose_a_rank(bench *b)
{
    dw_failure_set(&b->group.exchange.failure, DW_ERR_PEER, 1, "rank 1 is lost");
    dw_progress_end_failed(&b->group);
    assert_int_equal(b->group.exchange.failure.status, DW_ERR_PEER);
    assert_null(b->group.exchange.running.first);
}

TEST(operation_with_all_results_succeeds_when_a_rank_is_lost)
{
    for (int accepted = 1; accepted < PIECES; accepted++) {
        bench b;
        set_up(&b, 2);
        let_arrive(&b, PIECES);
        for (int i = 0; i < accepted; i++)
            assert_true(dw_all_gather_accept(&b.group.exchange, &b.slot));
        assert_int_equal(results(&b), accepted);
        lose_a_rank(&b);
        assert_int_equal(b.slot.state, DW_SLOT_DONE);
        assert_int_equal(b.slot.visit, 1);
        assert_int_equal(b.group.counters.finished, 1);
        assert_int_equal(results(&b), PIECES);
        take_down(&b);
    }
}

TEST(operation_that_lacks_a_result_leaves_output_unchanged)
{
    for (uint32_t missing = 0; missing < PIECES; missing++) {
        bench b;
        set_up(&b, 2);
        let_arrive(&b, missing);
        for (int i = 0; i + 1 < PIECES; i++)
            assert_true(dw_all_gather_accept(&b.group.exchange, &b.slot));
        assert_int_equal(results(&b), PIECES - 1);
        lose_a_rank(&b);
        assert_int_equal(b.slot.state, DW_SLOT_FAILED);
        assert_int_equal(results(&b), 0);
        take_down(&b);
    }
}

/* The results of a rank that has still something to send may not be the last ones that fail. */
TEST(operation_with_unsent_data_leaves_output_unchanged)
{
    for (int left = 0; left < 3; left++) {
        bench b;
        set_up(&b, 2);
        let_arrive(&b, PIECES);
        if (left == 0) b.slot.reduce.left_to_contribute = 1;
        if (left == 1) b.slot.reduce.left_to_add = 1;
        if (left == 2) b.slot.gather.left_to_share = 1;
        for (int i = 0; i < PIECES; i++)
            assert_true(dw_all_gather_accept(&b.group.exchange, &b.slot));
        assert_int_equal(results(&b), PIECES);
        lose_a_rank(&b);
        assert_int_equal(b.slot.state, DW_SLOT_FAILED);
        assert_int_equal(results(&b), 0);
        take_down(&b);
    }
}

/* All results are checked before the first one overwrites y. */
TEST(damaged_result_leaves_output_unchanged)
{
    for (uint32_t damaged = 0; damaged < PIECES; damaged++) {
        bench b;
        set_up(&b, 2);
        let_arrive(&b, PIECES);
        dw_received *received = b.slot.gather.arrived.head;
        for (uint32_t i = 0; i < damaged; i++) received = received->next;
        dw_received_room(received)[received->len - 1] ^= 1;
        assert_true(dw_all_gather_accept(&b.group.exchange, &b.slot));
        dw_progress_end_failed(&b.group);
        assert_int_equal(b.group.failure.status, DW_ERR_CORRUPT);
        assert_int_equal(b.group.exchange.failure.rank, damaged / OWN_PIECES);
        assert_int_equal(b.slot.state, DW_SLOT_FAILED);
        assert_int_equal(results(&b), 0);
        take_down(&b);
    }
}

RUN_TESTS(NULL, NULL)
