/* SPDX-License-Identifier: Apache-2.0
 * teardown.c - the end of a link: closes the backend and frees all memory. */
#include <unistd.h>

#include "link/link.h"

/* In one that was never made both numbers are 0. */
void dw_wakeup_close(const struct dw_wakeup_fd *wakeup)
{
    if (wakeup->read == wakeup->write) return;
    close(wakeup->read);
    close(wakeup->write);
}

void dw_link_close_endpoint(dw_link *link)
{
    if (!link->endpoint_open) return;
    link->endpoint_open = false;
    if (link->transport.close(link->endpoint) != DW_PENDING) return;
    pthread_mutex_lock(&link->lock);
    if (link->sending) dw_buffer_lose(&link->pool, link->sending);
    if (link->receiving) dw_buffer_lose(&link->pool, link->receiving);
    link->sending = link->receiving = NULL;
    pthread_mutex_unlock(&link->lock);
}

void dw_link_free(dw_link *link)
{
    dw_link_close_endpoint(link);
    dw_inbox_empty(&link->inboxes);
    dw_buffer_pool_empty(&link->pool);
    const dw_allocator allocator = link->allocator;
    dw_mem_release(&allocator, link->endpoint, link->transport.endpoint_bytes);
    dw_mem_release(&allocator, link->send_request, link->transport.request_bytes);
    dw_mem_release(&allocator, link->recv_request, link->transport.request_bytes);
    dw_wakeup_close(&link->thread_wakeup);
    dw_wakeup_close(&link->caller_wakeup);
    pthread_cond_destroy(&link->arrived);
    pthread_cond_destroy(&link->drained);
    pthread_cond_destroy(&link->handled);
    pthread_cond_destroy(&link->standby);
    pthread_mutex_destroy(&link->lock);
    dw_owner_end(&link->owner);
    dw_mem_release(&allocator, link, sizeof *link);
}

/* Calls of other threads may still be running. They have been woken and return soon, since the link
 * has ended. */
void dw_link_tear_down(dw_link *link)
{
    pthread_mutex_lock(&link->lock);
    while (link->callers > 0) pthread_cond_wait(&link->handled, &link->lock);
    pthread_mutex_unlock(&link->lock);
    dw_link_free(link);
}
