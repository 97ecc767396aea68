/* SPDX-License-Identifier: Apache-2.0
 * tcp_peer.c - who the other end is, whether it is gone for good, and how that is said.
 *
 * While at least one stripe is open, lost ones are only dialled again. When the last one is lost,
 * the dialler dials again at once, and the listener waits for it. How long the listener waits
 * depends on how the connection ended. If the peer's machine ended it (by an end of stream or a
 * reset), the peer's process has probably died, and the listener waits for the short grace. If the
 * connection just fell silent, the network is probably at fault, and the listener waits for
 * peer_timeout_ms. A dialler whose connection is refused knows at once that the peer is gone,
 * because a listener keeps its port open as long as it lives. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "common/report.h"
#include "tcp/tcp_end.h"

/* A stranger does not know the session. The comparison takes the same time wherever the bytes
 * differ, so that nobody can guess the session byte by byte. */
bool dw_tcp_is_session(const dw_tcp_session *session, const unsigned char *named)
{
    unsigned char differs = 0;
    for (int i = 0; i < DW_TCP_SESSION_BYTES; i++) differs |= named[i] ^ session->id[i];
    return session->has_id && differs == 0;
}

bool dw_tcp_is_new(const unsigned char *named)
{
    static const unsigned char none[DW_TCP_SESSION_BYTES];
    return memcmp(named, none, sizeof none) == 0;
}

/* Under TLS every stripe must be authenticated with the same name as the first. */
bool dw_tcp_is_peer(const dw_tcp_session *session, const dw_stream *stream)
{
    return !session->tls || session->is_opening ||
           strcmp(session->peer_name, dw_tls_peer_name(stream)) == 0;
}

void dw_tcp_other_version(dw_tcp_failure *failure, const dw_tcp_handshake *handshake)
{
    char peer[96];
    dw_tcp_print_peer(handshake->stream.fd, peer);
    dw_tcp_fail(failure, DW_ERR_VERSION,
                "%s uses version %d of the framing over TCP, this end version %d; run the same "
                "release of deltawire at both ends",
                peer, handshake->their_hello[6], DW_TCP_VERSION);
}

/* ---- The session ----------------------------------------------------------------------------- */

bool dw_tcp_session_create(dw_tcp_session *session)
{
    if (getrandom(session->id, sizeof session->id, 0) != (ssize_t)sizeof session->id) return false;
    session->has_id = true;
    return true;
}

void dw_tcp_session_adopt(dw_tcp_session *session, const unsigned char *id)
{
    memcpy(session->id, id, sizeof session->id);
    session->has_id = true;
}

void dw_tcp_session_drop(dw_tcp_session *session)
{
    session->has_id = false;
}

void dw_tcp_session_open(dw_tcp_session *session, const dw_stream *stream, bool is_new)
{
    if (is_new) dw_tcp_print_peer(stream->fd, session->peer);
    if (session->tls && session->is_opening) {
        snprintf(session->peer_name, sizeof session->peer_name, "%s", dw_tls_peer_name(stream));
        dw_tls_session(stream, session->tls_session);
    }
    session->is_opening = false;
}

/* ---- Whether it is gone ---------------------------------------------------------------------- */

bool dw_tcp_is_closed_by_peer(int error)
{
    return error == 0 || error == ECONNRESET || error == EPIPE || error == ECONNABORTED;
}

/* Ends the link: the peer will not come back. */
void dw_tcp_peer_gone(dw_tcp_failure *failure, const dw_tcp_connections *connections,
                      uint64_t ahead_bytes)
{
    const char *peer = failure->peer;
    int error = connections->lost_error;
    uint64_t begun = ahead_bytes + connections->cut_bytes;
    /* the sentence of TLS is more precise */
    if (dw_tcp_is_closed_by_peer(error) && connections->lost_text[0]) {
        dw_tcp_fail(failure, DW_ERR_PEER,
                    "%s %s; its process has probably died, or somebody tampers with the "
                    "connection",
                    peer, connections->lost_text);
    } else if (!dw_tcp_is_closed_by_peer(error)) {
        dw_tcp_fail(failure, DW_ERR_TIMEOUT,
                    "%s no longer answers (%s); is the machine or the network down?", peer,
                    strerror(error));
    } else if (begun > 0) {
        dw_tcp_fail(failure, DW_ERR_PEER,
                    "%s closed the connection in the middle of a message (after %llu bytes of it); "
                    "its process has probably died",
                    peer, (unsigned long long)begun);
    } else if (error != 0) {
        dw_tcp_fail(failure, DW_ERR_PEER,
                    "%s broke the connection (%s); its process has probably died, or a firewall or "
                    "NAT between has forgotten the connection",
                    peer, strerror(error));
    } else {
        dw_tcp_fail(failure, DW_ERR_PEER,
                    "%s closed the connection without a goodbye; its process has probably died or "
                    "was stopped",
                    peer);
    }
}
