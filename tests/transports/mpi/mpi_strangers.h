/* SPDX-License-Identifier: Apache-2.0
 * mpi_strangers.h - rank 1 calls MPI directly to send invalid messages to a link of rank 0. */
#ifndef DW_TEST_MPI_STRANGERS_H
#define DW_TEST_MPI_STRANGERS_H

#include <mpi.h>

/* Is called by both ranks of the communicator. Returns the number of failed tests; tests can only
 * fail at rank 0. */
int run_mpi_strangers(const MPI_Comm *program);

#endif
