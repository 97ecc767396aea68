/* SPDX-License-Identifier: Apache-2.0
 * place.h - where this process stands among the ranks of a run, and how it reaches its neighbours,
 * where whoever started it tells so and not the user: `train --link mpi://`, env://,
 * tcp://host:port or file:///path. */
#ifndef DW_CLI_PLACE_H
#define DW_CLI_PLACE_H

#include "deltawire/trainer.h"
#include "deltawire/transport.h"

/* ---- What launchers tell by the environment (environment.c)
 * ---------------------------------------------------- */

typedef struct dw_launch {
    const char *by; /* whose variables these are; NULL: no launcher's that we know */
    uint32_t rank, stages;
    char host[256]; /* of rank 0; "": not told */
    uint32_t port;
} dw_launch;

/* 0, or -1 where a variable makes no sense: *why says which. */
int dw_read_environment(dw_launch *launch, dw_why *why);

/* ---- Ranks that tell each other where they listen (rendezvous.c)
 * ------------------------------------------------ */

typedef struct dw_rendezvous dw_rendezvous;

typedef struct dw_rendezvous_options {
    const char *uri; /* tcp://host:port: rank 0 waits there; file:///path: all see the files path.0,
                        path.1, ... */
    uint32_t rank, stages;
    uint32_t timeout_ms;
    const volatile int *stop;
    const dw_tls_options *tls; /* names are put in: rank/0, rank/1, ... */
    int insecure_plaintext;
} dw_rendezvous_options;

dw_status dw_rendezvous_open(dw_rendezvous **rendezvous, const dw_rendezvous_options *options,
                             dw_why *why);
/* The address of rank - 1; waits until that is known. */
dw_status dw_rendezvous_ask(dw_rendezvous *rendezvous, char *uri, size_t cap, dw_why *why);
/* Our own, for rank + 1. */
dw_status dw_rendezvous_tell(dw_rendezvous *rendezvous, const char *uri, dw_why *why);
void dw_rendezvous_close(dw_rendezvous *rendezvous);

/* The address by which this machine reaches the host, and so by which that reaches this one. 0: it
 * has none. */
int dw_own_address(const char *host, char *text, size_t cap);

/* ---- MPI (ranks.c)
 * ---------------------------------------------------------------------------------------------- */

typedef struct dw_ranks dw_ranks;

/* Loads libdeltawire-mpi for the MPI that started us. */
dw_status dw_ranks_open(dw_ranks **ranks, uint32_t *rank, uint32_t *stages, dw_why *why);
const dw_transport *const *dw_ranks_transports(const dw_ranks *ranks);
void *dw_ranks_context(const dw_ranks *ranks);
void dw_ranks_close(dw_ranks *ranks);

/* ---- All of it (place.c)
 * ---------------------------------------------------------------------------------------- */

typedef struct dw_place dw_place;

/* Takes the place that `link` means: fills in rank, stages, listen, connect and transports of the
 * config. Waits until the rank before listens, or *stop. host: the name or address of this machine
 * for the other ranks; NULL: found out. given:
 * --rank and --stages came from the user. */
dw_status dw_place_take(dw_place **place, const char *link, const char *host, int given,
                        const volatile int *stop, dw_train_config *config, dw_why *why);
/* We listen there now: the next rank is told. */
void dw_place_tell(dw_place *place, const char *uri);
/* ok: the run came to its end. */
void dw_place_leave(dw_place *place, int ok);

#endif
