/* SPDX-License-Identifier: Apache-2.0
 * tcp_open.c - opens an end until its first stripe is connected, and closes it. */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/mem.h"
#include "common/report.h"
#include "tcp/tcp_end.h"

enum { REDIAL_MS = 100, LOOK_MS = 20, CONNECT_MS = 5000 };

/* Whether the open was cancelled or has taken too long. */
static dw_status check_time(const dw_tcp_end *end, const dw_transport_open *how,
                            int64_t deadline_ns)
{
    bool is_cancelled = dw_link_is_set(how->cancelled);
    if (!is_cancelled && dw_now_ns() < deadline_ns) return DW_OK;
    char rejected[400];
    dw_tcp_describe_rejected(&end->accepts, rejected, sizeof rejected);
    if (is_cancelled) {
        return dw_say(how->why, DW_ERR_CANCELLED, "opening tcp://%.60s was cancelled%s",
                      how->address, rejected);
    }
    if (how->role == DW_LINK_LISTEN) {
        return dw_say(how->why, DW_ERR_TIMEOUT, "no peer connected to tcp://%.60s within %u ms%s",
                      how->address, how->timeout_ms, rejected);
    }
    return dw_say(how->why, DW_ERR_TIMEOUT,
                  "the other end at tcp://%.100s did not accept the link within %u ms "
                  "(%s); has it been started, and does it listen there?",
                  how->address, how->timeout_ms, end->connects.trouble);
}

/* A name may resolve to addresses at which nothing answers, not even with a refusal (IPv6 without a
 * route). So if there are several, none of them may use up the whole time. */
static int64_t time_to_connect(const dw_transport_open *how, const struct addrinfo *addresses)
{
    int64_t n = 0;
    for (const struct addrinfo *a = addresses; a; a = a->ai_next) n++;
    if (n <= 1) return INT64_MAX / 2;
    int64_t share_ms = how->timeout_ms / (2 * n); /* so that each can be tried twice */
    return (share_ms < CONNECT_MS ? share_ms : CONNECT_MS) * DW_NS_PER_MS;
}

/* Runs turns until the end is open, has failed, or the time is over. DW_PENDING: this attempt of a
 * dialler has failed. */
static dw_status wait_for_peer(dw_tcp_end *end, const dw_transport_open *how, int64_t deadline_ns,
                               int64_t connected_by_ns)
{
    while (end->session.is_opening && end->failure.status == DW_OK) {
        dw_status status = check_time(end, how, deadline_ns);
        if (status != DW_OK) return status;
        if (end->connects.attempts && end->connects.attempts[0].phase == DW_TCP_CONNECTING &&
            dw_now_ns() >= connected_by_ns)
            dw_tcp_handshake_end(&end->connects.attempts[0]);
        if (end->connects.attempts && end->connects.attempts[0].phase == DW_TCP_IDLE)
            return DW_PENDING;
        dw_tcp_turn(end, LOOK_MS);
    }
    if (end->failure.status != DW_OK) *how->why = end->failure.why;
    return end->failure.status;
}

static dw_status open_listening(dw_tcp_end *end, const dw_transport_open *how,
                                const struct addrinfo *addresses, int64_t deadline_ns)
{
    dw_status status =
        dw_tcp_listen(how, &end->settings.options, addresses, &end->accepts.listener);
    if (status != DW_OK) return status;
    if (!dw_tcp_watch_listener(end->connections.poller, end->accepts.listener))
        return dw_say(how->why, DW_ERR_IO, "cannot watch the port for a peer: %s",
                      dw_link_system_says(errno));
    status = wait_for_peer(end, how, deadline_ns, INT64_MAX);
    if (end->connections.n == 1 && end->settings.options.grace_ns == 0)
        dw_tcp_stop_listening(&end->accepts); /* no further connection can come */
    return status;
}

static dw_status open_dialling(dw_tcp_end *end, const dw_transport_open *how,
                               const struct addrinfo *addresses, int64_t deadline_ns)
{
    int64_t connect_ns = time_to_connect(how, addresses);
    for (;;) {
        for (const struct addrinfo *a = addresses; a; a = a->ai_next) {
            dw_tcp_connect_to(&end->connects, a->ai_addr, a->ai_addrlen);
            dw_tcp_start_connect(&end->connects, 0, dw_now_ns());
            /* only the time limit of the open counts */
            if (!end->session.tls) end->connects.attempts[0].until_ns = INT64_MAX;
            dw_status status = wait_for_peer(end, how, deadline_ns, dw_now_ns() + connect_ns);
            if (status != DW_PENDING) return status;
        }
        for (int waited = 0; waited < REDIAL_MS; waited += LOOK_MS) {
            dw_status status = check_time(end, how, deadline_ns);
            if (status != DW_OK) return status;
            dw_tcp_turn(end, LOOK_MS);
        }
    }
}

/* Gives each part of the end pointers to those that it uses. */
static void connect_parts(dw_tcp_end *end)
{
    end->failure.peer = end->session.peer;
    end->receiving.settings = end->accepts.settings = end->connects.settings = &end->settings;
    end->receiving.failure = end->connects.failure = &end->failure;
    end->receiving.connections = end->sending.connections = &end->connections;
    end->accepts.connections = end->connects.connections = &end->connections;
    end->receiving.wire = &end->wire;
    end->sending.progress = &end->progress;
    end->sending.receiving = &end->receiving;
    end->sending.reading = &end->reading;
    end->accepts.session = end->connects.session = &end->session;
    end->accepts.sending = end->connects.sending = &end->sending;
}

