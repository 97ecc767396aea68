/* SPDX-License-Identifier: Apache-2.0
 * operation.c - what an operation expects from the other ranks, and when it is finished. */
#include <string.h>

#include "group.h"

/* ---- Parts and pieces ------------------------------------------------------------------------ */

bool dw_job_reduces(const dw_group_job *job)
{
    return job->operation == DW_ALL_REDUCE || job->operation == DW_REDUCE_SCATTER;
}

bool dw_job_is_one_shot(const dw_group *group, const dw_group_job *job)
{
    return group->hops == 1 && job->operation == DW_ALL_REDUCE;
}

bool dw_job_gathers(const dw_group *group, const dw_group_job *job)
{
    return job->operation != DW_REDUCE_SCATTER && !dw_job_is_one_shot(group, job);
}

/* Whether the whole buffer is one part. */
static bool has_one_part(const dw_group *group, const dw_group_job *job)
{
    return job->operation == DW_BROADCAST || dw_job_is_one_shot(group, job);
}

/* The number of this part: in a broadcast that of the root; in an all-reduce of one hop, where it
 * belongs to all ranks, 0. */
static uint32_t number_of_it(const dw_group_job *job)
{
    return job->operation == DW_BROADCAST ? job->root : 0;
}

uint32_t dw_job_own_part(const dw_group *group, const dw_group_job *job)
{
    return dw_job_is_one_shot(group, job) ? number_of_it(job) : group->rank;
}

dw_piece dw_job_part(const dw_group *group, const dw_group_job *job, uint32_t part)
{
    dw_piece found = {0, 0};
    if (has_one_part(group, job)) return part == number_of_it(job) ? (dw_piece){0, job->n} : found;
    dw_group_part(job->n, part, group->ranks, &found.begin, &found.count);
    return found;
}

/* How a part is cut: into pieces of the length `whole`, as long as more than two of them are left,
 * and then each time into half of what is left, until halves would be shorter than `least`. */
typedef struct part_cut {
    uint64_t whole, least;
} part_cut;

/* If the config does not give the length, a part has about PIECES whole pieces, within the limits
 * of the group. One piece is encoded while another one is sent, added or decoded; with a single
 * piece, each hop would wait for the end of the hop before. The last pieces are shorter, because
 * nothing is sent while they are decoded. */
static part_cut cut_of(const dw_group *group, const dw_group_job *job)
{
    enum { PIECES = 8, LEAST_OF_LONGEST = 8 };
    if (group->piece) return (part_cut){group->piece, group->piece};
    uint64_t parts = has_one_part(group, job) ? 1 : group->ranks;
    uint64_t tiles = job->n / (parts * PIECES * DW_GROUP_TILE) + 1, whole = tiles * DW_GROUP_TILE;
    if (whole > group->longest_piece) whole = group->longest_piece;
    if (whole < group->shortest_piece) whole = group->shortest_piece;
    uint64_t least = group->longest_piece / LEAST_OF_LONGEST;
    return (part_cut){whole, least > group->shortest_piece ? least : group->shortest_piece};
}

/* Returns the length of the next piece. left: how many floats of the part are in no piece yet. */
static uint64_t next_length(part_cut cut, uint64_t left)
{
    uint64_t length = cut.whole;
    if (left <= 2 * cut.whole && left >= 2 * cut.least) {
        uint64_t tiles = (left / 2 + DW_GROUP_TILE - 1) / DW_GROUP_TILE,
                 half = tiles * DW_GROUP_TILE;
        if (half < length) length = half;
    }
    return left < length ? left : length;
}

/* Returns how many pieces have the length `whole` before no more than two of them are left. */
static uint64_t whole_pieces(part_cut cut, uint64_t count)
{
    return count > 2 * cut.whole ? (count - cut.whole - 1) / cut.whole : 0;
}

uint32_t dw_job_pieces(const dw_group *group, const dw_group_job *job, uint32_t part)
{
    uint64_t count = dw_job_part(group, job, part).count;
    uint32_t last = has_one_part(group, job) ? number_of_it(job) : group->ranks - 1;
    if (job->n == 0) return part == last;
    part_cut cut = cut_of(group, job);
    uint64_t pieces = whole_pieces(cut, count), left = count - pieces * cut.whole;
    for (; left > 0; pieces++) left -= next_length(cut, left);
    return (uint32_t)pieces;
}

