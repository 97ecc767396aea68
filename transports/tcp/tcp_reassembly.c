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

bool dw_tcp_has_next(const dw_tcp_receiving *receiving)
{
    return receiving->posted && is_whole(dw_tcp_incoming_of(receiving, receiving->awaited));
}

/* Whether the chunk of the record that is being read is here already. */
static bool is_here(const dw_tcp_receiving *receiving, const dw_tcp_stripe *stripe)
{
    size_t number =
        stripe->in.is_chunk ? stripe->in.offset / dw_tcp_chunk_len(stripe->in.total) : 0;
    return stripe->in.message < receiving->whole ||
           (dw_tcp_incoming_of(receiving, stripe->in.message)->has[number / 64] >> number % 64 & 1);
}

/* The bytes of incomplete records of which nothing has come before. */
static uint64_t partial_bytes(const dw_tcp_receiving *receiving)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < receiving->connections->n; i++) {
        const dw_tcp_stripe *stripe = &receiving->connections->stripes[i];
        if (stripe->in.is_reading && !is_here(receiving, stripe))
            bytes += stripe->in.done + DW_TCP_RECORD_BYTES;
    }
    return bytes;
}

uint64_t dw_tcp_begun(const dw_tcp_receiving *receiving)
{
    uint64_t partial = partial_bytes(receiving),
             bytes = receiving->ahead_bytes +
                     (partial > receiving->partial ? partial : receiving->partial);
    /* A header that is incomplete may be that of a message. While a message is owed, it is no
     * progress of that. */
    for (unsigned i = 0; bytes == 0 && i < receiving->connections->n; i++)
        bytes = receiving->connections->stripes[i].ahead.n;
    return bytes;
}

void dw_tcp_note_partial(dw_tcp_receiving *receiving)
{
    uint64_t partial = partial_bytes(receiving);
    if (partial > receiving->partial) receiving->partial = partial;
}

void dw_tcp_allow_duplicates(dw_tcp_receiving *receiving)
{
    if (receiving->has_returned) return;
    uint64_t owed = receiving->partial > 0, partial = partial_bytes(receiving);
    receiving->partial = partial > 0 ? partial : owed; /* what has begun is owed all the same */
    receiving->again = receiving->ahead_bytes;
}

void dw_tcp_stripe_returned(dw_tcp_receiving *receiving)
{
    receiving->has_returned = true;
}

void dw_tcp_widen_window(dw_tcp_receiving *receiving)
{
    if (receiving->window >= DW_TCP_WINDOW_BYTES) return;
    receiving->window = DW_TCP_WINDOW_BYTES;
    dw_tcp_ack_now(&receiving->ack);
}

/* Limits how many messages are acknowledged before the link takes them. */
uint64_t dw_tcp_whole(const dw_tcp_receiving *receiving)
{
    uint64_t most = receiving->awaited + DW_TCP_KEPT_MOST;
    return receiving->whole < most ? receiving->whole : most;
}

uint64_t dw_tcp_limit(const dw_tcp_receiving *receiving)
{
    uint64_t direct =
        receiving->is_direct ? dw_tcp_incoming_of(receiving, receiving->awaited)->got : 0;
    return receiving->taken + direct + receiving->window;
}

/* ---- Data that the link cannot take yet ------------------------------------------------------ */

static dw_tcp_stash *take_stash(dw_tcp_receiving *receiving, size_t len)
{
    dw_tcp_stash **at = &receiving->unused, *found;
    while (*at && (*at)->cap < len) at = &(*at)->next;
    found = *at;
    if (found) {
        *at = found->next;
        receiving->unused_bytes -= found->cap;
    } else {
        size_t cap = len < 1024 ? 1024 : len;
        found = dw_mem_allocate(&receiving->settings->allocator, sizeof *found + cap);
        if (!found) return NULL;
        found->cap = cap;
    }
    found->next = NULL;
    found->len = len;
    receiving->stash_bytes += len;
    return found;
}

void dw_tcp_free_room(const dw_tcp_receiving *receiving, dw_tcp_stash *room)
{
    if (room) dw_mem_release(&receiving->settings->allocator, room, sizeof *room + room->cap);
}

/* Puts a stash on the free list, which is sorted by size. The list holds no more bytes than a
 * window; a peer whose messages grow would otherwise leave a stash of every length there. */
static void drop_stash(dw_tcp_receiving *receiving, dw_tcp_stash *stash)
{
    dw_tcp_stash **at = &receiving->unused;
    receiving->stash_bytes -= stash->len;
    if (receiving->unused_bytes + stash->cap > DW_TCP_WINDOW_BYTES) {
        dw_tcp_free_room(receiving, stash);
        return;
    }
    receiving->unused_bytes += stash->cap;
    while (*at && (*at)->cap < stash->cap) at = &(*at)->next;
    stash->next = *at;
    *at = stash;
}

