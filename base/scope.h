/* SPDX-License-Identifier: Apache-2.0
 * scope.h - the scope of a link-local address of IPv6, which names an interface of the machine on
 * which it is used: %eth0 in tcp://[fe80::1%eth0]:7000. */
#ifndef DW_SCOPE_H
#define DW_SCOPE_H

#include <stdio.h>
#include <string.h>

/* The scope in a URI, and its length; NULL: there is none. */
static inline const char *dw_find_scope(const char *uri, size_t *len)
{
    const char *host = strchr(uri, '['), *scope = host ? strchr(host, '%') : NULL;
    *len = scope ? strcspn(scope, "]") : 0;
    return scope && scope[*len] ? scope : NULL;
}

/* Copies a URI that another machine has written. If it and `own`, an address of this machine, have
 * a scope, ours stands in the copy. Where `to` has no room for it, the copy is empty. */
static inline void dw_copy_with_scope(char *to, size_t cap, const char *uri, const char *own)
{
    size_t len, own_len;
    const char *scope = dw_find_scope(uri, &len), *own_scope = dw_find_scope(own, &own_len);
    if (!scope || !own_scope) len = own_len = 0, scope = own_scope = uri;
    int n = snprintf(to, cap, "%.*s%.*s%s", (int)(scope - uri), uri, (int)own_len, own_scope,
                     scope + len);
    if (n < 0 || (size_t)n >= cap) *to = '\0';
}

#endif
