/* SPDX-License-Identifier: Apache-2.0
 * test_model.c - compares the gradients of the model with finite differences, and tests its
 * division into stages. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model.h"
#include "random.h"
#include "stage.h"
#include "stirred.h"
#include "support/test.h"

enum { N = 3, T = 13 }; /* T is not a multiple of the vector length */
static const dw_model_shape shape = {.layers = 3, .channels = 24, .heads = 3, .context = T};

static void fill_samples(uint8_t *samples, size_t n)
{
    for (size_t i = 0; i < n; i++)
        samples[i] = (uint8_t)(dw_random(5, DW_RANDOM_SHUFFLE, 0, i).v[0] % 96 + 32);
}

static dw_model *whole_model(void)
{
    dw_model *model;
    assert_int_equal(dw_model_create(&model, &shape, 0, dw_model_parts(&shape), N, 1, 1), DW_OK);
    stir(model);
    return model;
}

static double loss_of(dw_model *model, const uint8_t *samples)
{
    dw_model_forward(model, 0, 0, N, samples);
    return dw_model_loss(model, 0, 0, false, 0);
}

/* The slope of the loss along the direction in part->mean, by central differences. */
static double slope(dw_model *model, dw_part *part, const dw_parameter *tensor,
                    const float *direction, double h, const uint8_t *samples)
{
    size_t n = (size_t)tensor->rows * tensor->columns;
    float *x = part->params + tensor->offset, *kept = malloc(n * sizeof *kept);
    double side[2];
    memcpy(kept, x, n * sizeof *kept);
    for (int s = 0; s < 2; s++) {
        for (size_t i = 0; i < n; i++)
            x[i] = (float)((double)kept[i] + (s ? h : -h) * (double)direction[i]);
        side[s] = loss_of(model, samples);
    }
    memcpy(x, kept, n * sizeof *kept);
    free(kept);
    return (side[1] - side[0]) / (2 * h);
}

/* Checks a tensor along two directions: along its gradient, where the slope is the norm of the
 * gradient, and along random signs, where no other part can hide a wrong part of the gradient. */
static void check_tensor(dw_model *model, dw_part *part, const dw_parameter *tensor,
                         const uint8_t *samples)
{
    size_t n = (size_t)tensor->rows * tensor->columns;
    const float *gradient = part->grads + tensor->offset;
    float *direction = malloc(n * sizeof *direction);
    double square = 0;
    for (size_t i = 0; i < n; i++) square += (double)gradient[i] * (double)gradient[i];
    double norm = sqrt(square);
    if (!(norm > 1e-3)) fail_msg("%s %s has no gradient", part->name, tensor->name);
    for (int kind = 0; kind < 2; kind++) {
        double expected = 0;
        for (size_t i = 0; i < n; i++) {
            int sign = dw_random(11, DW_RANDOM_SHUFFLE, part->index, i).v[1] & 1;
            direction[i] = kind ? (sign ? 1.0f : -1.0f) / sqrtf((float)n)
                                : (float)((double)gradient[i] / norm);
            expected += (double)direction[i] * (double)gradient[i];
        }
        double h = 2e-3, found = slope(model, part, tensor, direction, h, samples);
        /* The tolerance: rounding in float gives the loss (about 300) an error near 1e-5, which is
         * divided by 2 h; the rest comes from the curvature of the loss. */
        if (fabs(found - expected) > 0.005 * fabs(expected) + 0.002 * norm + 0.01)
            fail_msg("%s %s, direction %d: slope %g, gradient %g, norm %g", part->name,
                     tensor->name, kind, found, expected, norm);
    }
    free(direction);
}

