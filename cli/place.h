/* SPDX-License-Identifier: Apache-2.0
 * place.h - the rank of this process and the addresses of its neighbours, where a launcher and not
 * the user knows them: `train --link mpi://`, env://, tcp://host:port or file:///path; and what the
 * transports of its URIs need. */
#ifndef DW_CLI_PLACE_H
#define DW_CLI_PLACE_H

#include <stdbool.h>

#include "deltawire/trainer.h"

typedef struct dw_place dw_place;

/* Finds the rank of this process and its neighbours as `link` says, and fills in rank, stages,
 * replicas, listen, connect, replica_listen, transports and contexts of the config. link NULL: the
 * config has its place already, and only transports and contexts are filled in. Waits until the
 * previous rank listens, or until *stop is set. host: the name or address of this machine for the
 * other ranks; NULL: it is determined. given: the user gave --rank. */
dw_status dw_place_take(dw_place **place, const char *link, const char *host, bool given,
                        const volatile int *stop, dw_train_config *config, dw_why *why);
/* Reports to the next rank that this one listens on uri. */
void dw_place_tell(dw_place *place, const char *uri);
/* Checks that `ranks` is the product of config->stages and config->replicas. Replaces a 0 first: by
 * one replica, and by ranks / replicas stages. who: who has said how many ranks there are, for the
 * error sentence. Errors: ARGUMENT. */
dw_status dw_place_fit(dw_train_config *config, uint32_t ranks, const char *who, dw_why *why);
/* ok: the run succeeded. */
void dw_place_leave(dw_place *place, bool ok);

#endif
