/* SPDX-License-Identifier: Apache-2.0
 * mpi.c - the backend mpi: links between the ranks of an MPI program. */
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "common/opening.h"
#include "common/report.h"
#include "mpi/mpi_end.h"

/* MPI has no descriptor to wait on, and makes progress only inside its calls, so it must be polled.
 * It is called without a pause until nothing has arrived or left for busy_ns (while a long message
 * is in progress) or for alert_ns (otherwise). From then on the pause is a sixteenth of the time
 * since anything last arrived or left, at most most_nap_ns. So waiting for a message takes at most
 * a sixteenth longer than necessary, and an idle link costs a thousand short calls per second. */
static const int64_t busy_ns = 1000000, alert_ns = 50000, most_nap_ns = 1000000;

/* How long a close waits for the FIN of the peer and for what is in flight. The link's thread of a
 * living peer answers a FIN at once, whatever its program is doing. */
static const int64_t farewell_ns = (int64_t)2000 * DW_NS_PER_MS;

/* The shortest silence after which a peer counts as dead, as in watch_for_silence of
 * tcp_address.c. */
static const int64_t least_silence_ns = (int64_t)12000 * DW_NS_PER_MS;

typedef struct mpi_request {
    bool sends, begun;
    const unsigned char *data; /* of a send */
    unsigned char *room;       /* of a receive */
    size_t len;                /* bytes to send; room to receive into */
    size_t posted;             /* of a long send: how much was given to MPI */
} mpi_request;

/* ---- Open and close -------------------------------------------------------------------------- */

/* Sends FIN and receives what is in flight, so that MPI keeps no request on our memory. DW_PENDING:
 * it still does. */
static dw_status part(mpi_end *end)
{
    int64_t begun = dw_now_ns(), deadline = end->status == DW_OK ? begun + farewell_ns : begun;
    bool quiet;
    end->receiving = false;
    for (;;) {
        pthread_mutex_lock(&end->node->lock);
        if (!end->fin_said) end->fin_said = dw_mpi_say(end, DW_MPI_FIN, end->out_posted, NULL, 0);
        bool moved = dw_mpi_pump(end);
        /* The rest of a message that was arriving will never come: the peer sends nothing after its
         * FIN. */
        quiet = dw_mpi_is_quiet(end);
        pthread_mutex_unlock(&end->node->lock);
        if (quiet || end->status != DW_OK || dw_now_ns() >= deadline) break;
        if (!moved) poll(NULL, 0, dw_now_ns() - begun < busy_ns ? 0 : 1);
    }
    pthread_mutex_lock(&end->node->lock);
    if (quiet)
        dw_mpi_withdraw(end);
    else
        end->node->lost = true;
    end->node->ends--;
    pthread_mutex_unlock(&end->node->lock);
    return quiet ? DW_OK : DW_PENDING;
}

static dw_status mpi_close(void *context)
{
    mpi_end *end = context;
    dw_status status = part(end);
    if (status == DW_OK) /* otherwise MPI may still use it, and it is never freed */
        dw_mem_release(&end->allocator, end->room, sizeof *end->room);
    return status;
}

static dw_status mpi_open(void *context, const dw_transport_open *given)
{
    mpi_end *end = context;
    int number;
    dw_opening opening;
    const dw_transport_open *how = &opening.how;
    dw_status status = dw_take_opening(&opening, given);
    if (status != DW_OK) return status;
    end->node = how->context;
    end->allocator = how->allocator;
    end->heeds_kept = how->heeds_kept_sends;
    status = dw_mpi_read_address(end->node, how, &end->peer, &number);
    if (status != DW_OK) return status;
    snprintf(end->uri, sizeof end->uri, number ? "mpi://%d/%d" : "mpi://%d", end->node->rank,
             number);
    int64_t silence = (int64_t)how->peer_timeout_ms * DW_NS_PER_MS;
    end->silence_ns = silence < least_silence_ns ? least_silence_ns : silence;
    status = dw_mpi_end_make(end, how->why);
    if (status == DW_OK) {
        if (how->role == DW_LINK_LISTEN) how->on_listening(how->listening_context, end->uri);
        status = dw_mpi_meet(end->node, how, end->peer, number, end->own_tag, &end->peer_tag);
    }
    pthread_mutex_lock(&end->node->lock);
    if (status == DW_OK)
        end->node->ends++;
    else if (end->room)
        dw_mpi_withdraw(end);
    pthread_mutex_unlock(&end->node->lock);
    if (status == DW_OK)
        end->heard_ns = end->pumped_ns = end->moved_ns = dw_now_ns();
    else
        dw_mem_release(&end->allocator, end->room, sizeof *end->room);
    return status;
}

