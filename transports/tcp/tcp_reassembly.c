/* SPDX-License-Identifier: Apache-2.0
 * tcp_reassembly.c - puts messages together from records, and delivers each once and in order. Long
 * chunks of the awaited message are read straight into the buffer of the link. */
#include <string.h>

#include "base/mem.h"
#include "common/report.h"
#include "tcp/tcp_end.h"

/* Every record that is sent carries the acknowledgement. If none is sent within this time, a record
 * is sent for the acknowledgement alone. After so many received bytes or messages this is done at
 * once. */
static const int64_t ack_after_ns = 2 * DW_NS_PER_MS;
enum { ACK_AFTER_BYTES = 1 << 20, ACK_AFTER_MESSAGES = 64 };

static bool is_whole(const dw_tcp_incoming *a)
{
    return a->is_known && a->got == a->total && (a->total > 0 || a->has[0]);
}

bool dw_tcp_has_next(const dw_tcp_end *end)
{
    return end->posted && is_whole(dw_tcp_incoming_of(end, end->awaited));
}

/* Whether the chunk of the record that is being read is here already. */
static bool is_here(const dw_tcp_end *end, const dw_tcp_stripe *stripe)
{
    size_t number = stripe->is_chunk ? stripe->offset / dw_tcp_chunk_len(stripe->total) : 0;
    return stripe->message < end->whole ||
           (dw_tcp_incoming_of(end, stripe->message)->has[number / 64] >> number % 64 & 1);
}

/* The bytes of incomplete records of which nothing has come before. */
static uint64_t partial_bytes(const dw_tcp_end *end)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < end->n_stripes; i++) {
        const dw_tcp_stripe *stripe = &end->stripes[i];
        if (stripe->is_reading && !is_here(end, stripe))
            bytes += stripe->done + DW_TCP_RECORD_BYTES;
    }
    return bytes;
}

uint64_t dw_tcp_begun(const dw_tcp_end *end)
{
    uint64_t partial = partial_bytes(end),
             bytes = end->received_ahead + (partial > end->partial ? partial : end->partial);
    /* A header that is incomplete may be that of a message. While a message is owed, it is no
     * progress of that. */
    for (unsigned i = 0; bytes == 0 && i < end->n_stripes; i++) bytes = end->stripes[i].ahead_n;
    return bytes;
}

void dw_tcp_note_partial(dw_tcp_end *end)
{
    uint64_t partial = partial_bytes(end);
    if (partial > end->partial) end->partial = partial;
}

void dw_tcp_allow_duplicates(dw_tcp_end *end)
{
    if (end->has_returned) return;
    uint64_t owed = end->partial > 0, partial = partial_bytes(end);
    end->partial = partial > 0 ? partial : owed; /* what has begun is owed all the same */
    end->again = end->received_ahead;
}

/* Limits how many messages are acknowledged before the link takes them. */
uint64_t dw_tcp_whole(const dw_tcp_end *end)
{
    uint64_t most = end->awaited + DW_TCP_KEPT_MOST;
    return end->whole < most ? end->whole : most;
}

uint64_t dw_tcp_limit(const dw_tcp_end *end)
{
    uint64_t direct = end->is_direct ? dw_tcp_incoming_of(end, end->awaited)->got : 0;
    return end->taken + direct + end->window;
}

/* ---- Data that the link cannot take yet ------------------------------------------------------ */

static dw_tcp_stash *take_stash(dw_tcp_end *end, size_t len)
{
    dw_tcp_stash **at = &end->unused, *found;
    while (*at && (*at)->cap < len) at = &(*at)->next;
    found = *at;
    if (found) {
        *at = found->next;
        end->unused_bytes -= found->cap;
    } else {
        size_t cap = len < 1024 ? 1024 : len;
        found = dw_mem_allocate(&end->allocator, sizeof *found + cap);
        if (!found) return NULL;
        found->cap = cap;
    }
    found->next = NULL;
    found->len = len;
    end->stash_bytes += len;
    return found;
}

void dw_tcp_free_room(const dw_tcp_end *end, dw_tcp_stash *room)
{
    if (room) dw_mem_release(&end->allocator, room, sizeof *room + room->cap);
}

/* Puts a stash on the free list, which is sorted by size. The list holds no more bytes than a
 * window; a peer whose messages grow would otherwise leave a stash of every length there. */
static void drop_stash(dw_tcp_end *end, dw_tcp_stash *stash)
{
    dw_tcp_stash **at = &end->unused;
    end->stash_bytes -= stash->len;
    if (end->unused_bytes + stash->cap > DW_TCP_WINDOW_BYTES) {
        dw_tcp_free_room(end, stash);
        return;
    }
    end->unused_bytes += stash->cap;
    while (*at && (*at)->cap < stash->cap) at = &(*at)->next;
    stash->next = *at;
    *at = stash;
}

