/* SPDX-License-Identifier: Apache-2.0
 * operation.c - what an operation expects from the other ranks, and when it is finished. */
#include <string.h>

#include "exchange.h"
#include "failure_detector.h"

static const char *name_of(unsigned operation)
{
    static const char *const names[] = {"?", "all-reduce", "reduce-scatter", "all-gather",
                                        "broadcast"};
    return names[operation <= DW_BROADCAST ? operation : 0];
}

static const char *dtype_of(unsigned dtype)
{
    return dtype == DW_F32 ? "f32" : dtype == DW_F16 ? "f16" : dtype == DW_BF16 ? "bf16" : "?";
}

/* Whether the message belongs to the operation as it was started here. */
static bool agrees(dw_exchange *exchange, const dw_group_slot *slot, const dw_received *received)
{
    const dw_group_job *job = &slot->now.job;
    const dw_message *head = &received->head;
    bool mean = head->flags & DW_MESSAGE_MEAN;
    if (head->operation == job->operation && head->dtype == job->dtype && head->n == job->n &&
        head->rank == job->root && mean == (job->mean != 0))
        return true;
    dw_failure_set(&exchange->failure, DW_ERR_MISMATCH, received->from,
                   "slot %llu: rank %u started %s of %llu %s (mean %d, root %u), and rank %u %s of "
                   "%llu %s (mean %d, root %u)",
                   (unsigned long long)slot->number, received->from, name_of(head->operation),
                   (unsigned long long)head->n, dtype_of(head->dtype), mean, head->rank,
                   exchange->settings.rank, name_of(job->operation), (unsigned long long)job->n,
                   dtype_of(job->dtype), job->mean != 0, job->root);
    return false;
}

static void take(dw_exchange *exchange, dw_group_slot *slot, dw_received *received)
{
    if (!agrees(exchange, slot, received)) {
        dw_received_give(&exchange->pool, received);
    } else if (received->head.flags & DW_MESSAGE_DIGEST) {
        dw_verifying_take(exchange, slot, received);
    } else if (received->head.flags & DW_MESSAGE_HOP2) {
        dw_all_gather_take(exchange, slot, received);
    } else {
        dw_reduce_scatter_take(exchange, slot, received);
    }
}

/* An operation that has not begun here: the message waits for it. */
static void keep_early(dw_exchange *exchange, dw_group_slot *slot, dw_received *received)
{
    exchange->early_bytes += dw_received_weight(received);
    dw_received_append(&slot->early, received);
}

void dw_operation_take(dw_exchange *exchange, dw_group_slot *slot, bool is_new,
                       dw_received *received)
{
    dw_peer *peer = &exchange->peers[received->from];
    if (is_new) {
        slot->is_early = true;
        exchange->early_bytes += DW_SLOT_BYTES;
    }
    if (received->head.visit < slot->visit) {
        /* Messages come once and in order, so that rank started something else. */
        dw_failure_set(&exchange->failure, DW_ERR_MISMATCH, received->from,
                       "slot %llu: rank %u sent a message about an operation that has finished on "
                       "rank %u; do all ranks start the same operations?",
                       (unsigned long long)received->head.slot, received->from,
                       exchange->settings.rank);
        dw_received_give(&exchange->pool, received);
    } else if (slot->is_begun && received->head.visit == slot->visit) {
        take(exchange, slot, received); /* which fails the group if this was not owed */
        dw_failure_detector_hear(peer);
    } else {
        dw_failure_detector_hear_early(peer, received->head.body_len);
        keep_early(exchange, slot, received);
    }
}

/* A rank that has closed its group may have finished this operation before: it does not wait for
 * all others in a broadcast. What it sent arrived before its goodbye. */
static void look_for_closed(dw_exchange *exchange, const dw_group_slot *slot)
{
    for (uint32_t r = 0; r < exchange->settings.ranks && exchange->failure.status == DW_OK; r++)
        if (exchange->peers[r].is_closed &&
            (slot->reduce.owes[r] || slot->gather.owes[r] || dw_slot_owes_digest(slot, r)))
            dw_failure_set(&exchange->failure, DW_ERR_PEER, r, "rank %u has closed its group", r);
}

void dw_operation_begin(dw_exchange *exchange, dw_group_slot *slot)
{
    slot->now.is_large = slot->now.job.n >= exchange->settings.thresholds.large_from;
    dw_reduce_scatter_begin(exchange, slot);
    dw_all_gather_begin(exchange, slot);
    dw_fan_out_start(exchange, slot);
    dw_verifying_begin(exchange, slot);
    slot->is_begun = true;
    if (slot->is_early) exchange->early_bytes -= DW_SLOT_BYTES;
    slot->is_early = false;
    dw_received_list early = slot->early;
    slot->early = (dw_received_list){NULL, NULL};
    dw_received *received;
    while ((received = dw_received_pop(&early)) != NULL) {
        exchange->early_bytes -= dw_received_weight(received);
        if (exchange->failure.status != DW_OK)
            dw_received_give(&exchange->pool, received);
        else if (received->head.visit == slot->visit)
            take(exchange, slot, received);
        else
            keep_early(exchange, slot, received);
    }
    look_for_closed(exchange, slot);
}

