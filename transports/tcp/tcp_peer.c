/* SPDX-License-Identifier: Apache-2.0
 * tcp_peer.c - who the other end is, whether it is gone for good, and how that is said.
 *
 * While one stripe lives the others are only dialled again. When the last has gone, the dialler
 * comes back within moments if it lives; the listener waits. How long depends on how it went: a
 * word from the peer's machine (an end of the stream, a reset) means that its process has probably
 * died, and the grace is short; silence means that the network is to blame, and the peer's timeout
 * counts. A dialler that is refused knows at once: a living peer listens as long as it lives. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/report.h"
#include "tcp/tcp_end.h"

/* The session is what a stranger cannot know: how many of its bytes agree must not show in the
 * time. */
bool dw_tcp_is_session(const dw_tcp_end *end, const unsigned char *named)
{
    unsigned char differs = 0;
    for (int i = 0; i < DW_TCP_SESSION_BYTES; i++) differs |= named[i] ^ end->session[i];
    return end->has_session && differs == 0;
}

bool dw_tcp_is_new(const unsigned char *named)
{
    static const unsigned char none[DW_TCP_SESSION_BYTES];
    return memcmp(named, none, sizeof none) == 0;
}

/* Under TLS every stripe belongs to who proved to be the peer by the first. */
bool dw_tcp_is_peer(const dw_tcp_end *end, const dw_stream *stream)
{
    return !end->tls || end->is_opening || strcmp(end->peer_name, dw_tls_peer_name(stream)) == 0;
}

/* Whoever was welcomed went without a word: it may have been stopped, or be no more than a hello.
 * Another can take its place. */
bool dw_tcp_is_fresh(const dw_tcp_end *end)
{
    return end->listener >= 0 && !end->tls && !end->peer_left && !end->is_opening &&
           end->n_open == 0 && end->whole == 0 && end->acked == 0;
}

void dw_tcp_other_version(dw_tcp_end *end, const dw_tcp_meeting *meeting)
{
    char peer[96];
    dw_tcp_print_peer(meeting->stream.fd, peer);
    dw_tcp_fail(end, DW_ERR_VERSION,
                "%s frames TCP messages by version %d of the rules, this end by %d; run the same "
                "release of deltawire at both ends",
                peer, meeting->hears[6], DW_TCP_VERSION);
}

void dw_tcp_note_stranger(dw_tcp_end *end, const dw_stream *stream, bool is_reason,
                          const char *format, ...)
{
    end->n_turned_away++;
    if (end->is_reason_known && !is_reason) return;
    end->is_reason_known = is_reason;
    char peer[96];
    va_list arguments;
    dw_tcp_print_peer(stream->fd, peer);
    int n = snprintf(end->turned_away, sizeof end->turned_away, "%s, which ", peer);
    va_start(arguments, format);
    vsnprintf(end->turned_away + n, sizeof end->turned_away - (size_t)n, format, arguments);
    va_end(arguments);
}

void dw_tcp_say_strangers(const dw_tcp_end *end, char *text, size_t cap)
{
    if (end->n_turned_away == 0)
        snprintf(text, cap, "%s", "");
    else if (end->n_turned_away == 1)
        snprintf(text, cap, "; turned away: %s", end->turned_away);
    else
        snprintf(text, cap, "; %u were turned away, the last one: %s", end->n_turned_away,
                 end->turned_away);
}

/* Whether the peer's machine itself said that the connection is over. */
bool dw_tcp_is_told(int error)
{
    return error == 0 || error == ECONNRESET || error == EPIPE || error == ECONNABORTED;
}

/* The peer has gone for good. */
void dw_tcp_gone(dw_tcp_end *end)
{
    const char *peer = end->peer;
    int error = end->lost_error;
    uint64_t begun = dw_tcp_begun(end) + end->cut_bytes;
    if (dw_tcp_is_told(error) && end->lost_text[0]) { /* the cover knows better */
        dw_tcp_fail(end, DW_ERR_PEER,
                    "%s %s; its process has probably died, or somebody interferes", peer,
                    end->lost_text);
    } else if (!dw_tcp_is_told(error)) {
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
int64_t dw_tcp_patience(const dw_tcp_end *end)
{
    int64_t most = (int64_t)end->peer_timeout_ms * DW_NS_PER_MS;
    if (dw_tcp_is_fresh(end)) return INT64_MAX / 4; /* as long as the link's greeting may take */
    if (end->peer_left || end->options.grace_ns == 0) return 0;
    for (unsigned i = 0; i < end->n_stripes; i++) {
        if (end->stripes[i].is_silent) return most;
    }
    return end->options.grace_ns < most ? end->options.grace_ns : most;
}
