/* SPDX-License-Identifier: Apache-2.0
 * progress.c - a step of the group's work: what has arrived is sorted, new operations begin, one
 * frame is sent, finished operations are delivered. progress_owner.c says who takes the steps. */
#include <time.h>

#include "group.h"

/* How long the progress owner sleeps at most: LOOK_MS while anything is in progress, because links
 * and timeouts are checked so often; IDLE_MS otherwise; ROOM_NS while the queue of a link is full,
 * because a link does not report when its queue has room again. In that time a network
 * of 4 GB/s sends all that may wait in the queue (DW_PEER_UNSENT_BYTES). */
enum { LOOK_MS = 20, IDLE_MS = 500, ROOM_NS = 250000 };
/* A group that is closed waits at most this long for acknowledgements. */
enum { CLOSE_MS = 5000 };

int64_t dw_group_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void begin_operations(dw_group *group)
{
    for (;;) {
        pthread_mutex_lock(&group->lock);
        dw_group_slot *slot = group->started;
        if (slot) {
            group->started = slot->next_running;
            if (!group->started) group->last_started = NULL;
            slot->next_running = NULL;
            if (group->last_running)
                group->last_running->next_running = slot;
            else
                group->running = slot;
            group->last_running = slot;
        }
        pthread_mutex_unlock(&group->lock);
        if (!slot) return;
        dw_operation_begin(group, slot);
    }
}

static void look_at_damage(dw_group *group)
{
    for (uint32_t i = 0; i < group->ranks; i++) {
        pthread_mutex_lock(&group->lock);
        dw_status damage = group->peers[i].damage;
        /* The group fails now, but acknowledgements and goodbyes are still needed. */
        group->peers[i].damage = DW_OK;
        pthread_mutex_unlock(&group->lock);
        if (damage != DW_OK)
            dw_group_fail(group, damage, damage == DW_ERR_LIMIT ? i : group->rank,
                          damage == DW_ERR_LIMIT
                              ? "rank %u sends faster than this rank can work: more than "
                                "max_early_bytes have arrived"
                              : "no memory for a message from rank %u",
                          i);
    }
}

/* Does one piece of work of the oldest operation that has any: sends a frame for which there is
 * room, or else decodes a result. So an operation whose results have arrived does not wait for
 * later ones. */
static bool push(dw_group *group)
{
    group->is_blocked = false;
    for (dw_group_slot *slot = group->running; slot; slot = slot->next_running) {
        if (dw_operation_push(group, slot)) return true;
        if (group->status != DW_OK) return false;
        if (dw_all_gather_accept(group, slot)) return true;
    }
    return false;
}

static void end_operation(dw_group *group, dw_group_slot *slot, dw_group_slot *before)
{
    dw_operation_end(group, slot);
    pthread_mutex_lock(&group->lock);
    if (before)
        before->next_running = slot->next_running;
    else
        group->running = slot->next_running;
    if (group->last_running == slot) group->last_running = before;
    slot->next_running = NULL;
    dw_operation_set_done(group, slot);
    pthread_cond_broadcast(&group->finished);
    pthread_mutex_unlock(&group->lock);
}

static void finish_operations(dw_group *group)
{
    dw_group_slot *before = NULL, *next;
    for (dw_group_slot *slot = group->running; slot && group->status == DW_OK; slot = next) {
        next = slot->next_running;
        if (!dw_operation_is_finished(slot)) {
            before = slot;
            continue;
        }
        dw_operation_deliver(group, slot);
        if (group->status != DW_OK) return;
        end_operation(group, slot, before);
    }
}

/* Says goodbye to every rank. */
static void close_peers(dw_group *group, int64_t now_ns)
{
    if (!group->has_closed) {
        dw_group_end(group, DW_ERR_CANCELLED, group->rank, "the group was closed here");
        group->has_closed = true;
        group->closing_ns = now_ns;
    }
    for (uint32_t i = 0; i < group->ranks; i++) {
        dw_peer *peer = &group->peers[i];
        unsigned char *body;
        if (!peer->link || peer->has_closed) continue;
        if (peer->is_closed || peer->lost != DW_OK) {
            peer->has_closed = true;
        } else if (dw_peer_begin(peer, 0, &body) == DW_OK) {
            dw_message head = {.kind = DW_MESSAGE_CLOSE};
            dw_peer_end(peer, body, &head, 0);
            peer->has_closed = true;
        }
    }
}

