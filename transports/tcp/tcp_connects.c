/* SPDX-License-Identifier: Apache-2.0
 * tcp_connects.c - the connections that a dialler makes, and makes again when they are lost. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "common/report.h"
#include "tcp/tcp_end.h"

static const int64_t connect_ns = (int64_t)5000 * DW_NS_PER_MS;
static const int64_t first_backoff_ns = (int64_t)50 * DW_NS_PER_MS,
                     most_backoff_ns = (int64_t)10000 * DW_NS_PER_MS;
/* The limit while no stripe is open. It is well below the default grace of the listener. */
static const int64_t lost_backoff_ns = (int64_t)400 * DW_NS_PER_MS;

static void retry_later(dw_tcp_end *end, unsigned index, int64_t now)
{
    dw_tcp_stripe *stripe = &end->stripes[index];
    int64_t most = end->n_open > 0 ? most_backoff_ns : lost_backoff_ns;
    stripe->backoff_ns = stripe->backoff_ns == 0 ? first_backoff_ns : 2 * stripe->backoff_ns;
    if (stripe->backoff_ns > most) stripe->backoff_ns = most;
    stripe->redial_ns = now + stripe->backoff_ns;
}

static const char *hung_up_early(const dw_tcp_end *end)
{
    return end->tls ? "it hung up before its hello"
                    : "it hung up before its hello; does it expect TLS?";
}

/* refused: the other machine has answered, but this session's listener is not there: nothing
 * listens at the address, or something else does. */
void dw_tcp_connect_failed(dw_tcp_end *end, unsigned index, const char *trouble, bool refused)
{
    dw_tcp_handshake_end(&end->attempts[index]);
    snprintf(end->trouble, sizeof end->trouble, "%s", trouble);
    if (end->is_opening) return;
    if (refused && end->n_open == 0) { /* the machine answers, but the peer has gone */
        if (!dw_tcp_is_closed_by_peer(end->lost_error)) end->lost_error = ECONNRESET;
        dw_tcp_peer_gone(end);
    }
    retry_later(end, index, dw_now_ns());
}

void dw_tcp_start_connect(dw_tcp_end *end, unsigned index, int64_t now)
{
    int fd = dw_tcp_connect((const struct sockaddr *)&end->address, end->address_len, &end->options,
                            end->segment);
    if (fd < 0) {
        int error = errno;
        dw_tcp_connect_failed(end, index, dw_link_system_says(error), error == ECONNREFUSED);
        return;
    }
    if (!end->trouble[0]) snprintf(end->trouble, sizeof end->trouble, "no answer");
    if (!dw_tcp_handshake_connect(
            &end->attempts[index], fd,
            now + (end->tls ? (int64_t)DW_TCP_HANDSHAKE_MS * DW_NS_PER_MS : connect_ns), end,
            index)) {
        dw_tcp_connect_failed(end, index, "no memory for TLS", false);
    } else if (!dw_tcp_watch_handshake(end, &end->attempts[index], DW_TCP_ON_CONNECT, index)) {
        dw_tcp_connect_failed(end, index, dw_link_system_says(errno), false);
    }
}

/* The listener's hello has arrived. */
static void take_answer(dw_tcp_end *end, unsigned index)
{
    const dw_tcp_handshake *attempt = &end->attempts[index];
    unsigned n = attempt->their_hello[25], answer = attempt->their_hello[26];
    if (answer != DW_TCP_WELCOME) {
        dw_tcp_connect_failed(end, index,
                              answer == DW_TCP_TAKEN ? "its listener has another peer already"
                                                     : "it does not know this session",
                              true);
    } else if (end->is_opening &&
               (n == 0 || n > end->options.stripes || dw_tcp_is_new(attempt->their_hello + 8))) {
        dw_tcp_fail(end, DW_ERR_PROTOCOL, "%s answered with a hello that is not valid", end->peer);
    } else if (!end->is_opening && (!dw_tcp_is_session(end, attempt->their_hello + 8) ||
                                    !dw_tcp_is_peer(end, &attempt->stream))) {
        dw_tcp_connect_failed(end, index, "it answers for another session", true);
    } else if (!end->is_opening && dw_tcp_ask_segment(end, dw_get32(attempt->their_hello + 28))) {
        dw_tcp_connect_failed(end, index, "it asks for shorter segments", false);
    } else {
        if (end->is_opening) memcpy(end->session, attempt->their_hello + 8, DW_TCP_SESSION_BYTES);
        end->has_session = true;
        end->n_stripes = end->is_opening ? n : end->n_stripes;
        dw_tcp_open_stripe(end, &end->attempts[index], index, dw_get64(attempt->their_hello + 32),
                           dw_get64(attempt->their_hello + 40));
    }
}

void dw_tcp_continue_connect(dw_tcp_end *end, uint32_t index)
{
    dw_tcp_handshake *attempt = &end->attempts[index];
    if (attempt->phase == DW_TCP_IDLE) return;
    dw_status status = dw_tcp_handshake_step(attempt, end);
    int error = errno;
    bool was_reading = attempt->phase == DW_TCP_READING_HELLO;
    if (status == DW_PENDING) {
        if (was_reading)
            snprintf(end->trouble, sizeof end->trouble, "connected, but no hello came from it");
        /* Every attempt passes through this state, so this text must not replace that of an attempt
         * whose handshake has failed. */
        if (attempt->phase == DW_TCP_IN_TLS && !end->is_handshake_refused)
            snprintf(end->trouble, sizeof end->trouble,
                     "connected, but it does not continue the TLS handshake");
        dw_tcp_watch_handshake(end, attempt, DW_TCP_ON_CONNECT, index);
    } else if (status == DW_OK) {
        take_answer(end, index);
    } else if (status == DW_ERR_AUTH && end->is_opening) {
        char peer[96];
        dw_tcp_print_peer(attempt->stream.fd, peer);
        dw_tcp_fail(end, status, "%s %s", peer, attempt->stream.text);
    } else if (status == DW_ERR_AUTH || status == DW_ERR_PEER || status == DW_ERR_TIMEOUT) {
        end->is_handshake_refused = true;
        dw_tcp_connect_failed(
            end, index, "it hung up in the middle of the TLS handshake; is its link without TLS?",
            false);
    } else if (status == DW_ERR_VERSION && end->is_opening) {
        dw_tcp_other_version(end, attempt);
    } else if (status == DW_ERR_PROTOCOL && end->is_opening) {
        char peer[96];
        dw_tcp_print_peer(attempt->stream.fd, peer);
        dw_tcp_fail(
            end, status,
            "what answers at %s is not deltawire; is another program listening on this port?",
            peer);
    } else if (status == DW_ERR_IO) {
        bool hung_up = dw_tcp_is_closed_by_peer(error) && attempt->phase != DW_TCP_CONNECTING;
        dw_tcp_connect_failed(end, index,
                              hung_up            ? hung_up_early(end)
                              : error == EISCONN ? "it dials as well, and does not listen"
                                                 : strerror(error),
                              error == ECONNREFUSED);
    } else if (status == DW_ERR_VERSION || status == DW_ERR_PROTOCOL) {
        dw_tcp_connect_failed(end, index, "another program answers there now", true);
    } else {
        dw_tcp_fail(end, status, "%s", dw_status_string(status));
    }
}
