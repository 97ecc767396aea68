/* SPDX-License-Identifier: Apache-2.0
 * tls.h - TLS 1.3 over a stream. Both ends are authenticated before the first byte of deltawire.
 *
 * State: create one context per endpoint. Put TLS over a connected stream with dw_tls_cover, and
 * call dw_tls_shake until it returns DW_OK. From then on dw_stream_read and the other functions of
 * common/stream.h work as on a stream without TLS. A dw_stream under TLS may be moved in memory. A
 * context must live longer than its streams. Threads: one at a time for a context and all its
 * streams.
 *
 * A connection that ends without TLS's close_notify is DW_STREAM_BROKEN, not DW_STREAM_ENDED. A
 * write that returned DW_STREAM_WAIT must be repeated with the same bytes, and at least as many,
 * because they may be encrypted already. */
#ifndef DW_TLS_H
#define DW_TLS_H

#include "common/stream.h"
#include "deltawire/tls.h"
#include "deltawire/transport.h"

typedef struct dw_tls_context dw_tls_context;

/* Limits for a peer that is not authenticated yet: bytes that it may send, time that it has, and
 * how many such connections a listener keeps. */
enum { DW_TLS_UNPROVEN_BYTES = 16384, DW_TLS_UNPROVEN_MS = 10000, DW_TLS_UNPROVEN_PEERS = 64 };

enum { DW_TLS_NAME_BYTES = 64, DW_TLS_SESSION_BYTES = 32 };

dw_status dw_tls_context_create(dw_tls_context **context, const dw_tls_options *options,
                                dw_link_role role, const dw_allocator *allocator, dw_why *why);
void dw_tls_context_destroy(dw_tls_context *context); /* context may be NULL */

/* Puts TLS over a connected, nonblocking socket. deadline_ns, on the clock of dw_now_ns: when
 * the handshake must be complete. */
dw_status dw_tls_cover(dw_stream *stream, dw_tls_context *context, int64_t deadline_ns);

/* Continues the handshake. DW_OK: both ends are authenticated. DW_PENDING: call again when poll
 * reports dw_stream_events(stream, true, false), and now and then so that the deadline is checked.
 * DW_ERR_TIMEOUT; DW_ERR_PEER: the peer hung up; DW_ERR_AUTH: stream->text says what the peer did
 * wrong, as a sentence without its subject. */
dw_status dw_tls_shake(dw_stream *stream);

/* To be called after the handshake. The session is 32 secret bytes that only the two ends know. */
void dw_tls_session(const dw_stream *stream, unsigned char session[DW_TLS_SESSION_BYTES]);
const char *dw_tls_peer_name(const dw_stream *stream);

#endif
