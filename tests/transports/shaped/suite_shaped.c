/* SPDX-License-Identifier: Apache-2.0
 * suite_shaped.c - the backend shaped passes the suite, in front of tcp. Its own tests have it in
 * front of loop. */
#include "transports/suite/transport_suite.h"

int main(void)
{
    const suite_backend tcp = {.name = "shaped over tcp",
                               .uri = "shaped:rate=8gbit,delay=1ms/tcp://127.0.0.1:0"};
    return run_transport_suite(&tcp);
}
