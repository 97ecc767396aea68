/* SPDX-License-Identifier: Apache-2.0
 * test_evaluation.c - the held-out loss with codecs and without them: each is what it says, and the
 * second one changes nothing. */
#include <math.h>

#include "pipeline.h"

/* Runs it with and without plain evaluations, and fails the test unless everything else is the
 * same. The run with them is left in *run. */
static void assert_changes_nothing(pipeline *run, uint32_t stages)
{
    pipeline without = *run;
    run->config.plain_eval = 1;
    run_whole(run, stages);
    run_whole(&without, stages);
    assert_same_run(run, &without);
    assert_true(run->summary.plain_held_out_loss == run->plain[run->evals - 1]);
    assert_true(isnan(without.plain[0]) && isnan(without.summary.plain_held_out_loss));
}

TEST(plain_evaluation_equals_evaluation_with_floats)
{
    for (uint32_t replicas = 1; replicas <= 2; replicas++) {
        pipeline run = a_run();
        run.config.replicas = replicas;
        run.config.samples = 24 * replicas;
        run.config.slices = replicas;
        assert_changes_nothing(&run, 3);
        assert_int_equal(run.evals, 3);
        assert_memory_equal(run.plain, run.held_out, 3 * sizeof *run.plain);
    }
}

TEST(plain_evaluation_leaves_codec_state_unchanged)
{
    static const char *const codecs[] = {"topk:keep=0.2", "delta:bits=2,replies=never"};
    for (int i = 0; i < 2; i++) {
        pipeline run = a_run();
        run.config.forward = codecs[i];
        run.config.repeat = 1 + (uint32_t)i;
        run.config.epochs = 3 - (uint32_t)i;
        assert_changes_nothing(&run, 2);
        for (uint32_t k = 0; k < run.evals; k++)
            assert_true(isfinite(run.plain[k]) && run.plain[k] != run.held_out[k]);
    }
}

/* A single stage that starts from the checkpoint evaluates the same model. */
TEST(the_plain_loss_is_that_of_one_stage)
{
    pipeline run = a_run();
    run.config.forward = "topk:keep=0.2";
    run.config.plain_eval = 1;
    run.config.save = pipeline_folder;
    run_whole(&run, 3);
    pipeline one = a_run();
    one.config.init = pipeline_folder;
    one.config.lr = 1e-30; /* no parameter changes by that */
    one.config.weight_decay = -1;
    one.config.warmup = one.config.epochs = 0;
    one.config.steps = 1;
    run_whole(&one, 1);
    assert_true(one.held_out[0] == run.plain[2]);
    assert_true(one.held_out[0] != run.held_out[2]);
}

TEST(bytes_of_plain_evaluations_are_counted)
{
    pipeline run = a_run();
    run.config.forward = "topk:keep=0.2";
    run.config.plain_eval = 1;
    run_whole(&run, 2);
    const dw_train_cost *cost = &run.summary.cost;
    /* 9 steps of 8 samples, and 3 evaluations of 7 samples twice. */
    assert_int_equal(cost->raw_forward, (9 * 8 + 2 * 3 * 7) * 24 * 32 * 4);
    assert_true(cost->frames_forward > 3 * 7 * 24 * 32 * 4);
    assert_true(cost->bytes_forward >= cost->frames_forward);
}

RUN_TESTS(pipeline_set_up, pipeline_tear_down)
