/* SPDX-License-Identifier: Apache-2.0
 * membership.c - what ranks tell each other of failures, and of the end of the group. So nobody
 * need wait for a timeout of its own. */
#include "membership.h"

#include <string.h>

#include "base/clock.h"

void dw_membership_notify(dw_peer *peer, bool asks)
{
    if (!peer->link || peer->is_closed) return;
    const dw_failure *failure = peer->failure;
    peer->member.notified_ns = dw_now_ns();
    dw_message head = {.kind = DW_MESSAGE_ABORT,
                       .flags = asks ? DW_MESSAGE_ASKS : 0,
                       .rank = failure->rank,
                       .slot = (uint64_t)(int64_t)failure->status};
    dw_peer_notify(peer, &head, failure->why.text, strlen(failure->why.text));
}

bool dw_membership_must_notify(const dw_peer *peer)
{
    return peer->retry_ms > 0 && peer->failure->status != DW_OK && !peer->member.knows_failure &&
           !peer->is_closed && peer->lost == DW_OK;
}

/* Whether a status that a peer has sent is one of the errors, so that a peer cannot make calls
 * return anything else. */
static bool is_error_of_group(int64_t status)
{
    return status <= DW_ERR_ARGUMENT && status >= DW_ERR_AUTH;
}

static void record(dw_peer *peer, const dw_received *received)
{
    const dw_message *head = &received->head;
    int64_t status = (int64_t)head->slot;
    if (!is_error_of_group(status) || head->rank >= peer->settings->ranks) {
        dw_failure_set(peer->failure, DW_ERR_PROTOCOL, peer->rank,
                       "rank %u reports an error that cannot be understood", peer->rank);
        return;
    }
    char text[160];
    dw_message_text(text, sizeof text, dw_received_body(received), head->body_len);
    /* A sentence that was passed on already is passed on as it is. */
    if (strncmp(text, "rank ", 5) == 0 && strstr(text, " reports: "))
        dw_failure_set(peer->failure, (dw_status)status, head->rank, "%s", text);
    else
        dw_failure_set(peer->failure, (dw_status)status, head->rank, "rank %u reports: %s",
                       peer->rank, text);
}

/* The first error that this rank hears of is passed on to all ranks, also to the one that has sent
 * it. So only a rank that already knew of an error has to answer. */
bool dw_membership_take_abort(dw_peer *peer, const dw_received *received)
{
    bool answers = peer->failure->status != DW_OK && received->head.flags & DW_MESSAGE_ASKS;
    peer->member.knows_failure = true;
    record(peer, received);
    return answers;
}

void dw_membership_take_lost(dw_peer *peer)
{
    if (peer->lost == DW_OK || peer->member.is_lost) return;
    peer->member.is_lost = true;
    if (peer->is_closed) return;
    const char *sentence = dw_link_why(peer->link);
    dw_failure_set(peer->failure, peer->lost, peer->rank, "rank %u is lost: %.150s", peer->rank,
                   sentence[0] ? sentence : dw_status_string(peer->lost));
}

void dw_membership_close(dw_peer *peer)
{
    unsigned char *body;
    if (!peer->link || peer->member.has_closed) return;
    if (peer->is_closed || peer->lost != DW_OK) {
        peer->member.has_closed = true;
    } else if (dw_peer_begin(peer, 0, &body) == DW_OK) {
        dw_message head = {.kind = DW_MESSAGE_CLOSE};
        dw_peer_end(peer, body, &head, 0);
        peer->member.has_closed = true;
    }
}

bool dw_membership_has_ended(const dw_peer *peer)
{
    if (!peer->link || peer->is_closed || peer->lost != DW_OK) return true;
    return peer->member.has_closed && dw_retransmission_is_complete(peer);
}
