/* SPDX-License-Identifier: Apache-2.0
 * tcp_proxy.c - a network between two ends of a test. */
#include "tcp_proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transports/suite/transport_suite.h"

enum { MOST = 4096, ROOM = 65536, AT_A_TIME = 64 };

typedef struct half {
    unsigned char bytes[ROOM];
    size_t at, n;
    int ended;
} half;

typedef struct connection {
    int fd[2]; /* to the dialler and to the listener; -1: closed */
    int stalled, corrupts;
    half *way[2]; /* bytes from 0 to 1, and back */
} connection;

struct tcp_proxy {
    pthread_t thread;
    pthread_mutex_t lock;
    int listener, port, to_port;
    int stop, refuses, stall_from, n;
    uint64_t moved[2];
    connection all[MOST];
};

static int listen_anywhere(int *port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t len = sizeof address;
    if (bind(fd, (const struct sockaddr *)&address, sizeof address) || listen(fd, 64) ||
        getsockname(fd, (struct sockaddr *)&address, &len))
        abort();
    *port = ntohs(address.sin_port);
    return fd;
}

static void drop(connection *c, int reset)
{
    for (int i = 0; i < 2; i++) {
        const struct linger now = {.l_onoff = 1, .l_linger = 0};
        if (c->fd[i] < 0) continue;
        if (reset) setsockopt(c->fd[i], SOL_SOCKET, SO_LINGER, &now, sizeof now);
        close(c->fd[i]);
        free(c->way[i]);
        c->fd[i] = -1;
    }
}

static void accept_connection(tcp_proxy *proxy)
{
    int fd = accept4(proxy->listener, NULL, NULL, SOCK_NONBLOCK);
    if (fd < 0) return;
    if (proxy->refuses || proxy->n == MOST) {
        close(fd);
        return;
    }
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)proxy->to_port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int other = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(other, (const struct sockaddr *)&to, sizeof to) != 0) {
        /* Nobody listens there, so the connection to us is closed, too. */
        close(other);
        close(fd);
        return;
    }
    connection *c = &proxy->all[proxy->n];
    *c = (connection){.fd = {fd, other}, .way = {calloc(1, sizeof(half)), calloc(1, sizeof(half))}};
    c->stalled = proxy->n >= proxy->stall_from;
    proxy->n++;
}

/* Moves as many bytes as possible from end i to the other end. Returns 0 if the connection is
 * over. */
static int carry(tcp_proxy *proxy, connection *c, int i)
{
    half *h = c->way[i];
    if (h->n == 0 && !h->ended) {
        ssize_t n = recv(c->fd[i], h->bytes, ROOM, MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN) return 0;
        h->ended = n == 0;
        h->at = 0;
        h->n = n > 0 ? (size_t)n : 0;
        if (h->n > 0 && i == 0 && c->corrupts) {
            h->bytes[h->n / 2] ^= 16;
            c->corrupts = 0;
        }
    }
    if (h->n > 0) {
        ssize_t n = send(c->fd[!i], h->bytes + h->at, h->n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) return 0;
        h->at += n > 0 ? (size_t)n : 0;
        h->n -= n > 0 ? (size_t)n : 0;
        proxy->moved[i] += n > 0 ? (uint64_t)n : 0;
    }
    return h->n > 0 || !h->ended;
}

static void *carry_on(void *context)
{
    tcp_proxy *proxy = context;
    for (;;) {
        struct pollfd wait[1 + 2 * AT_A_TIME] = {{.fd = proxy->listener, .events = POLLIN}};
        int n_wait = 1;
        pthread_mutex_lock(&proxy->lock);
        if (proxy->stop) break;
        for (int i = 0; i < proxy->n && n_wait + 1 < 1 + 2 * AT_A_TIME; i++) {
            const connection *c = &proxy->all[i];
            for (int end = 0; end < 2 && c->fd[0] >= 0 && !c->stalled; end++) {
                const short in = c->way[end]->n == 0 && !c->way[end]->ended ? POLLIN : 0,
                            out = c->way[!end]->n > 0 ? POLLOUT : 0;
                wait[n_wait++] = (struct pollfd){.fd = c->fd[end], .events = (short)(in | out)};
            }
        }
        pthread_mutex_unlock(&proxy->lock);
        poll(wait, (nfds_t)n_wait, 2);
        pthread_mutex_lock(&proxy->lock);
        accept_connection(proxy);
        for (int i = 0; i < proxy->n; i++) {
            connection *c = &proxy->all[i];
            if (c->fd[0] < 0 || c->stalled) continue;
            if (!carry(proxy, c, 0) || !carry(proxy, c, 1)) drop(c, 0);
        }
        pthread_mutex_unlock(&proxy->lock);
    }
    pthread_mutex_unlock(&proxy->lock);
    return NULL;
}

tcp_proxy *proxy_start(int to_port)
{
    tcp_proxy *proxy = calloc(1, sizeof *proxy);
    proxy->to_port = to_port;
    proxy->stall_from = MOST;
    proxy->listener = listen_anywhere(&proxy->port);
    pthread_mutex_init(&proxy->lock, NULL);
    pthread_create(&proxy->thread, NULL, carry_on, proxy);
    return proxy;
}

void proxy_stop(tcp_proxy *proxy)
{
    pthread_mutex_lock(&proxy->lock);
    proxy->stop = 1;
    pthread_mutex_unlock(&proxy->lock);
    pthread_join(proxy->thread, NULL);
    for (int i = 0; i < proxy->n; i++) drop(&proxy->all[i], 0);
    close(proxy->listener);
    pthread_mutex_destroy(&proxy->lock);
    free(proxy);
}

