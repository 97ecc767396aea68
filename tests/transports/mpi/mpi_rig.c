/* SPDX-License-Identifier: Apache-2.0
 * mpi_rig.c - the two ranks of a test, and links between them. */
#include "mpi_rig.h"

#include <unistd.h>

MPI_Comm rig_program;
dw_mpi *rig_mpi;
int rig_me, rig_other;
const char *rig_folder;
const dw_transport *rig_transports[2];
dw_transport_context rig_contexts[2];

dw_link_options rig_options(int rank)
{
    return (dw_link_options){.struct_size = sizeof(dw_link_options),
                             .role = rank == 0 ? DW_LINK_LISTEN : DW_LINK_CONNECT,
                             .open_timeout_ms = 30000,
                             .transports = rig_transports,
                             .contexts = rig_contexts};
}

dw_link *rig_open_with(int number, const dw_link_options *options)
{
    char uri[32];
    dw_why why;
    dw_link *link = NULL;
    snprintf(uri, sizeof uri, "mpi://%d/%d", rig_other, number);
    if (dw_link_open(&link, uri, options, &why) != DW_OK) fail_msg("%s", why.text);
    return link;
}

dw_link *rig_open(int number)
{
    const dw_link_options options = rig_options(rig_me);
    return rig_open_with(number, &options);
}

int rig_together(void **state)
{
    (void)state;
    return MPI_Barrier(rig_program) != MPI_SUCCESS;
}

void rig_wait_for_file(const char *name)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", rig_folder, name);
    int64_t end = suite_now_ns() + (int64_t)SUITE_PATIENCE_MS * 1000000;
    while (access(path, F_OK) != 0 && suite_now_ns() < end) suite_sleep_ms(1);
    assert_int_equal(access(path, F_OK), 0);
}

void rig_make_file(const char *name)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", rig_folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
}
