/* SPDX-License-Identifier: Apache-2.0
 * progress.c - the progress step of a group: what has arrived is sorted, new operations begin, one
 * frame is sent, finished operations are delivered. progress_owner.c says who takes the steps.
 *
 * What finds an error has only recorded it. Between its parts the step looks whether there is one,
 * and if so ends all operations with it, except those that are safe (all_gather.c), and notifies
 * the other ranks, so that they need not wait for their own timeouts. */
#include "failure_detector.h"
#include "group.h"
#include "handshake.h"
#include "membership.h"

/* How long the progress owner sleeps at most: LOOK_MS while anything is in progress, because links
 * and timeouts are checked so often; IDLE_MS otherwise; ROOM_NS while the queue of a link is full,
 * because a link does not report when its queue has room again. In that time a network of 4 GB/s
 * sends all that may wait in the queue (DW_PEER_UNSENT_BYTES). */
enum { LOOK_MS = 20, IDLE_MS = 500, ROOM_NS = 250000 };
/* A group that is closed waits at most this long for acknowledgements. */
enum { CLOSE_MS = 5000 };

/* ---- The end of operations ------------------------------------------------------------------- */

/* The slot leaves its list, and its caller may collect the result. A caller who has waited sees
 * what the operation counted. */
static void end(dw_group *group, dw_slot_list *list, dw_group_slot *slot, dw_slot_state state)
{
    pthread_mutex_lock(&group->lock);
    dw_slot_remove(list, slot);
    slot->state = state;
    if (state == DW_SLOT_DONE) {
        group->counters.finished++;
        group->published = group->exchange.count;
    }
    pthread_cond_broadcast(&group->owner.finished);
    pthread_mutex_unlock(&group->lock);
}

static void end_all(dw_group *group, dw_slot_list *list)
{
    for (;;) {
        pthread_mutex_lock(&group->lock);
        dw_group_slot *slot = list->first;
        pthread_mutex_unlock(&group->lock);
        if (!slot) return;
        bool is_done = dw_operation_fail(&group->exchange, slot);
        end(group, list, slot, is_done ? DW_SLOT_DONE : DW_SLOT_FAILED);
    }
}

void dw_progress_end_failed(dw_group *group)
{
    dw_exchange *exchange = &group->exchange;
    if (exchange->failure.status == group->failure.status) return;
    pthread_mutex_lock(&group->lock);
    group->failure = exchange->failure;
    pthread_mutex_unlock(&group->lock);
    /* The other ranks are notified first, because restoring residuals takes a while. They hear from
     * a group that is closed that it is (dw_membership_close). */
    for (uint32_t r = 0; !group->progress.has_closed && r < exchange->settings.ranks; r++)
        dw_membership_notify(&exchange->peers[r], false);
    end_all(group, &exchange->running);
    end_all(group, &group->started);
}

static void finish_operations(dw_group *group)
{
    dw_exchange *exchange = &group->exchange;
    dw_group_slot *next;
    for (dw_group_slot *slot = exchange->running.first; slot; slot = next) {
        next = slot->next_running;
        if (!dw_operation_is_finished(slot)) continue;
        dw_operation_deliver(exchange, slot);
        if (exchange->failure.status != DW_OK) return;
        dw_operation_end(exchange, slot);
        end(group, &exchange->running, slot, DW_SLOT_DONE);
    }
}

/* ---- What has come --------------------------------------------------------------------------- */

static void begin_operations(dw_group *group)
{
    for (;;) {
        pthread_mutex_lock(&group->lock);
        dw_group_slot *slot = group->started.first;
        if (slot) dw_slot_remove(&group->started, slot);
        pthread_mutex_unlock(&group->lock);
        if (!slot) return;
        dw_slot_append(&group->exchange.running, slot);
        dw_operation_begin(&group->exchange, slot);
        dw_progress_end_failed(group);
    }
}

static void look_at_damage(dw_group *group)
{
    dw_exchange *exchange = &group->exchange;
    const dw_settings *settings = &exchange->settings;
    for (uint32_t i = 0; i < settings->ranks; i++) {
        pthread_mutex_lock(&group->lock);
        dw_status damage = exchange->peers[i].damage;
        /* The group fails now, but acknowledgements and goodbyes are still needed. */
        exchange->peers[i].damage = DW_OK;
        pthread_mutex_unlock(&group->lock);
        if (damage != DW_OK)
            dw_failure_set(&exchange->failure, damage, damage == DW_ERR_LIMIT ? i : settings->rank,
                           damage == DW_ERR_LIMIT
                               ? "rank %u sends faster than this rank can work: more than "
                                 "max_early_bytes have arrived"
                               : "no memory for a message from rank %u",
                           i);
    }
    dw_progress_end_failed(group);
}

