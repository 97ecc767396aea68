/* SPDX-License-Identifier: Apache-2.0
 * tcp_guard.h - which addresses may be used without TLS. */
#ifndef DW_TCP_GUARD_H
#define DW_TCP_GUARD_H

#include <netdb.h>

#include "deltawire/transport.h"

/* Returns DW_ERR_AUTH, with a sentence that says what to do, if the options have neither TLS nor
 * insecure_plaintext and one of the resolved addresses is not a loopback address. The address
 * decides, not the name, because a name can resolve to any address. */
dw_status dw_tcp_check_plaintext(const dw_transport_open *how, const struct addrinfo *addresses);

#endif
