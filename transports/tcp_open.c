/* SPDX-License-Identifier: Apache-2.0
 * tcp_open.c - how two ends find each other: addresses, listening, dialling, strangers. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "report.h"
#include "tcp.h"
#include "tcp_guard.h"

/* Both ends say at once what they are. A listener hears it from whoever connects and hangs up on
 * strangers (port scanners, browsers) without letting them disturb the wait for the real peer. The
 * role is in it because two dialling sockets can, by accident, connect to each other or to themselves. */
enum { FRAMING_VERSION = 1 };
static const unsigned char magic[6] = {'D', 'W', 'T', 'C', 'P', '\n'};

/* Connections that have not said yet what they are; the oldest goes when one more comes. */
enum { MOST_STRANGERS = DW_TLS_UNPROVEN_PEERS };

enum { REDIAL_MS = 100, LOOK_MS = 20 };

typedef struct tcp_attempt {
    const dw_transport_open *how;
    int64_t deadline_ns;
    char host[256], port[8];
    dw_tls_context *tls;  /* NULL: without */
    char turned_away[300]; /* of a listener: the last stranger, and why; "": none */
} tcp_attempt;

static void write_preamble(unsigned char *preamble, dw_link_role role)
{
    memcpy(preamble, magic, sizeof magic);
    preamble[6] = FRAMING_VERSION;
    preamble[7] = role == DW_LINK_LISTEN ? 'L' : 'C';
}

/* 1: as it should be; 0: a stranger; -1: ours, of another version. */
static int judge_preamble(const unsigned char *preamble, dw_link_role own_role)
{
    if (memcmp(preamble, magic, sizeof magic) != 0) return 0;
    if (preamble[6] != FRAMING_VERSION) return -1;
    return preamble[7] == (own_role == DW_LINK_LISTEN ? 'C' : 'L');
}

static dw_status other_version(const tcp_attempt *attempt, int version, const char *peer)
{
    return dw_link_report(attempt->how->why, DW_ERR_VERSION,
                          "%s frames TCP messages by version %d of the rules, this end by %d; run the same "
                          "release of deltawire at both ends", peer, version, FRAMING_VERSION);
}

/* ---- Addresses -------------------------------------------------------------------------------- */

static dw_status split_address(tcp_attempt *attempt)
{
    const char *address = attempt->how->address, *port;
    size_t host_len;
    if (address[0] == '[') {
        const char *end = strchr(address, ']');
        host_len = end ? (size_t)(end - address - 1) : 0;
        port = end && end[1] == ':' ? end + 2 : NULL;
        if (end) address++;
    } else {
        const char *colon = strchr(address, ':');
        host_len = colon ? (size_t)(colon - address) : 0;
        port = colon ? colon + 1 : NULL;
    }
    if (!port || host_len == 0 || host_len >= sizeof attempt->host) {
        return dw_link_report_at(attempt->how->why, DW_ERR_ADDRESS, 0,
                                 "'%.100s' is no address; write host:port, 10.0.0.1:7000 or [::1]:7000",
                                 attempt->how->address);
    }
    memcpy(attempt->host, address, host_len);
    attempt->host[host_len] = '\0';
    const size_t digits = strspn(port, "0123456789");
    unsigned number = 65536;
    if (digits >= 1 && digits <= 5 && port[digits] == '\0') sscanf(port, "%u", &number);
    const unsigned least = attempt->how->role == DW_LINK_LISTEN ? 0 : 1;
    if (number < least || number > 65535) {
        return dw_link_report_at(attempt->how->why, DW_ERR_ADDRESS, (int)(port - attempt->how->address),
                                 "'%.40s' is no port to %s; write a number from %u to 65535", port,
                                 least ? "connect to" : "listen on", least);
    }
    snprintf(attempt->port, sizeof attempt->port, "%u", number);
    return DW_OK;
}

static dw_status resolve(const tcp_attempt *attempt, struct addrinfo **found)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    if (attempt->how->role == DW_LINK_LISTEN) hints.ai_flags = AI_PASSIVE;
    const int error = getaddrinfo(attempt->host, attempt->port, &hints, found);
    if (error == 0) return DW_OK;
    return dw_link_report_at(attempt->how->why, DW_ERR_ADDRESS, 0, "cannot resolve '%.100s': %s", attempt->host,
                             error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
}

