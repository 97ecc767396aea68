/* SPDX-License-Identifier: Apache-2.0
 * replicas.c - links between replicas, and averages of gradients. */
#include "replicas.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "base/scope.h"
#include "base/sentence.h"
#include "control.h"
#include "deltawire/collective.h"
#include "meeting.h"
#include "tied.h"

enum { ADDRESS_BYTES = 700, GROUP_ID = 2 }; /* the channels have the number 1 */

struct dw_replicas {
    dw_stage *stage;
    dw_neighbour *others; /* (peers): those that have a link of their own */
    dw_group *group;      /* NULL: there is one replica */
    pthread_mutex_t lock;
    char (*addresses)[ADDRESS_BYTES]; /* (peers), under lock: where they listen; "": unknown */
    bool *is_started;                 /* (parts of the stage) */
    dw_status status;                 /* of the first start that failed */
    uint64_t wait_ns, raw_bytes;
};

/* What dw_link_open reports where to listen. */
typedef struct telling {
    dw_replicas *replicas;
    uint32_t to;
} telling;

uint32_t dw_replicas_peers(const dw_stage *stage)
{
    const dw_settings *settings = stage->settings;
    uint32_t replicas = settings->config.replicas;
    if (!stage->replicas) return 0;
    return dw_settings_has_far_end(settings) ? 2 * replicas : replicas;
}

/* The rank of peer i: first the same stage of every replica, then the other end of every replica.
 */
static uint32_t rank_of(const dw_settings *settings, uint32_t i)
{
    uint32_t stages = settings->config.stages, replicas = settings->config.replicas;
    uint32_t other_end = settings->stage ? 0 : stages - 1;
    return i % replicas * stages + (i < replicas ? settings->stage : other_end);
}

/* The peer that has this rank; UINT32_MAX: none. */
static uint32_t peer_of(const dw_stage *stage, uint32_t rank)
{
    uint32_t n = dw_replicas_peers(stage), i = 0;
    while (i < n && rank_of(stage->settings, i) != rank) i++;
    return i < n ? i : UINT32_MAX;
}

dw_neighbour *dw_replicas_at(dw_stage *stage, uint32_t i)
{
    const dw_settings *settings = stage->settings;
    if (i >= dw_replicas_peers(stage)) return NULL;
    uint32_t rank = rank_of(settings, i), own = settings->config.rank;
    if (rank == own) return NULL;
    if (rank + 1 == own) return &stage->before;
    if (rank == own + 1) return &stage->after;
    dw_neighbour *other = &stage->replicas->others[i];
    return other->link ? other : NULL;
}

/* ---- Addresses ------------------------------------------------------------------------------- */

/* Runs on the thread of the link to the rank before. Stores an address that is meant for this rank,
 * and passes on any other one to the next rank. If that fails, the rank that waits for the address
 * gives up after its timeout. */
static void take_address(void *context, const void *data, size_t len)
{
    dw_replicas *replicas = context;
    const dw_settings *settings = replicas->stage->settings;
    char text[ADDRESS_BYTES], uri[ADDRESS_BYTES];
    unsigned to, from;
    if (len >= sizeof text) return;
    memcpy(text, data, len);
    text[len] = '\0';
    if (sscanf(text, "%u %u %699s", &to, &from, uri) != 3) return;
    if (to > settings->config.rank && replicas->stage->after.link)
        dw_link_send(replicas->stage->after.link, DW_TAG_ADDRESS, data, len);
    uint32_t peer = peer_of(replicas->stage, from);
    if (to != settings->config.rank || from >= to || peer == UINT32_MAX) return;
    pthread_mutex_lock(&replicas->lock);
    strcpy(replicas->addresses[peer], uri);
    pthread_mutex_unlock(&replicas->lock);
}

static void tell_address(void *context, const char *uri)
{
    const telling *t = context;
    dw_stage *stage = t->replicas->stage;
    char text[ADDRESS_BYTES];
    int len = snprintf(text, sizeof text, "%u %u %s", t->to, stage->settings->config.rank, uri);
    if (len < (int)sizeof text) dw_link_send(stage->after.link, DW_TAG_ADDRESS, text, (size_t)len);
}

