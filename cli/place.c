/* SPDX-License-Identifier: Apache-2.0
 * place.c - from --link to a rank and its neighbours. */
#include "place.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/scope.h"
#include "complain.h"
#include "environment.h"
#include "hosts.h"
#include "rendezvous.h"
#include "rows.h"

enum { URI_BYTES = 600 };

struct dw_place {
    dw_rows rows;
    /* NULL: none is needed, for example because a transport or the user knows the neighbours. */
    dw_rendezvous *rendezvous;
    char listen[URI_BYTES], connect[URI_BYTES], replicas[URI_BYTES], host[DW_HOST_BYTES];
};

dw_status dw_place_fit(dw_train_config *config, uint32_t ranks, const char *who, dw_why *why)
{
    if (!config->replicas) config->replicas = 1;
    uint32_t stages = config->stages, replicas = config->replicas;
    if (!stages && ranks % replicas)
        return dw_say(why, DW_ERR_ARGUMENT,
                      "%s says that there are %u ranks, which cannot be divided evenly among %u "
                      "replicas",
                      who, ranks, replicas);
    if (!stages) stages = ranks / replicas;
    if ((uint64_t)stages * replicas != ranks)
        return dw_say(
            why, DW_ERR_ARGUMENT,
            "%s says that there are %u ranks, but %u replica%s of %u stage%s need %" PRIu64, who,
            ranks, replicas, replicas == 1 ? "" : "s", stages, stages == 1 ? "" : "s",
            (uint64_t)stages * replicas);
    config->stages = stages;
    return DW_OK;
}

/* The transport itself has found the rank; its addresses are ranks. */
static dw_status place_by_number(dw_place *place, const char *link, size_t shapes,
                                 const dw_transport *row, dw_train_config *config, dw_why *why)
{
    const dw_transport_place *found = dw_rows_place(&place->rows, row);
    dw_status status = dw_place_fit(config, found->ranks, "the launcher", why);
    if (status < 0) return status;
    config->rank = found->rank;
    snprintf(place->replicas, sizeof place->replicas, "%.*s%s://", (int)shapes, link, row->scheme);
    snprintf(place->listen, sizeof place->listen, "%.*s%s://%u", (int)shapes, link, row->scheme,
             config->rank + 1);
    snprintf(place->connect, sizeof place->connect, "%.*s%s://%u", (int)shapes, link, row->scheme,
             config->rank - 1);
    return DW_OK;
}

void dw_place_tell(dw_place *place, const char *uri)
{
    dw_why why = {.offset = -1};
    if (!place->rendezvous) return;
    /* Without the address the next rank cannot connect, and the run ends by its timeout. */
    if (dw_rendezvous_tell(place->rendezvous, uri, &why) < 0) dw_complain("%s", why.text);
}

/* Sets rank, stages and replicas of the config: to what the user gave, or else to what the launcher
 * says. */
static dw_status find_rank(const dw_launch *launch, const char *link, bool given,
                           dw_train_config *config, dw_why *why)
{
    if (!given) {
        if (!launch->by)
            return dw_say(
                why, DW_ERR_ARGUMENT,
                "--link %.60s needs --rank and --stages, for no launcher has set them in the "
                "environment (RANK and WORLD_SIZE, or the variables of Open MPI, PMI or Slurm)",
                link);
        config->rank = launch->rank;
        return dw_place_fit(config, launch->stages, launch->by, why);
    }
    if (!config->replicas) config->replicas = 1;
    return DW_OK; /* the trainer checks whether there is such a rank */
}

/* Finds `own`, the address on which this process listens for other ranks: the one by which the
 * machine of rank 0 can reach it. If only an own name is known (hosts.h), this process listens on
 * all addresses, and config->host becomes that name; but not where links to other machines would be
 * refused for want of a key. Where the meeting point is an own name, changes it likewise, to what
 * --host says or to all addresses. */
