/* SPDX-License-Identifier: Apache-2.0
 * test_group_device_memory.c - which memory operations with buffers on a fake device take, how it
 * is counted, when it is freed, and what happens where it is lacking. */
#include "device_rig.h"

enum { RANKS = 3 };
static const char loop[] = "loop://device-memory-%d";

/* Pinned memory is counted, kept by the slot, and freed by dw_group_forget. A slot that is used for
 * buffers of both kinds allocates nothing either. */
TEST(forgotten_slot_frees_its_pinned_memory)
{
    static group_rig rig;
    static rig_operation act;
    fake_cuda *fake = fake_cuda_get();
    dw_cuda *cuda = device_open();
    dw_group_job job = {.operation = DW_ALL_REDUCE, .dtype = DW_F32, .n = LONG};
    dw_group_counters counters = {.struct_size = sizeof counters};
    rig_start(&rig, loop, 2, "direct:bits=4,feedback=ef");
    uint64_t bytes = LONG * sizeof(float), known = 0;
    for (int visit = 0; visit < 12; visit++) {
        long had = fake->blocks;
        operation_prepare(&act, &rig, job, 8, cuda, visit % 3 == 1 ? 0 : 2);
        had = fake->blocks - had; /* of the test */
        long allocations = fake->allocations;
        operation_run(&act);
        assert_int_equal(fake->allocations - allocations, visit == 0 || visit == 6);
        operation_drop(&act);
        assert_int_equal(fake->blocks, 1);
        dw_group_count(rig.group[1], &counters, NULL, NULL);
        assert_true(counters.state_bytes >= 2 * bytes);
        if (known) assert_int_equal(counters.state_bytes, known);
        known = counters.state_bytes;
        if (visit != 5) continue;
        for (int r = 0; r < 2; r++) assert_int_equal(dw_group_forget(rig.group[r], 0), DW_OK);
        assert_int_equal(fake->blocks, 0);
        dw_group_count(rig.group[1], &counters, NULL, NULL);
        assert_int_equal(counters.state_bytes, 0);
    }
    rig_close(&rig);
    device_close(cuda);
}

static uint64_t state_bytes(const group_rig *rig, uint32_t rank)
{
    dw_group_counters counters = {.struct_size = sizeof counters};
    assert_int_equal(dw_group_count(rig->group[rank], &counters, NULL, NULL), DW_OK);
    return counters.state_bytes;
}

/* A slot takes as much more as the part of x that the rank reads. A smaller buffer on the device
 * does not make the slot's memory smaller: the next one in main memory would need another
 * allocation. */
TEST(slot_memory_is_as_large_as_its_input)
{
    static group_rig rig;
    static rig_operation act;
    fake_cuda *fake = fake_cuda_get();
    dw_cuda *cuda = device_open();
    rig_start(&rig, loop, RANKS, "raw:f32");
    for (int operation = DW_ALL_REDUCE; operation <= DW_BROADCAST; operation++) {
        dw_group_job job = {.operation = (dw_operation)operation, .dtype = DW_F16, .n = LONG};
        uint64_t took[2];
        for (int i = 0; i < 2; i++) {
            uint64_t before = state_bytes(&rig, 1);
            job.slot = (uint64_t)(operation * 10 + i);
            operation_prepare(&act, &rig, job, 8, cuda, i ? 2 : 0);
            operation_run(&act);
            operation_drop(&act);
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
        operation_prepare(&act, &rig, job, 8, cuda, on_device ? 2 : 0);
        operation_run(&act);
        operation_drop(&act);
        assert_int_equal(fake->blocks, had + (visit > 0));
        if (visit == 1) first = state_bytes(&rig, 1);
    }
    assert_int_equal(state_bytes(&rig, 1), first);
    uint64_t before = state_bytes(&rig, 1);
    for (uint32_t r = 0; r < RANKS; r++) assert_int_equal(dw_group_forget(rig.group[r], 77), DW_OK);
    assert_true(before - state_bytes(&rig, 1) >= LONG * sizeof(float));
    assert_int_equal(fake->blocks, had);
    rig_close(&rig);
    device_close(cuda);
}

/* Rank 1 lacks main memory at one point after the other. If start says so, the same call works
 * then; if it is lacking later, the group fails. A repeated greeting of the other rank may need the
 * memory before start does. Start then reports that the group has failed, and the point is tried
 * again. */
TEST(any_allocation_may_fail)
{
    static group_rig rig;
    static rig_operation act;
    int refused = 0;
    bool ends = false, has_failed_before;
    dw_group_job job = {.operation = DW_ALL_REDUCE, .dtype = DW_F32, .n = LONG, .slot = 4};
    for (long n = 0; !ends; n += !has_failed_before) {
        dw_cuda *cuda = device_open();
        rig_link(&rig, loop, 2, "direct:bits=4,feedback=ef", NULL);
        rig.config[1].allocator = rig_allocator();
        rig_open(&rig);
        operation_prepare(&act, &rig, job, 8, cuda, 2);
        long first = atomic_load(&rig_calls);
        atomic_store(&rig_refused_call, first + n);
        dw_status status = dw_group_start(rig.group[1], &act.job[1]);
        assert_true(status == DW_OK || status == DW_ERR_NO_MEMORY);
        has_failed_before = status != DW_OK && rig_failed_rank(rig.group[1]) != -1;
        if (status != DW_OK && !has_failed_before) {
            refused++;
            assert_int_equal(dw_group_start(rig.group[1], &act.job[1]), DW_OK);
        }
        act.status[0] = dw_group_run(rig.group[0], &act.job[0], PATIENCE_MS);
        act.status[1] = dw_group_wait(rig.group[1], 4, PATIENCE_MS);
        ends = atomic_load(&rig_calls) <= first + n;
        atomic_store(&rig_refused_call, -1);
        for (uint32_t r = 0; r < 2; r++) {
            assert_true(act.status[r] == DW_OK || act.status[r] == DW_ERR_NO_MEMORY);
            if (act.status[r] != DW_OK) assert_true(operation_y_is(&act, r, NULL));
        }
        operation_drop(&act);
        rig_close(&rig);
        device_close(cuda);
        assert_int_equal(atomic_load(&rig_live_bytes), 0);
        assert_int_equal(atomic_load(&rig_wrong_sizes), 0);
    }
    /* The table of slots, the slot, and the lists of its encoders and decoders; its buffers are
     * pinned memory. One is met twice if the group's thread allocates in between. */
    assert_true(refused >= 4);
}

RUN_TESTS_GIVEN(device_library)