/* Room for a copy of a message to send. It does not count as received data. */
dw_tcp_stash *dw_tcp_take_room(dw_tcp_receiving *receiving, size_t len)
{
    dw_tcp_stash *room = take_stash(receiving, len);
    if (room) receiving->stash_bytes -= len;
    return room;
}

void dw_tcp_give_room_back(dw_tcp_receiving *receiving, dw_tcp_stash *room)
{
    receiving->stash_bytes += room->len;
    drop_stash(receiving, room);
}

/* If the buffer of the link is long enough, the awaited message is read straight into it from now
 * on. The parts that arrived earlier are copied there. */
static void begin_direct(dw_tcp_receiving *receiving)
{
    dw_tcp_incoming *a = dw_tcp_incoming_of(receiving, receiving->awaited);
    if (!receiving->posted || receiving->is_direct || !a->is_known ||
        a->total > receiving->posted->len)
        return;
    receiving->is_direct = true;
    while (a->stash) {
        dw_tcp_stash *stash = a->stash;
        memcpy(receiving->posted->room + stash->offset, stash->data, stash->len);
        a->stash = stash->next;
        drop_stash(receiving, stash);
    }
}

/* Stripes may have begun to read records of the awaited message, and wait to know where the bytes
 * go. */
void dw_tcp_post_receive(dw_tcp_receiving *receiving, dw_tcp_request *request)
{
    receiving->posted = request;
    begin_direct(receiving);
    for (unsigned i = 0; i < receiving->connections->n && receiving->is_direct; i++) {
        dw_tcp_stripe *stripe = &receiving->connections->stripes[i];
        if (!stripe->in.is_undecided || stripe->in.message != receiving->awaited) continue;
        stripe->in.is_undecided = false;
        stripe->in.room = receiving->posted->room + stripe->in.offset;
    }
}

/* ---- One chunk ------------------------------------------------------------------------------- */

/* The message is complete. Other stripes may be reading records that were sent twice; their bytes
 * are dropped from now on. */
static void let_nobody_write(dw_tcp_receiving *receiving, uint64_t message)
{
    for (unsigned i = 0; i < receiving->connections->n; i++) {
        dw_tcp_stripe *stripe = &receiving->connections->stripes[i];
        if (!stripe->in.is_reading || stripe->in.message != message) continue;
        stripe->in.is_undecided = false;
        stripe->in.room = NULL;
        if (stripe->in.stash) drop_stash(receiving, stripe->in.stash);
        stripe->in.stash = NULL;
    }
}

static void begin_anew(dw_tcp_receiving *receiving)
{
    receiving->partial = receiving->again = 0;
    receiving->has_returned = false;
}

void dw_tcp_finish_chunk(dw_tcp_receiving *receiving, dw_tcp_stripe *stripe)
{
    size_t header_len = stripe->in.is_chunk ? DW_TCP_CHUNK_RECORD_BYTES : DW_TCP_RECORD_BYTES;
    uint64_t n = stripe->in.message;
    size_t number =
        stripe->in.is_chunk ? stripe->in.offset / dw_tcp_chunk_len(stripe->in.total) : 0;
    dw_tcp_incoming *a = dw_tcp_incoming_of(receiving, n);
    stripe->in.is_reading = false;
    if (is_here(receiving, stripe)) { /* it came by another stripe already */
        bool is_allowed = receiving->again >= header_len + stripe->in.len;
        dw_tcp_wire_received(receiving->wire, header_len + stripe->in.len, !is_allowed);
        if (is_allowed) receiving->again -= header_len + stripe->in.len;
        if (stripe->in.stash) drop_stash(receiving, stripe->in.stash);
        stripe->in.stash = NULL;
        dw_tcp_ack_now(&receiving->ack); /* the sender does not know that we have it */
        return;
    }
    if (stripe->in.stash && n == receiving->awaited && receiving->is_direct) {
        memcpy(receiving->posted->room + stripe->in.offset, stripe->in.stash->data, stripe->in.len);
        drop_stash(receiving, stripe->in.stash);
    } else if (stripe->in.stash) {
        stripe->in.stash->offset = stripe->in.offset;
        stripe->in.stash->next = a->stash;
        a->stash = stripe->in.stash;
    }
    stripe->in.stash = NULL;
    a->has[number / 64] |= UINT64_C(1) << number % 64;
    a->got += stripe->in.len;
    a->wire += header_len + stripe->in.len;
    receiving->ahead_bytes += header_len + stripe->in.len;
    begin_anew(receiving);
    if (is_whole(a)) let_nobody_write(receiving, n);
    while (receiving->whole < receiving->awaited + DW_TCP_INCOMING_MOST &&
           is_whole(dw_tcp_incoming_of(receiving, receiving->whole)))
        receiving->whole++;
    dw_tcp_ack_soon(&receiving->ack, stripe->in.len, dw_tcp_whole(receiving));
}

