/* SPDX-License-Identifier: Apache-2.0
 * staging.c - helpers for programs that carry frames through the host: pinned memory, a stream,
 * copies, and waiting for a stream. */
#include <stdio.h>

#include "base/cuda_memory.h"
#include "device.h"

dw_status dw_cuda_pin(dw_cuda *cuda, size_t bytes, void **memory, dw_why *why)
{
    dw_cuda_block block;
    if (memory) *memory = NULL;
    if (!cuda || !memory || bytes == 0)
        return dw_say(why, DW_ERR_ARGUMENT, "cuda or memory is NULL, or bytes is 0");
    dw_cuda_result error = dw_cuda_allocate(cuda, true, bytes, &block);
    if (error) return dw_cuda_failed(cuda, why, "host memory cannot be pinned", error);
    if (block.address != (dw_cuda_address)block.host) {
        dw_cuda_free(cuda, &block);
        return dw_say(
            why, DW_ERR_UNSUPPORTED,
            "this device has no unified addressing: it sees host memory at other addresses");
    }
    *memory = block.host;
    return DW_OK;
}

void dw_cuda_unpin(dw_cuda *cuda, void *memory)
{
    if (cuda && memory) dw_cuda_free(cuda, &(dw_cuda_block){(dw_cuda_address)memory, memory});
}

dw_status dw_cuda_stream_create(dw_cuda *cuda, void **stream, dw_why *why)
{
    dw_cuda_stream made = NULL;
    dw_cuda_result error;
    if (stream) *stream = NULL;
    if (!cuda || !stream) return dw_say(why, DW_ERR_ARGUMENT, "cuda or stream is NULL");
    if (dw_cuda_enter(cuda, &error)) {
        error = cuda->driver.stream_create(&made, DW_CUDA_STREAM_NON_BLOCKING);
        dw_cuda_leave(cuda);
    }
    if (error) return dw_cuda_failed(cuda, why, "no stream can be created", error);
    *stream = made;
    return DW_OK;
}

void dw_cuda_stream_destroy(dw_cuda *cuda, void *stream)
{
    dw_cuda_result error;
    if (!cuda || !stream || !dw_cuda_enter(cuda, &error)) return;
    (void)cuda->driver.stream_destroy(stream);
    dw_cuda_leave(cuda);
}

/* Checks that the stream is not capturing. To be called in the context. */
static dw_status check_stream(const dw_cuda *cuda, void *stream, dw_why *why)
{
    int capturing = 0;
    dw_cuda_result error = cuda->driver.stream_is_capturing(stream, &capturing);
    if (error) return dw_cuda_failed(cuda, why, "the stream's state cannot be queried", error);
    if (!capturing) return DW_OK;
    return dw_say(
        why, DW_ERR_ARGUMENT,
        "the stream is capturing a graph, so its work cannot be waited for: pass a stream "
        "that is not capturing");
}

dw_status dw_cuda_stream_check(dw_cuda *cuda, void *stream, dw_why *why)
{
    dw_cuda_result error;
    if (!cuda) return dw_say(why, DW_ERR_ARGUMENT, "cuda is NULL");
    if (!dw_cuda_enter(cuda, &error))
        return dw_cuda_failed(cuda, why, "the device's context cannot be made current", error);
    dw_status status = check_stream(cuda, stream, why);
    dw_cuda_leave(cuda);
    return status;
}

/* Copies, and waits for the stream. To be called in the context. */
static dw_status copy_in_order(const dw_cuda *cuda, void *to, const void *from, size_t bytes,
                               void *stream, dw_why *why)
{
    dw_status status = check_stream(cuda, stream, why);
    dw_cuda_result error = DW_CUDA_SUCCESS;
    if (status) return status;
    if (bytes > 0)
        error = cuda->driver.copy((dw_cuda_address)to, (dw_cuda_address)from, bytes, stream);
    if (error) return dw_cuda_failed(cuda, why, "the copy cannot be enqueued", error);
    error = cuda->driver.stream_synchronize(stream);
    if (error) status = dw_cuda_failed(cuda, why, "the stream failed", error);
    return status;
}

dw_status dw_cuda_copy(dw_cuda *cuda, void *to, const void *from, size_t bytes, void *stream,
                       dw_why *why)
{
    dw_cuda_result error;
    if (!cuda) return dw_say(why, DW_ERR_ARGUMENT, "cuda is NULL");
    if (bytes > 0 && (!to || !from))
        return dw_say(why, DW_ERR_ARGUMENT, "to or from is NULL, but bytes are to be copied");
    if (!dw_cuda_enter(cuda, &error))
        return dw_cuda_failed(cuda, why, "the device's context cannot be made current", error);
    /* Another thread may be capturing, while waiting is forbidden in threads of the default mode.
     */
    int mode = DW_CUDA_CAPTURE_RELAXED;
    dw_status status;
    error = cuda->driver.exchange_capture_mode(&mode);
    if (error) {
        status =
            dw_cuda_failed(cuda, why, "the capture mode of this thread cannot be changed", error);
    } else {
        status = copy_in_order(cuda, to, from, bytes, stream, why);
        (void)cuda->driver.exchange_capture_mode(&mode);
    }
    dw_cuda_leave(cuda);
    return status;
}

dw_status dw_cuda_stream_wait(dw_cuda *cuda, void *stream, dw_why *why)
{
    return dw_cuda_copy(cuda, NULL, NULL, 0, stream, why);
}
