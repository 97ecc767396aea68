/* SPDX-License-Identifier: Apache-2.0
 * test_group_device.c - buffers on a fake device, whose memory the host cannot touch and whose work
 * waits until its stream is waited for: the same bits as in main memory, streams, and a driver that
 * fails. */
#include "../../cuda/device.h"
#include "../cuda/fake_cuda.h"
#include "group_rig.h"

enum { PATIENCE_MS = 60000, RANKS = 3, LONG = 20513, BLANK = 0xee, GUARD = 64 };
static const char loop[] = "loop://device-%d";
static const char *library;

/* ---- The device ------------------------------------------------------------------------------ */

static dw_cuda *open_device(void)
{
    dw_cuda *cuda;
    dw_why why;
    if (dw_cuda_open_library(&cuda, library, "kernels", 0, &why)) fail_msg("%s", why.text);
    return cuda;
}

static void close_device(dw_cuda *cuda)
{
    const fake_cuda *fake = fake_cuda_get();
    dw_cuda_close(cuda);
    assert_int_equal(fake->retained, 0);
    assert_int_equal(fake->blocks, 0);
    assert_int_equal(fake->streams, 0);
    assert_int_equal(fake->depth, 0);
    assert_int_equal(fake->mode, 0);
}

static void write_device(void *to, const void *from, size_t bytes)
{
    fake_cuda_get()->touch(true);
    memcpy(to, from, bytes);
    fake_cuda_get()->touch(false);
}

static void read_device(void *to, const void *from, size_t bytes)
{
    write_device(to, from, bytes);
}

/* Enqueues a copy; the fake does it when the stream is waited for. */
static void enqueue_copy(const dw_cuda *cuda, void *to, const void *from, size_t bytes,
                         void *stream)
{
    dw_cuda_result error;
    assert_true(dw_cuda_enter(cuda, &error));
    assert_int_equal(cuda->driver.copy((uintptr_t)to, (uintptr_t)from, bytes, stream), 0);
    dw_cuda_leave(cuda);
}

/* ---- One operation on all ranks -------------------------------------------------------------- */

typedef struct deed {
    group_rig *rig;
    dw_group_job job[RIG_MOST];
    void *x[RIG_MOST], *y[RIG_MOST]; /* of the job: in main memory or on the device */
    size_t x_bytes[RIG_MOST], y_bytes[RIG_MOST];
    bool in_place;
    dw_status started[RIG_MOST], status[RIG_MOST];
} deed;

static void run_one(void *context, uint32_t rank)
{
    deed *act = context;
    dw_group *group = act->rig->group[rank];
    act->status[rank] = act->started[rank] = dw_group_start(group, &act->job[rank]);
    if (act->status[rank] == DW_OK)
        act->status[rank] = dw_group_wait(group, act->job[rank].slot, PATIENCE_MS);
}

/* With some bytes behind it that nobody may write. */
static void *make_buffer(bool on_device, const void *values, size_t bytes)
{
    unsigned char guard[GUARD];
    memset(guard, BLANK, GUARD);
    unsigned char *made =
        on_device ? fake_cuda_get()->allocate(bytes + GUARD) : malloc(bytes + GUARD);
    write_device(made, values, bytes);
    write_device(made + bytes, guard, GUARD);
    return made;
}

static void drop_buffer(bool on_device, void *buffer)
{
    if (on_device)
        fake_cuda_get()->release(buffer);
    else
        free(buffer);
}

