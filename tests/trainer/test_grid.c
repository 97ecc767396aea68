/* SPDX-License-Identifier: Apache-2.0
 * test_grid.c - replicas of a pipeline: they learn like one pipeline with a larger batch, always
 * hold the same parameters, continue from a checkpoint with the same bits, and end together. */
#include <math.h>

#include "agreement.h"
#include "pipeline.h"
#include "replicas.h"
#include "stage.h"

/* Two replicas, one epoch of 4 steps with 2 times 8 samples. */
static pipeline a_grid(void)
{
    pipeline run = a_run();
    run.config.replicas = 2;
    run.config.samples = 72; /* the last 8 are left over */
    run.config.held_out = 7;
    run.config.epochs = 1;
    return run;
}

static void assert_near(const pipeline *a, const pipeline *b, double most)
{
    assert_int_equal(a->steps, b->steps);
    assert_int_equal(a->evals, b->evals);
    for (uint32_t i = 0; i < a->steps; i++) {
        if (fabs(a->loss[i] - b->loss[i]) > most)
            fail_msg("step %u: loss %.8f and %.8f", i + 1, a->loss[i], b->loss[i]);
        if (fabs(a->norm[i] - b->norm[i]) > 10 * most * b->norm[i])
            fail_msg("step %u: norm %.8f and %.8f", i + 1, a->norm[i], b->norm[i]);
    }
    for (uint32_t i = 0; i < a->evals; i++)
        if (fabs(a->held_out[i] - b->held_out[i]) > most)
            fail_msg("held-out loss %.8f and %.8f", a->held_out[i], b->held_out[i]);
}

TEST(replicas_learn_like_one_pipeline_with_a_larger_batch)
{
    for (uint32_t replicas = 2; replicas <= 3; replicas++) {
        pipeline one = a_grid();
        one.config.replicas = 0;
        one.config.batch = 8 * replicas;
        one.config.micro_batches = 4 * replicas;
        run_whole(&one, 1);
        assert_int_equal(one.steps, 72 / (8 * replicas));
        assert_true(one.norm[0] > 1); /* the gradient was clipped, by the norm over the grid */
        for (uint32_t stages = 1; stages <= 2; stages++) {
            pipeline grid = a_grid();
            grid.config.replicas = replicas;
            grid.config.schedule = stages == 2 ? "1f1b" : NULL;
            run_whole(&grid, stages);
            assert_near(&grid, &one, 1e-5);
        }
    }
}

TEST(grid_bits_do_not_depend_on_the_schedule)
{
    pipeline first = a_grid();
    first.config.gradient = "direct:bits=4";
    first.config.forward = "delta:bits=3";
    first.config.backward = "direct:bits=6";
    first.config.epochs = 2; /* the delta codec finds all samples where they were */
    first.config.check_every = 1;
    pipeline other = first, again = first;
    other.config.schedule = "1f1b";
    run_whole(&first, 3);
    run_pipeline(&other, 3, NULL);
    run_pipeline(&again, 3, NULL);
    assert_int_equal(first.steps, 8);
    assert_same_run(&first, &other);
    assert_same_run(&first, &again);
    other.config.slices = 3;
    run_whole(&other, 2);
    assert_near(&first, &other, 0.05);
}

TEST(compressed_gradients_leave_the_replicas_the_same)
{
    static const char *const codecs[] = {
        "direct:bits=2", "direct:form=step,step=2,group=128,rounding=dither,entropy=rans",
        "chunk:feedback=ef"};
    for (int i = 0; i < 3; i++) {
        pipeline run = a_grid();
        char manifest[MANIFEST_BYTES];
        run.config.gradient = codecs[i];
        run_pipeline(&run, 2, in_a_folder_of_its_own);
        assert_all(&run, DW_OK);
        assert_same_manifests(&run, manifest);
        if (i > 0) continue;
        /* A rank starts from its own folder alone. */
        pipeline next = a_grid();
        next.config.gradient = codecs[i];
        next.config.epochs = 2;
        next.config.resume = run.ranks[3].config.save;
        run_pipeline(&next, 2, NULL);
        assert_int_equal(next.ranks[3].status, DW_ERR_IO); /* parts of stage 0 are elsewhere */
        assert_non_null(strstr(next.ranks[3].why.text, "rank-3/embed-"));
    }
}

/* Floats have the same sums in one hop as in two. What is rounded is rounded once, and what a rank
 * keeps of it is of another kind. */
TEST(gradients_can_be_summed_in_one_hop)
{
    pipeline two = a_grid(), one = two;
    char manifest[MANIFEST_BYTES];
    one.config.hops = 1;
    run_pipeline(&two, 2, NULL);
    run_whole(&one, 2);
    assert_same_run(&two, &one);
    two.config.gradient = one.config.gradient = "direct:bits=2,feedback=ef";
    two.config.check_every = one.config.check_every = 1;
    run_pipeline(&two, 2, NULL);
    run_pipeline(&one, 2, in_a_folder_of_its_own);
    assert_all(&two, DW_OK);
    assert_all(&one, DW_OK);
    assert_memory_not_equal(two.loss, one.loss, one.steps * sizeof *one.loss);
    assert_same_manifests(&one, manifest);
    assert_non_null(strstr(manifest, "feedback=ef in one hop"));
}

