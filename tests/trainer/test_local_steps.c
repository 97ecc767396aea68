/* SPDX-License-Identifier: Apache-2.0
 * test_local_steps.c - replicas that take several steps on their own: what they average, that all
 * of them then hold the same parameters, and that a checkpoint continues with the same bits. */
#include <math.h>

#include "outer.h"
#include "pipeline.h"
#include "stage.h"

enum { LOCAL = 2 };

/* Two replicas, two epochs of 4 steps with 2 times 8 samples. */
static pipeline a_grid(void)
{
    pipeline run = a_run();
    run.config.replicas = 2;
    run.config.samples = 64;
    run.config.epochs = 2;
    run.config.local_steps = LOCAL;
    return run;
}

TEST(one_local_step_averages_gradients)
{
    pipeline grid = a_grid(), one = a_grid(), momentum = a_grid();
    grid.config.local_steps = 0;
    one.config.local_steps = 1;
    one.config.outer_momentum = -1;
    momentum.config.local_steps = 1;
    momentum.config.outer_momentum = 0.5;
    run_whole(&grid, 2);
    run_whole(&one, 2);
    run_whole(&momentum, 2);
    assert_same_run(&grid, &one);
    assert_true(momentum.loss[0] == grid.loss[0] && momentum.loss[1] != grid.loss[1]);
}

/* ---- The arithmetic -------------------------------------------------------------------------- */

static float moved(uint32_t replica, uint32_t round, uint32_t part, size_t k)
{
    return (float)((k * 7 + replica * 13 + round * 5 + part) % 31) / 64 - 0.2f;
}

/* What every replica must hold after the rounds, in 20 lines: DiLoCo's Algorithm 1 for 2 replicas.
 */
static void expect(float *params, const dw_part *part, uint32_t rounds, float lr, float keep)
{
    float *momentum = calloc(part->n, sizeof *momentum);
    for (uint32_t round = 0; round < rounds; round++)
        for (size_t k = 0; k < part->n; k++) {
            float mean = 0;
            for (uint32_t d = 0; d < 2; d++) {
                float now = params[k] + moved(d, round, part->index, k);
                mean += params[k] - now;
            }
            mean /= 2;
            momentum[k] = keep * momentum[k] + mean;
            params[k] = params[k] - lr * (mean + keep * momentum[k]);
        }
    free(momentum);
}

static void check_rounds(dw_stage *stage, rank *r, uint32_t rounds)
{
    const dw_train_config *config = &stage->settings->config;
    float *expected[5] = {0};
    for (uint32_t i = 0; i < stage->n_parts; i++) {
        const dw_part *part = dw_model_part(stage->model, i);
        expected[i] = malloc(part->n * sizeof(float));
        memcpy(expected[i], part->params, part->n * sizeof(float));
        expect(expected[i], part, rounds, (float)config->outer_lr, (float)config->outer_momentum);
    }
    for (uint32_t round = 0; round < rounds && r->status == DW_OK; round++) {
        for (uint32_t i = 0; i < stage->n_parts; i++) {
            dw_part *part = dw_model_part(stage->model, i);
            for (size_t k = 0; k < part->n; k++)
                part->params[k] += moved(stage->settings->replica, round, part->index, k);
        }
        r->status = dw_outer_average(stage);
    }
    for (uint32_t i = 0; i < stage->n_parts; i++) {
        const dw_part *part = dw_model_part(stage->model, i);
        if (memcmp(expected[i], part->params, part->n * sizeof(float))) r->status = DW_ERR_STATE;
        for (size_t k = 0; k < part->n; k++)
            if (part->grads[k] != 0) r->status = DW_ERR_STATE;
        free(expected[i]);
    }
}

static void average(dw_stage *stage, rank *r)
{
    assert_int_equal(dw_outer_open(stage), DW_OK);
    dw_outer_begin(stage);
    check_rounds(stage, r, 3);
}

TEST(outer_step_is_that_of_diloco)
{
    static const double settings[][2] = {{0, 0}, {1, -1}, {0.5, 0.75}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        pipeline run = a_grid();
        run.config.outer_lr = settings[i][0];
        run.config.outer_momentum = settings[i][1];
        run_at_stages(&run, 2, average);
        assert_all(&run, DW_OK);
    }
}

/* ---- Runs ------------------------------------------------------------------------------------ */

/* The parameters are compared by the run itself, too, after every round. The last round has one
 * step. */
TEST(replicas_hold_equal_parameters_after_each_round)
{
    static const char *const codecs[] = {"raw:f32", "topk:keep=0.05,feedback=ef"};
    for (int i = 0; i < 2; i++) {
        char manifest[MANIFEST_BYTES];
        pipeline run = a_grid();
        run.config.gradient = codecs[i];
        run.config.check_every = LOCAL;
        run.config.epochs = 0;
        run.config.steps = 7;
        run_pipeline(&run, 2, in_a_folder_of_its_own);
        assert_all(&run, DW_OK);
        assert_int_equal(run.steps, 7);
        assert_true(run.loss[6] < run.loss[0] - 0.3);
        assert_int_equal(run.evals, 2); /* after 4 and 7 steps */
        assert_same_manifests(&run, manifest);
        assert_non_null(strstr(manifest, "and local steps"));
    }
}

TEST(local_steps_send_differences_once_a_round)
{
    pipeline each = a_grid(), local = a_grid();
    each.config.local_steps = 1;
    run_whole(&each, 2);
    run_whole(&local, 2);
    assert_int_equal(each.summary.cost.raw_gradients, LOCAL * local.summary.cost.raw_gradients);
    assert_true(local.summary.cost.bytes_gradients < each.summary.cost.bytes_gradients * 6 / 10);
    assert_int_equal(local.so_far[0].raw_gradients, 0);
    assert_true(local.loss[0] == each.loss[0]);
    assert_true(fabs(local.loss[7] - each.loss[7]) < 0.5);
}

TEST(a_resumed_grid_gives_the_same_bits)
{
    static const char *const codecs[] = {"direct:bits=4,feedback=ef", "delta:bits=4"};
    for (int i = 0; i < 2; i++) {
        pipeline whole = a_grid();
        whole.config.gradient = codecs[i];
        run_whole(&whole, 2);
        assert_int_equal(whole.steps, 8);
        pipeline resumed = assert_resumes(&whole, 2, 2 * LOCAL);
        /* What a replica keeps belongs to local steps. Parameters belong to all. */
        resumed.config.local_steps = 1;
        run_refused(&resumed, 2, DW_ERR_MISMATCH, 2, "and local steps; continue with the");
        resumed.config.init = resumed.config.resume;
        resumed.config.resume = NULL;
        run_whole(&resumed, 1);
    }
}

/* A grid that averaged gradients so far can go on with local steps. */
TEST(local_steps_can_begin_at_a_checkpoint)
{
    pipeline begun = a_grid(), next = a_grid();
    begun.config.local_steps = 1;
    begun.config.epochs = 1;
    begun.config.save = pipeline_folder;
    run_whole(&begun, 2);
    next.config.resume = pipeline_folder;
    run_whole(&next, 2);
    assert_true(next.loss[4] < begun.loss[0] - 0.3);
}

RUN_TESTS(pipeline_set_up, pipeline_tear_down)
