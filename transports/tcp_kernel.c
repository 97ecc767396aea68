/* SPDX-License-Identifier: Apache-2.0
 * tcp_kernel.c - what the kernel itself counted on a connection. */
#include "tcp.h"

#if defined(__linux__)
#include <linux/tcp.h> /* the C library's netinet/tcp.h, which tcp_open.c needs, stops before these fields */
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

/* The opening of a connection counts as one byte each way. */
void dw_tcp_kernel_counts(int fd, uint64_t *sent, uint64_t *received)
{
    struct tcp_info info;
    socklen_t len = sizeof info;
    *sent = *received = 0;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0) return;
    if (len < offsetof(struct tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received) return;
    *sent = info.tcpi_bytes_acked;
    *received = info.tcpi_bytes_received;
}
#else
void dw_tcp_kernel_counts(int fd, uint64_t *sent, uint64_t *received)
{
    (void)fd;
    *sent = *received = 0;
}
#endif
