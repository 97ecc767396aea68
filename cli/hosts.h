/* SPDX-License-Identifier: Apache-2.0
 * hosts.h - names of this machine that lead to its loopback interface, where other machines cannot
 * reach it. */
#ifndef DW_CLI_HOSTS_H
#define DW_CLI_HOSTS_H

#include <stdbool.h>
#include <stddef.h>

enum { DW_HOST_BYTES = 256 };

/* Stores the host of the address tcp://host:port in a URI, without the brackets of IPv6; "": the
 * URI has none. */
void dw_host_of(const char *uri, char host[DW_HOST_BYTES]);
/* Stores the URI with another host, which has brackets if it is an address of IPv6. */
void dw_with_host(const char *uri, const char *host, char *text, size_t cap);

/* Whether a host is a name for this machine that leads to its loopback interface here, as 127.0.1.1
 * does on Debian: for other machines the same name has another address. Never so for localhost, or
 * for an address. */
bool dw_is_own_name(const char *host);
/* Returns the host that stands for all addresses of this machine, and prints that this process
 * listens there, because `name` is an own name. */
const char *dw_all_addresses(const char *name);
/* Returns the URI on which to listen for other machines: `uri`, or if its host is an own name,
 * `text`, with all addresses in its place. */
const char *dw_uri_for_others(const char *uri, char *text, size_t cap);

#endif
