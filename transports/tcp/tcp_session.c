/* SPDX-License-Identifier: Apache-2.0
 * tcp_session.c - which connections an end has: dialled, taken, lost; and the clock.
 *
 * While one stripe lives the others are only dialled again. When the last has gone, the dialler
 * comes back within moments if it lives; the listener waits. How long depends on how it went: a
 * word from the peer's machine (an end of the stream, a reset) means that its process has probably
 * died, and the grace is short; silence means that the network is to blame, and the peer's timeout
 * counts. A dialler that is refused knows at once: a living peer listens as long as it lives. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "link.h"
#include "tcp_end.h"

enum { ON_LISTENER = 0, ON_GUEST = 1, ON_DIAL = 2, ON_STRIPE = 3 };
enum { EVENTS = 32, ACCEPTS = 8, FULL_TURN = 16 };

static const int64_t meeting_ns = (int64_t)10000 * DW_NS_PER_MS,
                     dial_ns = (int64_t)5000 * DW_NS_PER_MS;
static const int64_t tick_ns = (int64_t)100 * DW_NS_PER_MS;
static const int64_t first_backoff_ns = (int64_t)50 * DW_NS_PER_MS,
                     most_backoff_ns = (int64_t)10000 * DW_NS_PER_MS;
static const int64_t lost_backoff_ns = (int64_t)400 * DW_NS_PER_MS; /* well within the grace that
                                                                       the other end gives */
/* So long nothing moves on a stripe before others take over what it carries. */
static const int64_t patience_ns = (int64_t)500 * DW_NS_PER_MS;

void dw_tcp_fail(dw_tcp_end *end, dw_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    dw_link_report_first(&end->status, &end->why, status, format, arguments);
    va_end(arguments);
}

/* ---- What is watched ----------------------------------------------------------------------------
 */

/* 0: a socket that is new to the poller does not fit, errno tells why. To change what is wanted of
 * one cannot fail. */
static int watch(const dw_tcp_end *end, int fd, int how, uint32_t events, uint32_t kind,
                 uint32_t index)
{
    struct epoll_event event = {.events = events, .data.u64 = (uint64_t)kind << 32 | index};
    return epoll_ctl(end->poller, how, fd, &event) == 0;
}

void dw_tcp_watch_listener(dw_tcp_end *end)
{
    if (watch(end, end->listener, EPOLL_CTL_ADD, EPOLLIN, ON_LISTENER, 0)) return;
    dw_tcp_fail(end, DW_ERR_IO, "cannot watch the port for a peer: %s", dw_link_system_says(errno));
}

void dw_tcp_watch_stripe(dw_tcp_end *end, dw_tcp_stripe *stripe)
{
    const uint32_t events = (uint32_t)dw_stream_events(&stripe->stream, 1, stripe->is_blocked);
    if (events == stripe->events) return;
    stripe->events = events;
    watch(end, stripe->stream.fd, EPOLL_CTL_MOD, events, ON_STRIPE,
          (uint32_t)(stripe - end->stripes));
}

static int watch_meeting(const dw_tcp_end *end, dw_tcp_meeting *meeting, uint32_t kind,
                         uint32_t index)
{
    const uint32_t events = dw_tcp_meeting_events(meeting);
    if (events == meeting->events) return 1;
    if (!watch(end, meeting->stream.fd, meeting->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, events,
               kind, index))
        return 0;
    meeting->events = events;
    return 1;
}

/* ---- Stripes come -------------------------------------------------------------------------------
 */

