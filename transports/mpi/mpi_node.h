/* SPDX-License-Identifier: Apache-2.0
 * mpi_node.h - what the files of libdeltawire-mpi share: a place among the ranks, and meeting
 * another. */
#ifndef DW_MPI_NODE_H
#define DW_MPI_NODE_H

#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>

#include "deltawire/mpi.h"

struct dw_mpi {
    /* Around every call of MPI after create: so MPI_THREAD_SERIALIZED is enough for links alone. */
    pthread_mutex_t lock;
    MPI_Comm comm;
    int rank, size;
    bool finalizes;
    int last_tag, next_tag; /* of sessions */
    uint64_t next_nonce;
    int ends;  /* of links, open now */
    bool lost; /* a peer went without a goodbye, or something of it is still under way */
};

/* Tags of the communicator. Meeting: twice a link's number, + 1 from the connecting side. A link
 * then has two of its own at either end, the receiver's choice, for what comes to it: so what an
 * earlier link left behind is never taken for a message of this one. */
enum { DW_MPI_NUMBERS = 4096, DW_MPI_FIRST_TAG = 2 * DW_MPI_NUMBERS };

/* The sentence for a call of MPI that failed. */
dw_status dw_mpi_failed(dw_why *why, int code, const char *what, int peer);

/* Takes two neighbouring tags. */
int dw_mpi_take_tags(dw_mpi *node);

/* "rank" or "rank/number" of how->address. */
dw_status dw_mpi_read_address(const dw_mpi *node, const dw_transport_open *how, int *peer,
                              int *number);

/* Meets the peer: on DW_OK it knows own_tag and we know *peer_tag. Everything about
 * dw_transport_open holds. */
dw_status dw_mpi_meet(dw_mpi *node, const dw_transport_open *how, int peer, int number, int own_tag,
                      int *peer_tag);

#endif
