/* SPDX-License-Identifier: Apache-2.0
 * all_gather.c - hop 2: the rank that owns a part encodes it once and sends the same frames to all.
 * All ranks, the owner too, take what the frames decode to.
 *
 * Pieces are decoded into y, if it lies in main memory, before the operation ends, because copying
 * the whole result at the end would take time in which nothing is sent. But no other rank waits for
 * that. So results wait while this rank can still encode or send something of the same or an
 * earlier operation.
 *
 * What y held is kept for the case that the operation fails (rollback.c). In a large operation that
 * is as much memory traffic as all the rest of hop 2. But once this rank has sent all, and all
 * results have arrived and were checked, nothing can fail any more: what is decoded from then on
 * overwrites y, and the operation ends well even if the group fails meanwhile. */
#include <string.h>

#include "exchange.h"

/* Decodes a piece of a rank's part to `to`. only_checks: says only whether that will work. */
static bool decode(dw_exchange *exchange, dw_group_slot *slot, uint32_t from, uint32_t piece,
                   const void *frame, size_t len, unsigned char *to, bool only_checks)
{
    const dw_group_job *job = &slot->now.job;
    dw_message head = dw_frame_header(slot, 2, from, piece);
    dw_piece at = dw_partition_piece(&slot->now.cut, from, piece);
    dw_tensor y;
    if (at.count > 0) y = dw_flat_view(to, job->dtype, at.count);
    /* In an operation that is not safe, what y held was just copied, so y is in the caches. */
    dw_decode_options options = {.struct_size = sizeof options,
                                 .bypass_caches = slot->gather.is_safe,
                                 .only_checks = only_checks};
    return dw_coding_decode(&exchange->coding, &slot->coders, &head, from, frame, len,
                            at.count > 0 ? &y : NULL, &options);
}

/* Takes a result into y, or to where it waits until it is copied to y. */
static bool accept(dw_exchange *exchange, dw_group_slot *slot, uint32_t from, uint32_t piece,
                   const void *frame, size_t len)
{
    dw_operation_state *now = &slot->now;
    dw_piece at = dw_partition_piece(&now->cut, from, piece);
    unsigned char *taken = &slot->gather.taken[slot->gather.first_piece[from] + piece];
    unsigned char *to = NULL; /* y may be NULL where nothing is in it */
    if (at.count > 0)
        to = slot->gather.is_safe ? dw_rollback_y(slot, at) : dw_rollback_room(slot, taken, at);
    if (!decode(exchange, slot, from, piece, frame, len, to, false)) return false;
    slot->gather.left_to_take--;
    return true;
}

static bool accept_received(dw_exchange *exchange, dw_group_slot *slot)
{
    dw_received *received = dw_received_pop(&slot->gather.arrived);
    slot->gather.n_arrived--;
    bool is_accepted = accept(exchange, slot, received->from, received->head.piece,
                              dw_received_body(received), (size_t)received->head.body_len);
    dw_received_give(&exchange->pool, received);
    return is_accepted;
}

static void put_received(dw_group_slot *slot, dw_received *received)
{
    dw_received_append(&slot->gather.arrived, received);
    slot->gather.n_arrived++;
}

/* Finds out whether the operation is safe from now on. */
static void check_received(dw_exchange *exchange, dw_group_slot *slot)
{
    dw_operation_state *now = &slot->now;
    if (slot->gather.is_safe || !slot->gather.may_be_safe || slot->reduce.left_to_contribute > 0 ||
        slot->reduce.left_to_add > 0 || slot->gather.left_to_share > 0 ||
        slot->fan.left_to_send > 0 || slot->gather.n_arrived < slot->gather.left_to_take)
        return;
    for (dw_received *received = slot->gather.arrived.head; received; received = received->next) {
        const dw_message *head = &received->head;
        dw_piece at = dw_partition_piece(&now->cut, received->from, head->piece);
        unsigned char *to = at.count > 0 ? dw_rollback_y(slot, at) : NULL;
        if (!decode(exchange, slot, received->from, head->piece, dw_received_body(received),
                    (size_t)head->body_len, to, true))
            return;
    }
    slot->gather.is_safe = true;
}

void dw_all_gather_is_ready(dw_group_slot *slot, uint32_t piece)
{
    slot->gather.ready[slot->gather.ready_end++] = piece;
}

/* Encodes the piece into one of the messages, and takes the result itself, later if the operation
 * may become safe: no other rank waits for that. */
static bool fill(dw_exchange *exchange, dw_group_slot *slot, uint32_t piece, dw_frame_room *frame)
{
    const dw_settings *settings = &exchange->settings;
    dw_piece at = dw_partition_piece(&slot->now.cut, settings->rank, piece);
    dw_message head = dw_frame_header(slot, 2, settings->rank, piece);
    frame->len = 0;
    if (at.count > 0) {
        dw_tensor x = dw_frame_result(slot, at);
        if (!dw_coding_encode(&exchange->coding, &slot->coders, &head, &x, slot->now.is_large,
                              frame) ||
            !dw_rollback_keep(exchange, slot, &head, frame))
            return false;
    }
    if (!slot->gather.may_be_safe)
        return accept(exchange, slot, settings->rank, piece, frame->at, frame->len);
    dw_received *own = dw_frame_to_self(exchange, &head, frame);
    if (own)
        put_received(slot, own);
    else
        dw_failure_set(&exchange->failure, DW_ERR_NO_MEMORY, settings->rank,
                       "slot %llu: rank %u has no memory for its own result",
                       (unsigned long long)slot->number, settings->rank);
    return own != NULL;
}

