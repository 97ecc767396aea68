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

#include "exchange.h"

/* ---- Sending --------------------------------------------------------------------------------- */

bool dw_reduce_scatter_encode(dw_exchange *exchange, dw_group_slot *slot, uint32_t part,
                              uint32_t piece, dw_frame_room *frame)
{
    dw_piece at = dw_partition_piece(&slot->now.cut, part, piece);
    frame->len = 0;
    if (at.count == 0) return true;
    dw_tensor x = dw_frame_contribution(slot, at);
    dw_message head = dw_frame_header(slot, 1, part, piece);
    return dw_coding_encode(&exchange->coding, &slot->coders, &head, &x, slot->now.is_large,
                            frame) &&
           dw_rollback_keep(exchange, slot, &head, frame);
}

/* Finds the rank to which the next piece is sent, and room for a message to it. Every rank begins
 * with the rank after itself, so that they do not all send to the same rank at the same time. A
 * rank that receives slowly does not hold up the others: it is passed over while its link is full.
 * Returns false if nothing can be sent now. */
static bool find_next(dw_exchange *exchange, dw_group_slot *slot, uint32_t *to,
                      dw_frame_room *frame)
{
    const dw_settings *settings = &exchange->settings;
    dw_operation_state *now = &slot->now;
    for (uint32_t i = 0; i + 1 < settings->ranks && exchange->failure.status == DW_OK; i++) {
        *to = (settings->rank + 1 + (slot->reduce.step + i) % (settings->ranks - 1)) %
              settings->ranks;
        uint32_t piece = slot->reduce.contributed[*to];
        if (piece == dw_partition_pieces(&now->cut, *to)) continue;
        dw_piece at = dw_partition_piece(&now->cut, *to, piece);
        frame->cap = dw_frame_contribution_bound(exchange, slot, at);
        frame->peer = &exchange->peers[*to];
        if (dw_peer_begin(frame->peer, frame->cap, &frame->at) == DW_OK) {
            slot->reduce.step = (slot->reduce.step + i + 1) % (settings->ranks - 1);
            return true;
        }
    }
    return false;
}

/* BROADCAST: tells the root that this rank takes part. Without these messages two ranks that both
 * believe to be the root could finish with different buffers. */
static bool confirm(dw_exchange *exchange, dw_group_slot *slot)
{
    dw_operation_state *now = &slot->now;
    dw_peer *peer = &exchange->peers[now->job.root];
    unsigned char *body;
    if (dw_peer_begin(peer, 0, &body) != DW_OK) return false;
    dw_message head = dw_frame_header(slot, 1, now->job.root, 0);
    if (dw_peer_end(peer, body, &head, 0) != DW_OK) return false;
    slot->reduce.left_to_contribute = 0;
    return true;
}

bool dw_reduce_scatter_contribute(dw_exchange *exchange, dw_group_slot *slot)
{
    dw_operation_state *now = &slot->now;
    uint32_t to;
    dw_frame_room frame;
    if (slot->reduce.left_to_contribute == 0) return false;
    if (now->job.operation == DW_BROADCAST) return confirm(exchange, slot);
    if (!find_next(exchange, slot, &to, &frame)) return false;
    uint32_t piece = slot->reduce.contributed[to];
    if (!dw_reduce_scatter_encode(exchange, slot, to, piece, &frame)) {
        dw_peer_drop(frame.peer, frame.at);
        return false;
    }
    dw_message head = dw_frame_header(slot, 1, to, piece);
    if (dw_peer_end(frame.peer, frame.at, &head, frame.len) != DW_OK) return false;
    slot->reduce.contributed[to]++;
    slot->reduce.left_to_contribute--;
    return true;
}

/* ---- Adding ---------------------------------------------------------------------------------- */

/* Adds a frame to the sum of a piece; the first one makes the sum. */
static bool add(dw_exchange *exchange, dw_group_slot *slot, uint32_t from, uint32_t piece,
                dw_piece at, const void *frame, size_t len)
{
    dw_message head = dw_frame_header(slot, 1, slot->now.cut.own_part, piece);
    dw_tensor y = dw_flat_view(slot->reduce.sums + (at.begin - slot->now.begin), DW_F32, at.count);
    dw_decode_options options = {.struct_size = sizeof options, .adds = from > 0, .factor = 1};
    return dw_coding_decode(&exchange->coding, &slot->coders, &head, from, frame, len,
                            at.count > 0 ? &y : NULL, &options);
}

