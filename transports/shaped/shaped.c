/* SPDX-License-Identifier: Apache-2.0
 * shaped.c - a slow wire in front of any backend: "shaped:rate=100mbit,delay=20ms/tcp://host:7000".
 *
 * Each sender shapes what it sends. The last byte of a message leaves at start + bits / rate. start
 * is the time at which the previous message left, or now if the wire is idle. The message arrives
 * `delay` later. While the wire is busy, times are computed from the previous message and not from
 * the clock, so a thread that wakes late delays a message but does not slow the wire down. In
 * virtual time the clock jumps to the next event as soon as there is nothing else to do.
 *
 * Faults happen to data messages only. The handshake and the goodbye of the link arrive, in order.
 */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "common/backends.h"
#include "common/message.h"
#include "common/opening.h"
#include "common/report.h"
#include "shaped/shaped_faults.h"
#include "shaped/shaped_settings.h"

/* A send is reported complete this long before its last byte leaves. So the next message is queued
 * before the wire becomes idle, even if the thread wakes up late by up to the same time. */
static const double lookahead_ns = 50e6;

/* Messages on their way are copies. If they take more than this many bytes, in addition to what the
 * wire itself holds, sends wait. */
static const double least_pipe_bytes = 64 << 20;

/* If the oldest message on its way should have been passed to the inner backend this long ago, the
 * inner backend is slower than the shaped wire. Then sends wait for it. */
static const double overdue_ns = 1e9;

/* A copy of a message on its way. */
typedef struct parcel {
    struct parcel *next;
    size_t len;
    uint32_t size_class; /* has room for 256 << size_class bytes */
    double due_ns;       /* when to pass it to the inner backend, since open */
    _Alignas(16) unsigned char data[];
} parcel;

typedef struct shaped_request {
    bool sends;
    size_t len;
    double leaves_ns; /* of a send: when its last byte leaves */
} shaped_request;

enum { PARCEL_CLASSES = 48 };

/* The backend that is shaped, its end of the connection, and its requests. */
typedef struct shaped_inner {
    dw_transport transport;
    void *endpoint, *send, *recv;
    bool is_open, is_sending;
} shaped_inner;

/* Messages that were sent by the inner backend, which still needs their bytes; oldest first. */
typedef struct shaped_kept {
    parcel *head, *tail;
    uint64_t n;
} shaped_kept;

typedef struct shaped_endpoint {
    dw_allocator allocator;
    shaped_inner inner;
    dw_shaped_settings settings;
    dw_link_role role;
    int64_t opened_ns;
    double virtual_ns; /* the current time, if it is virtual */
    double pipe_bytes_max;
    double free_ns; /* when the last byte of all messages so far leaves */
    uint64_t base_bytes, shaped_bytes;
    /* wire_sent must not decrease, so it is at least this: the bytes that had left when the last
     * message was put on the wire, or the bytes of all messages, once the send of the last one was
     * reported complete. */
    uint64_t left_bytes;
    uint64_t messages, message_bytes; /* data messages sent so far, and their bytes */
    parcel *held;                     /* a message that waits for the next one to overtake it ... */
    int64_t held_until_ns;            /* ... until this time at the latest, by the real clock */
    parcel *head, *tail;              /* on their way, oldest first */
    shaped_kept kept;
    parcel *unused[PARCEL_CLASSES];
    uint64_t pipe_bytes;
    const shaped_request *sending; /* the send that is not complete yet */
    dw_status status;              /* of sending: an error is permanent */
    dw_why why;
    uint32_t framing_bytes;
} shaped_endpoint;

static double now_of(const shaped_endpoint *end)
{
    if (end->settings.has_virtual_time) return end->virtual_ns;
    return (double)(dw_now_ns() - end->opened_ns);
}

/* ---- Open and close -------------------------------------------------------------------------- */

typedef struct announcement {
    const dw_transport_open *how;
    const char *inner_uri;
} announcement;

/* The URI that the peer connects to is shaped, too. */
static void announce(void *context, const char *inner_uri)
{
    const announcement *to = context;
    char uri[512];
    snprintf(uri, sizeof uri, "shaped:%.*s%s", (int)(to->inner_uri - to->how->address),
             to->how->address, inner_uri);
    to->how->on_listening(to->how->listening_context, uri);
}

