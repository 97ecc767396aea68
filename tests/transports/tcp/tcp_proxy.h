/* SPDX-License-Identifier: Apache-2.0
 * tcp_proxy.h - a network between two ends of a test, in a thread: it can stall, cut and reset
 * single connections. */
#ifndef DW_TCP_PROXY_H
#define DW_TCP_PROXY_H

#include <stdint.h>

enum { PROXY_ALL = -1 };

typedef struct tcp_proxy tcp_proxy;

/* Listens on a free port, and carries whoever dials there to the given one. */
tcp_proxy *proxy_start(int to_port);
void proxy_stop(tcp_proxy *proxy);
int proxy_port(const tcp_proxy *proxy);

/* Connections are counted from 0 in the order in which they came. */
int proxy_count(tcp_proxy *proxy); /* so far */
int proxy_alive(tcp_proxy *proxy); /* now */
void proxy_cut(tcp_proxy *proxy, int which, int reset);
void proxy_stall(tcp_proxy *proxy, int which, int on); /* nothing passes, either way */
/* A bit of what the dialler says next is changed, and TCP does not notice. */
void proxy_corrupt(tcp_proxy *proxy, int which);
void proxy_refuse(tcp_proxy *proxy, int on);        /* new ones are hung up on */
void proxy_stall_from(tcp_proxy *proxy, int first); /* this one and all later ones, for good */
uint64_t proxy_forward(tcp_proxy *proxy);           /* bytes from diallers, in all */
uint64_t proxy_backward(tcp_proxy *proxy);

/* A pair of links with a proxy between: end 0 listens. options: what follows the address in each
 * end's URI. */
struct dw_link;
typedef struct proxy_pair {
    struct dw_link *link[2];
    tcp_proxy *proxy;
    const char *options[2];
    uint64_t max_queued_bytes;
    uint32_t peer_timeout_ms;
    const struct dw_tls_options *tls[2];
    int port;         /* to listen on; 0: any */
    int early_guests; /* diallers before the real one, which are welcomed and go */
    int listener_port;
    int stalls_from; /* > 0: these connections and later ones carry nothing */
    int status;
    void *room; /* this and status are private */
} proxy_pair;

void proxy_pair_open(proxy_pair *pair);
void proxy_pair_close(proxy_pair *pair);

#endif
