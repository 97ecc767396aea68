/* SPDX-License-Identifier: Apache-2.0
 * tcp_accepts.c - the connections that a listener has accepted, until they become stripes or are
 * closed. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "common/report.h"
#include "tcp/tcp_end.h"

enum { ACCEPTS = 8 };

/* ---- Connections that are turned away -------------------------------------------------------- */

void dw_tcp_note_rejected(dw_tcp_end *end, const dw_stream *stream, bool is_reason,
                          const char *format, ...)
{
    end->accepts.n_rejected++;
    if (end->accepts.is_reason_known && !is_reason) return;
    end->accepts.is_reason_known = is_reason;
    char peer[96];
    va_list arguments;
    dw_tcp_print_peer(stream->fd, peer);
    int n =
        snprintf(end->accepts.last_rejected, sizeof end->accepts.last_rejected, "%s, which ", peer);
    va_start(arguments, format);
    vsnprintf(end->accepts.last_rejected + n, sizeof end->accepts.last_rejected - (size_t)n, format,
              arguments);
    va_end(arguments);
}

void dw_tcp_describe_rejected(const dw_tcp_end *end, char *text, size_t cap)
{
    if (end->accepts.n_rejected == 0)
        snprintf(text, cap, "%s", "");
    else if (end->accepts.n_rejected == 1)
        snprintf(text, cap, "; turned away: %s", end->accepts.last_rejected);
    else
        snprintf(text, cap, "; %u were turned away, the last one: %s", end->accepts.n_rejected,
                 end->accepts.last_rejected);
}

/* ---- Pending accepts ------------------------------------------------------------------------- */

void dw_tcp_drop_accept(dw_tcp_end *end, dw_tcp_handshake *pending)
{
    if (pending->phase == DW_TCP_WRITING_HELLO && end->connections.n_open == 0 &&
        end->session.is_opening && pending->own_hello[26] == DW_TCP_WELCOME) {
        dw_tcp_session_drop(&end->session); /* the peer hung up before it had our whole hello */
    }
    dw_tcp_handshake_end(pending);
    end->accepts.n_pending--;
}

void dw_tcp_stop_listening(dw_tcp_end *end)
{
    for (unsigned i = 0; end->accepts.pending && i < DW_TCP_PENDING_ACCEPTS; i++) {
        if (end->accepts.pending[i].phase != DW_TCP_IDLE)
            dw_tcp_drop_accept(end, &end->accepts.pending[i]);
    }
    if (end->accepts.listener >= 0) close(end->accepts.listener);
    end->accepts.listener = -1;
}

