/* SPDX-License-Identifier: Apache-2.0
 * tcp_poller.c - registers the sockets of an end with epoll. */
#include <errno.h>
#include <sys/epoll.h>

#include "common/report.h"
#include "tcp/tcp_end.h"

/* Adding a socket can fail (false, and errno says why); changing its events cannot. */
static bool watch(const dw_tcp_end *end, int fd, int how, uint32_t events, uint32_t kind,
                  uint32_t index)
{
    struct epoll_event event = {.events = events, .data.u64 = (uint64_t)kind << 32 | index};
    return epoll_ctl(end->poller, how, fd, &event) == 0;
}

void dw_tcp_watch_listener(dw_tcp_end *end)
{
    if (watch(end, end->accepts.listener, EPOLL_CTL_ADD, EPOLLIN, DW_TCP_ON_LISTENER, 0)) return;
    dw_tcp_fail(end, DW_ERR_IO, "cannot watch the port for a peer: %s", dw_link_system_says(errno));
}

void dw_tcp_watch_for_accepts(const dw_tcp_end *end, bool hears)
{
    watch(end, end->accepts.listener, EPOLL_CTL_MOD, hears ? EPOLLIN : 0, DW_TCP_ON_LISTENER, 0);
}

void dw_tcp_watch_stripe(dw_tcp_end *end, dw_tcp_stripe *stripe)
{
    uint32_t events = (uint32_t)dw_stream_events(&stripe->stream, true, stripe->out.is_blocked);
    if (events == stripe->events) return;
    stripe->events = events;
    watch(end, stripe->stream.fd, EPOLL_CTL_MOD, events, DW_TCP_ON_STRIPE,
          (uint32_t)(stripe - end->stripes));
}

void dw_tcp_watch_new_stripe(dw_tcp_end *end, dw_tcp_stripe *stripe)
{
    stripe->events = 0; /* those of its handshake are still watched for */
    dw_tcp_watch_stripe(end, stripe);
}

bool dw_tcp_watch_handshake(const dw_tcp_end *end, dw_tcp_handshake *handshake, uint32_t kind,
                            uint32_t index)
{
    uint32_t events = dw_tcp_handshake_events(handshake);
    if (events == handshake->events) return true;
    if (!watch(end, handshake->stream.fd, handshake->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, events,
               kind, index))
        return false;
    handshake->events = events;
    return true;
}
