/* SPDX-License-Identifier: Apache-2.0
 * uri.c - the choice of a backend by the scheme of a URI. */
#include <stdio.h>
#include <string.h>

#include "common/backends.h"
#include "link/link.h"

static const dw_transport *const built_in[] = {&dw_transport_tcp, &dw_transport_loop,
                                               &dw_transport_shaped, NULL};

const dw_transport *const *dw_link_transports(void)
{
    return built_in;
}

static const dw_transport *find_in(const dw_transport *const *transports, const char *scheme,
                                   size_t len)
{
    for (; transports && *transports; transports++) {
        if ((*transports)->scheme && strlen((*transports)->scheme) == len &&
            memcmp((*transports)->scheme, scheme, len) == 0) {
            return *transports;
        }
    }
    return NULL;
}

/* The transports of the options take precedence over built-in ones of the same name. */
static const dw_transport *find_scheme(const dw_link_options *options, const char *scheme,
                                       size_t len)
{
    const dw_transport *found = find_in(options->transports, scheme, len);
    return found ? found : find_in(built_in, scheme, len);
}

static void *context_of(const dw_link_options *options, const char *scheme)
{
    const dw_transport_context *at = options->contexts;
    while (at && at->scheme && strcmp(at->scheme, scheme) != 0) at++;
    return at && at->scheme ? at->context : NULL;
}

const dw_transport *dw_uri_find(void *find_context, const char *uri, dw_transport_open *how)
{
    const dw_link_options *options = find_context;
    size_t len = strcspn(uri, ":/");
    if (uri[len] != ':') return NULL;
    const dw_transport *found = find_scheme(options, uri, len);
    if (!found) return NULL;
    how->address = uri + len + 1;
    if (strncmp(how->address, "//", 2) == 0) how->address += 2;
    how->context = context_of(options, found->scheme);
    return found;
}

/* A context whose scheme no transport has is an error: the transport is missing, or the name is
 * misspelt. */
dw_status dw_uri_check_contexts(const dw_link_options *options, dw_why *why)
{
    for (const dw_transport_context *at = options->contexts; at && at->scheme; at++) {
        if (!find_scheme(options, at->scheme, strlen(at->scheme))) {
            return dw_say(why, DW_ERR_ARGUMENT,
                          "dw_link_options.contexts names the transport '%.40s', which is "
                          "neither built in nor in dw_link_options.transports",
                          at->scheme);
        }
        for (const dw_transport_context *other = options->contexts; other != at; other++) {
            if (strcmp(other->scheme, at->scheme) == 0)
                return dw_say(why, DW_ERR_ARGUMENT,
                              "dw_link_options.contexts has two entries for '%.40s'; leave "
                              "one out",
                              at->scheme);
        }
    }
    return DW_OK;
}

dw_status dw_uri_explain_unknown(const dw_transport *const *transports, const char *uri,
                                 dw_why *why)
{
    char known[160] = "";
    const dw_transport *const *lists[] = {built_in, transports};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        for (const dw_transport *const *t = lists[i]; t && *t; t++) {
            size_t used = strlen(known);
            snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "",
                     (*t)->scheme ? (*t)->scheme : "?");
        }
    }
    size_t len = strcspn(uri, ":/");
    if (uri[len] != ':' || len == 0) {
        return dw_say_at(why, DW_ERR_CONFIG, 0,
                         "'%.80s' does not start with a scheme; write tcp://host:port (known: %s)",
                         uri, known);
    }
    return dw_say_at(why, DW_ERR_UNSUPPORTED, 0,
                     "no transport is called '%.*s'; write one of %s in "
                     "front, as in tcp://host:port",
                     len > 40 ? 40 : (int)len, uri, known);
}