/* ---- Messages -------------------------------------------------------------------------------- */

static dw_status mpi_send(void *context, void *request_room, const void *data, size_t len)
{
    mpi_end *end = context;
    mpi_request *request = request_room;
    *request = (mpi_request){.sends = true, .data = data, .len = len};
    end->sending = true;
    return DW_OK;
}

static dw_status mpi_recv(void *context, void *request_room, void *room, size_t cap)
{
    mpi_end *end = context;
    mpi_request *request = request_room;
    *request = (mpi_request){.room = room, .len = cap};
    end->receiving = true;
    return DW_OK;
}

static dw_status go_on_sending(mpi_end *end, mpi_request *request)
{
    if (!request->begun) {
        bool is_long = request->len > DW_MPI_NOTE_BYTES - DW_MPI_NOTE_HEADER;
        bool said = is_long
                        ? dw_mpi_say(end, DW_MPI_LONG, request->len, NULL, 0)
                        : dw_mpi_say(end, DW_MPI_DATA, request->len, request->data, request->len);
        if (!said) return DW_PENDING;
        request->begun = true;
        end->sent += DW_MPI_NOTE_HEADER;
        if (!is_long) {
            end->sent += request->len;
            return DW_OK;
        }
    }
    /* If the link heeds kept_sends, a send is done when MPI was given all its chunks. So the next
     * message can be announced while they travel, and the network does not fall idle. Otherwise a
     * send is done when MPI has sent all its chunks, because the link may then reuse the data. */
    dw_mpi_out_chunks(end, request->data, request->len, &request->posted);
    return request->posted == request->len && (end->heeds_kept || end->chunks_out.n == 0)
               ? DW_OK
               : DW_PENDING;
}

static dw_status test_send(mpi_end *end, mpi_request *request, size_t *len, dw_why *why)
{
    dw_status status = go_on_sending(end, request);
    if (status == DW_OK) {
        *len = request->len;
        end->sending = false;
        end->answered++;
    } else if (end->status != DW_OK) {
        *why = end->why;
        status = end->status;
    } else if (end->fin_heard) {
        status = dw_say(why, DW_ERR_PEER, "rank %d closed its end of the link without a goodbye",
                        end->peer);
    }
    return status;
}

/* Whether the peer sent FIN before all chunks of the arriving message. */
static bool was_cut_off(const mpi_end *end)
{
    size_t left = end->long_len - end->long_posted;
    uint64_t chunks = left / DW_MPI_CHUNK_BYTES + (left % DW_MPI_CHUNK_BYTES != 0);
    return end->fin_heard && end->in_posted + chunks > end->fin_chunks;
}

static dw_status go_on_receiving(mpi_end *end, mpi_request *request, size_t *len)
{
    int kind;
    uint64_t value;
    const unsigned char *data;
    if (!end->long_active) {
        if (!dw_mpi_oldest(end, &kind, &value, &data) || (kind == DW_MPI_LONG && end->wastes))
            return DW_PENDING;
        *len = value > SIZE_MAX ? SIZE_MAX : (size_t)value;
        if (*len > request->len) return DW_ERR_NO_ROOM;
        if (kind == DW_MPI_DATA && value > 0) memcpy(request->room, data, *len);
        dw_mpi_take_off(end);
        end->received += DW_MPI_NOTE_HEADER;
        if (kind == DW_MPI_DATA) {
            end->received += value;
            return DW_OK;
        }
        end->long_active = true;
        end->long_room = request->room;
        end->long_len = *len;
        end->long_posted = end->long_done = 0;
    }
    dw_mpi_post_chunks(end);
    *len = end->long_len;
    if (end->long_done < end->long_len) return DW_PENDING;
    end->long_active = false;
    return DW_OK;
}

