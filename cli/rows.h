/* SPDX-License-Identifier: Apache-2.0
 * rows.h - the transports that the URIs of a run name: those built in, and those whose libraries
 * are loaded when a URI asks for them. What is particular to one stands in its row (dw_transport of
 * transport.h), and nowhere in this program. */
#ifndef DW_CLI_ROWS_H
#define DW_CLI_ROWS_H

#include <stdbool.h>
#include <stdio.h>

#include "deltawire/transport.h"

/* The transport that stands behind all others in a URI ("tcp" in "shaped:rate=1gbit/tcp://..."),
 * and in *inner its part of the URI. Errors: CONFIG: there is no transport of that name; *inner is
 * set. UNSUPPORTED: its library cannot be loaded. */
dw_status dw_row_behind(const dw_transport **row, const char *uri, size_t *begins, dw_why *why);

/* Whether ranks that meet by this URI have their places from a launcher: env://, file:///PATH, or a
 * transport whose ranks are numbered. */
bool dw_row_needs_launcher(const char *uri);

/* Whether a link over this URI can be under TLS. */
bool dw_row_carries_tls(const char *uri);

/* The rows of all transports that URIs of this process name, and what they stand on. */
enum { DW_ROWS_MOST = 8 };
typedef struct dw_rows {
    const dw_transport *transports[DW_ROWS_MOST + 1];
    dw_transport_context contexts[DW_ROWS_MOST + 1];
    dw_transport_place places[DW_ROWS_MOST];
    size_t n;
} dw_rows;

/* Joins every transport of a URI that has something to join and was not joined yet, those behind
 * others first. Errors: those of dw_row_behind and of join. */
dw_status dw_rows_join(dw_rows *rows, const char *uri, uint32_t local_rank, dw_why *why);
/* The place that a joined transport has found; NULL: it is none of these. */
const dw_transport_place *dw_rows_place(const dw_rows *rows, const dw_transport *row);
void dw_rows_leave(dw_rows *rows);

/* `deltawire transports`: prints each, and whether it can be used here. */
int dw_cli_transports(int argc, char **argv);

#endif
