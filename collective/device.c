/* SPDX-License-Identifier: Apache-2.0
 * device.c - buffers on a GPU: x is copied to pinned memory before an operation starts, and the
 * result to y at its end. In between everything is as with buffers in main memory.
 *
 * Results are copied on a stream of the group's own, because the caller's stream may have work by
 * then that was enqueued after the operation: the group's step would wait for it. */
#include "exchange.h"

#include "base/cuda_memory.h"

void dw_device_begin(dw_device *device)
{
    pthread_mutex_init(&device->lock, NULL);
}

dw_status dw_device_adopt(dw_device *device, dw_cuda *cuda, dw_why *why)
{
    pthread_mutex_lock(&device->lock);
    dw_cuda *adopted = device->cuda;
    pthread_mutex_unlock(&device->lock);
    if (!adopted) {
        void *stream;
        dw_status status = dw_cuda_stream_create(cuda, &stream, why);
        if (status != DW_OK) return status;
        pthread_mutex_lock(&device->lock);
        if (!device->cuda) { /* no other thread was faster */
            device->cuda = cuda;
            device->stream = stream;
            stream = NULL;
        }
        adopted = device->cuda;
        pthread_mutex_unlock(&device->lock);
        dw_cuda_stream_destroy(cuda, stream);
    }
    if (adopted == cuda) return DW_OK;
    return dw_say(why, DW_ERR_ARGUMENT,
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

void dw_device_store(dw_exchange *exchange, const dw_group_slot *slot, const void *from,
                     size_t bytes)
{
    const dw_group_job *job = &slot->now.job;
    dw_why why;
    dw_status status = dw_cuda_copy(job->cuda, job->y, from, bytes, exchange->device.stream, &why);
    if (status == DW_OK) return;
    dw_failure_set(&exchange->failure, status, exchange->settings.rank,
                   "slot %llu: rank %u cannot copy the result to its GPU: %.120s",
                   (unsigned long long)slot->number, exchange->settings.rank, why.text);
}

void dw_device_end(dw_device *device)
{
    if (device->cuda) dw_cuda_stream_destroy(device->cuda, device->stream);
    pthread_mutex_destroy(&device->lock);
}
