/* SPDX-License-Identifier: Apache-2.0
 * tcp_reassembly.c - puts messages together from records, and delivers each once and in order. Long
 * chunks of the awaited message are read straight into the buffer of the link. */
#include <string.h>

#include "base/mem.h"
#include "common/report.h"
#include "tcp/tcp_end.h"

static bool is_whole(const dw_tcp_incoming *a)
{
    return a->is_known && a->got == a->total && (a->total > 0 || a->has[0]);
}

bool dw_tcp_has_next(const dw_tcp_end *end)
{
    return end->receiving.posted && is_whole(dw_tcp_incoming_of(end, end->receiving.awaited));
}

/* Whether the chunk of the record that is being read is here already. */
static bool is_here(const dw_tcp_end *end, const dw_tcp_stripe *stripe)
{
    size_t number =
        stripe->in.is_chunk ? stripe->in.offset / dw_tcp_chunk_len(stripe->in.total) : 0;
    return stripe->in.message < end->receiving.whole ||
           (dw_tcp_incoming_of(end, stripe->in.message)->has[number / 64] >> number % 64 & 1);
}

/* The bytes of incomplete records of which nothing has come before. */
static uint64_t partial_bytes(const dw_tcp_end *end)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < end->session.n_stripes; i++) {
        const dw_tcp_stripe *stripe = &end->stripes[i];
        if (stripe->in.is_reading && !is_here(end, stripe))
            bytes += stripe->in.done + DW_TCP_RECORD_BYTES;
    }
    return bytes;
}

uint64_t dw_tcp_begun(const dw_tcp_end *end)
{
    uint64_t partial = partial_bytes(end),
             bytes = end->receiving.ahead_bytes +
                     (partial > end->receiving.partial ? partial : end->receiving.partial);
    /* A header that is incomplete may be that of a message. While a message is owed, it is no
     * progress of that. */
    for (unsigned i = 0; bytes == 0 && i < end->session.n_stripes; i++)
        bytes = end->stripes[i].ahead.n;
    return bytes;
}

void dw_tcp_note_partial(dw_tcp_end *end)
{
    uint64_t partial = partial_bytes(end);
    if (partial > end->receiving.partial) end->receiving.partial = partial;
}

void dw_tcp_allow_duplicates(dw_tcp_end *end)
{
    if (end->receiving.has_returned) return;
    uint64_t owed = end->receiving.partial > 0, partial = partial_bytes(end);
    end->receiving.partial = partial > 0 ? partial : owed; /* what has begun is owed all the same */
    end->receiving.again = end->receiving.ahead_bytes;
}

void dw_tcp_stripe_returned(dw_tcp_end *end)
{
    end->receiving.has_returned = true;
}

void dw_tcp_widen_window(dw_tcp_end *end)
{
    if (end->receiving.window >= DW_TCP_WINDOW_BYTES) return;
    end->receiving.window = DW_TCP_WINDOW_BYTES;
    dw_tcp_ack_now(&end->ack);
}

/* Limits how many messages are acknowledged before the link takes them. */
uint64_t dw_tcp_whole(const dw_tcp_end *end)
{
    uint64_t most = end->receiving.awaited + DW_TCP_KEPT_MOST;
    return end->receiving.whole < most ? end->receiving.whole : most;
}

uint64_t dw_tcp_limit(const dw_tcp_end *end)
{
    uint64_t direct =
        end->receiving.is_direct ? dw_tcp_incoming_of(end, end->receiving.awaited)->got : 0;
    return end->receiving.taken + direct + end->receiving.window;
}

/* ---- Data that the link cannot take yet ------------------------------------------------------ */

static dw_tcp_stash *take_stash(dw_tcp_end *end, size_t len)
{
    dw_tcp_stash **at = &end->receiving.unused, *found;
    while (*at && (*at)->cap < len) at = &(*at)->next;
    found = *at;
    if (found) {
        *at = found->next;
        end->receiving.unused_bytes -= found->cap;
    } else {
        size_t cap = len < 1024 ? 1024 : len;
        found = dw_mem_allocate(&end->settings.allocator, sizeof *found + cap);
        if (!found) return NULL;
        found->cap = cap;
    }
    found->next = NULL;
    found->len = len;
    end->receiving.stash_bytes += len;
    return found;
}