/* Whether the numbers in the header of a MESSAGE or CHUNK are possible. */
static bool is_sane(const dw_tcp_receiving *receiving, const dw_tcp_stripe *stripe)
{
    if (stripe->in.message >= receiving->awaited + DW_TCP_INCOMING_MOST ||
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
void dw_tcp_find_room(dw_tcp_receiving *receiving, dw_tcp_stripe *stripe, bool must)
{
    dw_tcp_incoming *a = dw_tcp_incoming_of(receiving, stripe->in.message);
    stripe->in.is_undecided = false;
    stripe->in.room = NULL;
    if (stripe->in.message < receiving->whole || (a->is_known && is_whole(a))) return;
    if (stripe->in.message == receiving->awaited) {
        begin_direct(receiving);
        if (receiving->is_direct) {
            stripe->in.room = receiving->posted->room + stripe->in.offset;
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
    if (receiving->stash_bytes >
            DW_TCP_WINDOW_BYTES + (uint64_t)dw_tcp_chunk_len(stripe->in.total) ||
        stripe->in.total > receiving->settings->longest) {
        dw_tcp_fail(receiving->failure, DW_ERR_PROTOCOL,
                    "%s sent more than its limit allows, or announced a message that is too "
                    "long (%llu bytes)",
                    receiving->failure->peer, (unsigned long long)stripe->in.total);
        return;
    }
    stripe->in.stash = take_stash(receiving, stripe->in.len);
    if (stripe->in.stash)
        stripe->in.room = stripe->in.stash->data;
    else
        dw_tcp_fail(receiving->failure, DW_ERR_NO_MEMORY,
                    "no memory for a part of a message from %s", receiving->failure->peer);
}

void dw_tcp_advance_record(dw_tcp_stripe *stripe, size_t n)
{
    stripe->in.done += n;
}

void dw_tcp_begin_chunk(dw_tcp_receiving *receiving, dw_tcp_stripe *stripe,
                        const dw_tcp_record_in *record)
{
    stripe->in = *record;
    if (!is_sane(receiving, stripe)) {
        dw_tcp_fail(receiving->failure, DW_ERR_PROTOCOL, "%s sent a record with impossible numbers",
                    receiving->failure->peer);
        return;
    }
    stripe->in.is_reading = true;
    if (stripe->in.message >= receiving->whole) {
        dw_tcp_incoming *a = dw_tcp_incoming_of(receiving, stripe->in.message);
        if (!a->is_known) {
            a->is_known = true;
            a->total = stripe->in.total;
        } else if (a->total != stripe->in.total) {
            dw_tcp_fail(receiving->failure, DW_ERR_PROTOCOL,
                        "%s announced one message with two different lengths",
                        receiving->failure->peer);
            return;
        }
    }
    dw_tcp_find_room(receiving, stripe, false);
}

void dw_tcp_forget_reading(dw_tcp_receiving *receiving, dw_tcp_stripe *stripe)
{
    if (stripe->in.stash) drop_stash(receiving, stripe->in.stash);
    stripe->in.stash = NULL;
    stripe->in.room = NULL;
    stripe->in.is_reading = stripe->in.is_undecided = false;
}

void dw_tcp_forget_incoming(dw_tcp_receiving *receiving)
{
    for (unsigned i = 0; i < DW_TCP_INCOMING_MOST; i++) {
        dw_tcp_incoming *a = &receiving->incoming[i];
        while (a->stash) {
            dw_tcp_stash *next = a->stash->next;
            drop_stash(receiving, a->stash);
            a->stash = next;
        }
        *a = (dw_tcp_incoming){.is_known = false};
    }
    dw_tcp_wire_received(receiving->wire, receiving->ahead_bytes, true);
    receiving->ahead_bytes = 0;
    receiving->is_direct = false;
    begin_anew(receiving);
}

/* ---- Delivery to the link -------------------------------------------------------------------- */

/* Gives the awaited message to the link, if it is complete. */
dw_status dw_tcp_deliver(dw_tcp_receiving *receiving, size_t *len)
{
    dw_tcp_incoming *a = dw_tcp_incoming_of(receiving, receiving->awaited);
    if (!receiving->posted || !a->is_known) return DW_PENDING;
    *len = (size_t)a->total;
    if (a->total > receiving->posted->len) {
        receiving->posted = NULL;
        return DW_ERR_BUFFER_TOO_SMALL;
    }
    begin_direct(receiving);
    if (!is_whole(a)) return DW_PENDING;
    receiving->posted = NULL;
    receiving->is_direct = false;
    receiving->taken += a->total;
    dw_tcp_wire_receive_done(receiving->wire, a->wire);
    receiving->ahead_bytes -= a->wire;
    begin_anew(receiving);
    *a = (dw_tcp_incoming){.is_known = false};
    receiving->awaited++;
    if (dw_tcp_limit(receiving) - receiving->ack.sent_limit >= receiving->window / 4)
        dw_tcp_ack_now(&receiving->ack);
    return DW_OK;
}
