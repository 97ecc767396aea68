/* SPDX-License-Identifier: Apache-2.0
 * suite_loop.c - the backend loop passes the suite. */
#include "transports/suite/transport_suite.h"

int main(void)
{
    const suite_backend loop = {.name = "loop", .uri = "loop://suite-%d", .one_process = 1};
    return run_transport_suite(&loop);
}
