/* SPDX-License-Identifier: Apache-2.0
 * ranks.h - the ranks of the MPI that started this program. */
#ifndef DW_CLI_RANKS_H
#define DW_CLI_RANKS_H

#include "deltawire/transport.h"

typedef struct dw_ranks dw_ranks;

/* Loads libdeltawire-mpi for the MPI that started us. */
dw_status dw_ranks_open(dw_ranks **ranks, uint32_t *rank, uint32_t *stages, dw_why *why);
const dw_transport *const *dw_ranks_transports(const dw_ranks *ranks);
const dw_transport_context *dw_ranks_contexts(const dw_ranks *ranks);
void dw_ranks_close(dw_ranks *ranks);

#endif
