/* SPDX-License-Identifier: Apache-2.0
 * tcp_progress.c - whether the peer takes what is sent, and what to do where it takes only short
 * messages.
 *
 * Progress is what the peer has newly taken: it acknowledges a message, or allows more bytes where
 * this end must wait for that, or its kernel has acknowledged bytes of messages. Bytes that are
 * sent again after a connection was lost are progress only beyond those that were acknowledged
 * before. The first loss of each stripe is discounted, because the peer may have lost nothing, and
 * have to take all of it twice before anything new comes. Hellos, questions and answers are no
 * progress.
 *
 * Where short messages pass and full segments do not, the MTU of the path is smaller than that of
 * the interface, and nobody says so: a router drops long packets, and a firewall the errors that
 * should tell of it. Then connections are made anew with shorter segments. The dialler does that,
 * because its SYN limits both directions; the listener asks for it in its hello. */
#include <errno.h>
#include <netinet/in.h>

#include "common/report.h"
#include "tcp/tcp_end.h"

/* The payloads of shorter segments. Each path with IPv6 takes the first, and each with IPv4 takes
 * the second, though not if it has a tunnel that is set up badly. */
enum { SHORTER = 1220, SHORTEST = 536 };

/* A connection is given up if its oldest segment was sent again so often in vain, which takes some
 * 1.5 s where the round trip is short. */
enum { TRIES = 3 };

/* ---- Paths for short packets only ------------------------------------------------------------ */

void dw_tcp_mark_full(dw_tcp_stripe *stripe, size_t len)
{
    if (stripe->progress.full_at || stripe->progress.segment == 0 || len < stripe->progress.segment)
        return;
    dw_tcp_kernel kernel = dw_tcp_ask_kernel(stripe->stream.fd);
    stripe->progress.full_at = kernel.sent + (uint64_t)kernel.queued + stripe->progress.segment;
}

void dw_tcp_begin_to_fill(dw_tcp_stripe *stripe)
{
    dw_tcp_kernel kernel = dw_tcp_ask_kernel(stripe->stream.fd);
    stripe->progress.since_delivered +=
        kernel.sent + (uint64_t)kernel.queued - stripe->progress.delivered;
    stripe->progress.moved_ns = dw_now_ns();
    stripe->progress.is_clear = false;
}

static bool has_carried_full(const dw_tcp_stripe *stripe)
{
    return stripe->progress.full_at && stripe->progress.delivered >= stripe->progress.full_at;
}

/* The next shorter segment to try after those of this length; 0: there is none. */
static uint32_t shorter_than(const dw_tcp_stripe *stripe)
{
    struct sockaddr_storage peer = {.ss_family = AF_UNSPEC};
    socklen_t len = sizeof peer;
    if (stripe->progress.segment > SHORTER) return SHORTER;
    getpeername(stripe->stream.fd, (struct sockaddr *)&peer, &len);
    bool is_v6 = peer.ss_family == AF_INET6 &&
                 !IN6_IS_ADDR_V4MAPPED(&((const struct sockaddr_in6 *)&peer)->sin6_addr);
    return !is_v6 && stripe->progress.segment > SHORTEST ? SHORTEST : 0;
}

bool dw_tcp_ask_segment(dw_tcp_progress *progress, uint32_t segment)
{
    if (segment != SHORTER && segment != SHORTEST) return false;
    if (progress->segment && progress->segment <= segment) return false;
    progress->segment = segment;
    if (progress->hole == DW_TCP_NO_HOLE) progress->hole = DW_TCP_HOLE_SUSPECTED;
    return true;
}

bool dw_tcp_carries_full(dw_tcp_stripe *stripe)
{
    stripe->progress.delivered = dw_tcp_ask_kernel(stripe->stream.fd).sent;
    return has_carried_full(stripe);
}

void dw_tcp_progress_open(dw_tcp_progress *progress, dw_tcp_stripe_progress *stripe,
                          const dw_tcp_kernel *kernel)
{
    stripe->is_clear = true;
    stripe->moved_ns = dw_now_ns();
    stripe->delivered = stripe->since_delivered = kernel->sent;
    stripe->segment = kernel->segment;
    stripe->full_at = 0;
    if (progress->hole == DW_TCP_HOLE_SUSPECTED) progress->hole = DW_TCP_HOLE_FOUND;
}

/* ---- Progress -------------------------------------------------------------------------------- */

void dw_tcp_progress_begin(dw_tcp_progress *progress)
{
    progress->since_ns = dw_now_ns();
}

void dw_tcp_progress_note(dw_tcp_progress *progress, bool has_taken, bool has_advanced)
{
    progress->has_taken |= has_taken;
    progress->has_advanced |= has_advanced;
}

void dw_tcp_mark_written(dw_tcp_stripe *stripe, size_t len)
{
    stripe->progress.written += len;
}

