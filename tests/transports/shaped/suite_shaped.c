/* SPDX-License-Identifier: Apache-2.0
 * suite_shaped.c - the backend shaped passes the suite, in front of tcp and of loop. */
#include "transports/suite/transport_suite.h"

int main(void)
{
    const suite_backend tcp = {.name = "shaped over tcp",
                               .uri = "shaped:rate=8gbit,delay=1ms/tcp://127.0.0.1:0"};
    const suite_backend loop = {.name = "shaped over loop",
                                .uri = "shaped:rate=8gbit,delay=1ms/loop://suite-shaped-%d",
                                .one_process = 1};
    return run_transport_suite(&tcp) + run_transport_suite(&loop);
}
