/* SPDX-License-Identifier: Apache-2.0
 * test_group_places.c - codecs that draw the places of what they send draw the same ones on all
 * ranks and both hops of an operation, and other ones for each part, visit and group. */
#include <stdbool.h>
#include <string.h>

#include "group_rig.h"

enum { RANKS = 3, PIECE = 2048, PIECES = 6, N = PIECE * PIECES };

/* Sums random numbers over all ranks, in slot 5. y: the result, which is the same on all ranks. */
static void add_up(group_rig *rig, float *sums, float *y)
{
    rig_deed act = {.rig = rig};
    memset(sums, 0, N * sizeof *sums);
    for (uint32_t r = 0; r < RANKS; r++) {
        float *x = malloc(N * sizeof *x);
        rig_fill(x, DW_F32, N, 100 + r);
        for (int i = 0; i < N; i++) sums[i] += x[i];
        act.job[r] = (dw_group_job){.operation = DW_ALL_REDUCE, .slot = 5, .n = N, .x = x, .y = x};
    }
    rig_run_well(&act);
    memcpy(y, act.job[0].y, N * sizeof *y);
    for (uint32_t r = 0; r < RANKS; r++) {
        assert_memory_equal(act.job[r].y, y, N * sizeof *y);
        free(act.job[r].y);
    }
}

static bool arrives(float value)
{
    return value < 0 || value > 0;
}

/* How many values of a piece arrive. */
static int count(const float *y, int piece)
{
    int n = 0;
    for (int i = piece * PIECE; i < (piece + 1) * PIECE; i++) n += arrives(y[i]);
    return n;
}

/* How many values arrive of both a piece of one result and a piece of another. */
static int in_common(const float *one, const float *other)
{
    int n = 0;
    for (int i = 0; i < PIECE; i++) n += arrives(one[i]) && arrives(other[i]);
    return n;
}

/* Of two pieces that are drawn apart, a quarter each, a sixteenth is in common on average: 128. */
static void check_apart(const float *one, const float *other, const char *what)
{
    int common = in_common(one, other);
    if (common > 256) fail_msg("%s: %d of 512 places are the same", what, common);
}

/* A value that arrives is the sum of what all ranks have. */
static void check_sums(uint32_t hops)
{
    static float sums[N], first[N], second[N];
    group_rig rig;
    rig_start_hops(&rig, "loop://places-%d", RANKS, "randk:keep=0.25", hops);
    add_up(&rig, sums, first);
    add_up(&rig, sums, second);
    for (int piece = 0; piece < PIECES; piece++) {
        assert_int_equal(count(first, piece), PIECE / 4);
        assert_int_equal(count(second, piece), PIECE / 4);
        check_apart(first + piece * PIECE, second + piece * PIECE, "two visits");
    }
    for (int i = 0; i < N; i++)
        if (arrives(first[i]) && memcmp(&first[i], &sums[i], sizeof sums[i]) != 0)
            fail_msg("value %d is %g, not %g", i, (double)first[i], (double)sums[i]);
    if (hops == 2) check_apart(first, first + PIECES / RANKS * PIECE, "two parts");
    check_apart(first, first + PIECE, "two pieces");
    rig_close_groups(&rig);
    rig_open(&rig);
    add_up(&rig, sums, second);
    check_apart(first, second, "another group");
    rig_close(&rig);
}

TEST(all_ranks_draw_the_same_places_in_one_hop_and_in_two)
{
    check_sums(1);
    check_sums(2);
}

RUN_TESTS(NULL, NULL)
