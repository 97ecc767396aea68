/* SPDX-License-Identifier: Apache-2.0
 * loop.c - the backend whose two ends are in one process. It is the reference for other backends.
 *
 * The receiver copies directly from the buffer of the sender, so a message is copied only once. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "common/backends.h"
#include "common/opening.h"
#include "common/report.h"

/* What the two ends share; side 0 listens, side 1 connects. */
typedef struct loop_hub {
    dw_allocator allocator; /* of the end that was opened first */
    pthread_mutex_t lock;
    int users;
    struct loop_side {
        bool here;
        int bell_read, bell_write;
        bool rung; /* the bell is a pipe that the other side writes to; rung: it holds a byte */
        const void *data; /* the message that this side sends; offered: not received yet */
        size_t len;
        bool offered;
    } side[2];
} loop_hub;

typedef struct loop_endpoint {
    loop_hub *hub;
    int me;
    bool sending, receiving; /* a send or receive is in flight */
    uint64_t sent, received;
    char name[80];
} loop_endpoint;

typedef struct loop_request {
    bool sends;
    void *room;
    size_t len;
} loop_request;

/* ---- Finding each other -----------------------------------------------------------------------
 * The only mutable global state of the libraries. The two ends have only the name in their URIs in
 * common, and the two calls to open must work in any order and from any threads, without an object
 * that the program would have to create and pass to both for this backend alone. An entry lives on
 * the stack of a call to open and is removed when that returns, so the list is empty while no call
 * to open runs. */
typedef struct meeting {
    struct meeting *next;
    const char *name;
    int side;
    loop_hub *hub;
    bool met;
} meeting;

static pthread_mutex_t meetings_lock = PTHREAD_MUTEX_INITIALIZER;
static meeting *meetings;

static void destroy_hub(loop_hub *hub)
{
    for (int i = 0; i < 2; i++) {
        if (hub->side[i].bell_read >= 0) close(hub->side[i].bell_read);
        if (hub->side[i].bell_write >= 0) close(hub->side[i].bell_write);
    }
    pthread_mutex_destroy(&hub->lock);
    const dw_allocator allocator = hub->allocator;
    dw_mem_release(&allocator, hub, sizeof *hub);
}

static loop_hub *create_hub(const dw_allocator *allocator, dw_why *why)
{
    loop_hub *hub = dw_mem_allocate_zeroed(allocator, 1, sizeof *hub);
    if (!hub || pthread_mutex_init(&hub->lock, NULL) != 0) {
        dw_say(why, DW_ERR_NO_MEMORY, "no memory for a loop");
        dw_mem_release(allocator, hub, sizeof *hub);
        return NULL;
    }
    hub->allocator = *allocator;
    for (int i = 0; i < 2; i++) hub->side[i].bell_read = hub->side[i].bell_write = -1;
    for (int i = 0; i < 2; i++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
            dw_say(why, DW_ERR_NO_MEMORY, "cannot make a pipe for a loop: %s",
                   dw_link_system_says(errno));
            destroy_hub(hub);
            return NULL;
        }
        hub->side[i].bell_read = ends[0];
        hub->side[i].bell_write = ends[1];
        hub->side[i].here = true;
    }
    hub->users = 2;
    return hub;
}

/* Joins an end that waits under the same name, or adds itself to the list. The lock covers both, so
 * that two ends cannot miss each other. DW_PENDING: added, wait for the other end. */
static dw_status enter(meeting *own, const dw_allocator *allocator, dw_why *why)
{
    dw_status status = DW_PENDING;
    pthread_mutex_lock(&meetings_lock);
    for (meeting *other = meetings; other && status == DW_PENDING; other = other->next) {
        if (other->met || strcmp(other->name, own->name) != 0) continue;
        if (other->side != own->side) {
            own->hub = other->hub;
            other->met = true;
            status = DW_OK;
        } else if (own->side == 0) {
            status = dw_say(why, DW_ERR_ADDRESS, "loop://%.60s has a listener already", own->name);
        }
    }
    if (status == DW_PENDING) {
        own->hub = create_hub(allocator, why);
        if (own->hub) {
            own->next = meetings;
            meetings = own;
        } else {
            status = DW_ERR_NO_MEMORY;
        }
    }
    pthread_mutex_unlock(&meetings_lock);
    return status;
}

