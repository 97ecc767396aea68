/* SPDX-License-Identifier: Apache-2.0
 * async.h - one frame in one launch on a GPU. */
#ifndef DW_TEST_ASYNC_H
#define DW_TEST_ASYNC_H

#include "deltawire/cuda.h"

static inline dw_status test_encode_async(dw_encoder *encoder, const dw_key *keys,
                                          const dw_tensor *x, void *frame, size_t cap, void *stream,
                                          dw_encode_ticket **ticket)
{
    dw_encode_item item = {encoder, keys, x, frame, cap, NULL};
    dw_status status = dw_encode_async(&item, 1, stream);
    *ticket = item.ticket; /* NULL after an error */
    return status;
}

static inline dw_status test_decode_async(dw_decoder *decoder, const void *head, size_t head_len,
                                          const void *frame, size_t len, const dw_tensor *y,
                                          void *stream, dw_decode_ticket **ticket)
{
    dw_decode_item item = {decoder, head, frame, head_len, len, y, NULL};
    dw_status status = dw_decode_async(&item, 1, stream);
    *ticket = item.ticket; /* NULL after an error */
    return status;
}

#endif
