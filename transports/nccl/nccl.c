/* SPDX-License-Identifier: Apache-2.0
 * nccl.c - the backend nccl: short messages over another backend, long ones from GPU to GPU. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/uncancelled.h"
#include "common/opening.h"
#include "common/report.h"
#include "nccl/nccl_end.h"

/* NCCL has no descriptor to wait on, so it must be polled while a long message is in progress:
 * without a pause until nothing has made progress for busy_ns, then at intervals of a sixteenth of
 * the time since the last progress, at most most_nap_ns. */
static const int64_t busy_ns = 200000, most_nap_ns = 1000000;

typedef struct nccl_request {
    bool sends, is_on_device, is_long;
    bool begun, is_wanted;
    unsigned char *data; /* the data of a send (only read), or the buffer of a receive */
    size_t len;
    /* Of a send. Short: the number of its note. Long: its number among the long messages. Both
     * are counted from 1. */
    uint64_t number;
} nccl_request;

/* ---- dw_nccl, which the links of a program share --------------------------------------------- */

static dw_status take_communicator(dw_nccl *nccl, void *communicator, dw_why *why)
{
    int ranks = 0;
    nccl->user_comm = communicator;
    if (!communicator) return DW_OK;
    int error = nccl->library.count(nccl->user_comm, &ranks);
    if (error == DW_NCCL_SUCCESS) error = nccl->library.rank(nccl->user_comm, &nccl->user_rank);
    if (error != DW_NCCL_SUCCESS) {
        return dw_say(why, DW_ERR_ARGUMENT, "the communicator cannot be used: %.160s",
                      dw_nccl_library_error(&nccl->library, NULL, error));
    }
    if (ranks == 2) return DW_OK;
    return dw_say(
        why, DW_ERR_ARGUMENT,
        "the communicator has %d ranks; make one of 2 ranks with ncclCommSplit, or give none: "
        "then each link makes its own",
        ranks);
}

static dw_status complete_options(dw_nccl_options *full, const dw_nccl_options *options,
                                  dw_why *why)
{
    *full = (dw_nccl_options){0};
    if (options) {
        dw_status status = dw_take_asked(full, sizeof *full, options, "dw_nccl_options", why);
        if (status != DW_OK) return status;
    }
    if (full->device < 0 || full->max_ctas > 32) {
        return dw_say(
            why, DW_ERR_ARGUMENT,
            "device is %d and max_ctas %u; a device is an ordinal from 0, and NCCL uses at most "
            "32 blocks",
            full->device, full->max_ctas);
    }
    if (full->max_ctas == 0) full->max_ctas = 2;
    return dw_mem_take_allocator(&full->allocator, &full->allocator, why);
}

dw_status dw_nccl_create(dw_nccl **nccl, const dw_nccl_options *options, dw_why *why)
{
    DW_UNCANCELLED;
    dw_nccl_options full;
    if (why) *why = (dw_why){.text = "", .offset = -1};
    if (!nccl) return dw_say(why, DW_ERR_ARGUMENT, "dw_nccl_create: nccl must not be NULL");
    *nccl = NULL;
    dw_status status = complete_options(&full, options, why);
    if (status != DW_OK) return status;
    dw_nccl *made = dw_mem_allocate_zeroed(&full.allocator, 1, sizeof *made);
    if (!made || pthread_mutex_init(&made->lock, NULL) != 0) {
        dw_mem_release(&full.allocator, made, sizeof *made);
        return dw_say(why, DW_ERR_NO_MEMORY, "no memory for links over NCCL");
    }
    made->allocator = full.allocator;
    made->max_ctas = full.max_ctas;
    status = dw_nccl_library_open(&made->library, full.library, why);
    if (status == DW_OK) status = dw_nccl_device_open(&made->device, full.driver, full.device, why);
    if (status == DW_OK) status = take_communicator(made, full.communicator, why);
    if (status != DW_OK) {
        dw_nccl_destroy(made);
        return status;
    }
    *nccl = made;
    return DW_OK;
}

