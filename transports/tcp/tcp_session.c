/* SPDX-License-Identifier: Apache-2.0
 * tcp_session.c - one turn of an end: events of the sockets, and timers. */
#include <sys/epoll.h>

#include "common/report.h"
#include "tcp/tcp_end.h"

enum { EVENTS = 32, FULL_TURN = 16 };

static const int64_t tick_ns = (int64_t)DW_TCP_TICK_MS * DW_NS_PER_MS;
/* After so long without progress on a stripe, other stripes send its chunks again. */
static const int64_t patience_ns = (int64_t)500 * DW_NS_PER_MS;

/* ---- Timers ---------------------------------------------------------------------------------- */

static bool is_missing(const dw_tcp_end *end, unsigned i)
{
    return end->connects.attempts && !end->connections.peer_left &&
           !end->connections.stripes[i].is_open;
}

static void check_handshakes(dw_tcp_end *end, int64_t now)
{
    dw_tcp_accepts *accepts = &end->accepts;
    for (unsigned i = 0; accepts->n_pending > 0 && i < DW_TCP_PENDING_ACCEPTS; i++) {
        if (accepts->pending[i].phase == DW_TCP_IDLE || now < accepts->pending[i].until_ns)
            continue;
        /* the handshake notices its deadline as well, and sets a sentence */
        dw_tcp_continue_accept(&end->accepts, i);
        if (accepts->pending[i].phase != DW_TCP_IDLE)
            dw_tcp_drop_accept(accepts, &accepts->pending[i]);
    }
    for (unsigned i = 0; i < end->connections.n && !end->session.is_opening; i++) {
        if (!is_missing(end, i)) continue;
        const dw_tcp_handshake *attempt = &end->connects.attempts[i];
        if (attempt->phase == DW_TCP_IDLE && now >= end->connections.stripes[i].redial.at_ns)
            dw_tcp_start_connect(&end->connects, i, now);
        else if (attempt->phase != DW_TCP_IDLE && now >= attempt->until_ns)
            dw_tcp_connect_failed(&end->connects, i, "no answer", false);
    }
}

static bool needs_ticks(const dw_tcp_end *end)
{
    return end->sending.acked < end->sending.next_message;
}

static void tick(dw_tcp_end *end, int64_t now)
{
    if (now - end->turn.tick_ns < tick_ns) return;
    end->turn.tick_ns = now;
    uint32_t segment;
    int64_t round_trip_ns = dw_tcp_check_progress(&end->progress, &end->connections, now, &segment);
    dw_tcp_check_timeout(&end->failure, &end->progress, now, end->settings.peer_timeout_ms);
    if (segment && end->failure.status == DW_OK) dw_tcp_shorten_segments(&end->sending, segment);
    if (end->connections.n_open > 1)
        dw_tcp_resend_stuck(&end->sending, now, patience_ns + 2 * round_trip_ns);
}

/* How long this end waits for the other while it has no connection. */
static int64_t patience_of(const dw_tcp_end *end)
{
    int64_t most = (int64_t)end->settings.peer_timeout_ms * DW_NS_PER_MS;
    /* the time limit of the link's handshake applies instead */
    if (dw_tcp_is_fresh(&end->accepts)) return INT64_MAX / 4;
    if (end->connections.peer_left || end->settings.options.grace_ns == 0) return 0;
    for (unsigned i = 0; i < end->connections.n; i++) {
        if (end->connections.stripes[i].is_silent) return most;
    }
    return end->settings.options.grace_ns < most ? end->settings.options.grace_ns : most;
}

static void check_timers(dw_tcp_end *end)
{
    int64_t now = dw_now_ns();
    /* Lets the handshake check its own deadline. */
    if (end->session.is_opening && end->connects.attempts &&
        end->connects.attempts[0].phase == DW_TCP_IN_TLS)
        dw_tcp_continue_connect(&end->connects, 0);
    if (end->accepts.paused_until_ns && now >= end->accepts.paused_until_ns)
        dw_tcp_resume_accepting(&end->accepts);
    if (end->accepts.n_pending > 0 || end->connections.n_open < end->connections.n)
        check_handshakes(end, now);
    if (needs_ticks(end)) tick(end, now);
    if (end->connections.n_open == 0 && !end->session.is_opening &&
        now - end->connections.lost_ns >= patience_of(end))
        dw_tcp_peer_gone(&end->failure, &end->connections, end->receiving.ahead_bytes);
}

