/* SPDX-License-Identifier: Apache-2.0
 * shaped_settings.h - the settings of a shaped wire, from the words of its URI.
 *
 * | file              | owns                                                     |
 * | shaped.c          | the wire: when messages leave and arrive                 |
 * | shaped_settings.c | the words of the URI                                     |
 * | shaped_faults.c   | the faults of each message                               |
 */
#ifndef DW_SHAPED_SETTINGS_H
#define DW_SHAPED_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "deltawire/transport.h"

/* Probabilities are from 0 to 1 and apply to each data message. */
typedef struct dw_shaped_settings {
    double ns_per_byte, delay_ns, jitter_ns;
    double loss, duplicate, corrupt;
    double reorder, reorder_hold_ns; /* hold: how long a message waits to be overtaken */
    double stall, stall_ns;
    double disconnect;                              /* the probability; 0: never by chance */
    uint64_t disconnect_messages, disconnect_bytes; /* after so many messages or bytes; 0: never */
    uint64_t seed;
    bool has_virtual_time;
} dw_shaped_settings;

/* The URI behind the slash, or NULL. */
const char *dw_shaped_behind(const char *address);

/* Parses the words before the slash; *inner_uri is the URI behind it. */
dw_status dw_shaped_read_settings(dw_shaped_settings *settings, const dw_transport_open *how,
                                  const char **inner_uri);

#endif
