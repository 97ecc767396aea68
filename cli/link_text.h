/* SPDX-License-Identifier: Apache-2.0
 * link_text.h - what the text of --link says before anything is opened. */
#ifndef DW_CLI_LINK_TEXT_H
#define DW_CLI_LINK_TEXT_H

#include <stdbool.h>

/* What stands behind "shaped:...": by that the ranks meet, and all links of the run are shaped. */
const char *dw_link_text_inner(const char *link);

/* Whether the ranks meet by a scheme, "mpi" for instance. link NULL: they do not. */
bool dw_link_text_is(const char *link, const char *scheme);

#endif