void dw_nccl_destroy(dw_nccl *nccl)
{
    DW_UNCANCELLED;
    if (!nccl) return;
    dw_nccl_device_close(&nccl->device);
    pthread_mutex_destroy(&nccl->lock);
    const dw_allocator allocator = nccl->allocator;
    dw_mem_release(&allocator, nccl, sizeof *nccl);
}

/* ---- Open and close -------------------------------------------------------------------------- */

static dw_status end_ways(nccl_end *end)
{
    int mode;
    bool entered = false;
    if (!end->out.nccl) return DW_OK; /* the open failed before the ways were made */
    /* Without the context nothing can be freed, not even the communicators. So try several
     * times. */
    for (int tries = 0; tries < 3 && !entered; tries++)
        entered = dw_nccl_device_enter(&end->nccl->device, &mode);
    if (!entered) return DW_PENDING;
    dw_status out = dw_nccl_direction_end(&end->out), in = dw_nccl_direction_end(&end->in);
    dw_nccl_device_leave(&end->nccl->device, mode);
    return out == DW_OK ? in : out;
}

static dw_status nccl_close(void *context)
{
    nccl_end *end = context;
    nccl_notes *notes = &end->notes;
    dw_status ways = end_ways(end);
    dw_status behind = notes->is_open ? notes->inner.close(notes->end) : DW_OK;
    const dw_allocator *allocator = &notes->allocator;
    dw_mem_release(allocator, notes->end, notes->inner.endpoint_bytes);
    if (behind == DW_OK) { /* otherwise the backend still uses some of it, and it is never freed */
        dw_mem_release(allocator, notes->send_request, notes->inner.request_bytes);
        dw_mem_release(allocator, notes->recv_request, notes->inner.request_bytes);
        dw_mem_release(allocator, notes->in, DW_NCCL_NOTES * sizeof *notes->in);
        dw_mem_release(allocator, notes->out, DW_NCCL_NOTE_BYTES);
    }
    *notes = (nccl_notes){.is_open = false};
    return ways == DW_OK ? behind : ways;
}

typedef struct announcement {
    const dw_transport_open *how;
} announcement;

/* Puts "nccl:" in front of the URI that the peer must dial. */
static void announce(void *context, const char *inner_uri)
{
    const announcement *to = context;
    char uri[512];
    snprintf(uri, sizeof uri, "nccl:%s", inner_uri);
    to->how->on_listening(to->how->listening_context, uri);
}

static dw_status open_behind(nccl_end *end, const dw_transport_open *how)
{
    nccl_notes *notes = &end->notes;
    announcement to = {.how = how};
    dw_transport_open inner_how = *how;
    inner_how.on_listening = announce;
    inner_how.listening_context = &to;
    /* all notes are sent from one buffer, so the other backend must copy them */
    inner_how.heeds_kept_sends = 0;
    inner_how.longest_message = 0;
    const dw_transport *found =
        how->find ? how->find(how->find_context, how->address, &inner_how) : NULL;
    if (!found) {
        return dw_say_at(how->why, DW_ERR_UNSUPPORTED, 0,
                         "there is no transport for '%.80s', which must carry the notes; write "
                         "nccl:tcp://host:port",
                         how->address);
    }
    dw_status status = dw_take_transport(&notes->inner, found, how->why);
    if (status != DW_OK) return status;
    const dw_allocator *allocator = &notes->allocator;
    notes->end = dw_mem_allocate_zeroed(allocator, 1, notes->inner.endpoint_bytes);
    notes->send_request = dw_mem_allocate_zeroed(allocator, 1, notes->inner.request_bytes);
    notes->recv_request = dw_mem_allocate_zeroed(allocator, 1, notes->inner.request_bytes);
    notes->in = dw_mem_allocate(allocator, DW_NCCL_NOTES * sizeof *notes->in);
    notes->out = dw_mem_allocate(allocator, DW_NCCL_NOTE_BYTES);
    if (!notes->end || !notes->send_request || !notes->recv_request || !notes->in || !notes->out) {
        return dw_say(how->why, DW_ERR_NO_MEMORY, "no memory for a link over NCCL");
    }
    status = notes->inner.open(notes->end, &inner_how);
    notes->is_open = status == DW_OK;
    if (status != DW_OK && how->why->offset >= 0)
        how->why->offset += (int)(inner_how.address - how->address);
    return status;
}

