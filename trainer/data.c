/* SPDX-License-Identifier: Apache-2.0
 * data.c - reading the text and shuffling its samples. */
#include "data.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/sentence.h"
#include "random.h"

/* Reads at most `most` bytes from the offset on; *len is how many there were. */
static dw_status read_text(const char *path, uint64_t offset, uint64_t most, uint8_t **bytes,
                           uint64_t *len, dw_why *why)
{
    FILE *file = fopen(path, "rb");
    if (!file) return dw_say(why, DW_ERR_IO, "cannot read the text %s: %s", path, strerror(errno));
    uint8_t *room = NULL;
    uint64_t used = 0, cap = 0, skipped = 0;
    dw_status status = DW_OK;
    uint8_t chunk[65536];
    size_t got;
    /* Does not use fseek, because the text may be a pipe. */
    while (used < most && (got = fread(chunk, 1, sizeof chunk, file)) > 0) {
        size_t skip = offset - skipped < got ? (size_t)(offset - skipped) : got;
        skipped += skip;
        uint64_t take = got - skip < most - used ? got - skip : most - used;
        if (used + take > cap) {
            cap = 2 * (used + take);
            uint8_t *larger = realloc(room, cap);
            if (!larger) {
                status =
                    dw_say(why, DW_ERR_NO_MEMORY, "out of memory while reading the text %s", path);
                break;
            }
            room = larger;
        }
        if (take) memcpy(room + used, chunk + skip, take); /* room may still be NULL */
        used += take;
    }
    if (status == DW_OK && ferror(file))
        status = dw_say(why, DW_ERR_IO, "cannot read the text %s: %s", path, strerror(errno));
    else if (status == DW_OK && !used)
        status = dw_say(
            why, DW_ERR_IO,
            offset ? "the text %s has nothing behind its offset" : "the text %s is empty", path);
    fclose(file);
    if (status < 0) {
        free(room);
        return status;
    }
    *bytes = room;
    *len = used;
    return DW_OK;
}

dw_status dw_data_open(dw_data *data, const char *path, uint64_t offset, uint32_t samples,
                       uint32_t held_out, uint32_t T, uint32_t batch, uint64_t seed, dw_why *why)
{
    memset(data, 0, sizeof *data);
    if (samples && samples < batch)
        return dw_say(
            why, DW_ERR_ARGUMENT,
            "%u samples do not fill one batch of %u; give more samples or a smaller batch", samples,
            batch);
    uint64_t width = (uint64_t)T + 1;
    uint64_t most = samples ? ((uint64_t)samples + held_out) * width : UINT64_MAX, len = 0;
    dw_status status = read_text(path, offset, most, &data->bytes, &len, why);
    if (status < 0) return status;
    uint64_t found = len / width, least = (uint64_t)batch + held_out;
    if (found < least)
        status = dw_say(why, DW_ERR_IO,
                        "the text %s has %" PRIu64
                        " bytes: too short for a batch of %u and %u held out, which take %" PRIu64
                        " (samples are %" PRIu64 " bytes)",
                        path, len, batch, held_out, least * width, width);
    else if (samples && found < (uint64_t)samples + held_out)
        status = dw_say(why, DW_ERR_IO,
                        "the text %s has %" PRIu64 " samples of %" PRIu64
                        " bytes; %u to train on and %u held out were asked for",
                        path, found, width, samples, held_out);
    else if (found > UINT32_MAX)
        status = dw_say(why, DW_ERR_LIMIT,
                        "the text %s has more than 2^32 samples; give fewer with samples", path);
    if (status < 0) {
        dw_data_close(data);
        return status;
    }
    data->samples = samples ? samples : (uint32_t)found - held_out;
    data->held_out = held_out;
    data->T = T;
    data->seed = seed;
    data->n = data->samples;
    data->replicas = 1;
    data->epoch = UINT32_MAX;
    data->digest = XXH3_64bits(data->bytes, ((size_t)data->samples + held_out) * width);
    data->order = malloc(data->samples * sizeof *data->order);
    if (data->order) return DW_OK;
    dw_data_close(data);
    return dw_say(why, DW_ERR_NO_MEMORY, "out of memory for the order of the samples");
}

void dw_data_close(dw_data *data)
{
    free(data->bytes);
    free(data->order);
    free(data->share);
    data->bytes = NULL;
    data->order = data->share = NULL;
}

/* A Fisher-Yates shuffle of the first n ids of the order. */
static void shuffle(dw_data *data, uint32_t epoch, uint32_t n)
{
    for (uint32_t i = n; i > 1; i--) {
        philox4x32_ctr_t word = dw_random(data->seed, DW_RANDOM_SHUFFLE, epoch, i);
        /* The upper half of the product is below i; no value is more likely than another by
         * more than i / 2^64. */
        uint64_t bits = (uint64_t)word.v[0] << 32 | word.v[1];
        uint32_t j = (uint32_t)(((bits >> 32) * i + (((bits & UINT32_MAX) * i) >> 32)) >> 32);
        uint32_t swap = data->order[i - 1];
        data->order[i - 1] = data->order[j];
        data->order[j] = swap;
    }
}

/* Moves the ids of this replica to the front of the order of the first epoch. */
static void keep_own(dw_data *data)
{
    uint32_t B = data->batch, D = data->replicas, kept = 0;
    uint32_t even = data->samples / (B * D) * (B * D), rest = (data->samples - even) / D;
    for (uint32_t p = 0; p < data->samples; p++) {
        uint32_t owner = p < even ? p / B % D : (p - even) / rest;
        if (owner == data->replica) data->order[kept++] = data->order[p];
    }
}

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

dw_status dw_data_share(dw_data *data, uint32_t replica, uint32_t replicas, uint32_t batch,
                        dw_why *why)
{
    size_t width = (size_t)data->T + 1;
    if (replicas == 1) return DW_OK;
    if (data->samples / replicas < batch)
        return dw_say(why, DW_ERR_ARGUMENT,
                      "%u samples do not fill a batch of %u in each of %u replicas; give more "
                      "samples, a smaller batch or fewer replicas",
                      data->samples, batch, replicas);
    data->samples -= data->samples % replicas;
    data->digest = XXH3_64bits(data->bytes, ((size_t)data->samples + data->held_out) * width);
    data->n = data->samples / replicas;
    data->replica = replica;
    data->replicas = replicas;
    data->batch = batch;
    data->share = malloc(data->n * sizeof *data->share);
    if (!data->share) return dw_say(why, DW_ERR_NO_MEMORY, "out of memory for a share of samples");
    memcpy(data->share, dw_data_order(data, 0, 0), data->n * sizeof *data->share);
    qsort(data->share, data->n, sizeof *data->share, ascending);
    return DW_OK;
}

const uint32_t *dw_data_order(dw_data *data, uint32_t epoch, uint32_t at)
{
    if (data->epoch != epoch) {
        bool divides = data->replicas > 1 && epoch == 0;
        uint32_t n = divides ? data->samples : data->n;
        for (uint32_t i = 0; i < n; i++)
            data->order[i] = divides || !data->share ? i : data->share[i];
        shuffle(data, epoch, n);
        if (divides) keep_own(data);
        data->epoch = epoch;
    }
    return data->order + at;
}

const uint8_t *dw_data_sample(const dw_data *data, uint32_t id)
{
    return data->bytes + (size_t)id * (data->T + 1);
}
