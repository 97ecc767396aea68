/* SPDX-License-Identifier: Apache-2.0
 * queue.c - the messages of a link that wait to be sent, and how long they have waited. */
#include "link/link.h"

/* queue_ns grows by the number of waiting messages times the time since the last change. So it is
 * the sum of the waiting times of all messages. */
void dw_link_count_unsent(dw_link *link, int more)
{
    int64_t now = dw_link_now_ns();
    link->counters.queue_ns += link->unsent * (uint64_t)(now - link->unsent_ns);
    link->unsent_ns = now;
    if (more > 0)
        link->unsent += (uint64_t)more;
    else
        link->unsent -= (uint64_t)-more;
}

void dw_link_append(dw_link *link, dw_buffer *buffer)
{
    buffer->next = NULL;
    if (link->queue_tail)
        link->queue_tail->next = buffer;
    else
        link->queue_head = buffer;
    link->queue_tail = buffer;
    dw_link_count_unsent(link, 1);
}