static size_t bytes_of_class(uint32_t size_class)
{
    return sizeof(parcel) + ((size_t)256 << size_class);
}

static void free_parcels(const shaped_endpoint *end, parcel *list)
{
    while (list) {
        parcel *next = list->next;
        dw_mem_release(&end->allocator, list, bytes_of_class(list->size_class));
        list = next;
    }
}

static dw_status shaped_close(void *context)
{
    shaped_endpoint *end = context;
    dw_status closed = end->inner.is_open ? end->inner.transport.close(end->inner.endpoint) : DW_OK;
    if (closed == DW_PENDING && end->inner.is_sending)
        end->head = end->head->next; /* never freed: the inner backend may still read it */
    dw_mem_release(&end->allocator, end->inner.endpoint, end->inner.transport.endpoint_bytes);
    dw_mem_release(&end->allocator, end->inner.send, end->inner.transport.request_bytes);
    dw_mem_release(&end->allocator, end->inner.recv, end->inner.transport.request_bytes);
    free_parcels(end, end->head);
    free_parcels(end, end->held);
    if (closed != DW_PENDING) free_parcels(end, end->kept.head);
    for (int i = 0; i < PARCEL_CLASSES; i++) free_parcels(end, end->unused[i]);
    return closed;
}

static dw_status open_inner(shaped_endpoint *end, const dw_transport_open *how,
                            const char *inner_uri)
{
    announcement to = {.how = how, .inner_uri = inner_uri};
    dw_transport_open inner_how = *how;
    inner_how.on_listening = announce;
    inner_how.listening_context = &to;
    const dw_transport *found =
        how->find ? how->find(how->find_context, inner_uri, &inner_how) : NULL;
    if (!found) {
        return dw_say_at(how->why, DW_ERR_UNSUPPORTED, (int)(inner_uri - how->address),
                         "there is no transport for '%.80s' to shape", inner_uri);
    }
    dw_status status = dw_take_transport(&end->inner.transport, found, how->why);
    if (status != DW_OK) return status;
    end->inner.endpoint =
        dw_mem_allocate_zeroed(&end->allocator, 1, end->inner.transport.endpoint_bytes);
    end->inner.send =
        dw_mem_allocate_zeroed(&end->allocator, 1, end->inner.transport.request_bytes);
    end->inner.recv =
        dw_mem_allocate_zeroed(&end->allocator, 1, end->inner.transport.request_bytes);
    if (!end->inner.endpoint || !end->inner.send || !end->inner.recv) {
        return dw_say(how->why, DW_ERR_NO_MEMORY, "no memory for a shaped link");
    }
    status = end->inner.transport.open(end->inner.endpoint, &inner_how);
    if (status != DW_OK) {
        if (how->why->offset >= 0) how->why->offset += (int)(inner_how.address - how->address);
        return status;
    }
    end->inner.is_open = true;
    return DW_OK;
}

static dw_status shaped_open(void *context, const dw_transport_open *given)
{
    shaped_endpoint *end = context;
    const char *inner_uri = NULL;
    dw_opening opening;
    const dw_transport_open *how = &opening.how;
    dw_status status = dw_take_opening(&opening, given);
    if (status != DW_OK) return status;
    end->allocator = how->allocator;
    status = dw_shaped_read_settings(&end->settings, how, &inner_uri);
    if (status != DW_OK) return status;
    status = open_inner(end, how, inner_uri);
    if (status != DW_OK) {
        shaped_close(end);
        return status;
    }
    dw_transport_state state = DW_NO_STATE;
    dw_transport_traits traits = DW_NO_TRAITS;
    end->inner.transport.poll(end->inner.endpoint, 0, &state);
    end->inner.transport.describe(end->inner.endpoint, &traits);
    end->base_bytes = state.wire_sent;
    end->framing_bytes = traits.framing_bytes;
    end->left_bytes = state.wire_sent;
    end->role = how->role;
    end->opened_ns = dw_now_ns();
    end->pipe_bytes_max = least_pipe_bytes;
    const dw_shaped_settings *settings = &end->settings;
    if (settings->ns_per_byte > 0) {
        end->pipe_bytes_max +=
            (lookahead_ns + settings->delay_ns + settings->jitter_ns) / settings->ns_per_byte;
    }
    return DW_OK;
}

