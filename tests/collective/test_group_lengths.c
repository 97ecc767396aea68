/* SPDX-License-Identifier: Apache-2.0
 * test_group_lengths.c - messages wait in memory, so those that are longer than any frame of their
 * piece are refused. */
#include <stdlib.h>
#include <string.h>

#include "group_rig.h"

#include "lone_group.h"

enum { RANKS = 3, OWN = 2, FROM = 1, PIECE = 2048, N = 3 * 2 * PIECE, PIECES = 6 };

/* A group without links and coders, and an operation that has begun. */
typedef struct bench {
    dw_group group;
    dw_lane lanes[RANKS];
    dw_group_slot slot;
    unsigned char taken[PIECES];
    uint32_t added[2], owes_part[RANKS], owes_result[RANKS];
    uint64_t first_piece[RANKS];
    dw_arrival *waiting[2 * RANKS];
} bench;

static void set_up(bench *b, const char *codec, dw_dtype dtype)
{
    memset(b, 0, sizeof *b);
    lone_group_open(&b->group, b->lanes, RANKS, OWN, PIECE, codec);
    dw_group_slot *slot = &b->slot;
    slot->now.job = (dw_group_job){.operation = DW_ALL_REDUCE, .dtype = dtype, .n = N};
    slot->now.own_pieces = 2;
    slot->taken = b->taken;
    slot->added = b->added;
    slot->waiting = b->waiting;
    slot->owes_part = b->owes_part;
    slot->owes_result = b->owes_result;
    slot->first_piece = b->first_piece;
    for (uint32_t r = 0; r < RANKS; r++) {
        b->first_piece[r] = 2 * r;
        b->owes_part[r] = b->owes_result[r] = 2;
    }
}

static void take_down(bench *b)
{
    lone_group_close(&b->group);
}

static dw_arrival *message(bench *b, uint32_t part, uint64_t body_len)
{
    dw_arrival *arrival = dw_arrival_take(&b->group, DW_MESSAGE_BYTES + (size_t)body_len);
    assert_non_null(arrival);
    arrival->from = FROM;
    arrival->head = (dw_message){.kind = DW_MESSAGE_DATA, .part = part, .body_len = body_len};
    return arrival;
}

static uint64_t bound_of(const bench *b, dw_dtype dtype)
{
    dw_tensor x = dw_tensor_3d(NULL, dtype, 1, 1, PIECE);
    return dw_frame_bound(&b->group.codec, &x);
}

static const char *const codecs[] = {"raw", "direct:bits=4", "raw:bf16"};
static const dw_dtype dtypes[] = {DW_F32, DW_BF16};

static void has_refused(const bench *b)
{
    assert_int_equal(b->group.status, DW_ERR_PROTOCOL);
    assert_int_equal(b->group.failed_rank, FROM);
    assert_non_null(strstr(b->group.why.text, "too long"));
}

/* What is encoded as a result is the sum, which is f32 even if the buffers are bf16. So the longest
 * frame follows from f32. */
static void a_result_is_as_long_as_a_frame_at_most(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        bench b;
        set_up(&b, codecs[i % 3], dtypes[i / 3]);
        dw_arrival *longest = message(&b, FROM, bound_of(&b, DW_F32));
        dw_sharing_take(&b.group, &b.slot, longest);
        assert_int_equal(b.group.status, DW_OK);
        assert_ptr_equal(dw_arrivals_get(&b.slot.now.arrived), longest);
        dw_arrival_give(&b.group, longest);
        b.taken[2] = 0;
        dw_sharing_take(&b.group, &b.slot, message(&b, FROM, bound_of(&b, DW_F32) + 1));
        assert_null(b.slot.now.arrived.head);
        has_refused(&b);
        take_down(&b);
    }
}

static void a_contribution_is_as_long_as_a_frame_at_most(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        bench b;
        set_up(&b, codecs[i % 3], dtypes[i / 3]);
        dw_arrival *longest = message(&b, OWN, bound_of(&b, dtypes[i / 3]));
        dw_adding_take(&b.group, &b.slot, longest);
        assert_int_equal(b.group.status, DW_OK);
        assert_ptr_equal(b.waiting[FROM], longest); /* it waits for that of rank 0 */
        dw_arrival_give(&b.group, longest);
        b.waiting[FROM] = NULL;
        dw_adding_take(&b.group, &b.slot, message(&b, OWN, bound_of(&b, dtypes[i / 3]) + 1));
        assert_null(b.waiting[FROM]);
        has_refused(&b);
        take_down(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_result_is_as_long_as_a_frame_at_most),
        cmocka_unit_test(a_contribution_is_as_long_as_a_frame_at_most),
    };
    return cmocka_run_group_tests_name("group lengths", tests, NULL, NULL);
}