static dw_status nccl_open(void *context, const dw_transport_open *given)
{
    nccl_end *end = context;
    dw_opening opening;
    const dw_transport_open *how = &opening.how;
    dw_status status = dw_take_opening(&opening, given);
    if (status != DW_OK) return status;
    int64_t deadline = dw_now_ns() + (int64_t)how->timeout_ms * DW_NS_PER_MS;
    int mode;
    end->nccl = how->context;
    end->notes.allocator = how->allocator;
    if (!end->nccl)
        return dw_say(how->why, DW_ERR_ARGUMENT,
                      "nccl needs a context: call dw_nccl_create, and put "
                      "{\"nccl\", nccl} into dw_link_options.contexts");
    status = open_behind(end, how);
    if (status == DW_OK && !dw_nccl_device_enter(&end->nccl->device, &mode)) {
        status = dw_say(how->why, DW_ERR_IO, "the driver does not let this thread use GPU %d",
                        end->nccl->device.ordinal);
    } else if (status == DW_OK) {
        status = dw_nccl_direction_make(&end->out, end->nccl, true, how->why);
        if (status == DW_OK) status = dw_nccl_direction_make(&end->in, end->nccl, false, how->why);
        if (status == DW_OK) status = dw_nccl_agree(end, how, deadline);
        dw_nccl_device_leave(&end->nccl->device, mode);
    }
    end->moved_ns = dw_now_ns();
    if (status != DW_OK) nccl_close(end);
    return status;
}

/* ---- Messages -------------------------------------------------------------------------------- */

static dw_status start(nccl_end *end, nccl_request *request, void *data, size_t len)
{
    int mode;
    *request = (nccl_request){.data = data, .len = len};
    if (len == 0) return DW_OK;
    if (!dw_nccl_device_enter(&end->nccl->device, &mode)) return DW_ERR_IO;
    request->is_on_device = dw_nccl_device_owns(&end->nccl->device, data);
    dw_nccl_device_leave(&end->nccl->device, mode);
    return DW_OK;
}

static dw_status nccl_send(void *context, void *request_room, const void *data, size_t len)
{
    nccl_end *end = context;
    nccl_request *request = request_room;
    dw_status status = start(end, request, (void *)(uintptr_t)data, len);
    request->sends = true;
    request->is_long = len > DW_NCCL_SHORT_BYTES || request->is_on_device;
    end->sending = status == DW_OK;
    return status;
}

static dw_status nccl_recv(void *context, void *request_room, void *room, size_t cap)
{
    nccl_end *end = context;
    dw_status status = start(end, request_room, room, cap);
    end->receiving = status == DW_OK;
    return status;
}

/* Enters the context and runs a step of one direction. Returns whether it made progress. */
static bool step(nccl_end *end, nccl_direction *direction, dw_status *status)
{
    int mode;
    bool moved = false;
    *status = DW_OK;
    if (!dw_nccl_direction_is_busy(direction)) return false;
    if (!dw_nccl_device_enter(&end->nccl->device, &mode)) {
        *status = DW_ERR_IO;
        return false;
    }
    moved = dw_nccl_direction_step(direction);
    dw_nccl_device_leave(&end->nccl->device, mode);
    if (moved) end->moved_ns = dw_now_ns();
    return moved;
}

/* Handles notes. stirred: the flag of the request that is not being tested now. */
static void pump(nccl_end *end, bool *stirred)
{
    if (!dw_nccl_notes_pump(&end->notes)) return;
    end->moved_ns = dw_now_ns();
    *stirred = true;
}