/* Counts the bytes of messages that the peer's kernel has acknowledged on this connection since the
 * peer last said that it has more than before. Other records behind the first message are not told
 * from them, but the bytes of messages that were written are the limit. */
static void count_gain(const dw_tcp_progress *progress, dw_tcp_stripe *stripe,
                       const dw_tcp_kernel *kernel)
{
    uint64_t queued = (uint64_t)kernel->queued;
    if (kernel->sent == 0) { /* the kernel does not tell */
        stripe->progress.gained = stripe->progress.written;
    } else if (progress->has_advanced) {
        stripe->progress.since_delivered = kernel->sent;
        stripe->progress.since_written =
            stripe->progress.written > queued ? stripe->progress.written - queued : 0;
        stripe->progress.gained = 0;
    } else {
        /* since_delivered may lie ahead, behind records without messages that are on their way. */
        uint64_t delivered = kernel->sent > stripe->progress.since_delivered
                                 ? kernel->sent - stripe->progress.since_delivered
                                 : 0,
                 written = stripe->progress.written - stripe->progress.since_written;
        stripe->progress.gained = delivered < written ? delivered : written;
    }
}

void dw_tcp_discount_loss(dw_tcp_progress *progress, dw_tcp_stripe *stripe)
{
    if (!stripe->progress.was_discounted)
        progress->gained -=
            stripe->progress.gained < progress->gained ? stripe->progress.gained : progress->gained;
    stripe->progress.was_discounted = true;
    stripe->progress.gained = stripe->progress.written = stripe->progress.since_written = 0;
}

void dw_tcp_check_timeout(dw_tcp_failure *failure, const dw_tcp_progress *progress, int64_t now,
                          uint32_t peer_timeout_ms)
{
    if (now - progress->since_ns < (int64_t)peer_timeout_ms * DW_NS_PER_MS) return;
    if (progress->hole == DW_TCP_HOLE_FOUND) {
        dw_tcp_fail(failure, DW_ERR_TIMEOUT,
                    "%s took nothing for %u ms: short messages arrive and long ones do not: the "
                    "path's MTU is smaller than the interface's; set that of the interface to the "
                    "path's, or let ICMP's 'fragmentation needed' pass",
                    failure->peer, peer_timeout_ms);
    } else {
        dw_tcp_fail(failure, DW_ERR_TIMEOUT,
                    "%s took none of the messages on their way to it for %u ms; is its process "
                    "stopped, or does its program not receive?",
                    failure->peer, peer_timeout_ms);
    }
}

/* Updates a stripe's progress from the kernel's counters. Returns the next shorter segment to try
 * if full segments do not seem to pass; 0: they may pass, or none is shorter. */
static uint32_t check_stripe(dw_tcp_progress *progress, dw_tcp_stripe *stripe, int64_t now,
                             int64_t *round_trip_ns)
{
    dw_tcp_kernel kernel = dw_tcp_ask_kernel(stripe->stream.fd);
    if (kernel.sent != stripe->progress.delivered) stripe->progress.moved_ns = now;
    stripe->progress.delivered = kernel.sent;
    stripe->progress.is_clear = kernel.queued == 0 && !stripe->out.is_writing;
    if ((int64_t)kernel.rtt_us * 1000 > *round_trip_ns)
        *round_trip_ns = (int64_t)kernel.rtt_us * 1000;
    count_gain(progress, stripe, &kernel);
    if (has_carried_full(stripe)) progress->hole = DW_TCP_NO_HOLE;
    if (has_carried_full(stripe) || kernel.in_vain < TRIES) return 0;
    uint32_t segment = shorter_than(stripe);
    return (uint32_t)kernel.queued > segment ? segment : 0;
}

int64_t dw_tcp_check_progress(dw_tcp_progress *progress, const dw_tcp_connections *connections,
                              int64_t now, uint32_t *segment)
{
    uint64_t gained = 0;
    int64_t round_trip_ns = 0;
    *segment = 0;
    for (unsigned i = 0; i < connections->n; i++) {
        dw_tcp_stripe *stripe = &connections->stripes[i];
        stripe->progress.was_discounted &= !progress->has_advanced;
        if (!stripe->is_open) continue;
        uint32_t shorter = 0;
        if (!stripe->progress.is_clear || progress->has_advanced)
            shorter = check_stripe(progress, stripe, now, &round_trip_ns);
        if (shorter) *segment = shorter;
        gained += stripe->progress.gained;
    }
    if (progress->has_advanced) progress->gained = 0;
    if (progress->has_taken || gained > progress->gained) progress->since_ns = now;
    if (gained > progress->gained) progress->gained = gained;
    progress->has_taken = progress->has_advanced = false;
    return round_trip_ns;
}
