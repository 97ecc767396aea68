/* SPDX-License-Identifier: Apache-2.0
 * test_group_device.c - buffers on a fake device: the same bits as in main memory, streams, and a
 * driver that fails. */
#include "base/cuda_memory.h"
#include "device_rig.h"

enum { RANKS = 3 };
static const char loop[] = "loop://device-%d";

/* ---- The same bits --------------------------------------------------------------------------- */

/* Runs the job with buffers in main memory and with buffers on the device, and compares. */
static void compare(group_rig *rigs, dw_group_job job, uint64_t seed, dw_cuda *cuda,
                    unsigned devices, bool in_place)
{
    rig_operation host = {.in_place = in_place}, device = {.in_place = in_place};
    operation_prepare(&host, &rigs[0], job, seed, cuda, 0);
    operation_prepare(&device, &rigs[1], job, seed, cuda, devices);
    operation_run(&host);
    operation_run(&device);
    for (uint32_t r = 0; r < rigs->ranks; r++)
        if (!operation_y_is(&device, r, host.y[r]))
            fail_msg("operation %d of %llu floats of dtype %d, devices %u: rank %u has other bits",
                     (int)job.operation, (unsigned long long)job.n, (int)job.dtype, devices, r);
    operation_drop(&host);
    operation_drop(&device);
}

TEST(buffers_on_a_device_give_the_same_bits)
{
    static const char *const codecs[] = {"raw:f32", "delta:bits=4", "direct:bits=2,feedback=ef"};
    static const uint64_t lengths[] = {0, 1, 2049, LONG};
    static const dw_dtype dtypes[] = {DW_F32, DW_F16, DW_BF16};
    static const unsigned devices[] = {7, 2, 5, 7}; /* visit after visit */
    static group_rig rigs[2];
    dw_cuda *cuda = device_open();
    for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++) {
        for (int i = 0; i < 2; i++) rig_start(&rigs[i], loop, RANKS, codecs[c]);
        for (int operation = DW_ALL_REDUCE; operation <= DW_BROADCAST; operation++) {
            for (unsigned i = 0; i < 12; i++) {
                dw_group_job job = {.operation = (dw_operation)operation,
                                    .dtype = dtypes[i % 3],
                                    .n = lengths[i / 3],
                                    .slot = (uint64_t)operation * 100 + i,
                                    .mean = operation <= DW_REDUCE_SCATTER && i % 2,
                                    .root = operation == DW_BROADCAST ? i % RANKS : 0};
                for (unsigned visit = 0; visit < 4; visit++) {
                    bool in_place = visit == 1 && operation != DW_ALL_GATHER;
                    compare(rigs, job, visit * 1000 + i, cuda, devices[visit], in_place);
                }
            }
        }
        for (int i = 0; i < 2; i++) rig_close(&rigs[i]);
    }
    device_close(cuda);
}

TEST(one_rank_copies_on_the_device)
{
    static group_rig rig;
    dw_cuda *cuda = device_open();
    rig_start(&rig, loop, 1, "direct:bits=2");
    for (int operation = DW_ALL_REDUCE; operation <= DW_BROADCAST; operation++) {
        for (int in_place = 0; in_place < 2; in_place++) {
            rig_operation act = {.in_place = in_place};
            float x[100];
            dw_group_job job = {.operation = (dw_operation)operation, .dtype = DW_F32, .n = 100};
            operation_prepare(&act, &rig, job, 5, cuda, 1);
            device_read(x, act.x[0], sizeof x);
            operation_run(&act);
            assert_true(operation_y_is(&act, 0, x));
            operation_drop(&act);
        }
    }
    rig_close(&rig);
    device_close(cuda);
}

/* ---- Streams --------------------------------------------------------------------------------- */

/* Enqueues a copy; the fake does it when the stream is waited for. */
static void enqueue_copy(const dw_cuda *cuda, void *to, const void *from, size_t bytes,
                         void *stream)
{
    dw_cuda_result error;
    assert_true(dw_cuda_enter(cuda, &error));
    assert_int_equal(cuda->driver.copy((uintptr_t)to, (uintptr_t)from, bytes, stream), 0);
    dw_cuda_leave(cuda);
}

/* x is made by work that is enqueued before the operation, and what is enqueued after it is not
 * waited for, although the operation ends. */
