/* SPDX-License-Identifier: Apache-2.0
 * gathering.c - an all-reduce in one hop: every rank sends its whole buffer to all, and adds for
 * itself what all have sent, itself included, in the order of the ranks. All get the same frames,
 * so all end with the same bits, and the sum is not encoded again.
 *
 * The rest is that of hop 1 (adding.c), as if the buffer were one part that belongs to every
 * rank. */
#include <string.h>

#include "group.h"

/* Encodes a piece to `scratch`, and copies it to a message of this rank to itself, which has no
 * number and no digest. NULL: the group has failed. */
static dw_arrival *encode(dw_group *group, dw_group_slot *slot, uint32_t part, uint32_t piece)
{
    size_t len;
    if (!dw_adding_encode(group, slot, part, piece, group->scratch, group->scratch_bytes, &len))
        return NULL;
    dw_arrival *made = dw_arrival_take(group, DW_MESSAGE_BYTES + len);
    if (!made) {
        dw_group_fail(group, DW_ERR_NO_MEMORY, group->rank,
                      "slot %llu: rank %u has no memory for its contribution",
                      (unsigned long long)slot->number, group->rank);
        return NULL;
    }
    made->from = group->rank;
    made->head = dw_operation_message(slot, 1, part, piece);
    made->head.body_len = len;
    memcpy(dw_arrival_bytes(made) + DW_MESSAGE_BYTES, group->scratch, len);
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
