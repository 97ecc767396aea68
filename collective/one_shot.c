/* SPDX-License-Identifier: Apache-2.0
 * one_shot.c - an all-reduce in one hop: every rank sends its whole buffer to all, and adds for
 * itself what all have sent, itself included, in the order of the ranks. All get the same frames,
 * so all end with the same bits, and the sum is not encoded again.
 *
 * The rest is that of hop 1 (reduce_scatter.c), as if the buffer were one part that belongs to
 * every rank. */
#include "exchange.h"

/* Encodes a piece, and makes a message of this rank to itself. NULL: the group has failed. */
static dw_received *encode(dw_exchange *exchange, dw_group_slot *slot, const dw_message *head,
                           dw_frame_room *frame)
{
    const dw_settings *settings = &exchange->settings;
    if (!dw_reduce_scatter_encode(exchange, slot, head->part, head->piece, frame)) return NULL;
    dw_received *made = dw_frame_to_self(exchange, head, frame);
    if (!made)
        dw_failure_set(&exchange->failure, DW_ERR_NO_MEMORY, settings->rank,
                       "slot %llu: rank %u has no memory for its contribution",
                       (unsigned long long)slot->number, settings->rank);
    return made;
}

bool dw_one_shot_contribute(dw_exchange *exchange, dw_group_slot *slot)
{
    const dw_settings *settings = &exchange->settings;
    dw_operation_state *now = &slot->now;
    uint32_t part = now->cut.own_part;
    uint32_t *next = &slot->reduce.contributed[settings->rank], piece = *next;
    dw_piece at = dw_partition_piece(&now->cut, part, piece);
    dw_message head = dw_frame_header(slot, 1, part, piece);
    dw_frame_room frame = {.cap = dw_frame_contribution_bound(exchange, slot, at)};
    unsigned char *bodies[DW_GROUP_MOST_RANKS];
    if (slot->reduce.left_to_contribute == 0) return false;
    if (dw_fan_out_send(exchange, slot)) return true;
    if (exchange->failure.status != DW_OK || !dw_fan_out_begin(exchange, slot, &frame, bodies))
        return false;
    dw_received *made = encode(exchange, slot, &head, &frame);
    if (!made) {
        dw_fan_out_drop(exchange, bodies);
        return false;
    }
    if (!dw_fan_out_end(exchange, slot, bodies, &head, &frame)) {
        dw_received_give(&exchange->pool, made);
        return false;
    }
    (*next)++;
    slot->reduce.left_to_contribute--;
    dw_reduce_scatter_put(exchange, slot, piece, made);
    return true;
}