static bool add_own(dw_exchange *exchange, dw_group_slot *slot, uint32_t piece, dw_piece at)
{
    const dw_settings *settings = &exchange->settings;
    dw_frame_room frame = {.at = exchange->coding.scratch, .cap = exchange->coding.scratch_bytes};
    return dw_reduce_scatter_encode(exchange, slot, settings->rank, piece, &frame) &&
           add(exchange, slot, settings->rank, piece, at, frame.at, frame.len);
}

static void end_sum(dw_exchange *exchange, dw_group_slot *slot, uint32_t piece, dw_piece at)
{
    const dw_settings *settings = &exchange->settings;
    dw_operation_state *now = &slot->now;
    if (now->job.mean) {
        /* A division, not a product with 1 / D, which would be rounded twice. The environment of
         * floating point is the progress owner's own: see dw_progress_run_thread. */
        float *sums = slot->reduce.sums + (at.begin - now->begin), ranks = (float)settings->ranks;
        for (uint64_t i = 0; i < at.count; i++) sums[i] /= ranks;
    }
    slot->reduce.left_to_add--;
    if (dw_job_gathers(settings, &now->job)) dw_all_gather_is_ready(slot, piece);
}

/* Adds contributions to a piece in the order of the ranks, until one has not arrived yet. */
static void add_due(dw_exchange *exchange, dw_group_slot *slot, uint32_t piece)
{
    const dw_settings *settings = &exchange->settings;
    const dw_group_job *job = &slot->now.job;
    const dw_partition *cut = &slot->now.cut;
    dw_piece at = dw_partition_piece(cut, cut->own_part, piece);
    uint32_t *next = &slot->reduce.added[piece];
    while (*next < settings->ranks) {
        dw_received **waiting = &slot->reduce.waiting[(size_t)piece * settings->ranks + *next];
        if (*next == settings->rank && !dw_job_is_one_shot(settings, job)) {
            if (!add_own(exchange, slot, piece, at)) return;
        } else if (*waiting) {
            dw_received *received = *waiting;
            *waiting = NULL;
            bool added = add(exchange, slot, *next, piece, at, dw_received_body(received),
                             (size_t)received->head.body_len);
            dw_received_give(&exchange->pool, received);
            if (!added) return;
        } else {
            return;
        }
        (*next)++;
    }
    end_sum(exchange, slot, piece, at);
}

static void put_due(dw_group_slot *slot, uint32_t piece)
{
    dw_operation_state *now = &slot->now;
    slot->reduce.due[slot->reduce.due_end++ % now->own_pieces] = piece;
}

/* Rank 0's own contribution is the first one, and need not arrive, so all pieces are queued at the
 * beginning. */
static bool begins_with_own(const dw_exchange *exchange, const dw_group_slot *slot)
{
    const dw_settings *settings = &exchange->settings;
    return settings->rank == 0 && !dw_job_is_one_shot(settings, &slot->now.job);
}

/* The root of a broadcast hears from every other rank; see confirm. */
static void expect_confirmations(const dw_settings *settings, dw_group_slot *slot)
{
    bool is_root = slot->now.job.root == settings->rank;
    slot->reduce.left_to_contribute = !is_root;
    slot->reduce.left_to_add = is_root ? settings->ranks - 1 : 0;
    for (uint32_t r = 0; is_root && r < settings->ranks; r++)
        slot->reduce.owes[r] = r != settings->rank;
}

/* Whether frames are much shorter than what they are decoded to. */
static bool is_short(dw_exchange *exchange, const dw_group_slot *slot)
{
    const dw_settings *settings = &exchange->settings;
    dw_piece first = dw_partition_first_piece(&slot->now.cut);
    uint64_t bytes = first.count * dw_dtype_bytes(slot->now.job.dtype);
    return bytes >= settings->thresholds.ratio *
                        (uint64_t)dw_frame_contribution_bound(exchange, slot, first);
}

void dw_reduce_scatter_begin(dw_exchange *exchange, dw_group_slot *slot)
{
    const dw_settings *settings = &exchange->settings;
    dw_operation_state *now = &slot->now;
    memset(slot->reduce.owes, 0, settings->ranks * sizeof *slot->reduce.owes);
    memset(slot->reduce.contributed, 0, settings->ranks * sizeof *slot->reduce.contributed);
    slot->reduce.may_wait = is_short(exchange, slot);
    if (now->job.operation == DW_BROADCAST) expect_confirmations(settings, slot);
    if (!dw_job_reduces(&now->job)) return;
    bool is_one_shot = dw_job_is_one_shot(settings, &now->job);
    slot->reduce.left_to_add = now->own_pieces;
    slot->reduce.left_to_contribute = is_one_shot ? now->own_pieces : 0;
    for (uint32_t r = 0; r < settings->ranks; r++) {
        if (r == settings->rank) continue;
        slot->reduce.owes[r] = now->own_pieces;
        if (!is_one_shot) slot->reduce.left_to_contribute += dw_partition_pieces(&now->cut, r);
    }
    memset(slot->reduce.added, 0, now->own_pieces * sizeof *slot->reduce.added);
    memset(slot->reduce.waiting, 0,
           (size_t)now->own_pieces * settings->ranks * sizeof *slot->reduce.waiting);
    bool begins = begins_with_own(exchange, slot);
    for (uint32_t piece = 0; begins && piece < now->own_pieces; piece++) put_due(slot, piece);
}

