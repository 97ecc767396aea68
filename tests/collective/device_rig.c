/* SPDX-License-Identifier: Apache-2.0
 * device_rig.c - one operation of a group, with buffers on a fake device. */
#include "device_rig.h"

enum { GUARD = 64 };
const char *device_library;

dw_cuda *device_open(void)
{
    dw_cuda *cuda;
    dw_why why;
    if (dw_cuda_open_library(&cuda, device_library, "kernels", 0, &why)) fail_msg("%s", why.text);
    return cuda;
}

void device_close(dw_cuda *cuda)
{
    const fake_cuda *fake = fake_cuda_get();
    dw_cuda_close(cuda);
    assert_int_equal(fake->retained, 0);
    assert_int_equal(fake->blocks, 0);
    assert_int_equal(fake->streams, 0);
    assert_int_equal(fake->depth, 0);
    assert_int_equal(fake->mode, 0);
}

void device_write(void *to, const void *from, size_t bytes)
{
    fake_cuda_get()->touch(true);
    memcpy(to, from, bytes);
    fake_cuda_get()->touch(false);
}

void device_read(void *to, const void *from, size_t bytes)
{
    device_write(to, from, bytes);
}

void operation_run_rank(void *context, uint32_t rank)
{
    rig_operation *act = context;
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
    device_write(made, values, bytes);
    device_write(made + bytes, guard, GUARD);
    return made;
}

static void drop_buffer(bool on_device, void *buffer)
{
    if (on_device)
        fake_cuda_get()->release(buffer);
    else
        free(buffer);
}

void operation_prepare(rig_operation *act, group_rig *rig, dw_group_job job, uint64_t seed,
                       dw_cuda *cuda, unsigned devices)
{
    *act = (rig_operation){.rig = rig, .in_place = act->in_place};
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

void operation_drop(rig_operation *act)
{
    for (uint32_t r = 0; r < act->rig->ranks; r++) {
        drop_buffer(act->job[r].cuda != NULL, act->x[r]);
        if (!act->in_place) drop_buffer(act->job[r].cuda != NULL, act->y[r]);
    }
}

void operation_run(rig_operation *act)
{
    rig_each(act->rig, operation_run_rank, act);
    rig_all_well(act->rig, act->status);
}

bool operation_y_is(const rig_operation *act, uint32_t rank, const void *expected)
{
    size_t bytes = act->y_bytes[rank], guard = act->in_place ? 0 : GUARD;
    unsigned char *y = malloc(bytes + GUARD), *blank = malloc(bytes + GUARD);
    memset(blank, BLANK, bytes + GUARD);
    device_read(y, act->y[rank], bytes + guard);
    bool is =
        memcmp(y, expected ? expected : blank, bytes) == 0 && memcmp(y + bytes, blank, guard) == 0;
    free(y);
    free(blank);
    return is;
}