static bool has_hung_up(const dw_tcp_handshake *pending)
{
    struct pollfd look = {.fd = pending->stream.fd, .events = POLLRDHUP};
    return poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

/* The hello of a pending accept has arrived. Returns the answer to it. */
static int judge_accept(dw_tcp_end *end, const dw_tcp_handshake *pending, unsigned *stripe)
{
    const unsigned char *named = pending->their_hello + 8;
    unsigned wish = pending->their_hello[25];
    *stripe = pending->their_hello[24];
    if (!dw_tcp_is_new(named))
        return dw_tcp_is_session(end, named) && *stripe < end->session.n_stripes &&
                       !end->session.peer_left
                   ? DW_TCP_WELCOME
                   : DW_TCP_UNKNOWN;
    if ((end->session.is_opening ? end->session.has_id : !dw_tcp_is_fresh(end)) || *stripe != 0 ||
        wish == 0)
        return DW_TCP_TAKEN;
    unsigned n = wish < end->settings.options.stripes ? wish : end->settings.options.stripes;
    if (!dw_tcp_session_create(&end->session, n)) return DW_TCP_TAKEN;
    dw_tcp_begin_sending(end);
    /* Parts of messages from an earlier peer must not be mixed with those of this one. */
    dw_tcp_forget_incoming(end);
    return DW_TCP_WELCOME;
}

/* A connection uses another version of the framing. With TLS it was authenticated, so it is the
 * peer's, and the open fails. Without TLS any stranger could have sent these eight bytes, so it is
 * only noted for the sentence of a timeout. */
static void judge_version(dw_tcp_end *end, const dw_tcp_handshake *pending)
{
    if (end->session.tls)
        dw_tcp_other_version(end, pending);
    else
        dw_tcp_note_rejected(end, &pending->stream, true,
                             "uses version %d of the framing over TCP, this end version %d; run "
                             "the same release of deltawire at both ends",
                             pending->their_hello[6], DW_TCP_VERSION);
}

void dw_tcp_continue_accept(dw_tcp_end *end, uint32_t index)
{
    dw_tcp_handshake *pending = &end->accepts.pending[index];
    if (pending->phase == DW_TCP_IDLE) return;
    bool was_writing = pending->phase == DW_TCP_WRITING_HELLO;
    dw_status status = dw_tcp_handshake_step(pending, end);
    if (status == DW_ERR_VERSION && end->session.is_opening) judge_version(end, pending);
    if (status == DW_ERR_PROTOCOL)
        dw_tcp_note_rejected(end, &pending->stream, false, "did not send deltawire's hello");
    if (status == DW_ERR_VERSION) { /* our hello tells it our version */
        dw_tcp_handshake_answer(pending, end, 0, DW_TCP_TAKEN);
        dw_tcp_handshake_step(pending, end);
    }
    if (status == DW_OK && !was_writing) {
        unsigned stripe;
        bool gone = has_hung_up(pending) || !dw_tcp_is_peer(end, &pending->stream);
        int answer = gone ? DW_TCP_TAKEN : judge_accept(end, pending, &stripe);
        if (gone) stripe = 0;
        dw_tcp_handshake_answer(pending, end, stripe, answer);
        status = dw_tcp_handshake_step(pending, end);
    }
    if (status == DW_PENDING) {
        dw_tcp_watch_handshake(end, pending, DW_TCP_ON_ACCEPT, index);
        return;
    }
    if (pending->phase == DW_TCP_IN_TLS && pending->stream.text[0])
        dw_tcp_note_rejected(end, &pending->stream, true, "%s", pending->stream.text);
    if (status != DW_OK || pending->own_hello[26] != DW_TCP_WELCOME ||
        !dw_tcp_is_session(end, pending->own_hello + 8)) {
        dw_tcp_drop_accept(end, pending);
        return;
    }
    end->accepts.n_pending--;
    dw_tcp_open_stripe(end, pending, pending->own_hello[24], dw_get64(pending->their_hello + 32),
                       dw_get64(pending->their_hello + 40));
}

/* To be called when accept has failed because descriptors or memory ran out. The connection stays
 * pending, and epoll would report it again and again. So the listening socket is not watched for
 * one tick. */
static void pause_accepting(dw_tcp_end *end)
{
    dw_tcp_watch_for_accepts(end, false);
    end->accepts.paused_until_ns = dw_now_ns() + (int64_t)DW_TCP_TICK_MS * DW_NS_PER_MS;
}

void dw_tcp_resume_accepting(dw_tcp_end *end)
{
    end->accepts.paused_until_ns = 0;
    if (end->accepts.listener >= 0) dw_tcp_watch_for_accepts(end, true);
}

void dw_tcp_accept(dw_tcp_end *end)
{
    for (int i = 0; i < ACCEPTS; i++) {
        int fd = accept4(end->accepts.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) { /* usually no connection is pending any more */
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                pause_accepting(end);
            return;
        }
        unsigned at = 0;
        while (at < DW_TCP_PENDING_ACCEPTS && end->accepts.pending[at].phase != DW_TCP_IDLE) at++;
        if (at == DW_TCP_PENDING_ACCEPTS) { /* the oldest pending accept is closed */
            at = end->accepts.next;
            end->accepts.next = (at + 1) % DW_TCP_PENDING_ACCEPTS;
            dw_tcp_drop_accept(end, &end->accepts.pending[at]);
        }
        dw_tcp_tune(fd, end->settings.peer_timeout_ms);
        end->accepts.n_pending++;
        dw_tcp_handshake *pending = &end->accepts.pending[at];
        if (dw_tcp_handshake_accept(
                pending, fd, dw_now_ns() + (int64_t)DW_TCP_HANDSHAKE_MS * DW_NS_PER_MS, end) &&
            dw_tcp_watch_handshake(end, pending, DW_TCP_ON_ACCEPT, at)) {
            dw_tcp_continue_accept(end, at);
        } else {
            dw_tcp_drop_accept(end, pending);
        }
    }
}
