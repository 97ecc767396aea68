/* SPDX-License-Identifier: Apache-2.0
 * notice.c - how the threads of a link learn that something has changed: bells, conditions, its
 * end. */
#include <stdio.h>
#include <unistd.h>

#include "base/printable.h"
#include "link/link.h"

void dw_link_ring(const struct dw_bell *bell)
{
    /* If the pipe is full, the write fails, but the reader wakes up all the same. */
    ssize_t written = write(bell->write, "", 1);
    (void)written;
}

void dw_link_hush(const struct dw_bell *bell)
{
    char bytes[64];
    while (read(bell->read, bytes, sizeof bytes) > 0) {
    }
}

void dw_link_wake(dw_link *link)
{
    link->kicked = true;
    if (link->wheel == DW_WHEEL_FREE) {
        link->thread_needed = true;
        pthread_cond_signal(&link->standby);
        return;
    }
    if (!link->sleeping) return;
    link->sleeping = false;
    dw_link_ring(link->wheel == DW_WHEEL_ASLEEP ? &link->thread_bell : &link->caller_bell);
}

void dw_link_fail(dw_link *link, dw_status status, const char *sentence)
{
    if (link->status == DW_OK) {
        snprintf(link->why.text, sizeof link->why.text, "%s", sentence);
        dw_make_printable(link->why.text); /* it may quote the peer */
        link->why.offset = -1;
        link->status = status;
        link->has_sent_all = link->unsent == 0 && link->kept == 0;
    }
    pthread_cond_broadcast(&link->arrived);
    pthread_cond_broadcast(&link->drained);
    dw_link_wake(link);
}

void dw_link_call_handlers(dw_link *link)
{
    link->handlers_due = true;
    if (link->thread_polls)
        dw_link_ring(&link->thread_bell);
    else
        pthread_cond_signal(&link->standby);
}
