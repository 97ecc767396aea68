/* SPDX-License-Identifier: Apache-2.0
 * control.c - control messages between two ranks and among all ranks, and the reasons why ranks
 * stop; every wait can be stopped. */
#include "control.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/sentence.h"
#include "replicas.h"

/* How long to wait for the last message of a rank that has ended. */
enum { LAST_WORDS_LOOKS = 50, LAST_WORDS_LOOK_MS = 10 };

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

void dw_control_listen(dw_neighbour *to)
{
    dw_link_handle(to->link, DW_TAG_LAST_WORDS, take_last_words, &to->words);
}

void dw_control_part(dw_stage *stage, dw_neighbour *to, dw_status status)
{
    if (!to->link || __atomic_load_n(&to->words.arrived, __ATOMIC_ACQUIRE)) return;
    json_t *message = json_pack("{s:i, s:s}", "status", (int)status, "why", stage->why.text);
    char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;
    if (text)
        dw_link_send(to->link, DW_TAG_LAST_WORDS, text, strlen(text)); /* the link may be broken */
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
    if (status == DW_OK) status = hear(stage, &stage->after);
    for (uint32_t d = 0; d < dw_replicas_peers(stage) && status == DW_OK; d++) {
        dw_neighbour *peer = dw_replicas_at(stage, d);
        if (peer) status = hear(stage, peer);
    }
    return status;
}

dw_status dw_control_await_words(dw_stage *stage)
{
    dw_status stopped = dw_stage_check(stage);
    for (int looks = 0; looks < LAST_WORDS_LOOKS && stopped == DW_OK; looks++) {
        struct timespec nap = {.tv_nsec = 1000000 * LAST_WORDS_LOOK_MS};
        nanosleep(&nap, NULL);
        stopped = dw_stage_check(stage);
    }
    return stopped;
}

dw_status dw_control_lost(dw_stage *stage, dw_neighbour *neighbour, dw_status status,
                          const char *sentence)
{
    dw_status stopped = dw_control_await_words(stage);
    if (stopped < 0) return stopped;
    const char *reason = sentence && *sentence ? sentence : dw_link_why(neighbour->link);
    if (status == DW_ERR_IO && !*dw_link_why(neighbour->link)) /* of the file of --state */
        return dw_say(&stage->why, status,
                      "rank %u stops: %s (by starting all ranks again with --resume, if there is a "
                      "checkpoint)",
                      stage->settings->config.rank, reason);
    return dw_say(&stage->why, status, "rank %u lost rank %u: %s", stage->settings->config.rank,
                  neighbour->rank, *reason ? reason : dw_status_string(status));
}

/* ---- Control messages ------------------------------------------------------------------------ */

dw_status dw_control_send(dw_stage *stage, dw_neighbour *to, uint32_t tag, json_t *value)
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
        dw_link_wait_room(to->link, length, DW_LOOK_MS);
    }
    free(text);
    return status < 0 ? dw_control_lost(stage, to, status, NULL) : DW_OK;
}

