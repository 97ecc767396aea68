/* SPDX-License-Identifier: Apache-2.0
 * knock.h - connects a bare socket to the port of a link, as any program could. */
#ifndef DW_TEST_KNOCK_H
#define DW_TEST_KNOCK_H

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* The port in a URI tcp://host:port. */
static inline int port_of(const char *uri)
{
    return atoi(strrchr(uri, ':') + 1);
}

/* *connected: what connect returned. */
static inline int try_to_knock(int port, int *connected)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    *connected = connect(fd, (const struct sockaddr *)&address, sizeof address);
    return fd;
}

static inline int knock(int port)
{
    int connected, fd = try_to_knock(port, &connected);
    assert_int_equal(connected, 0);
    return fd;
}

#endif
