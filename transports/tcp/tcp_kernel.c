/* SPDX-License-Identifier: Apache-2.0
 * tcp_kernel.c - the kernel's counters of a connection. */
#include "tcp/tcp_end.h"

#if defined(__linux__)
#include <linux/sockios.h>
/* The netinet/tcp.h of the C library, which tcp_address.c includes, lacks some of these fields, and
 * cannot be included together with linux/tcp.h. */
#include <linux/tcp.h>
#include <stddef.h>
#include <sys/ioctl.h>

/* The kernel counts the opening of a connection (SYN) as one byte in each direction. */
dw_tcp_kernel dw_tcp_ask_kernel(int fd)
{
    struct tcp_info info;
    socklen_t len = sizeof info;
    dw_tcp_kernel told = {0};
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0) return told;
    if (len < offsetof(struct tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received)
        return told;
    told.sent = info.tcpi_bytes_acked;
    told.received = info.tcpi_bytes_received;
    told.retransmits = info.tcpi_total_retrans;
    told.rtt_us = info.tcpi_rtt;
    told.segment = info.tcpi_snd_mss;
    told.in_vain = info.tcpi_retransmits;
    if (ioctl(fd, SIOCOUTQ, &told.queued) != 0) told.queued = 0;
    return told;
}
#else
dw_tcp_kernel dw_tcp_ask_kernel(int fd)
{
    (void)fd;
    return (dw_tcp_kernel){0};
}
#endif
