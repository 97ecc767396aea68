/* SPDX-License-Identifier: Apache-2.0
 * mpi.h - links between the ranks of an MPI program: libdeltawire-mpi-openmpi and
 * libdeltawire-mpi-mpich. */
#ifndef DELTAWIRE_MPI_H
#define DELTAWIRE_MPI_H

#include "deltawire/transport.h"
#ifdef __cplusplus
extern "C" {
#endif

/* The caller's place in a communicator. To open a link, put transports = {dw_mpi_transport(), NULL}
 * and contexts = {{"mpi", mpi}, {NULL, NULL}} into dw_link_options; the URI names the peer's rank:
 *
 *     listening rank 0:  dw_link_open(&link, "mpi://1", ...)
 *     connecting rank 1: dw_link_open(&link, "mpi://0", ...)
 *
 * Two ranks can have up to 4096 links: "mpi://1/7" is number 7, "mpi://1" number 0.
 *
 * Threads: links call MPI from threads of their own, so a program that initializes MPI itself must
 * ask for MPI_THREAD_MULTIPLE. */
typedef struct dw_mpi dw_mpi;

/* Collective: all ranks of the communicator must call it. communicator: the address of an MPI_Comm,
 * which is duplicated; NULL means MPI_COMM_WORLD, and MPI is initialized unless it already is.
 * Errors: ARGUMENT (also: MPI_COMM_NULL, or an intercommunicator), UNSUPPORTED (MPI lacks
 * MPI_THREAD_MULTIPLE, or has been finalized), NO_MEMORY, IO. */
DW_API dw_status dw_mpi_create(dw_mpi **mpi, const void *communicator, dw_why *why);

/* Collective: all ranks call it, after all their links were closed, each in the thread that called
 * dw_mpi_create. Finalizes MPI if dw_mpi_create initialized it. If a peer was lost, collective
 * calls are impossible: then the communicator is not freed, MPI is not finalized, and the program
 * should end without finalizing it. The same holds if a link is still open: it keeps working, some
 * memory is not freed, and the other ranks wait for this one in vain. After MPI_Finalize only
 * memory is freed. NULL is allowed. */
DW_API void dw_mpi_destroy(dw_mpi *mpi);

/* Opens a link to every other rank, as a group of collective.h needs them. All ranks call it.
 * links has an entry for each rank: links[r] is the link to rank r, and that of the own rank NULL.
 * number: of all these links, the same on all ranks; no open link may have it. options may be NULL;
 * their role, transports and contexts are ignored. Close the links with dw_link_close, after the
 * group. Errors: ARGUMENT, and those of dw_link_open, with a sentence that names the rank; all
 * entries are NULL then, and the other ranks get TIMEOUT, or PEER from a link that was open. */
DW_API dw_status dw_mpi_open_links(dw_mpi *mpi, uint32_t number, const dw_link_options *options,
                                   dw_link **links, dw_why *why);

/* Returns the caller's rank, and sets *ranks to the number of ranks, unless it is NULL; -1 and 0
 * where mpi is NULL. */
DW_API int dw_mpi_rank(const dw_mpi *mpi, int *ranks);

/* The backend for dw_link_options.transports. */
DW_API const dw_transport *dw_mpi_transport(void);
#ifdef __cplusplus
}
#endif
#endif