/* The connection is met: it becomes a stripe, in place of one that the other end has given up. */
static void seat(dw_tcp_end *end, dw_tcp_meeting *meeting, unsigned index, uint64_t whole,
                 uint64_t limit)
{
    dw_tcp_stripe *stripe = &end->stripes[index];
    if (stripe->is_open) dw_tcp_lose(end, stripe, ECONNRESET);
    if (end->n_open == 0 && !stripe->was_open) dw_tcp_print_peer(meeting->stream.fd, end->peer);
    if (end->tls && end->is_opening) {
        snprintf(end->peer_name, sizeof end->peer_name, "%s", dw_tls_peer_name(&meeting->stream));
        dw_tls_session(&meeting->stream, end->tls_session);
    }
    stripe->stream = meeting->stream;
    stripe->events = 0;
    meeting->phase = DW_TCP_NOBODY;
    stripe->is_open = stripe->is_clear = 1;
    stripe->is_silent = 0;
    stripe->moved_ns = dw_link_now_ns();
    end->reconnects += (uint64_t)stripe->was_open;
    stripe->was_open = 1;
    *(end->is_opening ? &end->sent : &end->sent_apart) += DW_TCP_HELLO_BYTES;
    *(end->is_opening ? &end->received : &end->received_apart) += DW_TCP_HELLO_BYTES;
    end->n_open++;
    end->lost_ns = 0;
    end->cut_bytes = 0;
    end->is_opening = 0;
    end->peer_left = 0;
    end->has_looked = 0;
    end->is_restless = 1; /* it may have said more than its hello */
    if (dw_tcp_ask_kernel(stripe->stream.fd).rtt_us >= DW_TCP_NEAR_US &&
        end->window < DW_TCP_WINDOW_BYTES) {
        end->window = DW_TCP_WINDOW_BYTES;
        end->tell_ns = 1;
    }
    dw_tcp_acknowledge(end, whole, limit);
    dw_tcp_watch_stripe(end, stripe);
}

/* The session is what a stranger cannot know: how many of its bytes agree must not show in the
 * time. */
static int is_session(const dw_tcp_end *end, const unsigned char *named)
{
    unsigned char differs = 0;
    for (int i = 0; i < DW_TCP_SESSION_BYTES; i++) differs |= named[i] ^ end->session[i];
    return end->has_session && differs == 0;
}

static int is_new(const unsigned char *named)
{
    static const unsigned char none[DW_TCP_SESSION_BYTES];
    return memcmp(named, none, sizeof none) == 0;
}

/* ---- Guests -------------------------------------------------------------------------------------
 */

static void dismiss(dw_tcp_end *end, dw_tcp_meeting *guest)
{
    if (guest->phase == DW_TCP_SAYING && end->n_open == 0 && end->is_opening &&
        guest->says[26] == DW_TCP_WELCOME) {
        end->has_session = 0; /* the peer went while it was welcomed */
        end->n_stripes = 0;
    }
    dw_tcp_meeting_end(guest);
    end->n_guests--;
}

void dw_tcp_stop_listening(dw_tcp_end *end)
{
    for (unsigned i = 0; end->guests && i < DW_TCP_GUESTS; i++) {
        if (end->guests[i].phase != DW_TCP_NOBODY) dismiss(end, &end->guests[i]);
    }
    if (end->listener >= 0) close(end->listener);
    end->listener = -1;
}