static dw_status find_host(dw_place *place, char meeting[URI_BYTES], const char *host,
                           dw_train_config *config, char *own, size_t cap, dw_why *why)
{
    char master[DW_HOST_BYTES], given[DW_HOST_BYTES + 2], copy[URI_BYTES];
    char *const name = place->host;
    dw_host_of(meeting, master);
    snprintf(name, sizeof place->host, "%s", host ? host : master);
    if (!*name && gethostname(name, sizeof place->host))
        return dw_say(why, DW_ERR_ADDRESS,
                      "cannot determine the name of this machine; give it as --host");
    snprintf(given, sizeof given, strchr(name, ':') && *name != '[' ? "[%s]" : "%s", name);
    if ((config->tls || config->insecure_plaintext) && dw_is_own_name(name)) {
        config->host = name;
        snprintf(own, cap, "%s", dw_all_addresses(name));
    } else if (host || !*master) {
        snprintf(own, cap, "%s", given);
    } else if (!dw_own_address(master, own, cap)) {
        return dw_say(
            why, DW_ERR_ADDRESS,
            "cannot reach '%.100s', where rank 0 is to listen: check the name and the route, or "
            "give this machine's address as --host",
            master);
    }
    if ((!host && !config->host) || !dw_is_own_name(master)) return DW_OK;
    snprintf(copy, sizeof copy, "%s", meeting);
    dw_with_host(copy, config->rank == 0 ? own : given, meeting, URI_BYTES);
    return DW_OK;
}

/* Finds the neighbours by a rendezvous. row: the transport for whose links the ranks tell each
 * other their addresses. NULL: this is tcp, and link (env:// or file://) says only where the ranks
 * meet. */
static dw_status place_by_rendezvous(dw_place *place, const char *link, size_t shapes,
                                     const dw_transport *row, const dw_launch *launch,
                                     const char *host, bool given, const volatile int *stop,
                                     dw_train_config *config, dw_why *why)
{
    char meeting[URI_BYTES], found[URI_BYTES], own[280];
    dw_status status = find_rank(launch, link, given, config, why);
    /* All ranks check this before they connect: a rank that fails later leaves the others waiting.
     */
    if (status == DW_OK) status = dw_train_check(config, why);
    uint32_t ranks = config->stages * config->replicas;
    if (status < 0 || ranks == 1) return status;
    /* The options after ? are for the links between stages, not for the rendezvous. */
    const char *query = row ? strchr(link + shapes, '?') : NULL;
    snprintf(meeting, sizeof meeting, "%.*s",
             query ? (int)(query - link - (ptrdiff_t)shapes) : URI_BYTES, link + shapes);
    if (!strncmp(meeting, "env:", 4)) {
        if (!launch->host[0])
            return dw_say(why, DW_ERR_ARGUMENT,
                          "--link env:// needs the machine of rank 0 in the environment variable "
                          "MASTER_ADDR");
        snprintf(meeting, sizeof meeting,
                 strchr(launch->host, ':') ? "tcp://[%s]:%u" : "tcp://%s:%u", launch->host,
                 launch->port);
    }
    status = find_host(place, meeting, host, config, own, sizeof own, why);
    if (status < 0) return status;
    dw_rendezvous_options options = {.uri = meeting,
                                     .rank = config->rank,
                                     .ranks = ranks,
                                     .timeout_ms =
                                         config->open_timeout_ms ? config->open_timeout_ms : 60000,
                                     .stop = stop,
                                     .tls = config->tls,
                                     .insecure_plaintext = config->insecure_plaintext};
    status = dw_rendezvous_open(&place->rendezvous, &options, why);
    if (status == DW_OK && config->rank > 0)
        status = dw_rendezvous_ask(place->rendezvous, found, sizeof found, why);
    if (status == DW_OK && config->rank > 0)
        dw_copy_with_scope(place->connect, sizeof place->connect, found, own);
    snprintf(place->listen, sizeof place->listen, "%.*s%s://%s:0%s", (int)shapes, link,
             row ? row->scheme : "tcp", own, query ? query : "");
    memcpy(place->replicas, place->listen, sizeof place->replicas);
    return status;
}

