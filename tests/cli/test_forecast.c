/* SPDX-License-Identifier: Apache-2.0
 * test_forecast.c - tests the forecast of how long a step of a pipeline takes (cli/forecast.h)
 * with steps that can be computed by hand, and the choice among codecs that follows from it. */
#include "../../cli/forecast.h"
#include "support/test.h"

/* A step has 4 micro-batches, and a stage computes for 10 s on each of them. A link carries 100
 * bytes per second forward and 50 backward, with a delay of 2 s. In a dw_forecast_way the numbers
 * are the bytes of a micro-batch, the seconds to encode and to decode it, and the error. */
static const dw_forecast_run slow = {
    .stages = 2, .micro_batches = 4, .compute_s = 40, .delay_s = 2, .rate = {100, 50}};

/* Fails unless two times are equal, apart from rounding. */
static void assert_seconds(double seconds, double expected)
{
    assert_true(seconds > expected - 1e-9 && seconds < expected + 1e-9);
}

/* One stage alone has no link: codecs take no time. */
TEST(forecast_of_a_single_stage_only_computes)
{
    dw_forecast_run run = slow;
    const dw_forecast_way ways[2] = {{1e9, 5, 5, 0}, {1e9, 5, 5, 0}};
    run.stages = 1;
    assert_seconds(dw_forecast_step(&run, ways), 40);
}

/* The first micro-batch takes as long as its way through both stages and the link, and each of the
 * other three as long as the slowest part of that way. Here the slowest part is first the stages,
 * then the link forward, then the link backward. */
TEST(the_slowest_part_sets_the_pace)
{
    /* The way of the first micro-batch: 2 x 10 s of computing; forward 1 s to encode, 2 s on the
     * link, 3 s to decode and 2 s of delay; backward 4 s to encode, 2 s on the link, 2 s to decode
     * and 2 s of delay. The slowest part is the second stage: it computes for 10 s, decodes for 3 s
     * and encodes for 4 s. */
    const dw_forecast_way fast[2] = {{200, 1, 3, 0}, {100, 4, 2, 0}};
    assert_seconds(dw_forecast_step(&slow, fast), 20 + (1 + 2 + 3 + 2) + (4 + 2 + 2 + 2) + 3 * 17);
    const dw_forecast_way forward[2] = {{3000, 1, 3, 0}, {100, 4, 2, 0}};
    assert_seconds(dw_forecast_step(&slow, forward),
                   20 + (1 + 30 + 3 + 2) + (4 + 2 + 2 + 2) + 3 * 30);
    const dw_forecast_way backward[2] = {{3000, 1, 3, 0}, {2000, 4, 2, 0}};
    assert_seconds(dw_forecast_step(&slow, backward),
                   20 + (1 + 30 + 3 + 2) + (4 + 40 + 2 + 2) + 3 * 40);
}

/* With three stages, the one in the middle encodes and decodes in both directions, so that it needs
 * 20 s for a micro-batch; and a micro-batch crosses two links. */
TEST(a_stage_between_others_codes_twice)
{
    dw_forecast_run run = slow;
    const dw_forecast_way ways[2] = {{200, 1, 3, 0}, {100, 4, 2, 0}};
    run.stages = 3;
    assert_seconds(dw_forecast_step(&run, ways),
                   30 + 2 * ((1 + 2 + 3 + 2) + (4 + 2 + 2 + 2)) + 3 * 20);
    run.micro_batches = 1; /* a single micro-batch overlaps with nothing */
    run.compute_s = 10;
    assert_seconds(dw_forecast_step(&run, ways), 30 + 2 * ((1 + 2 + 3 + 2) + (4 + 2 + 2 + 2)));
}

/* Among the choices whose steps are at most 3 % longer than the shortest, the best is the one with
 * the smallest error. A choice that is taken no longer counts. In `choices` the numbers are the
 * seconds of a step and the error; order: the numbers of the choices, the best first. */
TEST(forecast_prefers_fast_and_then_exact)
{
    dw_forecast_choice choices[] = {
        {10.0, 0.1, false}, {5.0, 0.9, false}, {5.1, 0.2, false}, {5.2, 0.1, false}};
    const size_t order[] = {2, 1, 3, 0};
    for (size_t i = 0; i < 4; i++) {
        size_t best = dw_forecast_best(choices, 4);
        assert_int_equal(best, order[i]);
        choices[best].is_taken = true;
    }
    assert_int_equal(dw_forecast_best(choices, 4), 4); /* all are taken */
}

RUN_TESTS(NULL, NULL)
