/* SPDX-License-Identifier: Apache-2.0
 * failure.c - why a link has ended. */
#include <stdio.h>

#include "base/printable.h"
#include "link/endpoint.h"

void dw_link_failure_set(dw_link_failure *failure, dw_status status, const char *sentence,
                         bool has_sent_all)
{
    if (failure->status != DW_OK) return;
    snprintf(failure->why.text, sizeof failure->why.text, "%s", sentence);
    dw_make_printable(failure->why.text); /* it may quote the peer */
    failure->why.offset = -1;
    failure->status = status;
    failure->has_sent_all = has_sent_all;
}

void dw_link_failure_cancel(dw_link_failure *failure)
{
    failure->status = DW_ERR_CANCELLED;
}
