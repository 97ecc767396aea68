/* SPDX-License-Identifier: Apache-2.0
 * partition.c - how a buffer is cut into parts and pieces. */
#include "partition.h"

/* Whole tiles are shared out: `each` for every rank, and `more` of the ranks get another one. */
static dw_piece range_of(uint64_t n, uint64_t each, uint32_t more, uint32_t rank, uint32_t ranks)
{
    /* Without products of tiles and ranks, which could be too large. */
    uint64_t first = (rank * each + rank * more / ranks) * DW_GROUP_TILE;
    uint64_t last = ((rank + 1) * each + (rank + 1) * more / ranks) * DW_GROUP_TILE;
    if (first > n) first = n;
    return (dw_piece){first, (last < n ? last : n) - first};
}

static uint64_t tiles_of(uint64_t n)
{
    return n / DW_GROUP_TILE + (n % DW_GROUP_TILE > 0);
}

dw_status dw_group_part(uint64_t n, uint32_t rank, uint32_t ranks, uint64_t *begin, uint64_t *count)
{
    if (rank >= ranks || ranks > DW_GROUP_MOST_RANKS || !begin || !count) return DW_ERR_ARGUMENT;
    uint64_t tiles = tiles_of(n);
    dw_piece part = range_of(n, tiles / ranks, (uint32_t)(tiles % ranks), rank, ranks);
    *begin = part.begin;
    *count = part.count;
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

/* If the config does not give the length, a part has about PIECES whole pieces, within the limits
 * of the group. One piece is encoded while another one is sent, added or decoded; with a single
 * piece, each hop would wait for the end of the hop before. The last pieces are shorter, because
 * nothing is sent while they are decoded. */
static void choose_pieces(const dw_settings *settings, dw_partition *cut)
{
    enum { PIECES = 8, LEAST_OF_LONGEST = 8 };
    uint64_t parts = cut->has_one_part ? 1 : cut->ranks;
    uint64_t tiles = cut->n / (parts * PIECES * DW_GROUP_TILE) + 1, whole = tiles * DW_GROUP_TILE;
    uint64_t least = settings->longest_piece / LEAST_OF_LONGEST;
    if (whole > settings->longest_piece) whole = settings->longest_piece;
    cut->whole = whole > settings->shortest_piece ? whole : settings->shortest_piece;
    cut->least = least > settings->shortest_piece ? least : settings->shortest_piece;
}

dw_partition dw_partition_make(const dw_settings *settings, const dw_group_job *job)
{
    uint64_t tiles = tiles_of(job->n);
    bool is_broadcast = job->operation == DW_BROADCAST,
         is_one_shot = dw_job_is_one_shot(settings, job);
    dw_partition cut = {.n = job->n,
                        .ranks = settings->ranks,
                        .has_one_part = is_broadcast || is_one_shot,
                        .only_part = is_broadcast ? job->root : 0,
                        .own_part = is_one_shot ? 0 : settings->rank,
                        .each = tiles / settings->ranks,
                        .more = (uint32_t)(tiles % settings->ranks),
                        .whole = settings->piece,
                        .least = settings->piece};
    if (!settings->piece) choose_pieces(settings, &cut);
    return cut;
}

dw_piece dw_partition_part(const dw_partition *cut, uint32_t part)
{
    if (!cut->has_one_part) return range_of(cut->n, cut->each, cut->more, part, cut->ranks);
    return (dw_piece){0, part == cut->only_part ? cut->n : 0};
}

/* Returns the length of the next piece. left: how many floats of the part are in no piece yet. */
static uint64_t next_length(const dw_partition *cut, uint64_t left)
{
    uint64_t length = cut->whole;
    if (left <= 2 * cut->whole && left >= 2 * cut->least) {
        uint64_t tiles = (left / 2 + DW_GROUP_TILE - 1) / DW_GROUP_TILE,
                 half = tiles * DW_GROUP_TILE;
        if (half < length) length = half;
    }
    return left < length ? left : length;
}

/* Returns how many pieces have the length `whole` before no more than two of them are left. */
static uint64_t whole_pieces(const dw_partition *cut, uint64_t count)
{
    return count > 2 * cut->whole ? (count - cut->whole - 1) / cut->whole : 0;
}

uint32_t dw_partition_pieces(const dw_partition *cut, uint32_t part)
{
    uint32_t last = cut->has_one_part ? cut->only_part : cut->ranks - 1;
    if (cut->n == 0) return part == last;
    uint64_t count = dw_partition_part(cut, part).count;
    uint64_t pieces = whole_pieces(cut, count), left = count - pieces * cut->whole;
    for (; left > 0; pieces++) left -= next_length(cut, left);
    return (uint32_t)pieces;
}

dw_piece dw_partition_piece(const dw_partition *cut, uint32_t part, uint32_t piece)
{
    dw_piece whole = dw_partition_part(cut, part);
    uint64_t first = whole_pieces(cut, whole.count), at = piece < first ? piece : first;
    uint64_t before = at * cut->whole;
    for (; at < piece; at++) before += next_length(cut, whole.count - before);
    return (dw_piece){whole.begin + before, next_length(cut, whole.count - before)};
}

dw_piece dw_partition_first_piece(const dw_partition *cut)
{
    return dw_partition_piece(cut, cut->has_one_part ? cut->only_part : 0, 0);
}

dw_tensor dw_flat_view(const void *data, dw_dtype dtype, uint64_t count)
{
    void *at = (void *)(uintptr_t)data; /* encoders do not write to it */
    if (count % DW_GROUP_TILE == 0)
        return dw_tensor_3d(at, dtype, 1, (uint32_t)(count / DW_GROUP_TILE), DW_GROUP_TILE);
    return dw_tensor_3d(at, dtype, 1, 1, (uint32_t)count);
}

static uint64_t own_count(const dw_settings *settings, const dw_group_job *job)
{
    uint64_t begin, count = 0;
    dw_group_part(job->n, settings->rank, settings->ranks, &begin, &count);
    return count;
}

uint64_t dw_job_reads(const dw_settings *settings, const dw_group_job *job)
{
    if (job->operation == DW_BROADCAST) return job->root == settings->rank ? job->n : 0;
    if (job->operation == DW_ALL_GATHER) return own_count(settings, job);
    return job->n;
}

uint64_t dw_job_writes(const dw_settings *settings, const dw_group_job *job)
{
    if (job->operation == DW_REDUCE_SCATTER) return own_count(settings, job);
    return job->n;
}