bool dw_all_gather_share(dw_exchange *exchange, dw_group_slot *slot)
{
    const dw_settings *settings = &exchange->settings;
    dw_operation_state *now = &slot->now;
    if (slot->gather.ready_first == slot->gather.ready_end) return false;
    uint32_t piece = slot->gather.ready[slot->gather.ready_first];
    dw_piece at = dw_partition_piece(&now->cut, settings->rank, piece);
    dw_frame_room frame = {.cap = dw_frame_result_bound(exchange, slot, at)};
    unsigned char *bodies[DW_GROUP_MOST_RANKS];
    if (!dw_fan_out_begin(exchange, slot, &frame, bodies)) return false;
    if (!fill(exchange, slot, piece, &frame)) {
        dw_fan_out_drop(exchange, bodies);
        return false;
    }
    dw_message head = dw_frame_header(slot, 2, settings->rank, piece);
    if (!dw_fan_out_end(exchange, slot, bodies, &head, &frame)) return false;
    slot->gather.ready_first++;
    slot->gather.left_to_share--;
    return true;
}

/* A result waits in memory until it is decoded, so one that is longer than any frame is refused. */
static bool is_due(dw_exchange *exchange, const dw_group_slot *slot, const dw_received *received)
{
    const dw_settings *settings = &exchange->settings;
    const dw_group_job *job = &slot->now.job;
    const dw_message *head = &received->head;
    uint32_t part = received->from;
    if (!dw_job_gathers(settings, job) || head->part != part ||
        head->piece >= dw_partition_pieces(&slot->now.cut, part) ||
        slot->gather.taken[slot->gather.first_piece[part] + head->piece])
        return false;
    dw_piece at = dw_partition_piece(&slot->now.cut, part, head->piece);
    return head->body_len <= dw_frame_result_bound(exchange, slot, at);
}

void dw_all_gather_take(dw_exchange *exchange, dw_group_slot *slot, dw_received *received)
{
    uint32_t from = received->from;
    if (!is_due(exchange, slot, received)) {
        dw_received_give(&exchange->pool, received);
        dw_failure_set(&exchange->failure, DW_ERR_PROTOCOL, from,
                       "slot %llu: rank %u sent a result that is not due or too long",
                       (unsigned long long)slot->number, from);
        return;
    }
    slot->gather.taken[slot->gather.first_piece[from] + received->head.piece] |= DW_PIECE_ARRIVED;
    slot->gather.owes[from]--;
    put_received(slot, received);
}

bool dw_all_gather_accept(dw_exchange *exchange, dw_group_slot *slot)
{
    if (!slot->gather.arrived.head) return false;
    check_received(exchange, slot);
    if (exchange->failure.status == DW_OK) accept_received(exchange, slot);
    return true;
}

bool dw_all_gather_finish(dw_exchange *exchange, dw_group_slot *slot)
{
    while (slot->gather.arrived.head && accept_received(exchange, slot)) {
    }
    return slot->gather.left_to_take == 0;
}

void dw_all_gather_drop(dw_exchange *exchange, dw_group_slot *slot)
{
    for (dw_received *left; (left = dw_received_pop(&slot->gather.arrived)) != NULL;)
        dw_received_give(&exchange->pool, left);
}

/* ---- The beginning --------------------------------------------------------------------------- */

/* Whether results may be decoded into y before all of x was read: x and y do not overlap, or each
 * value of x has the same address as its own result. Never if the buffers are on a GPU. */
static bool may_land_in_y(const dw_settings *settings, const dw_group_job *job, uint64_t own_begin)
{
    size_t each = dw_dtype_bytes(job->dtype);
    uintptr_t x = (uintptr_t)job->x, y = (uintptr_t)job->y;
    bool is_apart = x + dw_job_reads(settings, job) * each <= y || y + job->n * each <= x;
    uint64_t first = job->operation == DW_ALL_GATHER ? own_begin : 0;
    return !job->cuda && (is_apart || x == y + first * each);
}

/* Whether it pays to find out that nothing can go wrong any more. It does not with state, which
 * would have to be decoded, nor where bytes are coded once more, so that their number varies. */
static bool may_be_safe(dw_exchange *exchange, const dw_group_slot *slot)
{
    const dw_settings *settings = &exchange->settings;
    const dw_group_job *job = &slot->now.job;
    dw_piece first = dw_partition_first_piece(&slot->now.cut);
    uint64_t bytes = first.count * dw_dtype_bytes(job->dtype), ratio = settings->thresholds.ratio;
    return slot->now.is_large && slot->gather.lands_in_y && !dw_verifying_is_due(settings, job) &&
           bytes >= ratio * dw_frame_result_bound(exchange, slot, first) &&
           settings->has_fixed_results;
}

void dw_all_gather_begin(dw_exchange *exchange, dw_group_slot *slot)
{
    const dw_settings *settings = &exchange->settings;
    const dw_operation_state *now = &slot->now;
    dw_all_gather *gather = &slot->gather;
    memset(gather->owes, 0, settings->ranks * sizeof *gather->owes);
    if (!dw_job_gathers(settings, &now->job)) return;
    gather->lands_in_y = may_land_in_y(settings, &now->job, now->begin);
    gather->may_be_safe = may_be_safe(exchange, slot);
    for (uint32_t r = 0; r < settings->ranks; r++) {
        uint32_t pieces = dw_partition_pieces(&now->cut, r);
        gather->first_piece[r] = gather->left_to_take;
        gather->left_to_take += pieces;
        gather->owes[r] = r != settings->rank ? pieces : 0;
    }
    memset(gather->taken, 0, (size_t)gather->left_to_take);
    gather->left_to_share = now->own_pieces;
    /* Without hop 1 there is nothing to wait for: all own pieces are ready. */
    for (uint32_t i = 0; !dw_job_reduces(&now->job) && i < now->own_pieces; i++)
        dw_all_gather_is_ready(slot, i);
}