TEST(a_resumed_grid_gives_the_same_bits)
{
    pipeline whole = a_grid();
    whole.config.gradient = "delta:bits=4";
    whole.config.epochs = 2;
    run_whole(&whole, 2);
    assert_int_equal(whole.steps, 8);
    pipeline resumed = assert_resumes(&whole, 2, 5);
    /* What the codec keeps belongs to this grid and codec. */
    resumed.config.gradient = "direct:bits=3";
    run_refused(&resumed, 2, DW_ERR_MISMATCH, 2, "2 replicas of 2 stages with delta");
    resumed.config.gradient = "delta:bits=4";
    run_refused(&resumed, 1, DW_ERR_MISMATCH, 1, "2 replicas of 2 stages with delta");
    resumed.config.resume = NULL;
    resumed.config.init = pipeline_folder;
    run_whole(&resumed, 1);
}

TEST(costs_of_gradients_are_reported)
{
    pipeline raw = a_grid(), packed = a_grid(), checked = a_grid();
    packed.config.gradient = "direct:bits=4";
    run_whole(&raw, 2);
    run_whole(&packed, 2);
    const dw_train_cost *a = &raw.summary.cost, *b = &packed.summary.cost;
    assert_int_equal(raw.summary.stages, 2);
    assert_int_equal(raw.summary.replicas, 2);
    assert_true(a->raw_gradients == b->raw_gradients);
    /* Both halves of 4 gradients of all parameters, by each of two replicas. */
    uint64_t parameters = (256 + 24) * 32 + 3 * (12 * 32 * 32 + 13 * 32) + 2 * 32 + 256 * 32;
    assert_true(a->raw_gradients == 4 * 2 * parameters * 4);
    assert_true(a->bytes_gradients > a->raw_gradients);
    assert_true(a->bytes_gradients < a->raw_gradients + a->raw_gradients / 8);
    assert_true(b->bytes_gradients < a->bytes_gradients / 5);
    assert_true(b->gradient_wait_s > 0 && b->gradient_wait_s <= b->wait_s);
    /* The digests of the parameters, which are compared in every step, cross the same links. */
    checked.config.check_every = 1;
    run_whole(&checked, 2);
    assert_same_run(&raw, &checked);
    uint64_t more = checked.summary.cost.kernel_gradients;
    if (more) assert_true(more > a->kernel_gradients + 1500);
    for (int i = 0; i < 4; i++) assert_true(packed.costs[i].bytes_gradients > 0);
    /* Of 7 held-out samples the first replica evaluates 3 and the second one 4; between the
     * replicas there is no pipeline. */
    assert_true(packed.costs[0].raw_forward + 24 * 32 * 4 == packed.costs[2].raw_forward);
    assert_true(packed.costs[1].bytes_forward == 0);
}

/* ---- Replicas that differ -------------------------------------------------------------------- */

/* One rank changes a parameter, and the replicas are compared before and after it. */
static void compare_twice(dw_stage *stage, rank *r)
{
    r->status = dw_agreement_check(stage, 6);
    if (r->status == DW_OK && r->index == r->run->stop_rank) {
        dw_part *part = dw_model_part(stage->model, r->index == 2);
        ((uint32_t *)part->params)[part->tensors[DW_BLOCK_JOIN].offset + 7] ^= 1;
    }
    if (r->status == DW_OK) r->status = dw_agreement_check(stage, 7);
}

TEST(a_parameter_that_differs_is_named)
{
    pipeline run = a_grid();
    run.stop_rank = UINT32_MAX;
    run_at_stages(&run, 2, compare_twice);
    assert_all(&run, DW_OK);
    for (uint32_t who = 2; who < 4; who++) {
        run.stop_rank = who;
        run_at_stages(&run, 2, compare_twice);
        assert_all(&run, DW_ERR_MISMATCH);
        char expected[100];
        snprintf(expected, sizeof expected,
                 "after step 7 rank %u and rank %u hold different parameters, first in block-0%u."
                 "join:",
                 who, who - 2, who == 2 ? 0 : 2);
        for (int i = 0; i < 4; i++)
            if (!strstr(run.ranks[i].why.text, expected))
                fail_msg("rank %d: %s", i, run.ranks[i].why.text);
    }
}

/* ---- Ends ------------------------------------------------------------------------------------ */

TEST(a_stop_of_any_rank_ends_the_grid)
{
    pipeline run = a_grid();
    run.config.epochs = 5;
    assert_a_stop_ends(&run, 2);
}

static int other_setting;

static void with_another_setting(rank *r)
{
    if (r->index != 3) return;
    if (other_setting == 0) r->config.gradient = "direct:bits=5";
    if (other_setting == 1) r->config.local_steps = 4;
    if (other_setting == 2) r->config.plain_eval = 1;
}

TEST(ranks_of_a_grid_learn_which_setting_differs)
{
    static const char *const names[] = {"gradient", "local-steps", "plain-eval"};
    for (other_setting = 0; other_setting < 3; other_setting++) {
        char expected[60];
        pipeline run = a_grid();
        run.config.local_steps = 2;
        run_pipeline(&run, 2, with_another_setting);
        assert_all(&run, DW_ERR_MISMATCH);
        snprintf(expected, sizeof expected, "was started with %s", names[other_setting]);
        assert_non_null(strstr(run.ranks[2].why.text, expected));
    }
}

TEST(nan_gradient_ends_all_ranks)
{
    pipeline run = a_grid();
    run.config.lr = 9e5;
    run.config.warmup = 0;
    run_refused(&run, 2, DW_ERR_LIMIT, 3, "the training diverged");
}

RUN_TESTS(pipeline_set_up, pipeline_tear_down)
