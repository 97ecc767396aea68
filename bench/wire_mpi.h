/* SPDX-License-Identifier: Apache-2.0
 * wire_mpi.h - the two ranks of mpirun: MPI_Send and MPI_Recv, and a link over MPI. */
#ifndef DW_BENCH_WIRE_MPI_H
#define DW_BENCH_WIRE_MPI_H

#include "wire.h"

typedef struct wire_mpi_ranks {
    int me;
    struct dw_mpi *mpi;
} wire_mpi_ranks;

wire_mpi_ranks wire_mpi_begin(void);
void wire_mpi_end(const wire_mpi_ranks *ranks);

wire wire_of_mpi(const wire_mpi_ranks *ranks, size_t longest);
wire wire_of_mpi_link(const wire_mpi_ranks *ranks, int number, uint64_t queue_bytes);

#endif
