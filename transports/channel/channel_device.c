/* SPDX-License-Identifier: Apache-2.0
 * channel_device.c - frames between a device and the link. Kernels write frames to, and read them
 * from, pinned memory. The CPU copies them between there and the buffers of the link, which are not
 * pinned. */
#include <string.h>

#include "base/cuda_memory.h"
#include "channel/channel.h"

static dw_status give_why(dw_why *why, dw_status status, const char *sentence)
{
    return dw_say(why, status, "%s", sentence[0] ? sentence : dw_status_string(status));
}

/* Makes the stage at least so long. It takes half as much again, because the lengths of frames vary
 * a little. */
static dw_status make_room(dw_cuda *cuda, dw_channel_stage *stage, size_t bytes, dw_why *why)
{
    void *grown;
    if (bytes <= stage->cap) return DW_OK;
    size_t cap = bytes < SIZE_MAX / 2 ? bytes + bytes / 2 : bytes;
    dw_status status = dw_cuda_pin(cuda, cap, &grown, why);
    if (status != DW_OK) return status;
    dw_cuda_unpin(cuda, stage->memory);
    *stage = (dw_channel_stage){grown, cap};
    return DW_OK;
}

dw_status dw_channel_device_open(dw_channel_device *device, dw_cuda *cuda, bool sends, dw_why *why)
{
    device->cuda = cuda;
    return sends ? dw_cuda_stream_create(cuda, &device->answers, why) : DW_OK;
}

void dw_channel_device_release(dw_channel_device *device)
{
    dw_cuda_unpin(device->cuda, device->sent.memory);
    dw_cuda_unpin(device->cuda, device->taken.memory);
    dw_cuda_stream_destroy(device->cuda, device->answers);
}

/* ---- Sending; the encoder's lock is held ----------------------------------------------------- */

/* Everything that can fail before work is enqueued on the stream. */
static dw_status prepare(dw_channel_device *device, void *stream, size_t cap, dw_why *why)
{
    if (device->send_status != DW_OK)
        return give_why(why, device->send_status,
                        "the device failed and an earlier frame of this channel was lost: open "
                        "another channel");
    dw_status status = dw_cuda_stream_check(device->cuda, stream, why);
    return status == DW_OK ? make_room(device->cuda, &device->sent, cap, why) : status;
}

/* Waits for the stream and copies the frame to the buffer of the link. If the stream fails, the
 * ticket and its keys stay in flight for ever, so the error is permanent. */
static dw_status fetch(dw_channel_device *device, dw_encoder *encoder, dw_encode_ticket *ticket,
                       void *stream, void *frame, size_t cap, size_t *len, dw_why *why)
{
    size_t head_len;
    dw_status status = dw_cuda_stream_wait(device->cuda, stream, why);
    if (status == DW_OK) {
        status = dw_encode_finish(ticket, frame, cap, &head_len, len);
        if (status != DW_OK) give_why(why, status, dw_encoder_why(encoder));
    }
    if (status != DW_OK) return device->send_status = DW_ERR_IO;
    memcpy((unsigned char *)frame + head_len, (unsigned char *)device->sent.memory + head_len,
           *len - head_len);
    return DW_OK;
}

dw_status dw_channel_device_encode(dw_channel_device *device, dw_encoder *encoder,
                                   const dw_key *keys, const dw_channel_tensor *x, void *frame,
                                   size_t cap, size_t *len, dw_why *why)
{
    dw_status status = prepare(device, x->stream, cap, why);
    if (status != DW_OK) return status;
    dw_encode_item item = {encoder, keys, x->view, device->sent.memory, cap, NULL};
    status = dw_encode_async(&item, 1, x->stream);
    if (status != DW_OK) return give_why(why, status, dw_encoder_why(encoder));
    return fetch(device, encoder, item.ticket, x->stream, frame, cap, len, why);
}

/* Uses a stream of the channel, so that the peer does not wait for the computations of the caller.
 */
dw_status dw_channel_device_resync(dw_channel_device *device, dw_encoder *encoder,
                                   const dw_key *keys, uint32_t n, void *frame, size_t cap,
                                   size_t *len, dw_why *why)
{
    dw_encode_ticket *ticket;
    dw_status status = prepare(device, device->answers, cap, why);
    if (status != DW_OK) return status;
    status = dw_encoder_resync_async(encoder, keys, n, device->sent.memory, cap, device->answers,
                                     &ticket);
    if (status != DW_OK) return give_why(why, status, dw_encoder_why(encoder));
    return fetch(device, encoder, ticket, device->answers, frame, cap, len, why);
}

/* ---- Receiving; the decoder's lock is held --------------------------------------------------- */

dw_status dw_channel_device_decode(dw_channel_device *device, dw_decoder *decoder,
                                   const void *frame, size_t len, const dw_channel_tensor *y,
                                   void *reply, size_t reply_cap, size_t *reply_len, dw_why *why)
{
    dw_status status = dw_cuda_stream_check(device->cuda, y->stream, why);
    if (status == DW_OK) status = make_room(device->cuda, &device->taken, len ? len : 1, why);
    if (status != DW_OK) return status;
    memcpy(device->taken.memory, frame, len);
    dw_decode_item item = {decoder, frame, device->taken.memory, len, len, y->view, NULL};
    status = dw_decode_async(&item, 1, y->stream);
    if (status != DW_OK) return give_why(why, status, dw_decoder_why(decoder));
    /* A frame that was rejected at once has no work on the stream: finish returns its error here.
     */
    status = dw_decode_finish(item.ticket, reply, reply_cap, reply_len);
    if (status == DW_PENDING) {
        /* If the stream fails, the ticket stays in flight for ever, so the error must be permanent:
         * DW_ERR_IO. */
        if (dw_cuda_stream_wait(device->cuda, y->stream, why) != DW_OK) return DW_ERR_IO;
        status = dw_decode_finish(item.ticket, reply, reply_cap, reply_len);
        if (status == DW_PENDING)
            return dw_say(why, DW_ERR_IO, "the stream is idle, but the tensor was not decoded");
    }
    return status == DW_OK ? DW_OK : give_why(why, status, dw_decoder_why(decoder));
}
