/* SPDX-License-Identifier: Apache-2.0
 * stage.c - connects to the neighbours, and exchanges tensors; every wait can be stopped. */
#include "stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/sentence.h"
#include "control.h"
#include "meeting.h"
#include "outer.h"
#include "replicas.h"
#include "tied.h"

enum { CHANNEL_ID = 1, PLAIN_CHANNEL_ID = 3 }; /* replicas.c has 2, tied.c has 4 */

/* The id of the channel at boundary b is CHANNEL_ID + b * CHANNEL_IDS. From the id a channel
 * derives the incarnation of its encoder, so boundaries do not share their random numbers. */
enum { CHANNEL_IDS = 4 };

void dw_stage_computed(dw_stage *stage, uint64_t since)
{
    stage->compute_ns += dw_now_ns() - since;
}

/* ---- Neighbours ------------------------------------------------------------------------------ */

/* Opens the file for prev, with the rank's number behind its path. */
static dw_status open_storage(dw_stage *stage)
{
    const dw_train_config *config = &stage->settings->config;
    char text[4200];
    int path = (int)strcspn(config->state, ",");
    dw_why why;
    int length = snprintf(text, sizeof text, "%.*s.%u%s", path, config->state,
                          (unsigned)config->rank, config->state + path);
    if (length >= (int)sizeof text)
        return dw_say(&stage->why, DW_ERR_CONFIG, "the text of state is too long");
    dw_status status = dw_storage_open(&stage->storage, text, &why);
    return status < 0 ? dw_say(&stage->why, status, "state: %s", why.text) : DW_OK;
}

/* What codecs of this stage use: its threads and its file. */
static dw_host host_of(const dw_stage *stage)
{
    dw_host host = {.struct_size = sizeof host, .backing = dw_storage_backing(stage->storage)};
    if (stage->threads) {
        host.parallel_for = dw_threads_parallel_for;
        host.parallel_context = stage->threads;
    }
    return host;
}

static dw_status open_plain_channel(dw_stage *stage, dw_neighbour *neighbour, dw_why *why)
{
    dw_codec_setting floats;
    dw_status status = dw_codec_setting_parse(&floats, "raw:f32", "plain", why);
    if (status < 0) return status;
    const dw_host host = host_of(stage);
    const dw_channel_config channel = {.struct_size = sizeof channel,
                                       .id = PLAIN_CHANNEL_ID,
                                       .send = &floats.config,
                                       .recv = &floats.config,
                                       .host = &host,
                                       .open_timeout_ms = stage->settings->config.open_timeout_ms};
    return dw_channel_open(&neighbour->plain, neighbour->link, &channel, why);
}

static dw_status open_channel(dw_stage *stage, dw_neighbour *neighbour, bool listens)
{
    const dw_settings *settings = stage->settings;
    const dw_boundaries *ahead = &settings->forward, *back = &settings->backward;
    const dw_config *forward = listens ? &ahead->after.config : &ahead->before.config;
    const dw_config *backward = listens ? &back->after.config : &back->before.config;
    const dw_host host = host_of(stage);
    dw_why why = {.offset = -1};
    uint32_t boundary = settings->config.rank % settings->config.stages - !listens;
    dw_channel_config channel = {.struct_size = sizeof channel,
                                 .id = CHANNEL_ID + boundary * CHANNEL_IDS,
                                 .send = listens ? forward : backward,
                                 .recv = listens ? backward : forward,
                                 .host = &host,
                                 .open_timeout_ms = settings->config.open_timeout_ms};
    dw_status status = dw_channel_open(&neighbour->channel, neighbour->link, &channel, &why);
    if (status == DW_OK && settings->config.plain_eval)
        status = open_plain_channel(stage, neighbour, &why);
    return status < 0 ? dw_control_lost(stage, neighbour, status, why.text) : DW_OK;
}

/* Meets the rank before or after this one. Between two replicas the link carries only control
 * messages. */
static dw_status meet(dw_stage *stage, dw_neighbour *neighbour, uint32_t rank, json_t *greeting)
{
    const dw_settings *settings = stage->settings;
    bool listens = rank > settings->config.rank;
    dw_meeting meeting = {.rank = rank,
                          .uri = listens ? settings->config.listen : settings->config.connect,
                          .on_listening = listens ? stage->hooks->on_listening : NULL,
                          .context = stage->hooks->context};
    dw_status status = dw_meet(stage, neighbour, &meeting, greeting);
    bool same_replica = rank / settings->config.stages == settings->replica;
    return status == DW_OK && same_replica ? open_channel(stage, neighbour, listens) : status;
}

