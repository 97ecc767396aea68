/* SPDX-License-Identifier: Apache-2.0
 * tcp_poller.c - registers the sockets of an end with epoll. */
#include <sys/epoll.h>

#include "tcp/tcp_end.h"

/* Adding a socket can fail (false, and errno says why); changing its events cannot. */
static bool watch(int poller, int fd, int how, uint32_t events, uint32_t kind, uint32_t index)
{
    struct epoll_event event = {.events = events, .data.u64 = (uint64_t)kind << 32 | index};
    return epoll_ctl(poller, how, fd, &event) == 0;
}

bool dw_tcp_watch_listener(int poller, int listener)
{
    return watch(poller, listener, EPOLL_CTL_ADD, EPOLLIN, DW_TCP_ON_LISTENER, 0);
}

void dw_tcp_watch_for_accepts(int poller, int listener, bool hears)
{
    watch(poller, listener, EPOLL_CTL_MOD, hears ? EPOLLIN : 0, DW_TCP_ON_LISTENER, 0);
}

void dw_tcp_watch_stripe(int poller, dw_tcp_stripe *stripe, bool is_new)
{
    if (is_new) stripe->events = 0; /* those of its handshake are still watched for */
    uint32_t events = (uint32_t)dw_stream_events(&stripe->stream, true, stripe->out.is_blocked);
    if (events == stripe->events) return;
    stripe->events = events;
    watch(poller, stripe->stream.fd, EPOLL_CTL_MOD, events, DW_TCP_ON_STRIPE, stripe->index);
}

bool dw_tcp_watch_handshake(int poller, dw_tcp_handshake *handshake, uint32_t kind, uint32_t index)
{
    uint32_t events = dw_tcp_handshake_events(handshake);
    if (events == handshake->events) return true;
    if (!watch(poller, handshake->stream.fd, handshake->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD,
               events, kind, index))
        return false;
    handshake->events = events;
    return true;
}
