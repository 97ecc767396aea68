/* SPDX-License-Identifier: Apache-2.0
 * mpi_node.h - structs and functions shared by the files of libdeltawire-mpi: a process among the
 * ranks of a communicator, and the handshake of two of them. */
#ifndef DW_MPI_NODE_H
#define DW_MPI_NODE_H

#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>

#include "deltawire/mpi.h"

struct dw_mpi {
    /* Held during every call of MPI after dw_mpi_create. So MPI_THREAD_SERIALIZED suffices if the
     * program itself does not call MPI. */
    pthread_mutex_t lock;
    MPI_Comm comm;
    int rank, size;
    bool finalizes;
    int last_tag, next_tag; /* tags of links */
    uint64_t next_nonce;
    int ends;  /* the number of open ends */
    bool lost; /* a peer has gone without FIN, or requests of it are still open */
};

/* Tags of the communicator. The handshake uses 2 * NUMBER towards the connecting end and 2 * NUMBER
 * + 1 towards the listening end, with the number of mpi://RANK/NUMBER. Each end of a link then
 * chooses two fresh tags for what it receives. So what an earlier link left behind is never taken
 * for a message of a new one. */
enum { DW_MPI_NUMBERS = 4096, DW_MPI_FIRST_TAG = 2 * DW_MPI_NUMBERS };

/* Writes the sentence for a failed call of MPI. peer < 0: no peer was involved. */
dw_status dw_mpi_failed(dw_why *why, int code, const char *what, int peer);

/* Takes two consecutive tags; returns the first. */
int dw_mpi_take_tags(dw_mpi *node);

/* Reads "rank" or "rank/number" from how->address. */
dw_status dw_mpi_read_address(const dw_mpi *node, const dw_transport_open *how, int *peer,
                              int *number);

/* The handshake with the peer. On DW_OK the peer knows own_tag, and *peer_tag is the tag of the
 * peer. The rules of dw_transport_open about time, cancelling and errors hold. */
dw_status dw_mpi_handshake(dw_mpi *node, const dw_transport_open *how, int peer, int number,
                           int own_tag, int *peer_tag);

#endif
