/* SPDX-License-Identifier: Apache-2.0
 * test_forecast.c - steps that can be computed by hand, and the order of choices. */
#include "base/forecast.h"
#include "support/tool.h"

/* 4 micro-batches, a stage computes 10 s of each; a link carries 100 bytes a second forward and 50
 * backward, and takes 2 s to arrive. */
static const dw_forecast_run slow = {
    .stages = 2, .micro_batches = 4, .compute_s = 40, .delay_s = 2, .rate = {100, 50}};

static void assert_seconds(double seconds, double expected)
{
    assert_true(seconds > expected - 1e-9 && seconds < expected + 1e-9);
}

static void a_single_stage_only_computes(void **state)
{
    dw_forecast_run run = slow;
    const dw_forecast_way ways[2] = {{1e9, 5, 5, 0}, {1e9, 5, 5, 0}};
    (void)state;
    run.stages = 1;
    assert_seconds(dw_forecast_step(&run, ways), 40);
}

static void the_slowest_part_sets_the_pace(void **state)
{
    (void)state;
    /* The way of the first: 2 x 10 computing, 1 + 2 + 3 forward, 4 + 2 + 2 backward, and the
     * delays. After it, the stages are the slowest: 10 and codecs of 1 + 2, or of 3 + 4. */
    const dw_forecast_way fast[2] = {{200, 1, 3, 0}, {100, 4, 2, 0}};
    assert_seconds(dw_forecast_step(&slow, fast), 20 + (1 + 2 + 3 + 2) + (4 + 2 + 2 + 2) + 3 * 17);
    const dw_forecast_way forward[2] = {{3000, 1, 3, 0}, {100, 4, 2, 0}};
    assert_seconds(dw_forecast_step(&slow, forward),
                   20 + (1 + 30 + 3 + 2) + (4 + 2 + 2 + 2) + 3 * 30);
    const dw_forecast_way backward[2] = {{3000, 1, 3, 0}, {2000, 4, 2, 0}};
    assert_seconds(dw_forecast_step(&slow, backward),
                   20 + (1 + 30 + 3 + 2) + (4 + 40 + 2 + 2) + 3 * 40);
}

static void a_stage_between_others_codes_twice(void **state)
{
    dw_forecast_run run = slow;
    const dw_forecast_way ways[2] = {{200, 1, 3, 0}, {100, 4, 2, 0}};
    (void)state;
    run.stages = 3;
    assert_seconds(dw_forecast_step(&run, ways),
                   30 + 2 * ((1 + 2 + 3 + 2) + (4 + 2 + 2 + 2)) + 3 * 20);
    run.micro_batches = 1; /* nothing overlaps */
    run.compute_s = 10;
    assert_seconds(dw_forecast_step(&run, ways), 30 + 2 * ((1 + 2 + 3 + 2) + (4 + 2 + 2 + 2)));
}

static void the_best_is_fast_and_then_exact(void **state)
{
    dw_forecast_choice choices[] = {
        {10.0, 0.1, false}, {5.0, 0.9, false}, {5.1, 0.2, false}, {5.2, 0.1, false}};
    const size_t order[] = {2, 1, 3, 0};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        size_t best = dw_forecast_best(choices, 4);
        assert_int_equal(best, order[i]);
        choices[best].is_taken = true;
    }
    assert_int_equal(dw_forecast_best(choices, 4), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_single_stage_only_computes),
        cmocka_unit_test(the_slowest_part_sets_the_pace),
        cmocka_unit_test(a_stage_between_others_codes_twice),
        cmocka_unit_test(the_best_is_fast_and_then_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
