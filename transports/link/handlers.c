/* SPDX-License-Identifier: Apache-2.0
 * handlers.c - calls the program's handlers, and knows which of them runs. */
#include "link/messages.h"

/* The lock is released meanwhile, because a handler may call the link. */
void dw_handlers_run(dw_handlers *handlers, dw_handler_run *run, dw_inbox *inbox)
{
    dw_link_handler handle = inbox->handle;
    void *context = inbox->handle_context;
    *run = (dw_handler_run){.is_running = true, .tag = inbox->tag, .thread = pthread_self()};
    dw_buffer *buffer = dw_inbox_take(handlers->inboxes, inbox);
    pthread_mutex_unlock(handlers->lock);
    handle(context, dw_buffer_payload(buffer), buffer->len);
    pthread_mutex_lock(handlers->lock);
    run->is_running = false;
    dw_buffer_drop(handlers->pool, buffer);
    pthread_cond_broadcast(&handlers->handled);
}

static bool is_elsewhere(const dw_handler_run *run, uint32_t tag)
{
    return run->is_running && run->tag == tag && !pthread_equal(pthread_self(), run->thread);
}

bool dw_handlers_run_elsewhere(const dw_handlers *handlers, uint32_t tag)
{
    return is_elsewhere(&handlers->by_thread, tag) || is_elsewhere(&handlers->by_caller, tag);
}