dw_status dw_control_recv(dw_stage *stage, dw_neighbour *from, uint32_t tag, json_t **value)
{
    void *data;
    size_t len;
    uint64_t since = dw_now_ns();
    dw_status status = DW_PENDING;
    while (status == DW_PENDING) {
        dw_status stopped = dw_stage_check(stage);
        if (stopped < 0) return stopped;
        status = dw_link_recv(from->link, tag, DW_LOOK_MS, &data, &len);
    }
    stage->wait_ns += dw_now_ns() - since;
    if (status < 0) return dw_control_lost(stage, from, status, NULL);
    if (len > DW_MOST_CONTROL_BYTES) {
        dw_link_release(from->link, data);
        return dw_say(&stage->why, DW_ERR_PROTOCOL,
                      "rank %u sent a control message of %zu bytes; at most %d are taken",
                      from->rank, len, DW_MOST_CONTROL_BYTES);
    }
    *value = json_loadb(data, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
    dw_link_release(from->link, data);
    if (*value) return DW_OK;
    return dw_say(&stage->why, DW_ERR_PROTOCOL, "rank %u sent a control message that is no JSON",
                  from->rank);
}

/* ---- Along a row of ranks -------------------------------------------------------------------- */

/* The place of this rank in a row of ranks with consecutive numbers, along which values are passed
 * on: the ranks of its replica, or all ranks. */
typedef struct way {
    dw_neighbour *before, *after; /* NULL: this rank is the first one; is the last one */
    uint32_t behind;              /* the number of ranks after this one */
} way;

static way along_replica(dw_stage *stage)
{
    const dw_settings *settings = stage->settings;
    uint32_t behind = settings->config.stages - settings->stage - 1;
    return (way){settings->stage ? &stage->before : NULL, behind ? &stage->after : NULL, behind};
}

static way along_all(dw_stage *stage)
{
    const dw_settings *settings = stage->settings;
    uint32_t behind = settings->ranks - settings->config.rank - 1;
    return (way){settings->config.rank ? &stage->before : NULL, behind ? &stage->after : NULL,
                 behind};
}

/* Sets *all at the first rank of the row to an array with the values of all its ranks, and to NULL
 * at the others. Takes ownership of `own`. */
static dw_status gather(dw_stage *stage, way along, json_t *own, json_t **all)
{
    *all = NULL;
    if (!own) return dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for a control message");
    json_t *list = NULL;
    dw_status status = DW_OK;
    if (along.after)
        status = dw_control_recv(stage, along.after, DW_TAG_CONTROL, &list);
    else
        list = json_array();
    if (status == DW_OK && (!json_is_array(list) || json_array_size(list) != along.behind))
        status =
            dw_say(&stage->why, DW_ERR_PROTOCOL, "rank %u sent a control message of another shape",
                   stage->settings->config.rank + 1);
    if (status == DW_OK && json_array_insert(list, 0, own))
        status = dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for a control message");
    if (status == DW_OK && along.before)
        status = dw_control_send(stage, along.before, DW_TAG_CONTROL, list);
    json_decref(own);
    if (status == DW_OK && !along.before)
        *all = list;
    else
        json_decref(list);
    return status;
}

/* Sets *value at all ranks of the row to the value `own` of its first rank, and takes ownership of
 * it. */
static dw_status spread(dw_stage *stage, way along, json_t *own, json_t **value)
{
    dw_status status = DW_OK;
    *value = own;
    if (along.before)
        status = dw_control_recv(stage, along.before, DW_TAG_CONTROL, value);
    else if (!own)
        status = dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for a control message");
    if (status == DW_OK && along.after)
        status = dw_control_send(stage, along.after, DW_TAG_CONTROL, *value);
    if (status == DW_OK) return DW_OK;
    json_decref(*value);
    *value = NULL;
    return status;
}

dw_status dw_stage_gather_replica(dw_stage *stage, json_t *own, json_t **all)
{
    return gather(stage, along_replica(stage), own, all);
}

dw_status dw_stage_spread_replica(dw_stage *stage, json_t *own, json_t **value)
{
    return spread(stage, along_replica(stage), own, value);
}

dw_status dw_control_assemble(dw_stage *stage)
{
    json_t *all, *value;
    dw_status status = gather(stage, along_all(stage), json_true(), &all);
    if (status == DW_OK) status = spread(stage, along_all(stage), all, &value);
    if (status == DW_OK) json_decref(value);
    return status;
}

/* ---- The grid -------------------------------------------------------------------------------- */

dw_status dw_stage_join(dw_stage *stage, json_t *list, json_t **all)
{
    const dw_settings *settings = stage->settings;
    dw_status status = DW_OK;
    *all = NULL;
    if (settings->stage) return DW_OK;
    if (settings->replica) {
        status = dw_control_send(stage, dw_replicas_at(stage, 0), DW_TAG_CONTROL, list);
        json_decref(list);
        return status;
    }
    for (uint32_t d = 1; d < settings->config.replicas && status == DW_OK; d++) {
        dw_neighbour *peer = dw_replicas_at(stage, d);
        json_t *theirs = NULL;
        status = dw_control_recv(stage, peer, DW_TAG_CONTROL, &theirs);
        if (status == DW_OK &&
            (!json_is_array(theirs) || json_array_size(theirs) != settings->config.stages))
            status = dw_say(&stage->why, DW_ERR_PROTOCOL,
                            "rank %u sent a control message of another shape", peer->rank);
        if (status == DW_OK && json_array_extend(list, theirs))
            status = dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for a control message");
        json_decref(theirs);
    }
    if (status == DW_OK)
        *all = list;
    else
        json_decref(list);
    return status;
}

dw_status dw_stage_gather(dw_stage *stage, json_t *own, json_t **all)
{
    json_t *list;
    dw_status status = dw_stage_gather_replica(stage, own, &list);
    *all = NULL;
    return status < 0 ? status : dw_stage_join(stage, list, all);
}

dw_status dw_stage_spread(dw_stage *stage, json_t *own, json_t **value)
{
    const dw_settings *settings = stage->settings;
    dw_status status = DW_OK;
    *value = NULL;
    if (settings->stage == 0 && settings->replica > 0)
        status = dw_control_recv(stage, dw_replicas_at(stage, 0), DW_TAG_CONTROL, &own);
    for (uint32_t d = 1; own && settings->config.rank == 0 && d < settings->config.replicas; d++)
        if (status == DW_OK)
            status = dw_control_send(stage, dw_replicas_at(stage, d), DW_TAG_CONTROL, own);
    if (status == DW_OK) return dw_stage_spread_replica(stage, own, value);
    json_decref(own);
    return status;
}
