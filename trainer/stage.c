/* SPDX-License-Identifier: Apache-2.0
 * stage.c - connects to the neighbours, and exchanges tensors and control messages; every wait can
 * be stopped. */
#include "stage.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sentence.h"

/* Channels use no tags below 256. */
enum { TAG_GREETING = 1, TAG_CONTROL = 2, TAG_LAST_WORDS = 3 };

/* Limit for greetings and control messages, which have some hundred bytes per rank. A message is
 * parsed before the neighbour is known to be a rank of this run, and parsed JSON takes twenty times
 * the memory of its text. */
enum { MOST_CONTROL_BYTES = 1 << 20 };
enum { CHANNEL_ID = 1 };
/* Every wait checks at this interval whether the run was asked to stop. */
enum { LOOK_MS = 50 };
/* How long to wait for the last message of a neighbour that has ended. */
enum { LAST_WORDS_LOOKS = 50, LAST_WORDS_LOOK_MS = 10 };

uint64_t dw_stage_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void dw_stage_computed(dw_stage *stage, uint64_t since)
{
    stage->compute_ns += dw_stage_now() - since;
}

void dw_stage_parts(const dw_model_shape *shape, uint32_t rank, uint32_t stages, uint32_t *first,
                    uint32_t *n)
{
    uint32_t each = shape->layers / stages, over = shape->layers % stages;
    uint32_t blocks = each + (rank < over), before = rank * each + (rank < over ? rank : over);
    *first = rank == 0 ? 0 : 1 + before;
    *n = blocks + (rank == 0) + (rank + 1 == stages);
}

/* ---- Stopping -------------------------------------------------------------------------------- */

/* Called on the link's thread. A message that cannot be parsed still means that the neighbour has
 * stopped. */
static void take_last_words(void *context, const void *data, size_t len)
{
    dw_last_words *words = context;
    if (__atomic_load_n(&words->arrived, __ATOMIC_ACQUIRE)) return;
    json_t *message = json_loadb(data, len, 0, NULL);
    json_int_t status = json_integer_value(json_object_get(message, "status"));
    const char *text = json_string_value(json_object_get(message, "why"));
    words->status = status < 0 && status > -1000 ? (dw_status)status : DW_ERR_PEER;
    strncpy(words->text, text ? text : "a neighbour stopped", sizeof words->text - 1);
    json_decref(message);
    __atomic_store_n(&words->arrived, true, __ATOMIC_RELEASE);
}

static void give_last_words(dw_stage *stage, dw_neighbour *to, dw_status status)
{
    if (!to->link || __atomic_load_n(&to->words.arrived, __ATOMIC_ACQUIRE)) return;
    json_t *message = json_pack("{s:i, s:s}", "status", (int)status, "why", stage->why.text);
    char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;
    if (text)
        dw_link_send(to->link, TAG_LAST_WORDS, text, strlen(text)); /* fails if the link is broken
                                                                     */
    free(text);
    json_decref(message);
}

static dw_status hear(dw_stage *stage, dw_neighbour *neighbour)
{
    if (!neighbour->link || !__atomic_load_n(&neighbour->words.arrived, __ATOMIC_ACQUIRE))
        return DW_OK;
    return dw_say(&stage->why, neighbour->words.status, "%s", neighbour->words.text);
}

dw_status dw_stage_check(dw_stage *stage)
{
    if (stage->hooks->stop && __atomic_load_n(stage->hooks->stop, __ATOMIC_RELAXED))
        return dw_say(&stage->why, DW_ERR_CANCELLED, "rank %u was asked to stop",
                      stage->settings->config.rank);
    dw_status status = hear(stage, &stage->before);
    return status < 0 ? status : hear(stage, &stage->after);
}

/* The sentence for a link that failed: the reason that the neighbour sent before it ended, or else
 * the error of the link. The neighbour's last message arrives before the end of the link, but this
 * thread can be woken before the link's thread has handed the message over; hence the wait. */