/* Makes buffers for a job, with random values. devices: the ranks of which they are on `cuda`. */
static void prepare(deed *act, group_rig *rig, dw_group_job job, uint64_t seed, dw_cuda *cuda,
                    unsigned devices)
{
    *act = (deed){.rig = rig, .in_place = act->in_place};
    size_t each = dw_dtype_bytes(job.dtype);
    void *values = malloc((size_t)job.n * each + 1), *blank = malloc((size_t)job.n * each + 1);
    memset(blank, BLANK, (size_t)job.n * each + 1);
    for (uint32_t r = 0; r < rig->ranks; r++) {
        uint64_t begin, count;
        bool on_device = devices >> r & 1;
        dw_group_part(job.n, r, rig->ranks, &begin, &count);
        uint64_t reads = job.operation == DW_ALL_GATHER ? count : job.n;
        uint64_t writes = job.operation == DW_REDUCE_SCATTER ? count : job.n;
        act->x_bytes[r] = (size_t)reads * each;
        act->y_bytes[r] = (size_t)writes * each;
        rig_fill(values, job.dtype, reads, seed * 10 + r);
        act->x[r] = make_buffer(on_device, values, act->x_bytes[r]);
        act->y[r] = act->in_place ? (unsigned char *)act->x[r] +
                                        (job.operation == DW_REDUCE_SCATTER ? begin * each : 0)
                                  : make_buffer(on_device, blank, act->y_bytes[r]);
        act->job[r] = job;
        act->job[r].struct_size = sizeof job;
        act->job[r].cuda = on_device ? cuda : NULL;
        bool reads_x = job.operation != DW_BROADCAST || job.root == r;
        act->job[r].x = reads_x ? act->x[r] : NULL;
        act->job[r].y = act->y[r];
    }
    free(values);
    free(blank);
}

static void drop(deed *act)
{
    for (uint32_t r = 0; r < act->rig->ranks; r++) {
        drop_buffer(act->job[r].cuda != NULL, act->x[r]);
        if (!act->in_place) drop_buffer(act->job[r].cuda != NULL, act->y[r]);
    }
}

static void run_all(deed *act)
{
    rig_each(act->rig, run_one, act);
    for (uint32_t r = 0; r < act->rig->ranks; r++)
        if (act->status[r] != DW_OK)
            fail_msg("rank %u: %d: %s", r, (int)act->status[r], dw_group_why(act->rig->group[r]));
}

/* Whether y of a rank holds these bytes; NULL: what it held before the operation. */
static bool y_is(const deed *act, uint32_t rank, const void *expected)
{
    size_t bytes = act->y_bytes[rank], guard = act->in_place ? 0 : GUARD;
    unsigned char *y = malloc(bytes + GUARD), *blank = malloc(bytes + GUARD);
    memset(blank, BLANK, bytes + GUARD);
    read_device(y, act->y[rank], bytes + guard);
    bool is =
        memcmp(y, expected ? expected : blank, bytes) == 0 && memcmp(y + bytes, blank, guard) == 0;
    free(y);
    free(blank);
    return is;
}

/* ---- The same bits --------------------------------------------------------------------------- */

/* Runs the job with buffers in main memory and with buffers on the device, and compares. */
static void compare(group_rig *rigs, dw_group_job job, uint64_t seed, dw_cuda *cuda,
                    unsigned devices, bool in_place)
{
    deed host = {.in_place = in_place}, device = {.in_place = in_place};
    prepare(&host, &rigs[0], job, seed, cuda, 0);
    prepare(&device, &rigs[1], job, seed, cuda, devices);
    run_all(&host);
    run_all(&device);
    for (uint32_t r = 0; r < rigs->ranks; r++)
        if (!y_is(&device, r, host.y[r]))
            fail_msg("operation %d of %llu floats of dtype %d, devices %u: rank %u has other bits",
                     (int)job.operation, (unsigned long long)job.n, (int)job.dtype, devices, r);
    drop(&host);
    drop(&device);
}

static void buffers_on_a_device_give_the_same_bits(void **state)
{
    (void)state;
    static const char *const codecs[] = {"raw:f32", "delta:bits=4", "direct:bits=2,feedback=ef"};
    static const uint64_t lengths[] = {0, 1, 2049, LONG};
    static const dw_dtype dtypes[] = {DW_F32, DW_F16, DW_BF16};
    static const unsigned devices[] = {7, 2, 5, 7}; /* visit after visit */
    static group_rig rigs[2];
    dw_cuda *cuda = open_device();
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
    close_device(cuda);
}

static void one_rank_copies_on_the_device(void **state)
{
    (void)state;
    static group_rig rig;
    dw_cuda *cuda = open_device();
    rig_start(&rig, loop, 1, "direct:bits=2");
    for (int operation = DW_ALL_REDUCE; operation <= DW_BROADCAST; operation++) {
        for (int in_place = 0; in_place < 2; in_place++) {
            deed act = {.in_place = in_place};
            float x[100];
            dw_group_job job = {.operation = (dw_operation)operation, .dtype = DW_F32, .n = 100};
            prepare(&act, &rig, job, 5, cuda, 1);
            read_device(x, act.x[0], sizeof x);
            run_all(&act);
            assert_true(y_is(&act, 0, x));
            drop(&act);
        }
    }
    rig_close(&rig);
    close_device(cuda);
}

