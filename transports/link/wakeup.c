/* SPDX-License-Identifier: Apache-2.0
 * wakeup.c - how the threads of a link learn that something has changed: wake-up file descriptors,
 * conditions, its end. */
#include <stdio.h>
#include <unistd.h>

#include "base/printable.h"
#include "link/link.h"

void dw_wakeup_signal(const struct dw_wakeup_fd *wakeup)
{
    /* If the pipe is full, the write fails, but the reader wakes up all the same. */
    ssize_t written = write(wakeup->write, "", 1);
    (void)written;
}

void dw_wakeup_clear(const struct dw_wakeup_fd *wakeup)
{
    char bytes[64];
    while (read(wakeup->read, bytes, sizeof bytes) > 0) {
    }
}

void dw_link_wake(dw_link *link)
{
    link->has_changed = true;
    if (link->io_owner == DW_IO_FREE) {
        link->thread_needed = true;
        pthread_cond_signal(&link->standby);
        return;
    }
    if (!link->sleeping) return;
    link->sleeping = false;
    dw_wakeup_signal(link->io_owner == DW_IO_ASLEEP ? &link->thread_wakeup : &link->caller_wakeup);
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
        dw_wakeup_signal(&link->thread_wakeup);
    else
        pthread_cond_signal(&link->standby);
}
