/* SPDX-License-Identifier: Apache-2.0
 * tcp.h - what meeting (tcp_open.c) hands to moving bytes (tcp.c). */
#ifndef DW_TCP_H
#define DW_TCP_H

#include "deltawire/transport.h"
#include "tls.h"

/* On the wire: one preamble each way, then messages, each behind its length (64 bits, little-endian). */
enum { DW_TCP_PREAMBLE_BYTES = 8, DW_TCP_LENGTH_BYTES = 8 };

/* Meets the peer: on DW_OK the stream is a connected, nonblocking socket, under TLS where there is a context, both
 * preambles are through, and peer names the other end. Everything about dw_transport_open holds. */
dw_status dw_tcp_meet(const dw_transport_open *how, dw_tls_context *tls, dw_stream *stream, char peer[96]);

/* What the kernel counted on this connection, 0 where it does not tell. */
void dw_tcp_kernel_counts(int fd, uint64_t *sent, uint64_t *received);

#endif