/* Finds out how the ranks find each other by this link. *row: the innermost transport, whose URI
 * begins at link + *shapes. NULL: there is none, because the innermost URI is env:// or file://,
 * which is only a way to meet. */
static dw_status look_at_link(const char *link, bool given, const dw_transport **row,
                              size_t *shapes, dw_why *why)
{
    dw_status status = dw_row_behind(row, link, shapes, why);
    if (status < 0 && status != DW_ERR_CONFIG) return status;
    if (status < 0 && dw_row_needs_launcher(link)) return DW_OK;
    if (status < 0 || (*row)->ranks == DW_RANKS_APART || (*row)->ranks == DW_RANKS_BEHIND)
        return dw_say(
            why, DW_ERR_ARGUMENT,
            "--link %.60s cannot be used without --local; ranks find each other by mpi://, env://, "
            "tcp://HOST:PORT or file:///PATH, and transports in front of these",
            link);
    if ((*row)->ranks == DW_RANKS_NUMBERED && given)
        return dw_say(why, DW_ERR_ARGUMENT,
                      "--link %s:// gets the rank from its launcher; leave out --rank",
                      (*row)->scheme);
    return DW_OK;
}

static dw_status take(dw_place *place, const char *link, const char *host, bool given,
                      const volatile int *stop, dw_train_config *config, dw_why *why)
{
    const dw_transport *row = NULL;
    size_t shapes = 0;
    dw_launch launch;
    if (dw_read_environment(&launch, why)) return DW_ERR_ARGUMENT;
    if (!link) { /* the user, or the parent, has said where the neighbours are */
        uint32_t local = launch.by ? launch.local_rank : config->rank;
        dw_status status =
            config->listen ? dw_rows_join(&place->rows, config->listen, local, why) : DW_OK;
        if (status == DW_OK && config->connect)
            status = dw_rows_join(&place->rows, config->connect, local, why);
        if (status == DW_OK && config->replica_listen)
            status = dw_rows_join(&place->rows, config->replica_listen, local, why);
        return status;
    }
    dw_status status = look_at_link(link, given, &row, &shapes, why);
    if (status == DW_OK) status = dw_rows_join(&place->rows, link, launch.local_rank, why);
    if (status < 0) return status;
    status = row && row->ranks == DW_RANKS_NUMBERED
                 ? place_by_number(place, link, shapes, row, config, why)
                 : place_by_rendezvous(place, link, shapes, row, &launch, host, given, stop, config,
                                       why);
    if (status < 0) return status;
    if (config->rank + 1 < config->stages * config->replicas) config->listen = place->listen;
    if (config->rank > 0) config->connect = place->connect;
    if (config->replicas > 1 || (config->tied && config->stages > 2))
        config->replica_listen = place->replicas;
    return DW_OK;
}

dw_status dw_place_take(dw_place **taken, const char *link, const char *host, bool given,
                        const volatile int *stop, dw_train_config *config, dw_why *why)
{
    *taken = NULL;
    dw_place *place = calloc(1, sizeof *place);
    if (!place) return dw_say(why, DW_ERR_NO_MEMORY, "out of memory");
    dw_status status = take(place, link, host, given, stop, config, why);
    if (status < 0) {
        dw_place_leave(place, false);
        return status;
    }
    config->transports = place->rows.transports;
    config->contexts = place->rows.contexts;
    *taken = place;
    return DW_OK;
}

void dw_place_leave(dw_place *place, bool ok)
{
    if (!place) return;
    dw_why strangers = {.text = ""};
    if (!ok) dw_rendezvous_stop(place->rendezvous, &strangers);
    if (strangers.text[0]) dw_complain("%s", strangers.text);
    dw_rendezvous_close(place->rendezvous);
    /* A transport whose ranks are numbered waits for all of them at its end, as MPI_Finalize does.
     * A rank that failed exits without it, and the launcher then ends the others. */
    if (ok) dw_rows_leave(&place->rows);
    free(place);
}
