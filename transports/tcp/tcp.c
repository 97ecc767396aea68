/* SPDX-License-Identifier: Apache-2.0
 * tcp.c - the backend tcp: the functions that links call. */
#include "tcp/tcp_end.h"

#include <poll.h>
#include <string.h>

#include "common/backends.h"
#include "common/opening.h"

static dw_status tcp_open(void *context, const dw_transport_open *how)
{
    dw_opening opening;
    dw_status status = dw_take_opening(&opening, how);
    return status == DW_OK ? dw_tcp_open(context, &opening.how) : status;
}

static dw_status tcp_close(void *context)
{
    dw_tcp_close(context);
    return DW_OK;
}

static dw_status tcp_send(void *context, void *request_room, const void *data, size_t len)
{
    dw_tcp_end *end = context;
    dw_tcp_request *request = request_room;
    *request = (dw_tcp_request){.sends = true, .data = data, .len = len};
    dw_tcp_post_send(&end->sending, request);
    uint64_t bytes = len; /* where size_t has 32 bits, no len is too large */
    return bytes > DW_TCP_MOST_BYTES ? DW_ERR_LIMIT : DW_OK;
}

static dw_status tcp_recv(void *context, void *request_room, void *room, size_t cap)
{
    dw_tcp_end *end = context;
    dw_tcp_request *request = request_room;
    *request = (dw_tcp_request){.room = room, .len = cap};
    dw_tcp_post_receive(&end->receiving, request);
    return DW_OK;
}

/* A send is done when all its records were given to stripes. These go on writing by themselves, and
 * the data is kept until the peer has it. */
static dw_status test_send(dw_tcp_sending *sending, dw_tcp_request *request, size_t *len)
{
    if (!request->is_kept && !dw_tcp_keep(sending, request)) return DW_PENDING;
    dw_tcp_send(sending);
    if (!dw_tcp_send_is_done(sending, request)) return DW_PENDING;
    *len = request->len;
    return DW_OK;
}

static dw_status test_recv(dw_tcp_end *end, size_t *len)
{
    dw_status status = dw_tcp_deliver(&end->receiving, len);
    /* If has_looked is set, the last read has emptied its socket, and poll will report when more
     * arrives. Otherwise more may be there already, so look once. */
    if (status == DW_PENDING && end->failure.status == DW_OK && !end->reading.has_looked) {
        dw_tcp_turn(end, 0);
        status = dw_tcp_deliver(&end->receiving, len);
    }
    if (status == DW_PENDING) dw_tcp_reading_look(&end->reading, false);
    return status;
}

static dw_status tcp_test(void *context, void *request_room, size_t *len, dw_why *why)
{
    dw_tcp_end *end = context;
    dw_tcp_request *request = request_room;
    dw_status status = DW_PENDING;
    if (!request->sends)
        status = test_recv(end, len);
    else if (end->failure.status == DW_OK)
        status = test_send(&end->sending, request, len);
    if (status != DW_PENDING || end->failure.status == DW_OK) return status;
    *why = end->failure.why;
    return end->failure.status;
}

static dw_status tcp_turn(void *context, dw_why *why)
{
    dw_tcp_end *end = context;
    if (end->failure.status == DW_OK) dw_tcp_turn(end, 0);
    if (end->failure.status != DW_OK) *why = end->failure.why;
    return end->failure.status;
}

static void ask_kernel(const dw_tcp_connections *connections, dw_transport_state *state)
{
    dw_tcp_kernel all = connections->gone;
    for (unsigned i = 0; i < connections->n; i++) {
        if (!connections->stripes[i].is_open) continue;
        dw_tcp_kernel one = dw_tcp_ask_kernel(connections->stripes[i].stream.fd);
        all.sent += one.sent;
        all.received += one.received;
        all.retransmits += one.retransmits;
        if (all.rtt_us == 0 || one.rtt_us < all.rtt_us) all.rtt_us = one.rtt_us;
    }
    state->kernel_sent = all.sent;
    state->kernel_received = all.received;
    state->retransmits = all.retransmits;
    state->rtt_ns = (uint64_t)all.rtt_us * 1000;
}

static void fill_traits(const void *context, dw_transport_traits *traits)
{
    const dw_tcp_end *end = context;
    traits->longest_message = DW_TCP_MOST_BYTES;
    traits->framing_bytes = DW_TCP_RECORD_BYTES;
    traits->is_secure = end->session.tls != NULL;
    if (traits->is_secure) {
        memcpy(traits->peer_name, end->session.peer_name, sizeof traits->peer_name);
        memcpy(traits->session, end->session.tls_session, sizeof traits->session);
    }
    memcpy(traits->peer, end->session.peer, sizeof traits->peer);
}

static void tcp_describe(const void *context, dw_transport_traits *traits)
{
    dw_give_traits(context, traits, fill_traits);
}

static void fill_state(const void *context, int asks_kernel, dw_transport_state *state)
{
    const dw_tcp_end *end = context;
    state->wait_fd = end->connections.poller;
    state->wait_events = POLLIN;
    state->wake_ns = dw_tcp_wakes(end);
    state->wire_sent = end->wire.sent;
    state->wire_received =
        end->wire.received + (end->receiving.posted ? dw_tcp_begun(&end->receiving) : 0);
    state->kept_sends = !end->settings.copies && end->sending.answered > end->sending.acked
                            ? end->sending.answered - end->sending.acked
                            : 0;
    state->resent_bytes = end->sending.resent_bytes;
    state->reconnects = end->connections.reconnects;
    if (asks_kernel) ask_kernel(&end->connections, state);
}

static void tcp_poll(const void *context, int asks_kernel, dw_transport_state *state)
{
    dw_give_state(context, asks_kernel, state, fill_state);
}

const dw_transport dw_transport_tcp = {
    .struct_size = sizeof(dw_transport),
    .scheme = "tcp",
    .endpoint_bytes = sizeof(dw_tcp_end),
    .request_bytes = sizeof(dw_tcp_request),
    .open = tcp_open,
    .close = tcp_close,
    .send = tcp_send,
    .recv = tcp_recv,
    .test = tcp_test,
    .describe = tcp_describe,
    .poll = tcp_poll,
    .turn = tcp_turn,
    .form = "tcp://HOST:PORT",
    .ranks = DW_RANKS_ADDRESS,
    .carries_tls = 1,
};