static dw_status await_address(dw_replicas *replicas, uint32_t peer, char uri[ADDRESS_BYTES])
{
    dw_stage *stage = replicas->stage;
    const dw_train_config *config = &stage->settings->config;
    int64_t end = dw_now_ns() + (int64_t)config->open_timeout_ms * 1000000;
    for (;;) {
        pthread_mutex_lock(&replicas->lock);
        dw_copy_with_scope(uri, ADDRESS_BYTES, replicas->addresses[peer], config->replica_listen);
        pthread_mutex_unlock(&replicas->lock);
        if (*uri) return DW_OK;
        dw_status status = dw_stage_check(stage);
        if (status < 0) return status;
        if (dw_now_ns() > end)
            return dw_say(&stage->why, DW_ERR_TIMEOUT,
                          "rank %u did not report its address to rank %u within %u ms",
                          rank_of(stage->settings, peer), config->rank, config->open_timeout_ms);
        struct timespec nap = {.tv_nsec = 2000000};
        nanosleep(&nap, NULL);
    }
}

/* ---- Meeting --------------------------------------------------------------------------------- */

static dw_status meet(dw_replicas *replicas, uint32_t peer, json_t *greeting)
{
    dw_stage *stage = replicas->stage;
    const dw_settings *settings = stage->settings;
    const char *listen = settings->config.replica_listen;
    size_t length = strlen(listen);
    char uri[ADDRESS_BYTES];
    telling tells = {.replicas = replicas, .to = rank_of(settings, peer)};
    dw_meeting meeting = {.rank = tells.to, .uri = uri};
    dw_status status = DW_OK;
    /* A transport whose addresses are ranks: both ends name the other one. */
    bool is_numbered = length >= 3 && strcmp(listen + length - 3, "://") == 0;
    if (is_numbered) {
        snprintf(uri, sizeof uri, "%s%u", listen, meeting.rank);
    } else if (meeting.rank > settings->config.rank) {
        snprintf(uri, sizeof uri, "%s", listen);
        meeting.on_listening = tell_address;
        meeting.context = &tells;
    } else {
        status = await_address(replicas, peer, uri);
    }
    return status < 0 ? status : dw_meet(stage, &replicas->others[peer], &meeting, greeting);
}

/* Returns the timeout of the group. It is longer than peer_timeout_ms, within about which a link
 * notices that its other end is lost. Otherwise the group could blame a rank that is late only
 * because it waits for a lost rank of its own replica. */
static uint32_t group_timeout(const dw_train_config *config)
{
    uint64_t ms = (uint64_t)config->peer_timeout_ms * 2 + 10000;
    return ms < INT32_MAX ? (uint32_t)ms : INT32_MAX;
}

dw_status dw_replicas_open_group(dw_stage *stage, dw_group **group, dw_group_config *config)
{
    const dw_settings *settings = stage->settings;
    dw_why why = {.offset = -1};
    config->struct_size = sizeof *config;
    config->codec = &settings->gradient.config;
    config->open_timeout_ms = settings->config.open_timeout_ms;
    config->timeout_ms = group_timeout(&settings->config);
    config->piece = DW_REPLICAS_PIECE;
    config->hops = settings->config.hops;
    dw_status status = dw_group_open(group, config, &why);
    if (status == DW_OK) return DW_OK;
    dw_status stopped = dw_control_await_words(stage);
    if (stopped < 0) return stopped;
    return dw_say(&stage->why, status, "rank %u cannot average gradients with its replicas: %.180s",
                  settings->config.rank, why.text);
}

static dw_status open_group(dw_replicas *replicas)
{
    dw_stage *stage = replicas->stage;
    const dw_settings *settings = stage->settings;
    uint32_t D = settings->config.replicas;
    if (D == 1) return DW_OK;
    dw_link **links = calloc(D, sizeof *links);
    if (!links) return dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for the replicas");
    for (uint32_t d = 0; d < D; d++)
        if (d != settings->replica) links[d] = dw_replicas_at(stage, d)->link;
    dw_group_config config = {
        .id = GROUP_ID, .rank = settings->replica, .ranks = D, .links = links};
    dw_status status = dw_replicas_open_group(stage, &replicas->group, &config);
    free(links);
    return status;
}

/* Meets all peers, in the order of their ranks. A rank connects to the ranks with lower numbers
 * before it listens for those with higher ones, so ranks do not wait for each other in a circle. */
static dw_status meet_all(dw_replicas *replicas, json_t *greeting)
{
    dw_stage *stage = replicas->stage;
    const dw_settings *settings = stage->settings;
    uint32_t D = settings->config.replicas, n = dw_replicas_peers(stage);
    dw_status status = DW_OK;
    for (uint32_t k = 0; k < n && status == DW_OK; k++) {
        /* Of the two ends of a replica the first stage has the lower rank. */
        uint32_t other_end = n > D ? k % 2 == (settings->stage == 0) : 0;
        uint32_t peer = n > D ? k / 2 + other_end * D : k;
        if (rank_of(settings, peer) != settings->config.rank && !dw_replicas_at(stage, peer))
            status = meet(replicas, peer, greeting);
    }
    return status;
}

