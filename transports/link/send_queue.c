/* SPDX-License-Identifier: Apache-2.0
 * send_queue.c - the messages of a link that wait to be sent or acknowledged, what they count
 * against max_queued_bytes, and how long they have waited. */
#include "base/clock.h"
#include "link/messages.h"

/* What a message counts against max_queued_bytes. An empty message needs memory, too. */
static uint64_t cost(size_t len)
{
    return (uint64_t)len + DW_BUFFER_PREFIX_BYTES;
}

bool dw_send_queue_has_room(const dw_send_queue *queue, size_t cap)
{
    /* An empty queue takes any message. Otherwise a message longer than the limit could never be
     * sent. */
    return queue->bytes == 0 || queue->bytes + cost(cap) <= queue->max_bytes;
}

bool dw_send_queue_exceeds_answers(const dw_send_queue *queue, uint64_t max_message_bytes)
{
    return queue->bytes > queue->max_bytes &&
           queue->bytes - queue->max_bytes > queue->max_bytes + max_message_bytes;
}

bool dw_send_queue_is_drained(const dw_send_queue *queue)
{
    return queue->unsent == 0 && queue->kept == 0;
}

dw_buffer *dw_send_queue_reserve(dw_send_queue *queue, uint32_t tag, size_t cap)
{
    dw_buffer *buffer = dw_buffer_take(queue->pool, cap);
    if (!buffer) return NULL;
    buffer->tag = tag;
    buffer->kind = DW_KIND_DATA;
    buffer->len = cap;
    queue->bytes += cost(cap);
    return buffer;
}

static void drop(dw_send_queue *queue, dw_buffer *buffer)
{
    if (buffer->kind == DW_KIND_DATA) queue->bytes -= cost(buffer->len);
    dw_buffer_drop(queue->pool, buffer);
}

void dw_send_queue_unreserve(dw_send_queue *queue, dw_buffer *buffer)
{
    drop(queue, buffer);
    pthread_cond_broadcast(&queue->drained);
}

/* ---- Waiting to be sent ---------------------------------------------------------------------- */

/* queue_ns grows by the number of waiting messages times the time since the last change. So it is
 * the sum of the waiting times of all messages. */
static void pass_time(dw_send_queue *queue)
{
    int64_t now = dw_now_ns();
    queue->queue_ns += queue->unsent * (uint64_t)(now - queue->unsent_ns);
    queue->unsent_ns = now;
}

static void append(dw_send_queue *queue, dw_buffer *buffer)
{
    buffer->next = NULL;
    if (queue->tail)
        queue->tail->next = buffer;
    else
        queue->head = buffer;
    queue->tail = buffer;
    pass_time(queue);
    queue->unsent++;
    queue->unsent_bytes += buffer->len;
}

/* A message that was appended has been sent, or dropped, and does not wait any more. */
static void has_left(dw_send_queue *queue, const dw_buffer *buffer)
{
    pass_time(queue);
    queue->unsent--;
    queue->unsent_bytes -= buffer->len;
}

void dw_send_queue_commit(dw_send_queue *queue, dw_buffer *buffer, size_t len)
{
    queue->bytes -= cost(buffer->len);
    buffer->len = len;
    queue->bytes += cost(len);
    append(queue, buffer);
}

dw_buffer *dw_send_queue_next(dw_send_queue *queue)
{
    dw_buffer *buffer = queue->head;
    if (!buffer) return NULL;
    queue->head = buffer->next;
    if (!queue->head) queue->tail = NULL;
    return buffer;
}

void dw_send_queue_drop(dw_send_queue *queue)
{
    dw_buffer *buffer;
    while ((buffer = dw_send_queue_next(queue)) != NULL) {
        has_left(queue, buffer);
        drop(queue, buffer);
    }
}

bool dw_send_queue_say_goodbye(dw_send_queue *queue)
{
    dw_buffer *goodbye = dw_buffer_take(queue->pool, 0);
    queue->goodbye = DW_GOODBYE_QUEUED;
    if (!goodbye) return false;
    goodbye->kind = DW_KIND_BYE;
    append(queue, goodbye);
    return true;
}

/* ---- Kept by the backend --------------------------------------------------------------------- */

void dw_send_queue_keep(dw_send_queue *queue, dw_buffer *sent)
{
    if (sent->kind != DW_KIND_HELLO) has_left(queue, sent);
    sent->next = NULL;
    if (queue->kept_tail)
        queue->kept_tail->next = sent;
    else
        queue->kept_head = sent;
    queue->kept_tail = sent;
    queue->kept++;
    if (sent->kind == DW_KIND_BYE) queue->goodbye = DW_GOODBYE_SENT;
    if (sent->kind == DW_KIND_DATA) queue->messages_sent++;
}

void dw_send_queue_lose_kept(dw_send_queue *queue)
{
    for (dw_buffer *kept = queue->kept_head, *next; kept; kept = next) {
        next = kept->next;
        dw_buffer_lose(queue->pool, kept);
    }
    queue->kept_head = queue->kept_tail = NULL;
}

void dw_send_queue_release(dw_send_queue *queue, uint64_t still_kept)
{
    if (queue->kept <= still_kept) return;
    while (queue->kept_head && queue->kept > still_kept) {
        dw_buffer *buffer = queue->kept_head;
        queue->kept_head = buffer->next;
        if (!queue->kept_head) queue->kept_tail = NULL;
        queue->kept--;
        drop(queue, buffer);
    }
    pthread_cond_broadcast(&queue->drained);
}
