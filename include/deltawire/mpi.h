/* SPDX-License-Identifier: Apache-2.0
 * mpi.h - links between the ranks of an MPI program: libdeltawire-mpi-openmpi,
 * libdeltawire-mpi-mpich. */
#ifndef DELTAWIRE_MPI_H
#define DELTAWIRE_MPI_H

#include "deltawire/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A place among the ranks of a communicator. Into dw_link_options go transports =
 * {dw_mpi_transport(), NULL} and transport_context = the dw_mpi; then
 *
 *     listening rank 0:  dw_link_open(&link, "mpi://1", ...)
 *     connecting rank 1: dw_link_open(&link, "mpi://0", ...)
 *
 * The number is the peer's rank in the communicator.
 *
 * "mpi://1/7" is number 7 of up to 4096 links between the same two ranks (0 where none is given).
 *
 * Threads: the links' threads call MPI beside the program's, so a program that initializes MPI
 * itself asks for MPI_THREAD_MULTIPLE. */
typedef struct dw_mpi dw_mpi;

/* Collective: every rank of the communicator calls it. communicator: address of an MPI_Comm, which
 * is duplicated and else left alone; NULL: MPI_COMM_WORLD, and MPI is initialized where nobody has
 * done so. Errors: ARGUMENT, UNSUPPORTED (threads; MPI has been finalized), NO_MEMORY, IO. */
DW_API dw_status dw_mpi_create(dw_mpi **mpi, const void *communicator, dw_why *why);

/* Collective, after all links over it were closed, by the thread that created it. Finalizes MPI
 * where create initialized it. When a peer was lost, nothing collective can be done any more: then
 * the communicator is left, MPI is not finalized, and the program should end without. The same
 * where a link over it is still open: that works on, some memory stays, and ranks that did close
 * theirs wait for this one in vain. NULL is fine. */
DW_API void dw_mpi_destroy(dw_mpi *mpi);

/* The caller's rank, and how many there are; -1 and 0 for NULL. */
DW_API int dw_mpi_rank(const dw_mpi *mpi);
DW_API int dw_mpi_size(const dw_mpi *mpi);

DW_API const dw_transport *dw_mpi_transport(void);

#ifdef __cplusplus
}
#endif
#endif
