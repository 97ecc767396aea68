/* SPDX-License-Identifier: Apache-2.0
 * link.c - a program of a user of links. It only checks that an unknown scheme is refused. */
#include <stdio.h>
#include <string.h>

#include "deltawire/transport.h"

int main(void)
{
    dw_link *link = NULL;
    dw_link_options options = {.struct_size = sizeof options};
    dw_why why = {.text = ""};
    dw_status status = dw_link_open(&link, "pigeon://loft", &options, &why);
    printf("%s\n", why.text);
    return status != DW_OK && link == NULL && strstr(why.text, "pigeon") ? 0 : 1;
}