TEST(gradients_agree_with_finite_differences)
{
    uint8_t samples[N * (T + 1)];
    fill_samples(samples, sizeof samples);
    dw_model *model = whole_model();
    dw_model_forward(model, 0, 0, N, samples);
    dw_model_loss(model, 0, 0, true, 1);
    dw_model_backward(model, 0, 0);
    for (uint32_t p = 0; p < dw_model_part_count(model); p++) {
        dw_part *part = dw_model_part(model, p);
        for (uint32_t k = 0; k < part->n_tensors; k++)
            check_tensor(model, part, &part->tensors[k], samples);
    }
    dw_model_destroy(model);
}

TEST(gradients_of_micro_batches_add_up)
{
    uint8_t samples[N * (T + 1)];
    fill_samples(samples, sizeof samples);
    dw_model *model = whole_model();
    dw_part *part = dw_model_part(model, 2);
    dw_model_forward(model, 0, 0, N, samples);
    double loss = dw_model_loss(model, 0, 0, true, 1);
    dw_model_backward(model, 0, 0);
    float *once = malloc(part->n * sizeof *once);
    memcpy(once, part->grads, part->n * sizeof *once);
    memset(part->grads, 0, part->n * sizeof *once);
    double sum = 0;
    for (int i = 0; i < N; i++) {
        dw_model_forward(model, 0, 0, 1, samples + i * (T + 1));
        sum += dw_model_loss(model, 0, 0, true, 1);
        dw_model_backward(model, 0, 0);
    }
    assert_true(fabs(sum - loss) < 1e-3);
    for (size_t i = 0; i < part->n; i++)
        assert_true(fabsf(part->grads[i] - once[i]) < 1e-3f + 1e-3f * fabsf(once[i]));
    free(once);
    dw_model_destroy(model);
}

TEST(no_token_depends_on_a_later_one)
{
    uint8_t samples[N * (T + 1)], changed[N * (T + 1)];
    fill_samples(samples, sizeof samples);
    memcpy(changed, samples, sizeof samples);
    changed[T - 1] ^= 1; /* the last input token: only its own output may change */
    dw_model *model;
    assert_int_equal(dw_model_create(&model, &shape, 0, 3, N, 1, 1), DW_OK);
    stir(model);
    size_t rows = (T - 1) * shape.channels;
    float *before = malloc(rows * sizeof *before);
    dw_model_forward(model, 0, 0, N, samples);
    memcpy(before, dw_model_output(model, 0, 0), rows * sizeof *before);
    dw_model_forward(model, 0, 0, N, changed);
    assert_memory_equal(before, dw_model_output(model, 0, 0), rows * sizeof *before);
    free(before);
    dw_model_destroy(model);
}

/* Runs all stages in one process. They pass tensors directly instead of over a network. */
static double loss_of_stages(uint32_t stages, float *grads, const uint8_t *samples)
{
    dw_model *models[3];
    size_t bytes = sizeof(float) * N * T * shape.channels;
    for (uint32_t r = 0; r < stages; r++) {
        uint32_t first, n;
        dw_stage_parts(&shape, r, stages, &first, &n);
        assert_int_equal(dw_model_create(&models[r], &shape, first, n, N, 1, 1), DW_OK);
        stir(models[r]);
        if (r) memcpy(dw_model_input(models[r], 0, 0), dw_model_output(models[r - 1], 0, 0), bytes);
        dw_model_forward(models[r], 0, 0, N, samples);
    }
    double loss = dw_model_loss(models[stages - 1], 0, 0, true, 0.01f);
    for (uint32_t r = stages; r-- > 0;) {
        if (r + 1 < stages)
            memcpy(dw_model_gradient(models[r]), dw_model_gradient(models[r + 1]), bytes);
        dw_model_backward(models[r], 0, 0);
    }
    size_t used = 0;
    for (uint32_t r = 0; r < stages; r++) {
        for (uint32_t p = 0; p < dw_model_part_count(models[r]); p++) {
            const dw_part *part = dw_model_part(models[r], p);
            memcpy(grads + used, part->grads, part->n * sizeof *grads);
            used += part->n;
        }
        dw_model_destroy(models[r]);
    }
    return loss;
}

