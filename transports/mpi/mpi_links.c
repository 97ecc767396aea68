/* SPDX-License-Identifier: Apache-2.0
 * mpi_links.c - links to all other ranks of a communicator at once, as groups need them. */
#include "mpi/mpi_node.h"

#include <stdio.h>

#include "base/uncancelled.h"
#include "common/opening.h"
#include "common/report.h"

static dw_status open_one(dw_mpi *mpi, uint32_t number, const dw_link_options *given, int r,
                          dw_link **link, dw_why *why)
{
    const dw_transport *const transports[] = {dw_mpi_transport(), NULL};
    const dw_transport_context contexts[] = {{"mpi", mpi}, {NULL, NULL}};
    dw_link_options options = *given;
    options.role = mpi->rank < r ? DW_LINK_LISTEN : DW_LINK_CONNECT;
    options.transports = transports;
    options.contexts = contexts;
    char uri[32];
    snprintf(uri, sizeof uri, "mpi://%d/%u", r, (unsigned)number);
    dw_why cause;
    dw_status status = dw_link_open(link, uri, &options, &cause);
    if (status == DW_OK) return DW_OK;
    return dw_say(why, status, "link number %u to rank %d: %.180s", (unsigned)number, r,
                  cause.text);
}

dw_status dw_mpi_open_links(dw_mpi *mpi, uint32_t number, const dw_link_options *given,
                            dw_link **links, dw_why *why)
{
    DW_UNCANCELLED;
    dw_link_options options = {.struct_size = sizeof options};
    if (!mpi || !links)
        return dw_say(why, DW_ERR_ARGUMENT, "dw_mpi_open_links: mpi and links must not be NULL");
    for (int r = 0; r < mpi->size; r++) links[r] = NULL;
    if (number >= DW_MPI_NUMBERS)
        return dw_say(why, DW_ERR_ARGUMENT,
                      "%u is not a number of links; use 0 to %d, the same on all ranks",
                      (unsigned)number, DW_MPI_NUMBERS - 1);
    dw_status status = DW_OK;
    if (given) status = dw_take_asked(&options, sizeof options, given, "dw_link_options", why);
    options.struct_size = sizeof options;
    /* All ranks open them in the order of the ranks, so nobody waits in a circle. */
    for (int r = 0; r < mpi->size && status == DW_OK; r++)
        if (r != mpi->rank) status = open_one(mpi, number, &options, r, &links[r], why);
    if (status == DW_OK) return DW_OK;
    for (int r = 0; r < mpi->size; r++) {
        dw_link_close(links[r]);
        links[r] = NULL;
    }
    return status;
}
