/* SPDX-License-Identifier: Apache-2.0
 * test_bottleneck.c - the matrices around a boundary: their gradients agree with finite
 * differences, they begin as a projection, and runs with them learn, resume and agree. */
#include <math.h>

#include "layout.h"
#include "model.h"
#include "pipeline.h"
#include "random.h"
#include "slices.h"
#include "stirred.h"

enum { N = 3, T = 13, C = 24, R = 5, K = 3 };
static const dw_model_shape shape = {
    .layers = 4, .channels = C, .heads = 3, .context = T, .bottleneck = R, .stages = K};

/* ---- Gradients ------------------------------------------------------------------------------- */

static double forward(dw_model **models, const uint8_t *samples, uint32_t slices, bool backward)
{
    double loss = 0;
    for (uint32_t i = 0; i < slices; i++) {
        uint32_t tokens = dw_slice_of(T, slices, i).tokens;
        for (uint32_t k = 0; k < K; k++) {
            if (k)
                memcpy(dw_model_input(models[k], 0, i), dw_model_output(models[k - 1], 0, i),
                       sizeof(float) * N * tokens * R);
            dw_model_forward(models[k], 0, i, N, samples);
        }
        loss += dw_model_loss(models[K - 1], 0, i, backward, 1);
    }
    return loss;
}

static void backward(dw_model **models, uint32_t slices)
{
    for (uint32_t i = slices; i-- > 0;) {
        uint32_t tokens = dw_slice_of(T, slices, i).tokens;
        for (uint32_t k = K; k-- > 0;) {
            if (k + 1 < K)
                memcpy(dw_model_gradient(models[k]), dw_model_gradient(models[k + 1]),
                       sizeof(float) * N * tokens * R);
            dw_model_backward(models[k], 0, i);
        }
    }
}

/* The slope of the loss along the gradient of a tensor is the norm of that gradient. */
static void check_tensor(dw_model **models, dw_part *part, const dw_parameter *tensor,
                         const uint8_t *samples, uint32_t slices)
{
    size_t n = (size_t)tensor->rows * tensor->columns;
    float *x = part->params + tensor->offset, *kept = malloc(n * sizeof *kept);
    const float *gradient = part->grads + tensor->offset;
    double square = 0, side[2], h = 2e-3;
    for (size_t i = 0; i < n; i++) square += (double)gradient[i] * (double)gradient[i];
    double norm = sqrt(square);
    if (!(norm > 1e-3)) fail_msg("%s %s has no gradient", part->name, tensor->name);
    memcpy(kept, x, n * sizeof *kept);
    for (int s = 0; s < 2; s++) {
        for (size_t i = 0; i < n; i++)
            x[i] = (float)((double)kept[i] + (s ? h : -h) * (double)gradient[i] / norm);
        side[s] = forward(models, samples, slices, false);
    }
    memcpy(x, kept, n * sizeof *kept);
    free(kept);
    double slope = (side[1] - side[0]) / (2 * h);
    if (fabs(slope - norm) > 0.01 * norm + 0.01)
        fail_msg("%s %s: slope %g, norm %g", part->name, tensor->name, slope, norm);
}

TEST(gradients_agree_with_finite_differences)
{
    uint8_t samples[N * (T + 1)];
    for (size_t i = 0; i < sizeof samples; i++)
        samples[i] = (uint8_t)(dw_random(5, DW_RANDOM_SHUFFLE, 0, i).v[0] % 96 + 32);
    for (uint32_t slices = 1; slices <= 3; slices += 2) {
        dw_model *models[K];
        for (uint32_t k = 0; k < K; k++) {
            uint32_t first, n;
            dw_stage_parts(&shape, k, K, &first, &n);
            assert_int_equal(dw_model_create(&models[k], &shape, first, n, N, 1, slices), DW_OK);
            stir(models[k]);
        }
        forward(models, samples, slices, true);
        backward(models, slices);
        for (uint32_t k = 0; k < K; k++)
            for (uint32_t p = 0; p < dw_model_part_count(models[k]); p++) {
                dw_part *part = dw_model_part(models[k], p);
                for (uint32_t t = 0; t < part->n_tensors; t++)
                    check_tensor(models, part, &part->tensors[t], samples, slices);
            }
        for (uint32_t k = 0; k < K; k++) dw_model_destroy(models[k]);
    }
}

TEST(bottleneck_matrices_begin_as_a_projection)
{
    dw_part narrow, widen, block, plain;
    dw_model_shape without = {.layers = 4, .channels = C, .heads = 3, .context = T};
    assert_int_equal(dw_part_create(&narrow, &shape, 6), DW_OK);
    assert_int_equal(dw_part_create(&widen, &shape, 7), DW_OK);
    assert_int_equal(dw_part_create(&block, &shape, 8), DW_OK);
    assert_int_equal(dw_part_create(&plain, &without, 4), DW_OK);
    dw_part_initialize(&narrow, 9);
    dw_part_initialize(&widen, 9);
    dw_part_initialize(&block, 9);
    dw_part_initialize(&plain, 9);
    double square = 0;
    assert_true(narrow.n == R * C && widen.n == R * C);
    for (size_t r = 0; r < R; r++)
        for (size_t c = 0; c < C; c++) {
            assert_true(narrow.params[r * C + c] == widen.params[c * R + r]);
            square += pow((double)narrow.params[r * C + c], 2);
        }
    assert_true(fabs(square / R - 1) < 0.3); /* rows of norm 1 */
    /* All other parts begin as without a bottleneck. */
    assert_memory_equal(block.params, plain.params, plain.n * sizeof(float));
    dw_part_destroy(&narrow);
    dw_part_destroy(&widen);
    dw_part_destroy(&block);
    dw_part_destroy(&plain);
}

/* ---- Runs ------------------------------------------------------------------------------------ */

static pipeline a_narrow_run(void)
{
    pipeline run = a_run();
    run.config.bottleneck = 12;
    return run;
}

TEST(bottleneck_sends_fewer_channels_and_learns)
{
    pipeline wide = a_run(), narrow = a_narrow_run();
    run_whole(&wide, 3);
    run_whole(&narrow, 3);
    const dw_train_cost *a = &wide.summary.cost, *b = &narrow.summary.cost;
    assert_int_equal(a->raw_forward * 12, b->raw_forward * 32);
    assert_int_equal(a->raw_backward * 12, b->raw_backward * 32);
    assert_true(narrow.loss[8] < narrow.loss[0] - 0.5 && narrow.loss[8] != wide.loss[8]);
    assert_true(narrow.loss[8] < wide.loss[8] + 0.5);
}

TEST(a_resumed_run_gives_the_same_bits)
{
    pipeline whole = a_narrow_run();
    whole.config.replicas = 2;
    whole.config.samples = 48;
    whole.config.gradient = "direct:bits=4,feedback=ef";
    whole.config.tied = 1;
    whole.config.backward = "topk:keep=0.2";
    run_whole(&whole, 2);
    assert_resumes(&whole, 2, 4);
    pipeline other = a_narrow_run();
    /* The parts depend on the number of stages. */
    other.config.init = pipeline_folder;
    run_refused(&other, 3, DW_ERR_MISMATCH, 0, "bottleneck 12 of 2 stages; asked");
}

RUN_TESTS(pipeline_set_up, pipeline_tear_down)
