/* SPDX-License-Identifier: Apache-2.0
 * partition.c - how a buffer is cut into parts and pieces. */
#include "partition.h"

dw_status dw_group_part(uint64_t n, uint32_t rank, uint32_t ranks, uint64_t *begin, uint64_t *count)
{
    if (rank >= ranks || ranks > DW_GROUP_MOST_RANKS || !begin || !count) return DW_ERR_ARGUMENT;
    /* Without products of tiles and ranks, which could be too large. */
    uint64_t tiles = n / DW_GROUP_TILE + (n % DW_GROUP_TILE > 0);
    uint64_t each = tiles / ranks, more = tiles % ranks;
    uint64_t first = rank * each + rank * more / ranks;
    uint64_t last = (rank + 1) * each + (rank + 1) * more / ranks;
    *begin = first * DW_GROUP_TILE < n ? first * DW_GROUP_TILE : n;
    uint64_t end = last * DW_GROUP_TILE < n ? last * DW_GROUP_TILE : n;
    *count = end - *begin;
    return DW_OK;
}

bool dw_job_reduces(const dw_group_job *job)
{
    return job->operation == DW_ALL_REDUCE || job->operation == DW_REDUCE_SCATTER;
}

bool dw_job_is_one_shot(const dw_settings *settings, const dw_group_job *job)
{
    return settings->hops == 1 && job->operation == DW_ALL_REDUCE;
}

bool dw_job_gathers(const dw_settings *settings, const dw_group_job *job)
{
    return job->operation != DW_REDUCE_SCATTER && !dw_job_is_one_shot(settings, job);
}

/* Whether the whole buffer is one part. */
static bool has_one_part(const dw_settings *settings, const dw_group_job *job)
{
    return job->operation == DW_BROADCAST || dw_job_is_one_shot(settings, job);
}

/* The number of the only part (see has_one_part): in a broadcast the root's rank; otherwise 0. */
static uint32_t only_part(const dw_group_job *job)
{
    return job->operation == DW_BROADCAST ? job->root : 0;
}

uint32_t dw_job_own_part(const dw_settings *settings, const dw_group_job *job)
{
    return dw_job_is_one_shot(settings, job) ? only_part(job) : settings->rank;
}

dw_piece dw_job_part(const dw_settings *settings, const dw_group_job *job, uint32_t part)
{
    dw_piece found = {0, 0};
    if (has_one_part(settings, job)) return part == only_part(job) ? (dw_piece){0, job->n} : found;
    dw_group_part(job->n, part, settings->ranks, &found.begin, &found.count);
    return found;
}

dw_piece dw_job_first_piece(const dw_settings *settings, const dw_group_job *job)
{
    return dw_job_piece(settings, job, has_one_part(settings, job) ? only_part(job) : 0, 0);
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
static part_cut cut_of(const dw_settings *settings, const dw_group_job *job)
{
    enum { PIECES = 8, LEAST_OF_LONGEST = 8 };
    if (settings->piece) return (part_cut){settings->piece, settings->piece};
    uint64_t parts = has_one_part(settings, job) ? 1 : settings->ranks;
    uint64_t tiles = job->n / (parts * PIECES * DW_GROUP_TILE) + 1, whole = tiles * DW_GROUP_TILE;
    if (whole > settings->longest_piece) whole = settings->longest_piece;
    if (whole < settings->shortest_piece) whole = settings->shortest_piece;
    uint64_t least = settings->longest_piece / LEAST_OF_LONGEST;
    return (part_cut){whole, least > settings->shortest_piece ? least : settings->shortest_piece};
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

uint32_t dw_job_pieces(const dw_settings *settings, const dw_group_job *job, uint32_t part)
{
    uint64_t count = dw_job_part(settings, job, part).count;
    uint32_t last = has_one_part(settings, job) ? only_part(job) : settings->ranks - 1;
    if (job->n == 0) return part == last;
    part_cut cut = cut_of(settings, job);
    uint64_t pieces = whole_pieces(cut, count), left = count - pieces * cut.whole;
    for (; left > 0; pieces++) left -= next_length(cut, left);
    return (uint32_t)pieces;
}

dw_piece dw_job_piece(const dw_settings *settings, const dw_group_job *job, uint32_t part,
                      uint32_t piece)
{
    dw_piece whole = dw_job_part(settings, job, part);
    part_cut cut = cut_of(settings, job);
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

uint64_t dw_job_reads(const dw_settings *settings, const dw_group_job *job)
{
    if (job->operation == DW_BROADCAST) return job->root == settings->rank ? job->n : 0;
    if (job->operation == DW_ALL_GATHER) return dw_job_part(settings, job, settings->rank).count;
    return job->n;
}

uint64_t dw_job_writes(const dw_settings *settings, const dw_group_job *job)
{
    if (job->operation == DW_REDUCE_SCATTER)
        return dw_job_part(settings, job, settings->rank).count;
    return job->n;
}
