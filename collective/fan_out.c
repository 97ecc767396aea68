/* SPDX-License-Identifier: Apache-2.0
 * fan_out.c - messages to all other ranks, with the same body. Every link takes them at its own
 * pace: a message that has no room in some links now is kept until they have room, so a rank that
 * receives slowly for a while does not hold up the others. A long message is not copied for that:
 * the link that it was written for keeps it (dw_frame_to_self). */
#include <string.h>

#include "exchange.h"

void dw_fan_out_drop(dw_exchange *exchange, unsigned char *bodies[DW_GROUP_MOST_RANKS])
{
    for (uint32_t r = 0; r < exchange->settings.ranks; r++)
        if (bodies[r]) dw_peer_drop(&exchange->peers[r], bodies[r]);
}

/* Whether the number of messages that some rank was not sent yet exceeds the number of those that
 * are left to be made. No new message is made then, so that all ranks get their last message at
 * about the same time: if some links had nothing left to carry, the others would not be faster. */
static bool is_one_far_behind(const dw_exchange *exchange, const dw_group_slot *slot)
{
    const dw_settings *settings = &exchange->settings;
    uint32_t made = slot->fan.made, left = slot->now.own_pieces - made;
    for (uint32_t r = 0; r < settings->ranks; r++)
        if (r != settings->rank && made - slot->fan.sent[r] > left) return true;
    return false;
}

bool dw_fan_out_begin(dw_exchange *exchange, const dw_group_slot *slot, dw_frame_room *frame,
                      unsigned char *bodies[DW_GROUP_MOST_RANKS])
{
    const dw_settings *settings = &exchange->settings;
    if (is_one_far_behind(exchange, slot)) return false;
    frame->peer = NULL;
    for (uint32_t r = 0; r < settings->ranks; r++) bodies[r] = NULL;
    for (uint32_t r = 0; r < settings->ranks && exchange->failure.status == DW_OK; r++) {
        dw_peer *peer = &exchange->peers[r];
        if (r == settings->rank || slot->fan.sent[r] < slot->fan.made) continue;
        if (dw_peer_begin(peer, frame->cap, &bodies[r]) != DW_OK || frame->peer) continue;
        frame->peer = peer;
        frame->at = bodies[r];
    }
    if (frame->peer && exchange->failure.status == DW_OK) return true;
    dw_fan_out_drop(exchange, bodies);
    return false;
}

static bool send_to(dw_exchange *exchange, dw_group_slot *slot, uint32_t r, unsigned char *body,
                    const dw_message *head, size_t len)
{
    dw_message own = *head; /* every link has numbers of its own */
    if (dw_peer_end(&exchange->peers[r], body, &own, len) != DW_OK) return false;
    slot->fan.sent[r]++;
    slot->fan.left_to_send--;
    return true;
}

/* Keeps the message, if a link has no room for it. */
static bool keep(dw_exchange *exchange, dw_group_slot *slot, unsigned char *const *bodies,
                 const dw_message *head, const dw_frame_room *frame)
{
    const dw_settings *settings = &exchange->settings;
    dw_received **kept = &slot->fan.kept[slot->fan.made];
    bool goes_to_all = true;
    for (uint32_t r = 0; r < settings->ranks; r++) goes_to_all &= r == settings->rank || bodies[r];
    *kept = goes_to_all ? NULL : dw_frame_to_self(exchange, head, frame);
    if (!*kept && !goes_to_all) {
        dw_failure_set(&exchange->failure, DW_ERR_NO_MEMORY, settings->rank,
                       "slot %llu: rank %u has no memory for a message that a link has no room for",
                       (unsigned long long)slot->number, settings->rank);
        return false;
    }
    slot->fan.made++;
    slot->fan.left_to_send += settings->ranks - 1;
    return true;
}

bool dw_fan_out_end(dw_exchange *exchange, dw_group_slot *slot,
                    unsigned char *bodies[DW_GROUP_MOST_RANKS], const dw_message *head,
                    const dw_frame_room *frame)
{
    const dw_settings *settings = &exchange->settings;
    bool goes_on = keep(exchange, slot, bodies, head, frame);
    /* All copies first: the frame may lie in one of the bodies, which is gone once it was sent. */
    for (uint32_t r = 0; goes_on && r < settings->ranks; r++)
        if (frame->len > 0 && bodies[r] && bodies[r] != frame->at)
            memcpy(bodies[r], frame->at, frame->len);
    for (uint32_t r = 0; goes_on && r < settings->ranks; r++) {
        if (!bodies[r]) continue;
        goes_on = send_to(exchange, slot, r, bodies[r], head, frame->len);
        bodies[r] = NULL;
    }
    if (!goes_on) dw_fan_out_drop(exchange, bodies);
    return goes_on;
}

static bool has_reached_all(const dw_exchange *exchange, const dw_group_slot *slot, uint32_t number)
{
    const dw_settings *settings = &exchange->settings;
    for (uint32_t r = 0; r < settings->ranks; r++)
        if (r != settings->rank && slot->fan.sent[r] <= number) return false;
    return true;
}

bool dw_fan_out_send(dw_exchange *exchange, dw_group_slot *slot)
{
    const dw_settings *settings = &exchange->settings;
    for (uint32_t i = 1; slot->fan.left_to_send > 0 && i < settings->ranks; i++) {
        uint32_t r = (settings->rank + i) % settings->ranks, number = slot->fan.sent[r];
        if (number == slot->fan.made) continue;
        dw_received **kept = &slot->fan.kept[number];
        size_t len = (size_t)(*kept)->head.body_len;
        unsigned char *body;
        if (dw_peer_begin(&exchange->peers[r], len, &body) != DW_OK) {
            if (exchange->failure.status != DW_OK) return false;
            continue;
        }
        if (len > 0) memcpy(body, dw_received_body(*kept), len);
        if (!send_to(exchange, slot, r, body, &(*kept)->head, len)) return false;
        if (has_reached_all(exchange, slot, number)) {
            dw_received_give(&exchange->pool, *kept);
            *kept = NULL;
        }
        return true;
    }
    return false;
}

/* ---- The beginning and the end --------------------------------------------------------------- */

void dw_fan_out_start(const dw_exchange *exchange, dw_group_slot *slot)
{
    memset(slot->fan.sent, 0, exchange->settings.ranks * sizeof *slot->fan.sent);
    memset(slot->fan.kept, 0, slot->now.own_pieces * sizeof *slot->fan.kept);
}

void dw_fan_out_free(dw_exchange *exchange, dw_group_slot *slot)
{
    for (uint32_t i = 0; i < slot->now.own_pieces; i++) {
        dw_received_give(&exchange->pool, slot->fan.kept[i]);
        slot->fan.kept[i] = NULL;
    }
}