static dw_status go_on_sending(nccl_end *end, nccl_request *request)
{
    nccl_notes *notes = &end->notes;
    if (!request->begun) {
        bool said = request->is_long ? dw_nccl_notes_say(notes, DW_NCCL_LONG, request->len, NULL, 0)
                                     : dw_nccl_notes_say(notes, DW_NCCL_DATA, request->len,
                                                         request->data, request->len);
        if (!said) return DW_PENDING;
        request->begun = true;
        request->number = request->is_long ? notes->longs_said : notes->said;
        end->sent += end->framing_bytes + (request->is_long ? 0 : request->len);
    }
    if (!request->is_long) return notes->left >= request->number ? DW_OK : DW_PENDING;
    if (notes->long_wanted < request->number) return DW_PENDING;
    if (!request->is_wanted) {
        request->is_wanted = true;
        end->moved_ns = dw_now_ns();
        dw_nccl_direction_begin(&end->out, request->data, request->len, request->is_on_device);
    }
    dw_status status;
    step(end, &end->out, &status);
    if (status != DW_OK) return status;
    return dw_nccl_direction_is_busy(&end->out) ? DW_PENDING : DW_OK;
}

/* Copies a short message to where the link wants it. A copy to the GPU is synchronous, because the
 * note is reused afterwards. */
static dw_status copy_short(nccl_end *end, const nccl_request *request, const void *data,
                            size_t len)
{
    int mode;
    if (!request->is_on_device) {
        if (len > 0) memcpy(request->data, data, len);
        return DW_OK;
    }
    if (len == 0) return DW_OK;
    if (!dw_nccl_device_enter(&end->nccl->device, &mode)) return DW_ERR_IO;
    int error = end->nccl->device.driver.copy_now((dw_nccl_address)request->data, data, len);
    dw_nccl_device_leave(&end->nccl->device, mode);
    return error == DW_NCCL_CUDA_SUCCESS ? DW_OK : DW_ERR_IO;
}

static dw_status go_on_receiving(nccl_end *end, nccl_request *request, size_t *len)
{
    nccl_notes *notes = &end->notes;
    int kind;
    uint64_t value;
    const unsigned char *data;
    if (!end->receives_long) {
        if (!dw_nccl_notes_oldest(notes, &kind, &value, &data)) return DW_PENDING;
        *len = value > SIZE_MAX ? SIZE_MAX : (size_t)value;
        if (*len > request->len) return DW_ERR_BUFFER_TOO_SMALL;
        dw_status copied = kind == DW_NCCL_DATA ? copy_short(end, request, data, *len) : DW_OK;
        dw_nccl_notes_take_off(notes);
        end->received += end->framing_bytes + (kind == DW_NCCL_DATA ? value : 0);
        if (kind == DW_NCCL_DATA) return copied;
        end->receives_long = true;
        end->moved_ns = dw_now_ns();
        notes->long_asked = ++end->longs_in;
        dw_nccl_direction_begin(&end->in, request->data, *len, request->is_on_device);
    }
    /* Send GO before anything is enqueued. A receive would otherwise wait on the GPU for a peer
     * that does not know of it yet. */
    if (notes->long_asked > 0) pump(end, &end->send_stirred);
    if (notes->long_asked > 0) return DW_PENDING;
    dw_status status;
    step(end, &end->in, &status);
    *len = end->in.len;
    if (status != DW_OK) return status;
    if (dw_nccl_direction_is_busy(&end->in)) return DW_PENDING;
    end->receives_long = false;
    return DW_OK;
}

static dw_status nccl_test(void *context, void *request_room, size_t *len, dw_why *why)
{
    nccl_end *end = context;
    nccl_request *request = request_room;
    nccl_notes *notes = &end->notes;
    const nccl_direction *direction = request->sends ? &end->out : &end->in;
    *(request->sends ? &end->send_stirred : &end->recv_stirred) = false;
    pump(end, request->sends ? &end->recv_stirred : &end->send_stirred);
    dw_status status =
        request->sends ? go_on_sending(end, request) : go_on_receiving(end, request, len);
    if (request->sends && status == DW_OK) *len = request->len;
    if (status == DW_PENDING && direction->status != DW_OK) {
        status = direction->status;
        *why = direction->why;
        /* When a peer closes, its communicators fail as well. The error of the link behind says
         * more precisely what happened. */
        if (notes->status != DW_OK) status = notes->status;
        if (notes->status != DW_OK) *why = notes->why;
    } else if (status == DW_PENDING && notes->status != DW_OK) {
        status = notes->status;
        *why = notes->why;
    } else if (status == DW_ERR_IO) {
        dw_say(why, status, "the driver of GPU %d refused a context or a copy",
               end->nccl->device.ordinal);
    }
    if (status == DW_PENDING && dw_nccl_direction_is_busy(direction)) sched_yield();
    if (status != DW_PENDING) *(request->sends ? &end->sending : &end->receiving) = false;
    return status;
}

