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
#include "group.h"

dw_tensor dw_all_gather_source(const dw_group_slot *slot, dw_piece at)
{
    const dw_operation_state *now = &slot->now;
    if (dw_job_reduces(&now->job))
        return dw_flat_view(slot->sums + (at.begin - now->begin), DW_F32, at.count);
    const unsigned char *x = now->job.x;
    size_t bytes = dw_dtype_bytes(now->job.dtype);
    return dw_flat_view(x + (at.begin - now->begin) * bytes, now->job.dtype, at.count);
}

/* Decodes a piece of a rank's part to `to`. only_checks: says only whether that will work. */
static bool decode(dw_group *group, dw_group_slot *slot, uint32_t from, uint32_t piece,
                   const void *frame, size_t len, unsigned char *to, bool only_checks)
{
    const dw_group_job *job = &slot->now.job;
    dw_message head = dw_operation_message(slot, 2, from, piece);
    dw_piece at = dw_job_piece(group, job, from, piece);
    dw_tensor y;
    if (at.count > 0) y = dw_flat_view(to, job->dtype, at.count);
    /* In an operation that is not safe, what y held was just copied, so y is in the caches. */
    dw_decode_options options = {.struct_size = sizeof options,
                                 .bypass_caches = slot->now.is_safe,
                                 .only_checks = only_checks};
    return dw_coders_decode(group, slot, &head, from, frame, len, at.count > 0 ? &y : NULL,
                            &options);
}

/* Takes a result into y, or to where it waits until it is copied to y. */
static bool accept(dw_group *group, dw_group_slot *slot, uint32_t from, uint32_t piece,
                   const void *frame, size_t len)
{
    dw_operation_state *now = &slot->now;
    dw_piece at = dw_job_piece(group, &now->job, from, piece);
    unsigned char *taken = &slot->taken[slot->first_piece[from] + piece];
    unsigned char *to = NULL; /* y may be NULL where nothing is in it */
    if (at.count > 0)
        to = now->is_safe ? dw_rollback_y(slot, at) : dw_rollback_room(slot, taken, at);
    if (!decode(group, slot, from, piece, frame, len, to, false)) return false;
    now->left_to_take--;
    return true;
}

static bool accept_received(dw_group *group, dw_group_slot *slot)
{
    dw_received *received = dw_received_pop(&slot->now.arrived);
    slot->now.n_arrived--;
    bool is_accepted = accept(group, slot, received->from, received->head.piece,
                              dw_received_body(received), (size_t)received->head.body_len);
    dw_received_give(group, received);
    return is_accepted;
}

static void put_received(dw_group_slot *slot, dw_received *received)
{
    dw_received_append(&slot->now.arrived, received);
    slot->now.n_arrived++;
}

/* Finds out whether the operation is safe from now on. */
static void check_received(dw_group *group, dw_group_slot *slot)
{
    dw_operation_state *now = &slot->now;
    if (now->is_safe || !now->may_be_safe || now->left_to_contribute > 0 || now->left_to_add > 0 ||
        now->left_to_share > 0 || now->left_to_send > 0 || now->n_arrived < now->left_to_take)
        return;
    for (dw_received *received = now->arrived.head; received; received = received->next) {
        const dw_message *head = &received->head;
        dw_piece at = dw_job_piece(group, &now->job, received->from, head->piece);
        unsigned char *to = at.count > 0 ? dw_rollback_y(slot, at) : NULL;
        if (!decode(group, slot, received->from, head->piece, dw_received_body(received),
                    (size_t)head->body_len, to, true))
            return;
    }
    now->is_safe = true;
}

/* Encodes the piece into one of the messages, and takes the result itself, later if the operation
 * may become safe: no other rank waits for that. */
static bool fill(dw_group *group, dw_group_slot *slot, uint32_t piece, dw_frame_room *frame)
{
    dw_piece at = dw_job_piece(group, &slot->now.job, group->rank, piece);
    dw_message head = dw_operation_message(slot, 2, group->rank, piece);
    frame->len = 0;
    if (at.count > 0) {
        dw_tensor x = dw_all_gather_source(slot, at);
        if (!dw_coders_encode(group, slot, &head, &x, frame)) return false;
    }
    if (!slot->now.may_be_safe)
        return accept(group, slot, group->rank, piece, frame->at, frame->len);
    dw_received *own = dw_operation_to_self(group, &head, frame);
    if (own)
        put_received(slot, own);
    else
        dw_group_fail(group, DW_ERR_NO_MEMORY, group->rank,
                      "slot %llu: rank %u has no memory for its own result",
                      (unsigned long long)slot->number, group->rank);
    return own != NULL;
}

/* Sums are in binary32, whatever x is. */
size_t dw_all_gather_bound(dw_group *group, const dw_group_slot *slot, dw_piece at)
{
    const dw_group_job *job = &slot->now.job;
    dw_dtype dtype = dw_job_reduces(job) ? DW_F32 : job->dtype;
    return dw_coders_bound(group, &group->result, dtype, at.count);
}

bool dw_all_gather_share(dw_group *group, dw_group_slot *slot)
{
    dw_operation_state *now = &slot->now;
    if (now->ready_first == now->ready_end) return false;
    uint32_t piece = slot->ready[now->ready_first];
    dw_piece at = dw_job_piece(group, &now->job, group->rank, piece);
    dw_frame_room frame = {.cap = dw_all_gather_bound(group, slot, at)};
    unsigned char *bodies[DW_GROUP_MOST_RANKS];
    if (!dw_fan_out_begin(group, slot, &frame, bodies)) return false;
    if (!fill(group, slot, piece, &frame)) {
        dw_fan_out_drop(group, bodies);
        return false;
    }
    dw_message head = dw_operation_message(slot, 2, group->rank, piece);
    if (!dw_fan_out_end(group, slot, bodies, &head, &frame)) return false;
    now->ready_first++;
    now->left_to_share--;
    return true;
}

/* A result waits in memory until it is decoded, so one that is longer than any frame is refused. */
static bool is_due(dw_group *group, const dw_group_slot *slot, const dw_received *received)
{
    const dw_group_job *job = &slot->now.job;
    const dw_message *head = &received->head;
    uint32_t part = received->from;
    if (!dw_job_gathers(group, job) || head->part != part ||
        head->piece >= dw_job_pieces(group, job, part) ||
        slot->taken[slot->first_piece[part] + head->piece])
        return false;
    dw_piece at = dw_job_piece(group, job, part, head->piece);
    return head->body_len <= dw_all_gather_bound(group, slot, at);
}

void dw_all_gather_take(dw_group *group, dw_group_slot *slot, dw_received *received)
{
    uint32_t from = received->from;
    if (!is_due(group, slot, received)) {
        dw_received_give(group, received);
        dw_group_fail(group, DW_ERR_PROTOCOL, from,
                      "slot %llu: rank %u sent a result that is not due or too long",
                      (unsigned long long)slot->number, from);
        return;
    }
    slot->taken[slot->first_piece[from] + received->head.piece] |= DW_PIECE_ARRIVED;
    slot->owes_result[from]--;
    put_received(slot, received);
}

bool dw_all_gather_accept(dw_group *group, dw_group_slot *slot)
{
    if (!slot->now.arrived.head) return false;
    check_received(group, slot);
    if (group->status == DW_OK) accept_received(group, slot);
    return true;
}

bool dw_all_gather_finish(dw_group *group, dw_group_slot *slot)
{
    while (slot->now.arrived.head && accept_received(group, slot)) {
    }
    return slot->now.left_to_take == 0;
}