void dw_tcp_free_room(const dw_tcp_end *end, dw_tcp_stash *room)
{
    if (room) dw_mem_release(&end->settings.allocator, room, sizeof *room + room->cap);
}

/* Puts a stash on the free list, which is sorted by size. The list holds no more bytes than a
 * window; a peer whose messages grow would otherwise leave a stash of every length there. */
static void drop_stash(dw_tcp_end *end, dw_tcp_stash *stash)
{
    dw_tcp_stash **at = &end->receiving.unused;
    end->receiving.stash_bytes -= stash->len;
    if (end->receiving.unused_bytes + stash->cap > DW_TCP_WINDOW_BYTES) {
        dw_tcp_free_room(end, stash);
        return;
    }
    end->receiving.unused_bytes += stash->cap;
    while (*at && (*at)->cap < stash->cap) at = &(*at)->next;
    stash->next = *at;
    *at = stash;
}

/* Room for a copy of a message to send. It does not count as received data. */
dw_tcp_stash *dw_tcp_take_room(dw_tcp_end *end, size_t len)
{
    dw_tcp_stash *room = take_stash(end, len);
    if (room) end->receiving.stash_bytes -= len;
    return room;
}

void dw_tcp_give_room_back(dw_tcp_end *end, dw_tcp_stash *room)
{
    end->receiving.stash_bytes += room->len;
    drop_stash(end, room);
}

/* If the buffer of the link is long enough, the awaited message is read straight into it from now
 * on. The parts that arrived earlier are copied there. */
static void begin_direct(dw_tcp_end *end)
{
    dw_tcp_incoming *a = dw_tcp_incoming_of(end, end->receiving.awaited);
    if (!end->receiving.posted || end->receiving.is_direct || !a->is_known ||
        a->total > end->receiving.posted->len)
        return;
    end->receiving.is_direct = true;
    while (a->stash) {
        dw_tcp_stash *stash = a->stash;
        memcpy(end->receiving.posted->room + stash->offset, stash->data, stash->len);
        a->stash = stash->next;
        drop_stash(end, stash);
    }
}

/* Stripes may have begun to read records of the awaited message, and wait to know where the bytes
 * go. */
void dw_tcp_post_receive(dw_tcp_end *end, dw_tcp_request *request)
{
    end->receiving.posted = request;
    begin_direct(end);
    for (unsigned i = 0; i < end->session.n_stripes && end->receiving.is_direct; i++) {
        dw_tcp_stripe *stripe = &end->stripes[i];
        if (!stripe->in.is_undecided || stripe->in.message != end->receiving.awaited) continue;
        stripe->in.is_undecided = false;
        stripe->in.room = end->receiving.posted->room + stripe->in.offset;
    }
}

/* ---- One chunk ------------------------------------------------------------------------------- */

/* The message is complete. Other stripes may be reading records that were sent twice; their bytes
 * are dropped from now on. */
static void let_nobody_write(dw_tcp_end *end, uint64_t message)
{
    for (unsigned i = 0; i < end->session.n_stripes; i++) {
        dw_tcp_stripe *stripe = &end->stripes[i];
        if (!stripe->in.is_reading || stripe->in.message != message) continue;
        stripe->in.is_undecided = false;
        stripe->in.room = NULL;
        if (stripe->in.stash) drop_stash(end, stripe->in.stash);
        stripe->in.stash = NULL;
    }
}

static void begin_anew(dw_tcp_end *end)
{
    end->receiving.partial = end->receiving.again = 0;
    end->receiving.has_returned = false;
}

