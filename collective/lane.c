/* SPDX-License-Identifier: Apache-2.0
 * lane.c - a link to a rank: messages are sent with numbers and digests, and are passed on in the
 * order of their numbers. */
#include <string.h>

#include "group.h"

static uint32_t tag_of(const dw_lane *lane, uint32_t which)
{
    return lane->group->id << 8 | which;
}

/* ---- Arriving -------------------------------------------------------------------------------- */

static void put_in_inbox(dw_lane *lane, const void *data, size_t len)
{
    dw_group *group = lane->group;
    dw_arrival *arrival = dw_arrival_hold(group, lane->link, data, len);
    pthread_mutex_lock(&group->lock);
    if (arrival) {
        arrival->from = lane->rank;
        group->inbox_bytes += len + DW_ARRIVAL_HEAD;
        dw_arrivals_put(&group->inbox, arrival);
    }
    if (!arrival) lane->damage = DW_ERR_NO_MEMORY;
    if (group->inbox_bytes > group->max_early_bytes + DW_LANE_AHEAD_BYTES)
        lane->damage = DW_ERR_LIMIT;
    group->is_damaged |= lane->damage != DW_OK;
    dw_group_unlock_and_wake(group);
}

void dw_lane_take(void *context, const void *data, size_t len)
{
    dw_lane *lane = context;
    /* Nothing more is taken until the worker has seen that memory or a limit was exceeded. */
    pthread_mutex_lock(&lane->group->lock);
    bool is_damaged = lane->damage != DW_OK;
    pthread_mutex_unlock(&lane->group->lock);
    if (!is_damaged) put_in_inbox(lane, data, len);
}

/* Passes a numbered message on. */
static void deliver(dw_lane *lane, dw_arrival *arrival)
{
    dw_group *group = lane->group;
    lane->expected++;
    if (arrival->head.kind == DW_MESSAGE_CLOSE) {
        lane->is_closed = true;
        dw_arrival_give(group, arrival);
    } else if (group->status != DW_OK || group->has_closed) {
        dw_arrival_give(group, arrival);
    } else {
        dw_operation_take(group, arrival);
    }
}

static void sort_numbered(dw_lane *lane, dw_arrival *arrival)
{
    dw_group *group = lane->group;
    uint64_t number = arrival->head.number;
    lane->owes_ack = lane->retry_ms > 0;
    if (number == lane->expected) {
        deliver(lane, arrival);
        dw_arrival **at;
        while (*(at = &lane->ahead[lane->expected % DW_LANE_WINDOW])) {
            arrival = *at;
            *at = NULL;
            deliver(lane, arrival);
        }
        return;
    }
    dw_arrival **at = &lane->ahead[number % DW_LANE_WINDOW];
    bool is_ahead = number > lane->expected && number - lane->expected < DW_LANE_WINDOW;
    if (lane->retry_ms > 0 && is_ahead && !*at) {
        *at = arrival;
        return;
    }
    dw_arrival_give(group, arrival); /* a duplicate, or too far ahead to be kept */
    if (lane->retry_ms == 0)
        dw_group_fail(group, DW_ERR_PROTOCOL, lane->rank,
                      "rank %u sent message %llu where %llu was due; does something else use the "
                      "tags of group %u?",
                      lane->rank, (unsigned long long)number, (unsigned long long)lane->expected,
                      group->id);
}

/* A message that has no valid digest: damaged, from an earlier group, or a greeting, which has no
 * session. */
static void sort_strange(dw_lane *lane, dw_arrival *arrival)
{
    dw_group *group = lane->group;
    bool is_hello =
        dw_message_read(arrival->bytes, arrival->len, 0, true, &arrival->head) &&
        (arrival->head.kind == DW_MESSAGE_HELLO || arrival->head.kind == DW_MESSAGE_REFUSE);
    if (is_hello) {
        dw_group_answer_hello(lane, arrival);
    } else if (lane->retry_ms > 0) {
        lane->owes_ack = true; /* so that the sender learns what is missing */
    } else {
        dw_group_fail(group, DW_ERR_CORRUPT, lane->rank,
                      "a message from rank %u arrived damaged, over a link that does not repair "
                      "this",
                      lane->rank);
    }
    dw_arrival_give(group, arrival);
}

/* The first error that this rank hears of is passed on to all ranks, also to the one that has sent
 * it. So only a rank that already knew of an error has to answer. */
static void hear_abort(dw_lane *lane, const dw_arrival *arrival)
{
    dw_group *group = lane->group;
    bool answers = group->status != DW_OK && arrival->head.flags & DW_MESSAGE_ASKS;
    lane->has_learnt = true;
    dw_group_take_abort(group, arrival);
    if (answers && !group->has_closed) dw_group_tell_abort(group, lane, false);
}

void dw_lane_sort(dw_lane *lane, dw_arrival *arrival)
{
    dw_group *group = lane->group;
    dw_message *head = &arrival->head;
    if (!dw_message_read(arrival->bytes, arrival->len, lane->open_seed, lane->retry_ms > 0, head)) {
        sort_strange(lane, arrival);
        return;
    }
    group->count.received_bytes += arrival->len;
    switch (head->kind) {
    case DW_MESSAGE_DATA:
    case DW_MESSAGE_CLOSE: sort_numbered(lane, arrival); return;
    case DW_MESSAGE_ACK: dw_lane_acknowledge(lane, head); break;
    case DW_MESSAGE_PING: lane->waits_for = head->rank; break;
    case DW_MESSAGE_ABORT: hear_abort(lane, arrival); break;
    default:
        dw_group_fail(group, DW_ERR_PROTOCOL, lane->rank,
                      "rank %u sent a message of an unknown kind; run the same release on all "
                      "ranks",
                      lane->rank);
    }
    dw_arrival_give(group, arrival);
}