dw_status dw_stage_open(dw_stage *stage, const dw_settings *settings, const dw_train_hooks *hooks,
                        json_t *greeting)
{
    const dw_train_config *config = &settings->config;
    memset(stage, 0, sizeof *stage);
    stage->settings = settings;
    stage->hooks = hooks;
    stage->total_parts = dw_model_parts(&settings->shape);
    dw_stage_parts(&settings->shape, settings->stage, config->stages, &stage->first_part,
                   &stage->n_parts);
    dw_status status =
        dw_model_create(&stage->model, &settings->shape, stage->first_part, stage->n_parts,
                        config->batch / config->micro_batches, settings->in_flight, config->slices);
    if (status < 0)
        dw_say(
            &stage->why, status,
            status == DW_ERR_LIMIT
                ? "a micro-batch is too large for the matrix products: give more "
                  "micro-batches"
                : "out of memory for the model: give fewer layers or channels, or smaller batches");
    if (status == DW_OK && config->threads > 1) {
        status = dw_threads_create(&stage->threads, config->threads, NULL);
        if (status < 0)
            dw_say(&stage->why, status, "cannot start %u threads: give fewer", config->threads);
    }
    if (status == DW_OK && config->state) status = open_storage(stage);
    if (status == DW_OK && config->rank > 0)
        status = meet(stage, &stage->before, config->rank - 1, greeting);
    if (status == DW_OK && config->rank + 1 < settings->ranks)
        status = meet(stage, &stage->after, config->rank + 1, greeting);
    if (status == DW_OK) status = dw_replicas_open(stage, greeting);
    if (status == DW_OK) status = dw_tied_open(stage);
    if (status < 0) dw_stage_close(stage, status);
    return status;
}

static void part_from(dw_stage *stage, dw_neighbour *neighbour, dw_status status)
{
    if (!neighbour->link) return;
    if (status < 0) dw_control_part(stage, neighbour, status);
    dw_channel_close(neighbour->channel);
    dw_channel_close(neighbour->plain);
    dw_link_close(neighbour->link);
    neighbour->channel = neighbour->plain = NULL;
    neighbour->link = NULL;
}

void dw_stage_close(dw_stage *stage, dw_status status)
{
    dw_outer_close(stage);
    dw_replicas_close(stage, status);
    part_from(stage, &stage->before, status);
    part_from(stage, &stage->after, status);
    dw_threads_destroy(stage->threads);
    dw_storage_close(stage->storage);
    dw_model_destroy(stage->model);
    stage->threads = NULL;
    stage->storage = NULL;
    stage->model = NULL;
}

/* ---- Tensors --------------------------------------------------------------------------------- */

static dw_tensor view(const dw_stage *stage, float *x, const dw_piece *piece)
{
    const dw_train_config *config = &stage->settings->config;
    uint32_t tokens = dw_slice_of(config->context, config->slices, piece->slice).tokens;
    return dw_tensor_3d(x, DW_F32, piece->N, tokens, dw_boundary_channels(&stage->settings->shape));
}

static dw_key key_of(const dw_stage *stage, const dw_piece *piece, uint32_t n)
{
    bool repeats = stage->settings->config.repeat > 1;
    return (dw_key){.sample = repeats ? piece->first_key + n : piece->ids[n],
                    .slice = piece->slice};
}

/* The keys of a piece; NULL: no memory. */
static dw_key *make_keys(dw_stage *stage, const dw_piece *piece)
{
    dw_key *keys = calloc(piece->N, sizeof *keys);
    for (uint32_t n = 0; keys && n < piece->N; n++) keys[n] = key_of(stage, piece, n);
    if (!keys) dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for the keys of a micro-batch");
    return keys;
}

void dw_stage_prefetch(dw_stage *stage, const dw_piece *piece)
{
    dw_channel *channels[] = {stage->before.channel, stage->after.channel};
    dw_key *keys = stage->storage ? make_keys(stage, piece) : NULL;
    for (int i = 0; i < 2 && keys; i++)
        if (channels[i]) (void)dw_channel_prefetch(channels[i], keys, piece->N);
    free(keys);
}

/* The time that encoding, or decoding, has taken so far. */
static uint64_t busy_ns(dw_channel *channel, bool is_sent)
{
    dw_counters counters = {.struct_size = sizeof counters};
    dw_channel_count(channel, is_sent ? &counters : NULL, is_sent ? NULL : &counters);
    return counters.busy_ns;
}