static void earlier(int64_t *at, int64_t other)
{
    if (other < *at) *at = other;
}

int64_t dw_tcp_wakes(const dw_tcp_end *end)
{
    const dw_tcp_accepts *accepts = &end->accepts;
    const dw_tcp_connections *connections = &end->connections;
    int64_t at = INT64_MAX;
    if (end->reading.must_read_again || dw_tcp_can_advance(&end->sending)) return 0;
    if (end->receiving.ack.due_ns && dw_tcp_can_ack(&end->sending))
        earlier(&at, end->receiving.ack.due_ns);
    if (needs_ticks(end)) earlier(&at, end->turn.tick_ns + tick_ns);
    if (accepts->paused_until_ns) earlier(&at, accepts->paused_until_ns);
    for (unsigned i = 0; accepts->n_pending > 0 && i < DW_TCP_PENDING_ACCEPTS; i++) {
        if (accepts->pending[i].phase != DW_TCP_IDLE) earlier(&at, accepts->pending[i].until_ns);
    }
    for (unsigned i = 0; connections->n_open < connections->n && i < connections->n; i++) {
        if (!is_missing(end, i)) continue;
        earlier(&at, end->connects.attempts[i].phase == DW_TCP_IDLE
                         ? connections->stripes[i].redial.at_ns
                         : end->connects.attempts[i].until_ns);
    }
    if (connections->n_open == 0) earlier(&at, connections->lost_ns + patience_of(end));
    if (at == INT64_MAX) return -1;
    int64_t left = at - dw_now_ns();
    return left > 0 ? left : 0;
}

/* ---- A turn ---------------------------------------------------------------------------------- */

static void handle(dw_tcp_end *end, const struct epoll_event *event)
{
    uint32_t kind = (uint32_t)(event->data.u64 >> 32), index = (uint32_t)event->data.u64;
    if (kind == DW_TCP_ON_LISTENER) dw_tcp_accept(&end->accepts);
    if (kind == DW_TCP_ON_ACCEPT) dw_tcp_continue_accept(&end->accepts, index);
    if (kind == DW_TCP_ON_CONNECT) dw_tcp_continue_connect(&end->connects, index);
    if (kind != DW_TCP_ON_STRIPE) return;
    dw_tcp_stripe *stripe = &end->connections.stripes[index];
    if (stripe->is_open && (event->events & EPOLLOUT)) dw_tcp_write(&end->sending, stripe);
    if (stripe->is_open && (event->events & ~(uint32_t)EPOLLOUT))
        dw_tcp_read(&end->sending, stripe);
}

void dw_tcp_turn(dw_tcp_end *end, int wait_ms)
{
    struct epoll_event events[EVENTS];
    bool is_full = end->reading.must_read_again || end->connections.n_open == 0 ||
                   ++end->turn.n % FULL_TURN == 0;
    dw_tcp_reading_begin(&end->reading);
    /* Short messages arrive one after the other on the same stripe. Reading that stripe first saves
     * a call of epoll_wait. */
    if (!is_full) dw_tcp_read(&end->sending, &end->connections.stripes[end->reading.last_read]);
    if (is_full || !dw_tcp_has_next(&end->receiving)) {
        int n = epoll_wait(end->connections.poller, events, EVENTS, wait_ms);
        for (int i = 0; i < n && end->failure.status == DW_OK; i++) handle(end, &events[i]);
        for (unsigned i = 0; i < end->connections.n; i++) {
            /* epoll does not report bytes that TLS has read from the socket and buffered. */
            dw_tcp_stripe *stripe = &end->connections.stripes[i];
            if (stripe->is_open && (stripe->out.is_broken || dw_stream_has_more(&stripe->stream)))
                dw_tcp_read(&end->sending, stripe);
        }
        if (!dw_tcp_has_next(&end->receiving)) dw_tcp_decide(&end->sending);
        check_timers(end);
    }
    dw_tcp_note_partial(&end->receiving);
    dw_tcp_send(&end->sending);
}
