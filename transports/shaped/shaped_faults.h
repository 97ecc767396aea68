/* SPDX-License-Identifier: Apache-2.0
 * shaped_faults.h - the faults of each message on a shaped wire. */
#ifndef DW_SHAPED_FAULTS_H
#define DW_SHAPED_FAULTS_H

#include "shaped/shaped_settings.h"

/* The faults of one message. */
typedef struct dw_shaped_fate {
    bool is_cut; /* the wire breaks before this message */
    bool is_lost, is_doubled, is_held, stalls;
    bool is_corrupt;
    uint64_t flips; /* the number of the bit that flips, modulo the number of bits */
    double late;    /* the fraction of the jitter that is added, in [0, 1) */
} dw_shaped_fate;

/* Draws the faults of data message number n of this end; bytes_before: the bytes of the data
 * messages before it. The result depends only on the arguments, so the same seed gives the same
 * faults, whatever the timing of threads. The two ends of a link (role) get different faults. */
dw_shaped_fate dw_shaped_draw(const dw_shaped_settings *settings, dw_link_role role, uint64_t n,
                              uint64_t bytes_before);

/* How long to wait before a message that may have been lost is requested again; 0: messages are not
 * lost or changed. */
uint32_t dw_shaped_retry_ms(const dw_shaped_settings *settings);

#endif