/* ---- Sending --------------------------------------------------------------------------------- */

static bool has_room(const dw_lane *lane)
{
    if (lane->retry_ms > 0 && !dw_lane_has_window(lane)) return false;
    dw_link_counters counters = {.struct_size = sizeof counters};
    dw_link_count(lane->link, &counters);
    return counters.unsent_bytes < DW_LANE_UNSENT_BYTES;
}

dw_status dw_lane_begin(dw_lane *lane, size_t body_cap, unsigned char **body)
{
    dw_group *group = lane->group;
    if (lane->is_closed) {
        dw_group_fail(group, DW_ERR_PEER, lane->rank,
                      "rank %u closed its group before an operation had finished", lane->rank);
        return DW_ERR_PEER;
    }
    group->is_blocked = true;
    if (lane->lost != DW_OK) return DW_PENDING;
    void *room;
    dw_status status = DW_PENDING;
    if (has_room(lane))
        status = dw_link_send_begin(lane->link, tag_of(lane, DW_LANE_MESSAGES),
                                    DW_MESSAGE_BYTES + body_cap, &room);
    if (status == DW_OK) {
        *body = (unsigned char *)room + DW_MESSAGE_BYTES;
        group->is_blocked = false;
        lane->refused_ns = 0;
    } else if (status == DW_PENDING && lane->refused_ns == 0) {
        lane->refused_ns = dw_group_now_ns();
    }
    if (status == DW_OK || status == DW_PENDING) return status;
    if (status == DW_ERR_LIMIT || status == DW_ERR_NO_MEMORY) {
        dw_group_fail(group, status, group->rank,
                      status == DW_ERR_LIMIT
                          ? "a message to rank %u is longer than max_message_bytes of its link; "
                            "raise that, or make pieces shorter"
                          : "no memory for a message to rank %u",
                      lane->rank);
        return status;
    }
    dw_lane_probe(lane);
    return DW_PENDING;
}

dw_status dw_lane_end(dw_lane *lane, unsigned char *body, dw_message *head, size_t body_len)
{
    unsigned char *message = body - DW_MESSAGE_BYTES;
    size_t len = DW_MESSAGE_BYTES + body_len;
    head->number = lane->next_number;
    head->body_len = body_len;
    dw_message_seal(message, head, lane->seal_seed, lane->retry_ms > 0);
    if (lane->retry_ms > 0 && dw_lane_keep(lane, head->number, message, len) != DW_OK) {
        dw_lane_drop(lane, body);
        dw_group_fail(lane->group, DW_ERR_NO_MEMORY, lane->group->rank,
                      "no memory for the copy of a message to rank %u", lane->rank);
        return DW_ERR_NO_MEMORY;
    }
    lane->next_number++;
    lane->group->count.sent_bytes += len;
    /* An error is found by the next probe. */
    dw_link_send_end(lane->link, message, len);
    return DW_OK;
}

void dw_lane_drop(dw_lane *lane, unsigned char *body)
{
    dw_link_send_end(lane->link, body - DW_MESSAGE_BYTES, DW_LINK_DROP);
}

dw_status dw_lane_tell(dw_lane *lane, dw_message *head, const void *body, size_t body_len)
{
    void *room;
    if (lane->lost != DW_OK) return lane->lost;
    dw_status status = dw_link_send_begin(lane->link, tag_of(lane, DW_LANE_MESSAGES),
                                          DW_MESSAGE_BYTES + body_len, &room);
    if (status != DW_OK) return status;
    if (body_len > 0) memcpy((unsigned char *)room + DW_MESSAGE_BYTES, body, body_len);
    head->body_len = body_len;
    bool has_session = head->kind != DW_MESSAGE_HELLO && head->kind != DW_MESSAGE_REFUSE;
    dw_message_seal(room, head, has_session ? lane->seal_seed : 0,
                    !has_session || lane->retry_ms > 0);
    lane->group->count.sent_bytes += DW_MESSAGE_BYTES + body_len;
    return dw_link_send_end(lane->link, room, DW_MESSAGE_BYTES + body_len);
}

/* ---- The end of a link ----------------------------------------------------------------------- */

void dw_lane_probe(dw_lane *lane)
{
    if (!lane->link || lane->lost != DW_OK) return;
    void *data;
    size_t len;
    dw_status status = dw_link_recv(lane->link, tag_of(lane, DW_LANE_PROBE), 0, &data, &len);
    if (status == DW_OK) dw_link_release(lane->link, data); /* nobody sends this: ignored */
    if (status == DW_OK || status == DW_PENDING) return;
    lane->lost = status;
    /* What had arrived before the link failed may contain the result, or that rank's goodbye. */
    uint32_t tag = tag_of(lane, DW_LANE_MESSAGES);
    dw_link_handle(lane->link, tag, NULL, NULL);
    lane->has_handler = false;
    while (dw_link_recv(lane->link, tag, 0, &data, &len) == DW_OK) {
        put_in_inbox(lane, data, len);
        dw_link_release(lane->link, data);
    }
}

void dw_lane_settle(dw_lane *lane)
{
    if (lane->lost == DW_OK || lane->is_lost) return;
    lane->is_lost = true;
    if (lane->is_closed) return;
    const char *sentence = dw_link_why(lane->link);
    dw_group_fail(lane->group, lane->lost, lane->rank, "rank %u is lost: %.150s", lane->rank,
                  sentence[0] ? sentence : dw_status_string(lane->lost));
}