dw_piece dw_job_piece(const dw_group *group, const dw_group_job *job, uint32_t part, uint32_t piece)
{
    dw_piece whole = dw_job_part(group, job, part);
    part_cut cut = cut_of(group, job);
    uint64_t first = whole_pieces(cut, whole.count), at = piece < first ? piece : first;
    uint64_t before = at * cut.whole;
    for (; at < piece; at++) before += next_length(cut, whole.count - before);
    return (dw_piece){whole.begin + before, next_length(cut, whole.count - before)};
}

dw_tensor dw_flat_view(const void *data, dw_dtype dtype, uint64_t count)
{
    void *at = (void *)(uintptr_t)data; /* encoders do not write to it */
    if (count % DW_GROUP_TILE == 0)
        return dw_tensor_3d(at, dtype, 1, (uint32_t)(count / DW_GROUP_TILE), DW_GROUP_TILE);
    return dw_tensor_3d(at, dtype, 1, 1, (uint32_t)count);
}

uint64_t dw_job_reads(const dw_group *group, const dw_group_job *job)
{
    if (job->operation == DW_BROADCAST) return job->root == group->rank ? job->n : 0;
    if (job->operation == DW_ALL_GATHER) return dw_job_part(group, job, group->rank).count;
    return job->n;
}

uint64_t dw_job_writes(const dw_group *group, const dw_group_job *job)
{
    if (job->operation == DW_REDUCE_SCATTER) return dw_job_part(group, job, group->rank).count;
    return job->n;
}

/* ---- The progress owner's part
 * ----------------------------------------------------------------------- */

dw_message dw_operation_message(const dw_group_slot *slot, int hop, uint32_t part, uint32_t piece)
{
    const dw_group_job *job = &slot->now.job;
    return (dw_message){
        .kind = DW_MESSAGE_DATA,
        .operation = (uint8_t)job->operation,
        .dtype = (uint8_t)job->dtype,
        .flags = (uint8_t)((job->mean ? DW_MESSAGE_MEAN : 0) | (hop == 2 ? DW_MESSAGE_HOP2 : 0)),
        .rank = job->root,
        .slot = slot->number,
        .visit = slot->visit,
        .n = job->n,
        .part = part,
        .piece = piece};
}

dw_received *dw_operation_to_self(dw_group *group, const dw_message *head,
                                  const dw_frame_room *frame)
{
    size_t len = DW_MESSAGE_BYTES + frame->len;
    /* A frame that is much shorter than its room would keep all of the room. */
    bool holds = frame->peer && frame->len >= frame->cap / 2;
    dw_received *made =
        holds ? dw_received_hold(group, frame->peer->link, frame->at - DW_MESSAGE_BYTES, len)
              : dw_received_take(group, len);
    if (!made) return NULL;
    made->from = group->rank;
    made->head = *head;
    made->head.body_len = frame->len;
    if (!holds && frame->len > 0)
        memcpy(dw_received_room(made) + DW_MESSAGE_BYTES, frame->at, frame->len);
    return made;
}

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
static bool agrees(dw_group *group, const dw_group_slot *slot, const dw_received *received)
{
    const dw_group_job *job = &slot->now.job;
    const dw_message *head = &received->head;
    bool mean = head->flags & DW_MESSAGE_MEAN;
    if (head->operation == job->operation && head->dtype == job->dtype && head->n == job->n &&
        head->rank == job->root && mean == (job->mean != 0))
        return true;
    dw_group_fail(group, DW_ERR_MISMATCH, received->from,
                  "slot %llu: rank %u started %s of %llu %s (mean %d, root %u), and rank %u %s of "
                  "%llu %s (mean %d, root %u)",
                  (unsigned long long)slot->number, received->from, name_of(head->operation),
                  (unsigned long long)head->n, dtype_of(head->dtype), mean, head->rank, group->rank,
                  name_of(job->operation), (unsigned long long)job->n, dtype_of(job->dtype),
                  job->mean != 0, job->root);
    return false;
}

