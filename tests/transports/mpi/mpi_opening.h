/* SPDX-License-Identifier: Apache-2.0
 * mpi_opening.h - how two ranks open a link, and what they must be told if they cannot. */
#ifndef DW_TEST_MPI_OPENING_H
#define DW_TEST_MPI_OPENING_H

/* Is called by both ranks. Returns the number of failed tests. */
int run_mpi_opening(void);

#endif