static void follow(dw_cuda *cuda, void *stream)
{
    static group_rig rig;
    fake_cuda *fake = fake_cuda_get();
    static rig_operation act, plain;
    dw_group_job job = {.operation = DW_ALL_REDUCE, .dtype = DW_F32, .n = LONG};
    float *values = malloc(LONG * sizeof *values);
    rig_start(&rig, loop, 2, "raw:f32");
    operation_prepare(&plain, &rig, job, 8, NULL, 0);
    operation_run(&plain);
    operation_prepare(&act, &rig, job, 8, cuda, 2);
    void *made = fake->allocate(act.x_bytes[1]), *later = fake->allocate(act.x_bytes[1]);
    device_read(values, act.x[1], act.x_bytes[1]);
    device_write(made, values, act.x_bytes[1]);
    memset(values, 0, act.x_bytes[1]);
    device_write(act.x[1], values, act.x_bytes[1]);
    device_write(later, values, act.x_bytes[1]);
    enqueue_copy(cuda, act.x[1], made, act.x_bytes[1], stream);
    act.job[1].stream = stream;
    assert_int_equal(dw_group_start(rig.group[1], &act.job[1]), DW_OK);
    /* x is free as soon as start has returned. */
    device_write(act.x[1], values, act.x_bytes[1]);
    enqueue_copy(cuda, later, made, act.x_bytes[1], NULL);
    long waits = fake->synchronizations;
    assert_int_equal(dw_group_run(rig.group[0], &act.job[0], PATIENCE_MS), DW_OK);
    assert_int_equal(dw_group_wait(rig.group[1], 0, PATIENCE_MS), DW_OK);
    assert_int_equal(fake->synchronizations, waits);
    for (uint32_t r = 0; r < 2; r++) assert_true(operation_y_is(&act, r, plain.y[r]));
    float *untouched = malloc(act.x_bytes[1]);
    device_read(untouched, later, act.x_bytes[1]);
    assert_memory_equal(untouched, values, act.x_bytes[1]);
    fake->run();
    free(untouched);
    free(values);
    fake->release(made);
    fake->release(later);
    operation_drop(&act);
    operation_drop(&plain);
    rig_close(&rig);
}

TEST(operations_wait_for_earlier_work_on_their_stream)
{
    dw_cuda *cuda = device_open();
    void *stream;
    follow(cuda, NULL);
    assert_int_equal(dw_cuda_stream_create(cuda, &stream, NULL), DW_OK);
    follow(cuda, stream);
    dw_cuda_stream_destroy(cuda, stream);
    device_close(cuda);
}

/* A rank that reads nothing waits, too: earlier work may still read what is in y. */
TEST(a_rank_that_only_receives_waits_for_its_stream)
{
    static group_rig rig;
    static rig_operation act;
    fake_cuda *fake = fake_cuda_get();
    dw_cuda *cuda = device_open();
    dw_group_job job = {.operation = DW_BROADCAST, .dtype = DW_BF16, .n = LONG};
    rig_start(&rig, loop, 2, "raw:bf16");
    operation_prepare(&act, &rig, job, 3, cuda, 2);
    unsigned char *before = fake->allocate(act.y_bytes[1]), *now = malloc(act.y_bytes[1]);
    enqueue_copy(cuda, before, act.y[1], act.y_bytes[1], NULL);
    operation_run(&act);
    fake->run();
    assert_true(operation_y_is(&act, 1, act.y[0]));
    device_read(now, before, act.y_bytes[1]);
    for (size_t i = 0; i < act.y_bytes[1]; i++) assert_int_equal(now[i], BLANK);
    free(now);
    fake->release(before);
    operation_drop(&act);
    rig_close(&rig);
    device_close(cuda);
}

TEST(bad_jobs_are_refused)
{
    static group_rig rig;
    static rig_operation act;
    fake_cuda *fake = fake_cuda_get();
    dw_cuda *cuda = device_open(), *other = device_open();
    dw_group_job job = {.operation = DW_ALL_REDUCE, .dtype = DW_F32, .n = 100};
    rig_start(&rig, loop, 2, "raw:f32");
    dw_group *group = rig.group[1];
    operation_prepare(&act, &rig, job, 3, cuda, 2);
    fake->capturing = true;
    assert_int_equal(dw_group_start(group, &act.job[1]), DW_ERR_ARGUMENT);
    fake->capturing = false;
    assert_non_null(strstr(dw_group_why(group, NULL), "capturing"));
    act.job[1].cuda = other; /* the first one that was given is the group's */
    assert_int_equal(dw_group_start(group, &act.job[1]), DW_ERR_ARGUMENT);
    assert_non_null(strstr(dw_group_why(group, NULL), "another dw_cuda"));
    act.job[1].cuda = NULL;
    act.job[1].stream = &act;
    assert_int_equal(dw_group_start(group, &act.job[1]), DW_ERR_ARGUMENT);
    assert_non_null(strstr(dw_group_why(group, NULL), "a stream and no cuda"));
    act.job[1].stream = NULL;
    act.job[1].cuda = cuda;
    act.job[1].x = NULL;
    assert_int_equal(dw_group_start(group, &act.job[1]), DW_ERR_ARGUMENT);
    act.job[1].x = act.x[1];
    act.job[1].struct_size = offsetof(dw_group_job, stream); /* a struct without it */
    assert_int_equal(rig_failed_rank(group), -1);
    operation_run(&act); /* nothing of all this was started */
    assert_true(operation_y_is(&act, 1, act.y[0]));
    operation_drop(&act);
    rig_close(&rig);
    dw_cuda_close(other);
    device_close(cuda);
}

