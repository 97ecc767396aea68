/* SPDX-License-Identifier: Apache-2.0
 * tcp_accepts.c - the connections that a listener has accepted, until they become stripes or are
 * closed. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/report.h"
#include "tcp/tcp_end.h"

enum { ACCEPTS = 8 };

/* ---- Connections that are turned away -------------------------------------------------------- */

/* Remembers a connection that was turned away, for the sentence of a timeout. */
__attribute__((format(printf, 4, 5))) static void note_rejected(dw_tcp_accepts *accepts,
                                                                const dw_stream *stream,
                                                                bool is_reason, const char *format,
                                                                ...)
{
    accepts->n_rejected++;
    if (accepts->is_reason_known && !is_reason) return;
    accepts->is_reason_known = is_reason;
    char peer[96];
    va_list arguments;
    dw_tcp_print_peer(stream->fd, peer);
    int n = snprintf(accepts->last_rejected, sizeof accepts->last_rejected, "%s, which ", peer);
    va_start(arguments, format);
    vsnprintf(accepts->last_rejected + n, sizeof accepts->last_rejected - (size_t)n, format,
              arguments);
    va_end(arguments);
}

void dw_tcp_describe_rejected(const dw_tcp_accepts *accepts, char *text, size_t cap)
{
    if (accepts->n_rejected == 0)
        snprintf(text, cap, "%s", "");
    else if (accepts->n_rejected == 1)
        snprintf(text, cap, "; turned away: %s", accepts->last_rejected);
    else
        snprintf(text, cap, "; %u were turned away, the last one: %s", accepts->n_rejected,
                 accepts->last_rejected);
}

/* ---- Pending accepts ------------------------------------------------------------------------- */

void dw_tcp_drop_accept(dw_tcp_accepts *accepts, dw_tcp_handshake *pending)
{
    if (pending->phase == DW_TCP_WRITING_HELLO && accepts->connections->n_open == 0 &&
        accepts->session->is_opening && pending->own_hello[26] == DW_TCP_WELCOME) {
        /* the peer hung up before it had our whole hello */
        dw_tcp_session_drop(accepts->session);
        dw_tcp_stripes_expect(accepts->connections, 0);
    }
    dw_tcp_handshake_end(pending);
    accepts->n_pending--;
}

void dw_tcp_stop_listening(dw_tcp_accepts *accepts)
{
    for (unsigned i = 0; accepts->pending && i < DW_TCP_PENDING_ACCEPTS; i++) {
        if (accepts->pending[i].phase != DW_TCP_IDLE)
            dw_tcp_drop_accept(accepts, &accepts->pending[i]);
    }
    if (accepts->listener >= 0) close(accepts->listener);
    accepts->listener = -1;
}

