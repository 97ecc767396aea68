/* SPDX-License-Identifier: Apache-2.0
 * send_queue.c - the messages of a link that wait to be sent, and how long they have waited. */
#include "link/link.h"

/* queue_ns grows by the number of waiting messages times the time since the last change. So it is
 * the sum of the waiting times of all messages. */
static void pass_time(dw_link *link)
{
    int64_t now = dw_now_ns();
    link->counters.queue_ns += link->unsent * (uint64_t)(now - link->unsent_ns);
    link->unsent_ns = now;
}

void dw_link_append(dw_link *link, dw_buffer *buffer)
{
    buffer->next = NULL;
    if (link->queue_tail)
        link->queue_tail->next = buffer;
    else
        link->queue_head = buffer;
    link->queue_tail = buffer;
    pass_time(link);
    link->unsent++;
    link->unsent_bytes += buffer->len;
}

void dw_link_has_left(dw_link *link, const dw_buffer *buffer)
{
    pass_time(link);
    link->unsent--;
    link->unsent_bytes -= buffer->len;
}
