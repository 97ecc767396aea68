/* SPDX-License-Identifier: Apache-2.0
 * test_tied.c - tied embeddings: any number of stages learns the same bits, all copies stay equal,
 * and their gradients go through the codec with those of replicas. */
#include <math.h>

#include "agreement.h"
#include "checkpoint.h"
#include "optimizer.h"
#include "pipeline.h"
#include "stage.h"

enum { C = 32, V = 256 };

static pipeline a_tied_run(void)
{
    pipeline run = a_run();
    run.config.tied = 1;
    return run;
}

static pipeline a_tied_grid(void)
{
    pipeline run = a_tied_run();
    run.config.replicas = 2;
    run.config.samples = 64;
    run.config.epochs = 2;
    return run;
}

/* Reads the embedding of tokens, or with head the matrix of the logits, from a checkpoint. */
static void read_copy(const char *folder, bool head, float *copy)
{
    dw_checkpoint checkpoint;
    dw_part part;
    dw_why why;
    assert_int_equal(dw_checkpoint_open(&checkpoint, folder, &why), DW_OK);
    assert_int_equal(checkpoint.shape.tied, 1);
    assert_int_equal(dw_part_create(&part, &checkpoint.shape, head ? 4 : 0), DW_OK);
    if (dw_checkpoint_read(&checkpoint, &part, false, &why) < 0) fail_msg("%s", why.text);
    const dw_parameter *tensor = &part.tensors[head ? DW_HEAD_LOGITS : DW_EMBED_TOKENS];
    memcpy(copy, part.params + tensor->offset, V * C * sizeof *copy);
    dw_part_destroy(&part);
    dw_checkpoint_close(&checkpoint);
}

static void assert_copies_are_equal(const char *folder)
{
    static float embed[V * C], head[V * C];
    read_copy(folder, false, embed);
    read_copy(folder, true, head);
    assert_memory_equal(embed, head, sizeof embed);
}

TEST_WITH(any_number_of_stages_gives_the_same_bits, pipeline_set_up, pipeline_tear_down)
{
    pipeline one = a_tied_run(), untied = a_run();
    one.config.save = pipeline_folder;
    run_whole(&one, 1);
    run_whole(&untied, 1);
    assert_true(one.loss[8] < one.loss[0] - 0.5 && one.loss[0] != untied.loss[0]);
    assert_copies_are_equal(pipeline_folder);
    for (uint32_t stages = 2; stages <= 3; stages++) {
        pipeline many = one;
        run_whole(&many, stages);
        assert_same_run(&one, &many);
        assert_copies_are_equal(pipeline_folder);
        /* Both ends send half of the sum to each other, twice. */
        if (stages == 2) assert_true(many.summary.cost.raw_gradients == 2 * 9 * V * C * 4);
    }
}

TEST_WITH(gradient_norm_counts_the_tied_matrix_once, pipeline_set_up, pipeline_tear_down)
{
    for (uint32_t tied = 0; tied <= 1; tied++) {
        dw_model_shape shape = {
            .layers = 3, .channels = C, .heads = 2, .context = 24, .tied = tied};
        const double expected[] = {V * C + 24 * C, tied ? 2 * C : 2 * C + V * C};
        for (uint32_t i = 0; i < 2; i++) {
            dw_part part;
            assert_int_equal(dw_part_create(&part, &shape, i * 4), DW_OK);
            for (size_t k = 0; k < part.n; k++) part.grads[k] = 1;
            assert_true(dw_optimizer_sum(&part) == expected[i]);
            dw_part_destroy(&part);
        }
    }
}

TEST_WITH(replicas_learn_like_one_pipeline_with_a_larger_batch, pipeline_set_up, pipeline_tear_down)
{
    pipeline one = a_tied_grid();
    one.config.replicas = 0;
    one.config.batch = 16;
    one.config.micro_batches = 8;
    one.config.epochs = 1;
    run_whole(&one, 1);
    for (uint32_t stages = 1; stages <= 3; stages++) {
        pipeline grid = a_tied_grid();
        grid.config.epochs = 1;
        grid.config.check_every = 1;
        run_whole(&grid, stages);
        assert_int_equal(grid.steps, one.steps);
        for (uint32_t i = 0; i < one.steps; i++) {
            assert_true(fabs(grid.loss[i] - one.loss[i]) < 1e-5);
            assert_true(fabs(grid.norm[i] - one.norm[i]) < 1e-4 * one.norm[i]);
        }
    }
}

/* One operation over all copies, in place of an average at each end and a sum between both. */
TEST_WITH(tied_copies_are_summed_with_the_replicas, pipeline_set_up, pipeline_tear_down)
{
    pipeline grid = a_tied_grid();
    run_whole(&grid, 2);
    uint64_t own = 24 * C + 3 * (12 * C * C + 13 * C) + 2 * C, tied = V * C;
    /* Each of 2 members sends half and half of the sum; of 4 members 3 quarters, twice. */
    uint64_t floats = 2 * own + 4 * (2 * 3 * tied / 4);
    assert_int_equal(grid.summary.cost.raw_gradients, 8 * floats * sizeof(float));
}

TEST_WITH(untied_run_refuses_a_tied_checkpoint, pipeline_set_up, pipeline_tear_down)
{
    pipeline run = a_tied_run(), untied = a_run();
    run.config.save = pipeline_folder;
    run_whole(&run, 1);
    untied.config.init = pipeline_folder;
    run_refused(&untied, 2, DW_ERR_MISMATCH, 0, "context 24, tied embeddings; asked for are");
    untied.config.init = NULL;
    untied.config.save = pipeline_folder;
    run_refused(&untied, 1, DW_ERR_MISMATCH, 0, "another model (3 layers");
}

/* ---- Copies that differ ---------------------------------------------------------------------- */

static void compare_twice(dw_stage *stage, rank *r)
{
    r->status = dw_agreement_check(stage, 6);
    if (r->status == DW_OK && r->index + 1 == r->run->n_ranks) {
        dw_part *part = dw_model_part(stage->model, stage->n_parts - 1);
        ((uint32_t *)part->params)[part->n - 1] ^= 1;
    }
    if (r->status == DW_OK) r->status = dw_agreement_check(stage, 7);
}

TEST_WITH(tied_copies_that_differ_are_noticed, pipeline_set_up, pipeline_tear_down)
{
    for (uint32_t stages = 1; stages <= 3; stages++) {
        char expected[100];
        pipeline run = a_tied_run();
        run_at_stages(&run, stages, compare_twice);
        assert_all(&run, DW_ERR_MISMATCH);
        snprintf(expected, sizeof expected,
                 "after step 7 rank 0 and rank %u hold different copies of the tied", stages - 1);
        for (uint32_t i = 0; i < stages; i++)
            assert_non_null(strstr(run.ranks[i].why.text, expected));
    }
}

RUN_TESTS(NULL, NULL)