dw_status dw_replicas_open(dw_stage *stage, json_t *greeting)
{
    const dw_settings *settings = stage->settings;
    uint32_t D = settings->config.replicas;
    if (D == 1 && (!settings->config.tied || settings->config.stages == 1)) return DW_OK;
    dw_replicas *replicas = calloc(1, sizeof *replicas);
    if (!replicas) return dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for the replicas");
    replicas->stage = stage;
    pthread_mutex_init(&replicas->lock, NULL);
    replicas->others = calloc((size_t)2 * D, sizeof *replicas->others);
    replicas->addresses = calloc((size_t)2 * D, sizeof *replicas->addresses);
    replicas->is_started = calloc(stage->n_parts, sizeof *replicas->is_started);
    stage->replicas = replicas;
    if (!replicas->others || !replicas->addresses || !replicas->is_started)
        return dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for the replicas");
    if (stage->before.link)
        dw_link_handle(stage->before.link, DW_TAG_ADDRESS, take_address, replicas);
    /* Addresses are passed on from now on, so all ranks must be here before the first is sent. */
    dw_status status = dw_control_assemble(stage);
    if (status == DW_OK) status = meet_all(replicas, greeting);
    return status == DW_OK ? open_group(replicas) : status;
}

void dw_replicas_close(dw_stage *stage, dw_status status)
{
    dw_replicas *replicas = stage->replicas;
    if (!replicas) return;
    if (stage->before.link) dw_link_handle(stage->before.link, DW_TAG_ADDRESS, NULL, NULL);
    for (uint32_t d = 0; replicas->others && d < dw_replicas_peers(stage); d++)
        if (status < 0) dw_control_part(stage, &replicas->others[d], status);
    dw_tied_close(stage);
    dw_group_close(replicas->group);
    for (uint32_t d = 0; replicas->others && d < dw_replicas_peers(stage); d++)
        dw_link_close(replicas->others[d].link);
    stage->replicas = NULL;
    pthread_mutex_destroy(&replicas->lock);
    free(replicas->others);
    free(replicas->addresses);
    free(replicas->is_started);
    free(replicas);
}

/* ---- Gradients ------------------------------------------------------------------------------- */

uint64_t dw_replicas_raw_bytes(uint64_t n, uint32_t member, uint32_t members)
{
    uint64_t begin, own = 0;
    dw_group_part(n, member, members, &begin, &own);
    return (n - own + own * (members - 1)) * sizeof(float);
}

void dw_replicas_start(dw_stage *stage, uint32_t i)
{
    dw_replicas *replicas = stage->replicas;
    if (!replicas || !replicas->group || replicas->status < 0) return;
    const dw_part *part = dw_model_part(stage->model, i);
    size_t begin, n;
    dw_tied_rest(stage, part, &begin, &n);
    dw_group_job job = {.struct_size = sizeof job,
                        .operation = DW_ALL_REDUCE,
                        .dtype = DW_F32,
                        .slot = part->index,
                        .n = n,
                        .x = part->grads + begin,
                        .y = part->grads + begin,
                        .mean = 1};
    dw_status status = dw_group_start(replicas->group, &job);
    replicas->is_started[i] = status == DW_OK;
    if (status < 0) replicas->status = status;
    replicas->raw_bytes +=
        dw_replicas_raw_bytes(n, stage->settings->replica, stage->settings->config.replicas);
}

dw_status dw_replicas_failed(dw_stage *stage, dw_group *group, dw_status status,
                             dw_replicas_member *rank_of_member)
{
    const dw_settings *settings = stage->settings;
    dw_status stopped = dw_control_await_words(stage);
    if (stopped < 0) return stopped;
    int member;
    const char *why = dw_group_why(group, &member);
    uint32_t other = rank_of_member(settings, member < 0 ? 0 : (uint32_t)member);
    if (member < 0 || other == settings->config.rank)
        return dw_say(&stage->why, status, "rank %u cannot average gradients: %.200s",
                      settings->config.rank, why);
    if (status == DW_ERR_PEER || status == DW_ERR_TIMEOUT)
        return dw_say(&stage->why, status,
                      "rank %u lost rank %u, with which it averages gradients: %s",
                      settings->config.rank, other, dw_status_string(status));
    return dw_say(&stage->why, status, "rank %u cannot average gradients with rank %u: %.180s",
                  settings->config.rank, other, why);
}