/* Room for a copy of a message to send. It does not count as received data. */
dw_tcp_stash *dw_tcp_take_room(dw_tcp_end *end, size_t len)
{
    dw_tcp_stash *room = take_stash(end, len);
    if (room) end->stash_bytes -= len;
    return room;
}

void dw_tcp_give_room_back(dw_tcp_end *end, dw_tcp_stash *room)
{
    end->stash_bytes += room->len;
    drop_stash(end, room);
}

/* If the buffer of the link is long enough, the awaited message is read straight into it from now
 * on. The parts that arrived earlier are copied there. */
static void begin_direct(dw_tcp_end *end)
{
    dw_tcp_incoming *a = dw_tcp_incoming_of(end, end->awaited);
    if (!end->posted || end->is_direct || !a->is_known || a->total > end->posted->len) return;
    end->is_direct = true;
    while (a->stash) {
        dw_tcp_stash *stash = a->stash;
        memcpy(end->posted->room + stash->offset, stash->data, stash->len);
        a->stash = stash->next;
        drop_stash(end, stash);
    }
}

/* Stripes may have begun to read records of the awaited message, and wait to know where the bytes
 * go. */
void dw_tcp_post(dw_tcp_end *end)
{
    begin_direct(end);
    for (unsigned i = 0; i < end->n_stripes && end->is_direct; i++) {
        dw_tcp_stripe *stripe = &end->stripes[i];
        if (!stripe->is_undecided || stripe->message != end->awaited) continue;
        stripe->is_undecided = false;
        stripe->room = end->posted->room + stripe->offset;
    }
}

/* ---- One chunk ------------------------------------------------------------------------------- */

static void ack_soon(dw_tcp_end *end, size_t bytes)
{
    end->unreported += bytes;
    if (end->ack_due_ns == 0) end->ack_due_ns = dw_now_ns() + ack_after_ns;
    if (end->unreported >= ACK_AFTER_BYTES ||
        dw_tcp_whole(end) - end->sent_whole >= ACK_AFTER_MESSAGES)
        end->ack_due_ns = 1;
}

/* The message is complete. Other stripes may be reading records that were sent twice; their bytes
 * are dropped from now on. */
static void let_nobody_write(dw_tcp_end *end, uint64_t message)
{
    for (unsigned i = 0; i < end->n_stripes; i++) {
        dw_tcp_stripe *stripe = &end->stripes[i];
        if (!stripe->is_reading || stripe->message != message) continue;
        stripe->is_undecided = false;
        stripe->room = NULL;
        if (stripe->stash) drop_stash(end, stripe->stash);
        stripe->stash = NULL;
    }
}

static void begin_anew(dw_tcp_end *end)
{
    end->partial = end->again = 0;
    end->has_returned = false;
}

void dw_tcp_finish_chunk(dw_tcp_end *end, dw_tcp_stripe *stripe)
{
    size_t header_len = stripe->is_chunk ? DW_TCP_CHUNK_RECORD_BYTES : DW_TCP_RECORD_BYTES;
    uint64_t n = stripe->message;
    size_t number = stripe->is_chunk ? stripe->offset / dw_tcp_chunk_len(stripe->total) : 0;
    dw_tcp_incoming *a = dw_tcp_incoming_of(end, n);
    stripe->is_reading = false;
    stripe->backoff_ns = 0;
    if (is_here(end, stripe)) { /* it came by another stripe already */
        bool is_allowed = end->again >= header_len + stripe->len;
        *(is_allowed ? &end->received : &end->received_apart) += header_len + stripe->len;
        if (is_allowed) end->again -= header_len + stripe->len;
        if (stripe->stash) drop_stash(end, stripe->stash);
        stripe->stash = NULL;
        end->ack_due_ns = 1; /* the sender does not know that we have it */
        return;
    }
    if (stripe->stash && n == end->awaited && end->is_direct) {
        memcpy(end->posted->room + stripe->offset, stripe->stash->data, stripe->len);
        drop_stash(end, stripe->stash);
    } else if (stripe->stash) {
        stripe->stash->offset = stripe->offset;
        stripe->stash->next = a->stash;
        a->stash = stripe->stash;
    }
    stripe->stash = NULL;
    a->has[number / 64] |= UINT64_C(1) << number % 64;
    a->got += stripe->len;
    a->wire += header_len + stripe->len;
    end->received_ahead += header_len + stripe->len;
    begin_anew(end);
    if (is_whole(a)) let_nobody_write(end, n);
    while (end->whole < end->awaited + DW_TCP_INCOMING_MOST &&
           is_whole(dw_tcp_incoming_of(end, end->whole)))
        end->whole++;
    ack_soon(end, stripe->len);
}

