/* SPDX-License-Identifier: Apache-2.0
 * rendezvous.h - ranks that tell each other where they listen. */
#ifndef DW_CLI_RENDEZVOUS_H
#define DW_CLI_RENDEZVOUS_H

#include <stdbool.h>

#include "deltawire/tls.h"
#include "deltawire/transport.h"

typedef struct dw_rendezvous dw_rendezvous;

typedef struct dw_rendezvous_options {
    /* tcp://host:port: rank 0 waits there; file:///path: all see the files path.0, path.1, ... */
    const char *uri;
    uint32_t rank, stages;
    uint32_t timeout_ms;
    const volatile int *stop;
    const dw_tls_options *tls; /* names are put in: rank/0, rank/1, ... */
    bool insecure_plaintext;
} dw_rendezvous_options;

dw_status dw_rendezvous_open(dw_rendezvous **rendezvous, const dw_rendezvous_options *options,
                             dw_why *why);
/* The address of rank - 1; waits until that is known. */
dw_status dw_rendezvous_ask(dw_rendezvous *rendezvous, char *uri, size_t cap, dw_why *why);
/* Our own, for rank + 1. */
dw_status dw_rendezvous_tell(dw_rendezvous *rendezvous, const char *uri, dw_why *why);
void dw_rendezvous_close(dw_rendezvous *rendezvous);

/* The address by which this machine reaches the host, and so by which that reaches this one. 0: it
 * has none. */
bool dw_own_address(const char *host, char *text, size_t cap);

#endif
