/* SPDX-License-Identifier: Apache-2.0
 * test_repeat.c - a batch that is used several times in a row: later uses are changes since the one
 * before, and codecs keep the state of one batch, however many samples there are. */
#include "pipeline.h"

enum { REPEAT = 3 };

/* 3 batches, each in 3 steps. Encoders whose decoders do not reply keep one copy of prev, so that
 * the size of all state depends on no timing. */
static pipeline a_repeated_run(void)
{
    pipeline run = a_run();
    run.config.repeat = REPEAT;
    run.config.epochs = 1;
    run.config.forward = "delta:bits=2,group=32,replies=never";
    run.config.backward = "delta:bits=3,group=32,replies=never";
    return run;
}

TEST(a_batch_is_used_in_consecutive_steps)
{
    pipeline run = a_repeated_run(), once = a_run();
    run.config.forward = run.config.backward = once.config.forward = "raw:f32";
    run_whole(&run, 1);
    run_pipeline(&once, 1, NULL);
    assert_int_equal(run.steps, 9);
    assert_int_equal(run.evals, 1); /* after an epoch */
    assert_true(run.loss[0] == once.loss[0] && run.loss[1] != once.loss[1]);
    for (uint32_t batch = 0; batch < 3; batch++)
        for (uint32_t use = 1; use < REPEAT; use++)
            assert_true(run.loss[batch * REPEAT + use] < run.loss[batch * REPEAT + use - 1]);
    for (uint32_t stages = 2; stages <= 3; stages++) {
        pipeline other = run;
        run_whole(&other, stages);
        assert_same_run(&run, &other);
    }
}

static uint64_t frames_of(const pipeline *run, uint32_t step)
{
    uint64_t before = step ? run->so_far[step - 1].frames_forward : 0;
    return run->so_far[step].frames_forward - before;
}

TEST(repeated_batches_are_sent_as_deltas)
{
    for (uint32_t slices = 1; slices <= 3; slices += 2) {
        pipeline run = a_repeated_run();
        run.config.slices = slices;
        run_whole(&run, 2);
        for (uint32_t step = 0; step < 9; step++)
            assert_int_equal(frames_of(&run, step), frames_of(&run, step % REPEAT > 0));
        /* 8 bits for a first use, and 2 for a change, and headers. */
        assert_true(3 * frames_of(&run, 1) < 2 * frames_of(&run, 0));
        uint64_t raw = run.so_far[0].raw_forward;
        assert_true(raw < 5 * frames_of(&run, 0) && raw > 2 * frames_of(&run, 0));
        /* An evaluation of 7 samples has as many frames as a step of 8, all of first uses. */
        uint64_t evaluated = run.summary.cost.frames_forward - run.so_far[8].frames_forward;
        assert_true(8 * evaluated > 7 * frames_of(&run, 0));
    }
}

TEST(repeated_batches_keep_the_state_of_one_batch)
{
    pipeline run = a_repeated_run();
    run_whole(&run, 2);
    for (uint32_t step = 1; step < 9; step++)
        assert_int_equal(run.so_far[step].state_bytes, run.so_far[0].state_bytes);
    /* One copy at both ends, in both directions. */
    uint64_t copies = 4ull * 8 * 24 * 32 * sizeof(float);
    assert_true(run.so_far[0].state_bytes >= copies);
    assert_true(run.so_far[0].state_bytes < copies + copies / 8);
    /* An evaluation keeps a micro-batch of 2 at both ends, however many samples it has. */
    uint64_t evaluated = 2ull * 2 * 24 * 32 * sizeof(float);
    assert_true(run.summary.cost.state_bytes >= copies + evaluated);
    assert_true(run.summary.cost.state_bytes < copies + evaluated + copies / 8);
}

RUN_TESTS(pipeline_set_up, pipeline_tear_down)
