/* SPDX-License-Identifier: Apache-2.0
 * rate.h - measures the rate and the delay of a link between two machines. One end asks, and the
 * other end answers each question with as many bytes as it is asked for. */
#ifndef DW_CLI_RATE_H
#define DW_CLI_RATE_H

#include "deltawire/transport.h"
#include "forecast.h"

/* One end of a link that is measured.
 *
 * | uri                | where to listen, or where to connect                                  |
 * | tls                | the group key, or NULL if there is none                               |
 * | insecure_plaintext | whether a link to another machine may do without encryption           |
 * | timeout_ms         | for connecting, and for the other end to send or take a byte of the   |
 * |                    | next question or answer; 0 means 60 seconds                           |
 * | on_listening       | is called with the address as soon as this end listens                |
 * | cancelled          | whoever sets this to another value than 0 ends the measurement        | */
typedef struct dw_rate_end {
    const char *uri;
    const dw_tls_options *tls;
    bool insecure_plaintext;
    uint32_t timeout_ms;
    void (*on_listening)(void *context, const char *uri);
    const volatile int *cancelled;
} dw_rate_end;

/* Connects to an end at which dw_rate_serve runs, and measures the link. Sets run->rate to the
 * rates in both directions, and run->delay_s to half the shortest round trip. This takes some
 * seconds, and longer on a very slow link. Errors: those of links; TIMEOUT, if the other end does
 * not answer; PROTOCOL, if it answers wrongly. Each comes with a sentence in *why. */
dw_status dw_rate_ask(dw_forecast_run *run, const dw_rate_end *end, dw_why *why);

/* Listens, waits for one end that calls dw_rate_ask, and answers it until it is done. Errors: those
 * of links; TIMEOUT, if the other end has received all answers and then asks nothing for
 * end->timeout_ms; PROTOCOL, if what it sends is not a question. Each comes with a sentence in
 * *why. */
dw_status dw_rate_serve(const dw_rate_end *end, dw_why *why);

#endif