static void look(dw_group *group, int64_t now_ns)
{
    for (uint32_t i = 0; i < group->ranks; i++) {
        dw_peer *peer = &group->peers[i];
        if (!peer->link) continue;
        dw_peer_probe(peer);
        dw_peer_retransmit(peer, now_ns);
        if (dw_failure_must_notify(group, peer) &&
            now_ns - peer->notified_ns >= 2 * (int64_t)peer->retry_ms * DW_NS_IN_MS)
            dw_failure_notify(group, peer, true);
    }
    if (group->status == DW_OK) dw_failure_detector_check(group, now_ns);
    group->looked_ns = now_ns;
}

/* What has arrived is sorted before anybody is called late, for it may be what was owed. But a rank
 * can send so much that this would take longer than timeout_ms. */
static void sort_inbox(dw_group *group, dw_received_list *inbox)
{
    int64_t patient_until_ns = dw_group_now_ns() + group->timeout_ms * (int64_t)DW_NS_IN_MS / 2;
    dw_received *received;
    while ((received = dw_received_pop(inbox)) != NULL) {
        dw_peer_sort(&group->peers[received->from], received);
        int64_t now_ns = dw_group_now_ns();
        if (now_ns > patient_until_ns && now_ns - group->looked_ns >= LOOK_MS * DW_NS_IN_MS)
            look(group, now_ns);
    }
}

/* After how many nanoseconds the next step is due if nothing happens before. */
static int64_t until_next_step(const dw_group *group, bool has_pushed, bool is_closing)
{
    if (has_pushed) return 0;
    if (group->is_blocked) return ROOM_NS;
    bool has_unacknowledged = false;
    for (uint32_t i = 0; i < group->ranks; i++) {
        const dw_peer *peer = &group->peers[i];
        has_unacknowledged |= peer->retry_ms > 0 && peer->acknowledged < peer->next_number;
        has_unacknowledged |= dw_failure_must_notify(group, peer);
    }
    return (group->running || has_unacknowledged || is_closing ? LOOK_MS : IDLE_MS) *
           (int64_t)DW_NS_IN_MS;
}

/* All that other threads have left for the progress owner is taken at the start, under one lock: a
 * short operation takes four steps, so each lock in a step costs it time. If more comes later, the
 * next step follows at once (has_work in progress_owner.c). */
int64_t dw_progress_step(dw_group *group, int64_t *stepped_ns)
{
    dw_received_list inbox = group->inbox;
    bool is_closing = group->is_closing, is_damaged = group->is_damaged;
    bool has_started = group->started != NULL;
    group->inbox = (dw_received_list){NULL, NULL};
    group->inbox_bytes = 0;
    group->is_damaged = false;
    pthread_mutex_unlock(&group->lock);
    if (inbox.head) sort_inbox(group, &inbox);
    if (has_started) begin_operations(group);
    if (is_damaged) look_at_damage(group);
    for (uint32_t i = 0; i < group->ranks; i++) dw_peer_settle(&group->peers[i]);
    bool has_pushed = push(group);
    finish_operations(group);
    for (uint32_t i = 0; i < group->ranks; i++)
        if (group->peers[i].link) dw_peer_send_ack(&group->peers[i]);
    int64_t now_ns = *stepped_ns = dw_group_now_ns();
    if (now_ns - group->looked_ns >= LOOK_MS * (int64_t)DW_NS_IN_MS) look(group, now_ns);
    if (is_closing) close_peers(group, now_ns);
    int64_t left_ns = until_next_step(group, has_pushed, is_closing);
    pthread_mutex_lock(&group->lock);
    group->published = group->count;
    return left_ns;
}

bool dw_progress_may_end(const dw_group *group, int64_t now_ns)
{
    if (!group->has_closed) return false;
    if (now_ns - group->closing_ns >= CLOSE_MS * (int64_t)DW_NS_IN_MS) return true;
    for (uint32_t i = 0; i < group->ranks; i++) {
        const dw_peer *peer = &group->peers[i];
        if (!peer->link || peer->is_closed || peer->lost != DW_OK) continue;
        if (!peer->has_closed) return false;
        if (peer->retry_ms > 0 && peer->acknowledged < peer->next_number) return false;
    }
    return true;
}
