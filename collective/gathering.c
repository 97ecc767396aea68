/* SPDX-License-Identifier: Apache-2.0
 * gathering.c - an all-reduce in one hop: every rank sends its whole buffer to all, and adds for
 * itself what all have sent, itself included, in the order of the ranks. All get the same frames,
 * so all end with the same bits, and the sum is not encoded again.
 *
 * The rest is that of hop 1 (adding.c), as if the buffer were one part that belongs to every
 * rank. */
#include "group.h"

/* Encodes a piece to `scratch`, and copies it to a message of this rank to itself. NULL: the group
 * has failed. */
static dw_arrival *encode(dw_group *group, dw_group_slot *slot, uint32_t part, uint32_t piece)
{
    dw_frame_room frame = {.at = group->scratch, .cap = group->scratch_bytes};
    if (!dw_adding_encode(group, slot, part, piece, &frame)) return NULL;
    dw_message head = dw_operation_message(slot, 1, part, piece);
    dw_arrival *made = dw_operation_to_self(group, &head, &frame);
    if (!made)
        dw_group_fail(group, DW_ERR_NO_MEMORY, group->rank,
                      "slot %llu: rank %u has no memory for its contribution",
                      (unsigned long long)slot->number, group->rank);
    return made;
}

bool dw_gathering_contribute(dw_group *group, dw_group_slot *slot)
{
    dw_progress *now = &slot->now;
    uint32_t part = dw_group_own_part(group, &now->job), piece = slot->contributed[group->rank];
    size_t cap = dw_adding_bound(group, slot, dw_group_piece_at(group, &now->job, part, piece));
    unsigned char *bodies[DW_GROUP_MOST_RANKS];
    if (!dw_everyone_begin(group, cap, bodies)) return false;
    dw_arrival *made = encode(group, slot, part, piece);
    if (!made) {
        dw_everyone_drop(group, bodies);
        return false;
    }
    if (!dw_everyone_end(group, bodies, &made->head, dw_arrival_body(made),
                         (size_t)made->head.body_len)) {
        dw_arrival_give(group, made);
        return false;
    }
    slot->contributed[group->rank]++;
    now->left_to_contribute--;
    dw_adding_put(group, slot, piece, made);
    return true;
}
