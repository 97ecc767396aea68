/* SPDX-License-Identifier: Apache-2.0
 * inbox.c - arrived messages by tag. */
#include <sys/random.h>

#include "base/mem.h"
#include "link/messages.h"

/* ---- What it costs --------------------------------------------------------------------------- */

/* While the table grows, the old one and the new one exist at once: up to three pointers for each
 * inbox. */
enum { TABLE_BYTES = 3 * sizeof(void *) };

/* A peer may send empty messages, and use any number of tags. So the limit counts memory, not
 * payload; the memory of an inbox is counted while it holds messages. */
static uint64_t record_cost(void)
{
    return dw_mem_cost(sizeof(dw_inbox)) + TABLE_BYTES;
}

/* ---- The table ------------------------------------------------------------------------------- */

/* The condition stays as it is. */
void dw_inbox_begin(dw_inboxes *inboxes)
{
    inboxes->bits = DW_INBOX_LEAST_BITS;
    /* Early after boot the system may have no random numbers yet. Then an address serves: it is
     * hard to guess as well. */
    if (getrandom(inboxes->key, sizeof inboxes->key, GRND_NONBLOCK) != sizeof inboxes->key)
        inboxes->key[0] = inboxes->key[1] = (uint64_t)(uintptr_t)inboxes * 0x9e3779b97f4a7c15u;
    inboxes->key[0] |= 1;
}

static dw_inbox **bucket_of(const dw_inboxes *inboxes, uint32_t tag)
{
    /* Multiply-shift hashing: for any two different tags, few keys put both into the same bucket.
     */
    uint64_t at = (tag * inboxes->key[0] + inboxes->key[1]) >> (64 - inboxes->bits);
    /* The cast removes const. Only callers whose struct is not const write through the pointer. */
    return inboxes->many ? &inboxes->many[at] : &((dw_inboxes *)(uintptr_t)inboxes)->few[at];
}

static void give_table(dw_inboxes *inboxes)
{
    dw_mem_release(inboxes->allocator, inboxes->many,
                   ((size_t)1 << inboxes->bits) * sizeof *inboxes->many);
}

/* Changes the number of buckets to 2^bits. Without memory for that, the old table stays in use. */
static void resize(dw_inboxes *inboxes, uint32_t bits)
{
    dw_inbox **many = NULL;
    if (bits > DW_INBOX_LEAST_BITS) {
        many = dw_mem_allocate_zeroed(inboxes->allocator, (size_t)1 << bits, sizeof *many);
        if (!many) return;
    }
    dw_inbox **old = inboxes->many ? inboxes->many : inboxes->few, *all = NULL;
    for (size_t i = 0; i < (size_t)1 << inboxes->bits; i++) {
        while (old[i]) {
            dw_inbox *inbox = old[i];
            old[i] = inbox->next;
            inbox->next = all;
            all = inbox;
        }
    }
    give_table(inboxes);
    inboxes->many = many;
    inboxes->bits = bits;
    while (all) {
        dw_inbox *inbox = all, **bucket = bucket_of(inboxes, inbox->tag);
        all = inbox->next;
        inbox->next = *bucket;
        *bucket = inbox;
    }
}

dw_inbox *dw_inbox_find(const dw_inboxes *inboxes, uint32_t tag)
{
    dw_inbox *inbox = *bucket_of(inboxes, tag);
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
        inboxes->n_unused--;
    } else {
        inbox = dw_mem_allocate(inboxes->allocator, sizeof *inbox);
        if (!inbox) return NULL;
    }
    if (++inboxes->n >> inboxes->bits != 0 && inboxes->bits < 31)
        resize(inboxes, inboxes->bits + 1);
    dw_inbox **bucket = bucket_of(inboxes, tag);
    *inbox = (dw_inbox){.tag = tag, .next = *bucket};
    *bucket = inbox;
    return inbox;
}

/* A peer may use any number of tags, one after the other, so an inbox lives only while it holds
 * messages, a handler or waiting callers. */
void dw_inbox_tidy(dw_inboxes *inboxes, dw_inbox *inbox)
{
    if (inbox->head || inbox->waiters || inbox->handle || inbox == inboxes->claimed) return;
    dw_inbox **at = bucket_of(inboxes, inbox->tag);
    while (*at != inbox) at = &(*at)->next;
    *at = inbox->next;
    inboxes->n--;
    if (inboxes->n_unused < DW_INBOX_UNUSED_MOST) {
        inbox->next = inboxes->unused;
        inboxes->unused = inbox;
        inboxes->n_unused++;
    } else {
        dw_mem_release(inboxes->allocator, inbox, sizeof *inbox);
    }
    if (inboxes->many && inboxes->n >> (inboxes->bits - 3) == 0) resize(inboxes, inboxes->bits - 1);
}

