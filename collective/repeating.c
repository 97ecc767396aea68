/* SPDX-License-Identifier: Apache-2.0
 * repeating.c - on links that may lose, double, reorder or damage messages: copies are kept until
 * they are acknowledged. An acknowledgement says which later messages have arrived, so only what is
 * missing is sent again. */
#include <string.h>

#include "group.h"

/* Without any acknowledgement the oldest messages are sent again, after twice as long each time, up
 * to 2^REPEAT_DOUBLINGS times retry_ms. */
enum { REPEAT_AT_ONCE = 8, REPEAT_DOUBLINGS = 5 };

static dw_kept *kept_at(dw_lane *lane, uint64_t number)
{
    return &lane->kept[number % DW_LANE_WINDOW];
}

bool dw_lane_has_window(const dw_lane *lane)
{
    return lane->next_number - lane->acknowledged < DW_LANE_WINDOW &&
           lane->kept_bytes < DW_LANE_AHEAD_BYTES;
}

dw_status dw_lane_keep(dw_lane *lane, uint64_t number, const void *message, size_t len)
{
    dw_arrival *copy = dw_arrival_copy(lane->group, message, len);
    if (!copy) return DW_ERR_NO_MEMORY;
    if (lane->acknowledged == number) {
        lane->silence_ns = dw_group_now_ns();
        lane->repeats = 0;
    }
    *kept_at(lane, number) = (dw_kept){.copy = copy, .sent_ns = dw_group_now_ns()};
    lane->kept_bytes += len;
    return DW_OK;
}

/* Returns whether there was a copy. */
static bool let_go(dw_lane *lane, uint64_t number)
{
    dw_kept *kept = kept_at(lane, number);
    if (!kept->copy) return false;
    lane->kept_bytes -= kept->copy->len;
    dw_arrival_give(lane->group, kept->copy);
    *kept = (dw_kept){.copy = NULL};
    return true;
}

void dw_lane_let_go(dw_lane *lane)
{
    for (unsigned i = 0; i < DW_LANE_WINDOW; i++) {
        let_go(lane, i);
        dw_arrival_give(lane->group, lane->ahead[i]);
        lane->ahead[i] = NULL;
    }
    lane->acknowledged = lane->next_number;
}

static void send_again(dw_lane *lane, dw_kept *kept, int64_t now_ns)
{
    kept->sent_ns = now_ns;
    kept->repeats++;
    dw_status status = dw_link_send(lane->link, lane->group->id << 8 | DW_LANE_MESSAGES,
                                    kept->copy->bytes, kept->copy->len);
    if (status != DW_OK) return; /* the queue is full, or the link has failed: later */
    lane->group->count.repeated++;
    lane->group->count.sent_bytes += kept->copy->len;
}

void dw_lane_acknowledge(dw_lane *lane, const dw_message *ack)
{
    /* Ignores an acknowledgement on a link that needs none, and one of messages never sent. */
    if (lane->retry_ms == 0 || ack->number > lane->next_number) return;
    bool moved = false;
    /* The highest number that has arrived, or ack->number if no later message has. */
    uint64_t later = ack->number;
    for (uint64_t i = lane->acknowledged; i < ack->number; i++) moved |= let_go(lane, i);
    for (unsigned bit = 0; bit < 64 && bit + 1 < DW_LANE_WINDOW; bit++) {
        uint64_t number = ack->number + 1 + bit;
        if (number >= lane->next_number || !(ack->slot >> bit & 1)) continue;
        if (number >= lane->acknowledged) moved |= let_go(lane, number);
        later = number;
    }
    while (lane->acknowledged < lane->next_number && !kept_at(lane, lane->acknowledged)->copy)
        lane->acknowledged++;
    int64_t now_ns = dw_group_now_ns();
    if (moved) {
        lane->silence_ns = now_ns;
        lane->repeats = 0;
    }
    /* A later message overtook these, so they are lost, unless they were just sent. */
    for (uint64_t i = lane->acknowledged; i < later; i++) {
        dw_kept *kept = kept_at(lane, i);
        if (kept->copy && now_ns - kept->sent_ns >= (int64_t)lane->retry_ms * DW_NS_IN_MS)
            send_again(lane, kept, now_ns);
    }
}

void dw_lane_tell_ack(dw_lane *lane)
{
    if (!lane->owes_ack) return;
    dw_message ack = {.kind = DW_MESSAGE_ACK, .number = lane->expected};
    for (unsigned bit = 0; bit + 1 < DW_LANE_WINDOW; bit++) {
        if (lane->ahead[(lane->expected + 1 + bit) % DW_LANE_WINDOW])
            ack.slot |= UINT64_C(1) << bit;
    }
    if (dw_lane_tell(lane, &ack, NULL, 0) == DW_OK) lane->owes_ack = false;
}

void dw_lane_repeat(dw_lane *lane, int64_t now_ns)
{
    if (lane->retry_ms == 0 || lane->lost != DW_OK || lane->is_closed ||
        lane->acknowledged == lane->next_number)
        return;
    /* What still waits in the queue cannot have been acknowledged. */
    if (dw_link_flush(lane->link, 0) == DW_PENDING) {
        lane->silence_ns = now_ns;
        return;
    }
    uint32_t doublings = lane->repeats < REPEAT_DOUBLINGS ? lane->repeats : REPEAT_DOUBLINGS;
    if (now_ns - lane->silence_ns < ((int64_t)lane->retry_ms * DW_NS_IN_MS) << doublings) return;
    lane->silence_ns = now_ns;
    lane->repeats++;
    int sent = 0;
    for (uint64_t i = lane->acknowledged; i < lane->next_number && sent < REPEAT_AT_ONCE; i++) {
        if (!kept_at(lane, i)->copy) continue;
        send_again(lane, kept_at(lane, i), now_ns);
        sent++;
    }
}