static dw_status test_recv(mpi_end *end, mpi_request *request, size_t *len, dw_why *why)
{
    dw_status status = go_on_receiving(end, request, len);
    if (status != DW_PENDING) {
        end->receiving = false;
    } else if (end->status != DW_OK) {
        *why = end->why;
        status = end->status;
    } else if (end->long_active && was_cut_off(end)) {
        status = dw_say(why, DW_ERR_PEER,
                        "rank %d closed its end of the link in the middle of a message (after %zu "
                        "bytes of it)",
                        end->peer, end->long_done);
    } else if (!end->long_active && end->fin_heard) {
        status = dw_say(why, DW_ERR_PEER, "rank %d closed its end of the link without a goodbye",
                        end->peer);
    }
    return status;
}

static dw_status mpi_test(void *context, void *request_room, size_t *len, dw_why *why)
{
    mpi_end *end = context;
    mpi_request *request = request_room;
    pthread_mutex_lock(&end->node->lock);
    bool moved = dw_mpi_pump(end);
    dw_status status =
        request->sends ? test_send(end, request, len, why) : test_recv(end, request, len, why);
    pthread_mutex_unlock(&end->node->lock);
    /* Ranks often share a processor with each other and with the computation. */
    if (status == DW_PENDING && !moved) sched_yield();
    return status;
}

/* For how many ns MPI need not be called. */
static int64_t nap(const mpi_end *end)
{
    int64_t quiet = dw_now_ns() - end->moved_ns;
    bool under_way = end->long_active || end->chunks_out.n > 0;
    if (quiet < (under_way ? busy_ns : alert_ns)) return 0;
    return quiet / 16 < most_nap_ns ? quiet / 16 : most_nap_ns;
}

/* The link calls this while it neither sends nor receives. Signs of life and FIN must go on. */
static dw_status mpi_turn(void *context, dw_why *why)
{
    mpi_end *end = context;
    pthread_mutex_lock(&end->node->lock);
    dw_mpi_pump(end);
    pthread_mutex_unlock(&end->node->lock);
    if (end->status != DW_OK) *why = end->why;
    return end->status;
}

static void fill_traits(const void *context, dw_transport_traits *traits)
{
    const mpi_end *end = context;
    traits->framing_bytes = DW_MPI_NOTE_HEADER;
    snprintf(traits->peer, sizeof traits->peer, "rank %d", end->peer);
}

static void mpi_describe(const void *context, dw_transport_traits *traits)
{
    dw_give_traits(context, traits, fill_traits);
}

static void fill_state(const void *context, int asks_kernel, dw_transport_state *state)
{
    const mpi_end *end = context;
    (void)asks_kernel;
    state->wait_fd = -1;
    state->wait_events = 0;
    state->wake_ns = nap(end);
    state->wire_sent = end->sent;
    state->wire_received = end->received;
    state->kept_sends = end->heeds_kept ? dw_mpi_kept(end) : 0;
}

static void mpi_poll(const void *context, int asks_kernel, dw_transport_state *state)
{
    dw_give_state(context, asks_kernel, state, fill_state);
}

/* For programs that were started by an MPI launcher. A program with a communicator of its own calls
 * dw_mpi_create. */
static dw_status mpi_join(dw_transport_place *place, dw_why *why)
{
    dw_mpi *mpi;
    dw_status status = dw_mpi_create(&mpi, NULL, why);
    if (status != DW_OK) return status;
    place->rank = (uint32_t)mpi->rank;
    place->ranks = (uint32_t)mpi->size;
    place->context = mpi;
    return DW_OK;
}

static void mpi_leave(dw_transport_place *place)
{
    dw_mpi_destroy(place->context);
    place->context = NULL;
}

static const dw_transport mpi_transport = {
    .struct_size = sizeof(dw_transport),
    .scheme = "mpi",
    .endpoint_bytes = sizeof(mpi_end),
    .request_bytes = sizeof(mpi_request),
    .open = mpi_open,
    .close = mpi_close,
    .send = mpi_send,
    .recv = mpi_recv,
    .test = mpi_test,
    .describe = mpi_describe,
    .poll = mpi_poll,
    .turn = mpi_turn,
    .form = "mpi://RANK",
    .ranks = DW_RANKS_NUMBERED,
    .join = mpi_join,
    .leave = mpi_leave,
};

const dw_transport *dw_mpi_transport(void)
{
    return &mpi_transport;
}
