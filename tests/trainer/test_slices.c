/* SPDX-License-Identifier: Apache-2.0
 * test_slices.c - slices cover all tokens, and a model that computes slice by slice gives the
 * losses and gradients of one that computes whole samples. */
#include <math.h>

#include "model.h"
#include "pipeline.h"
#include "random.h"
#include "slices.h"
#include "stirred.h"

enum { N = 3, T = 13 }; /* T is a multiple neither of the vector length nor of any S but 1 and T */
static const dw_model_shape shape = {.layers = 3, .channels = 24, .heads = 3, .context = T};
static uint8_t samples[2][N * (T + 1)];

TEST(slices_cover_all_tokens)
{
    for (uint32_t t = 1; t <= 40; t++)
        for (uint32_t s = 1; s <= t; s++) {
            uint32_t next = 0;
            for (uint32_t i = 0; i < s; i++) {
                dw_slice slice = dw_slice_of(t, s, i);
                assert_int_equal(slice.start, next);
                assert_in_range(slice.tokens, t / s, (t + s - 1) / s);
                assert_true(slice.tokens <= dw_slice_longest(t, s));
                next += slice.tokens;
            }
            assert_int_equal(next, t);
        }
}

/* Slices first..last - 1 of micro-batch m forward; the second one has a sample less. */
static double forward(dw_model *model, uint32_t m, uint32_t first, uint32_t last)
{
    double loss = 0;
    for (uint32_t i = first; i < last; i++) {
        dw_model_forward(model, m, i, N - m, samples[m]);
        loss += dw_model_loss(model, m, i, true, 0.1f);
    }
    return loss;
}

static void backward(dw_model *model, uint32_t m, uint32_t S)
{
    for (uint32_t i = S; i-- > 0;) dw_model_backward(model, m, i);
}

static double one_after_another(dw_model *whole)
{
    double loss = forward(whole, 0, 0, 1);
    backward(whole, 0, 1);
    loss += forward(whole, 1, 0, 1);
    backward(whole, 1, 1);
    return loss;
}

/* The first slice of the second micro-batch goes forward before the first one goes backward. */
static double both_at_once(dw_model *model, uint32_t S)
{
    double loss = forward(model, 0, 0, S) + forward(model, 1, 0, 1);
    backward(model, 0, S);
    loss += forward(model, 1, 1, S);
    backward(model, 1, S);
    return loss;
}

static dw_model *model_in_slices(uint32_t S)
{
    dw_model *model;
    assert_int_equal(dw_model_create(&model, &shape, 0, dw_model_parts(&shape), N, 2, S), DW_OK);
    stir(model);
    return model;
}

static void assert_close(const dw_part *part, const dw_parameter *tensor, const float *expected,
                         uint32_t S)
{
    size_t n = (size_t)tensor->rows * tensor->columns;
    const float *gradient = part->grads + tensor->offset;
    double largest = 0, error = 0;
    for (size_t i = 0; i < n; i++) {
        double one = (double)expected[tensor->offset + i];
        largest = fmax(largest, fabs(one));
        error = fmax(error, fabs((double)gradient[i] - one));
    }
    assert_true(largest > 0);
    if (!(error <= 1e-5 * largest))
        fail_msg("%u slices: a gradient of %s %s is wrong by %g; the largest is %g", S, part->name,
                 tensor->name, error, largest);
}

TEST(gradients_are_those_of_whole_samples)
{
    static const uint32_t slices[] = {2, 3, 5, 12, T};
    for (int m = 0; m < 2; m++)
        for (size_t i = 0; i < sizeof samples[m]; i++)
            samples[m][i] =
                (uint8_t)(dw_random(5, DW_RANDOM_SHUFFLE, (uint32_t)m, i).v[0] % 96 + 32);
    dw_model *whole = model_in_slices(1);
    double loss = one_after_another(whole);
    for (size_t k = 0; k < sizeof slices / sizeof *slices; k++) {
        dw_model *model = model_in_slices(slices[k]);
        /* The second time finds what the first one has left. Both give the same gradients. */
        for (int times = 0; times < 2; times++) {
            double found = both_at_once(model, slices[k]);
            if (!(fabs(found - loss) <= 1e-6 * loss))
                fail_msg("%u slices: the loss is %.9g, not %.9g", slices[k], found, loss);
            for (uint32_t p = 0; p < dw_model_part_count(model); p++) {
                dw_part *part = dw_model_part(model, p);
                for (uint32_t t = 0; t < part->n_tensors; t++)
                    assert_close(part, &part->tensors[t], dw_model_part(whole, p)->grads,
                                 slices[k]);
                memset(part->grads, 0, part->n * sizeof *part->grads);
            }
        }
        dw_model_destroy(model);
    }
    dw_model_destroy(whole);
}

