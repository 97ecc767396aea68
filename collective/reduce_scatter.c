/* SPDX-License-Identifier: Apache-2.0
 * reduce_scatter.c - hop 1: every rank's contributions to a part are added by the rank that owns it
 * (in an all-reduce of one hop: by every rank), in the order of the ranks. The bits of a sum depend
 * on the order, so a contribution that arrives before its turn is kept until those of all lower
 * ranks have been added.
 *
 * While this rank has contributions to send, those of others wait, if they are short, because other
 * ranks and the wires wait for the former. Later several are added to a piece at once, while its
 * sums are in the caches. */
#include <string.h>

#include "group.h"

/* ---- Sending --------------------------------------------------------------------------------- */

dw_tensor dw_reduce_scatter_source(const dw_group_slot *slot, dw_piece at)
{
    const dw_group_job *job = &slot->now.job;
    const unsigned char *x = job->x;
    return dw_flat_view(x + at.begin * dw_dtype_bytes(job->dtype), job->dtype, at.count);
}

bool dw_reduce_scatter_encode(dw_group *group, dw_group_slot *slot, uint32_t part, uint32_t piece,
                              dw_frame_room *frame)
{
    dw_piece at = dw_job_piece(group, &slot->now.job, part, piece);
    frame->len = 0;
    if (at.count == 0) return true;
    dw_tensor x = dw_reduce_scatter_source(slot, at);
    dw_message head = dw_operation_message(slot, 1, part, piece);
    return dw_coders_encode(group, slot, &head, &x, frame);
}

size_t dw_reduce_scatter_bound(dw_group *group, const dw_group_slot *slot, dw_piece at)
{
    return dw_coders_bound(group, &group->codec, slot->now.job.dtype, at.count);
}

/* Finds the rank to which the next piece is sent, and room for a message to it. Every rank begins
 * with the rank after itself, so that they do not all send to the same rank at the same time. A
 * rank that receives slowly does not hold up the others: it is passed over while its link is full.
 * Returns false if nothing can be sent now. */
static bool find_next(dw_group *group, dw_group_slot *slot, uint32_t *to, dw_frame_room *frame)
{
    dw_operation_state *now = &slot->now;
    for (uint32_t i = 0; i + 1 < group->ranks && group->status == DW_OK; i++) {
        *to = (group->rank + 1 + (now->step + i) % (group->ranks - 1)) % group->ranks;
        uint32_t piece = slot->contributed[*to];
        if (piece == dw_job_pieces(group, &now->job, *to)) continue;
        dw_piece at = dw_job_piece(group, &now->job, *to, piece);
        frame->cap = dw_reduce_scatter_bound(group, slot, at);
        frame->peer = &group->peers[*to];
        if (dw_peer_begin(frame->peer, frame->cap, &frame->at) == DW_OK) {
            now->step = (now->step + i + 1) % (group->ranks - 1);
            return true;
        }
    }
    return false;
}

/* BROADCAST: tells the root that this rank takes part. Without these messages two ranks that both
 * believe to be the root could finish with different buffers. */
static bool confirm(dw_group *group, dw_group_slot *slot)
{
    dw_operation_state *now = &slot->now;
    dw_peer *peer = &group->peers[now->job.root];
    unsigned char *body;
    if (dw_peer_begin(peer, 0, &body) != DW_OK) return false;
    dw_message head = dw_operation_message(slot, 1, now->job.root, 0);
    if (dw_peer_end(peer, body, &head, 0) != DW_OK) return false;
    now->left_to_contribute = 0;
    return true;
}

bool dw_reduce_scatter_contribute(dw_group *group, dw_group_slot *slot)
{
    dw_operation_state *now = &slot->now;
    uint32_t to;
    dw_frame_room frame;
    if (now->left_to_contribute == 0) return false;
    if (now->job.operation == DW_BROADCAST) return confirm(group, slot);
    if (dw_job_is_one_shot(group, &now->job)) return dw_one_shot_contribute(group, slot);
    if (!find_next(group, slot, &to, &frame)) return false;
    uint32_t piece = slot->contributed[to];
    if (!dw_reduce_scatter_encode(group, slot, to, piece, &frame)) {
        dw_peer_drop(frame.peer, frame.at);
        return false;
    }
    dw_message head = dw_operation_message(slot, 1, to, piece);
    if (dw_peer_end(frame.peer, frame.at, &head, frame.len) != DW_OK) return false;
    slot->contributed[to]++;
    now->left_to_contribute--;
    return true;
}

/* ---- Adding ---------------------------------------------------------------------------------- */

/* Adds a frame to the sum of a piece; the first one makes the sum. */
static bool add(dw_group *group, dw_group_slot *slot, uint32_t from, uint32_t piece, dw_piece at,
                const void *frame, size_t len)
{
    dw_message head = dw_operation_message(slot, 1, dw_job_own_part(group, &slot->now.job), piece);
    dw_tensor y = dw_flat_view(slot->sums + (at.begin - slot->now.begin), DW_F32, at.count);
    dw_decode_options options = {.struct_size = sizeof options, .adds = from > 0, .factor = 1};
    return dw_coders_decode(group, slot, &head, from, frame, len, at.count > 0 ? &y : NULL,
                            &options);
}

static bool add_own(dw_group *group, dw_group_slot *slot, uint32_t piece, dw_piece at)
{
    dw_frame_room frame = {.at = group->scratch, .cap = group->scratch_bytes};
    return dw_reduce_scatter_encode(group, slot, group->rank, piece, &frame) &&
           add(group, slot, group->rank, piece, at, frame.at, frame.len);
}