int proxy_port(const tcp_proxy *proxy)
{
    return proxy->port;
}

int proxy_count(tcp_proxy *proxy)
{
    pthread_mutex_lock(&proxy->lock);
    int n = proxy->n;
    pthread_mutex_unlock(&proxy->lock);
    return n;
}

int proxy_alive(tcp_proxy *proxy)
{
    int n = 0;
    pthread_mutex_lock(&proxy->lock);
    for (int i = 0; i < proxy->n; i++) n += proxy->all[i].fd[0] >= 0;
    pthread_mutex_unlock(&proxy->lock);
    return n;
}

void proxy_cut(tcp_proxy *proxy, int which, int reset)
{
    pthread_mutex_lock(&proxy->lock);
    for (int i = 0; i < proxy->n; i++) {
        if (which == PROXY_ALL || which == i) drop(&proxy->all[i], reset);
    }
    pthread_mutex_unlock(&proxy->lock);
}

void proxy_stall(tcp_proxy *proxy, int which, int on)
{
    pthread_mutex_lock(&proxy->lock);
    for (int i = 0; i < proxy->n; i++) {
        if (which == PROXY_ALL || which == i) proxy->all[i].stalled = on;
    }
    pthread_mutex_unlock(&proxy->lock);
}

void proxy_corrupt(tcp_proxy *proxy, int which)
{
    pthread_mutex_lock(&proxy->lock);
    for (int i = 0; i < proxy->n; i++) {
        if (which == PROXY_ALL || which == i) proxy->all[i].corrupts = 1;
    }
    pthread_mutex_unlock(&proxy->lock);
}

void proxy_refuse(tcp_proxy *proxy, int on)
{
    pthread_mutex_lock(&proxy->lock);
    proxy->refuses = on;
    pthread_mutex_unlock(&proxy->lock);
}

void proxy_stall_from(tcp_proxy *proxy, int first)
{
    pthread_mutex_lock(&proxy->lock);
    proxy->stall_from = first;
    pthread_mutex_unlock(&proxy->lock);
}

uint64_t proxy_forward(tcp_proxy *proxy)
{
    pthread_mutex_lock(&proxy->lock);
    uint64_t bytes = proxy->moved[0];
    pthread_mutex_unlock(&proxy->lock);
    return bytes;
}

/* ---- Pairs ----------------------------------------------------------------------------------- */

static atomic_int port_told;

static void note_port(void *context, const char *uri)
{
    atomic_store(&port_told, atoi(strrchr(uri, ':') + 1));
}

static void open_end(proxy_pair *pair, int end, int port, dw_why *why, dw_status *status)
{
    char uri[128];
    const dw_link_options options = {.struct_size = sizeof options,
                                     .open_timeout_ms = 30000,
                                     .role = end == 0 ? DW_LINK_LISTEN : DW_LINK_CONNECT,
                                     .on_listening = note_port,
                                     .max_queued_bytes = pair->max_queued_bytes,
                                     .peer_timeout_ms = pair->peer_timeout_ms,
                                     .tls = pair->tls[end]};
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%d%s", port,
             pair->options[end] ? pair->options[end] : "");
    *status = dw_link_open(&pair->link[end], uri, &options, why);
}

static void *open_listener(void *context)
{
    proxy_pair *pair = context;
    dw_status status;
    open_end(pair, 0, pair->port, pair->room, &status);
    pair->status = (int)status;
    return NULL;
}

/* Connects, sends a hello, and leaves when it has been welcomed. */
static void send_hello_and_leave(int port)
{
    unsigned char hello[48] = {'D', 'W', 'T', 'C', 'P', '\n', 2, 'C', [25] = 4}, answer[48];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (const struct sockaddr *)&to, sizeof to) != 0 ||
        send(fd, hello, sizeof hello, MSG_NOSIGNAL) < 0)
        abort();
    ssize_t n = recv(fd, answer, sizeof answer, MSG_WAITALL);
    if (n != (ssize_t)sizeof answer) fail_msg("an early guest got %d bytes", (int)n);
    close(fd);
}

void proxy_pair_open(proxy_pair *pair)
{
    pthread_t thread;
    dw_why why[2];
    dw_status status;
    atomic_store(&port_told, 0);
    pair->room = &why[0];
    pthread_create(&thread, NULL, open_listener, pair);
    while ((pair->listener_port = atomic_load(&port_told)) == 0) suite_sleep_ms(1);
    pair->proxy = proxy_start(pair->listener_port);
    for (int i = 0; i < pair->early_guests; i++) send_hello_and_leave(pair->listener_port);
    if (pair->stalls_from > 0) proxy_stall_from(pair->proxy, pair->stalls_from);
    open_end(pair, 1, proxy_port(pair->proxy), &why[1], &status);
    pthread_join(thread, NULL);
    if (pair->status != DW_OK || status != DW_OK) fail_msg("%s / %s", why[0].text, why[1].text);
}

static void *close_listener(void *context)
{
    proxy_pair *pair = context;
    dw_link_close(pair->link[0]);
    return NULL;
}

void proxy_pair_close(proxy_pair *pair)
{
    pthread_t other;
    pthread_create(&other, NULL, close_listener, pair);
    dw_link_close(pair->link[1]);
    pthread_join(other, NULL);
    proxy_stop(pair->proxy);
}
