/* SPDX-License-Identifier: Apache-2.0
 * meeting.c - the options of a link between two ranks, and their greetings. */
#include "meeting.h"

#include <stdio.h>
#include <string.h>

#include "base/sentence.h"
#include "control.h"
#include "replicas.h"

/* When both ends of a boundary are compared, at most so many bytes are listed of each key, with
 * what goes before the list. */
enum { COMPARED_BYTES = 9 };

/* The longest message that another rank may send: a control message, a frame of activations as
 * floats, which no codec exceeds, a piece of a gradient, or a list of keys. */
static uint64_t longest_message(const dw_train_config *config)
{
    dw_config largest;
    uint32_t n = config->batch / config->micro_batches;
    dw_tensor x = dw_tensor_3d(NULL, DW_F32, n, config->context, config->channels);
    dw_tensor piece = dw_tensor_3d(NULL, DW_F32, 1, DW_REPLICAS_PIECE / 2048, 2048);
    (void)dw_config_parse(&largest, "delta:key=f32", NULL);
    uint64_t longest = dw_frame_bound(&largest, &x), other = dw_frame_bound(&largest, &piece);
    if ((config->replicas > 1 || config->tied) && other > longest) longest = other;
    uint64_t keys = ((uint64_t)config->samples + config->held_out) * config->slices;
    if (keys * COMPARED_BYTES > longest) longest = keys * COMPARED_BYTES;
    return longest + DW_MOST_CONTROL_BYTES;
}

typedef struct listening {
    const dw_meeting *meeting;
    const char *host; /* of dw_train_config */
    char uri[700];    /* where this rank listens; "": not yet */
} listening;

/* Tells the other rank where this one listens, with the host in place of all addresses. */
static void note_listening(void *context, const char *uri)
{
    static const char *const all[] = {"://0.0.0.0:", "://[::]:"};
    listening *at = context;
    char told[sizeof at->uri];
    snprintf(at->uri, sizeof at->uri, "%s", uri);
    snprintf(told, sizeof told, "%s", uri);
    for (int i = 0; i < 2 && at->host; i++) {
        const char *found = strstr(uri, all[i]);
        if (found)
            snprintf(told, sizeof told, "%.*s://%s:%s", (int)(found - uri), uri, at->host,
                     found + strlen(all[i]));
    }
    if (at->meeting->on_listening) at->meeting->on_listening(at->meeting->context, told);
}

static dw_status say_not_met(dw_stage *stage, const dw_meeting *meeting, const listening *at,
                             dw_status status, const char *reason)
{
    uint32_t own = stage->settings->config.rank;
    if (!at->uri[0])
        return dw_say(&stage->why, status, "rank %u cannot meet rank %u: %.200s", own,
                      meeting->rank, reason);
    return dw_say(&stage->why, status,
                  "rank %u listened on %.100s, and cannot meet rank %u: %.200s", own, at->uri,
                  meeting->rank, reason);
}

dw_status dw_meet(dw_stage *stage, dw_neighbour *neighbour, const dw_meeting *meeting,
                  json_t *greeting)
{
    const dw_train_config *config = &stage->settings->config;
    listening at = {.meeting = meeting, .host = config->host};
    neighbour->rank = meeting->rank;
    char own_name[24], peer_name[24];
    dw_tls_options tls = {0};
    if (config->tls) tls = *config->tls;
    snprintf(own_name, sizeof own_name, "rank/%u", config->rank);
    snprintf(peer_name, sizeof peer_name, "rank/%u", neighbour->rank);
    tls.own_name = own_name;
    tls.peer_name = peer_name;
    dw_link_options options = {.struct_size = sizeof options,
                               .role =
                                   meeting->rank > config->rank ? DW_LINK_LISTEN : DW_LINK_CONNECT,
                               .open_timeout_ms = config->open_timeout_ms,
                               .peer_timeout_ms = config->peer_timeout_ms,
                               .on_listening = note_listening,
                               .listening_context = &at,
                               .transports = config->transports,
                               .contexts = config->contexts,
                               .tls = config->tls ? &tls : NULL,
                               .insecure_plaintext = config->insecure_plaintext,
                               .max_message_bytes = longest_message(config),
                               .cancelled = stage->hooks->stop};
    dw_why why = {.offset = -1};
    dw_status status = dw_link_open(&neighbour->link, meeting->uri, &options, &why);
    if (status == DW_ERR_CANCELLED) return dw_stage_check(stage) < 0 ? status : DW_ERR_CANCELLED;
    if (status < 0) return say_not_met(stage, meeting, &at, status, why.text);
    dw_control_listen(neighbour);
    json_t *theirs = NULL;
    status = dw_control_send(stage, neighbour, DW_TAG_GREETING, greeting);
    if (status == DW_OK) status = dw_control_recv(stage, neighbour, DW_TAG_GREETING, &theirs);
    if (status == DW_OK)
        status = dw_settings_compare(greeting, theirs, neighbour->rank, &stage->why);
    json_decref(theirs);
    return status;
}
