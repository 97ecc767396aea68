/* SPDX-License-Identifier: Apache-2.0
 * link_text.c - reads the text of --link without opening anything. */
#include "link_text.h"

#include <stddef.h>
#include <string.h>

const char *dw_link_text_inner(const char *link)
{
    while (!strncmp(link, "shaped:", 7) && strchr(link, '/')) link = strchr(link, '/') + 1;
    return link;
}

bool dw_link_text_is(const char *link, const char *scheme)
{
    size_t len = strlen(scheme);
    if (!link) return false;
    const char *inner = dw_link_text_inner(link);
    return !strncmp(inner, scheme, len) && inner[len] == ':';
}