/* The link calls this while it neither sends nor receives. Credit and GO must go on. */
static dw_status nccl_turn(void *context, dw_why *why)
{
    nccl_end *end = context;
    nccl_notes *notes = &end->notes;
    pump(end, &end->send_stirred);
    if (notes->status != DW_OK) *why = notes->why;
    return notes->status;
}

static void fill_traits(const void *context, dw_transport_traits *traits)
{
    const nccl_end *end = context;
    dw_transport_traits behind = DW_NO_TRAITS;
    end->notes.inner.describe(end->notes.end, &behind);
    memcpy(traits->peer, behind.peer, sizeof traits->peer);
    traits->framing_bytes = end->framing_bytes;
    traits->takes_device_memory = 1;
    /* TLS may protect the notes, but nothing protects what NCCL carries. */
    traits->is_secure = 0;
}

static void nccl_describe(const void *context, dw_transport_traits *traits)
{
    dw_give_traits(context, traits, fill_traits);
}

static void fill_state(const void *context, int asks_kernel, dw_transport_state *state)
{
    const nccl_end *end = context;
    const nccl_notes *notes = &end->notes;
    (void)asks_kernel; /* the kernel counts only what the link behind carries */
    notes->inner.poll(notes->end, 0, state);
    uint64_t in_mid_note = state->wire_received - notes->whole_bytes;
    state->wire_sent = end->sent + end->out.moved_bytes;
    state->wire_received = end->received + end->in.moved_bytes + in_mid_note;
    if ((end->sending && end->send_stirred) || (end->receiving && end->recv_stirred)) {
        state->wake_ns = 0;
    } else if ((end->sending && dw_nccl_direction_is_busy(&end->out)) ||
               (end->receiving && end->receives_long)) {
        int64_t quiet = dw_now_ns() - end->moved_ns;
        int64_t nap = quiet < busy_ns ? 0 : quiet / 16 < most_nap_ns ? quiet / 16 : most_nap_ns;
        if (state->wake_ns < 0 || nap < state->wake_ns) state->wake_ns = nap;
    }
}

static void nccl_poll(const void *context, int asks_kernel, dw_transport_state *state)
{
    dw_give_state(context, asks_kernel, state, fill_state);
}

static const char *nccl_behind(const char *address)
{
    return address;
}

/* Each rank of a machine uses the GPU with its own number. If there is no such GPU, the launcher
 * has perhaps made only one visible to each rank; then use GPU 0. */
static dw_status nccl_join(dw_transport_place *place, dw_why *why)
{
    dw_nccl *nccl = NULL;
    dw_nccl_options options = {.struct_size = sizeof options, .device = (int)place->local_rank};
    dw_status status = dw_nccl_create(&nccl, &options, why);
    if (status == DW_ERR_UNSUPPORTED && options.device > 0) {
        options.device = 0;
        status = dw_nccl_create(&nccl, &options, why);
    }
    place->context = nccl;
    return status;
}

static void nccl_leave(dw_transport_place *place)
{
    dw_nccl_destroy(place->context);
    place->context = NULL;
}

static const dw_transport nccl_transport = {
    .struct_size = sizeof(dw_transport),
    .scheme = "nccl",
    .endpoint_bytes = sizeof(nccl_end),
    .request_bytes = sizeof(nccl_request),
    .open = nccl_open,
    .close = nccl_close,
    .send = nccl_send,
    .recv = nccl_recv,
    .test = nccl_test,
    .describe = nccl_describe,
    .poll = nccl_poll,
    .turn = nccl_turn,
    .form = "nccl:URI",
    .ranks = DW_RANKS_BEHIND,
    .behind = nccl_behind,
    .join = nccl_join,
    .leave = nccl_leave,
};

const dw_transport *dw_nccl_transport(void)
{
    return &nccl_transport;
}