dw_status dw_replicas_wait(dw_stage *stage, dw_group *group, uint64_t slot,
                           dw_replicas_member *rank_of_member)
{
    uint64_t since = dw_now_ns();
    dw_status status;
    do {
        status = dw_stage_check(stage);
        if (status < 0) break;
        status = dw_group_wait(group, slot, DW_LOOK_MS);
        if (status < 0) status = dw_replicas_failed(stage, group, status, rank_of_member);
    } while (status == DW_PENDING);
    uint64_t waited = dw_now_ns() - since;
    stage->replicas->wait_ns += waited;
    stage->wait_ns += waited;
    return status;
}

dw_status dw_replicas_collect(dw_stage *stage)
{
    dw_replicas *replicas = stage->replicas;
    if (!replicas) return DW_OK;
    dw_status status = replicas->status < 0
                           ? dw_replicas_failed(stage, replicas->group, replicas->status, rank_of)
                           : DW_OK;
    for (uint32_t i = stage->n_parts; i-- > 0 && status == DW_OK;) {
        if (!replicas->is_started[i]) continue;
        status = dw_replicas_wait(stage, replicas->group, dw_model_part(stage->model, i)->index,
                                  rank_of);
        replicas->is_started[i] = false;
    }
    return status;
}

/* ---- Checkpoints ----------------------------------------------------------------------------- */

typedef struct saving {
    dw_file *file;
    uint64_t len;
} saving;

/* Appends a piece of state, with its length in front of it: 8 bytes, little-endian. */
static dw_status save_piece(void *context, uint64_t slot, const void *saved, size_t len)
{
    saving *all = context;
    uint8_t head[8];
    (void)slot; /* the piece itself names it, too */
    all->len += sizeof head + len;
    if (!all->file) return DW_OK;
    dw_put64(head, len);
    dw_file_append(all->file, head, sizeof head);
    dw_file_append(all->file, saved, len);
    return DW_OK;
}

dw_status dw_replicas_export(dw_stage *stage, dw_group *group, dw_file *file, uint64_t *len)
{
    saving all = {.file = file};
    dw_status status = group ? dw_group_export(group, save_piece, &all) : DW_OK;
    *len = all.len;
    if (status == DW_OK) return DW_OK;
    return dw_say(&stage->why, status, "cannot save what the codec of the gradients keeps: %s",
                  dw_status_string(status));
}

dw_status dw_replicas_import(dw_stage *stage, dw_group *group, const uint8_t *bytes, size_t len)
{
    dw_status status = group || !len ? DW_OK : DW_ERR_FORMAT;
    while (len > 0 && status == DW_OK) {
        uint64_t piece = len < 8 ? 0 : dw_get64(bytes);
        if (len < 8 || piece > len - 8)
            status = DW_ERR_FORMAT;
        else
            status = dw_group_import(group, bytes + 8, (size_t)piece);
        if (status < 0) break;
        bytes += 8 + piece;
        len -= 8 + (size_t)piece;
    }
    if (status == DW_OK) return DW_OK;
    return dw_say(&stage->why, status,
                  "the checkpoint's state of the codec of the gradients cannot be used: %s",
                  dw_status_string(status));
}

dw_status dw_replicas_save(dw_stage *stage, dw_file *file, uint64_t *len)
{
    return dw_replicas_export(stage, stage->replicas ? stage->replicas->group : NULL, file, len);
}

dw_status dw_replicas_load(dw_stage *stage, const uint8_t *bytes, size_t len)
{
    return dw_replicas_import(stage, stage->replicas ? stage->replicas->group : NULL, bytes, len);
}

/* ---- Costs ----------------------------------------------------------------------------------- */

void dw_replicas_add_cost(dw_group *group, uint64_t raw_bytes, dw_train_cost *cost)
{
    dw_group_counters counters = {.struct_size = sizeof counters};
    dw_group_count(group, &counters, NULL, NULL);
    cost->codec_s += (double)counters.codec_ns * 1e-9;
    cost->bytes_gradients += counters.sent_bytes;
    cost->raw_gradients += raw_bytes;
}

void dw_replicas_cost(dw_stage *stage, dw_train_cost *cost)
{
    dw_replicas *replicas = stage->replicas;
    if (!replicas) return;
    if (replicas->group) dw_replicas_add_cost(replicas->group, replicas->raw_bytes, cost);
    cost->gradient_wait_s = (double)replicas->wait_ns * 1e-9;
    for (uint32_t i = 0; i < dw_replicas_peers(stage); i++) {
        dw_link_counters link = {.struct_size = sizeof link};
        dw_neighbour *other = dw_replicas_at(stage, i);
        /* The links of a pipeline carry tensors, and are counted as such. */
        bool counts = other && (stage->settings->config.stages == 1 || !other->channel);
        if (counts) dw_link_count(other->link, &link);
        cost->kernel_gradients += link.kernel_bytes_sent;
    }
}