static bool has_met(const meeting *own)
{
    pthread_mutex_lock(&meetings_lock);
    bool met = own->met;
    pthread_mutex_unlock(&meetings_lock);
    return met;
}

/* Removes the entry from the list; returns whether the other end joined at the last moment. */
static bool leave(meeting *own)
{
    pthread_mutex_lock(&meetings_lock);
    meeting **at = &meetings;
    while (*at != own) at = &(*at)->next;
    *at = own->next;
    bool met = own->met;
    pthread_mutex_unlock(&meetings_lock);
    return met;
}

static dw_status loop_open(void *context, const dw_transport_open *given)
{
    loop_endpoint *end = context;
    dw_opening opening;
    const dw_transport_open *how = &opening.how;
    dw_status status = dw_take_opening(&opening, given);
    if (status != DW_OK) return status;
    if (how->address[0] == '\0' || strlen(how->address) >= sizeof end->name) {
        return dw_say_at(how->why, DW_ERR_ADDRESS, 0,
                         "a loop needs a name of 1 to %zu characters, as in "
                         "loop://name",
                         sizeof end->name - 1);
    }
    snprintf(end->name, sizeof end->name, "%s", how->address);
    end->me = how->role == DW_LINK_LISTEN ? 0 : 1;
    char uri[sizeof end->name + 8];
    snprintf(uri, sizeof uri, "loop://%s", end->name);
    if (end->me == 0) how->on_listening(how->listening_context, uri);

    meeting own = {.name = end->name, .side = end->me};
    status = enter(&own, &how->allocator, how->why);
    if (status == DW_PENDING) {
        int64_t deadline = dw_now_ns() + (int64_t)how->timeout_ms * DW_NS_PER_MS;
        while (!has_met(&own) && !dw_link_is_set(how->cancelled) && dw_now_ns() < deadline)
            poll(NULL, 0, 1);
        status = leave(&own) ? DW_OK : DW_PENDING;
    }
    if (status == DW_PENDING) {
        destroy_hub(own.hub);
        if (dw_link_is_set(how->cancelled))
            return dw_say(how->why, DW_ERR_CANCELLED, "opening %s was cancelled", uri);
        return dw_say(how->why, DW_ERR_TIMEOUT, "nobody opened the other end of %s within %u ms",
                      uri, how->timeout_ms);
    }
    if (status == DW_OK) end->hub = own.hub;
    return status;
}

/* ---- Messages -------------------------------------------------------------------------------- */

/* Wakes the given side; the lock of the hub is held. */
static void ring(loop_hub *hub, int side)
{
    if (hub->side[side].rung) return;
    hub->side[side].rung = true;
    ssize_t written = write(hub->side[side].bell_write, "", 1);
    (void)written; /* cannot fail: an empty pipe has room */
}

/* Empties the pipe, but only if neither the send nor the receive in flight can make progress. So a
 * test of one does not consume the wake-up that was meant for the other. The lock of the hub is
 * held. */
static void silence(const loop_endpoint *end)
{
    struct loop_side *mine = &end->hub->side[end->me], *theirs = &end->hub->side[1 - end->me];
    if (!mine->rung || !theirs->here) return;
    if ((end->receiving && theirs->offered) || (end->sending && !mine->offered)) return;
    mine->rung = false;
    char byte;
    ssize_t n = read(mine->bell_read, &byte, 1);
    (void)n; /* cannot fail: `rung` says that the pipe holds a byte */
}

