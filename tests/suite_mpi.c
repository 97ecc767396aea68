/* SPDX-License-Identifier: Apache-2.0
 * suite_mpi.c - the backend between MPI's ranks passes the suite, each rank with itself; see test_mpi_ranks.c. */
#include "transport_suite.h"

#include "deltawire/mpi.h"

int main(void)
{
    dw_mpi *mpi;
    dw_why why;
    if (dw_mpi_create(&mpi, NULL, &why) != DW_OK) return fprintf(stderr, "%s\n", why.text);
    const dw_transport *const transports[] = {dw_mpi_transport(), NULL};
    char uri[32];
    snprintf(uri, sizeof uri, "mpi://%d/%%d", dw_mpi_rank(mpi));
    const suite_backend backend = {.name = "mpi", .uri = uri, .transports = transports, .one_process = 1,
                                   .transport_context = mpi};
    const int failed = run_transport_suite(&backend);
    dw_mpi_destroy(mpi);
    return failed;
}
