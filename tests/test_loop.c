/* SPDX-License-Identifier: Apache-2.0
 * test_loop.c - the in-process backend passes the suite. */
#include "transport_suite.h"

int main(void)
{
    const suite_backend loop = {.name = "loop", .uri = "loop://suite-%d", .one_process = 1};
    return run_transport_suite(&loop);
}