static void empty_list(const dw_inboxes *inboxes, dw_inbox *inbox)
{
    while (inbox) {
        dw_inbox *next = inbox->next;
        dw_mem_release(inboxes->allocator, inbox, sizeof *inbox);
        inbox = next;
    }
}

void dw_inbox_empty(dw_inboxes *inboxes)
{
    dw_inbox **table = inboxes->many ? inboxes->many : inboxes->few;
    for (size_t i = 0; i < (size_t)1 << inboxes->bits; i++) empty_list(inboxes, table[i]);
    empty_list(inboxes, inboxes->unused);
    give_table(inboxes);
}

/* ---- Messages -------------------------------------------------------------------------------- */

static void make_due(dw_inboxes *inboxes, dw_inbox *inbox)
{
    if (inbox->is_due || inbox == inboxes->claimed || !inbox->handle || !inbox->head) return;
    inbox->is_due = true;
    inbox->next_due = NULL;
    if (inboxes->due)
        inboxes->last_due->next_due = inbox;
    else
        inboxes->due = inbox;
    inboxes->last_due = inbox;
}

void dw_inbox_put(dw_inboxes *inboxes, dw_inbox *inbox, dw_buffer *buffer)
{
    buffer->next = NULL;
    if (!inbox->head) inboxes->bytes += record_cost();
    if (inbox->tail)
        inbox->tail->next = buffer;
    else
        inbox->head = buffer;
    inbox->tail = buffer;
    inboxes->bytes += dw_buffer_weight(buffer);
    make_due(inboxes, inbox);
}

dw_buffer *dw_inbox_take(dw_inboxes *inboxes, dw_inbox *inbox)
{
    dw_buffer *buffer = inbox->head;
    if (!buffer) return NULL;
    inbox->head = buffer->next;
    if (!inbox->head) {
        inbox->tail = NULL;
        inboxes->bytes -= record_cost();
    }
    inboxes->bytes -= dw_buffer_weight(buffer);
    inboxes->taken++;
    make_due(inboxes, inbox);
    return buffer;
}

dw_inbox *dw_inbox_arrive(dw_inboxes *inboxes, uint32_t tag)
{
    inboxes->messages_received++;
    return inboxes->is_closed ? NULL : dw_inbox_get(inboxes, tag);
}

void dw_inbox_close(dw_inboxes *inboxes)
{
    inboxes->is_closed = true;
}

void dw_inbox_begin_wait(dw_inboxes *inboxes, dw_inbox *inbox)
{
    inboxes->waiters++;
    if (inbox) inbox->waiters++;
}

void dw_inbox_end_wait(dw_inboxes *inboxes, dw_inbox *inbox)
{
    inboxes->waiters--;
    if (inbox) inbox->waiters--;
}

/* ---- Handlers -------------------------------------------------------------------------------- */

/* Takes the inbox off the list `due`. */
static void make_undue(dw_inboxes *inboxes, dw_inbox *inbox)
{
    if (!inbox->is_due) return;
    dw_inbox *before = NULL;
    for (dw_inbox *at = inboxes->due; at != inbox; at = at->next_due) before = at;
    if (before)
        before->next_due = inbox->next_due;
    else
        inboxes->due = inbox->next_due;
    if (inboxes->last_due == inbox) inboxes->last_due = before;
    inbox->is_due = false;
}

void dw_inbox_set_handler(dw_inboxes *inboxes, dw_inbox *inbox, dw_link_handler handle,
                          void *context)
{
    inbox->handle = handle;
    inbox->handle_context = context;
    if (handle)
        make_due(inboxes, inbox);
    else
        make_undue(inboxes, inbox);
}

void dw_inbox_claim(dw_inboxes *inboxes, dw_inbox *inbox)
{
    make_undue(inboxes, inbox);
    inboxes->claimed = inbox;
}

bool dw_inbox_unclaim(dw_inboxes *inboxes)
{
    dw_inbox *inbox = inboxes->claimed;
    inboxes->claimed = NULL;
    make_due(inboxes, inbox);
    bool is_due = inbox->is_due;
    dw_inbox_tidy(inboxes, inbox);
    return is_due;
}

dw_inbox *dw_inbox_next_due(dw_inboxes *inboxes)
{
    dw_inbox *inbox = inboxes->due;
    if (!inbox) return NULL;
    inboxes->due = inbox->next_due;
    inbox->is_due = false;
    return inbox;
}