static dw_status loop_close(void *context)
{
    loop_endpoint *end = context;
    loop_hub *hub = end->hub;
    pthread_mutex_lock(&hub->lock);
    hub->side[end->me].here = false;
    hub->side[end->me].offered = false; /* its owner is about to free the buffer */
    ring(hub, 1 - end->me);
    bool last = --hub->users == 0;
    pthread_mutex_unlock(&hub->lock);
    if (last) destroy_hub(hub);
    return DW_OK;
}

static dw_status loop_send(void *context, void *request_room, const void *data, size_t len)
{
    loop_endpoint *end = context;
    loop_request *request = request_room;
    *request = (loop_request){.sends = true, .len = len};
    struct loop_side *mine = &end->hub->side[end->me];
    pthread_mutex_lock(&end->hub->lock);
    mine->data = data;
    mine->len = len;
    mine->offered = true;
    end->sending = true;
    ring(end->hub, 1 - end->me);
    pthread_mutex_unlock(&end->hub->lock);
    return DW_OK;
}

static dw_status loop_recv(void *context, void *request_room, void *room, size_t cap)
{
    loop_endpoint *end = context;
    loop_request *request = request_room;
    end->receiving = true;
    *request = (loop_request){.room = room, .len = cap};
    return DW_OK;
}

static dw_status take(loop_endpoint *end, const loop_request *request, size_t *len)
{
    struct loop_side *theirs = &end->hub->side[1 - end->me];
    if (!theirs->offered) return DW_PENDING;
    *len = theirs->len;
    if (theirs->len > request->len) return DW_ERR_BUFFER_TOO_SMALL;
    if (theirs->len > 0) memcpy(request->room, theirs->data, theirs->len);
    theirs->offered = false;
    end->received += theirs->len;
    ring(end->hub, 1 - end->me);
    return DW_OK;
}

static dw_status loop_test(void *context, void *request_room, size_t *len, dw_why *why)
{
    loop_endpoint *end = context;
    const loop_request *request = request_room;
    loop_hub *hub = end->hub;
    dw_status status;
    pthread_mutex_lock(&hub->lock);
    if (request->sends) {
        status = hub->side[end->me].offered ? DW_PENDING : DW_OK;
        *len = request->len;
        if (status == DW_OK) {
            end->sending = false;
            end->sent += request->len;
        }
    } else {
        status = take(end, request, len);
        if (status != DW_PENDING) end->receiving = false;
    }
    silence(end);
    bool alone = !hub->side[1 - end->me].here;
    pthread_mutex_unlock(&hub->lock);
    if (status == DW_PENDING && alone) {
        return dw_say(why, DW_ERR_PEER, "the other end of loop://%s closed without a goodbye",
                      end->name);
    }
    return status;
}

static void fill_traits(const void *context, dw_transport_traits *traits)
{
    const loop_endpoint *end = context;
    snprintf(traits->peer, sizeof traits->peer, "loop://%s", end->name);
}

static void loop_describe(const void *context, dw_transport_traits *traits)
{
    dw_give_traits(context, traits, fill_traits);
}

static void fill_state(const void *context, int asks_kernel, dw_transport_state *state)
{
    const loop_endpoint *end = context;
    (void)asks_kernel;
    state->wait_fd = end->hub->side[end->me].bell_read;
    state->wait_events = end->sending || end->receiving ? POLLIN : 0;
    state->wake_ns = -1;
    state->wire_sent = end->sent;
    state->wire_received = end->received;
}

static void loop_poll(const void *context, int asks_kernel, dw_transport_state *state)
{
    dw_give_state(context, asks_kernel, state, fill_state);
}

const dw_transport dw_transport_loop = {
    .struct_size = sizeof(dw_transport),
    .scheme = "loop",
    .endpoint_bytes = sizeof(loop_endpoint),
    .request_bytes = sizeof(loop_request),
    .open = loop_open,
    .close = loop_close,
    .send = loop_send,
    .recv = loop_recv,
    .test = loop_test,
    .describe = loop_describe,
    .poll = loop_poll,
    .form = "loop://NAME",
};
