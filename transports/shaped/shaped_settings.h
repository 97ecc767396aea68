/* SPDX-License-Identifier: Apache-2.0
 * shaped_settings.h - what the files of a shaped wire share.
 *
 * | file              | owns                                                     |
 * | shaped.c          | the wire: what leaves when, and what is on its way       |
 * | shaped_settings.c | the words of the URI                                     |
 * | shaped_faults.c   | which message meets which fate                           |
 */
#ifndef DW_SHAPED_SETTINGS_H
#define DW_SHAPED_SETTINGS_H

#include <stddef.h>
#include <stdint.h>

#include "deltawire/transport.h"

/* Probabilities are from 0 to 1, per message of data. */
typedef struct dw_shaped_settings {
    double ns_per_byte, delay_ns, jitter_ns;
    double loss, duplicate, corrupt;
    double reorder, reorder_hold_ns; /* a message waits for the next one, but no longer than this */
    double stall, stall_ns;
    double disconnect;                              /* 0: by chance never */
    uint64_t disconnect_messages, disconnect_bytes; /* after so many; 0: never */
    uint64_t seed;
    int has_virtual_time;
} dw_shaped_settings;

/* Reads up to the slash; *inner_uri is what follows it. */
dw_status dw_shaped_read_settings(dw_shaped_settings *settings, const dw_transport_open *how,
                                  const char **inner_uri);

/* What becomes of one message. */
typedef struct dw_shaped_fate {
    int is_cut; /* the wire breaks before it ... */
    int is_lost, is_doubled, is_held, stalls;
    int is_corrupt;
    uint64_t flips; /* ... a bit of it, taken modulo their number */
    double late;    /* part of the jitter, in [0, 1) */
} dw_shaped_fate;

/* The fate of message number n of those with data that this end has sent, with so many bytes before
 * it. It depends on nothing else, so that the same seed gives the same faults however threads run.
 * The two ends have different luck. */
dw_shaped_fate dw_shaped_draw(const dw_shaped_settings *settings, dw_link_role role, uint64_t n,
                              uint64_t bytes_before);

/* How long to wait for a message that may have been lost; 0: none is. */
uint32_t dw_shaped_retry_ms(const dw_shaped_settings *settings);

#endif
