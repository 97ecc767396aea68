/* SPDX-License-Identifier: Apache-2.0
 * tcp_accepts.c - the connections that a listener has accepted, until they become stripes or are
 * closed. */
#include <errno.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "common/report.h"
#include "tcp/tcp_end.h"

enum { ACCEPTS = 8 };

void dw_tcp_drop_accept(dw_tcp_end *end, dw_tcp_handshake *pending)
{
    if (pending->phase == DW_TCP_WRITING_HELLO && end->n_open == 0 && end->is_opening &&
        pending->own_hello[26] == DW_TCP_WELCOME) {
        end->has_session = false; /* the peer hung up before it had our whole hello */
        end->n_stripes = 0;
    }
    dw_tcp_handshake_end(pending);
    end->n_pending--;
}

void dw_tcp_stop_listening(dw_tcp_end *end)
{
    for (unsigned i = 0; end->pending && i < DW_TCP_PENDING_ACCEPTS; i++) {
        if (end->pending[i].phase != DW_TCP_IDLE) dw_tcp_drop_accept(end, &end->pending[i]);
    }
    if (end->listener >= 0) close(end->listener);
    end->listener = -1;
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
        return dw_tcp_is_session(end, named) && *stripe < end->n_stripes && !end->peer_left
                   ? DW_TCP_WELCOME
                   : DW_TCP_UNKNOWN;
    if ((end->is_opening ? end->has_session : !dw_tcp_is_fresh(end)) || *stripe != 0 || wish == 0)
        return DW_TCP_TAKEN;
    if (getrandom(end->session, sizeof end->session, 0) != (ssize_t)sizeof end->session)
        return DW_TCP_TAKEN;
    end->has_session = true;
    end->peer_limit = 0;
    /* Parts of messages from an earlier peer must not be mixed with those of this one. */
    dw_tcp_forget_incoming(end);
    end->n_stripes = wish < end->options.stripes ? wish : end->options.stripes;
    return DW_TCP_WELCOME;
}

/* A connection uses another version of the framing. With TLS it was authenticated, so it is the
 * peer's, and the open fails. Without TLS any stranger could have sent these eight bytes, so it is
 * only noted for the sentence of a timeout. */
static void judge_version(dw_tcp_end *end, const dw_tcp_handshake *pending)
{
    if (end->tls)
        dw_tcp_other_version(end, pending);
    else
        dw_tcp_note_rejected(end, &pending->stream, true,
                             "uses version %d of the framing over TCP, this end version %d; run "
                             "the same release of deltawire at both ends",
                             pending->their_hello[6], DW_TCP_VERSION);
}

void dw_tcp_continue_accept(dw_tcp_end *end, uint32_t index)
{
    dw_tcp_handshake *pending = &end->pending[index];
    if (pending->phase == DW_TCP_IDLE) return;
    bool was_writing = pending->phase == DW_TCP_WRITING_HELLO;
    dw_status status = dw_tcp_handshake_step(pending, end);
    if (status == DW_ERR_VERSION && end->is_opening) judge_version(end, pending);
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
    end->n_pending--;
    dw_tcp_open_stripe(end, pending, pending->own_hello[24], dw_get64(pending->their_hello + 32),
                       dw_get64(pending->their_hello + 40));
}

/* To be called when accept has failed because descriptors or memory ran out. The connection stays
 * pending, and epoll would report it again and again. So the listening socket is not watched for
 * one tick. */
static void pause_accepting(dw_tcp_end *end)
{
    dw_tcp_watch_for_accepts(end, false);
    end->accept_paused_until_ns = dw_now_ns() + (int64_t)DW_TCP_TICK_MS * DW_NS_PER_MS;
}

void dw_tcp_resume_accepting(dw_tcp_end *end)
{
    end->accept_paused_until_ns = 0;
    if (end->listener >= 0) dw_tcp_watch_for_accepts(end, true);
}

void dw_tcp_accept(dw_tcp_end *end)
{
    for (int i = 0; i < ACCEPTS; i++) {
        int fd = accept4(end->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) { /* usually no connection is pending any more */
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                pause_accepting(end);
            return;
        }
        unsigned at = 0;
        while (at < DW_TCP_PENDING_ACCEPTS && end->pending[at].phase != DW_TCP_IDLE) at++;
        if (at == DW_TCP_PENDING_ACCEPTS) { /* the oldest pending accept is closed */
            at = end->next_pending;
            end->next_pending = (at + 1) % DW_TCP_PENDING_ACCEPTS;
            dw_tcp_drop_accept(end, &end->pending[at]);
        }
        dw_tcp_tune(fd, end->peer_timeout_ms);
        end->n_pending++;
        dw_tcp_handshake *pending = &end->pending[at];
        if (dw_tcp_handshake_accept(
                pending, fd, dw_now_ns() + (int64_t)DW_TCP_HANDSHAKE_MS * DW_NS_PER_MS, end) &&
            dw_tcp_watch_handshake(end, pending, DW_TCP_ON_ACCEPT, at)) {
            dw_tcp_continue_accept(end, at);
        } else {
            dw_tcp_drop_accept(end, pending);
        }
    }
}