/* ---- The wire -------------------------------------------------------------------------------- */

static parcel *take_parcel(shaped_endpoint *end, size_t len)
{
    uint32_t size_class = 0;
    while (size_class < PARCEL_CLASSES && (UINT64_C(256) << size_class) < len) size_class++;
    if (size_class == PARCEL_CLASSES) return NULL;
    parcel *found = end->unused[size_class];
    if (found) {
        end->unused[size_class] = found->next;
        return found;
    }
    found = dw_mem_allocate(&end->allocator, bytes_of_class(size_class));
    if (found) found->size_class = size_class;
    return found;
}

/* Puts messages whose bytes the inner backend does not need any more on the free lists. */
static void release_kept(shaped_endpoint *end)
{
    dw_transport_state state = DW_NO_STATE;
    if (end->kept.n == 0) return;
    end->inner.transport.poll(end->inner.endpoint, 0, &state);
    while (end->kept.n > state.kept_sends) {
        parcel *done = end->kept.head;
        end->kept.head = done->next;
        end->kept.n--;
        end->pipe_bytes -= done->len;
        done->next = end->unused[done->size_class];
        end->unused[done->size_class] = done;
    }
}

static void put_on_the_way(shaped_endpoint *end, parcel *added)
{
    added->next = NULL;
    if (end->tail)
        end->tail->next = added;
    else
        end->head = added;
    end->tail = added;
}

static void let_go_of_held(shaped_endpoint *end)
{
    if (!end->held) return;
    put_on_the_way(end, end->held);
    end->held = NULL;
}

/* Passes messages that are due to the inner backend, in the order of the list: jitter alone does
 * not reorder messages. */
static void pump(shaped_endpoint *end)
{
    if (end->held && dw_now_ns() >= end->held_until_ns) let_go_of_held(end);
    double now = now_of(end);
    while (end->status == DW_OK && end->head) {
        if (!end->inner.is_sending) {
            if (end->settings.has_virtual_time && end->head->due_ns > end->virtual_ns)
                end->virtual_ns = end->head->due_ns;
            else if (end->head->due_ns > now)
                return;
            memset(end->inner.send, 0, end->inner.transport.request_bytes);
            end->status = end->inner.transport.send(end->inner.endpoint, end->inner.send,
                                                    end->head->data, end->head->len);
            if (end->status == DW_PENDING) end->status = DW_OK; /* as the link takes it */
            if (end->status != DW_OK) return;
            end->inner.is_sending = true;
        }
        size_t len;
        dw_status status =
            end->inner.transport.test(end->inner.endpoint, end->inner.send, &len, &end->why);
        if (status == DW_PENDING) return;
        end->status = status;
        if (status != DW_OK) return;
        parcel *sent = end->head;
        end->inner.is_sending = false;
        end->head = sent->next;
        if (!end->head) end->tail = NULL;
        sent->next = NULL;
        if (end->kept.n++ == 0)
            end->kept.head = sent;
        else
            end->kept.tail->next = sent;
        end->kept.tail = sent;
    }
}

