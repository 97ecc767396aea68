/* SPDX-License-Identifier: Apache-2.0
 * device.c - encoding and decoding on a GPU in one call each: enqueue, wait, finish. */
#include <string.h>

#include "base/cuda_memory.h"
#include "base/sentence.h"
#include "native.h"

static dw_status say(dw_why *why, dw_status status, const char *sentence)
{
    return status < 0 ? dw_say(why, status, "%s", sentence) : status;
}

/* All work was waited for, so a ticket that is still pending belongs to a stream that failed. It
 * can be neither finished nor cancelled, and stays in flight until the object is destroyed. */
static const char lost[] = "the stream failed: this process cannot use the GPU any more";

static dw_status finish_encode(const dw_device_call *call, dw_encoder *encoder,
                               dw_encode_ticket *ticket, size_t *len, dw_why *why)
{
    size_t head_len;
    dw_status status = dw_cuda_stream_wait(call->cuda, call->stream, why);
    if (status == DW_OK) {
        status = dw_encode_finish(ticket, call->room, call->cap, &head_len, len);
        if (status == DW_OK) return status;
        status = status == DW_PENDING ? say(why, DW_ERR_IO, lost)
                                      : say(why, status, dw_encoder_why(encoder));
    }
    (void)dw_encode_cancel(ticket);
    return status;
}

dw_status dw_encode_on_device(const dw_device_call *call, dw_encoder *encoder, const dw_key *keys,
                              const dw_tensor *x, size_t *len, dw_why *why)
{
    dw_encode_item item = {encoder, keys, x, call->room, call->cap, NULL};
    dw_status status = dw_encode_async(&item, 1, call->stream);
    if (status < 0) return say(why, status, dw_encoder_why(encoder));
    return finish_encode(call, encoder, item.ticket, len, why);
}

dw_status dw_resync_on_device(const dw_device_call *call, dw_encoder *encoder, const dw_key *keys,
                              uint32_t n, size_t *len, dw_why *why)
{
    dw_encode_ticket *ticket;
    dw_status status =
        dw_encoder_resync_async(encoder, keys, n, call->room, call->cap, call->stream, &ticket);
    if (status < 0) return say(why, status, dw_encoder_why(encoder));
    return finish_encode(call, encoder, ticket, len, why);
}

dw_status dw_decode_on_device(const dw_device_call *call, dw_decoder *decoder, const void *frame,
                              size_t len, const dw_tensor *y, void *reply, size_t reply_cap,
                              size_t *reply_len, dw_why *why)
{
    *reply_len = 0;
    if (len > call->cap) return say(why, DW_ERR_BUFFER_TOO_SMALL, "the pinned memory is too small");
    memcpy(call->room, frame, len);
    dw_decode_item item = {decoder, call->room, call->room, len, len, y, NULL};
    dw_status status = dw_decode_async(&item, 1, call->stream);
    if (status < 0) return say(why, status, dw_decoder_why(decoder));
    status = dw_cuda_stream_wait(call->cuda, call->stream, why);
    if (status < 0) {
        (void)dw_decode_cancel(item.ticket);
        return status;
    }
    status = dw_decode_finish(item.ticket, reply, reply_cap, reply_len);
    if (status == DW_PENDING) return say(why, DW_ERR_IO, lost);
    return say(why, status, dw_decoder_why(decoder));
}
