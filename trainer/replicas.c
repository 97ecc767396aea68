/* SPDX-License-Identifier: Apache-2.0
 * replicas.c - links between replicas, and averages of gradients. */
#include "replicas.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "control.h"
#include "deltawire/collective.h"
#include "meeting.h"
#include "sentence.h"

enum { ADDRESS_BYTES = 700, GROUP_ID = 2 }; /* the channels have the number 1 */

struct dw_replicas {
    dw_stage *stage;
    dw_neighbour *others; /* (replicas): those that have a link of their own */
    dw_group *group;
    pthread_mutex_t lock;
    char (*addresses)[ADDRESS_BYTES]; /* (replicas), under lock: where they listen; "": unknown */
    bool *is_started;                 /* (parts of the stage) */
    dw_status status;                 /* of the first start that failed */
    uint64_t wait_ns, raw_bytes;
};

/* What dw_link_open reports where to listen. */
typedef struct telling {
    dw_replicas *replicas;
    uint32_t to;
} telling;

dw_neighbour *dw_replicas_at(dw_stage *stage, uint32_t replica)
{
    const dw_settings *settings = stage->settings;
    if (!stage->replicas || replica == settings->replica) return NULL;
    if (settings->config.stages == 1 && replica + 1 == settings->replica) return &stage->before;
    if (settings->config.stages == 1 && replica == settings->replica + 1) return &stage->after;
    dw_neighbour *other = &stage->replicas->others[replica];
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
    if (to != settings->config.rank || from / settings->config.stages >= settings->replica) return;
    pthread_mutex_lock(&replicas->lock);
    strcpy(replicas->addresses[from / settings->config.stages], uri);
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

static dw_status await_address(dw_replicas *replicas, uint32_t replica, char uri[ADDRESS_BYTES])
{
    dw_stage *stage = replicas->stage;
    const dw_train_config *config = &stage->settings->config;
    uint64_t end = dw_stage_now() + (uint64_t)config->open_timeout_ms * 1000000;
    for (;;) {
        pthread_mutex_lock(&replicas->lock);
        strcpy(uri, replicas->addresses[replica]);
        pthread_mutex_unlock(&replicas->lock);
        if (*uri) return DW_OK;
        dw_status status = dw_stage_check(stage);
        if (status < 0) return status;
        if (dw_stage_now() > end)
            return dw_say(&stage->why, DW_ERR_TIMEOUT,
                          "rank %u did not report its address to rank %u within %u ms",
                          replica * config->stages + stage->settings->stage, config->rank,
                          config->open_timeout_ms);
        struct timespec nap = {.tv_nsec = 2000000};
        nanosleep(&nap, NULL);
    }
}

/* ---- Meeting --------------------------------------------------------------------------------- */

static dw_status meet(dw_replicas *replicas, uint32_t replica, json_t *greeting)
{
    dw_stage *stage = replicas->stage;
    const dw_settings *settings = stage->settings;
    const char *listen = settings->config.replica_listen;
    size_t length = strlen(listen);
    char uri[ADDRESS_BYTES];
    telling tells = {.replicas = replicas,
                     .to = replica * settings->config.stages + settings->stage};
    dw_meeting meeting = {.rank = tells.to, .uri = uri};
    dw_status status = DW_OK;
    /* A transport whose addresses are ranks: both ends name the other one. */
    bool is_numbered = length >= 3 && strcmp(listen + length - 3, "://") == 0;
    if (is_numbered) {
        snprintf(uri, sizeof uri, "%s%u", listen, meeting.rank);
    } else if (replica > settings->replica) {
        snprintf(uri, sizeof uri, "%s", listen);
        meeting.on_listening = tell_address;
        meeting.context = &tells;
    } else {
        status = await_address(replicas, replica, uri);
    }
    return status < 0 ? status : dw_meet(stage, &replicas->others[replica], &meeting, greeting);
}

/* Returns the timeout of the group. It is longer than peer_timeout_ms, within about which a link
 * notices that its other end is lost. Otherwise the group could blame a rank that is late only
 * because it waits for a lost rank of its own replica. */
static uint32_t group_timeout(const dw_train_config *config)
{
    uint64_t ms = (uint64_t)config->peer_timeout_ms * 2 + 10000;
    return ms < INT32_MAX ? (uint32_t)ms : INT32_MAX;
}

static dw_status open_group(dw_replicas *replicas)
{
    dw_stage *stage = replicas->stage;
    const dw_settings *settings = stage->settings;
    dw_link **links = calloc(settings->config.replicas, sizeof *links);
    if (!links) return dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for the replicas");
    for (uint32_t d = 0; d < settings->config.replicas; d++)
        if (d != settings->replica) links[d] = dw_replicas_at(stage, d)->link;
    dw_why why = {.offset = -1};
    dw_group_config config = {.struct_size = sizeof config,
                              .id = GROUP_ID,
                              .rank = settings->replica,
                              .ranks = settings->config.replicas,
                              .links = links,
                              .codec = &settings->gradient,
                              .open_timeout_ms = settings->config.open_timeout_ms,
                              .timeout_ms = group_timeout(&settings->config),
                              .piece = DW_REPLICAS_PIECE};
    dw_status status = dw_group_open(&replicas->group, &config, &why);
    free(links);
    if (status == DW_OK) return DW_OK;
    dw_status stopped = dw_control_await_words(stage);
    if (stopped < 0) return stopped;
    return dw_say(&stage->why, status, "rank %u cannot average gradients with its replicas: %.180s",
                  settings->config.rank, why.text);
}

dw_status dw_replicas_open(dw_stage *stage, json_t *greeting)
{
    const dw_settings *settings = stage->settings;
    uint32_t D = settings->config.replicas;
    if (D == 1) return DW_OK;
    dw_replicas *replicas = calloc(1, sizeof *replicas);
    if (!replicas) return dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for the replicas");
    replicas->stage = stage;
    pthread_mutex_init(&replicas->lock, NULL);
    replicas->others = calloc(D, sizeof *replicas->others);
    replicas->addresses = calloc(D, sizeof *replicas->addresses);
    replicas->is_started = calloc(stage->n_parts, sizeof *replicas->is_started);
    stage->replicas = replicas;
    if (!replicas->others || !replicas->addresses || !replicas->is_started)
        return dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for the replicas");
    if (stage->before.link)
        dw_link_handle(stage->before.link, DW_TAG_ADDRESS, take_address, replicas);
    /* Addresses are passed on from now on, so all ranks must be here before the first is sent. */
    dw_status status = dw_control_assemble(stage);
    /* A rank connects to the ranks with lower numbers before it listens for those with higher ones,
     * so ranks do not wait for each other in a circle. */
    for (uint32_t d = 0; d < D && status == DW_OK; d++)
        if (d != settings->replica && !dw_replicas_at(stage, d))
            status = meet(replicas, d, greeting);
    return status == DW_OK ? open_group(replicas) : status;
}

void dw_replicas_close(dw_stage *stage, dw_status status)
{
    dw_replicas *replicas = stage->replicas;
    if (!replicas) return;
    if (stage->before.link) dw_link_handle(stage->before.link, DW_TAG_ADDRESS, NULL, NULL);
    for (uint32_t d = 0; replicas->others && d < stage->settings->config.replicas; d++)
        if (status < 0) dw_control_part(stage, &replicas->others[d], status);
    dw_group_close(replicas->group);
    for (uint32_t d = 0; replicas->others && d < stage->settings->config.replicas; d++)
        dw_link_close(replicas->others[d].link);
    stage->replicas = NULL;
    pthread_mutex_destroy(&replicas->lock);
    free(replicas->others);
    free(replicas->addresses);
    free(replicas->is_started);
    free(replicas);
}

/* ---- Gradients ------------------------------------------------------------------------------- */

/* Returns the bytes that this rank would send without a codec: to each other rank the part of the
 * gradient that this one owns, and to all of them its own part of the mean. */
static uint64_t raw_bytes(const dw_settings *settings, uint64_t n)
{
    uint64_t begin, own = 0;
    dw_group_part(n, settings->replica, settings->config.replicas, &begin, &own);
    return (n - own + own * (settings->config.replicas - 1)) * sizeof(float);
}

void dw_replicas_start(dw_stage *stage, uint32_t i)
{
    dw_replicas *replicas = stage->replicas;
    if (!replicas || replicas->status < 0) return;
    const dw_part *part = dw_model_part(stage->model, i);
    dw_group_job job = {.struct_size = sizeof job,
                        .operation = DW_ALL_REDUCE,
                        .dtype = DW_F32,
                        .slot = part->index,
                        .n = part->n,
                        .x = part->grads,
                        .y = part->grads,
                        .mean = 1};
    dw_status status = dw_group_start(replicas->group, &job);
    replicas->is_started[i] = status == DW_OK;
    if (status < 0) replicas->status = status;
    replicas->raw_bytes += raw_bytes(stage->settings, part->n);
}

/* Returns the error of a group that has failed, with a sentence in stage->why. In the group's own
 * sentence the number of a rank is that of a replica, so it is not quoted where a rank was lost. */
static dw_status group_failed(dw_replicas *replicas, dw_status status)
{
    dw_stage *stage = replicas->stage;
    const dw_settings *settings = stage->settings;
    dw_status stopped = dw_control_await_words(stage);
    if (stopped < 0) return stopped;
    int replica = dw_group_failed_rank(replicas->group);
    uint32_t other =
        (uint32_t)(replica < 0 ? 0 : replica) * settings->config.stages + settings->stage;
    if (replica < 0 || other == settings->config.rank)
        return dw_say(&stage->why, status, "rank %u cannot average gradients: %.200s",
                      settings->config.rank, dw_group_why(replicas->group));
    if (status == DW_ERR_PEER || status == DW_ERR_TIMEOUT)
        return dw_say(&stage->why, status,
                      "rank %u lost rank %u, with which it averages gradients: %s",
                      settings->config.rank, other, dw_status_string(status));
    return dw_say(&stage->why, status, "rank %u cannot average gradients with rank %u: %.180s",
                  settings->config.rank, other, dw_group_why(replicas->group));
}

dw_status dw_replicas_collect(dw_stage *stage)
{
    dw_replicas *replicas = stage->replicas;
    if (!replicas) return DW_OK;
    uint64_t since = dw_stage_now();
    dw_status status = replicas->status < 0 ? group_failed(replicas, replicas->status) : DW_OK;
    for (uint32_t i = stage->n_parts; i-- > 0 && status == DW_OK;) {
        if (!replicas->is_started[i]) continue;
        uint64_t slot = dw_model_part(stage->model, i)->index;
        do {
            status = dw_stage_check(stage);
            if (status < 0) break;
            status = dw_group_wait(replicas->group, slot, DW_LOOK_MS);
            if (status < 0) status = group_failed(replicas, status);
        } while (status == DW_PENDING);
        replicas->is_started[i] = false;
    }
    uint64_t waited = dw_stage_now() - since;
    replicas->wait_ns += waited;
    stage->wait_ns += waited;
    return status;
}

/* ---- Checkpoints ----------------------------------------------------------------------------- */

typedef struct saving {
    uint8_t *bytes;
    size_t len;
    bool failed;
} saving;

/* Appends a piece of state, with its length in front of it: 8 bytes, little-endian. */
static dw_status save_piece(void *context, uint64_t slot, const void *saved, size_t len)
{
    saving *all = context;
    (void)slot; /* the piece itself names it, too */
    uint8_t *larger = realloc(all->bytes, all->len + 8 + len);
    if (!larger) return DW_ERR_NO_MEMORY;
    all->bytes = larger;
    for (int i = 0; i < 8; i++) all->bytes[all->len++] = (uint8_t)((uint64_t)len >> (8 * i));
    memcpy(all->bytes + all->len, saved, len);
    all->len += len;
    return DW_OK;
}

dw_status dw_replicas_save(dw_stage *stage, uint8_t **bytes, size_t *len)
{
    saving all = {0};
    *bytes = NULL;
    *len = 0;
    if (!stage->replicas) return DW_OK;
    dw_status status = dw_group_export_all(stage->replicas->group, save_piece, &all);
    if (status < 0) {
        free(all.bytes);
        return dw_say(&stage->why, status, "cannot save what the codec of the gradients keeps: %s",
                      dw_status_string(status));
    }
    *bytes = all.bytes;
    *len = all.len;
    return DW_OK;
}

dw_status dw_replicas_load(dw_stage *stage, const uint8_t *bytes, size_t len)
{
    dw_status status = DW_OK;
    while (len > 0 && status == DW_OK) {
        uint64_t piece = 0;
        for (size_t i = 0; i < 8 && i < len; i++) piece |= (uint64_t)bytes[i] << (8 * i);
        if (len < 8 || piece > len - 8)
            status = DW_ERR_FORMAT;
        else
            status = dw_group_import(stage->replicas->group, bytes + 8, (size_t)piece);
        if (status < 0) break;
        bytes += 8 + piece;
        len -= 8 + (size_t)piece;
    }
    if (status == DW_OK) return DW_OK;
    return dw_say(&stage->why, status,
                  "the checkpoint's state of the codec of the gradients cannot be used: %s",
                  dw_status_string(status));
}

/* ---- Costs ----------------------------------------------------------------------------------- */

void dw_replicas_cost(dw_stage *stage, dw_train_cost *cost)
{
    dw_replicas *replicas = stage->replicas;
    if (!replicas || !replicas->group) return;
    dw_group_counters counters = {.struct_size = sizeof counters};
    dw_group_count(replicas->group, &counters);
    cost->codec_s += (double)counters.codec_ns * 1e-9;
    cost->gradient_wait_s = (double)replicas->wait_ns * 1e-9;
    cost->raw_gradients = replicas->raw_bytes;
    cost->bytes_gradients = counters.sent_bytes;
    for (uint32_t d = 0; d < stage->settings->config.replicas; d++) {
        dw_link_counters link = {.struct_size = sizeof link};
        dw_neighbour *other = dw_replicas_at(stage, d);
        if (other) dw_link_count(other->link, &link);
        cost->kernel_gradients += link.kernel_bytes_sent;
    }
}
