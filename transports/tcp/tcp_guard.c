/* SPDX-License-Identifier: Apache-2.0
 * tcp_guard.c - which addresses may be used without TLS. */
#include "tcp/tcp_address.h"

#include <netinet/in.h>
#include <string.h>

#include "common/report.h"

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, address, sizeof in);
        return ntohl(in.sin_addr.s_addr) >> 24 == 127;
    }
    if (address->sa_family != AF_INET6) return false;
    struct sockaddr_in6 in6;
    memcpy(&in6, address, sizeof in6);
    if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) return in6.sin6_addr.s6_addr[12] == 127;
    return IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr);
}

dw_status dw_tcp_check_plaintext(const dw_transport_open *how, const struct addrinfo *addresses)
{
    if (how->tls || how->insecure_plaintext) return DW_OK;
    for (const struct addrinfo *a = addresses; a; a = a->ai_next) {
        char host[80] = "?";
        if (is_loopback(a->ai_addr)) continue;
        getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST);
        return dw_say(how->why, DW_ERR_AUTH,
                      "%s of tcp://%.60s is not a loopback address, and without TLS anybody "
                      "can connect: give a key (tls; --group-key), or set "
                      "insecure_plaintext (--insecure-plaintext) "
                      "in a network that you trust",
                      host, how->address);
    }
    return DW_OK;
}