/* The rank that has sent most of the bytes of messages that wait for operations, and their
 * slots. */
static uint32_t most_ahead(dw_group *group)
{
    uint64_t bytes[DW_GROUP_MOST_RANKS] = {0};
    uint32_t most = 0;
    pthread_mutex_lock(&group->lock);
    for (const dw_group_slot *slot = group->slots.newest; slot; slot = slot->made_before) {
        const dw_received *received = slot->early.head;
        if (received && slot->is_early) bytes[received->from] += DW_SLOT_BYTES;
        for (; received; received = received->next)
            bytes[received->from] += dw_received_weight(received);
    }
    pthread_mutex_unlock(&group->lock);
    for (uint32_t r = 0; r < group->exchange.settings.ranks; r++)
        if (bytes[r] > bytes[most]) most = r;
    return most;
}

static void take_data(dw_group *group, dw_received *received)
{
    dw_exchange *exchange = &group->exchange;
    const dw_settings *settings = &exchange->settings;
    uint64_t number = received->head.slot;
    pthread_mutex_lock(&group->lock);
    dw_group_slot *slot = dw_slot_find(&group->slots, number);
    bool is_new = !slot;
    if (is_new) slot = dw_slot_get(&group->slots, &settings->allocator, number);
    pthread_mutex_unlock(&group->lock);
    if (!slot) {
        dw_failure_set(&exchange->failure, DW_ERR_NO_MEMORY, settings->rank,
                       "no memory for a slot");
        dw_received_give(&exchange->pool, received);
        return;
    }
    dw_operation_take(exchange, slot, is_new, received);
    if (exchange->early_bytes <= settings->max_early_bytes) return;
    uint32_t from = most_ahead(group);
    dw_failure_set(&exchange->failure, DW_ERR_LIMIT, from,
                   "rank %u is ahead: messages of operations that have not started here, and their "
                   "slots, exceed max_early_bytes (%llu); start the same ones, or raise that",
                   from, (unsigned long long)settings->max_early_bytes);
}

void dw_progress_dispatch(dw_group *group, dw_received *received)
{
    dw_exchange *exchange = &group->exchange;
    dw_peer *peer = &exchange->peers[received->from];
    bool has_failed = exchange->failure.status != DW_OK, answers = false;
    if (received->head.kind == DW_MESSAGE_DATA && !has_failed) {
        take_data(group, received);
    } else {
        if (received->head.kind == DW_MESSAGE_ABORT)
            answers = dw_membership_take_abort(peer, received);
        else if (received->head.kind != DW_MESSAGE_DATA)
            dw_handshake_answer(peer, received);
        dw_received_give(&exchange->pool, received);
    }
    if (answers && !group->progress.has_closed) dw_membership_notify(peer, false);
    dw_progress_end_failed(group);
}

static void look(dw_group *group, int64_t now_ns)
{
    dw_exchange *exchange = &group->exchange;
    dw_progress *progress = &group->progress;
    for (uint32_t i = 0; i < exchange->settings.ranks; i++) {
        dw_peer *peer = &exchange->peers[i];
        if (!peer->link) continue;
        dw_peer_probe(peer, &progress->left);
        dw_retransmission_send(peer, now_ns);
        if (!progress->has_closed && dw_membership_must_notify(peer) &&
            now_ns - peer->member.notified_ns >= 2 * (int64_t)peer->retry_ms * DW_NS_PER_MS)
            dw_membership_notify(peer, true);
    }
    if (exchange->failure.status == DW_OK)
        dw_failure_detector_check(exchange, now_ns, &progress->pinged_ns);
    dw_progress_end_failed(group);
    progress->looked_ns = now_ns;
}

/* What has arrived is sorted before anybody is called late, for it may be what was owed. But a rank
 * can send so much that this would take longer than timeout_ms. */
static void sort_inbox(dw_group *group, dw_received_list *inbox)
{
    dw_exchange *exchange = &group->exchange;
    int64_t patient_until_ns =
        dw_now_ns() + exchange->settings.timeout_ms * (int64_t)DW_NS_PER_MS / 2;
    dw_received *received;
    while ((received = dw_received_pop(inbox)) != NULL) {
        dw_received_list ready = {NULL, NULL};
        dw_peer_sort(&exchange->peers[received->from], received, &ready);
        dw_progress_end_failed(group);
        while ((received = dw_received_pop(&ready)) != NULL) dw_progress_dispatch(group, received);
        int64_t now_ns = dw_now_ns();
        if (now_ns > patient_until_ns &&
            now_ns - group->progress.looked_ns >= LOOK_MS * DW_NS_PER_MS)
            look(group, now_ns);
    }
}