static bool has_hung_up(const dw_tcp_handshake *pending)
{
    struct pollfd look = {.fd = pending->stream.fd, .events = POLLRDHUP};
    return poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

/* The dialler that was welcomed has gone before any message was exchanged. Perhaps it was stopped,
 * or was a stranger that only sent a hello. Another dialler may take its place. */
bool dw_tcp_is_fresh(const dw_tcp_accepts *accepts)
{
    return accepts->listener >= 0 && !accepts->session->tls && !accepts->connections->peer_left &&
           !accepts->session->is_opening && accepts->connections->n_open == 0 &&
           accepts->sending->receiving->whole == 0 && accepts->sending->acked == 0;
}

/* The hello of a pending accept has arrived. Returns the answer to it. */
static int judge_accept(dw_tcp_accepts *accepts, const dw_tcp_handshake *pending, unsigned *stripe)
{
    dw_tcp_session *session = accepts->session;
    const unsigned char *named = pending->their_hello + 8;
    unsigned wish = pending->their_hello[25], most = accepts->settings->options.stripes;
    *stripe = pending->their_hello[24];
    if (!dw_tcp_is_new(named))
        return dw_tcp_is_session(session, named) && *stripe < accepts->connections->n &&
                       !accepts->connections->peer_left
                   ? DW_TCP_WELCOME
                   : DW_TCP_UNKNOWN;
    if ((session->is_opening ? session->has_id : !dw_tcp_is_fresh(accepts)) || *stripe != 0 ||
        wish == 0 || !dw_tcp_session_create(session))
        return DW_TCP_TAKEN;
    dw_tcp_stripes_expect(accepts->connections, wish < most ? wish : most);
    dw_tcp_begin_sending(accepts->sending);
    /* Parts of messages from an earlier peer must not be mixed with those of this one. */
    dw_tcp_forget_incoming(accepts->sending->receiving);
    return DW_TCP_WELCOME;
}

/* A connection uses another version of the framing. With TLS it was authenticated, so it is the
 * peer's, and the open fails. Without TLS any stranger could have sent these eight bytes, so it is
 * only noted for the sentence of a timeout. */
static void judge_version(dw_tcp_accepts *accepts, const dw_tcp_handshake *pending)
{
    if (accepts->session->tls)
        dw_tcp_other_version(accepts->sending->receiving->failure, pending);
    else
        note_rejected(accepts, &pending->stream, true,
                      "uses version %d of the framing over TCP, this end version %d; run "
                      "the same release of deltawire at both ends",
                      pending->their_hello[6], DW_TCP_VERSION);
}

void dw_tcp_continue_accept(dw_tcp_accepts *accepts, uint32_t index)
{
    dw_tcp_session *session = accepts->session;
    dw_tcp_handshake *pending = &accepts->pending[index];
    if (pending->phase == DW_TCP_IDLE) return;
    bool was_writing = pending->phase == DW_TCP_WRITING_HELLO;
    dw_status status = dw_tcp_handshake_step(pending, session, accepts->settings);
    if (status == DW_ERR_VERSION && session->is_opening) judge_version(accepts, pending);
    if (status == DW_ERR_PROTOCOL)
        note_rejected(accepts, &pending->stream, false, "did not send deltawire's hello");
    if (status == DW_ERR_VERSION) { /* our hello tells it our version */
        dw_tcp_handshake_answer(pending, session, accepts->sending, 0, DW_TCP_TAKEN);
        dw_tcp_handshake_step(pending, session, accepts->settings);
    }
    if (status == DW_OK && !was_writing) {
        unsigned stripe;
        bool gone = has_hung_up(pending) || !dw_tcp_is_peer(session, &pending->stream);
        int answer = gone ? DW_TCP_TAKEN : judge_accept(accepts, pending, &stripe);
        if (gone) stripe = 0;
        dw_tcp_handshake_answer(pending, session, accepts->sending, stripe, answer);
        status = dw_tcp_handshake_step(pending, session, accepts->settings);
    }
    if (status == DW_PENDING) {
        dw_tcp_watch_handshake(accepts->connections->poller, pending, DW_TCP_ON_ACCEPT, index);
        return;
    }
    if (pending->phase == DW_TCP_IN_TLS && pending->stream.text[0])
        note_rejected(accepts, &pending->stream, true, "%s", pending->stream.text);
    if (status != DW_OK || pending->own_hello[26] != DW_TCP_WELCOME ||
        !dw_tcp_is_session(session, pending->own_hello + 8)) {
        dw_tcp_drop_accept(accepts, pending);
        return;
    }
    accepts->n_pending--;
    dw_tcp_open_stripe(accepts->sending, session, pending);
}

/* To be called when accept has failed because descriptors or memory ran out. The connection stays
 * pending, and epoll would report it again and again. So the listening socket is not watched for
 * one tick. */
static void pause_accepting(dw_tcp_accepts *accepts)
{
    dw_tcp_watch_for_accepts(accepts->connections->poller, accepts->listener, false);
    accepts->paused_until_ns = dw_now_ns() + (int64_t)DW_TCP_TICK_MS * DW_NS_PER_MS;
}

void dw_tcp_resume_accepting(dw_tcp_accepts *accepts)
{
    accepts->paused_until_ns = 0;
    if (accepts->listener >= 0)
        dw_tcp_watch_for_accepts(accepts->connections->poller, accepts->listener, true);
}

void dw_tcp_accept(dw_tcp_accepts *accepts)
{
    for (int i = 0; i < ACCEPTS; i++) {
        int fd = accept4(accepts->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) { /* usually no connection is pending any more */
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                pause_accepting(accepts);
            return;
        }
        unsigned at = 0;
        while (at < DW_TCP_PENDING_ACCEPTS && accepts->pending[at].phase != DW_TCP_IDLE) at++;
        if (at == DW_TCP_PENDING_ACCEPTS) { /* the oldest pending accept is closed */
            at = accepts->next;
            accepts->next = (at + 1) % DW_TCP_PENDING_ACCEPTS;
            dw_tcp_drop_accept(accepts, &accepts->pending[at]);
        }
        dw_tcp_tune(fd, accepts->settings->peer_timeout_ms);
        accepts->n_pending++;
        dw_tcp_handshake *pending = &accepts->pending[at];
        int64_t until_ns = dw_now_ns() + (int64_t)DW_TCP_HANDSHAKE_MS * DW_NS_PER_MS;
        if (dw_tcp_handshake_accept(pending, fd, until_ns, accepts->session) &&
            dw_tcp_watch_handshake(accepts->connections->poller, pending, DW_TCP_ON_ACCEPT, at)) {
            dw_tcp_continue_accept(accepts, at);
        } else {
            dw_tcp_drop_accept(accepts, pending);
        }
    }
}
