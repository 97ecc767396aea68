/* SPDX-License-Identifier: Apache-2.0
 * tcp_guests.c - the connections that a listener accepts (guests), until they become stripes or
 * are closed. */
#include <errno.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "common/report.h"
#include "tcp/tcp_end.h"

enum { ACCEPTS = 8 };

void dw_tcp_dismiss(dw_tcp_end *end, dw_tcp_meeting *guest)
{
    if (guest->phase == DW_TCP_SAYING && end->n_open == 0 && end->is_opening &&
        guest->says[26] == DW_TCP_WELCOME) {
        end->has_session = false; /* the peer hung up before it had our whole hello */
        end->n_stripes = 0;
    }
    dw_tcp_meeting_end(guest);
    end->n_guests--;
}

void dw_tcp_stop_listening(dw_tcp_end *end)
{
    for (unsigned i = 0; end->guests && i < DW_TCP_GUESTS; i++) {
        if (end->guests[i].phase != DW_TCP_NOBODY) dw_tcp_dismiss(end, &end->guests[i]);
    }
    if (end->listener >= 0) close(end->listener);
    end->listener = -1;
}

static bool has_hung_up(const dw_tcp_meeting *guest)
{
    struct pollfd look = {.fd = guest->stream.fd, .events = POLLRDHUP};
    return poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

/* The hello of a guest has arrived. Returns the answer to it. */
static int judge_guest(dw_tcp_end *end, const dw_tcp_meeting *guest, unsigned *stripe)
{
    const unsigned char *named = guest->hears + 8;
    unsigned wish = guest->hears[25];
    *stripe = guest->hears[24];
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
    dw_tcp_forget_arriving(end);
    end->n_stripes = wish < end->options.stripes ? wish : end->options.stripes;
    return DW_TCP_WELCOME;
}

/* A guest uses another version of the framing. With TLS the guest was authenticated, so it is the
 * peer, and the open fails. Without TLS any stranger could have sent these eight bytes, so the
 * guest is only noted for the sentence of a timeout. */
static void judge_version(dw_tcp_end *end, const dw_tcp_meeting *guest)
{
    if (end->tls)
        dw_tcp_other_version(end, guest);
    else
        dw_tcp_note_stranger(end, &guest->stream, true,
                             "uses version %d of the framing over TCP, this end version %d; run "
                             "the same release of deltawire at both ends",
                             guest->hears[6], DW_TCP_VERSION);
}

void dw_tcp_hear_guest(dw_tcp_end *end, uint32_t index)
{
    dw_tcp_meeting *guest = &end->guests[index];
    if (guest->phase == DW_TCP_NOBODY) return;
    bool was_saying = guest->phase == DW_TCP_SAYING;
    dw_status status = dw_tcp_meeting_step(guest, end);
    if (status == DW_ERR_VERSION && end->is_opening) judge_version(end, guest);
    if (status == DW_ERR_PROTOCOL)
        dw_tcp_note_stranger(end, &guest->stream, false, "did not send deltawire's hello");
    if (status == DW_ERR_VERSION) { /* our hello tells it our version */
        dw_tcp_answer(guest, end, 0, DW_TCP_TAKEN);
        dw_tcp_meeting_step(guest, end);
    }
    if (status == DW_OK && !was_saying) {
        unsigned stripe;
        bool gone = has_hung_up(guest) || !dw_tcp_is_peer(end, &guest->stream);
        int answer = gone ? DW_TCP_TAKEN : judge_guest(end, guest, &stripe);
        if (gone) stripe = 0;
        dw_tcp_answer(guest, end, stripe, answer);
        status = dw_tcp_meeting_step(guest, end);
    }
    if (status == DW_PENDING) {
        dw_tcp_watch_meeting(end, guest, DW_TCP_ON_GUEST, index);
        return;
    }
    if (guest->phase == DW_TCP_SHAKING && guest->stream.text[0])
        dw_tcp_note_stranger(end, &guest->stream, true, "%s", guest->stream.text);
    if (status != DW_OK || guest->says[26] != DW_TCP_WELCOME ||
        !dw_tcp_is_session(end, guest->says + 8)) {
        dw_tcp_dismiss(end, guest);
        return;
    }
    end->n_guests--;
    dw_tcp_seat(end, guest, guest->says[24], dw_get64(guest->hears + 32),
                dw_get64(guest->hears + 40));
}

/* To be called when accept has failed because descriptors or memory ran out. The connection stays
 * pending, and epoll would report it again and again. So the listening socket is not watched for
 * one tick. */
static void turn_a_deaf_ear(dw_tcp_end *end)
{
    dw_tcp_hear_listener(end, false);
    end->deaf_until_ns = dw_now_ns() + (int64_t)DW_TCP_TICK_MS * DW_NS_PER_MS;
}

void dw_tcp_listen_again(dw_tcp_end *end)
{
    end->deaf_until_ns = 0;
    if (end->listener >= 0) dw_tcp_hear_listener(end, true);
}

void dw_tcp_admit(dw_tcp_end *end)
{
    for (int i = 0; i < ACCEPTS; i++) {
        int fd = accept4(end->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) { /* usually no connection is pending any more */
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                turn_a_deaf_ear(end);
            return;
        }
        unsigned at = 0;
        while (at < DW_TCP_GUESTS && end->guests[at].phase != DW_TCP_NOBODY) at++;
        if (at == DW_TCP_GUESTS) { /* the oldest guest is closed */
            at = end->next_guest;
            end->next_guest = (at + 1) % DW_TCP_GUESTS;
            dw_tcp_dismiss(end, &end->guests[at]);
        }
        dw_tcp_tune(fd, end->peer_timeout_ms);
        end->n_guests++;
        dw_tcp_meeting *guest = &end->guests[at];
        if (dw_tcp_meet_as_guest(guest, fd, dw_now_ns() + (int64_t)DW_TCP_MEETING_MS * DW_NS_PER_MS,
                                 end) &&
            dw_tcp_watch_meeting(end, guest, DW_TCP_ON_GUEST, at)) {
            dw_tcp_hear_guest(end, at);
        } else {
            dw_tcp_dismiss(end, guest);
        }
    }
}