void dw_tcp_finish_chunk(dw_tcp_end *end, dw_tcp_stripe *stripe)
{
    size_t header_len = stripe->in.is_chunk ? DW_TCP_CHUNK_RECORD_BYTES : DW_TCP_RECORD_BYTES;
    uint64_t n = stripe->in.message;
    size_t number =
        stripe->in.is_chunk ? stripe->in.offset / dw_tcp_chunk_len(stripe->in.total) : 0;
    dw_tcp_incoming *a = dw_tcp_incoming_of(end, n);
    stripe->in.is_reading = false;
    dw_tcp_redial_worked(&stripe->redial);
    if (is_here(end, stripe)) { /* it came by another stripe already */
        bool is_allowed = end->receiving.again >= header_len + stripe->in.len;
        dw_tcp_wire_received(&end->wire, header_len + stripe->in.len, !is_allowed);
        if (is_allowed) end->receiving.again -= header_len + stripe->in.len;
        if (stripe->in.stash) drop_stash(end, stripe->in.stash);
        stripe->in.stash = NULL;
        dw_tcp_ack_now(&end->ack); /* the sender does not know that we have it */
        return;
    }
    if (stripe->in.stash && n == end->receiving.awaited && end->receiving.is_direct) {
        memcpy(end->receiving.posted->room + stripe->in.offset, stripe->in.stash->data,
               stripe->in.len);
        drop_stash(end, stripe->in.stash);
    } else if (stripe->in.stash) {
        stripe->in.stash->offset = stripe->in.offset;
        stripe->in.stash->next = a->stash;
        a->stash = stripe->in.stash;
    }
    stripe->in.stash = NULL;
    a->has[number / 64] |= UINT64_C(1) << number % 64;
    a->got += stripe->in.len;
    a->wire += header_len + stripe->in.len;
    end->receiving.ahead_bytes += header_len + stripe->in.len;
    begin_anew(end);
    if (is_whole(a)) let_nobody_write(end, n);
    while (end->receiving.whole < end->receiving.awaited + DW_TCP_INCOMING_MOST &&
           is_whole(dw_tcp_incoming_of(end, end->receiving.whole)))
        end->receiving.whole++;
    dw_tcp_ack_soon(&end->ack, stripe->in.len, dw_tcp_whole(end));
}

/* Whether the numbers in the header of a MESSAGE or CHUNK are possible. */
static bool is_sane(const dw_tcp_end *end, const dw_tcp_stripe *stripe)
{
    if (stripe->in.message >= end->receiving.awaited + DW_TCP_INCOMING_MOST ||
        stripe->in.total > DW_TCP_MOST_BYTES)
        return false;
    if (!stripe->in.is_chunk) return stripe->in.len <= DW_TCP_CHUNK_BYTES;
    size_t chunk_len = dw_tcp_chunk_len(stripe->in.total);
    if (stripe->in.total <= DW_TCP_CHUNK_BYTES || stripe->in.offset >= stripe->in.total ||
        stripe->in.offset % chunk_len != 0)
        return false;
    uint64_t left = stripe->in.total - stripe->in.offset;
    return stripe->in.len == (left < chunk_len ? left : chunk_len);
}

/* Chooses where the bytes of a record go, or puts that off. */
void dw_tcp_find_room(dw_tcp_end *end, dw_tcp_stripe *stripe, bool must)
{
    dw_tcp_incoming *a = dw_tcp_incoming_of(end, stripe->in.message);
    stripe->in.is_undecided = false;
    stripe->in.room = NULL;
    if (stripe->in.message < end->receiving.whole || (a->is_known && is_whole(a))) return;
    if (stripe->in.message == end->receiving.awaited) {
        begin_direct(end);
        if (end->receiving.is_direct) {
            stripe->in.room = end->receiving.posted->room + stripe->in.offset;
            return;
        }
    }
    /* A record that was read to its end already goes into a stash. Otherwise its bytes stay in the
     * socket for the moment: the message before it may be complete soon, and then they can be read
     * into the buffer of the link. */
    if (!must && stripe->in.len > stripe->ahead.n) {
        stripe->in.is_undecided = true;
        return;
    }
    if (end->receiving.stash_bytes >
            DW_TCP_WINDOW_BYTES + (uint64_t)dw_tcp_chunk_len(stripe->in.total) ||
        stripe->in.total > end->settings.longest) {
        dw_tcp_fail(end, DW_ERR_PROTOCOL,
                    "%s sent more than its limit allows, or announced a message that is too "
                    "long (%llu bytes)",
                    end->session.peer, (unsigned long long)stripe->in.total);
        return;
    }
    stripe->in.stash = take_stash(end, stripe->in.len);
    if (stripe->in.stash)
        stripe->in.room = stripe->in.stash->data;
    else
        dw_tcp_fail(end, DW_ERR_NO_MEMORY, "no memory for a part of a message from %s",
                    end->session.peer);
}

