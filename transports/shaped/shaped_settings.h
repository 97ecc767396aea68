/* SPDX-License-Identifier: Apache-2.0
 * shaped_settings.h - what a shaped wire is to do, as the words of its URI say.
 *
 * | file              | owns                                                     |
 * | shaped.c          | the wire: what leaves when, and what is on its way       |
 * | shaped_settings.c | the words of the URI                                     |
 * | shaped_faults.c   | which message meets which fate                           |
 */
#ifndef DW_SHAPED_SETTINGS_H
#define DW_SHAPED_SETTINGS_H

#include <stdbool.h>
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
    bool has_virtual_time;
} dw_shaped_settings;

/* What stands behind the slash, or NULL. */
const char *dw_shaped_behind(const char *address);

/* Reads up to the slash; *inner_uri is what follows it. */
dw_status dw_shaped_read_settings(dw_shaped_settings *settings, const dw_transport_open *how,
                                  const char **inner_uri);

#endif