/* "127.0.0.1:7000" or "[::1]:7000"; text has room for 96 bytes. */
static void print_address(const struct sockaddr *address, socklen_t len, char *text)
{
    char host[80], port[8];
    if (getnameinfo(address, len, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        snprintf(text, 96, "a peer without an address");
        return;
    }
    snprintf(text, 96, address->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

static void print_peer(int fd, char *text)
{
    struct sockaddr_storage address;
    socklen_t len = sizeof address;
    if (getpeername(fd, (struct sockaddr *)&address, &len) == 0) {
        print_address((const struct sockaddr *)&address, len, text);
    } else {
        snprintf(text, 96, "a peer that has gone");
    }
}

/* ---- Sockets ---------------------------------------------------------------------------------- */

/* Whether to give up, and why. */
static dw_status check_time(const tcp_attempt *attempt, const char *last_trouble)
{
    const dw_transport_open *how = attempt->how;
    if (dw_link_is_set(how->cancelled)) {
        return dw_link_report(how->why, DW_ERR_CANCELLED, "opening tcp://%.100s was cancelled", how->address);
    }
    if (dw_link_now_ns() < attempt->deadline_ns) return DW_OK;
    if (how->role == DW_LINK_LISTEN) {
        return dw_link_report(how->why, DW_ERR_TIMEOUT, "no peer connected to tcp://%.100s within %u ms%s",
                              how->address, how->timeout_ms, last_trouble);
    }
    return dw_link_report(how->why, DW_ERR_TIMEOUT, "nobody answered at tcp://%.100s within %u ms (%s); is the "
                          "other end started, and listening there?", how->address, how->timeout_ms, last_trouble);
}

/* Waits for the descriptors, never longer than until it is time to look at the clock again. */
static int wait_for(struct pollfd *fds, size_t n)
{
    const int ready = poll(fds, (nfds_t)n, LOOK_MS);
    return ready > 0;
}

/* A machine that vanishes says nothing. The kernel finds out: by probes while nothing is under way, and by
 * the age of what is not acknowledged. Never sooner than the link, which knows better what it waits for. */
static void watch_for_silence(int fd, uint32_t peer_timeout_ms)
{
    const uint32_t least_ms = 12000, most_ms = 6 * 32767 * 1000; /* what TCP_KEEPINTVL can hold, six times */
    unsigned total_ms = peer_timeout_ms < least_ms ? least_ms : peer_timeout_ms;
    if (total_ms > most_ms) total_ms = most_ms;
    const int on = 1, idle_s = (int)(total_ms / 2000), probes = 3, between_s = (int)(total_ms / 6000);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof between_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &total_ms, sizeof total_ms);
}

static int send_preamble(dw_stream *stream, dw_link_role role)
{
    unsigned char preamble[DW_TCP_PREAMBLE_BYTES];
    write_preamble(preamble, role);
    /* The first bytes of a connection always fit into its send buffer. */
    const struct iovec whole = {preamble, sizeof preamble};
    return dw_stream_write(stream, &whole, 1) == (ptrdiff_t)sizeof preamble;
}

/* Puts TLS over a connection, where there is to be TLS. 0: no memory. */
static int cover(const tcp_attempt *attempt, dw_stream *stream)
{
    if (!attempt->tls) return 1;
    return dw_tls_cover(stream, attempt->tls, dw_link_now_ns() + (int64_t)DW_TLS_UNPROVEN_MS * DW_NS_PER_MS) == DW_OK;
}

/* ---- Listening -------------------------------------------------------------------------------- */

typedef struct tcp_stranger {
    dw_stream stream;
    size_t have;
    unsigned char said[DW_TCP_PREAMBLE_BYTES];
} tcp_stranger;

typedef struct tcp_reception {
    int listener;
    size_t n;
    tcp_stranger strangers[MOST_STRANGERS]; /* oldest first */
} tcp_reception;

static void dismiss(tcp_reception *reception, size_t i)
{
    dw_stream_close(&reception->strangers[i].stream);
    reception->n--;
    memmove(reception->strangers + i, reception->strangers + i + 1,
            (reception->n - i) * sizeof *reception->strangers);
}

static void admit(const tcp_attempt *attempt, tcp_reception *reception)
{
    const int fd = accept4(reception->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return; /* it has left already, or no descriptor is free: the next round tries again */
    if (reception->n == MOST_STRANGERS) dismiss(reception, 0);
    tcp_stranger *guest = &reception->strangers[reception->n++];
    *guest = (tcp_stranger){.stream.fd = fd};
    if (!cover(attempt, &guest->stream)) dismiss(reception, reception->n - 1);
}

static int has_hung_up(int fd)
{
    char byte;
    const ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

/* For the sentence, should the peer never come: perhaps it was this one, with another key. */
static void note_stranger(tcp_attempt *attempt, const dw_stream *stream)
{
    char peer[96];
    print_peer(stream->fd, peer);
    snprintf(attempt->turned_away, sizeof attempt->turned_away, "; turned away: %s, which %s", peer, stream->text);
}

/* Hears one stranger out. DW_OK: it is the peer; DW_PENDING: it is gone or has more to say. */
static dw_status listen_to(tcp_attempt *attempt, tcp_reception *reception, size_t i)
{
    tcp_stranger *guest = &reception->strangers[i];
    const dw_status shaken = attempt->tls ? dw_tls_shake(&guest->stream) : DW_OK;
    if (shaken == DW_PENDING) return DW_PENDING;
    if (shaken != DW_OK) note_stranger(attempt, &guest->stream);
    const ptrdiff_t n = shaken != DW_OK ? DW_STREAM_BROKEN
        : dw_stream_read(&guest->stream, guest->said + guest->have, sizeof guest->said - guest->have);
    if (n == DW_STREAM_WAIT) return DW_PENDING;
    if (n < 0) {
        dismiss(reception, i);
        return DW_PENDING;
    }
    guest->have += (size_t)n;
    if (guest->have < sizeof guest->said) return DW_PENDING;
    const int verdict = judge_preamble(guest->said, DW_LINK_LISTEN);
    if (verdict < 0) {
        char peer[96];
        print_peer(guest->stream.fd, peer);
        send_preamble(&guest->stream, DW_LINK_LISTEN); /* so that it learns the reason as well */
        return other_version(attempt, guest->said[6], peer);
    }
    if (verdict == 1 && !has_hung_up(guest->stream.fd) && send_preamble(&guest->stream, DW_LINK_LISTEN)) return DW_OK;
    dismiss(reception, i);
    return DW_PENDING;
}

static dw_status receive_guests(tcp_attempt *attempt, tcp_reception *reception, dw_stream *stream)
{
    for (;;) {
        dw_status status = check_time(attempt, attempt->turned_away);
        if (status != DW_OK) return status;
        struct pollfd wait[1 + MOST_STRANGERS] = {{.fd = reception->listener, .events = POLLIN}};
        for (size_t i = 0; i < reception->n; i++) {
            const dw_stream *guest = &reception->strangers[i].stream;
            wait[1 + i] = (struct pollfd){.fd = guest->fd, .events = (short)dw_stream_events(guest, 1, 0)};
        }
        wait_for(wait, 1 + reception->n);
        for (size_t i = reception->n; i-- > 0;) { /* from the end: dismissing moves the later ones */
            if (!wait[1 + i].revents && !attempt->tls) continue; /* TLS looks at its deadline */
            status = listen_to(attempt, reception, i);
            if (status == DW_OK) {
                *stream = reception->strangers[i].stream;
                reception->strangers[i].stream = (dw_stream){.fd = -1};
            }
            if (status != DW_PENDING) return status;
        }
        if (wait[0].revents) admit(attempt, reception);
    }
}

static dw_status bind_one(const struct addrinfo *address, int *listener)
{
    const int one = 1;
    *listener = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*listener < 0) return DW_ERR_ADDRESS;
    setsockopt(*listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(*listener, address->ai_addr, address->ai_addrlen) == 0 && listen(*listener, MOST_STRANGERS) == 0) {
        return DW_OK;
    }
    const int error = errno;
    close(*listener);
    errno = error;
    return DW_ERR_ADDRESS;
}

static dw_status bind_any(const tcp_attempt *attempt, const struct addrinfo *addresses, int *listener)
{
    for (const struct addrinfo *a = addresses; a; a = a->ai_next) {
        if (bind_one(a, listener) == DW_OK) return DW_OK;
    }
    if (errno == EADDRINUSE) {
        return dw_link_report(attempt->how->why, DW_ERR_ADDRESS, "port %s of %.100s is in use; choose another, "
                              "or 0 for any that is free", attempt->port, attempt->host);
    }
    return dw_link_report(attempt->how->why, DW_ERR_ADDRESS, "cannot listen on %.100s port %s: %s", attempt->host,
                          attempt->port, strerror(errno));
}

static void tell_address(const tcp_attempt *attempt, int listener)
{
    struct sockaddr_storage address;
    socklen_t len = sizeof address;
    char text[96], uri[112];
    if (getsockname(listener, (struct sockaddr *)&address, &len) != 0) return;
    print_address((const struct sockaddr *)&address, len, text);
    snprintf(uri, sizeof uri, "tcp://%s", text);
    attempt->how->on_listening(attempt->how->listening_context, uri);
}

static dw_status meet_listening(tcp_attempt *attempt, const struct addrinfo *addresses, dw_stream *stream)
{
    tcp_reception reception = {.listener = -1};
    dw_status status = bind_any(attempt, addresses, &reception.listener);
    if (status != DW_OK) return status;
    tell_address(attempt, reception.listener);
    status = receive_guests(attempt, &reception, stream);
    for (size_t i = 0; i < reception.n; i++) dw_stream_close(&reception.strangers[i].stream);
    close(reception.listener);
    return status;
}

/* ---- Dialling --------------------------------------------------------------------------------- */

static int is_own_address(int fd)
{
    struct sockaddr_storage own, peer;
    socklen_t own_len = sizeof own, peer_len = sizeof peer;
    memset(&own, 0, sizeof own);
    memset(&peer, 0, sizeof peer);
    return getsockname(fd, (struct sockaddr *)&own, &own_len) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0 && own_len == peer_len &&
           memcmp(&own, &peer, own_len) == 0;
}

/* DW_PENDING: it did not work this time, *trouble says why; the other end may not be up yet. */
static dw_status dial(tcp_attempt *attempt, const struct addrinfo *address, int *fd, const char **trouble)
{
    *fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd < 0) {
        *trouble = strerror(errno);
        return DW_PENDING;
    }
    int error = connect(*fd, address->ai_addr, address->ai_addrlen) == 0 ? 0 : errno;
    while (error == EINPROGRESS || error == EINTR) {
        const dw_status status = check_time(attempt, **trouble ? *trouble : "no answer");
        if (status != DW_OK) return status;
        struct pollfd wait = {.fd = *fd, .events = POLLOUT};
        if (!wait_for(&wait, 1)) continue;
        socklen_t len = sizeof error;
        if (getsockopt(*fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0) error = errno;
    }
    /* Dialling a free port of our own machine can pick that very port as the source. */
    if (error == 0 && is_own_address(*fd)) error = ECONNREFUSED;
    if (error != 0) *trouble = strerror(error);
    return error == 0 ? DW_OK : DW_PENDING;
}

/* TLS's handshake, where there is to be TLS. DW_PENDING as in dial. */
static dw_status prove(tcp_attempt *attempt, dw_stream *stream, const char *peer, const char **trouble)
{
    dw_status status = cover(attempt, stream) ? DW_PENDING : DW_ERR_NO_MEMORY;
    while (attempt->tls && status == DW_PENDING && (status = dw_tls_shake(stream)) == DW_PENDING) {
        const dw_status time = check_time(attempt, "connected, but it does not go on with TLS's handshake");
        if (time != DW_OK) return time;
        struct pollfd wait = {.fd = stream->fd, .events = (short)dw_stream_events(stream, 1, 0)};
        wait_for(&wait, 1);
    }
    if (!attempt->tls || status == DW_OK) return DW_OK;
    if (status == DW_ERR_AUTH) return dw_link_report(attempt->how->why, status, "%s %s", peer, stream->text);
    *trouble = "it hung up in the middle of TLS's handshake; is its link without TLS?";
    return status == DW_ERR_NO_MEMORY ? status : DW_PENDING;
}

/* Sends our preamble and waits for the listener's. DW_PENDING as in dial. */
static dw_status introduce(tcp_attempt *attempt, dw_stream *stream, const char **trouble)
{
    unsigned char said[DW_TCP_PREAMBLE_BYTES];
    size_t have = 0;
    char peer[96];
    print_peer(stream->fd, peer);
    const dw_status proven = prove(attempt, stream, peer, trouble);
    if (proven != DW_OK) return proven;
    *trouble = attempt->tls ? "it hung up before it said what it is" : "it hung up before it said what it is; does it want a key?";
    if (!send_preamble(stream, DW_LINK_CONNECT)) return DW_PENDING;
    while (have < sizeof said) {
        const dw_status status = check_time(attempt, "connected, but it does not say what it is");
        if (status != DW_OK) return status;
        struct pollfd wait = {.fd = stream->fd, .events = (short)dw_stream_events(stream, 1, 0)};
        if (!dw_stream_has_more(stream) && !wait_for(&wait, 1)) continue;
        const ptrdiff_t n = dw_stream_read(stream, said + have, sizeof said - have);
        if (n == DW_STREAM_WAIT) continue;
        if (n < 0) return DW_PENDING;
        have += (size_t)n;
        const size_t known = have < sizeof magic ? have : sizeof magic;
        if (memcmp(said, magic, known) != 0) {
            return dw_link_report(attempt->how->why, DW_ERR_PROTOCOL, "what answers at %s is not deltawire; is "
                                  "another program listening on this port?", peer);
        }
    }
    const int verdict = judge_preamble(said, DW_LINK_CONNECT);
    if (verdict < 0) return other_version(attempt, said[6], peer);
    if (verdict == 1) return DW_OK;
    *trouble = "it is dialling as well";
    return DW_PENDING;
}

static dw_status meet_dialling(tcp_attempt *attempt, const struct addrinfo *addresses, dw_stream *stream)
{
    const char *trouble = "";
    for (;;) {
        for (const struct addrinfo *a = addresses; a; a = a->ai_next) {
            *stream = (dw_stream){.fd = -1};
            dw_status status = dial(attempt, a, &stream->fd, &trouble);
            if (status == DW_OK) status = introduce(attempt, stream, &trouble);
            if (status == DW_OK) return DW_OK;
            dw_stream_close(stream);
            if (status != DW_PENDING) return status;
        }
        for (int waited = 0; waited < REDIAL_MS; waited += LOOK_MS) {
            const dw_status status = check_time(attempt, trouble);
            if (status != DW_OK) return status;
            wait_for(NULL, 0);
        }
    }
}

dw_status dw_tcp_meet(const dw_transport_open *how, dw_tls_context *tls, dw_stream *stream, char peer[96])
{
    tcp_attempt attempt = {.how = how, .tls = tls,
                       .deadline_ns = dw_link_now_ns() + (int64_t)how->timeout_ms * DW_NS_PER_MS};
    dw_status status = split_address(&attempt);
    if (status != DW_OK) return status;
    struct addrinfo *addresses;
    status = resolve(&attempt, &addresses);
    if (status != DW_OK) return status;
    status = dw_tcp_check_plaintext(how, addresses);
    if (status == DW_OK && how->role == DW_LINK_LISTEN) status = meet_listening(&attempt, addresses, stream);
    else if (status == DW_OK) status = meet_dialling(&attempt, addresses, stream);
    freeaddrinfo(addresses);
    if (status != DW_OK) return status;
    const int on = 1;
    setsockopt(stream->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    watch_for_silence(stream->fd, how->peer_timeout_ms);
    print_peer(stream->fd, peer);
    return DW_OK;
}
