/* SPDX-License-Identifier: Apache-2.0
 * rate.h - how fast a link to a peer is: one end asks, and the other answers with as many bytes as
 * it is asked for. */
#ifndef DW_CLI_RATE_H
#define DW_CLI_RATE_H

#include "base/forecast.h"
#include "deltawire/transport.h"

typedef struct dw_rate_end {
    const char *uri;
    const dw_tls_options *tls; /* a group key; NULL: none */
    bool insecure_plaintext;
    uint32_t timeout_ms; /* for both ends to find each other; 0: the link's default */
    void (*on_listening)(void *context, const char *uri);
    const volatile int *cancelled;
} dw_rate_end;

/* Connects to an end that serves, and measures run->rate in both directions and run->delay_s, half
 * the shortest round trip. Takes some seconds, and more where the link is very slow. Errors: those
 * of links, each with a sentence. */
dw_status dw_rate_ask(dw_forecast_run *run, const dw_rate_end *end, dw_why *why);

/* Waits for one end that asks, and answers it until it is done. Errors: the same; PROTOCOL: the
 * other end is not one that asks. */
dw_status dw_rate_serve(const dw_rate_end *end, dw_why *why);

#endif
