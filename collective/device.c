/* SPDX-License-Identifier: Apache-2.0
 * device.c - buffers on a GPU: x is copied to pinned memory before an operation starts, and the
 * result to y at its end. In between everything is as with buffers in main memory.
 *
 * Results are copied on a stream of the group's own, because the caller's stream may have work by
 * then that was enqueued after the operation: the group's step would wait for it. */
#include "group.h"

#include "deltawire/cuda.h"

dw_status dw_device_adopt(dw_group *group, dw_cuda *cuda, dw_why *why)
{
    pthread_mutex_lock(&group->lock);
    dw_cuda *adopted = group->cuda;
    pthread_mutex_unlock(&group->lock);
    if (!adopted) {
        void *stream;
        dw_status status = dw_cuda_stream_create(cuda, &stream, why);
        if (status != DW_OK) return status;
        pthread_mutex_lock(&group->lock);
        if (!group->cuda) { /* no other thread was faster */
            group->cuda = cuda;
            group->stream = stream;
            stream = NULL;
        }
        adopted = group->cuda;
        pthread_mutex_unlock(&group->lock);
        dw_cuda_stream_destroy(cuda, stream);
    }
    if (adopted == cuda) return DW_OK;
    return dw_group_say(why, DW_ERR_ARGUMENT,
                        "an earlier operation of this group had another dw_cuda; pass the same one "
                        "in all jobs of a group");
}

dw_status dw_device_fetch(dw_group_slot *slot, dw_why *why)
{
    dw_group_job *job = &slot->now.job;
    size_t bytes = slot->staged_bytes;
    dw_status status = dw_cuda_copy(job->cuda, slot->staged, job->x, bytes, job->stream, why);
    job->x = slot->staged;
    return status;
}

void dw_device_store(dw_group *group, const dw_group_slot *slot, const void *from, size_t bytes)
{
    const dw_group_job *job = &slot->now.job;
    dw_why why;
    dw_status status = dw_cuda_copy(job->cuda, job->y, from, bytes, group->stream, &why);
    if (status == DW_OK) return;
    dw_group_fail(group, status, group->rank,
                  "slot %llu: rank %u cannot copy the result to its GPU: %.120s",
                  (unsigned long long)slot->number, group->rank, why.text);
}

void dw_device_end(dw_group *group)
{
    if (group->cuda) dw_cuda_stream_destroy(group->cuda, group->stream);
}