/* ---- Streams --------------------------------------------------------------------------------- */

/* x is made by work that is enqueued before the operation, and what is enqueued after it is not
 * waited for, although the operation ends. */
static void follow(dw_cuda *cuda, void *stream)
{
    static group_rig rig;
    fake_cuda *fake = fake_cuda_get();
    static deed act, plain;
    dw_group_job job = {.operation = DW_ALL_REDUCE, .dtype = DW_F32, .n = LONG};
    float *values = malloc(LONG * sizeof *values);
    rig_start(&rig, loop, 2, "raw:f32");
    prepare(&plain, &rig, job, 8, NULL, 0);
    run_all(&plain);
    prepare(&act, &rig, job, 8, cuda, 2);
    void *made = fake->allocate(act.x_bytes[1]), *later = fake->allocate(act.x_bytes[1]);
    read_device(values, act.x[1], act.x_bytes[1]);
    write_device(made, values, act.x_bytes[1]);
    memset(values, 0, act.x_bytes[1]);
    write_device(act.x[1], values, act.x_bytes[1]);
    write_device(later, values, act.x_bytes[1]);
    enqueue_copy(cuda, act.x[1], made, act.x_bytes[1], stream);
    act.job[1].stream = stream;
    assert_int_equal(dw_group_start(rig.group[1], &act.job[1]), DW_OK);
    /* x is free as soon as start has returned. */
    write_device(act.x[1], values, act.x_bytes[1]);
    enqueue_copy(cuda, later, made, act.x_bytes[1], NULL);
    long waits = fake->synchronizations;
    assert_int_equal(dw_group_run(rig.group[0], &act.job[0], PATIENCE_MS), DW_OK);
    assert_int_equal(dw_group_wait(rig.group[1], 0, PATIENCE_MS), DW_OK);
    assert_int_equal(fake->synchronizations, waits);
    for (uint32_t r = 0; r < 2; r++) assert_true(y_is(&act, r, plain.y[r]));
    float *untouched = malloc(act.x_bytes[1]);
    read_device(untouched, later, act.x_bytes[1]);
    assert_memory_equal(untouched, values, act.x_bytes[1]);
    fake->run();
    free(untouched);
    free(values);
    fake->release(made);
    fake->release(later);
    drop(&act);
    drop(&plain);
    rig_close(&rig);
}

static void operations_follow_the_work_of_their_stream(void **state)
{
    (void)state;
    dw_cuda *cuda = open_device();
    void *stream;
    follow(cuda, NULL);
    assert_int_equal(dw_cuda_stream_create(cuda, &stream, NULL), DW_OK);
    follow(cuda, stream);
    dw_cuda_stream_destroy(cuda, stream);
    close_device(cuda);
}

/* A rank that reads nothing waits, too: earlier work may still read what is in y. */
static void a_rank_that_only_receives_waits_for_its_stream(void **state)
{
    (void)state;
    static group_rig rig;
    static deed act;
    fake_cuda *fake = fake_cuda_get();
    dw_cuda *cuda = open_device();
    dw_group_job job = {.operation = DW_BROADCAST, .dtype = DW_BF16, .n = LONG};
    rig_start(&rig, loop, 2, "raw:bf16");
    prepare(&act, &rig, job, 3, cuda, 2);
    unsigned char *before = fake->allocate(act.y_bytes[1]), *now = malloc(act.y_bytes[1]);
    enqueue_copy(cuda, before, act.y[1], act.y_bytes[1], NULL);
    run_all(&act);
    fake->run();
    assert_true(y_is(&act, 1, act.y[0]));
    read_device(now, before, act.y_bytes[1]);
    for (size_t i = 0; i < act.y_bytes[1]; i++) assert_int_equal(now[i], BLANK);
    free(now);
    fake->release(before);
    drop(&act);
    rig_close(&rig);
    close_device(cuda);
}

