/* SPDX-License-Identifier: Apache-2.0
 * tcp_address.h - addresses and options of a URI, and the sockets that are made of them. */
#ifndef DW_TCP_ADDRESS_H
#define DW_TCP_ADDRESS_H

#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>

#include "deltawire/transport.h"

typedef struct dw_tcp_options {
    unsigned stripes;
    bool uses_all; /* stripes= was given: all carry messages, even if the round trip is short */
    int64_t grace_ns;
    char congestion[16]; /* "": the system's default */
} dw_tcp_options;

/* tcp_address.c. An error in the address sets the offset in how->why, as dw_transport_open asks
 * for. */
dw_status dw_tcp_read_options(const dw_transport_open *how, dw_tcp_options *options);
dw_status dw_tcp_resolve(const dw_transport_open *how, struct addrinfo **found);
dw_status dw_tcp_listen(const dw_transport_open *how, const dw_tcp_options *options,
                        const struct addrinfo *addresses, int *listener);
dw_status dw_tcp_check_congestion(const dw_transport_open *how, const dw_tcp_options *options);
/* Starts to connect; returns the socket, or -1 and errno. segment: the limit of the payload of
 * segments in both directions; 0: none. */
int dw_tcp_connect(const struct sockaddr *address, socklen_t len, const dw_tcp_options *options,
                   uint32_t segment);
int dw_tcp_connected(int fd); /* 0, or the errno of the failed connect */
void dw_tcp_tune(int fd, uint32_t peer_timeout_ms);
void dw_tcp_print_peer(int fd, char text[96]);

/* tcp_guard.c. Returns DW_ERR_AUTH, with a sentence that says what to do, if the options have
 * neither TLS nor insecure_plaintext and one of the resolved addresses is not a loopback address.
 * The address decides, not the name, because a name can resolve to any address. */
dw_status dw_tcp_check_plaintext(const dw_transport_open *how, const struct addrinfo *addresses);

#endif