static dw_status link_failed(dw_stage *stage, dw_neighbour *neighbour, dw_status status,
                             const char *sentence)
{
    dw_status stopped = dw_stage_check(stage);
    for (int looks = 0; looks < LAST_WORDS_LOOKS && stopped == DW_OK; looks++) {
        struct timespec nap = {.tv_nsec = 1000000 * LAST_WORDS_LOOK_MS};
        nanosleep(&nap, NULL);
        stopped = dw_stage_check(stage);
    }
    if (stopped < 0) return stopped;
    const char *reason = sentence && *sentence ? sentence : dw_link_why(neighbour->link);
    return dw_say(&stage->why, status, "rank %u lost rank %u: %s", stage->settings->config.rank,
                  neighbour->rank, *reason ? reason : dw_status_string(status));
}

/* ---- Control messages ------------------------------------------------------------------------ */

static dw_status send_json(dw_stage *stage, dw_neighbour *to, uint32_t tag, json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text) return dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for a control message");
    size_t length = strlen(text);
    dw_status status;
    while ((status = dw_link_send(to->link, tag, text, length)) == DW_PENDING) {
        dw_status stopped = dw_stage_check(stage);
        if (stopped < 0) {
            free(text);
            return stopped;
        }
        dw_link_wait_room(to->link, length, LOOK_MS);
    }
    free(text);
    return status < 0 ? link_failed(stage, to, status, NULL) : DW_OK;
}