static void take(dw_group *group, dw_group_slot *slot, dw_received *received)
{
    if (!agrees(group, slot, received)) {
        dw_received_give(group, received);
    } else if (received->head.flags & DW_MESSAGE_DIGEST) {
        dw_verifying_take(group, slot, received);
    } else if (received->head.flags & DW_MESSAGE_HOP2) {
        dw_all_gather_take(group, slot, received);
    } else {
        dw_reduce_scatter_take(group, slot, received);
    }
}

/* The rank that has sent most of the bytes of messages that wait for operations, and their slots.
 */
static uint32_t most_ahead(dw_group *group)
{
    uint64_t bytes[DW_GROUP_MOST_RANKS] = {0};
    uint32_t most = 0;
    pthread_mutex_lock(&group->lock);
    for (const dw_group_slot *slot = group->newest; slot; slot = slot->made_before) {
        const dw_received *received = slot->early.head;
        if (received && slot->is_early) bytes[received->from] += DW_SLOT_BYTES;
        for (; received; received = received->next)
            bytes[received->from] += dw_received_weight(received);
    }
    pthread_mutex_unlock(&group->lock);
    for (uint32_t r = 0; r < group->ranks; r++)
        if (bytes[r] > bytes[most]) most = r;
    return most;
}

/* An operation that has not begun here: the message waits for it. */
static void keep_early(dw_group *group, dw_group_slot *slot, dw_received *received)
{
    group->early_bytes += dw_received_weight(received);
    dw_received_append(&slot->early, received);
    if (group->early_bytes <= group->max_early_bytes) return;
    uint32_t from = most_ahead(group);
    dw_group_fail(group, DW_ERR_LIMIT, from,
                  "rank %u is ahead: messages of operations that have not started here, and their "
                  "slots, exceed max_early_bytes (%llu); start the same ones, or raise that",
                  from, (unsigned long long)group->max_early_bytes);
}

void dw_operation_take(dw_group *group, dw_received *received)
{
    dw_peer *peer = &group->peers[received->from];
    pthread_mutex_lock(&group->lock);
    dw_group_slot *slot = dw_slot_find(group, received->head.slot);
    if (!slot && (slot = dw_slot_get(group, received->head.slot)) != NULL) {
        slot->is_early = true;
        group->early_bytes += DW_SLOT_BYTES;
    }
    pthread_mutex_unlock(&group->lock);
    if (!slot) {
        dw_group_fail(group, DW_ERR_NO_MEMORY, group->rank, "no memory for a slot");
        dw_received_give(group, received);
    } else if (received->head.visit < slot->visit) {
        /* Messages come once and in order, so that rank started something else. */
        dw_group_fail(group, DW_ERR_MISMATCH, received->from,
                      "slot %llu: rank %u sent a message about an operation that has finished on "
                      "rank %u; do all ranks start the same operations?",
                      (unsigned long long)received->head.slot, received->from, group->rank);
        dw_received_give(group, received);
    } else if (slot->is_begun && received->head.visit == slot->visit) {
        take(group, slot, received); /* which fails the group if this was not owed */
        peer->heard_ns = dw_group_now_ns();
        peer->early_frames = 0;
    } else {
        peer->early_ns = dw_group_now_ns();
        peer->early_frames += received->head.body_len;
        keep_early(group, slot, received);
    }
}

/* The root of a broadcast hears from every other rank; see confirm in reduce_scatter.c. */
static void expect_confirmations(const dw_group *group, dw_group_slot *slot)
{
    dw_operation_state *now = &slot->now;
    bool is_root = now->job.root == group->rank;
    now->left_to_contribute = !is_root;
    now->left_to_add = is_root ? group->ranks - 1 : 0;
    for (uint32_t r = 0; r < group->ranks; r++) slot->owes_part[r] = is_root && r != group->rank;
}

/* Whether results may be decoded into y before all of x was read: x and y do not overlap, or each
 * value of x has the same address as its own result. Never if the buffers are on a GPU. */
