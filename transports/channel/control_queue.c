/* SPDX-License-Identifier: Apache-2.0
 * control_queue.c - control messages of the peer that wait for the holder of the encoder's lock,
 * and what other threads need to know of them. */
#include "channel/channel.h"

dw_buffer *dw_control_queue_next(dw_control_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    dw_buffer *message = queue->head;
    if (message) {
        queue->head = message->next;
        if (!queue->head) queue->tail = NULL;
    }
    pthread_mutex_unlock(&queue->lock);
    return message;
}

void dw_control_queue_put(dw_control_queue *queue, dw_buffer *message)
{
    message->next = NULL;
    pthread_mutex_lock(&queue->lock);
    if (queue->tail)
        queue->tail->next = message;
    else
        queue->head = message;
    queue->tail = message;
    pthread_mutex_unlock(&queue->lock);
}

bool dw_control_queue_has_messages(dw_control_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    bool has = queue->head != NULL;
    pthread_mutex_unlock(&queue->lock);
    return has;
}

void dw_control_queue_set_unacknowledged(dw_control_queue *queue, uint64_t n)
{
    pthread_mutex_lock(&queue->lock);
    queue->unacknowledged = n;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

void dw_control_queue_close(dw_control_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->is_peer_closed = true;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

bool dw_control_queue_is_closed(dw_control_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    bool is_closed = queue->is_peer_closed;
    pthread_mutex_unlock(&queue->lock);
    return is_closed;
}

bool dw_control_queue_wait(dw_control_queue *queue, dw_link *link, int64_t deadline_ns)
{
    /* Waits in short steps, because the end of the link does not signal this condition. */
    int64_t step_ns = (int64_t)20 * DW_NS_PER_MS;
    pthread_mutex_lock(&queue->lock);
    while (queue->unacknowledged > 0 && !queue->is_peer_closed && dw_now_ns() < deadline_ns &&
           dw_link_why(link)[0] == '\0') {
        int64_t until = dw_now_ns() + step_ns;
        struct timespec at = {.tv_sec = (time_t)(until / 1000000000),
                              .tv_nsec = (long)(until % 1000000000)};
        pthread_cond_timedwait(&queue->changed, &queue->lock, &at);
    }
    bool is_done = queue->unacknowledged == 0;
    pthread_mutex_unlock(&queue->lock);
    return is_done;
}
