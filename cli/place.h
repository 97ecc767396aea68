/* SPDX-License-Identifier: Apache-2.0
 * place.h - where this process stands among the ranks of a run, and how it reaches its neighbours,
 * where whoever started it tells so and not the user: `train --link mpi://`, env://,
 * tcp://host:port or file:///path. */
#ifndef DW_CLI_PLACE_H
#define DW_CLI_PLACE_H

#include <stdbool.h>

#include "deltawire/trainer.h"

typedef struct dw_place dw_place;

/* Takes the place that `link` means: fills in rank, stages, listen, connect and transports of the
 * config. Waits until the rank before listens, or *stop. host: the name or address of this machine
 * for the other ranks; NULL: found out. given:
 * --rank and --stages came from the user. */
dw_status dw_place_take(dw_place **place, const char *link, const char *host, bool given,
                        const volatile int *stop, dw_train_config *config, dw_why *why);
/* We listen there now: the next rank is told. */
void dw_place_tell(dw_place *place, const char *uri);
/* ok: the run came to its end. */
void dw_place_leave(dw_place *place, bool ok);

#endif
