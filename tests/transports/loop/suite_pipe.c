/* SPDX-License-Identifier: Apache-2.0
 * suite_pipe.c - the example of docs/transports.md passes the suite. */
#include "support/folder.h"
#include "transports/suite/transport_suite.h"

#include <unistd.h>

extern const dw_transport pipe_transport; /* examples/transport_pipe.c */

int main(void)
{
    static const dw_transport *const transports[] = {&pipe_transport, NULL};
    char folder[TEST_FOLDER_BYTES], uri[80];
    if (test_folder(folder, "pipe")) return 1;
    snprintf(uri, sizeof uri, "pipe://%s/%%d", folder);
    const suite_backend pipe = {.name = "pipe (example)", .uri = uri, .transports = transports};
    int failed = run_transport_suite(&pipe);
    rmdir(folder);
    return failed;
}
