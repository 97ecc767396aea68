/* SPDX-License-Identifier: Apache-2.0
 * adder.h - what bench_group measures: something that adds buffers over all ranks. */
#ifndef DW_BENCH_ADDER_H
#define DW_BENCH_ADDER_H

#include <stddef.h>

/* What the command line says of the ranks. MPI knows rank and ranks by itself.
 *
 * | name      | shape   | meaning                                                        |
 * | rank      |         | this rank, 0..ranks-1                                          |
 * | ranks     |         | the number of ranks                                            |
 * | addresses |         | IP addresses of the ranks, separated by commas                 |
 * | port      |         | ranks a < b are joined at the port  port + a * ranks + b  of a |
 * | codec     |         | config text of the group's codec                               |
 * | hops      |         | of the group's all-reduce, 1 or 2                              |
 * | verify    |         | of the group                                                   | */
typedef struct adder_place {
    unsigned rank, ranks, port;
    const char *addresses, *codec;
    unsigned hops, verify;
} adder_place;

typedef struct adder {
    void *context;
    unsigned rank, ranks;
    /* y = the sum of all ranks' x, n floats each. Returns when y is complete. */
    void (*add)(struct adder *a, const float *x, float *y, size_t n);
    /* Seconds that this rank has spent coding, and waiting for sums. NULL: unknown. */
    void (*spent)(struct adder *a, double *coding, double *waiting);
    void (*close)(struct adder *a);
} adder;

/* Joins the other ranks. adder_group.c: a dw_group over tcp; adder_mpi.c: MPI_Allreduce. */
adder adder_open(const adder_place *place);

#endif