void dw_tcp_advance_record(dw_tcp_stripe *stripe, size_t n)
{
    stripe->in.done += n;
}

void dw_tcp_begin_chunk(dw_tcp_end *end, dw_tcp_stripe *stripe, const dw_tcp_record_in *record)
{
    stripe->in = *record;
    if (!is_sane(end, stripe)) {
        dw_tcp_fail(end, DW_ERR_PROTOCOL, "%s sent a record with impossible numbers",
                    end->session.peer);
        return;
    }
    stripe->in.is_reading = true;
    if (stripe->in.message >= end->receiving.whole) {
        dw_tcp_incoming *a = dw_tcp_incoming_of(end, stripe->in.message);
        if (!a->is_known) {
            a->is_known = true;
            a->total = stripe->in.total;
        } else if (a->total != stripe->in.total) {
            dw_tcp_fail(end, DW_ERR_PROTOCOL, "%s announced one message with two different lengths",
                        end->session.peer);
            return;
        }
    }
    dw_tcp_find_room(end, stripe, false);
}

void dw_tcp_forget_reading(dw_tcp_end *end, dw_tcp_stripe *stripe)
{
    if (stripe->in.stash) drop_stash(end, stripe->in.stash);
    stripe->in.stash = NULL;
    stripe->in.room = NULL;
    stripe->in.is_reading = stripe->in.is_undecided = false;
}

void dw_tcp_forget_incoming(dw_tcp_end *end)
{
    for (unsigned i = 0; i < DW_TCP_INCOMING_MOST; i++) {
        dw_tcp_incoming *a = &end->receiving.incoming[i];
        while (a->stash) {
            dw_tcp_stash *next = a->stash->next;
            drop_stash(end, a->stash);
            a->stash = next;
        }
        *a = (dw_tcp_incoming){.is_known = false};
    }
    dw_tcp_wire_received(&end->wire, end->receiving.ahead_bytes, true);
    end->receiving.ahead_bytes = 0;
    end->receiving.is_direct = false;
    begin_anew(end);
}

/* ---- Delivery to the link -------------------------------------------------------------------- */

/* Gives the awaited message to the link, if it is complete. */
dw_status dw_tcp_deliver(dw_tcp_end *end, size_t *len)
{
    dw_tcp_incoming *a = dw_tcp_incoming_of(end, end->receiving.awaited);
    if (!end->receiving.posted || !a->is_known) return DW_PENDING;
    *len = (size_t)a->total;
    if (a->total > end->receiving.posted->len) {
        end->receiving.posted = NULL;
        return DW_ERR_BUFFER_TOO_SMALL;
    }
    begin_direct(end);
    if (!is_whole(a)) return DW_PENDING;
    end->receiving.posted = NULL;
    end->receiving.is_direct = false;
    end->receiving.taken += a->total;
    dw_tcp_wire_receive_done(&end->wire, a->wire);
    end->receiving.ahead_bytes -= a->wire;
    begin_anew(end);
    *a = (dw_tcp_incoming){.is_known = false};
    end->receiving.awaited++;
    if (dw_tcp_limit(end) - end->ack.sent_limit >= end->receiving.window / 4)
        dw_tcp_ack_now(&end->ack);
    return DW_OK;
}
