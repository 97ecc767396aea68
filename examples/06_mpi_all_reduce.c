/* SPDX-License-Identifier: Apache-2.0
 * 06_mpi_all_reduce.c - the ranks of an MPI program add their gradients, with 4 bits per value on
 * the wire: all of them, and then those of each half among themselves.
 *
 * MPI says who the ranks are and carries the bytes; which ranks form a group is up to a
 * communicator. Start it with mpirun -n 4, and link it with the library for the MPI in use,
 * deltawire-mpi-openmpi or deltawire-mpi-mpich. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deltawire/collective.h"
#include "deltawire/mpi.h"

enum { N = 100000, STEPS = 3, LINKS = 1, GROUP = 1, MOST_RANKS = 256 };

/* A group of all ranks of a communicator, and what it stands on. */
typedef struct ranks {
    dw_mpi *mpi;
    int size;
    dw_link *links[MOST_RANKS];
    dw_group *group;
} ranks;

static void give_up(const char *sentence)
{
    fprintf(stderr, "%s\n", sentence);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void join(ranks *all, MPI_Comm communicator, const char *text)
{
    dw_why why;
    dw_config codec;
    if (dw_config_parse(&codec, text, &why) != DW_OK) give_up(why.text);
    if (dw_mpi_create(&all->mpi, &communicator, &why) != DW_OK) give_up(why.text);
    int rank = dw_mpi_rank(all->mpi, &all->size);
    if (all->size > MOST_RANKS) give_up("a group has at most 256 ranks");
    if (dw_mpi_open_links(all->mpi, LINKS, NULL, all->links, &why) != DW_OK) give_up(why.text);
    dw_group_config config = {.struct_size = sizeof config,
                              .id = GROUP,
                              .rank = (uint32_t)rank,
                              .ranks = (uint32_t)all->size,
                              .links = all->links,
                              .codec = &codec};
    if (dw_group_open(&all->group, &config, &why) != DW_OK) give_up(why.text);
}

/* From the top down: the group, its links, the communicator. */
static void leave(ranks *all)
{
    dw_group_close(all->group);
    for (int r = 0; r < all->size; r++) dw_link_close(all->links[r]);
    dw_mpi_destroy(all->mpi);
}

static void average(ranks *all, float *gradient)
{
    dw_group_job job = {.struct_size = sizeof job,
                        .operation = DW_ALL_REDUCE,
                        .n = N,
                        .x = gradient,
                        .y = gradient,
                        .mean = 1};
    if (dw_group_run(all->group, &job, -1) != DW_OK) give_up(dw_group_why(all->group, NULL));
}

/* Whether all ranks of a communicator hold the same bits, by MPI itself. */
static int is_everywhere_the_same(MPI_Comm communicator, const float *gradient)
{
    static float first[N];
    memcpy(first, gradient, sizeof first);
    MPI_Bcast(first, sizeof first, MPI_BYTE, 0, communicator);
    int same = memcmp(first, gradient, sizeof first) == 0, all = 0;
    MPI_Allreduce(&same, &all, 1, MPI_INT, MPI_MIN, communicator);
    return all;
}

int main(int argc, char **argv)
{
    static float gradient[N];
    static ranks world, half;
    int level, rank, size;
    /* The threads of links call MPI beside the program. */
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm halves;
    MPI_Comm_split(MPI_COMM_WORLD, rank < size / 2, rank, &halves);
    join(&world, MPI_COMM_WORLD, "direct:bits=4");
    join(&half, halves, "raw:f32");
    int same = 1;
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < N; i++) gradient[i] = sinf((float)(i + step) * 0.37f + (float)rank);
        average(&half, gradient);
        same &= is_everywhere_the_same(halves, gradient);
        average(&world, gradient);
        same &= is_everywhere_the_same(MPI_COMM_WORLD, gradient);
    }
    if (rank == 0) printf("%s\n", same ? "all ranks have the same bits" : "the ranks differ");
    leave(&half);
    leave(&world);
    MPI_Comm_free(&halves);
    MPI_Finalize();
    return !same;
}