TEST(rejects_impossible_numbers_of_slices)
{
    const uint32_t bad[] = {0, T + 1, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        dw_model *model = (dw_model *)1;
        assert_int_equal(dw_model_create(&model, &shape, 0, 3, N, 1, bad[i]), DW_ERR_ARGUMENT);
        assert_null(model);
    }
}

/* ---- Complete runs --------------------------------------------------------------------------- */

static void assert_close_numbers(const double *a, const double *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!(fabs(a[i] - b[i]) <= 1e-5 * fabs(b[i])))
            fail_msg("number %u is %.9g, not %.9g", i, a[i], b[i]);
}

/* Sums are made in another order, so bits may differ from those of whole samples, but not between
 * numbers of stages. */
TEST_WITH(slices_give_the_losses_of_whole_samples, pipeline_set_up, pipeline_tear_down)
{
    static const uint32_t slices[] = {2, 5, 24};
    pipeline whole = a_run();
    run_pipeline(&whole, 1, NULL);
    for (size_t i = 0; i < sizeof slices / sizeof *slices; i++) {
        pipeline one = a_run();
        one.config.slices = slices[i];
        run_whole(&one, 1);
        assert_int_equal(one.steps, whole.steps);
        assert_int_equal(one.evals, whole.evals);
        assert_close_numbers(one.loss, whole.loss, whole.steps);
        assert_close_numbers(one.norm, whole.norm, whole.steps);
        assert_close_numbers(one.held_out, whole.held_out, whole.evals);
        for (uint32_t stages = 2; stages <= 3; stages++) {
            pipeline many = a_run();
            many.config.slices = slices[i];
            run_whole(&many, stages);
            assert_same_run(&one, &many);
        }
    }
}

/* The parameters hardly change, so after the first epoch no slice differs from its own last visit,
 * and entries without payload are sent. Slices of the same sample do differ. */
TEST_WITH(every_slice_has_a_prev_of_its_own, pipeline_set_up, pipeline_tear_down)
{
    uint64_t frames[2];
    for (uint32_t epochs = 1; epochs <= 2; epochs++) {
        pipeline run = a_run();
        run.config.forward = run.config.backward = "delta:bits=8,key=f32,skip=0.3";
        run.config.lr = 1e-12;
        run.config.held_out = 0;
        run.config.samples = 24; /* all of which an epoch visits */
        run.config.slices = 4;
        run.config.epochs = epochs;
        run_whole(&run, 2);
        frames[epochs - 1] = run.summary.cost.frames_forward + run.summary.cost.frames_backward;
    }
    /* What is left are the headers. */
    assert_true(frames[1] - frames[0] < frames[0] / 5);
}

/* A checkpoint knows no slices, so a run that continues may have others. */
TEST_WITH(a_resumed_run_gives_the_same_bits, pipeline_set_up, pipeline_tear_down)
{
    pipeline whole = a_run();
    whole.config.slices = 2;
    pipeline resumed = whole;
    run_whole(&whole, 2);
    run_until_saved(&resumed, 2, 4);
    pipeline other = resumed;
    run_whole(&resumed, 3);
    assert_memory_equal(resumed.loss + 4, whole.loss + 4, 5 * sizeof *whole.loss);
    other.config.slices = 7;
    run_whole(&other, 2);
    assert_close_numbers(other.loss + 4, whole.loss + 4, 5);
}

RUN_TESTS(NULL, NULL)
