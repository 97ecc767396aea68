/* SPDX-License-Identifier: Apache-2.0
 * suite_mpi.c - the backend mpi passes the suite, with links of each rank to itself, with and
 * without shaped in front. test_mpi_ranks.c has links between two ranks. */
#include "transports/suite/transport_suite.h"

#include "deltawire/mpi.h"

int main(void)
{
    dw_mpi *mpi;
    dw_why why;
    if (dw_mpi_create(&mpi, NULL, &why) != DW_OK) return fprintf(stderr, "%s\n", why.text);
    const dw_transport *const transports[] = {dw_mpi_transport(), NULL};
    char uri[32], shaped_uri[64];
    snprintf(uri, sizeof uri, "mpi://%d/%%d", dw_mpi_rank(mpi, NULL));
    snprintf(shaped_uri, sizeof shaped_uri, "shaped:rate=8gbit,delay=1ms/%s", uri);
    const suite_backend bare = {.name = "mpi",
                                .uri = uri,
                                .transports = transports,
                                .one_process = 1,
                                .contexts =
                                    (const dw_transport_context[]){{"mpi", mpi}, {NULL, NULL}}};
    suite_backend shaped = bare; /* shaped does not keep sent messages for MPI */
    shaped.name = "shaped over mpi";
    shaped.uri = shaped_uri;
    int failed = run_transport_suite(&bare) + run_transport_suite(&shaped);
    dw_mpi_destroy(mpi);
    return failed;
}
