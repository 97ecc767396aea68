/* SPDX-License-Identifier: Apache-2.0
 * tcp_address.c - parses addresses and options of a URI, and makes sockets. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/report.h"
#include "tcp/tcp_end.h"

enum { BACKLOG = 128 };

/* The limit of unsent bytes in the kernel (TCP_NOTSENT_LOWAT): a stripe that has become slow is
 * given not much more than two chunks. With a lower limit a fast stripe runs empty while the thread
 * wakes up: 256 KiB cost a quarter of the goodput over loopback. */
enum { UNSENT_BYTES = 2 << 20 };

/* ---- Options --------------------------------------------------------------------------------- */

static dw_status blame(const dw_transport_open *how, const char *at, const char *advice)
{
    return dw_say_at(how->why, DW_ERR_CONFIG, (int)(at - how->address), "'%.40s': %s", at, advice);
}

/* Reads a time such as "2s" or "500ms". */
static bool read_time(const char *text, size_t len, int64_t *ns)
{
    size_t digits = strspn(text, "0123456789");
    bool is_ms = len == digits + 2 && !strncmp(text + digits, "ms", 2),
         is_s = len == digits + 1 && text[digits] == 's';
    if (digits < 1 || digits > 7 || (!is_ms && !is_s)) return false;
    *ns = (int64_t)strtol(text, NULL, 10) * (is_s ? 1000 : 1) * DW_NS_PER_MS;
    return *ns <= (int64_t)3600000 * DW_NS_PER_MS;
}

static dw_status read_option(const dw_transport_open *how, dw_tcp_options *options,
                             const char *word, size_t len)
{
    if (len > 8 && !strncmp(word, "stripes=", 8)) {
        unsigned long n = strtoul(word + 8, NULL, 10);
        if (strspn(word + 8, "0123456789") != len - 8 || n < 1 || n > DW_TCP_STRIPES_MOST)
            return blame(how, word + 8, "write a number of connections from 1 to 8");
        options->stripes = (unsigned)n;
        options->uses_all = true;
        return DW_OK;
    }
    if (len > 11 && !strncmp(word, "congestion=", 11)) {
        if (len - 11 >= sizeof options->congestion)
            return blame(how, word + 11, "this name is too long for a congestion control");
        snprintf(options->congestion, sizeof options->congestion, "%.*s", (int)(len - 11),
                 word + 11);
        return DW_OK;
    }
    if (len > 6 && !strncmp(word, "grace=", 6)) {
        if (!read_time(word + 6, len - 6, &options->grace_ns))
            return blame(how, word + 6, "write a time from 0ms to 3600s, as 2s");
        return DW_OK;
    }
    return blame(how, word,
                 "unknown option of a tcp address; the options are "
                 "?stripes=4&congestion=bbr&grace=2s");
}

dw_status dw_tcp_read_options(const dw_transport_open *how, dw_tcp_options *options)
{
    *options =
        (dw_tcp_options){.stripes = DW_TCP_STRIPES, .grace_ns = (int64_t)2000 * DW_NS_PER_MS};
    const char *word = strchr(how->address, '?');
    while (word && *word) {
        word++;
        size_t len = strcspn(word, "&");
        dw_status status = read_option(how, options, word, len);
        if (status != DW_OK) return status;
        word += len;
    }
    return DW_OK;
}

/* ---- Addresses ------------------------------------------------------------------------------- */

typedef struct place {
    char host[256], port[8];
} place;

static dw_status split_address(const dw_transport_open *how, place *at)
{
    const char *address = how->address, *port;
    size_t whole = strcspn(address, "?");
    size_t host_len;
    if (address[0] == '[') {
        const char *end = memchr(address, ']', whole);
        host_len = end ? (size_t)(end - address - 1) : 0;
        port = end && end[1] == ':' ? end + 2 : NULL;
        if (end) address++;
    } else {
        const char *colon = memchr(address, ':', whole);
        host_len = colon ? (size_t)(colon - address) : 0;
        port = colon ? colon + 1 : NULL;
    }
    if (!port || host_len == 0 || host_len >= sizeof at->host) {
        return dw_say_at(how->why, DW_ERR_ADDRESS, 0,
                         "'%.100s' is not an address; write host:port, 10.0.0.1:7000 or [::1]:7000",
                         how->address);
    }
    memcpy(at->host, address, host_len);
    at->host[host_len] = '\0';
    size_t digits = strspn(port, "0123456789");
    unsigned number = 65536;
    if (digits >= 1 && digits <= 5 && (port[digits] == '\0' || port[digits] == '?'))
        sscanf(port, "%u", &number);
    unsigned least = how->role == DW_LINK_LISTEN ? 0 : 1;
    if (number < least || number > 65535) {
        return dw_say_at(how->why, DW_ERR_ADDRESS, (int)(port - how->address),
                         "'%.40s' is not a port to %s; write a number from %u to 65535", port,
                         least ? "connect to" : "listen on", least);
    }
    snprintf(at->port, sizeof at->port, "%u", number);
    return DW_OK;
}

dw_status dw_tcp_resolve(const dw_transport_open *how, struct addrinfo **found)
{
    place at;
    dw_status status = split_address(how, &at);
    if (status != DW_OK) return status;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    if (how->role == DW_LINK_LISTEN) hints.ai_flags = AI_PASSIVE;
    int error = getaddrinfo(at.host, at.port, &hints, found);
    if (error == 0) return DW_OK;
    return dw_say_at(how->why, DW_ERR_ADDRESS, 0, "cannot resolve '%.100s': %s", at.host,
                     error == EAI_SYSTEM ? dw_link_system_says(errno) : gai_strerror(error));
}

