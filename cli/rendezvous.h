/* SPDX-License-Identifier: Apache-2.0
 * rendezvous.h - how ranks learn the addresses of their neighbours. */
#ifndef DW_CLI_RENDEZVOUS_H
#define DW_CLI_RENDEZVOUS_H

#include <stdbool.h>

#include "deltawire/tls.h"
#include "deltawire/transport.h"

typedef struct dw_rendezvous dw_rendezvous;

typedef struct dw_rendezvous_options {
    /* tcp://host:port, on which rank 0 listens, or file:///path: the ranks use the files path.0,
     * path.1, ... */
    const char *uri;
    uint32_t rank, ranks;
    uint32_t timeout_ms;
    const volatile int *stop;
    const dw_tls_options *tls; /* without names; they become rank/0, rank/1, ... */
    bool insecure_plaintext;
} dw_rendezvous_options;

dw_status dw_rendezvous_open(dw_rendezvous **rendezvous, const dw_rendezvous_options *options,
                             dw_why *why);
/* Waits until the address of rank - 1 is known, and stores it in uri. */
dw_status dw_rendezvous_ask(dw_rendezvous *rendezvous, char *uri, size_t cap, dw_why *why);
/* Reports the address of this rank, which rank + 1 is waiting for. */
dw_status dw_rendezvous_tell(dw_rendezvous *rendezvous, const char *uri, dw_why *why);
/* Ends the wait of rank 0. *why: who was turned away while a rank was missing, or how many ranks
 * did not come in time; "": neither. */
void dw_rendezvous_stop(dw_rendezvous *rendezvous, dw_why *why);
void dw_rendezvous_close(dw_rendezvous *rendezvous);

/* Stores the address of the local interface that leads to the host, by which the host can reach
 * this machine. Returns false if the host is unknown or there is no route. */
bool dw_own_address(const char *host, char *text, size_t cap);

#endif