static bool may_land_in_y(const dw_group *group, const dw_group_job *job, uint64_t own_begin)
{
    size_t each = dw_dtype_bytes(job->dtype);
    uintptr_t x = (uintptr_t)job->x, y = (uintptr_t)job->y;
    bool is_apart = x + dw_job_reads(group, job) * each <= y || y + job->n * each <= x;
    uint64_t first = job->operation == DW_ALL_GATHER ? own_begin : 0;
    return !job->cuda && (is_apart || x == y + first * each);
}

/* Decides what waits in this operation: see reduce_scatter.c and all_gather.c. */
static void decide_waiting(dw_group *group, dw_group_slot *slot)
{
    dw_operation_state *now = &slot->now;
    const dw_group_job *job = &now->job;
    const dw_group_thresholds *thresholds = &group->thresholds;
    uint32_t part = has_one_part(group, job) ? number_of_it(job) : 0;
    dw_piece first = dw_job_piece(group, job, part, 0);
    uint64_t bytes = first.count * dw_dtype_bytes(job->dtype), ratio = thresholds->ratio;
    now->is_large = job->n >= thresholds->large_from;
    now->may_wait = bytes >= ratio * dw_reduce_scatter_bound(group, slot, first);
    now->may_be_safe = now->is_large && now->lands_in_y && !dw_verifying_is_due(group, job) &&
                       bytes >= ratio * dw_all_gather_bound(group, slot, first) &&
                       dw_coders_can_check(&group->result);
}

/* What every rank owes, and what this rank has to do. */
static void set_out(dw_group *group, dw_group_slot *slot)
{
    dw_operation_state *now = &slot->now;
    const dw_group_job *job = &now->job;
    uint64_t pieces = 0;
    bool shares = dw_job_gathers(group, job);
    now->lands_in_y = shares && may_land_in_y(group, job, now->begin);
    decide_waiting(group, slot);
    for (uint32_t r = 0; r < group->ranks; r++) {
        uint32_t of_rank = dw_job_pieces(group, job, r);
        slot->first_piece[r] = pieces;
        pieces += of_rank;
        slot->contributed[r] = slot->sent[r] = 0;
        slot->owes_part[r] = dw_job_reduces(job) && r != group->rank ? now->own_pieces : 0;
        slot->owes_result[r] = shares && r != group->rank ? of_rank : 0;
    }
    now->left_to_contribute = dw_job_reduces(job) ? pieces - now->own_pieces : 0;
    if (dw_job_is_one_shot(group, job)) now->left_to_contribute = now->own_pieces;
    now->left_to_add = dw_job_reduces(job) ? now->own_pieces : 0;
    if (job->operation == DW_BROADCAST) expect_confirmations(group, slot);
    dw_verifying_begin(group, slot);
    now->left_to_share = shares ? now->own_pieces : 0;
    now->left_to_take = shares ? pieces : 0;
    if (shares) memset(slot->taken, 0, (size_t)pieces);
    memset(slot->kept, 0, now->own_pieces * sizeof *slot->kept);
    if (dw_job_reduces(job)) {
        dw_reduce_scatter_begin(group, slot);
    } else {
        /* There is nothing to wait for: all own pieces are ready. */
        for (uint32_t i = 0; i < now->own_pieces; i++) slot->ready[i] = i;
        now->ready_end = now->own_pieces;
    }
}

/* A rank that has closed its group may have finished this operation before: it does not wait for
 * all others in a broadcast. What it sent arrived before its goodbye. */
static void look_for_closed(dw_group *group, const dw_group_slot *slot)
{
    for (uint32_t r = 0; r < group->ranks && group->status == DW_OK; r++)
        if (group->peers[r].is_closed && (slot->owes_part[r] || slot->owes_result[r]))
            dw_group_fail(group, DW_ERR_PEER, r, "rank %u has closed its group", r);
}

void dw_operation_begin(dw_group *group, dw_group_slot *slot)
{
    set_out(group, slot);
    slot->is_begun = true;
    if (slot->is_early) group->early_bytes -= DW_SLOT_BYTES;
    slot->is_early = false;
    dw_received_list early = slot->early;
    slot->early = (dw_received_list){NULL, NULL};
    dw_received *received;
    while ((received = dw_received_pop(&early)) != NULL) {
        group->early_bytes -= dw_received_weight(received);
        if (group->status != DW_OK)
            dw_received_give(group, received);
        else if (received->head.visit == slot->visit)
            take(group, slot, received);
        else
            keep_early(group, slot, received);
    }
    look_for_closed(group, slot);
}