static int has_hung_up(const dw_tcp_meeting *guest)
{
    struct pollfd look = {.fd = guest->stream.fd, .events = POLLRDHUP};
    return poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

/* Whoever was welcomed went without a word: it may have been stopped, or be no more than a hello.
 * Another can take its place. */
static int is_fresh(const dw_tcp_end *end)
{
    return end->listener >= 0 && !end->tls && !end->peer_left && !end->is_opening &&
           end->n_open == 0 && end->whole == 0 && end->acked == 0;
}

/* Its hello is here: what it is told. */
static int judge_guest(dw_tcp_end *end, const dw_tcp_meeting *guest, unsigned *stripe)
{
    const unsigned char *named = guest->hears + 8;
    const unsigned wish = guest->hears[25];
    *stripe = guest->hears[24];
    if (!is_new(named))
        return is_session(end, named) && *stripe < end->n_stripes && !end->peer_left
                   ? DW_TCP_WELCOME
                   : DW_TCP_UNKNOWN;
    if ((end->is_opening ? end->has_session : !is_fresh(end)) || *stripe != 0 || wish == 0)
        return DW_TCP_TAKEN;
    if (getrandom(end->session, sizeof end->session, 0) != (ssize_t)sizeof end->session)
        return DW_TCP_TAKEN;
    end->has_session = 1;
    end->peer_limit = 0;
    dw_tcp_forget_arriving(end); /* parts of messages that a peer before this one sent are none of
                                    this one's */
    end->n_stripes = wish < end->options.stripes ? wish : end->options.stripes;
    return DW_TCP_WELCOME;
}

static void other_version(dw_tcp_end *end, const dw_tcp_meeting *meeting)
{
    char peer[96];
    dw_tcp_print_peer(meeting->stream.fd, peer);
    dw_tcp_fail(end, DW_ERR_VERSION,
                "%s frames TCP messages by version %d of the rules, this end by %d; run the same "
                "release of deltawire at both ends",
                peer, meeting->hears[6], DW_TCP_VERSION);
}

/* For the sentence, should the peer never come: perhaps it was this one, with another key. */
static void note_stranger(dw_tcp_end *end, const dw_stream *stream)
{
    char peer[96];
    dw_tcp_print_peer(stream->fd, peer);
    snprintf(end->turned_away, sizeof end->turned_away, "; turned away: %s, which %s", peer,
             stream->text);
}

/* Under TLS every stripe belongs to who proved to be the peer by the first. */
static int is_peer(const dw_tcp_end *end, const dw_stream *stream)
{
    return !end->tls || end->is_opening || strcmp(end->peer_name, dw_tls_peer_name(stream)) == 0;
}

static void hear_guest(dw_tcp_end *end, uint32_t index)
{
    dw_tcp_meeting *guest = &end->guests[index];
    if (guest->phase == DW_TCP_NOBODY) return;
    int was_saying = guest->phase == DW_TCP_SAYING;
    dw_status status = dw_tcp_meeting_step(guest, end);
    if (status == DW_ERR_VERSION && end->is_opening) other_version(end, guest);
    if (status == DW_ERR_VERSION) { /* so that it learns the reason as well */
        dw_tcp_answer(guest, end, 0, DW_TCP_TAKEN);
        dw_tcp_meeting_step(guest, end);
    }
    if (status == DW_OK && !was_saying) {
        unsigned stripe;
        const int gone = has_hung_up(guest) || !is_peer(end, &guest->stream),
                  answer = gone ? DW_TCP_TAKEN : judge_guest(end, guest, &stripe);
        if (gone) stripe = 0;
        dw_tcp_answer(guest, end, stripe, answer);
        status = dw_tcp_meeting_step(guest, end);
    }
    if (status == DW_PENDING) {
        watch_meeting(end, guest, ON_GUEST, index);
        return;
    }
    if (guest->phase == DW_TCP_SHAKING && guest->stream.text[0]) note_stranger(end, &guest->stream);
    if (status != DW_OK || guest->says[26] != DW_TCP_WELCOME || !is_session(end, guest->says + 8)) {
        dismiss(end, guest);
        return;
    }
    end->n_guests--;
    seat(end, guest, guest->says[24], dw_get64(guest->hears + 32), dw_get64(guest->hears + 40));
}

/* No descriptor or no memory is left for whoever knocks. It goes on to knock, and would keep us
 * awake: we do not listen for a moment. */
static void turn_a_deaf_ear(dw_tcp_end *end)
{
    watch(end, end->listener, EPOLL_CTL_MOD, 0, ON_LISTENER, 0);
    end->deaf_until_ns = dw_link_now_ns() + tick_ns;
}

static void listen_again(dw_tcp_end *end)
{
    end->deaf_until_ns = 0;
    if (end->listener >= 0) watch(end, end->listener, EPOLL_CTL_MOD, EPOLLIN, ON_LISTENER, 0);
}

static void admit(dw_tcp_end *end)
{
    for (int i = 0; i < ACCEPTS; i++) {
        const int fd = accept4(end->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) { /* most often it has left already */
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                turn_a_deaf_ear(end);
            return;
        }
        unsigned at = 0;
        while (at < DW_TCP_GUESTS && end->guests[at].phase != DW_TCP_NOBODY) at++;
        if (at == DW_TCP_GUESTS) { /* the oldest goes */
            at = end->next_guest;
            end->next_guest = (at + 1) % DW_TCP_GUESTS;
            dismiss(end, &end->guests[at]);
        }
        dw_tcp_tune(fd, end->peer_timeout_ms);
        end->n_guests++;
        dw_tcp_meeting *guest = &end->guests[at];
        if (dw_tcp_meet_as_guest(guest, fd, dw_link_now_ns() + meeting_ns, end) &&
            watch_meeting(end, guest, ON_GUEST, at)) {
            hear_guest(end, at);
        } else {
            dismiss(end, guest);
        }
    }
}

/* Whether the peer's machine itself said that the connection is over. */
static int is_told(int error)
{
    return error == 0 || error == ECONNRESET || error == EPIPE || error == ECONNABORTED;
}

/* ---- Dialling -----------------------------------------------------------------------------------
 */

static void dial_later(dw_tcp_end *end, unsigned index, int64_t now)
{
    dw_tcp_stripe *stripe = &end->stripes[index];
    const int64_t most = end->n_open > 0 ? most_backoff_ns : lost_backoff_ns;
    stripe->backoff_ns = stripe->backoff_ns == 0 ? first_backoff_ns : 2 * stripe->backoff_ns;
    if (stripe->backoff_ns > most) stripe->backoff_ns = most;
    stripe->redial_ns = now + stripe->backoff_ns;
}

static void gone(dw_tcp_end *end);

/* refused: nobody listens there, or a listener that knows nothing of this session. */
static void dial_failed(dw_tcp_end *end, unsigned index, const char *trouble, int refused)
{
    dw_tcp_meeting_end(&end->dials[index]);
    snprintf(end->trouble, sizeof end->trouble, "%s", trouble);
    if (end->is_opening) return;
    if (refused && end->n_open == 0) { /* its machine is there, but it is not */
        if (!is_told(end->lost_error)) end->lost_error = ECONNRESET;
        gone(end);
    }
    dial_later(end, index, dw_link_now_ns());
}

void dw_tcp_start_dial(dw_tcp_end *end, unsigned index, int64_t now)
{
    const int fd =
        dw_tcp_dial((const struct sockaddr *)&end->address, end->address_len, &end->options);
    if (fd < 0) {
        const int error = errno;
        dial_failed(end, index, dw_link_system_says(error), error == ECONNREFUSED);
        return;
    }
    if (!end->trouble[0]) snprintf(end->trouble, sizeof end->trouble, "no answer");
    if (!dw_tcp_meet_as_dialler(&end->dials[index], fd, now + (end->tls ? meeting_ns : dial_ns),
                                end, index)) {
        dial_failed(end, index, "no memory for TLS", 0);
    } else if (!watch_meeting(end, &end->dials[index], ON_DIAL, index)) {
        dial_failed(end, index, dw_link_system_says(errno), 0);
    }
}

/* The listener's hello is here. */
static void take_answer(dw_tcp_end *end, unsigned index)
{
    const dw_tcp_meeting *dial = &end->dials[index];
    const unsigned n = dial->hears[25], answer = dial->hears[26];
    if (answer != DW_TCP_WELCOME) {
        dial_failed(end, index,
                    answer == DW_TCP_TAKEN ? "its listener has another peer"
                                           : "it knows nothing of this session",
                    1);
    } else if (end->is_opening && (n == 0 || n > end->options.stripes || is_new(dial->hears + 8))) {
        dw_tcp_fail(end, DW_ERR_PROTOCOL, "%s answered with a hello that makes no sense",
                    end->peer);
    } else if (!end->is_opening &&
               (!is_session(end, dial->hears + 8) || !is_peer(end, &dial->stream))) {
        dial_failed(end, index, "it answers for another session", 1);
    } else {
        if (end->is_opening) memcpy(end->session, dial->hears + 8, DW_TCP_SESSION_BYTES);
        end->has_session = 1;
        end->n_stripes = end->is_opening ? n : end->n_stripes;
        seat(end, &end->dials[index], index, dw_get64(dial->hears + 32),
             dw_get64(dial->hears + 40));
    }
}

static void pursue_dial(dw_tcp_end *end, uint32_t index)
{
    dw_tcp_meeting *dial = &end->dials[index];
    if (dial->phase == DW_TCP_NOBODY) return;
    const dw_status status = dw_tcp_meeting_step(dial, end);
    const int error = errno, was_hearing = dial->phase == DW_TCP_HEARING;
    if (status == DW_PENDING) {
        if (was_hearing)
            snprintf(end->trouble, sizeof end->trouble,
                     "connected, but it does not say what it is");
        if (dial->phase == DW_TCP_SHAKING)
            snprintf(end->trouble, sizeof end->trouble,
                     "connected, but it does not go on with TLS's handshake");
        watch_meeting(end, dial, ON_DIAL, index);
    } else if (status == DW_OK) {
        take_answer(end, index);
    } else if (status == DW_ERR_AUTH && end->is_opening) {
        char peer[96];
        dw_tcp_print_peer(dial->stream.fd, peer);
        dw_tcp_fail(end, status, "%s %s", peer, dial->stream.text);
    } else if (status == DW_ERR_AUTH || status == DW_ERR_PEER || status == DW_ERR_TIMEOUT) {
        dial_failed(end, index,
                    "it hung up in the middle of TLS's handshake; is its link without TLS?", 0);
    } else if (status == DW_ERR_VERSION && end->is_opening) {
        other_version(end, dial);
    } else if (status == DW_ERR_PROTOCOL && end->is_opening) {
        char peer[96];
        dw_tcp_print_peer(dial->stream.fd, peer);
        dw_tcp_fail(
            end, status,
            "what answers at %s is not deltawire; is another program listening on this port?",
            peer);
    } else if (status == DW_ERR_IO) {
        const int hung_up = is_told(error) && dial->phase != DW_TCP_CONNECTING;
        dial_failed(end, index,
                    hung_up            ? end->tls ? "it hung up before it said what it is"
                                                  : "it hung up before it said what it is; does it want a key?"
                    : error == EISCONN ? "it is dialling as well"
                                       : strerror(error),
                    error == ECONNREFUSED);
    } else if (status == DW_ERR_VERSION || status == DW_ERR_PROTOCOL) {
        dial_failed(end, index, "something else answers there now", 1);
    } else {
        dw_tcp_fail(end, status, "%s", dw_status_string(status));
    }
}

/* ---- Stripes go ---------------------------------------------------------------------------------
 */

void dw_tcp_lose(dw_tcp_end *end, dw_tcp_stripe *stripe, int error)
{
    const unsigned index = (unsigned)(stripe - end->stripes);
    if (!stripe->is_open) return;
    const dw_tcp_kernel last = dw_tcp_ask_kernel(stripe->stream.fd);
    end->gone.sent += last.sent;
    end->gone.received += last.received;
    end->gone.retransmits += last.retransmits;
    end->cut_bytes +=
        stripe->ahead_n + (stripe->is_reading ? stripe->done + DW_TCP_RECORD_BYTES : 0);
    dw_tcp_forget_reading(end, stripe);
    memcpy(end->lost_text, stripe->stream.text, sizeof end->lost_text);
    dw_stream_close(&stripe->stream);
    stripe->is_open = stripe->is_writing = stripe->is_blocked = stripe->is_broken =
        stripe->is_late = 0;
    stripe->must_ask = stripe->must_answer = 0;
    stripe->asked_ns = 0;
    stripe->is_silent = !is_told(error);
    stripe->redial_ns = dw_link_now_ns() + stripe->backoff_ns;
    end->n_open--;
    end->tell_ns = 1; /* what was said last may be lost */
    dw_tcp_take_back(end, index);
    if (end->n_open > 0) return;
    end->lost_ns = dw_link_now_ns();
    end->lost_error = error;
}

/* The peer has gone for good. */
static void gone(dw_tcp_end *end)
{
    const char *peer = end->peer;
    const int error = end->lost_error;
    const uint64_t begun = dw_tcp_begun(end) + end->cut_bytes;
    if (is_told(error) && end->lost_text[0]) { /* the cover knows better */
        dw_tcp_fail(end, DW_ERR_PEER,
                    "%s %s; its process has probably died, or somebody interferes", peer,
                    end->lost_text);
    } else if (!is_told(error)) {
        dw_tcp_fail(end, DW_ERR_TIMEOUT,
                    "%s does not answer any more (%s); is the machine or the network down?", peer,
                    strerror(error));
    } else if (begun > 0) {
        dw_tcp_fail(end, DW_ERR_PEER,
                    "%s closed the connection in the middle of a message (after %llu bytes of it); "
                    "its process "
                    "has probably died",
                    peer, (unsigned long long)begun);
    } else if (error != 0) {
        dw_tcp_fail(end, DW_ERR_PEER, "%s broke the connection (%s); its process has probably died",
                    peer, strerror(error));
    } else {
        dw_tcp_fail(end, DW_ERR_PEER,
                    "%s closed the connection without a goodbye; its process has probably died or "
                    "was stopped",
                    peer);
    }
}

/* How long an end without a connection waits for the other. */
static int64_t patience_of(const dw_tcp_end *end)
{
    const int64_t most = (int64_t)end->peer_timeout_ms * DW_NS_PER_MS;
    if (is_fresh(end)) return INT64_MAX / 4; /* as long as the link's greeting may take */
    if (end->peer_left || end->options.grace_ns == 0) return 0;
    for (unsigned i = 0; i < end->n_stripes; i++) {
        if (end->stripes[i].is_silent) return most;
    }
    return end->options.grace_ns < most ? end->options.grace_ns : most;
}

/* ---- The clock ----------------------------------------------------------------------------------
 */

static int is_missing(const dw_tcp_end *end, unsigned i)
{
    return end->dials && !end->peer_left && !end->stripes[i].is_open;
}

static void look_at_meetings(dw_tcp_end *end, int64_t now)
{
    for (unsigned i = 0; end->n_guests > 0 && i < DW_TCP_GUESTS; i++) {
        if (end->guests[i].phase == DW_TCP_NOBODY || now < end->guests[i].until_ns) continue;
        hear_guest(end, i); /* TLS, too, looks at its deadline, and has a sentence for it */
        if (end->guests[i].phase != DW_TCP_NOBODY) dismiss(end, &end->guests[i]);
    }
    for (unsigned i = 0; i < end->n_stripes && !end->is_opening; i++) {
        if (!is_missing(end, i)) continue;
        dw_tcp_meeting *dial = &end->dials[i];
        if (dial->phase == DW_TCP_NOBODY && now >= end->stripes[i].redial_ns)
            dw_tcp_start_dial(end, i, now);
        else if (dial->phase != DW_TCP_NOBODY && now >= dial->until_ns)
            dial_failed(end, i, "no answer", 0);
    }
}

static int needs_ticks(const dw_tcp_end *end)
{
    return end->acked < end->next_message && end->n_open > 1;
}

static void look_at_progress(dw_tcp_end *end, int64_t now)
{
    int64_t round_trip_ns = 0;
    if (now - end->tick_ns < tick_ns) return;
    end->tick_ns = now;
    for (unsigned i = 0; i < end->n_stripes; i++) {
        dw_tcp_stripe *stripe = &end->stripes[i];
        if (!stripe->is_open || stripe->is_clear) continue;
        const dw_tcp_kernel kernel = dw_tcp_ask_kernel(stripe->stream.fd);
        if (kernel.sent != stripe->delivered) stripe->moved_ns = now;
        stripe->delivered = kernel.sent;
        stripe->is_clear = kernel.queued == 0 && !stripe->is_writing;
        if ((int64_t)kernel.rtt_us * 1000 > round_trip_ns)
            round_trip_ns = (int64_t)kernel.rtt_us * 1000;
    }
    dw_tcp_overtake(end, now, patience_ns + 2 * round_trip_ns);
}

static void look_at_clock(dw_tcp_end *end)
{
    const int64_t now = dw_link_now_ns();
    /* TLS has a deadline of its own. */
    if (end->is_opening && end->dials && end->dials[0].phase == DW_TCP_SHAKING) pursue_dial(end, 0);
    if (end->deaf_until_ns && now >= end->deaf_until_ns) listen_again(end);
    if (end->n_guests > 0 || end->n_open < end->n_stripes) look_at_meetings(end, now);
    if (needs_ticks(end)) look_at_progress(end, now);
    if (end->n_open == 0 && !end->is_opening && now - end->lost_ns >= patience_of(end)) gone(end);
}

static void earlier(int64_t *at, int64_t other)
{
    if (other < *at) *at = other;
}

int64_t dw_tcp_wakes(const dw_tcp_end *end)
{
    int64_t at = INT64_MAX;
    if (end->is_restless || dw_tcp_sends_on(end)) return 0;
    if (end->tell_ns && dw_tcp_can_tell(end)) earlier(&at, end->tell_ns);
    if (needs_ticks(end)) earlier(&at, end->tick_ns + tick_ns);
    if (end->deaf_until_ns) earlier(&at, end->deaf_until_ns);
    for (unsigned i = 0; end->n_guests > 0 && i < DW_TCP_GUESTS; i++) {
        if (end->guests[i].phase != DW_TCP_NOBODY) earlier(&at, end->guests[i].until_ns);
    }
    for (unsigned i = 0; end->n_open < end->n_stripes && i < end->n_stripes; i++) {
        if (!is_missing(end, i)) continue;
        earlier(&at, end->dials[i].phase == DW_TCP_NOBODY ? end->stripes[i].redial_ns
                                                          : end->dials[i].until_ns);
    }
    if (end->n_open == 0) earlier(&at, end->lost_ns + patience_of(end));
    if (at == INT64_MAX) return -1;
    const int64_t left = at - dw_link_now_ns();
    return left > 0 ? left : 0;
}

/* ---- A turn -------------------------------------------------------------------------------------
 */

static void handle(dw_tcp_end *end, const struct epoll_event *event)
{
    const uint32_t kind = (uint32_t)(event->data.u64 >> 32), index = (uint32_t)event->data.u64;
    if (kind == ON_LISTENER) admit(end);
    if (kind == ON_GUEST) hear_guest(end, index);
    if (kind == ON_DIAL) pursue_dial(end, index);
    if (kind != ON_STRIPE) return;
    dw_tcp_stripe *stripe = &end->stripes[index];
    if (stripe->is_open && (event->events & EPOLLOUT)) dw_tcp_write(end, stripe);
    if (stripe->is_open && (event->events & ~(uint32_t)EPOLLOUT)) dw_tcp_read(end, stripe);
}

void dw_tcp_turn(dw_tcp_end *end, int wait_ms)
{
    struct epoll_event events[EVENTS];
    const int is_full = end->is_restless || end->n_open == 0 || ++end->turns % FULL_TURN == 0;
    end->moved_awaited = 0;
    end->is_restless = 0;
    /* Short messages come one after the other by the same stripe: looking there first saves asking
     * which one it is. */
    if (!is_full) dw_tcp_read(end, &end->stripes[end->hot]);
    if (is_full || !dw_tcp_has_next(end)) {
        const int n = epoll_wait(end->poller, events, EVENTS, wait_ms);
        for (int i = 0; i < n && end->status == DW_OK; i++) handle(end, &events[i]);
        for (unsigned i = 0; i < end->n_stripes; i++) { /* what a stream holds itself, poll does not
                                                           see */
            dw_tcp_stripe *stripe = &end->stripes[i];
            if (stripe->is_open && (stripe->is_broken || dw_stream_has_more(&stripe->stream)))
                dw_tcp_read(end, stripe);
        }
        if (!dw_tcp_has_next(end)) dw_tcp_decide(end);
        look_at_clock(end);
    }
    dw_tcp_give(end);
}
