/* SPDX-License-Identifier: Apache-2.0
 * fan_out.c - messages to all other ranks, with the same body. Every link takes them at its own
 * pace: a message that has no room in some links now is kept until they have room, so a rank that
 * receives slowly for a while does not hold up the others. A long message is not copied for that:
 * the link that it was written for keeps it (dw_operation_to_self). */
#include <string.h>

#include "group.h"

void dw_fan_out_drop(dw_group *group, unsigned char *bodies[DW_GROUP_MOST_RANKS])
{
    for (uint32_t r = 0; r < group->ranks; r++)
        if (bodies[r]) dw_peer_drop(&group->peers[r], bodies[r]);
}

/* Whether the number of messages that some rank was not sent yet exceeds the number of those that
 * are left to be made. No new message is made then, so that all ranks get their last message at
 * about the same time: if some links had nothing left to carry, the others would not be faster. */
static bool is_one_far_behind(const dw_group *group, const dw_group_slot *slot)
{
    uint32_t made = slot->now.made_for_all, left = slot->now.own_pieces - made;
    for (uint32_t r = 0; r < group->ranks; r++)
        if (r != group->rank && made - slot->sent[r] > left) return true;
    return false;
}

bool dw_fan_out_begin(dw_group *group, const dw_group_slot *slot, dw_frame_room *frame,
                      unsigned char *bodies[DW_GROUP_MOST_RANKS])
{
    if (is_one_far_behind(group, slot)) return false;
    frame->peer = NULL;
    for (uint32_t r = 0; r < group->ranks; r++) bodies[r] = NULL;
    for (uint32_t r = 0; r < group->ranks && group->status == DW_OK; r++) {
        dw_peer *peer = &group->peers[r];
        if (r == group->rank || slot->sent[r] < slot->now.made_for_all) continue;
        if (dw_peer_begin(peer, frame->cap, &bodies[r]) != DW_OK || frame->peer) continue;
        frame->peer = peer;
        frame->at = bodies[r];
    }
    if (frame->peer && group->status == DW_OK) return true;
    dw_fan_out_drop(group, bodies);
    return false;
}

static bool send_to(dw_group *group, dw_group_slot *slot, uint32_t r, unsigned char *body,
                    const dw_message *head, size_t len)
{
    dw_message own = *head; /* every link has numbers of its own */
    if (dw_peer_end(&group->peers[r], body, &own, len) != DW_OK) return false;
    slot->sent[r]++;
    slot->now.left_to_send--;
    return true;
}

/* Keeps the message, if a link has no room for it. */
static bool keep(dw_group *group, dw_group_slot *slot, unsigned char *const *bodies,
                 const dw_message *head, const dw_frame_room *frame)
{
    dw_received **kept = &slot->kept[slot->now.made_for_all];
    bool goes_to_all = true;
    for (uint32_t r = 0; r < group->ranks; r++) goes_to_all &= r == group->rank || bodies[r];
    *kept = goes_to_all ? NULL : dw_operation_to_self(group, head, frame);
    if (!*kept && !goes_to_all) {
        dw_group_fail(group, DW_ERR_NO_MEMORY, group->rank,
                      "slot %llu: rank %u has no memory for a message that a link has no room for",
                      (unsigned long long)slot->number, group->rank);
        return false;
    }
    slot->now.made_for_all++;
    slot->now.left_to_send += group->ranks - 1;
    return true;
}

bool dw_fan_out_end(dw_group *group, dw_group_slot *slot,
                    unsigned char *bodies[DW_GROUP_MOST_RANKS], const dw_message *head,
                    const dw_frame_room *frame)
{
    bool goes_on = keep(group, slot, bodies, head, frame);
    /* All copies first: the frame may lie in one of the bodies, which is gone once it was sent. */
    for (uint32_t r = 0; goes_on && r < group->ranks; r++)
        if (frame->len > 0 && bodies[r] && bodies[r] != frame->at)
            memcpy(bodies[r], frame->at, frame->len);
    for (uint32_t r = 0; goes_on && r < group->ranks; r++) {
        if (!bodies[r]) continue;
        goes_on = send_to(group, slot, r, bodies[r], head, frame->len);
        bodies[r] = NULL;
    }
    if (!goes_on) dw_fan_out_drop(group, bodies);
    return goes_on;
}

static bool has_reached_all(const dw_group *group, const dw_group_slot *slot, uint32_t number)
{
    for (uint32_t r = 0; r < group->ranks; r++)
        if (r != group->rank && slot->sent[r] <= number) return false;
    return true;
}

bool dw_fan_out_send(dw_group *group, dw_group_slot *slot)
{
    const dw_operation_state *now = &slot->now;
    for (uint32_t i = 1; now->left_to_send > 0 && i < group->ranks; i++) {
        uint32_t r = (group->rank + i) % group->ranks, number = slot->sent[r];
        if (number == now->made_for_all) continue;
        dw_received **kept = &slot->kept[number];
        size_t len = (size_t)(*kept)->head.body_len;
        unsigned char *body;
        if (dw_peer_begin(&group->peers[r], len, &body) != DW_OK) {
            if (group->status != DW_OK) return false; /* nothing is kept any more */
            continue;
        }
        if (len > 0) memcpy(body, dw_received_body(*kept), len);
        if (!send_to(group, slot, r, body, &(*kept)->head, len)) return false;
        if (has_reached_all(group, slot, number)) {
            dw_received_give(group, *kept);
            *kept = NULL;
        }
        return true;
    }
    return false;
}