/* Whether this rank has sent and received everything but digests. */
static bool is_complete(const dw_group_slot *slot)
{
    return slot->reduce.left_to_contribute == 0 && slot->reduce.left_to_add == 0 &&
           slot->gather.left_to_share == 0 && slot->fan.left_to_send == 0 &&
           slot->gather.left_to_take == 0;
}

/* Contributions first: a wire carries messages in their order, and the work of other ranks begins
 * with them. If results came first, a slow rank would send its last contribution at the very end,
 * and all others would have to add it, and to send their results, after that. */
bool dw_operation_push(dw_exchange *exchange, dw_group_slot *slot)
{
    bool is_one_shot = dw_job_is_one_shot(&exchange->settings, &slot->now.job);
    if (is_one_shot ? dw_one_shot_contribute(exchange, slot)
                    : dw_reduce_scatter_contribute(exchange, slot))
        return true;
    if (exchange->failure.status != DW_OK) return false;
    if (dw_fan_out_send(exchange, slot)) return true;
    if (exchange->failure.status != DW_OK) return false;
    if (dw_all_gather_share(exchange, slot)) return true;
    if (exchange->failure.status != DW_OK) return false;
    if (is_complete(slot))
        return !dw_operation_is_finished(slot) && dw_verifying_compare(exchange, slot);
    return dw_reduce_scatter_add(exchange, slot);
}

bool dw_operation_is_finished(const dw_group_slot *slot)
{
    return is_complete(slot) && slot->verify.left_to_send == 0 && slot->verify.left_to_check == 0;
}

void dw_operation_end(dw_exchange *exchange, dw_group_slot *slot)
{
    slot->visit++;
    slot->is_begun = false;
    dw_rollback_residuals(exchange, slot, false);
}

/* If this rank has closed the group, residuals are not restored: nobody can ask for them, and x may
 * have been freed already. */
bool dw_operation_fail(dw_exchange *exchange, dw_group_slot *slot)
{
    if (slot->is_begun && slot->gather.is_safe && dw_all_gather_finish(exchange, slot)) {
        dw_operation_end(exchange, slot);
        return true;
    }
    if (slot->is_begun) {
        dw_rollback_output(&exchange->settings, slot); /* first, because y may be x */
        dw_rollback_residuals(exchange, slot, exchange->failure.status != DW_ERR_CANCELLED);
        dw_all_gather_drop(exchange, slot);
        dw_reduce_scatter_drop(exchange, slot);
        dw_fan_out_free(exchange, slot);
    }
    slot->is_begun = false;
    return false;
}

/* Rounds the own part of the sums to 16 bits: with the codec of plain floats, so that the rounding
 * is specified where all others are. The result lies where `result` begins. */
static dw_status round_sums(dw_exchange *exchange, dw_group_slot *slot)
{
    const dw_operation_state *now = &slot->now;
    uint32_t part = now->cut.own_part;
    dw_status status = DW_OK;
    for (uint32_t i = 0; status == DW_OK && i < now->own_pieces; i++) {
        dw_piece at = dw_partition_piece(&now->cut, part, i);
        uint64_t offset = at.begin - now->begin;
        if (at.count == 0) continue;
        dw_tensor x = dw_flat_view(slot->reduce.sums + offset, DW_F32, at.count);
        dw_tensor y = dw_flat_view(slot->gather.result + offset * 2, now->job.dtype, at.count);
        status = dw_coding_round(&exchange->coding, &x, &y);
    }
    return status;
}

void dw_operation_deliver(dw_exchange *exchange, dw_group_slot *slot)
{
    const dw_settings *settings = &exchange->settings;
    const dw_group_job *job = &slot->now.job;
    size_t bytes = (size_t)dw_job_writes(settings, job) * dw_dtype_bytes(job->dtype);
    const void *from = slot->gather.result;
    if (!dw_job_gathers(settings, job) && job->dtype == DW_F32) {
        from = slot->reduce.sums;
    } else if (!dw_job_gathers(settings, job)) {
        dw_status status = round_sums(exchange, slot);
        if (status != DW_OK) {
            dw_failure_set(&exchange->failure, status, settings->rank,
                           "slot %llu: the sums cannot be rounded: %s",
                           (unsigned long long)slot->number, dw_status_string(status));
            return;
        }
    }
    if (bytes == 0 || slot->gather.lands_in_y) return;
    if (job->cuda)
        dw_device_store(exchange, slot, from, bytes);
    else
        memcpy(job->y, from, bytes);
}