dw_status dw_stage_send(dw_stage *stage, dw_neighbour *to, const dw_piece *piece, float *x)
{
    dw_tensor sent = view(stage, x, piece);
    dw_channel *channel = piece->is_plain ? to->plain : to->channel;
    bool drops = stage->settings->config.repeat > 1 && piece->is_first_use;
    dw_key *keys = make_keys(stage, piece);
    if (!keys) return DW_ERR_NO_MEMORY;
    uint64_t since = dw_now_ns(), busy = busy_ns(channel, true);
    dw_status status = DW_OK;
    for (uint32_t n = 0; drops && n < piece->N && status == DW_OK; n++)
        status = dw_channel_forget(channel, keys[n]);
    if (status == DW_OK) status = dw_channel_send(channel, keys, &sent, NULL);
    stage->wait_ns += dw_now_ns() - since - (busy_ns(channel, true) - busy);
    free(keys);
    return status < 0 ? dw_control_lost(stage, to, status, dw_channel_why(channel)) : DW_OK;
}

dw_status dw_stage_recv(dw_stage *stage, dw_neighbour *from, const dw_piece *piece, float *x,
                        bool wait)
{
    dw_tensor y = view(stage, x, piece);
    dw_channel *channel = piece->is_plain ? from->plain : from->channel;
    dw_key *keys = make_keys(stage, piece); /* overwritten by those that arrive */
    if (!keys) return DW_ERR_NO_MEMORY;
    uint64_t since = dw_now_ns(), busy = busy_ns(channel, false);
    dw_status status;
    do {
        status = dw_stage_check(stage);
        if (status < 0) break;
        status = dw_channel_recv(channel, wait ? DW_LOOK_MS : 0, keys, &y, NULL);
        if (status < 0) status = dw_control_lost(stage, from, status, dw_channel_why(channel));
    } while (status == DW_PENDING && wait);
    /* Decoding is part of receiving, but does not count as waiting. */
    stage->wait_ns += dw_now_ns() - since - (busy_ns(channel, false) - busy);
    for (uint32_t n = 0; n < piece->N && status == DW_OK; n++) {
        dw_key key = key_of(stage, piece, n);
        if (keys[n].sample != key.sample || keys[n].slice != key.slice)
            status = dw_say(&stage->why, DW_ERR_PROTOCOL,
                            "rank %u sent other samples or slices than this step's", from->rank);
    }
    free(keys);
    return status;
}

/* The kernel's counters lag a few milliseconds behind those of the library, because they count a
 * byte when it has been acknowledged. */
static void await_counters(dw_link *link)
{
    for (int tries = 0; link && tries < 50; tries++) {
        dw_link_counters now = {.struct_size = sizeof now};
        dw_link_count(link, &now);
        if (now.kernel_bytes_sent == 0) return;
        if (now.kernel_bytes_sent >= now.bytes_sent &&
            now.kernel_bytes_received >= now.bytes_received)
            return;
        struct timespec nap = {.tv_nsec = 10000000};
        nanosleep(&nap, NULL);
    }
}

void dw_stage_await_counters(dw_stage *stage)
{
    await_counters(stage->before.link);
    await_counters(stage->after.link);
    for (uint32_t d = 0; d < dw_replicas_peers(stage); d++) {
        dw_neighbour *peer = dw_replicas_at(stage, d);
        if (peer) await_counters(peer->link);
    }
}

/* Adds what a channel has spent, and what its codecs keep now. Sets *sent and *received to its
 * counters, which are zero if there is no such channel. */
static void count_channel(dw_channel *channel, dw_counters *sent, dw_counters *received,
                          dw_train_cost *cost)
{
    *sent = *received = (dw_counters){.struct_size = sizeof *sent};
    if (!channel) return;
    dw_channel_count(channel, sent, received);
    cost->codec_s += (double)(sent->busy_ns + received->busy_ns) * 1e-9;
    cost->state_bytes += sent->state_bytes + received->state_bytes;
}

void dw_stage_cost(dw_stage *stage, dw_train_cost *cost)
{
    dw_counters sent, received;
    memset(cost, 0, sizeof *cost);
    count_channel(stage->before.channel, &sent, &received, cost);
    count_channel(stage->before.plain, &sent, &received, cost);
    dw_channel *const channels[] = {stage->after.channel, stage->after.plain};
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        count_channel(channels[i], &sent, &received, cost);
        cost->frames_forward += sent.encoded_bytes;
        cost->frames_backward += received.encoded_bytes;
        cost->raw_forward += sent.raw_bytes;
        cost->raw_backward += received.raw_bytes;
    }
    if (stage->after.channel) {
        dw_link_counters link = {.struct_size = sizeof link};
        dw_link_count(stage->after.link, &link);
        cost->bytes_forward = link.bytes_sent;
        cost->bytes_backward = link.bytes_received;
        cost->kernel_forward = link.kernel_bytes_sent;
        cost->kernel_backward = link.kernel_bytes_received;
    }
    cost->compute_s = (double)stage->compute_ns * 1e-9;
    cost->wait_s = (double)stage->wait_ns * 1e-9;
    dw_replicas_cost(stage, cost);
    dw_tied_cost(stage, cost);
}
