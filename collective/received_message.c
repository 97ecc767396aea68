/* SPDX-License-Identifier: Apache-2.0
 * received_message.c - memory for messages that arrived. Blocks have a power of two as their size
 * and are used again, so that nothing is allocated once an operation has run. Long messages stay
 * where the link has put them. */
#include "received_message.h"

#include <string.h>

#include "base/mem.h"
#include "link/for_groups.h"

/* At most so many bytes of unused blocks are kept. */
#define UNUSED_MOST (UINT64_C(256) << 20)
enum { LEAST_BITS = 9 };

void dw_received_open(dw_received_pool *pool, const dw_allocator *allocator, size_t held_from)
{
    *pool = (dw_received_pool){.allocator = *allocator, .held_from = held_from};
    pthread_mutex_init(&pool->lock, NULL);
}

static unsigned class_of(size_t len)
{
    unsigned bits = LEAST_BITS;
    while (bits < DW_RECEIVED_CLASSES - 1 && (size_t)1 << bits < len) bits++;
    return bits;
}

dw_received *dw_received_take(dw_received_pool *pool, size_t len)
{
    unsigned class = class_of(len);
    size_t room = (size_t)1 << class;
    if (room < len) return NULL;
    pthread_mutex_lock(&pool->lock);
    dw_received *received = pool->unused[class];
    if (received) {
        pool->unused[class] = received->next;
        pool->unused_bytes -= room;
    }
    pthread_mutex_unlock(&pool->lock);
    if (!received) received = dw_mem_allocate(&pool->allocator, DW_RECEIVED_HEAD + room);
    if (received)
        *received = (dw_received){.room = room, .len = len, .bytes = dw_received_room(received)};
    return received;
}

dw_received *dw_received_copy(dw_received_pool *pool, const void *message, size_t len)
{
    dw_received *received = dw_received_take(pool, len);
    if (received && len > 0) memcpy(dw_received_room(received), message, len);
    return received;
}

dw_received *dw_received_hold(dw_received_pool *pool, dw_link *link, const void *message,
                              size_t len)
{
    if (len < pool->held_from) return dw_received_copy(pool, message, len);
    dw_received *received = dw_received_take(pool, 0);
    if (!received) return NULL;
    received->held = dw_link_retain(link, message);
    received->len = len;
    received->bytes = message;
    received->link = link;
    return received;
}

/* The blocks of links have powers of two as their sizes, too. */
size_t dw_received_weight(const dw_received *received)
{
    size_t held = received->link ? (size_t)1 << class_of(received->len) : 0;
    return DW_RECEIVED_HEAD + received->room + held;
}

void dw_received_give(dw_received_pool *pool, dw_received *received)
{
    if (!received) return;
    if (received->link) dw_link_release(received->link, received->held);
    unsigned class = class_of(received->room);
    pthread_mutex_lock(&pool->lock);
    bool keeps = pool->unused_bytes + received->room <= UNUSED_MOST;
    if (keeps) {
        received->next = pool->unused[class];
        pool->unused[class] = received;
        pool->unused_bytes += received->room;
    }
    pthread_mutex_unlock(&pool->lock);
    if (!keeps) dw_mem_release(&pool->allocator, received, DW_RECEIVED_HEAD + received->room);
}

void dw_received_free_all(dw_received_pool *pool)
{
    for (unsigned i = 0; i < DW_RECEIVED_CLASSES; i++) {
        dw_received *received = pool->unused[i];
        while (received) {
            dw_received *next = received->next;
            dw_mem_release(&pool->allocator, received, DW_RECEIVED_HEAD + received->room);
            received = next;
        }
        pool->unused[i] = NULL;
    }
    pool->unused_bytes = 0;
    pthread_mutex_destroy(&pool->lock);
}

void dw_received_append(dw_received_list *list, dw_received *received)
{
    received->next = NULL;
    if (list->tail)
        list->tail->next = received;
    else
        list->head = received;
    list->tail = received;
}

dw_received *dw_received_pop(dw_received_list *list)
{
    dw_received *received = list->head;
    if (!received) return NULL;
    list->head = received->next;
    if (!list->head) list->tail = NULL;
    received->next = NULL;
    return received;
}