static void bad_jobs_are_refused(void **state)
{
    (void)state;
    static group_rig rig;
    static deed act;
    fake_cuda *fake = fake_cuda_get();
    dw_cuda *cuda = open_device(), *other = open_device();
    dw_group_job job = {.operation = DW_ALL_REDUCE, .dtype = DW_F32, .n = 100};
    rig_start(&rig, loop, 2, "raw:f32");
    dw_group *group = rig.group[1];
    prepare(&act, &rig, job, 3, cuda, 2);
    fake->capturing = true;
    assert_int_equal(dw_group_start(group, &act.job[1]), DW_ERR_ARGUMENT);
    fake->capturing = false;
    assert_non_null(strstr(dw_group_why(group), "capturing"));
    act.job[1].cuda = other; /* the first one that was given is the group's */
    assert_int_equal(dw_group_start(group, &act.job[1]), DW_ERR_ARGUMENT);
    assert_non_null(strstr(dw_group_why(group), "another dw_cuda"));
    act.job[1].cuda = NULL;
    act.job[1].stream = &act;
    assert_int_equal(dw_group_start(group, &act.job[1]), DW_ERR_ARGUMENT);
    assert_non_null(strstr(dw_group_why(group), "a stream and no cuda"));
    act.job[1].stream = NULL;
    act.job[1].cuda = cuda;
    act.job[1].x = NULL;
    assert_int_equal(dw_group_start(group, &act.job[1]), DW_ERR_ARGUMENT);
    act.job[1].x = act.x[1];
    act.job[1].struct_size = offsetof(dw_group_job, stream); /* a struct without it */
    assert_int_equal(dw_group_failed_rank(group), -1);
    run_all(&act); /* nothing of all this was started */
    assert_true(y_is(&act, 1, act.y[0]));
    drop(&act);
    rig_close(&rig);
    dw_cuda_close(other);
    close_device(cuda);
}

/* ---- Errors ---------------------------------------------------------------------------------- */

/* The driver fails once, at each of its calls in turn, while rank 1 runs an operation. If start
 * returns the error, nothing was started, and the same call works then. If the result cannot be
 * copied, the group fails on all ranks; a rank that has the result keeps it. */
static void a_failing_driver_is_reported(void **state)
{
    (void)state;
    static group_rig rig;
    static deed act, plain;
    fake_cuda *fake = fake_cuda_get();
    dw_group_job job = {.operation = DW_ALL_REDUCE, .dtype = DW_F16, .n = LONG};
    int refused = 0, failed = 0;
    bool ends = false;
    for (long at = 0; !ends; at++) {
        dw_cuda *cuda = open_device();
        rig_start(&rig, loop, 2, "direct:bits=4");
        prepare(&plain, &rig, job, 8, NULL, 0);
        run_all(&plain);
        prepare(&act, &rig, job, 8, cuda, 2);
        fake->calls = 0;
        fake->fail_at = at;
        dw_status status = dw_group_start(rig.group[1], &act.job[1]);
        if (status != DW_OK) {
            assert_true(status == DW_ERR_IO || status == DW_ERR_NO_MEMORY);
            assert_string_not_equal(dw_group_why(rig.group[1]), "");
            assert_int_equal(dw_group_failed_rank(rig.group[1]), -1);
            assert_true(y_is(&act, 1, NULL));
            refused++;
            assert_int_equal(dw_group_start(rig.group[1], &act.job[1]), DW_OK);
        }
        act.status[0] = dw_group_run(rig.group[0], &act.job[0], PATIENCE_MS);
        act.status[1] = dw_group_wait(rig.group[1], 0, PATIENCE_MS);
        ends = fake->calls <= at;
        fake->fail_at = -1;
        if (act.status[1] != DW_OK) {
            assert_int_equal(act.status[1], DW_ERR_IO);
            assert_int_equal(dw_group_failed_rank(rig.group[1]), 1);
            assert_non_null(strstr(dw_group_why(rig.group[1]), "rank 1 cannot copy"));
            if (act.status[0] == DW_OK) /* the next call has the error */
                act.status[0] = dw_group_run(rig.group[0], &act.job[0], PATIENCE_MS);
            else
                assert_true(y_is(&act, 0, NULL));
            assert_int_equal(act.status[0], DW_ERR_IO);
            assert_int_equal(dw_group_failed_rank(rig.group[0]), 1);
            assert_int_equal(dw_group_start(rig.group[1], &act.job[1]), DW_ERR_IO);
            failed++;
        } else {
            for (uint32_t r = 0; r < 2; r++) assert_true(y_is(&act, r, plain.y[r]));
        }
        drop(&act);
        drop(&plain);
        rig_close(&rig);
        /* Setting the capture mode back may have failed, here or in the group's thread. */
        fake->forget_mode();
        fake->mode = 0;
        close_device(cuda);
    }
    assert_true(refused > 4); /* the stream, memory, x */
    assert_true(failed > 2);  /* y */
}