/* "127.0.0.1:7000" or "[::1]:7000"; text has room for 96 bytes. */
static void print_address(const struct sockaddr *address, socklen_t len, char *text)
{
    char host[80], port[8];
    if (getnameinfo(address, len, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        snprintf(text, 96, "a peer without an address");
        return;
    }
    snprintf(text, 96, address->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

void dw_tcp_print_peer(int fd, char text[96])
{
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t len = sizeof address;
    if (getpeername(fd, (struct sockaddr *)&address, &len) == 0) {
        print_address((const struct sockaddr *)&address, len, text);
    } else {
        snprintf(text, 96, "a peer that has gone");
    }
}

/* ---- Sockets --------------------------------------------------------------------------------- */

static bool set_congestion(int fd, const dw_tcp_options *options)
{
    size_t len = strlen(options->congestion);
    return len == 0 ||
           setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, options->congestion, (socklen_t)len) == 0;
}

dw_status dw_tcp_check_congestion(const dw_transport_open *how, const dw_tcp_options *options)
{
    if (!options->congestion[0]) return DW_OK;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool works = fd >= 0 && set_congestion(fd, options);
    int error = errno;
    if (fd >= 0) close(fd);
    if (works) return DW_OK;
    return dw_say_at(how->why, DW_ERR_CONFIG,
                     (int)(strstr(how->address, "congestion=") + 11 - how->address),
                     "the system refuses the congestion control '%s' (%s); "
                     "leave congestion= out, or choose one "
                     "of /proc/sys/net/ipv4/tcp_allowed_congestion_control",
                     options->congestion, strerror(error));
}

/* A machine that vanishes sends nothing, but the kernel can notice: by keepalive probes on an idle
 * connection, and otherwise by the age of unacknowledged data (TCP_USER_TIMEOUT). It should notice
 * well before peer_timeout_ms is over, so that time remains for a new connection: perhaps only this
 * one was forgotten, for instance by a NAT. However long the timeout is, probes begin soon, so that
 * NATs and firewalls do not forget an idle connection in the first place: some do after 20 s. */
static void watch_for_silence(int fd, uint32_t peer_timeout_ms)
{
    /* most_ms / 6000 is the largest value that TCP_KEEPINTVL takes. */
    uint32_t least_ms = 12000, most_ms = 6 * 32767 * 1000;
    unsigned total_ms = peer_timeout_ms / 4 < least_ms ? least_ms : peer_timeout_ms / 4;
    if (total_ms > most_ms) total_ms = most_ms;
    int on = 1, idle_s = total_ms > 30000 ? 15 : (int)(total_ms / 2000), probes = 3,
        between_s = (int)(total_ms / 6000);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof between_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &total_ms, sizeof total_ms);
}

void dw_tcp_tune(int fd, uint32_t peer_timeout_ms)
{
    int on = 1, unsent = UNSENT_BYTES;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
    watch_for_silence(fd, peer_timeout_ms);
}

static int bind_one(const struct addrinfo *address, const dw_tcp_options *options)
{
    int one = 1;
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    set_congestion(fd, options); /* accepted connections inherit it */
    if (bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* Tells the program the address with the options of the URI, because the peer must dial with the
 * same ones. */
static void tell_address(const dw_transport_open *how, int listener)
{
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t len = sizeof address;
    char text[96], uri[256];
    const char *options = strchr(how->address, '?');
    if (getsockname(listener, (struct sockaddr *)&address, &len) != 0) return;
    print_address((const struct sockaddr *)&address, len, text);
    snprintf(uri, sizeof uri, "tcp://%s%s", text, options ? options : "");
    how->on_listening(how->listening_context, uri);
}

dw_status dw_tcp_listen(const dw_transport_open *how, const dw_tcp_options *options,
                        const struct addrinfo *addresses, int *listener)
{
    *listener = -1;
    for (const struct addrinfo *a = addresses; a && *listener < 0; a = a->ai_next)
        *listener = bind_one(a, options);
    if (*listener >= 0) {
        tell_address(how, *listener);
        return DW_OK;
    }
    int error = errno;
    place at = {.port = ""};
    split_address(how, &at);
    if (error == EADDRINUSE) {
        return dw_say(how->why, DW_ERR_ADDRESS,
                      "port %s of %.100s is in use; choose another, "
                      "or 0 for any that is free",
                      at.port, at.host);
    }
    return dw_say(how->why, DW_ERR_ADDRESS, "cannot listen on %.100s port %s: %s", at.host, at.port,
                  dw_link_system_says(error));
}

int dw_tcp_connect(const struct sockaddr *address, socklen_t len, const dw_tcp_options *options,
                   uint32_t segment)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    set_congestion(fd, options);
    if (segment) setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment);
    if (connect(fd, address, len) == 0 || errno == EINPROGRESS || errno == EINTR) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static bool is_own_address(int fd)
{
    struct sockaddr_storage own, peer;
    socklen_t own_len = sizeof own, peer_len = sizeof peer;
    memset(&own, 0, sizeof own);
    memset(&peer, 0, sizeof peer);
    return getsockname(fd, (struct sockaddr *)&own, &own_len) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0 && own_len == peer_len &&
           memcmp(&own, &peer, own_len) == 0;
}

int dw_tcp_connected(int fd)
{
    int error = 0;
    socklen_t len = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0) error = errno;
    /* A connection to a port of this machine on which nothing listens may get that very port as its
     * source, and is then connected to itself. */
    return error == 0 && is_own_address(fd) ? ECONNREFUSED : error;
}