TEST(stages_give_the_bits_of_one_stage)
{
    uint8_t samples[N * (T + 1)];
    fill_samples(samples, sizeof samples);
    size_t room = 200000;
    float *one = calloc(room, sizeof *one), *many = calloc(room, sizeof *many);
    double loss = loss_of_stages(1, one, samples);
    for (uint32_t stages = 2; stages <= 3; stages++) {
        double other = loss_of_stages(stages, many, samples);
        assert_memory_equal(&loss, &other, sizeof loss);
        assert_memory_equal(one, many, room * sizeof *one);
    }
    free(one);
    free(many);
}

TEST(every_part_belongs_to_one_stage)
{
    for (uint32_t layers = 1; layers < 9; layers++)
        for (uint32_t stages = 1; stages <= layers; stages++) {
            dw_model_shape s = {.layers = layers, .channels = 8, .heads = 1, .context = 1};
            uint32_t next = 0, first, n;
            for (uint32_t r = 0; r < stages; r++) {
                dw_stage_parts(&s, r, stages, &first, &n);
                assert_int_equal(first, next);
                next = first + n;
                assert_true(n - (r == 0) - (r + 1 == stages) >= layers / stages);
            }
            assert_int_equal(next, layers + 2);
        }
}

#define SHAPE(l, c, h, t)                                                                          \
    {                                                                                              \
        .layers = l, .channels = c, .heads = h, .context = t                                       \
    }

TEST(rejects_impossible_shapes)
{
    const struct {
        dw_model_shape shape;
        const char *word;
    } bad[] = {
        {SHAPE(0, 64, 4, 8), "layers"},      {SHAPE(10000, 64, 4, 8), "layers"},
        {SHAPE(1, 0, 4, 8), "channels"},     {SHAPE(1, 60, 4, 8), "channels"},
        {SHAPE(1, 64, 0, 8), "heads"},       {SHAPE(1, 64, 5, 8), "heads"},
        {SHAPE(1, 64, 4, 0), "context"},     {SHAPE(1, 64, 4, 65537), "context"},
        {SHAPE(1, 65544, 4, 8), "channels"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        dw_why why;
        dw_model *model = (dw_model *)1;
        assert_int_equal(dw_model_shape_check(&bad[i].shape, &why), DW_ERR_ARGUMENT);
        assert_non_null(strstr(why.text, bad[i].word));
        assert_int_equal(dw_model_create(&model, &bad[i].shape, 0, 3, 1, 1, 1), DW_ERR_ARGUMENT);
        assert_null(model);
    }
    dw_model *model;
    dw_model_shape wide = SHAPE(1, 65536, 4, 65536);
    assert_int_equal(dw_model_create(&model, &wide, 0, 3, 65536, 1, 1), DW_ERR_LIMIT);
}

TEST(parameters_do_not_depend_on_the_stages)
{
    dw_model *all = whole_model(), *last;
    assert_int_equal(dw_model_create(&last, &shape, 3, 2, N, 1, 1), DW_OK);
    dw_model_initialize(all, 42);
    dw_model_initialize(last, 42);
    const dw_part *a = dw_model_part(all, 3), *b = dw_model_part(last, 0);
    assert_string_equal(a->name, "block-02");
    assert_string_equal(b->name, "block-02");
    assert_memory_equal(a->params, b->params, a->n * sizeof(float));
    /* Weights have the requested deviation, and every block has weights of its own. */
    const dw_parameter *t = &a->tensors[DW_BLOCK_WIDEN];
    double square = 0;
    size_t n = (size_t)t->rows * t->columns;
    for (size_t i = 0; i < n; i++) square += pow((double)a->params[t->offset + i], 2) / (double)n;
    assert_true(fabs(sqrt(square) / 0.02 - 1) < 0.1);
    assert_memory_not_equal(a->params, dw_model_part(all, 2)->params, a->n * sizeof(float));
    dw_model_destroy(all);
    dw_model_destroy(last);
}

RUN_TESTS(NULL, NULL)
