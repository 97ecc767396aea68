/* SPDX-License-Identifier: Apache-2.0
 * suite_tcp.c - the backend tcp passes the suite, with several connections and with one. */
#include "transports/suite/transport_suite.h"

int main(void)
{
    const suite_backend several = {.name = "tcp", .uri = "tcp://127.0.0.1:0"};
    const suite_backend one = {.name = "tcp by one connection",
                               .uri = "tcp://127.0.0.1:0?stripes=1"};
    return run_transport_suite(&several) + run_transport_suite(&one);
}