/* Whether this rank has sent and received everything but digests. */
static bool is_complete(const dw_group_slot *slot)
{
    const dw_operation_state *now = &slot->now;
    return now->left_to_contribute == 0 && now->left_to_add == 0 && now->left_to_share == 0 &&
           now->left_to_send == 0 && now->left_to_take == 0;
}

/* Contributions first: a wire carries messages in their order, and the work of other ranks begins
 * with them. If results came first, a slow rank would send its last contribution at the very end,
 * and all others would have to add it, and to send their results, after that. */
bool dw_operation_push(dw_group *group, dw_group_slot *slot)
{
    if (dw_reduce_scatter_contribute(group, slot)) return true;
    if (group->status != DW_OK) return false;
    if (dw_fan_out_send(group, slot)) return true;
    if (group->status != DW_OK) return false;
    if (dw_all_gather_share(group, slot)) return true;
    if (group->status != DW_OK) return false;
    if (is_complete(slot))
        return !dw_operation_is_finished(slot) && dw_verifying_compare(group, slot);
    return dw_reduce_scatter_add(group, slot);
}

bool dw_operation_is_finished(const dw_group_slot *slot)
{
    const dw_operation_state *now = &slot->now;
    return is_complete(slot) && now->digests_to_send == 0 && now->digests_to_check == 0;
}

void dw_operation_end(dw_group *group, dw_group_slot *slot)
{
    slot->visit++;
    slot->is_begun = false;
    dw_rollback_residuals(group, slot, false);
}

void dw_operation_set_done(dw_group *group, dw_group_slot *slot)
{
    slot->state = DW_SLOT_DONE;
    group->counters.finished++;
    group->published = group->count; /* a caller who has waited sees what the operation counted */
}

/* Rounds the own part of the sums to 16 bits: with the codec of plain floats, so that the rounding
 * is specified where all others are. The result lies where `result` begins. */
static dw_status round_sums(dw_group *group, dw_group_slot *slot)
{
    const dw_operation_state *now = &slot->now;
    bool is_bf16 = now->job.dtype == DW_BF16;
    dw_encoder *encoder = group->round[is_bf16];
    dw_decoder *decoder = group->rounded[is_bf16];
    dw_status status = DW_OK;
    for (uint32_t i = 0; status == DW_OK && i < now->own_pieces; i++) {
        dw_piece at = dw_job_piece(group, &now->job, dw_job_own_part(group, &now->job), i);
        uint64_t offset = at.begin - now->begin;
        if (at.count == 0) continue;
        dw_tensor x = dw_flat_view(slot->sums + offset, DW_F32, at.count);
        dw_tensor y = dw_flat_view(slot->result + offset * 2, now->job.dtype, at.count);
        dw_key key = {.sample = 0};
        size_t len;
        status = dw_encode(encoder, &key, &x, group->scratch, group->scratch_bytes, &len);
        if (status == DW_OK) status = dw_decode(decoder, group->scratch, len, &y, NULL, 0, NULL);
    }
    return status;
}

void dw_operation_deliver(dw_group *group, dw_group_slot *slot)
{
    const dw_group_job *job = &slot->now.job;
    size_t bytes = (size_t)dw_job_writes(group, job) * dw_dtype_bytes(job->dtype);
    const void *from = slot->result;
    if (!dw_job_gathers(group, job) && job->dtype == DW_F32) {
        from = slot->sums;
    } else if (!dw_job_gathers(group, job)) {
        dw_status status = round_sums(group, slot);
        if (status != DW_OK) {
            dw_group_fail(group, status, group->rank, "slot %llu: the sums cannot be rounded: %s",
                          (unsigned long long)slot->number, dw_status_string(status));
            return;
        }
    }
    if (bytes == 0 || slot->now.lands_in_y) return;
    if (job->cuda)
        dw_device_store(group, slot, from, bytes);
    else
        memcpy(job->y, from, bytes);
}
