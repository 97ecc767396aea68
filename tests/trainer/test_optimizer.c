/* SPDX-License-Identifier: Apache-2.0
 * test_optimizer.c - compares AdamW with its definition in double; tests the learning rate and
 * clipping. */
#include <math.h>
#include <string.h>

#include "optimizer.h"
#include "random.h"
#include "support/test.h"

static const dw_model_shape shape = {.layers = 1, .channels = 16, .heads = 2, .context = 8};
static const dw_optimizer optimizer = {.lr = 3e-3,
                                       .beta1 = 0.9,
                                       .beta2 = 0.95,
                                       .epsilon = 1e-8,
                                       .decay = 0.1,
                                       .clip = 1,
                                       .warmup = 4,
                                       .steps = 20};

static float noise(uint32_t stream, size_t i)
{
    return (float)dw_random(1, DW_RANDOM_PARAMETERS, stream, i).v[0] / 2147483648.0f - 1;
}

TEST(learning_rate_rises_and_falls_linearly)
{
    const double expected[] = {0.25, 0.5, 0.75, 1, 1, 15.0 / 16, 14.0 / 16};
    for (uint32_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_true(fabs(dw_optimizer_rate(&optimizer, i) - 3e-3 * expected[i]) < 1e-12);
    assert_true(fabs(dw_optimizer_rate(&optimizer, 19) - 3e-3 / 16) < 1e-12);
    dw_optimizer cold = optimizer;
    cold.warmup = 0;
    assert_true(dw_optimizer_rate(&cold, 0) == 3e-3);
}

/* AdamW as in arXiv:1711.05101, Algorithm 2: five steps, computed in double. */
TEST(updates_agree_with_the_definition)
{
    dw_part part;
    assert_int_equal(dw_part_create(&part, &shape, 1), DW_OK);
    dw_part_initialize(&part, 5);
    double *p = malloc(part.n * sizeof *p), *m = calloc(part.n, sizeof *m),
           *v = calloc(part.n, sizeof *v);
    for (size_t i = 0; i < part.n; i++) p[i] = (double)part.params[i];
    for (uint32_t step = 0; step < 5; step++) {
        for (size_t i = 0; i < part.n; i++) part.grads[i] = noise(step, i);
        double norm = sqrt(dw_optimizer_sum(&part)), scale = norm > 1 ? 1 / norm : 1;
        double lr = dw_optimizer_rate(&optimizer, step);
        for (uint32_t k = 0; k < part.n_tensors; k++) {
            const dw_parameter *t = &part.tensors[k];
            for (size_t i = t->offset; i < t->offset + (size_t)t->rows * t->columns; i++) {
                double g = (double)part.grads[i] * scale;
                m[i] = 0.9 * m[i] + 0.1 * g;
                v[i] = 0.95 * v[i] + 0.05 * g * g;
                double mean = m[i] / (1 - pow(0.9, step + 1)),
                       square = v[i] / (1 - pow(0.95, step + 1));
                p[i] -= lr * (mean / (sqrt(square) + 1e-8) + (t->rows > 1 ? 0.1 * p[i] : 0));
            }
        }
        dw_optimizer_update(&optimizer, &part, step, norm);
    }
    for (size_t i = 0; i < part.n; i++) {
        if (fabs((double)part.params[i] - p[i]) > 2e-6)
            fail_msg("parameter %zu is %.9g, not %.9g", i, (double)part.params[i], p[i]);
        assert_true(part.grads[i] == 0);
    }
    free(p), free(m), free(v);
    dw_part_destroy(&part);
}

TEST(weight_decay_leaves_vectors_alone)
{
    dw_part part;
    assert_int_equal(dw_part_create(&part, &shape, 1), DW_OK);
    for (size_t i = 0; i < part.n; i++) part.params[i] = 1;
    dw_optimizer_update(&optimizer, &part, 4, 0);
    for (uint32_t k = 0; k < part.n_tensors; k++) {
        const dw_parameter *t = &part.tensors[k];
        float expected = t->rows > 1 ? 1 - 3e-3f * 0.1f : 1;
        assert_true(fabsf(part.params[t->offset] - expected) < 1e-6f);
    }
    dw_part_destroy(&part);
}

TEST(a_small_gradient_is_not_clipped)
{
    dw_part a, b;
    assert_int_equal(dw_part_create(&a, &shape, 2), DW_OK);
    assert_int_equal(dw_part_create(&b, &shape, 2), DW_OK);
    dw_optimizer free_run = optimizer;
    free_run.clip = 0;
    a.grads[7] = b.grads[7] = 0.6f;
    dw_optimizer_update(&optimizer, &a, 0, 0.6);
    dw_optimizer_update(&free_run, &b, 0, 0.6);
    assert_memory_equal(a.params, b.params, a.n * sizeof(float));
    assert_true(fabsf(a.mean[7] - 0.06f) < 1e-7f);
    a.grads[7] = 6; /* six times the limit, so clipping divides it by 6 */
    a.mean[7] = 0;
    dw_optimizer_update(&optimizer, &a, 1, 6);
    assert_true(fabsf(a.mean[7] - 0.1f) < 1e-7f);
    dw_part_destroy(&a);
    dw_part_destroy(&b);
}

TEST(the_norm_adds_parts_in_order)
{
    const double sums[] = {1e16, 1, 1, 1, 9};
    double expected = 0;
    for (int i = 0; i < 5; i++) expected += sums[i];
    assert_true(dw_optimizer_norm(sums, 5) == sqrt(expected));
    dw_part part;
    assert_int_equal(dw_part_create(&part, &shape, 0), DW_OK);
    double square = 0;
    for (size_t i = 0; i < part.n; i++) {
        part.grads[i] = noise(3, i);
        square += (double)part.grads[i] * (double)part.grads[i];
    }
    assert_true(fabs(dw_optimizer_sum(&part) / square - 1) < 1e-13);
    dw_part_destroy(&part);
}

RUN_TESTS(NULL, NULL)