static dw_status make(dw_tcp_end *end, const dw_transport_open *how)
{
    bool listens = how->role == DW_LINK_LISTEN;
    end->settings.role = how->role;
    end->settings.peer_timeout_ms = how->peer_timeout_ms;
    end->settings.longest = how->longest_message ? how->longest_message : UINT64_MAX;
    end->settings.copies = !how->heeds_kept_sends;
    end->accepts.listener = -1;
    end->session.is_opening = true;
    end->receiving.window = DW_TCP_NEAR_WINDOW_BYTES;
    memcpy(end->session.peer, "the peer", sizeof "the peer");
    end->connections.stripes = dw_mem_allocate_zeroed(
        &end->settings.allocator, end->settings.options.stripes, sizeof *end->connections.stripes);
    for (unsigned i = 0; end->connections.stripes && i < end->settings.options.stripes; i++)
        end->connections.stripes[i].stream.fd = -1;
    end->sending.kept = dw_mem_allocate_zeroed(&end->settings.allocator, DW_TCP_KEPT_MOST,
                                               sizeof *end->sending.kept);
    end->receiving.incoming = dw_mem_allocate_zeroed(&end->settings.allocator, DW_TCP_INCOMING_MOST,
                                                     sizeof *end->receiving.incoming);
    if (listens)
        end->accepts.pending = dw_mem_allocate_zeroed(
            &end->settings.allocator, DW_TCP_PENDING_ACCEPTS, sizeof *end->accepts.pending);
    else
        end->connects.attempts =
            dw_mem_allocate_zeroed(&end->settings.allocator, end->settings.options.stripes,
                                   sizeof *end->connects.attempts);
    if (!end->connections.stripes || !end->sending.kept || !end->receiving.incoming ||
        (!end->accepts.pending && !end->connects.attempts)) {
        return dw_say(how->why, DW_ERR_NO_MEMORY, "no memory for a link over TCP");
    }
    end->connections.poller = epoll_create1(EPOLL_CLOEXEC);
    if (end->connections.poller >= 0) return DW_OK;
    return dw_say(how->why, DW_ERR_IO, "cannot watch sockets: %s", dw_link_system_says(errno));
}

dw_status dw_tcp_open(dw_tcp_end *end, const dw_transport_open *how)
{
    int64_t deadline_ns = dw_now_ns() + (int64_t)how->timeout_ms * DW_NS_PER_MS;
    end->settings.allocator = how->allocator;
    end->connections.poller = end->accepts.listener = -1;
    connect_parts(end);
    dw_status status = dw_tcp_read_options(how, &end->settings.options);
    if (status == DW_OK) status = dw_tcp_check_congestion(how, &end->settings.options);
    if (status != DW_OK) return status;
    struct addrinfo *addresses;
    status = dw_tcp_resolve(how, &addresses);
    if (status != DW_OK) return status;
    status = dw_tcp_check_plaintext(how, addresses);
    if (status == DW_OK) status = make(end, how);
    if (status == DW_OK && how->tls)
        status = dw_tls_context_create(&end->session.tls, how->tls, how->role,
                                       &end->settings.allocator, how->why);
    if (status == DW_OK) {
        status = how->role == DW_LINK_LISTEN ? open_listening(end, how, addresses, deadline_ns)
                                             : open_dialling(end, how, addresses, deadline_ns);
    }
    freeaddrinfo(addresses);
    if (status != DW_OK) dw_tcp_close(end);
    return status;
}

/* Close the listener first, so that reconnects are refused. */
void dw_tcp_close(dw_tcp_end *end)
{
    dw_tcp_stripe *stripes = end->connections.stripes;
    dw_tcp_stop_listening(&end->accepts);
    dw_tcp_send_leave(&end->sending);
    for (unsigned i = 0; end->connects.attempts && i < end->settings.options.stripes; i++)
        dw_tcp_handshake_end(&end->connects.attempts[i]);
    for (unsigned i = 0; stripes && i < end->settings.options.stripes; i++) {
        dw_tcp_forget_reading(&end->receiving, &stripes[i]);
        if (end->failure.status == DW_ERR_TIMEOUT) dw_tcp_reset_at_close(&stripes[i]);
        dw_stream_close(&stripes[i].stream);
    }
    if (end->receiving.incoming) dw_tcp_forget_incoming(&end->receiving);
    for (unsigned i = 0; end->sending.kept && i < DW_TCP_KEPT_MOST; i++)
        dw_tcp_free_room(&end->receiving, end->sending.kept[i].copy);
    while (end->receiving.unused) {
        dw_tcp_stash *next = end->receiving.unused->next;
        dw_tcp_free_room(&end->receiving, end->receiving.unused);
        end->receiving.unused = next;
    }
    if (end->connections.poller >= 0) close(end->connections.poller);
    dw_mem_release(&end->settings.allocator, stripes,
                   end->settings.options.stripes * sizeof *stripes);
    dw_mem_release(&end->settings.allocator, end->sending.kept,
                   DW_TCP_KEPT_MOST * sizeof *end->sending.kept);
    dw_mem_release(&end->settings.allocator, end->receiving.incoming,
                   DW_TCP_INCOMING_MOST * sizeof *end->receiving.incoming);
    dw_mem_release(&end->settings.allocator, end->accepts.pending,
                   DW_TCP_PENDING_ACCEPTS * sizeof *end->accepts.pending);
    dw_mem_release(&end->settings.allocator, end->connects.attempts,
                   end->settings.options.stripes * sizeof *end->connects.attempts);
    dw_tls_context_destroy(end->session.tls);
    end->session.tls = NULL;
}
