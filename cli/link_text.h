/* SPDX-License-Identifier: Apache-2.0
 * link_text.h - reads the text of --link without opening anything. */
#ifndef DW_CLI_LINK_TEXT_H
#define DW_CLI_LINK_TEXT_H

#include <stdbool.h>

/* The part of link after "shaped:.../": the ranks meet by it, and all links of the run are shaped.
 */
const char *dw_link_text_inner(const char *link);

/* Whether that part has the scheme, for instance "mpi". False if link is NULL. */
bool dw_link_text_is(const char *link, const char *scheme);

#endif
