/* SPDX-License-Identifier: Apache-2.0
 * rows.h - the transports that a run's URIs name: built-in ones, and those whose libraries are
 * loaded when a URI needs them. The details of a transport are in its row (dw_transport in
 * transport.h), not in this program. */
#ifndef DW_CLI_ROWS_H
#define DW_CLI_ROWS_H

#include <stdbool.h>
#include <stdio.h>

#include "deltawire/transport.h"

/* Finds the innermost transport of a URI ("tcp" in "shaped:rate=1gbit/tcp://..."); *begins: the
 * position of its part of the URI. Errors: CONFIG (there is no transport of that name; *begins is
 * set all the same), UNSUPPORTED (its library cannot be loaded). */
dw_status dw_row_behind(const dw_transport **row, const char *uri, size_t *begins, dw_why *why);

/* Whether ranks get their numbers from a launcher with this URI: env://, file:///PATH, or a
 * transport with DW_RANKS_NUMBERED. */
bool dw_row_needs_launcher(const char *uri);

/* Whether a link with this URI can use TLS. */
bool dw_row_carries_tls(const char *uri);

/* The transports that this process has joined, with their contexts and places. */
enum { DW_ROWS_MOST = 8 };
typedef struct dw_rows {
    const dw_transport *transports[DW_ROWS_MOST + 1];
    dw_transport_context contexts[DW_ROWS_MOST + 1];
    dw_transport_place places[DW_ROWS_MOST];
    size_t n;
} dw_rows;

/* Joins the transports of a URI that were not joined yet, inner ones first. Errors: those of
 * dw_row_behind and of join. */
dw_status dw_rows_join(dw_rows *rows, const char *uri, uint32_t local_rank, dw_why *why);
/* Returns the place in a joined transport; NULL: it was not joined. */
const dw_transport_place *dw_rows_place(const dw_rows *rows, const dw_transport *row);
/* Leaves all of them, in reverse order. */
void dw_rows_leave(dw_rows *rows);

/* `deltawire transports`: lists the transports, and whether they can be used here. */
int dw_cli_transports(int argc, char **argv);

#endif
