/* SPDX-License-Identifier: Apache-2.0
 * suite_tcp.c - the backend tcp passes the suite: over IPv4, over IPv6, with one stripe. */
#include "transports/suite/transport_suite.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static int has_ipv6(void)
{
    const struct sockaddr_in6 address = {.sin6_family = AF_INET6,
                                         .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    int bound = fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0) close(fd);
    return bound;
}

int main(void)
{
    const suite_backend four = {.name = "tcp over IPv4", .uri = "tcp://127.0.0.1:0"};
    const suite_backend six = {.name = "tcp over IPv6", .uri = "tcp://[::1]:0"};
    const suite_backend one = {.name = "tcp by one connection",
                               .uri = "tcp://127.0.0.1:0?stripes=1"};
    int failed = run_transport_suite(&four) + run_transport_suite(&one);
    if (has_ipv6()) return failed + run_transport_suite(&six);
    print_message("no IPv6 on this machine: the suite does not run over it\n");
    return failed;
}