/* ---- The step -------------------------------------------------------------------------------- */

/* Does one piece of work of the oldest operation that has any: sends a frame for which there is
 * room, or else decodes a result. So an operation whose results have arrived does not wait for
 * later ones. */
static bool push(dw_exchange *exchange)
{
    for (uint32_t i = 0; i < exchange->settings.ranks; i++) exchange->peers[i].is_blocked = false;
    for (dw_group_slot *slot = exchange->running.first; slot; slot = slot->next_running) {
        if (dw_operation_push(exchange, slot)) return true;
        if (exchange->failure.status != DW_OK) return false;
        if (dw_all_gather_accept(exchange, slot)) return true;
    }
    return false;
}

/* Says goodbye to every rank. */
static void close_peers(dw_group *group, int64_t now_ns)
{
    dw_exchange *exchange = &group->exchange;
    const dw_settings *settings = &exchange->settings;
    if (!group->progress.has_closed) {
        group->progress.has_closed = true;
        group->progress.closing_ns = now_ns;
        dw_failure_set(&exchange->failure, DW_ERR_CANCELLED, settings->rank,
                       "the group was closed here");
        dw_progress_end_failed(group);
    }
    for (uint32_t i = 0; i < settings->ranks; i++) dw_membership_close(&exchange->peers[i]);
}

/* After how many nanoseconds the next step is due if nothing happens before. */
static int64_t until_next_step(const dw_group *group, bool has_pushed, bool is_closing)
{
    const dw_exchange *exchange = &group->exchange;
    bool is_blocked = false, is_busy = exchange->running.first || is_closing;
    if (has_pushed || group->progress.left.head) return 0;
    for (uint32_t i = 0; i < exchange->settings.ranks; i++) {
        const dw_peer *peer = &exchange->peers[i];
        is_blocked |= peer->is_blocked;
        is_busy |= !dw_retransmission_is_complete(peer);
        is_busy |= !group->progress.has_closed && dw_membership_must_notify(peer);
    }
    return is_blocked ? ROOM_NS : (is_busy ? LOOK_MS : IDLE_MS) * (int64_t)DW_NS_PER_MS;
}

/* All that other threads have left for the progress owner is taken at the start, under one lock: a
 * short operation takes four steps, so each lock in a step costs it time. If more comes later, the
 * next step follows at once (has_work in progress_owner.c). */
int64_t dw_progress_step(dw_group *group, int64_t *stepped_ns)
{
    dw_exchange *exchange = &group->exchange;
    const dw_settings *settings = &exchange->settings;
    dw_progress *progress = &group->progress;
    dw_received_list inbox = group->inbox.list;
    bool is_closing = group->is_closing, is_damaged = group->inbox.is_damaged;
    bool has_started = group->started.first != NULL;
    group->inbox = (dw_group_inbox){.bytes = 0};
    pthread_mutex_unlock(&group->lock);
    /* What a link still had when it failed came after what its handler was given. */
    for (dw_received *left; (left = dw_received_pop(&progress->left)) != NULL;)
        dw_received_append(&inbox, left);
    if (inbox.head) sort_inbox(group, &inbox);
    if (has_started) begin_operations(group);
    if (is_damaged) look_at_damage(group);
    for (uint32_t i = 0; !progress->left.head && i < settings->ranks; i++)
        dw_membership_take_lost(&exchange->peers[i]);
    dw_progress_end_failed(group);
    bool has_pushed = push(exchange);
    dw_progress_end_failed(group);
    finish_operations(group);
    dw_progress_end_failed(group);
    for (uint32_t i = 0; i < settings->ranks; i++)
        if (exchange->peers[i].link) dw_peer_acknowledge(&exchange->peers[i]);
    int64_t now_ns = *stepped_ns = dw_now_ns();
    if (now_ns - progress->looked_ns >= LOOK_MS * (int64_t)DW_NS_PER_MS) look(group, now_ns);
    if (is_closing) close_peers(group, now_ns);
    int64_t left_ns = until_next_step(group, has_pushed, is_closing);
    pthread_mutex_lock(&group->lock);
    group->published = exchange->count;
    return left_ns;
}

bool dw_progress_may_end(const dw_group *group, int64_t now_ns)
{
    const dw_progress *progress = &group->progress;
    if (!progress->has_closed) return false;
    if (now_ns - progress->closing_ns >= CLOSE_MS * (int64_t)DW_NS_PER_MS) return true;
    for (uint32_t i = 0; i < group->exchange.settings.ranks; i++)
        if (!dw_membership_has_ended(&group->exchange.peers[i])) return false;
    return true;
}
