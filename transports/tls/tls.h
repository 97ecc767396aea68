/* SPDX-License-Identifier: Apache-2.0
 * tls.h - TLS 1.3 as the cover of a stream: both ends prove who they are before the first byte of
 * ours.
 *
 * State: create a context (once per endpoint); cover a connected stream; shake until it answers
 * DW_OK; from then on dw_stream_read and the others work as on a bare stream. A covered dw_stream
 * may be moved in memory. Contexts outlive their streams. Threads: one at a time for a context and
 * all its streams.
 *
 * An end without TLS's goodbye is DW_STREAM_BROKEN, not DW_STREAM_ENDED. A write that answered
 * DW_STREAM_WAIT must be tried again with the same bytes, and at least as many, for they may be
 * encrypted already. */
#ifndef DW_TLS_H
#define DW_TLS_H

#include "common/stream.h"
#include "deltawire/tls.h"
#include "deltawire/transport.h"

typedef struct dw_tls_context dw_tls_context;

/* What a peer may do before it has proven who it is. */
enum { DW_TLS_UNPROVEN_BYTES = 16384, DW_TLS_UNPROVEN_MS = 10000, DW_TLS_UNPROVEN_PEERS = 64 };

enum { DW_TLS_NAME_BYTES = 64, DW_TLS_SESSION_BYTES = 32 };

dw_status dw_tls_context_create(dw_tls_context **context, const dw_tls_options *options,
                                dw_link_role role, const dw_allocator *allocator, dw_why *why);
void dw_tls_context_destroy(dw_tls_context *context); /* NULL is fine */

/* Puts TLS over a connected, nonblocking socket. deadline_ns: of dw_link_now_ns, until which the
 * peer must have proven who it is. */
dw_status dw_tls_cover(dw_stream *stream, dw_tls_context *context, int64_t deadline_ns);

/* Goes on with the handshake. DW_OK: the peer is who it must be, and takes us for who we are.
 * DW_PENDING: call again when poll reports dw_stream_events(stream, true, false), and now and then
 * for the deadline's sake. TIMEOUT, PEER (gone), AUTH: stream->text says what the peer did or
 * lacks, without a subject. */
dw_status dw_tls_shake(dw_stream *stream);

/* After the handshake. The session: 32 bytes that both ends have in common and nobody else
 * knows. */
void dw_tls_session(const dw_stream *stream, unsigned char session[DW_TLS_SESSION_BYTES]);
const char *dw_tls_peer_name(const dw_stream *stream);

#endif
