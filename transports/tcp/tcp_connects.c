/* SPDX-License-Identifier: Apache-2.0
 * tcp_connects.c - the connections that a dialler makes, and makes again when they are lost. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "common/report.h"
#include "tcp/tcp_end.h"

static const int64_t connect_ns = (int64_t)5000 * DW_NS_PER_MS;
static const int64_t longest_backoff_ns = (int64_t)10000 * DW_NS_PER_MS;
/* The limit while no stripe is open. It is well below the default grace of the listener. */
static const int64_t lost_backoff_ns = (int64_t)400 * DW_NS_PER_MS;

static const char *hung_up_early(const dw_tcp_connects *connects)
{
    return connects->session->tls ? "it hung up before its hello"
                                  : "it hung up before its hello; does it expect TLS?";
}

/* refused: the other machine has answered, but this session's listener is not there: nothing
 * listens at the address, or something else does. */
void dw_tcp_connect_failed(dw_tcp_connects *connects, unsigned index, const char *trouble,
                           bool refused)
{
    dw_tcp_handshake_end(&connects->attempts[index]);
    snprintf(connects->trouble, sizeof connects->trouble, "%s", trouble);
    if (connects->session->is_opening) return;
    bool is_lost = connects->connections->n_open == 0;
    if (refused && is_lost) { /* the machine answers, but the peer has gone */
        dw_tcp_blame_peer(connects->connections);
        dw_tcp_peer_gone(connects->failure, connects->connections,
                         connects->sending->receiving->ahead_bytes);
    }
    dw_tcp_redial_later(&connects->connections->stripes[index].redial,
                        is_lost ? lost_backoff_ns : longest_backoff_ns);
}

void dw_tcp_start_connect(dw_tcp_connects *connects, unsigned index, int64_t now)
{
    int fd = dw_tcp_connect((const struct sockaddr *)&connects->address, connects->address_len,
                            &connects->settings->options, connects->sending->progress->segment);
    if (fd < 0) {
        int error = errno;
        dw_tcp_connect_failed(connects, index, dw_link_system_says(error), error == ECONNREFUSED);
        return;
    }
    if (!connects->trouble[0]) snprintf(connects->trouble, sizeof connects->trouble, "no answer");
    if (!dw_tcp_handshake_connect(&connects->attempts[index], fd,
                                  now + (connects->session->tls
                                             ? (int64_t)DW_TCP_HANDSHAKE_MS * DW_NS_PER_MS
                                             : connect_ns),
                                  connects->session, connects->sending, index)) {
        dw_tcp_connect_failed(connects, index, "no memory for TLS", false);
    } else if (!dw_tcp_watch_handshake(connects->connections->poller, &connects->attempts[index],
                                       DW_TCP_ON_CONNECT, index)) {
        dw_tcp_connect_failed(connects, index, dw_link_system_says(errno), false);
    }
}

/* The listener's hello has arrived. */
static void take_answer(dw_tcp_connects *connects, unsigned index)
{
    dw_tcp_session *session = connects->session;
    dw_tcp_handshake *attempt = &connects->attempts[index];
    const unsigned char *named = attempt->their_hello + 8;
    unsigned n = attempt->their_hello[25], answer = attempt->their_hello[26];
    if (answer != DW_TCP_WELCOME) {
        dw_tcp_connect_failed(connects, index,
                              answer == DW_TCP_TAKEN ? "its listener has another peer already"
                                                     : "it does not know this session",
                              true);
    } else if (session->is_opening &&
               (n == 0 || n > connects->settings->options.stripes || dw_tcp_is_new(named))) {
        dw_tcp_fail(connects->failure, DW_ERR_PROTOCOL,
                    "%s answered with a hello that is not valid", connects->failure->peer);
    } else if (!session->is_opening &&
               (!dw_tcp_is_session(session, named) || !dw_tcp_is_peer(session, &attempt->stream))) {
        dw_tcp_connect_failed(connects, index, "it answers for another session", true);
    } else if (!session->is_opening && dw_tcp_ask_segment(connects->sending->progress,
                                                          dw_get32(attempt->their_hello + 28))) {
        dw_tcp_connect_failed(connects, index, "it asks for shorter segments", false);
    } else {
        if (session->is_opening) dw_tcp_session_adopt(session, named);
        if (session->is_opening) dw_tcp_stripes_expect(connects->connections, n);
        dw_tcp_open_stripe(connects->sending, session, attempt);
    }
}

void dw_tcp_continue_connect(dw_tcp_connects *connects, uint32_t index)
{
    dw_tcp_handshake *attempt = &connects->attempts[index];
    if (attempt->phase == DW_TCP_IDLE) return;
    dw_status status = dw_tcp_handshake_step(attempt, connects->session, connects->settings);
    int error = errno;
    bool was_reading = attempt->phase == DW_TCP_READING_HELLO;
    if (status == DW_PENDING) {
        if (was_reading)
            snprintf(connects->trouble, sizeof connects->trouble,
                     "connected, but no hello came from it");
        /* Every attempt passes through this state, so this text must not replace that of an attempt
         * whose handshake has failed. */
        if (attempt->phase == DW_TCP_IN_TLS && !connects->is_handshake_refused)
            snprintf(connects->trouble, sizeof connects->trouble,
                     "connected, but it does not continue the TLS handshake");
        dw_tcp_watch_handshake(connects->connections->poller, attempt, DW_TCP_ON_CONNECT, index);
    } else if (status == DW_OK) {
        take_answer(connects, index);
    } else if (status == DW_ERR_AUTH && connects->session->is_opening) {
        char peer[96];
        dw_tcp_print_peer(attempt->stream.fd, peer);
        dw_tcp_fail(connects->failure, status, "%s %s", peer, attempt->stream.text);
    } else if (status == DW_ERR_AUTH || status == DW_ERR_PEER || status == DW_ERR_TIMEOUT) {
        connects->is_handshake_refused = true;
        dw_tcp_connect_failed(
            connects, index,
            "it hung up in the middle of the TLS handshake; is its link without TLS?", false);
    } else if (status == DW_ERR_VERSION && connects->session->is_opening) {
        dw_tcp_other_version(connects->failure, attempt);
    } else if (status == DW_ERR_PROTOCOL && connects->session->is_opening) {
        char peer[96];
        dw_tcp_print_peer(attempt->stream.fd, peer);
        dw_tcp_fail(
            connects->failure, status,
            "what answers at %s is not deltawire; is another program listening on this port?",
            peer);
    } else if (status == DW_ERR_IO) {
        bool hung_up = dw_tcp_is_closed_by_peer(error) && attempt->phase != DW_TCP_CONNECTING;
        dw_tcp_connect_failed(connects, index,
                              hung_up            ? hung_up_early(connects)
                              : error == EISCONN ? "it dials as well, and does not listen"
                                                 : strerror(error),
                              error == ECONNREFUSED);
    } else if (status == DW_ERR_VERSION || status == DW_ERR_PROTOCOL) {
        dw_tcp_connect_failed(connects, index, "another program answers there now", true);
    } else {
        dw_tcp_fail(connects->failure, status, "%s", dw_status_string(status));
    }
}

void dw_tcp_connect_to(dw_tcp_connects *connects, const struct sockaddr *address, socklen_t len)
{
    memcpy(&connects->address, address, len);
    connects->address_len = len;
}
