/* SPDX-License-Identifier: Apache-2.0
 * hosts.c - names of this machine that lead to its loopback interface. */
#include "hosts.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The host in a URI, with brackets; its length is 0 if there is none. */
static const char *find_host(const char *uri, size_t *len)
{
    const char *host = strstr(uri, "tcp://");
    *len = 0;
    if (!host) return uri;
    host += 6;
    *len = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":?");
    return host;
}

void dw_host_of(const char *uri, char host[DW_HOST_BYTES])
{
    size_t len;
    const char *begin = find_host(uri, &len);
    if (len > 1 && *begin == '[') {
        begin++;
        len -= 2;
    }
    snprintf(host, DW_HOST_BYTES, "%.*s", (int)len, begin);
}

void dw_with_host(const char *uri, const char *host, char *text, size_t cap)
{
    size_t len;
    const char *begin = find_host(uri, &len);
    snprintf(text, cap, "%.*s%s%s", (int)(begin - uri), uri, host, begin + len);
}

static bool is_loopback(const struct addrinfo *found)
{
    const void *address = found->ai_addr;
    const struct sockaddr_in *four = address;
    const struct sockaddr_in6 *six = address;
    if (found->ai_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
    return ntohl(four->sin_addr.s_addr) >> 24 == 127;
}

bool dw_is_own_name(const char *host)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *found;
    if (!*host || strcasestr(host, "localhost") || strcasestr(host, "loopback")) return false;
    if (getaddrinfo(host, NULL, &hints, &found) == 0) { /* an address */
        freeaddrinfo(found);
        return false;
    }
    hints.ai_flags = 0;
    if (getaddrinfo(host, NULL, &hints, &found)) return false;
    bool is_own = false;
    for (const struct addrinfo *a = found; a; a = a->ai_next) is_own |= is_loopback(a);
    freeaddrinfo(found);
    return is_own;
}

const char *dw_all_addresses(const char *name)
{
    int only = 1;
    socklen_t len = sizeof only;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    /* A socket of IPv6 takes connections of IPv4, too, unless the system says otherwise. */
    bool has_both = fd >= 0 && !getsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, &len) && !only;
    if (fd >= 0) close(fd);
    printf("listening on all addresses of this machine, because %s is a loopback address here, "
           "which other machines cannot reach\n",
           name);
    fflush(stdout);
    return has_both ? "[::]" : "0.0.0.0";
}

const char *dw_uri_for_others(const char *uri, char *text, size_t cap)
{
    char host[DW_HOST_BYTES];
    dw_host_of(uri, host);
    if (!dw_is_own_name(host)) return uri;
    dw_with_host(uri, dw_all_addresses(host), text, cap);
    return text;
}
