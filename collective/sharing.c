/* SPDX-License-Identifier: Apache-2.0
 * sharing.c - hop 2: the rank that owns a part encodes it once and sends the same frames to all.
 * All ranks, the owner too, take what the frames decode to.
 *
 * Pieces are decoded into y, if it lies in main memory, before the operation ends, because copying
 * the whole result at the end would take time in which nothing is sent. But no other rank waits for
 * that. So results of others wait while this rank can still encode or send something of the same or
 * an earlier operation. */
#include "group.h"

dw_tensor dw_sharing_source(const dw_group_slot *slot, dw_piece at)
{
    const dw_progress *now = &slot->now;
    if (dw_group_adds(&now->job))
        return dw_group_view(slot->sums + (at.begin - now->begin), DW_F32, at.count);
    const unsigned char *x = now->job.x;
    size_t bytes = dw_dtype_bytes(now->job.dtype);
    return dw_group_view(x + (at.begin - now->begin) * bytes, now->job.dtype, at.count);
}

/* Decodes a piece of a rank's part. */
static bool accept(dw_group *group, dw_group_slot *slot, uint32_t from, uint32_t piece,
                   const void *frame, size_t len)
{
    const dw_group_job *job = &slot->now.job;
    dw_message head = dw_operation_message(slot, 2, from, piece);
    dw_decoder *decoder = group->coders.take[from];
    dw_piece at = dw_group_piece_at(group, job, from, piece);
    if (at.count == 0) return dw_coders_decode(group, decoder, &head, from, frame, len, NULL, NULL);
    unsigned char *taken = &slot->taken[slot->first_piece[from] + piece];
    dw_tensor y = dw_group_view(dw_keeping_room(slot, taken, at), job->dtype, at.count);
    return dw_coders_decode(group, decoder, &head, from, frame, len, &y, NULL);
}

/* Encodes the piece into one of the messages, and takes the result itself. */
static bool fill(dw_group *group, dw_group_slot *slot, uint32_t piece, size_t cap,
                 unsigned char *first, size_t *len)
{
    dw_piece at = dw_group_piece_at(group, &slot->now.job, group->rank, piece);
    dw_message head = dw_operation_message(slot, 2, group->rank, piece);
    *len = 0;
    if (at.count > 0) {
        dw_tensor x = dw_sharing_source(slot, at);
        if (!dw_coders_encode(group, slot, group->coders.share, &head, &x, first, cap, len))
            return false;
    }
    return accept(group, slot, group->rank, piece, first, *len);
}

/* The most bytes that the result of a piece has. Sums are in binary32, whatever x is. */
static size_t bound(dw_group *group, const dw_group_slot *slot, dw_piece at)
{
    const dw_group_job *job = &slot->now.job;
    dw_dtype dtype = dw_group_adds(job) ? DW_F32 : job->dtype;
    return dw_coders_bound(group, &group->result, dtype, at.count);
}

bool dw_sharing_share(dw_group *group, dw_group_slot *slot)
{
    dw_progress *now = &slot->now;
    if (now->ready_first == now->ready_end) return false;
    uint32_t piece = slot->ready[now->ready_first];
    dw_piece at = dw_group_piece_at(group, &now->job, group->rank, piece);
    size_t cap = bound(group, slot, at), len;
    unsigned char *bodies[DW_GROUP_MOST_RANKS];
    if (!dw_everyone_begin(group, cap, bodies)) return false;
    unsigned char *first = bodies[group->rank == 0 ? 1 : 0]; /* there are two ranks at least */
    if (!fill(group, slot, piece, cap, first, &len)) {
        dw_everyone_drop(group, bodies);
        return false;
    }
    dw_message head = dw_operation_message(slot, 2, group->rank, piece);
    if (!dw_everyone_end(group, bodies, &head, first, len)) return false;
    now->ready_first++;
    now->left_to_share--;
    return true;
}

/* A result waits in memory until it is decoded, so one that is longer than any frame is refused. */
static bool is_due(dw_group *group, const dw_group_slot *slot, const dw_arrival *arrival)
{
    const dw_group_job *job = &slot->now.job;
    const dw_message *head = &arrival->head;
    uint32_t part = arrival->from;
    if (!dw_group_shares(group, job) || head->part != part ||
        head->piece >= dw_group_pieces_of(group, job, part) ||
        slot->taken[slot->first_piece[part] + head->piece])
        return false;
    return head->body_len <= bound(group, slot, dw_group_piece_at(group, job, part, head->piece));
}

void dw_sharing_take(dw_group *group, dw_group_slot *slot, dw_arrival *arrival)
{
    uint32_t from = arrival->from;
    if (!is_due(group, slot, arrival)) {
        dw_arrival_give(group, arrival);
        dw_group_fail(group, DW_ERR_PROTOCOL, from,
                      "slot %llu: rank %u sent a result that is not due or too long",
                      (unsigned long long)slot->number, from);
        return;
    }
    slot->taken[slot->first_piece[from] + arrival->head.piece] |= DW_PIECE_ARRIVED;
    slot->owes_result[from]--;
    dw_arrivals_put(&slot->now.arrived, arrival);
}

bool dw_sharing_accept(dw_group *group, dw_group_slot *slot)
{
    dw_arrival *arrival = dw_arrivals_get(&slot->now.arrived);
    if (!arrival) return false;
    if (accept(group, slot, arrival->from, arrival->head.piece, dw_arrival_body(arrival),
               (size_t)arrival->head.body_len))
        slot->now.left_to_take--;
    dw_arrival_give(group, arrival);
    return true;
}