static dw_status recv_json(dw_stage *stage, dw_neighbour *from, uint32_t tag, json_t **value)
{
    void *data;
    size_t len;
    uint64_t since = dw_stage_now();
    dw_status status = DW_PENDING;
    while (status == DW_PENDING) {
        dw_status stopped = dw_stage_check(stage);
        if (stopped < 0) return stopped;
        status = dw_link_recv(from->link, tag, LOOK_MS, &data, &len);
    }
    stage->wait_ns += dw_stage_now() - since;
    if (status < 0) return link_failed(stage, from, status, NULL);
    if (len > MOST_CONTROL_BYTES) {
        dw_link_release(from->link, data);
        return dw_say(&stage->why, DW_ERR_PROTOCOL,
                      "rank %u sent a control message of %zu bytes; at most %d are taken",
                      from->rank, len, MOST_CONTROL_BYTES);
    }
    *value = json_loadb(data, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
    dw_link_release(from->link, data);
    if (*value) return DW_OK;
    return dw_say(&stage->why, DW_ERR_PROTOCOL, "rank %u sent a control message that is no JSON",
                  from->rank);
}

dw_status dw_stage_gather(dw_stage *stage, json_t *own, json_t **all)
{
    *all = NULL;
    if (!own) return dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for a control message");
    json_t *list = NULL;
    dw_status status = DW_OK;
    if (stage->after.link)
        status = recv_json(stage, &stage->after, TAG_CONTROL, &list);
    else
        list = json_array();
    uint32_t rank = stage->settings->config.rank, stages = stage->settings->config.stages;
    if (status == DW_OK && (!json_is_array(list) || json_array_size(list) != stages - rank - 1))
        status = dw_say(&stage->why, DW_ERR_PROTOCOL,
                        "rank %u sent a control message of another shape", rank + 1);
    if (status == DW_OK && json_array_insert(list, 0, own))
        status = dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for a control message");
    if (status == DW_OK && stage->before.link)
        status = send_json(stage, &stage->before, TAG_CONTROL, list);
    json_decref(own);
    if (status == DW_OK && !stage->before.link)
        *all = list;
    else
        json_decref(list);
    return status;
}

dw_status dw_stage_spread(dw_stage *stage, json_t *own, json_t **value)
{
    dw_status status = DW_OK;
    *value = own;
    if (stage->before.link)
        status = recv_json(stage, &stage->before, TAG_CONTROL, value);
    else if (!own)
        status = dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for a control message");
    if (status == DW_OK && stage->after.link)
        status = send_json(stage, &stage->after, TAG_CONTROL, *value);
    if (status == DW_OK) return DW_OK;
    json_decref(*value);
    *value = NULL;
    return status;
}

/* ---- Meeting --------------------------------------------------------------------------------- */

/* The longest message that a neighbour may send: a control message, or a frame of activations as
 * floats, which no codec exceeds. */
static uint64_t longest_message(const dw_train_config *config)
{
    dw_config largest;
    uint32_t n = config->batch / config->micro_batches;
    dw_tensor x = dw_tensor_3d(NULL, DW_F32, n, config->context, config->channels);
    (void)dw_config_parse(&largest, "delta:key=f32", NULL);
    return (uint64_t)dw_frame_bound(&largest, &x) + MOST_CONTROL_BYTES;
}

/* The configs of one direction in the form that dw_channel_config needs; they use the threads of
 * this stage. */
typedef struct direction {
    dw_config each[DW_CANDIDATES_MOST];
    const dw_config *list[DW_CANDIDATES_MOST];
    dw_channel_auto several;
} direction;

/* Fills *d from the candidates. If there is one candidate, sets *one to it, otherwise sets *several
 * to all of them; the other pointer stays as it is. Both point into *d. */
static void set_direction(direction *d, const dw_stage *stage, const dw_candidates *candidates,
                          const dw_config **one, const dw_channel_auto **several)
{
    for (uint32_t i = 0; i < candidates->n; i++) {
        d->each[i] = candidates->each[i];
        d->list[i] = &d->each[i];
        if (!stage->threads) continue;
        d->each[i].parallel_for = dw_threads_parallel_for;
        d->each[i].parallel_context = stage->threads;
    }
    d->several = (dw_channel_auto){.struct_size = sizeof d->several,
                                   .candidates = d->list,
                                   .n = candidates->n,
                                   .micro_batches = stage->settings->config.micro_batches *
                                                    stage->settings->config.slices,
                                   .log = stage->hooks->on_codec,
                                   .log_context = stage->hooks->context};
    if (candidates->n == 1)
        *one = d->list[0];
    else
        *several = &d->several;
}

static dw_status open_channel(dw_stage *stage, dw_neighbour *neighbour, bool listens)
{
    const dw_settings *settings = stage->settings;
    direction forward, backward;
    dw_why why = {.offset = -1};
    dw_channel_config channel = {.struct_size = sizeof channel,
                                 .id = CHANNEL_ID,
                                 .open_timeout_ms = settings->config.open_timeout_ms};
    set_direction(&forward, stage, &settings->forward, listens ? &channel.send : &channel.recv,
                  listens ? &channel.auto_send : &channel.auto_recv);
    set_direction(&backward, stage, &settings->backward, listens ? &channel.recv : &channel.send,
                  listens ? &channel.auto_recv : &channel.auto_send);
    dw_status status = dw_channel_open(&neighbour->channel, neighbour->link, &channel, &why);
    return status < 0 ? link_failed(stage, neighbour, status, why.text) : DW_OK;
}

static dw_status meet(dw_stage *stage, dw_neighbour *neighbour, dw_link_role role, json_t *greeting)
{
    const dw_train_config *config = &stage->settings->config;
    bool listens = role == DW_LINK_LISTEN;
    neighbour->rank = listens ? config->rank + 1 : config->rank - 1;
    char own_name[24], peer_name[24];
    dw_tls_options tls = {0};
    if (config->tls) tls = *config->tls;
    snprintf(own_name, sizeof own_name, "rank/%u", config->rank);
    snprintf(peer_name, sizeof peer_name, "rank/%u", neighbour->rank);
    tls.own_name = own_name;
    tls.peer_name = peer_name;
    dw_link_options options = {.struct_size = sizeof options,
                               .role = role,
                               .open_timeout_ms = config->open_timeout_ms,
                               .peer_timeout_ms = config->peer_timeout_ms,
                               .on_listening = listens ? stage->hooks->on_listening : NULL,
                               .listening_context = stage->hooks->context,
                               .transports = config->transports,
                               .contexts = config->contexts,
                               .tls = config->tls ? &tls : NULL,
                               .insecure_plaintext = config->insecure_plaintext,
                               .max_message_bytes = longest_message(config),
                               .cancelled = stage->hooks->stop};
    dw_why why = {.offset = -1};
    dw_status status =
        dw_link_open(&neighbour->link, listens ? config->listen : config->connect, &options, &why);
    if (status == DW_ERR_CANCELLED) return dw_stage_check(stage) < 0 ? status : DW_ERR_CANCELLED;
    if (status < 0)
        return dw_say(&stage->why, status, "rank %u cannot meet rank %u: %.200s", config->rank,
                      neighbour->rank, why.text);
    dw_link_handle(neighbour->link, TAG_LAST_WORDS, take_last_words, &neighbour->words);
    json_t *theirs = NULL;
    status = send_json(stage, neighbour, TAG_GREETING, greeting);
    if (status == DW_OK) status = recv_json(stage, neighbour, TAG_GREETING, &theirs);
    if (status == DW_OK)
        status = dw_settings_compare(greeting, theirs, neighbour->rank, &stage->why);
    json_decref(theirs);
    if (status < 0) return status;
    return open_channel(stage, neighbour, listens);
}

/* Called before the rank connects, so that a rank that cannot write fails without waiting for
 * others. */
static dw_status open_records(dw_stage *stage)
{
    const dw_train_config *config = &stage->settings->config;
    uint32_t T = config->context, C = config->channels, rank = config->rank;
    dw_status status = DW_OK;
    if (rank + 1 < config->stages)
        status = dw_record_create(&stage->after.record, config->record, DW_FORWARD, rank, T, C,
                                  config->samples, &stage->why);
    if (status == DW_OK && rank > 0)
        status = dw_record_create(&stage->before.record, config->record, DW_BACKWARD, rank, T, C,
                                  config->samples, &stage->why);
    return status;
}

dw_status dw_stage_open(dw_stage *stage, const dw_settings *settings, const dw_train_hooks *hooks,
                        json_t *greeting)
{
    const dw_train_config *config = &settings->config;
    memset(stage, 0, sizeof *stage);
    stage->settings = settings;
    stage->hooks = hooks;
    stage->total_parts = dw_model_parts(&settings->shape);
    dw_stage_parts(&settings->shape, config->rank, config->stages, &stage->first_part,
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
    if (status == DW_OK && config->record) status = open_records(stage);
    if (status == DW_OK && config->rank > 0)
        status = meet(stage, &stage->before, DW_LINK_CONNECT, greeting);
    if (status == DW_OK && config->rank + 1 < config->stages)
        status = meet(stage, &stage->after, DW_LINK_LISTEN, greeting);
    if (status < 0) dw_stage_close(stage, status);
    return status;
}

static void part_from(dw_stage *stage, dw_neighbour *neighbour, dw_status status)
{
    dw_record_close(neighbour->record);
    neighbour->record = NULL;
    if (!neighbour->link) return;
    if (status < 0) give_last_words(stage, neighbour, status);
    dw_channel_close(neighbour->channel);
    dw_link_close(neighbour->link);
    neighbour->channel = NULL;
    neighbour->link = NULL;
}

void dw_stage_close(dw_stage *stage, dw_status status)
{
    part_from(stage, &stage->before, status);
    part_from(stage, &stage->after, status);
    dw_threads_destroy(stage->threads);
    dw_model_destroy(stage->model);
    stage->threads = NULL;
    stage->model = NULL;
}

/* ---- Tensors --------------------------------------------------------------------------------- */

static dw_tensor view(const dw_stage *stage, float *x, uint32_t N, uint32_t slice)
{
    const dw_train_config *config = &stage->settings->config;
    uint32_t tokens = dw_slice_of(config->context, config->slices, slice).tokens;
    return dw_tensor_3d(x, DW_F32, N, tokens, config->channels);
}

dw_status dw_stage_send(dw_stage *stage, dw_neighbour *to, const uint32_t *ids, uint32_t N,
                        uint32_t slice, float *x)
{
    dw_key *keys = calloc(N, sizeof *keys);
    if (!keys)
        return dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for the keys of a micro-batch");
    for (uint32_t n = 0; n < N; n++) keys[n] = (dw_key){.sample = ids[n], .slice = slice};
    dw_tensor tensor = view(stage, x, N, slice);
    uint64_t since = dw_stage_now(), busy = dw_channel_sent(to->channel).busy_ns;
    dw_status status = dw_channel_send(to->channel, keys, &tensor);
    stage->wait_ns += dw_stage_now() - since - (dw_channel_sent(to->channel).busy_ns - busy);
    free(keys);
    if (status < 0) return link_failed(stage, to, status, dw_channel_why(to->channel));
    return to->record ? dw_record_add(to->record, stage->step, ids, N, x, &stage->why) : DW_OK;
}

dw_status dw_stage_recv(dw_stage *stage, dw_neighbour *from, const uint32_t *ids, uint32_t N,
                        uint32_t slice, float *x, bool wait)
{
    dw_key *keys = calloc(N, sizeof *keys);
    if (!keys)
        return dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for the keys of a micro-batch");
    dw_tensor tensor = view(stage, x, N, slice);
    uint64_t since = dw_stage_now(), busy = dw_channel_received(from->channel).busy_ns;
    dw_status status;
    do {
        status = dw_stage_check(stage);
        if (status < 0) break;
        status = dw_channel_recv(from->channel, wait ? LOOK_MS : 0, keys, &tensor);
        if (status < 0) status = link_failed(stage, from, status, dw_channel_why(from->channel));
    } while (status == DW_PENDING && wait);
    /* Decoding is part of receiving, but does not count as waiting. */
    stage->wait_ns += dw_stage_now() - since - (dw_channel_received(from->channel).busy_ns - busy);
    for (uint32_t n = 0; n < N && status == DW_OK; n++)
        if (keys[n].sample != ids[n] || keys[n].slice != slice)
            status = dw_say(&stage->why, DW_ERR_PROTOCOL,
                            "rank %u sent other samples or slices than this step's", from->rank);
    free(keys);
    return status;
}

dw_status dw_stage_flush(dw_stage *stage)
{
    dw_status status = dw_record_flush(stage->before.record, &stage->why);
    return status < 0 ? status : dw_record_flush(stage->after.record, &stage->why);
}

/* The kernel's counters lag a few milliseconds behind those of the library, because they count a
 * byte when it has been acknowledged. */
static void settle(dw_link *link)
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

void dw_stage_settle(dw_stage *stage)
{
    settle(stage->before.link);
    settle(stage->after.link);
}

void dw_stage_cost(dw_stage *stage, dw_train_cost *cost)
{
    uint64_t codec_ns = 0;
    memset(cost, 0, sizeof *cost);
    if (stage->before.channel)
        codec_ns += dw_channel_sent(stage->before.channel).busy_ns +
                    dw_channel_received(stage->before.channel).busy_ns;
    if (stage->after.channel) {
        dw_counters sent = dw_channel_sent(stage->after.channel);
        dw_counters received = dw_channel_received(stage->after.channel);
        dw_link_counters link = {.struct_size = sizeof link};
        dw_link_count(stage->after.link, &link);
        codec_ns += sent.busy_ns + received.busy_ns;
        cost->bytes_forward = link.bytes_sent;
        cost->bytes_backward = link.bytes_received;
        cost->kernel_forward = link.kernel_bytes_sent;
        cost->kernel_backward = link.kernel_bytes_received;
        cost->frames_forward = sent.encoded_bytes;
        cost->frames_backward = received.encoded_bytes;
        cost->raw_forward = sent.raw_bytes;
        cost->raw_backward = received.raw_bytes;
    }
    cost->compute_s = (double)stage->compute_ns * 1e-9;
    cost->codec_s = (double)codec_ns * 1e-9;
    cost->wait_s = (double)stage->wait_ns * 1e-9;
}
