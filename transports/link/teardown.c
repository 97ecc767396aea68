/* SPDX-License-Identifier: Apache-2.0
 * teardown.c - the end of a link: closes the backend and frees all memory. */
#include "link/link.h"

void dw_link_close_endpoint(dw_link *link)
{
    if (dw_backend_close(&link->backend)) return;
    pthread_mutex_lock(&link->lock);
    dw_sender_lose(&link->sender);
    dw_receiver_lose(&link->receiver);
    dw_send_queue_lose_kept(&link->queue);
    pthread_mutex_unlock(&link->lock);
}

void dw_link_free(dw_link *link)
{
    dw_link_close_endpoint(link);
    dw_inbox_empty(&link->inboxes);
    dw_buffer_pool_empty(&link->pool);
    const dw_allocator allocator = link->settings.allocator;
    dw_sender_destroy(&link->sender);
    dw_receiver_destroy(&link->receiver);
    dw_backend_destroy(&link->backend);
    dw_wakeup_close(&link->io.thread_wakeup);
    dw_wakeup_close(&link->io.caller_wakeup);
    pthread_cond_destroy(&link->inboxes.arrived);
    pthread_cond_destroy(&link->queue.drained);
    pthread_cond_destroy(&link->handlers.handled);
    pthread_cond_destroy(&link->lifetime.idle);
    pthread_cond_destroy(&link->io.standby);
    pthread_mutex_destroy(&link->lock);
    dw_fork_guard_end(&link->fork_guard);
    dw_mem_release(&allocator, link, sizeof *link);
}

/* Calls of other threads may still be running. They have been woken and return soon, since the link
 * has ended. */
void dw_link_tear_down(dw_link *link)
{
    pthread_mutex_lock(&link->lock);
    dw_lifetime_wait_idle(&link->lifetime, &link->lock);
    pthread_mutex_unlock(&link->lock);
    dw_link_free(link);
}
