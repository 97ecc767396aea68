/* SPDX-License-Identifier: Apache-2.0
 * wire_mpi.c - plain MPI and a link over it, with the same interface. */
#include "wire_mpi.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "deltawire/mpi.h"
#include "die.h"

typedef struct mpi_wire {
    int other;
    char *room;
    MPI_Request begun;
} mpi_wire;

static void mpi_send(wire *w, size_t len)
{
    const mpi_wire *end = w->context;
    MPI_Send(end->room, (int)len, MPI_BYTE, end->other, 1, MPI_COMM_WORLD);
}

static void mpi_begin(wire *w, size_t len)
{
    mpi_wire *end = w->context;
    MPI_Isend(end->room, (int)len, MPI_BYTE, end->other, 1, MPI_COMM_WORLD, &end->begun);
}

static void mpi_recv(wire *w, size_t len)
{
    const mpi_wire *end = w->context;
    MPI_Recv(end->room, (int)len, MPI_BYTE, end->other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void mpi_flush(wire *w)
{
    mpi_wire *end = w->context;
    MPI_Wait(&end->begun, MPI_STATUS_IGNORE);
}

static void mpi_close(wire *w)
{
    mpi_wire *end = w->context;
    free(end->room);
    free(end);
}

wire wire_of_mpi(const wire_mpi_ranks *ranks, size_t longest)
{
    mpi_wire *end = malloc(sizeof *end);
    if (!end) bench_die("no memory for a rank");
    *end =
        (mpi_wire){.other = 1 - ranks->me, .room = wire_room(longest), .begun = MPI_REQUEST_NULL};
    return (wire){.name = "MPI",
                  .context = end,
                  .send = mpi_send,
                  .begin = mpi_begin,
                  .recv = mpi_recv,
                  .flush = mpi_flush,
                  .close = mpi_close};
}

wire wire_of_mpi_link(const wire_mpi_ranks *ranks, int number, uint64_t queue_bytes)
{
    const dw_transport *const transports[] = {dw_mpi_transport(), NULL};
    dw_link_options options = {
        .struct_size = sizeof options,
        .max_queued_bytes = queue_bytes,
        .role = ranks->me == 0 ? DW_LINK_LISTEN : DW_LINK_CONNECT,
        .transports = transports,
        .contexts = (const dw_transport_context[]){{"mpi", ranks->mpi}, {NULL, NULL}}};
    char uri[32];
    snprintf(uri, sizeof uri, "mpi://%d/%d", 1 - ranks->me, number);
    return wire_of_link(uri, &options);
}

wire_mpi_ranks wire_mpi_begin(void)
{
    wire_mpi_ranks ranks = {.me = 0};
    dw_why why;
    if (dw_mpi_create(&ranks.mpi, NULL, &why) != DW_OK) bench_die("%s", why.text);
    int size;
    ranks.me = dw_mpi_rank(ranks.mpi, &size);
    if (size != 2) bench_die("bench_link needs two ranks: mpirun -n 2");
    return ranks;
}

void wire_mpi_end(const wire_mpi_ranks *ranks)
{
    dw_mpi_destroy(ranks->mpi);
}