/* ---- Errors ---------------------------------------------------------------------------------- */

/* The driver fails once, at each of its calls in turn, while rank 1 runs an operation. If start
 * returns the error, nothing was started, and the same call works then. If the result cannot be
 * copied, the group fails on all ranks; a rank that has the result keeps it. */
TEST(a_failing_driver_is_reported)
{
    static group_rig rig;
    static rig_operation act, plain;
    fake_cuda *fake = fake_cuda_get();
    dw_group_job job = {.operation = DW_ALL_REDUCE, .dtype = DW_F16, .n = LONG};
    int refused = 0, failed = 0;
    bool ends = false;
    for (long at = 0; !ends; at++) {
        dw_cuda *cuda = device_open();
        rig_start(&rig, loop, 2, "direct:bits=4");
        operation_prepare(&plain, &rig, job, 8, NULL, 0);
        operation_run(&plain);
        operation_prepare(&act, &rig, job, 8, cuda, 2);
        fake->calls = 0;
        fake->fail_at = at;
        dw_status status = dw_group_start(rig.group[1], &act.job[1]);
        if (status != DW_OK) {
            assert_true(status == DW_ERR_IO || status == DW_ERR_NO_MEMORY);
            assert_string_not_equal(dw_group_why(rig.group[1], NULL), "");
            assert_int_equal(rig_failed_rank(rig.group[1]), -1);
            assert_true(operation_y_is(&act, 1, NULL));
            refused++;
            assert_int_equal(dw_group_start(rig.group[1], &act.job[1]), DW_OK);
        }
        act.status[0] = dw_group_run(rig.group[0], &act.job[0], PATIENCE_MS);
        act.status[1] = dw_group_wait(rig.group[1], 0, PATIENCE_MS);
        ends = fake->calls <= at;
        fake->fail_at = -1;
        if (act.status[1] != DW_OK) {
            assert_int_equal(act.status[1], DW_ERR_IO);
            assert_int_equal(rig_failed_rank(rig.group[1]), 1);
            assert_non_null(strstr(dw_group_why(rig.group[1], NULL), "rank 1 cannot copy"));
            if (act.status[0] == DW_OK) /* the next call has the error */
                act.status[0] = dw_group_run(rig.group[0], &act.job[0], PATIENCE_MS);
            else
                assert_true(operation_y_is(&act, 0, NULL));
            assert_int_equal(act.status[0], DW_ERR_IO);
            assert_int_equal(rig_failed_rank(rig.group[0]), 1);
            assert_int_equal(dw_group_start(rig.group[1], &act.job[1]), DW_ERR_IO);
            failed++;
        } else {
            for (uint32_t r = 0; r < 2; r++) assert_true(operation_y_is(&act, r, plain.y[r]));
        }
        operation_drop(&act);
        operation_drop(&plain);
        rig_close(&rig);
        /* Setting the capture mode back may have failed, here or in the group's thread. */
        fake->forget_mode();
        fake->mode = 0;
        device_close(cuda);
    }
    assert_true(refused > 4); /* the stream, memory, x */
    assert_true(failed > 2);  /* y */
}

/* An operation that ends with an error of another rank writes nothing to the device. */
TEST(device_output_is_unchanged_after_an_error)
{
    static group_rig rig;
    static rig_operation act;
    dw_cuda *cuda = device_open();
    dw_group_job job = {.operation = DW_ALL_REDUCE, .dtype = DW_F32, .n = LONG};
    rig_start(&rig, loop, RANKS, "raw:f32");
    operation_prepare(&act, &rig, job, 8, cuda, 7);
    act.job[2].mean = 1;
    rig_each(&rig, operation_run_rank, &act);
    for (uint32_t r = 0; r < RANKS; r++) {
        assert_int_equal(act.status[r], DW_ERR_MISMATCH);
        assert_true(operation_y_is(&act, r, NULL));
    }
    operation_drop(&act);
    rig_close(&rig);
    device_close(cuda);
}

RUN_TESTS_GIVEN(device_library)
