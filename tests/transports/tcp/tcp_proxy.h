/* SPDX-License-Identifier: Apache-2.0
 * tcp_proxy.h - a proxy between two ends of a test, in a thread of its own: it can stall, cut and
 * reset single connections. */
#ifndef DW_TCP_PROXY_H
#define DW_TCP_PROXY_H

#include <stdint.h>

enum { PROXY_ALL = -1 };

typedef struct tcp_proxy tcp_proxy;

/* Listens on a free port, and connects whoever dials it to the given port. */
tcp_proxy *proxy_start(int to_port);
void proxy_stop(tcp_proxy *proxy);
int proxy_port(const tcp_proxy *proxy);

/* Connections are numbered from 0 in the order in which they were accepted. */
int proxy_count(tcp_proxy *proxy); /* how many there were so far */
int proxy_alive(tcp_proxy *proxy); /* how many are open now */
void proxy_cut(tcp_proxy *proxy, int which, int reset);
void proxy_stall(tcp_proxy *proxy, int which, int on); /* nothing passes in either direction */
/* Changes a bit of what the dialler sends next, such that TCP does not notice. */
void proxy_corrupt(tcp_proxy *proxy, int which);
void proxy_refuse(tcp_proxy *proxy, int on);        /* closes new connections at once */
void proxy_stall_from(tcp_proxy *proxy, int first); /* stalls this one and all later ones */
uint64_t proxy_forward(tcp_proxy *proxy);           /* all bytes from diallers so far */

/* A pair of links with a proxy between them: end 0 listens. options: the query that is appended to
 * the address in each end's URI. */
struct dw_link;
typedef struct proxy_pair {
    struct dw_link *link[2];
    tcp_proxy *proxy;
    const char *options[2];
    uint64_t max_queued_bytes;
    uint32_t peer_timeout_ms;
    const struct dw_tls_options *tls[2];
    int port;         /* to listen on; 0: any */
    int early_guests; /* how many others are welcomed and leave before the real dialler connects */
    int listener_port;
    int stalls_from; /* > 0: the number of the first connection that carries nothing */
    int status;
    void *room; /* room and status are for internal use */
} proxy_pair;

void proxy_pair_open(proxy_pair *pair);
void proxy_pair_close(proxy_pair *pair);

#endif
