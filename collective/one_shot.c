/* SPDX-License-Identifier: Apache-2.0
 * one_shot.c - an all-reduce in one hop: every rank sends its whole buffer to all, and adds for
 * itself what all have sent, itself included, in the order of the ranks. All get the same frames,
 * so all end with the same bits, and the sum is not encoded again.
 *
 * The rest is that of hop 1 (reduce_scatter.c), as if the buffer were one part that belongs to
 * every rank. */
#include "group.h"

/* Encodes a piece, and makes a message of this rank to itself. NULL: the group has failed. */
static dw_received *encode(dw_group *group, dw_group_slot *slot, const dw_message *head,
                           dw_frame_room *frame)
{
    if (!dw_reduce_scatter_encode(group, slot, head->part, head->piece, frame)) return NULL;
    dw_received *made = dw_operation_to_self(group, head, frame);
    if (!made)
        dw_group_fail(group, DW_ERR_NO_MEMORY, group->rank,
                      "slot %llu: rank %u has no memory for its contribution",
                      (unsigned long long)slot->number, group->rank);
    return made;
}

bool dw_one_shot_contribute(dw_group *group, dw_group_slot *slot)
{
    dw_operation_state *now = &slot->now;
    uint32_t part = dw_job_own_part(group, &now->job), piece = slot->contributed[group->rank];
    dw_piece at = dw_job_piece(group, &now->job, part, piece);
    dw_message head = dw_operation_message(slot, 1, part, piece);
    dw_frame_room frame = {.cap = dw_reduce_scatter_bound(group, slot, at)};
    unsigned char *bodies[DW_GROUP_MOST_RANKS];
    if (dw_fan_out_send(group, slot)) return true;
    if (group->status != DW_OK || !dw_fan_out_begin(group, slot, &frame, bodies)) return false;
    dw_received *made = encode(group, slot, &head, &frame);
    if (!made) {
        dw_fan_out_drop(group, bodies);
        return false;
    }
    if (!dw_fan_out_end(group, slot, bodies, &head, &frame)) {
        dw_received_give(group, made);
        return false;
    }
    slot->contributed[group->rank]++;
    now->left_to_contribute--;
    dw_reduce_scatter_put(group, slot, piece, made);
    return true;
}
