/* SPDX-License-Identifier: Apache-2.0
 * received_message.h - messages that a group has in memory: those that have arrived, and those that
 * it keeps until they are acknowledged or an operation has ended.
 *
 * Memory: long messages stay where their link has put them; the others are in blocks that the pool
 * uses again. Threads: the pool has a lock of its own; lists belong to whoever has them. */
#ifndef DW_GROUP_RECEIVED_MESSAGE_H
#define DW_GROUP_RECEIVED_MESSAGE_H

#include <pthread.h>

#include "deltawire/collective.h"
#include "message.h"

/* A message that arrived, or is kept. Its bytes follow this struct in memory, at offset
 * DW_RECEIVED_HEAD, or, if it is long, lie in memory of the link that received or sent it. */
typedef struct dw_received {
    struct dw_received *next;
    size_t room, len;           /* room behind the struct; length of the message */
    const unsigned char *bytes; /* the message */
    dw_link *link;              /* which has these bytes; NULL: they follow */
    void *held;                 /* what the link gets back */
    uint32_t from;              /* the rank that sent it */
    dw_message head;            /* filled in by the progress owner */
} dw_received;

enum { DW_RECEIVED_HEAD = 128 };
_Static_assert(sizeof(dw_received) <= DW_RECEIVED_HEAD, "the bytes follow the struct");

typedef struct dw_received_list {
    dw_received *head, *tail;
} dw_received_list;

/* Blocks of memory for messages that are not in use at the moment, so that later messages need no
 * allocation. unused[i]: a list of blocks for 2^i bytes. */
enum { DW_RECEIVED_CLASSES = 40 };
typedef struct dw_received_pool {
    dw_allocator allocator;
    size_t held_from; /* longer messages are not copied: see dw_group_thresholds */
    pthread_mutex_t lock;
    dw_received *unused[DW_RECEIVED_CLASSES];
    uint64_t unused_bytes;
} dw_received_pool;

/* open: an empty pool. free_all: ends it, when all blocks were given back. */
void dw_received_open(dw_received_pool *pool, const dw_allocator *allocator, size_t held_from);
void dw_received_free_all(dw_received_pool *pool);

/* take: a block with room for len bytes. copy: one with a copy of the message. hold: the same for a
 * message in memory of a link, either in its handler or between dw_link_send_begin and _end; a long
 * one is not copied, and the link keeps it until give. All three: NULL: no memory. weight: how many
 * bytes of memory it takes. give: ends the use; NULL is allowed. append and pop: at the end of a
 * list, and from its start. */
dw_received *dw_received_take(dw_received_pool *pool, size_t len);
dw_received *dw_received_copy(dw_received_pool *pool, const void *message, size_t len);
dw_received *dw_received_hold(dw_received_pool *pool, dw_link *link, const void *message,
                              size_t len);
size_t dw_received_weight(const dw_received *received);
void dw_received_give(dw_received_pool *pool, dw_received *received);
void dw_received_append(dw_received_list *list, dw_received *received);
dw_received *dw_received_pop(dw_received_list *list);
static inline unsigned char *dw_received_room(dw_received *received)
{
    return (unsigned char *)received + DW_RECEIVED_HEAD;
}
static inline const unsigned char *dw_received_body(const dw_received *received)
{
    return received->bytes + DW_MESSAGE_BYTES;
}

#endif