/* An operation that ends with an error of another rank writes nothing to the device. */
static void y_is_unchanged_after_an_error(void **state)
{
    (void)state;
    static group_rig rig;
    static deed act;
    dw_cuda *cuda = open_device();
    dw_group_job job = {.operation = DW_ALL_REDUCE, .dtype = DW_F32, .n = LONG};
    rig_start(&rig, loop, RANKS, "raw:f32");
    prepare(&act, &rig, job, 8, cuda, 7);
    act.job[2].mean = 1;
    rig_each(&rig, run_one, &act);
    for (uint32_t r = 0; r < RANKS; r++) {
        assert_int_equal(act.status[r], DW_ERR_MISMATCH);
        assert_true(y_is(&act, r, NULL));
    }
    drop(&act);
    rig_close(&rig);
    close_device(cuda);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Pinned memory is counted, kept by the slot, and freed by dw_group_forget. A slot that is used for
 * buffers of both kinds allocates nothing either. */
static void memory_belongs_to_the_slot(void **state)
{
    (void)state;
    static group_rig rig;
    static deed act;
    fake_cuda *fake = fake_cuda_get();
    dw_cuda *cuda = open_device();
    dw_group_job job = {.operation = DW_ALL_REDUCE, .dtype = DW_F32, .n = LONG};
    dw_group_counters counters = {.struct_size = sizeof counters};
    rig_start(&rig, loop, 2, "direct:bits=4,feedback=ef");
    uint64_t bytes = LONG * sizeof(float), known = 0;
    for (int visit = 0; visit < 12; visit++) {
        long had = fake->blocks;
        prepare(&act, &rig, job, 8, cuda, visit % 3 == 1 ? 0 : 2);
        had = fake->blocks - had; /* of the test */
        long allocations = fake->allocations;
        run_all(&act);
        assert_int_equal(fake->allocations - allocations, visit == 0 || visit == 6);
        drop(&act);
        assert_int_equal(fake->blocks, 1);
        dw_group_count(rig.group[1], &counters);
        assert_true(counters.state_bytes >= 2 * bytes);
        if (known) assert_int_equal(counters.state_bytes, known);
        known = counters.state_bytes;
        if (visit != 5) continue;
        for (int r = 0; r < 2; r++) assert_int_equal(dw_group_forget(rig.group[r], 0), DW_OK);
        assert_int_equal(fake->blocks, 0);
        dw_group_count(rig.group[1], &counters);
        assert_int_equal(counters.state_bytes, 0);
    }
    rig_close(&rig);
    close_device(cuda);
}

static uint64_t state_bytes(const group_rig *rig, uint32_t rank)
{
    dw_group_counters counters = {.struct_size = sizeof counters};
    assert_int_equal(dw_group_count(rig->group[rank], &counters), DW_OK);
    return counters.state_bytes;
}

/* A slot takes as much more as the part of x that the rank reads. A smaller buffer on the device
 * does not make the slot's memory smaller: the next one in main memory would need another
 * allocation. */
static void memory_is_what_is_read(void **state)
{
    (void)state;
    static group_rig rig;
    static deed act;
    fake_cuda *fake = fake_cuda_get();
    dw_cuda *cuda = open_device();
    rig_start(&rig, loop, RANKS, "raw:f32");
    for (int operation = DW_ALL_REDUCE; operation <= DW_BROADCAST; operation++) {
        dw_group_job job = {.operation = (dw_operation)operation, .dtype = DW_F16, .n = LONG};
        uint64_t took[2];
        for (int i = 0; i < 2; i++) {
            uint64_t before = state_bytes(&rig, 1);
            job.slot = (uint64_t)(operation * 10 + i);
            prepare(&act, &rig, job, 8, cuda, i ? 2 : 0);
            run_all(&act);
            drop(&act);
            took[i] = state_bytes(&rig, 1) - before;
        }
        uint64_t reads = operation == DW_BROADCAST ? 0 : act.x_bytes[1];
        assert_int_equal(took[1] - took[0], (reads + 63) / 64 * 64);
    }
    long had = fake->blocks;
    uint64_t first = 0;
    for (int visit = 0; visit < 3; visit++) {
        bool on_device = visit == 1;
        dw_group_job job = {.operation = DW_ALL_REDUCE, .dtype = DW_F32, .slot = 77};
        job.n = on_device ? 2049 : LONG;
        prepare(&act, &rig, job, 8, cuda, on_device ? 2 : 0);
        run_all(&act);
        drop(&act);
        assert_int_equal(fake->blocks, had + (visit > 0));
        if (visit == 1) first = state_bytes(&rig, 1);
    }
    assert_int_equal(state_bytes(&rig, 1), first);
    uint64_t before = state_bytes(&rig, 1);
    for (uint32_t r = 0; r < RANKS; r++) assert_int_equal(dw_group_forget(rig.group[r], 77), DW_OK);
    assert_true(before - state_bytes(&rig, 1) >= LONG * sizeof(float));
    assert_int_equal(fake->blocks, had);
    rig_close(&rig);
    close_device(cuda);
}

/* Rank 1 lacks main memory at one point after the other. If start says so, the same call works
 * then; if it is lacking later, the group fails. */
static void any_allocation_may_fail(void **state)
{
    (void)state;
    static group_rig rig;
    static deed act;
    int refused = 0;
    bool ends = false;
    dw_group_job job = {.operation = DW_ALL_REDUCE, .dtype = DW_F32, .n = LONG, .slot = 4};
    for (long n = 0; !ends; n++) {
        dw_cuda *cuda = open_device();
        rig_link(&rig, loop, 2, "direct:bits=4,feedback=ef", NULL);
        rig.config[1].allocator = rig_allocator();
        rig_open(&rig);
        prepare(&act, &rig, job, 8, cuda, 2);
        long first = atomic_load(&rig_calls);
        atomic_store(&rig_refused_call, first + n);
        dw_status status = dw_group_start(rig.group[1], &act.job[1]);
        if (status != DW_OK) {
            assert_int_equal(status, DW_ERR_NO_MEMORY);
            assert_int_equal(dw_group_failed_rank(rig.group[1]), -1);
            refused++;
            assert_int_equal(dw_group_start(rig.group[1], &act.job[1]), DW_OK);
        }
        act.status[0] = dw_group_run(rig.group[0], &act.job[0], PATIENCE_MS);
        act.status[1] = dw_group_wait(rig.group[1], 4, PATIENCE_MS);
        ends = atomic_load(&rig_calls) <= first + n;
        atomic_store(&rig_refused_call, -1);
        for (uint32_t r = 0; r < 2; r++) {
            assert_true(act.status[r] == DW_OK || act.status[r] == DW_ERR_NO_MEMORY);
            if (act.status[r] != DW_OK) assert_true(y_is(&act, r, NULL));
        }
        drop(&act);
        rig_close(&rig);
        close_device(cuda);
        assert_int_equal(atomic_load(&rig_live_bytes), 0);
        assert_int_equal(atomic_load(&rig_wrong_sizes), 0);
    }
    assert_int_equal(refused, 1); /* the slot; its buffers are pinned memory */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers_on_a_device_give_the_same_bits),
        cmocka_unit_test(one_rank_copies_on_the_device),
        cmocka_unit_test(operations_follow_the_work_of_their_stream),
        cmocka_unit_test(a_rank_that_only_receives_waits_for_its_stream),
        cmocka_unit_test(bad_jobs_are_refused),
        cmocka_unit_test(a_failing_driver_is_reported),
        cmocka_unit_test(y_is_unchanged_after_an_error),
        cmocka_unit_test(memory_belongs_to_the_slot),
        cmocka_unit_test(memory_is_what_is_read),
        cmocka_unit_test(any_allocation_may_fail),
    };
    if (argc != 2) return 2;
    library = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
