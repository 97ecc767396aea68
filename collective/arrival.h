/* SPDX-License-Identifier: Apache-2.0
 * arrival.h - messages that a group has in memory: those that have arrived, and those that it keeps
 * until they are acknowledged or an operation has ended.
 *
 * Memory: long messages stay where their link has put them; the others are in blocks that the group
 * uses again. Threads: take, copy, hold and give lock the group, so the caller must not hold its
 * lock; lists belong to whoever has them. */
#ifndef DW_GROUP_ARRIVAL_H
#define DW_GROUP_ARRIVAL_H

#include "deltawire/collective.h"
#include "message.h"

/* A message that arrived, or is kept. Its bytes follow this struct in memory, at offset
 * DW_ARRIVAL_HEAD, or, if it is long, lie in memory of the link that received or sent it. */
typedef struct dw_arrival {
    struct dw_arrival *next;
    size_t room, len;           /* room behind the struct; length of the message */
    const unsigned char *bytes; /* the message */
    dw_link *link;              /* which has these bytes; NULL: they follow */
    void *held;                 /* what the link gets back */
    uint32_t from;              /* the rank that sent it */
    dw_message head;            /* filled in by the worker */
} dw_arrival;

enum { DW_ARRIVAL_HEAD = 128 };
_Static_assert(sizeof(dw_arrival) <= DW_ARRIVAL_HEAD, "the bytes follow the struct");

typedef struct dw_arrivals {
    dw_arrival *head, *tail;
} dw_arrivals;

/* Blocks of memory for messages that are not in use at the moment, so that later messages need no
 * allocation. unused[i]: a list of blocks for 2^i bytes. */
enum { DW_ARRIVAL_CLASSES = 40 };
typedef struct dw_arrival_pool {
    dw_arrival *unused[DW_ARRIVAL_CLASSES];
    uint64_t unused_bytes;
} dw_arrival_pool;

/* take: a block with room for len bytes. copy: one with a copy of the message. hold: the same for a
 * message in memory of a link, either in its handler or between dw_link_send_begin and _end; a long
 * one is not copied, and the link keeps it until give. All three: NULL: no memory. weight: how many
 * bytes of memory it takes. give: ends the use; NULL is allowed. put and get: at the end of a list,
 * and from its start. */
dw_arrival *dw_arrival_take(dw_group *group, size_t len);
dw_arrival *dw_arrival_copy(dw_group *group, const void *message, size_t len);
dw_arrival *dw_arrival_hold(dw_group *group, dw_link *link, const void *message, size_t len);
size_t dw_arrival_weight(const dw_arrival *arrival);
void dw_arrival_give(dw_group *group, dw_arrival *arrival);
void dw_arrival_free_all(dw_group *group);
void dw_arrivals_put(dw_arrivals *list, dw_arrival *arrival);
dw_arrival *dw_arrivals_get(dw_arrivals *list);
static inline unsigned char *dw_arrival_room(dw_arrival *arrival)
{
    return (unsigned char *)arrival + DW_ARRIVAL_HEAD;
}
static inline const unsigned char *dw_arrival_body(const dw_arrival *arrival)
{
    return arrival->bytes + DW_MESSAGE_BYTES;
}

#endif
