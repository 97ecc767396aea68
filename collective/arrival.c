/* SPDX-License-Identifier: Apache-2.0
 * arrival.c - memory for messages that arrived. Blocks have a power of two as their size and are
 * used again, so that nothing is allocated once an operation has run. Long messages stay where the
 * link has put them. */
#include <string.h>

#include "group.h"

/* At most so many bytes of unused blocks are kept. */
#define UNUSED_MOST (UINT64_C(256) << 20)
enum { LEAST_BITS = 9 };

static unsigned class_of(size_t len)
{
    unsigned bits = LEAST_BITS;
    while (bits < DW_ARRIVAL_CLASSES - 1 && (size_t)1 << bits < len) bits++;
    return bits;
}

dw_arrival *dw_arrival_take(dw_group *group, size_t len)
{
    unsigned class = class_of(len);
    size_t room = (size_t)1 << class;
    if (room < len) return NULL;
    pthread_mutex_lock(&group->lock);
    dw_arrival *arrival = group->pool.unused[class];
    if (arrival) {
        group->pool.unused[class] = arrival->next;
        group->pool.unused_bytes -= room;
    }
    pthread_mutex_unlock(&group->lock);
    if (!arrival) arrival = dw_group_memory_take(&group->allocator, DW_ARRIVAL_HEAD + room);
    if (arrival)
        *arrival = (dw_arrival){.room = room, .len = len, .bytes = dw_arrival_room(arrival)};
    return arrival;
}

dw_arrival *dw_arrival_copy(dw_group *group, const void *message, size_t len)
{
    dw_arrival *arrival = dw_arrival_take(group, len);
    if (arrival && len > 0) memcpy(dw_arrival_room(arrival), message, len);
    return arrival;
}

dw_arrival *dw_arrival_hold(dw_group *group, dw_link *link, const void *message, size_t len)
{
    if (len < group->thresholds.held_from) return dw_arrival_copy(group, message, len);
    dw_arrival *arrival = dw_arrival_take(group, 0);
    if (!arrival) return NULL;
    arrival->held = dw_link_retain(link, message);
    arrival->len = len;
    arrival->bytes = message;
    arrival->link = link;
    return arrival;
}

/* The blocks of links have powers of two as their sizes, too. */
size_t dw_arrival_weight(const dw_arrival *arrival)
{
    size_t held = arrival->link ? (size_t)1 << class_of(arrival->len) : 0;
    return DW_ARRIVAL_HEAD + arrival->room + held;
}

void dw_arrival_give(dw_group *group, dw_arrival *arrival)
{
    if (!arrival) return;
    if (arrival->link) dw_link_release(arrival->link, arrival->held);
    unsigned class = class_of(arrival->room);
    pthread_mutex_lock(&group->lock);
    bool keeps = group->pool.unused_bytes + arrival->room <= UNUSED_MOST;
    if (keeps) {
        arrival->next = group->pool.unused[class];
        group->pool.unused[class] = arrival;
        group->pool.unused_bytes += arrival->room;
    }
    pthread_mutex_unlock(&group->lock);
    if (!keeps) dw_group_memory_give(&group->allocator, arrival, DW_ARRIVAL_HEAD + arrival->room);
}

void dw_arrival_free_all(dw_group *group)
{
    for (unsigned i = 0; i < DW_ARRIVAL_CLASSES; i++) {
        dw_arrival *arrival = group->pool.unused[i];
        while (arrival) {
            dw_arrival *next = arrival->next;
            dw_group_memory_give(&group->allocator, arrival, DW_ARRIVAL_HEAD + arrival->room);
            arrival = next;
        }
        group->pool.unused[i] = NULL;
    }
    group->pool.unused_bytes = 0;
}

void dw_arrivals_put(dw_arrivals *list, dw_arrival *arrival)
{
    arrival->next = NULL;
    if (list->tail)
        list->tail->next = arrival;
    else
        list->head = arrival;
    list->tail = arrival;
}

dw_arrival *dw_arrivals_get(dw_arrivals *list)
{
    dw_arrival *arrival = list->head;
    if (!arrival) return NULL;
    list->head = arrival->next;
    if (!list->head) list->tail = NULL;
    arrival->next = NULL;
    return arrival;
}
