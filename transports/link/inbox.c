/* SPDX-License-Identifier: Apache-2.0
 * inbox.c - arrived messages by tag. */
#include "link/link.h"

/* What a message weighs: small ones occupy a whole small buffer, so that a flood of them counts
 * too. */
static uint64_t weight(const dw_buffer *buffer)
{
    uint64_t least = buffer->cap < DW_LINK_ROOM_BYTES ? buffer->cap : DW_LINK_ROOM_BYTES;
    return buffer->len > least ? buffer->len : least;
}

static uint32_t bucket_of(uint32_t tag)
{
    /* Fibonacci hashing: 2^32 over the golden ratio, the top 6 bits; tags come in runs. */
    return (tag * 2654435769u) >> 26;
}

dw_inbox *dw_inbox_find(const dw_inboxes *inboxes, uint32_t tag)
{
    dw_inbox *inbox = inboxes->bucket[bucket_of(tag)];
    while (inbox && inbox->tag != tag) inbox = inbox->next;
    return inbox;
}

dw_inbox *dw_inbox_get(dw_inboxes *inboxes, uint32_t tag)
{
    dw_inbox *inbox = dw_inbox_find(inboxes, tag);
    if (inbox) return inbox;
    inbox = inboxes->unused;
    if (inbox) {
        inboxes->unused = inbox->next;
    } else {
        inbox = dw_memory_take(inboxes->allocator, sizeof *inbox);
        if (!inbox) return NULL;
    }
    *inbox = (dw_inbox){.tag = tag, .next = inboxes->bucket[bucket_of(tag)]};
    inboxes->bucket[bucket_of(tag)] = inbox;
    return inbox;
}

void dw_inbox_put(dw_inboxes *inboxes, dw_inbox *inbox, dw_buffer *buffer)
{
    buffer->next = NULL;
    if (inbox->tail)
        inbox->tail->next = buffer;
    else
        inbox->head = buffer;
    inbox->tail = buffer;
    inboxes->bytes += weight(buffer);
}

dw_buffer *dw_inbox_take(dw_inboxes *inboxes, dw_inbox *inbox)
{
    dw_buffer *buffer = inbox->head;
    if (!buffer) return NULL;
    inbox->head = buffer->next;
    if (!inbox->head) inbox->tail = NULL;
    inboxes->bytes -= weight(buffer);
    return buffer;
}

/* A peer may use any number of tags in turn: an inbox lives only while something is in it. */
void dw_inbox_tidy(dw_inboxes *inboxes, dw_inbox *inbox)
{
    if (inbox->head || inbox->waiters || inbox->handle) return;
    dw_inbox **at = &inboxes->bucket[bucket_of(inbox->tag)];
    while (*at != inbox) at = &(*at)->next;
    *at = inbox->next;
    inbox->next = inboxes->unused;
    inboxes->unused = inbox;
}

static void empty_list(const dw_inboxes *inboxes, dw_inbox *inbox)
{
    while (inbox) {
        dw_inbox *next = inbox->next;
        dw_memory_give(inboxes->allocator, inbox, sizeof *inbox);
        inbox = next;
    }
}

void dw_inbox_empty(dw_inboxes *inboxes)
{
    for (int i = 0; i < DW_INBOX_BUCKETS; i++) empty_list(inboxes, inboxes->bucket[i]);
    empty_list(inboxes, inboxes->unused);
    *inboxes = (dw_inboxes){.allocator = inboxes->allocator};
}