bool dw_reduce_scatter_add(dw_exchange *exchange, dw_group_slot *slot)
{
    dw_operation_state *now = &slot->now;
    while (slot->reduce.due_first != slot->reduce.due_end) {
        uint32_t piece = slot->reduce.due[slot->reduce.due_first++ % now->own_pieces];
        /* A contribution that did not wait has brought the own one along (dw_reduce_scatter_put).
         */
        if (!slot->reduce.may_wait && slot->reduce.added[piece] > 0) continue;
        add_due(exchange, slot, piece);
        return true;
    }
    return false;
}

static void take_confirmation(dw_exchange *exchange, dw_group_slot *slot, dw_received *received)
{
    uint32_t from = received->from;
    bool fits = slot->reduce.owes[from] > 0 && received->head.body_len == 0;
    dw_received_give(&exchange->pool, received);
    if (fits) {
        slot->reduce.owes[from]--;
        slot->reduce.left_to_add--;
    } else {
        dw_failure_set(&exchange->failure, DW_ERR_PROTOCOL, from,
                       "slot %llu: rank %u sent a confirmation that is not due",
                       (unsigned long long)slot->number, from);
    }
}

void dw_reduce_scatter_put(dw_exchange *exchange, dw_group_slot *slot, uint32_t piece,
                           dw_received *received)
{
    uint32_t from = received->from, next = slot->reduce.added[piece];
    slot->reduce.waiting[(size_t)piece * exchange->settings.ranks + from] = received;
    bool own_is_next = next == 0 && begins_with_own(exchange, slot);
    if (next != from && (slot->reduce.may_wait || !own_is_next)) return;
    if (slot->reduce.may_wait && slot->reduce.left_to_contribute > 0)
        put_due(slot, piece);
    else
        add_due(exchange, slot, piece);
}

/* A contribution waits in memory for its turn, so one that is longer than any frame is refused. */
static bool is_due(dw_exchange *exchange, const dw_group_slot *slot, const dw_received *received)
{
    const dw_settings *settings = &exchange->settings;
    const dw_operation_state *now = &slot->now;
    const dw_message *head = &received->head;
    uint32_t part = now->cut.own_part;
    if (!dw_job_reduces(&now->job) || head->part != part || head->piece >= now->own_pieces)
        return false;
    size_t place = (size_t)head->piece * settings->ranks + received->from;
    if (slot->reduce.added[head->piece] > received->from || slot->reduce.waiting[place])
        return false;
    dw_piece at = dw_partition_piece(&now->cut, part, head->piece);
    return head->body_len <= dw_frame_contribution_bound(exchange, slot, at);
}

void dw_reduce_scatter_take(dw_exchange *exchange, dw_group_slot *slot, dw_received *received)
{
    const dw_operation_state *now = &slot->now;
    const dw_message *head = &received->head;
    uint32_t from = received->from;
    if (now->job.operation == DW_BROADCAST) {
        take_confirmation(exchange, slot, received);
        return;
    }
    if (!is_due(exchange, slot, received)) {
        dw_received_give(&exchange->pool, received);
        dw_failure_set(&exchange->failure, DW_ERR_PROTOCOL, from,
                       "slot %llu: rank %u sent a contribution that is not due or too long",
                       (unsigned long long)slot->number, from);
        return;
    }
    slot->reduce.owes[from]--;
    dw_reduce_scatter_put(exchange, slot, head->piece, received);
}

void dw_reduce_scatter_drop(dw_exchange *exchange, dw_group_slot *slot)
{
    size_t n = (size_t)slot->now.own_pieces * exchange->settings.ranks;
    for (size_t i = 0; dw_job_reduces(&slot->now.job) && i < n; i++) {
        dw_received_give(&exchange->pool, slot->reduce.waiting[i]);
        slot->reduce.waiting[i] = NULL;
    }
}