static void end_sum(dw_group *group, dw_group_slot *slot, uint32_t piece, dw_piece at)
{
    dw_operation_state *now = &slot->now;
    if (now->job.mean) {
        /* A division, not a product with 1 / D, which would be rounded twice. The environment of
         * floating point is the progress owner's own: see dw_progress_run_thread. */
        float *sums = slot->sums + (at.begin - now->begin), ranks = (float)group->ranks;
        for (uint64_t i = 0; i < at.count; i++) sums[i] /= ranks;
    }
    now->left_to_add--;
    if (dw_job_gathers(group, &now->job)) slot->ready[now->ready_end++] = piece;
}

/* Adds contributions to a piece in the order of the ranks, until one has not arrived yet. */
static void add_due(dw_group *group, dw_group_slot *slot, uint32_t piece)
{
    const dw_group_job *job = &slot->now.job;
    dw_piece at = dw_job_piece(group, job, dw_job_own_part(group, job), piece);
    uint32_t *next = &slot->added[piece];
    while (*next < group->ranks) {
        dw_received **waiting = &slot->waiting[(size_t)piece * group->ranks + *next];
        if (*next == group->rank && !dw_job_is_one_shot(group, job)) {
            if (!add_own(group, slot, piece, at)) return;
        } else if (*waiting) {
            dw_received *received = *waiting;
            *waiting = NULL;
            bool added = add(group, slot, *next, piece, at, dw_received_body(received),
                             (size_t)received->head.body_len);
            dw_received_give(group, received);
            if (!added) return;
        } else {
            return;
        }
        (*next)++;
    }
    end_sum(group, slot, piece, at);
}

static void put_due(dw_group_slot *slot, uint32_t piece)
{
    dw_operation_state *now = &slot->now;
    slot->due[now->due_end++ % now->own_pieces] = piece;
}

/* Rank 0's own contribution is the first one, and need not arrive, so all pieces are queued at the
 * beginning. */
static bool begins_with_own(const dw_group *group, const dw_group_slot *slot)
{
    return group->rank == 0 && !dw_job_is_one_shot(group, &slot->now.job);
}

void dw_reduce_scatter_begin(dw_group *group, dw_group_slot *slot)
{
    dw_operation_state *now = &slot->now;
    memset(slot->added, 0, now->own_pieces * sizeof *slot->added);
    memset(slot->waiting, 0, (size_t)now->own_pieces * group->ranks * sizeof *slot->waiting);
    bool begins = begins_with_own(group, slot);
    for (uint32_t piece = 0; begins && piece < now->own_pieces; piece++) put_due(slot, piece);
}

bool dw_reduce_scatter_add(dw_group *group, dw_group_slot *slot)
{
    dw_operation_state *now = &slot->now;
    while (now->due_first != now->due_end) {
        uint32_t piece = slot->due[now->due_first++ % now->own_pieces];
        /* A contribution that did not wait has brought the own one along (dw_reduce_scatter_put).
         */
        if (!now->may_wait && slot->added[piece] > 0) continue;
        add_due(group, slot, piece);
        return true;
    }
    return false;
}

static void take_confirmation(dw_group *group, dw_group_slot *slot, dw_received *received)
{
    uint32_t from = received->from;
    bool fits = slot->owes_part[from] > 0 && received->head.body_len == 0;
    dw_received_give(group, received);
    if (fits) {
        slot->owes_part[from]--;
        slot->now.left_to_add--;
    } else {
        dw_group_fail(group, DW_ERR_PROTOCOL, from,
                      "slot %llu: rank %u sent a confirmation that is not due",
                      (unsigned long long)slot->number, from);
    }
}

void dw_reduce_scatter_put(dw_group *group, dw_group_slot *slot, uint32_t piece,
                           dw_received *received)
{
    const dw_operation_state *now = &slot->now;
    uint32_t from = received->from, next = slot->added[piece];
    slot->waiting[(size_t)piece * group->ranks + from] = received;
    bool own_is_next = next == 0 && begins_with_own(group, slot);
    if (next != from && (now->may_wait || !own_is_next)) return;
    if (now->may_wait && now->left_to_contribute > 0)
        put_due(slot, piece);
    else
        add_due(group, slot, piece);
}

/* A contribution waits in memory for its turn, so one that is longer than any frame is refused. */
static bool is_due(dw_group *group, const dw_group_slot *slot, const dw_received *received)
{
    const dw_operation_state *now = &slot->now;
    const dw_message *head = &received->head;
    uint32_t part = dw_job_own_part(group, &now->job);
    if (!dw_job_reduces(&now->job) || head->part != part || head->piece >= now->own_pieces)
        return false;
    size_t place = (size_t)head->piece * group->ranks + received->from;
    if (slot->added[head->piece] > received->from || slot->waiting[place]) return false;
    dw_piece at = dw_job_piece(group, &now->job, part, head->piece);
    return head->body_len <= dw_reduce_scatter_bound(group, slot, at);
}

void dw_reduce_scatter_take(dw_group *group, dw_group_slot *slot, dw_received *received)
{
    const dw_operation_state *now = &slot->now;
    const dw_message *head = &received->head;
    uint32_t from = received->from;
    if (now->job.operation == DW_BROADCAST) {
        take_confirmation(group, slot, received);
        return;
    }
    if (!is_due(group, slot, received)) {
        dw_received_give(group, received);
        dw_group_fail(group, DW_ERR_PROTOCOL, from,
                      "slot %llu: rank %u sent a contribution that is not due or too long",
                      (unsigned long long)slot->number, from);
        return;
    }
    slot->owes_part[from]--;
    dw_reduce_scatter_put(group, slot, head->piece, received);
}