static parcel *pack(shaped_endpoint *end, const void *data, size_t len, const dw_shaped_fate *fate)
{
    parcel *added = take_parcel(end, len);
    if (!added) return NULL;
    added->len = len;
    added->next = NULL;
    memcpy(added->data, data, len);
    /* The header of the link has no digest, because real backends do not damage bytes. So only
     * bytes behind it are damaged. */
    if (fate->is_corrupt && len > DW_LINK_HEADER_BYTES) {
        uint64_t bit = fate->flips % (8 * (uint64_t)(len - DW_LINK_HEADER_BYTES));
        added->data[DW_LINK_HEADER_BYTES + bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    return added;
}

/* Puts one message on the wire. A lost message (added = NULL) takes the same time on the wire. */
static void carry(shaped_endpoint *end, parcel *added, size_t len, const dw_shaped_fate *fate)
{
    uint64_t wire_bytes = (uint64_t)len + end->framing_bytes;
    end->free_ns += (double)wire_bytes * end->settings.ns_per_byte;
    end->shaped_bytes += wire_bytes;
    if (!added) return;
    added->due_ns = end->free_ns + end->settings.delay_ns + fate->late * end->settings.jitter_ns;
    end->pipe_bytes += len;
    if (fate->is_held && !end->held) {
        added->next = NULL;
        end->held = added;
        end->held_until_ns = dw_now_ns() + (int64_t)end->settings.reorder_hold_ns;
        return;
    }
    put_on_the_way(end, added);
    let_go_of_held(end);
}

static dw_status cut(shaped_endpoint *end)
{
    end->status = dw_say(&end->why, DW_ERR_PEER,
                         "the shaped wire broke after %llu messages and %llu bytes, as disconnect= "
                         "in its URI asks",
                         (unsigned long long)end->messages, (unsigned long long)end->message_bytes);
    return DW_OK; /* the next test returns the error */
}

/* How many bytes have left the sender. Timeouts check whether this number grows. It does not grow
 * while the wire pauses, and does not decrease when a message is put on the wire. */
static uint64_t bytes_that_left(const shaped_endpoint *end, double now)
{
    double left_ns = end->free_ns - now, ns_per_byte = end->settings.ns_per_byte;
    uint64_t to_leave = left_ns > 0 && ns_per_byte > 0 ? (uint64_t)(left_ns / ns_per_byte) : 0;
    uint64_t left = to_leave < end->shaped_bytes ? end->shaped_bytes - to_leave : 0;
    return end->base_bytes + left > end->left_bytes ? end->base_bytes + left : end->left_bytes;
}

static dw_status shaped_send(void *context, void *request_room, const void *data, size_t len)
{
    shaped_endpoint *end = context;
    shaped_request *request = request_room;
    bool is_data =
        len >= DW_LINK_HEADER_BYTES && dw_get32((const unsigned char *)data + 4) == DW_KIND_DATA;
    dw_shaped_fate fate = {.is_cut = false};
    if (is_data)
        fate = dw_shaped_draw(&end->settings, end->role, end->messages, end->message_bytes);
    *request = (shaped_request){.sends = true, .len = len, .leaves_ns = end->free_ns};
    if (fate.is_cut) return cut(end);
    parcel *first = NULL, *second = NULL;
    if (!fate.is_lost && (first = pack(end, data, len, &fate)) == NULL) return DW_ERR_NO_MEMORY;
    if (!fate.is_lost && fate.is_doubled && (second = pack(end, data, len, &fate)) == NULL) {
        free_parcels(end, first);
        return DW_ERR_NO_MEMORY;
    }
    double now = now_of(end);
    end->left_bytes = bytes_that_left(end, now);
    if (end->free_ns < now) end->free_ns = now;
    if (fate.stalls) end->free_ns += end->settings.stall_ns;
    if (!is_data) let_go_of_held(end); /* a goodbye overtakes no message */
    carry(end, first, len, &fate);
    fate.is_held = false; /* the second copy follows immediately */
    if (second) carry(end, second, len, &fate);
    end->messages += (uint64_t)is_data;
    end->message_bytes += is_data ? len : 0;
    request->leaves_ns = end->free_ns;
    end->sending = request;
    return DW_OK;
}

static dw_status shaped_recv(void *context, void *request_room, void *room, size_t cap)
{
    shaped_endpoint *end = context;
    shaped_request *request = request_room;
    *request = (shaped_request){.sends = false};
    memset(end->inner.recv, 0, end->inner.transport.request_bytes);
    return end->inner.transport.recv(end->inner.endpoint, end->inner.recv, room, cap);
}

static bool may_answer(const shaped_endpoint *end, double now)
{
    if (end->sending->leaves_ns - now > lookahead_ns) return false;
    if (end->head && now - end->head->due_ns > overdue_ns) return false;
    return !end->head || end->head == end->tail || (double)end->pipe_bytes <= end->pipe_bytes_max;
}

static dw_status shaped_test(void *context, void *request_room, size_t *len, dw_why *why)
{
    shaped_endpoint *end = context;
    const shaped_request *request = request_room;
    pump(end);
    release_kept(end);
    if (!request->sends) {
        dw_status received =
            end->inner.transport.test(end->inner.endpoint, end->inner.recv, len, why);
        if (received != DW_PENDING || end->status == DW_OK) return received;
    }
    if (end->status != DW_OK) {
        *why = end->why;
        return end->status;
    }
    if (end->settings.has_virtual_time && request->leaves_ns > end->virtual_ns)
        end->virtual_ns = request->leaves_ns;
    if (!may_answer(end, now_of(end))) return DW_PENDING;
    *len = request->len;
    /* The link now reads wire_sent, and expects the whole message in it, although the last bytes
     * leave up to lookahead_ns later. */
    end->left_bytes = end->base_bytes + end->shaped_bytes;
    end->sending = NULL;
    return DW_OK;
}

static dw_status shaped_turn(void *context, dw_why *why)
{
    shaped_endpoint *end = context;
    pump(end);
    release_kept(end);
    dw_status turned =
        end->inner.transport.turn ? end->inner.transport.turn(end->inner.endpoint, why) : DW_OK;
    if (turned != DW_OK || end->status == DW_OK) return turned;
    *why = end->why;
    return end->status;
}

static void fill_traits(const void *context, dw_transport_traits *traits)
{
    const shaped_endpoint *end = context;
    const dw_shaped_settings *settings = &end->settings;
    uint32_t retry_ms = dw_shaped_retry_ms(settings);
    end->inner.transport.describe(end->inner.endpoint, traits);
    traits->takes_device_memory = 0; /* the CPU copies messages into parcels */
    traits->loses |= settings->loss > 0;
    traits->doubles |= settings->duplicate > 0;
    traits->reorders |= settings->reorder > 0;
    traits->damages |= settings->corrupt > 0;
    if (retry_ms > traits->retry_ms) traits->retry_ms = retry_ms;
}

static void shaped_describe(const void *context, dw_transport_traits *traits)
{
    dw_give_traits(context, traits, fill_traits);
}

static void wake_within(dw_transport_state *state, double ns)
{
    int64_t wake = ns > 0 ? (int64_t)ns : 0;
    if (state->wake_ns < 0 || wake < state->wake_ns) state->wake_ns = wake;
}

static void fill_state(const void *context, int asks_kernel, dw_transport_state *state)
{
    const shaped_endpoint *end = context;
    end->inner.transport.poll(end->inner.endpoint, asks_kernel, state);
    state->kept_sends = 0; /* parcels are copies, so the bytes of the caller are not needed */
    double now = now_of(end);
    if (end->head && !end->inner.is_sending)
        wake_within(state, end->settings.has_virtual_time ? 0 : end->head->due_ns - now);
    if (end->sending && end->sending->leaves_ns - lookahead_ns > now) {
        wake_within(state, end->settings.has_virtual_time
                               ? 0
                               : end->sending->leaves_ns - lookahead_ns - now);
    }
    if (end->held) wake_within(state, (double)(end->held_until_ns - dw_now_ns()));
    state->wire_sent = bytes_that_left(end, now);
}

static void shaped_poll(const void *context, int asks_kernel, dw_transport_state *state)
{
    dw_give_state(context, asks_kernel, state, fill_state);
}

const dw_transport dw_transport_shaped = {
    .struct_size = sizeof(dw_transport),
    .scheme = "shaped",
    .endpoint_bytes = sizeof(shaped_endpoint),
    .request_bytes = sizeof(shaped_request),
    .open = shaped_open,
    .close = shaped_close,
    .send = shaped_send,
    .recv = shaped_recv,
    .test = shaped_test,
    .describe = shaped_describe,
    .poll = shaped_poll,
    .turn = shaped_turn,
    .form = "shaped:rate=RATE,delay=TIME/URI",
    .ranks = DW_RANKS_BEHIND,
    .carries_tls = 1,
    .behind = dw_shaped_behind,
};
