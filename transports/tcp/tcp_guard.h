/* SPDX-License-Identifier: Apache-2.0
 * tcp_guard.h - which addresses may be used without TLS. */
#ifndef DW_TCP_GUARD_H
#define DW_TCP_GUARD_H

#include <netdb.h>

#include "deltawire/transport.h"

/* DW_ERR_AUTH, with the ways out, where one of the addresses that were resolved is not this
 * machine's own loopback, and the options have neither TLS nor insecure_plaintext. It is the
 * address that counts: names can mean anything. */
dw_status dw_tcp_check_plaintext(const dw_transport_open *how, const struct addrinfo *addresses);

#endif