/* Whether the numbers in the header of a MESSAGE or CHUNK are possible. */
static bool is_sane(const dw_tcp_end *end, const dw_tcp_stripe *stripe)
{
    if (stripe->message >= end->awaited + DW_TCP_INCOMING_MOST || stripe->total > DW_TCP_MOST_BYTES)
        return false;
    if (!stripe->is_chunk) return stripe->len <= DW_TCP_CHUNK_BYTES;
    size_t chunk_len = dw_tcp_chunk_len(stripe->total);
    if (stripe->total <= DW_TCP_CHUNK_BYTES || stripe->offset >= stripe->total ||
        stripe->offset % chunk_len != 0)
        return false;
    uint64_t left = stripe->total - stripe->offset;
    return stripe->len == (left < chunk_len ? left : chunk_len);
}

/* Chooses where the bytes of a record go, or puts that off. */
void dw_tcp_find_room(dw_tcp_end *end, dw_tcp_stripe *stripe, bool must)
{
    dw_tcp_incoming *a = dw_tcp_incoming_of(end, stripe->message);
    stripe->is_undecided = false;
    stripe->room = NULL;
    if (stripe->message < end->whole || (a->is_known && is_whole(a))) return;
    if (stripe->message == end->awaited) {
        begin_direct(end);
        if (end->is_direct) {
            stripe->room = end->posted->room + stripe->offset;
            return;
        }
    }
    /* A record that was read to its end already goes into a stash. Otherwise its bytes stay in the
     * socket for the moment: the message before it may be complete soon, and then they can be read
     * into the buffer of the link. */
    if (!must && stripe->len > stripe->ahead_n) {
        stripe->is_undecided = true;
        return;
    }
    if (end->stash_bytes > DW_TCP_WINDOW_BYTES + (uint64_t)dw_tcp_chunk_len(stripe->total) ||
        stripe->total > end->longest) {
        dw_tcp_fail(end, DW_ERR_PROTOCOL,
                    "%s sent more than its limit allows, or announced a message that is too "
                    "long (%llu bytes)",
                    end->peer, (unsigned long long)stripe->total);
        return;
    }
    stripe->stash = take_stash(end, stripe->len);
    if (stripe->stash)
        stripe->room = stripe->stash->data;
    else
        dw_tcp_fail(end, DW_ERR_NO_MEMORY, "no memory for a part of a message from %s", end->peer);
}

void dw_tcp_begin_chunk(dw_tcp_end *end, dw_tcp_stripe *stripe)
{
    if (!is_sane(end, stripe)) {
        dw_tcp_fail(end, DW_ERR_PROTOCOL, "%s sent a record with impossible numbers", end->peer);
        return;
    }
    stripe->is_reading = true;
    stripe->done = 0;
    if (stripe->message >= end->whole) {
        dw_tcp_incoming *a = dw_tcp_incoming_of(end, stripe->message);
        if (!a->is_known) {
            a->is_known = true;
            a->total = stripe->total;
        } else if (a->total != stripe->total) {
            dw_tcp_fail(end, DW_ERR_PROTOCOL, "%s announced one message with two different lengths",
                        end->peer);
            return;
        }
    }
    dw_tcp_find_room(end, stripe, false);
}

void dw_tcp_forget_reading(dw_tcp_end *end, dw_tcp_stripe *stripe)
{
    if (stripe->stash) drop_stash(end, stripe->stash);
    stripe->stash = NULL;
    stripe->room = NULL;
    stripe->is_reading = stripe->is_undecided = false;
    stripe->ahead_n = 0;
}

void dw_tcp_forget_incoming(dw_tcp_end *end)
{
    for (unsigned i = 0; i < DW_TCP_INCOMING_MOST; i++) {
        dw_tcp_incoming *a = &end->incoming[i];
        while (a->stash) {
            dw_tcp_stash *next = a->stash->next;
            drop_stash(end, a->stash);
            a->stash = next;
        }
        *a = (dw_tcp_incoming){.is_known = false};
    }
    end->received_apart += end->received_ahead;
    end->received_ahead = 0;
    end->is_direct = false;
    begin_anew(end);
}

/* ---- Delivery to the link -------------------------------------------------------------------- */

/* Gives the awaited message to the link, if it is complete. */
dw_status dw_tcp_deliver(dw_tcp_end *end, size_t *len)
{
    dw_tcp_incoming *a = dw_tcp_incoming_of(end, end->awaited);
    if (!end->posted || !a->is_known) return DW_PENDING;
    *len = (size_t)a->total;
    if (a->total > end->posted->len) {
        end->posted = NULL;
        return DW_ERR_NO_ROOM;
    }
    begin_direct(end);
    if (!is_whole(a)) return DW_PENDING;
    end->posted = NULL;
    end->is_direct = false;
    end->taken += a->total;
    end->received += a->wire + end->received_apart;
    end->received_ahead -= a->wire;
    end->received_apart = 0;
    begin_anew(end);
    *a = (dw_tcp_incoming){.is_known = false};
    end->awaited++;
    if (dw_tcp_limit(end) - end->sent_limit >= end->window / 4) end->ack_due_ns = 1;
    return DW_OK;
}
