/* SPDX-License-Identifier: Apache-2.0
 * frame.c - what the frames of an operation carry, how long they may be, and their messages. */
#include <string.h>

#include "exchange.h"

dw_tensor dw_frame_contribution(const dw_group_slot *slot, dw_piece at)
{
    const dw_group_job *job = &slot->now.job;
    const unsigned char *x = job->x;
    return dw_flat_view(x + at.begin * dw_dtype_bytes(job->dtype), job->dtype, at.count);
}

dw_tensor dw_frame_result(const dw_group_slot *slot, dw_piece at)
{
    const dw_operation_state *now = &slot->now;
    if (dw_job_reduces(&now->job))
        return dw_flat_view(slot->reduce.sums + (at.begin - now->begin), DW_F32, at.count);
    const unsigned char *x = now->job.x;
    size_t bytes = dw_dtype_bytes(now->job.dtype);
    return dw_flat_view(x + (at.begin - now->begin) * bytes, now->job.dtype, at.count);
}

size_t dw_frame_contribution_bound(dw_exchange *exchange, const dw_group_slot *slot, dw_piece at)
{
    return dw_coding_bound(&exchange->coding, &exchange->settings.codec, slot->now.job.dtype,
                           at.count);
}

/* Sums are in binary32, whatever x is. */
size_t dw_frame_result_bound(dw_exchange *exchange, const dw_group_slot *slot, dw_piece at)
{
    const dw_group_job *job = &slot->now.job;
    dw_dtype dtype = dw_job_reduces(job) ? DW_F32 : job->dtype;
    return dw_coding_bound(&exchange->coding, &exchange->settings.result, dtype, at.count);
}

dw_message dw_frame_header(const dw_group_slot *slot, int hop, uint32_t part, uint32_t piece)
{
    const dw_group_job *job = &slot->now.job;
    return (dw_message){
        .kind = DW_MESSAGE_DATA,
        .operation = (uint8_t)job->operation,
        .dtype = (uint8_t)job->dtype,
        .flags = (uint8_t)((job->mean ? DW_MESSAGE_MEAN : 0) | (hop == 2 ? DW_MESSAGE_HOP2 : 0)),
        .rank = job->root,
        .slot = slot->number,
        .visit = slot->visit,
        .n = job->n,
        .part = part,
        .piece = piece};
}

dw_received *dw_frame_to_self(dw_exchange *exchange, const dw_message *head,
                              const dw_frame_room *frame)
{
    size_t len = DW_MESSAGE_BYTES + frame->len;
    /* A frame that is much shorter than its room would keep all of the room. */
    bool holds = frame->peer && frame->len >= frame->cap / 2;
    dw_received *made = holds ? dw_received_hold(&exchange->pool, frame->peer->link,
                                                 frame->at - DW_MESSAGE_BYTES, len)
                              : dw_received_take(&exchange->pool, len);
    if (!made) return NULL;
    made->from = exchange->settings.rank;
    made->head = *head;
    made->head.body_len = frame->len;
    if (!holds && frame->len > 0)
        memcpy(dw_received_room(made) + DW_MESSAGE_BYTES, frame->at, frame->len);
    return made;
}
