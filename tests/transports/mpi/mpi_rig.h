/* SPDX-License-Identifier: Apache-2.0
 * mpi_rig.h - the two ranks of a test, and links between them. Every function fails the test on an
 * error. */
#ifndef DW_TEST_MPI_RIG_H
#define DW_TEST_MPI_RIG_H

#include <mpi.h>

#include "transports/suite/transport_suite.h"

#include "deltawire/mpi.h"

extern MPI_Comm rig_program; /* a communicator whose ranks are in another order than the world's */
extern dw_mpi *rig_mpi;      /* uses this communicator */
extern int rig_me, rig_other;
extern const char *rig_folder; /* which both ranks can access */
extern const dw_transport *rig_transports[2];
extern dw_transport_context rig_contexts[2];

dw_link_options rig_options(int rank);

/* Opens the link with this number between the two ranks. */
dw_link *rig_open(int number);
dw_link *rig_open_with(int number, const dw_link_options *options);

/* A setup for cmocka: waits until both ranks have reached the test. */
int rig_together(void **state);

/* By a file in rig_folder, one rank tells the other something without a message. */
void rig_make_file(const char *name);
void rig_wait_for_file(const char *name);

#endif
