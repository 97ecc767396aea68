/* SPDX-License-Identifier: Apache-2.0
 * place.c - from --link to a rank and its neighbours. */
#include "place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "complain.h"
#include "environment.h"
#include "link_text.h"
#include "ranks.h"
#include "rendezvous.h"

enum { URI_BYTES = 600 };

struct dw_place {
    dw_ranks *ranks;           /* of mpi:// */
    dw_rendezvous *rendezvous; /* of all others */
    char listen[URI_BYTES], connect[URI_BYTES];
};

static dw_status place_by_mpi(dw_place *place, const char *link, size_t shapes,
                              dw_train_config *config, dw_why *why)
{
    dw_status status = dw_ranks_open(&place->ranks, &config->rank, &config->stages, why);
    if (status < 0) return status;
    config->transports = dw_ranks_transports(place->ranks);
    config->contexts = dw_ranks_contexts(place->ranks);
    snprintf(place->listen, sizeof place->listen, "%.*smpi://%u", (int)shapes, link,
             config->rank + 1);
    snprintf(place->connect, sizeof place->connect, "%.*smpi://%u", (int)shapes, link,
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

/* Sets rank and stages: those of the user if given, else those of the launcher. */
static dw_status find_rank(const dw_launch *launch, const char *link, bool given,
                           dw_train_config *config, dw_why *why)
{
    if (!given) {
        if (!launch->by)
            return dw_fail(
                why, DW_ERR_ARGUMENT,
                "--link %.60s needs --rank and --stages, for no launcher has set them in the "
                "environment (RANK and WORLD_SIZE, or the variables of Open MPI, PMI or Slurm)",
                link);
        config->rank = launch->rank;
        config->stages = launch->stages;
    }
    if (config->rank < config->stages) return DW_OK;
    return dw_fail(why, DW_ERR_ARGUMENT,
                   "there is no rank %u among %u stages; ranks are counted from 0", config->rank,
                   config->stages);
}

/* Finds the address on which this process listens for the next rank: the one by which the machine
 * of rank 0 can reach it. */
static dw_status find_host(const char *meeting, const char *host, char *text, size_t cap,
                           dw_why *why)
{
    char master[256] = "";
    if (host) {
        snprintf(text, cap, strchr(host, ':') && *host != '[' ? "[%s]" : "%s", host);
        return DW_OK;
    }
    if (!strncmp(meeting, "tcp://", 6)) {
        const char *begin = meeting + 6, *colon = strrchr(begin, ':');
        if (*begin == '[') begin++;
        if (colon)
            snprintf(master, sizeof master, "%.*s",
                     (int)strcspn(begin, begin == meeting + 7 ? "]" : ":"), begin);
        if (dw_own_address(master, text, cap)) return DW_OK;
        return dw_fail(
            why, DW_ERR_ADDRESS,
            "cannot reach '%.100s', where rank 0 is to listen: check the name and the route, or "
            "give this machine's address as --host",
            master);
    }
    if (gethostname(text, cap) == 0) return DW_OK;
    return dw_fail(why, DW_ERR_ADDRESS,
                   "cannot determine the name of this machine; give it as --host");
}

static dw_status place_by_rendezvous(dw_place *place, const char *link, size_t shapes,
                                     const char *host, bool given, const volatile int *stop,
                                     dw_train_config *config, dw_why *why)
{
    dw_launch launch;
    char meeting[URI_BYTES], own[280];
    if (dw_read_environment(&launch, why)) return DW_ERR_ARGUMENT;
    dw_status status = find_rank(&launch, link, given, config, why);
    /* All ranks check this before they connect: a rank that fails later leaves the others waiting.
     */
    if (status == DW_OK) status = dw_train_check(config, why);
    if (status < 0 || config->stages == 1) return status;
    /* The options after ? are for the links between stages, not for the rendezvous. */
    const char *query = strncmp(link + shapes, "tcp:", 4) ? NULL : strchr(link + shapes, '?');
    snprintf(meeting, sizeof meeting, "%.*s",
             query ? (int)(query - link - (ptrdiff_t)shapes) : URI_BYTES, link + shapes);
    if (!strncmp(meeting, "env:", 4)) {
        if (!launch.host[0])
            return dw_fail(why, DW_ERR_ARGUMENT,
                           "--link env:// needs the machine of rank 0 in the environment variable "
                           "MASTER_ADDR");
        snprintf(meeting, sizeof meeting,
                 strchr(launch.host, ':') ? "tcp://[%s]:%u" : "tcp://%s:%u", launch.host,
                 launch.port);
    }
    status = find_host(meeting, host, own, sizeof own, why);
    if (status < 0) return status;
    dw_rendezvous_options options = {.uri = meeting,
                                     .rank = config->rank,
                                     .stages = config->stages,
                                     .timeout_ms =
                                         config->open_timeout_ms ? config->open_timeout_ms : 60000,
                                     .stop = stop,
                                     .tls = config->tls,
                                     .insecure_plaintext = config->insecure_plaintext};
    status = dw_rendezvous_open(&place->rendezvous, &options, why);
    if (status == DW_OK && config->rank > 0)
        status = dw_rendezvous_ask(place->rendezvous, place->connect, sizeof place->connect, why);
    snprintf(place->listen, sizeof place->listen, "%.*stcp://%s:0%s", (int)shapes, link, own,
             query ? query : "");
    return status;
}

dw_status dw_place_take(dw_place **taken, const char *link, const char *host, bool given,
                        const volatile int *stop, dw_train_config *config, dw_why *why)
{
    const char *inner = dw_link_text_inner(link);
    size_t shapes = (size_t)(inner - link);
    bool by_mpi = dw_link_text_is(link, "mpi");
    *taken = NULL;
    if (!by_mpi && !dw_link_text_is(link, "env") && !dw_link_text_is(link, "tcp") &&
        !dw_link_text_is(link, "file"))
        return dw_fail(
            why, DW_ERR_ARGUMENT,
            "--link %.60s cannot be used without --local; ranks find each other by mpi://, env://, "
            "tcp://HOST:PORT or file:///PATH",
            link);
    if (by_mpi && given)
        return dw_fail(
            why, DW_ERR_ARGUMENT,
            "--link mpi:// gets rank and stages from MPI; leave out --rank and --stages");
    dw_place *place = calloc(1, sizeof *place);
    if (!place) return dw_fail(why, DW_ERR_NO_MEMORY, "out of memory");
    dw_status status =
        by_mpi ? place_by_mpi(place, link, shapes, config, why)
               : place_by_rendezvous(place, link, shapes, host, given, stop, config, why);
    if (status < 0) {
        dw_place_leave(place, false);
        return status;
    }
    if (config->rank + 1 < config->stages) config->listen = place->listen;
    if (config->rank > 0) config->connect = place->connect;
    *taken = place;
    return DW_OK;
}

void dw_place_leave(dw_place *place, bool ok)
{
    if (!place) return;
    dw_rendezvous_close(place->rendezvous);
    /* MPI_Finalize waits for all ranks. A rank that failed exits without it, and the launcher then
     * ends the others. */
    if (ok) dw_ranks_close(place->ranks);
    free(place);
}
