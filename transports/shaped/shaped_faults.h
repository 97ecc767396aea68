/* SPDX-License-Identifier: Apache-2.0
 * shaped_faults.h - which message of a shaped wire meets which fate. */
#ifndef DW_SHAPED_FAULTS_H
#define DW_SHAPED_FAULTS_H

#include "shaped/shaped_settings.h"

/* What becomes of one message. */
typedef struct dw_shaped_fate {
    bool is_cut; /* the wire breaks before it ... */
    bool is_lost, is_doubled, is_held, stalls;
    bool is_corrupt;
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
