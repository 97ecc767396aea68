/* SPDX-License-Identifier: Apache-2.0
 * tls_secret.h - files that only their owner may read. */
#ifndef DW_TLS_SECRET_H
#define DW_TLS_SECRET_H

#include "deltawire/transport.h"

/* Opens a file for reading. `what` names its content in messages, for instance "group key". The
 * caller closes *fd. Errors: IO; CONFIG if users other than the owner and the group may read or
 * change the file. State: none. Threads: any. */
dw_status dw_tls_open_secret(const char *path, const char *what, int *fd, dw_why *why);

#endif
