/* SPDX-License-Identifier: Apache-2.0
 * failure.c - how a group fails: operations in progress end with the same error, except those that
 * are safe (all_gather.c), and the other ranks are told, so that they need not wait for their own
 * timeouts. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "group.h"

dw_status dw_group_say(dw_why *why, dw_status status, const char *format, ...)
{
    if (!why) return status;
    va_list arguments;
    va_start(arguments, format);
    *why = (dw_why){.offset = -1};
    vsnprintf(why->text, sizeof why->text, format, arguments);
    va_end(arguments);
    return status;
}

/* Restores y, and frees the messages that an operation holds. x belongs to the caller again after
 * this. If this rank has closed the group, residuals are not restored: nobody can ask for them, and
 * x may have been freed already. */
static void drop_messages(dw_group *group, dw_group_slot *slot)
{
    if (slot->is_begun) dw_rollback_output(group, slot); /* first, because y may be x */
    dw_rollback_residuals(group, slot, group->status != DW_ERR_CANCELLED);
    for (dw_received *left; (left = dw_received_pop(&slot->now.arrived)) != NULL;)
        dw_received_give(group, left);
    if (slot->is_begun && dw_job_reduces(&slot->now.job)) {
        size_t n = (size_t)slot->now.own_pieces * group->ranks;
        for (size_t i = 0; i < n; i++) {
            dw_received_give(group, slot->waiting[i]);
            slot->waiting[i] = NULL;
        }
    }
    for (uint32_t i = 0; slot->is_begun && i < slot->now.own_pieces; i++) {
        dw_received_give(group, slot->kept[i]);
        slot->kept[i] = NULL;
    }
    slot->is_begun = false;
}

/* Ends all operations: those that are safe well, because y has been changed already, and is not
 * kept. Called with the lock, which is released in between. */
static void end_operations(dw_group *group, dw_group_slot **list, dw_group_slot **last)
{
    while (*list) {
        dw_group_slot *slot = *list;
        *list = slot->next_running;
        if (!*list) *last = NULL;
        pthread_mutex_unlock(&group->lock);
        bool is_done = slot->is_begun && slot->now.is_safe && dw_all_gather_finish(group, slot);
        if (is_done)
            dw_operation_end(group, slot);
        else
            drop_messages(group, slot);
        pthread_mutex_lock(&group->lock);
        slot->state = DW_SLOT_FAILED;
        if (is_done) dw_operation_set_done(group, slot);
    }
}

static void set_error(dw_group *group, dw_status status, uint32_t rank, const char *sentence)
{
    pthread_mutex_lock(&group->lock);
    snprintf(group->why.text, sizeof group->why.text, "%s", sentence);
    group->failed_rank = (int)rank;
    group->status = status;
    pthread_mutex_unlock(&group->lock);
}

static void end_all(dw_group *group)
{
    pthread_mutex_lock(&group->lock);
    end_operations(group, &group->running, &group->last_running);
    end_operations(group, &group->started, &group->last_started);
    pthread_cond_broadcast(&group->finished);
    pthread_mutex_unlock(&group->lock);
}

void dw_group_end(dw_group *group, dw_status status, uint32_t rank, const char *sentence)
{
    if (group->status != DW_OK) return;
    set_error(group, status, rank, sentence);
    end_all(group);
}

void dw_group_fail(dw_group *group, dw_status status, uint32_t rank, const char *format, ...)
{
    if (group->status != DW_OK) return;
    char sentence[sizeof group->why.text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    set_error(group, status, rank, sentence);
    /* The other ranks are told first, because restoring residuals takes a while. */
    for (uint32_t i = 0; i < group->ranks; i++) dw_failure_notify(group, &group->peers[i], false);
    end_all(group);
}

bool dw_failure_must_notify(const dw_group *group, const dw_peer *peer)
{
    return peer->retry_ms > 0 && group->status != DW_OK && !group->has_closed &&
           !peer->knows_failure && !peer->is_closed && peer->lost == DW_OK;
}

void dw_failure_notify(dw_group *group, dw_peer *peer, bool asks)
{
    if (!peer->link || peer->is_closed) return;
    peer->notified_ns = dw_group_now_ns();
    dw_message head = {.kind = DW_MESSAGE_ABORT,
                       .flags = asks ? DW_MESSAGE_ASKS : 0,
                       .rank = (uint32_t)group->failed_rank,
                       .slot = (uint64_t)(int64_t)group->status};
    dw_peer_notify(peer, &head, group->why.text, strlen(group->why.text));
}

/* Whether a status that a peer has sent is one of the errors, so that a peer cannot make calls
 * return anything else. */
static bool is_error_of_group(int64_t status)
{
    return status <= DW_ERR_ARGUMENT && status >= DW_ERR_AUTH;
}

void dw_failure_take_abort(dw_group *group, const dw_received *received)
{
    if (group->status != DW_OK) return;
    const dw_message *head = &received->head;
    int64_t status = (int64_t)head->slot;
    if (!is_error_of_group(status) || head->rank >= group->ranks) {
        dw_group_fail(group, DW_ERR_PROTOCOL, received->from,
                      "rank %u reports an error that cannot be understood", received->from);
        return;
    }
    char text[160];
    dw_message_text(text, sizeof text, dw_received_body(received), head->body_len);
    /* A sentence that was passed on already is passed on as it is. */
    if (strncmp(text, "rank ", 5) == 0 && strstr(text, " reports: "))
        dw_group_fail(group, (dw_status)status, head->rank, "%s", text);
    else
        dw_group_fail(group, (dw_status)status, head->rank, "rank %u reports: %s", received->from,
                      text);
}
