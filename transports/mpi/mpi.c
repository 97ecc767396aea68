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
static const int64_t close_ns = (int64_t)2000 * DW_NS_PER_MS;

/* The shortest silence after which a peer counts as dead, as in watch_for_silence of
 * tcp_address.c. */
static const int64_t least_silence_ns = (int64_t)12000 * DW_NS_PER_MS;

/* ---- Open and close -------------------------------------------------------------------------- */

/* Sends FIN and receives what is in flight, so that MPI keeps no request on our memory. DW_PENDING:
 * it still does. */
static dw_status exchange_fins(mpi_end *end)
{
    int64_t begun = dw_now_ns(), deadline = end->failure.status == DW_OK ? begun + close_ns : begun;
    bool quiet;
    dw_mpi_expect(&end->chunks, false);
    for (;;) {
        pthread_mutex_lock(&end->settings.node->lock);
        dw_mpi_send_fin(&end->notes, end->chunks.out_posted);
        bool moved = dw_mpi_step(end);
        /* The rest of a message that was arriving will never come: the peer sends nothing after its
         * FIN. */
        quiet = dw_mpi_is_quiet(&end->notes, &end->chunks);
        pthread_mutex_unlock(&end->settings.node->lock);
        if (quiet || end->failure.status != DW_OK || dw_now_ns() >= deadline) break;
        if (!moved) poll(NULL, 0, dw_now_ns() - begun < busy_ns ? 0 : 1);
    }
    pthread_mutex_lock(&end->settings.node->lock);
    if (quiet)
        dw_mpi_cancel_receives(&end->notes, &end->chunks);
    else
        end->settings.node->lost = true;
    end->settings.node->ends--;
    pthread_mutex_unlock(&end->settings.node->lock);
    return quiet ? DW_OK : DW_PENDING;
}

static dw_status mpi_close(void *context)
{
    mpi_end *end = context;
    dw_status status = exchange_fins(end);
    if (status == DW_OK) /* otherwise MPI may still use it, and it is never freed */
        dw_mpi_end_free(end);
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
    end->settings.node = how->context;
    end->settings.allocator = how->allocator;
    end->settings.heeds_kept = how->heeds_kept_sends;
    status = dw_mpi_read_address(end->settings.node, how, &end->settings.peer, &number);
    if (status != DW_OK) return status;
    snprintf(end->settings.uri, sizeof end->settings.uri, number ? "mpi://%d/%d" : "mpi://%d",
             end->settings.node->rank, number);
    int64_t silence = (int64_t)how->peer_timeout_ms * DW_NS_PER_MS;
    end->settings.silence_ns = silence < least_silence_ns ? least_silence_ns : silence;
    status = dw_mpi_end_make(end, how->why);
    if (status == DW_OK) {
        if (how->role == DW_LINK_LISTEN)
            how->on_listening(how->listening_context, end->settings.uri);
        status = dw_mpi_handshake(end->settings.node, how, end->settings.peer, number,
                                  end->settings.own_tag, &end->settings.peer_tag);
    }
    pthread_mutex_lock(&end->settings.node->lock);
    if (status == DW_OK)
        end->settings.node->ends++;
    else if (end->notes.room)
        dw_mpi_cancel_receives(&end->notes, &end->chunks);
    pthread_mutex_unlock(&end->settings.node->lock);
    if (status == DW_OK)
        dw_mpi_end_begin(end);
    else
        dw_mpi_end_free(end);
    return status;
}

/* ---- Messages -------------------------------------------------------------------------------- */

static dw_status mpi_send(void *context, void *request_room, const void *data, size_t len)
{
    (void)context;
    mpi_request *request = request_room;
    *request = (mpi_request){.sends = true, .data = data, .len = len};
    return DW_OK;
}

static dw_status mpi_recv(void *context, void *request_room, void *room, size_t cap)
{
    mpi_end *end = context;
    mpi_request *request = request_room;
    *request = (mpi_request){.room = room, .len = cap};
    dw_mpi_expect(&end->chunks, true);
    return DW_OK;
}

/* Whether the peer sent FIN before all chunks of the arriving message. */
static bool was_cut_off(const mpi_chunks *chunks)
{
    size_t left = chunks->incoming.len - chunks->incoming.posted;
    uint64_t n = left / DW_MPI_CHUNK_BYTES + (left % DW_MPI_CHUNK_BYTES != 0);
    return chunks->notes->fin_received && chunks->in_posted + n > chunks->notes->fin_chunks;
}

/* The status of a request that is not complete: PENDING, or an error if it never will be. */
static dw_status explain_wait(const mpi_end *end, bool sends, dw_why *why)
{
    bool has_begun = !sends && end->chunks.incoming.is_active;
    if (end->failure.status != DW_OK) {
        *why = end->failure.why;
        return end->failure.status;
    }
    if (has_begun && was_cut_off(&end->chunks))
        return dw_say(why, DW_ERR_PEER,
                      "rank %d closed its end of the link in the middle of a message (after %zu "
                      "bytes of it)",
                      end->settings.peer, end->chunks.incoming.done);
    if (!has_begun && end->notes.fin_received)
        return dw_say(why, DW_ERR_PEER, "rank %d closed its end of the link without a goodbye",
                      end->settings.peer);
    return DW_PENDING;
}

static dw_status mpi_test(void *context, void *request_room, size_t *len, dw_why *why)
{
    mpi_end *end = context;
    mpi_request *request = request_room;
    pthread_mutex_lock(&end->settings.node->lock);
    bool moved = dw_mpi_step(end);
    dw_status status = request->sends ? dw_mpi_send(&end->notes, &end->chunks, request, len)
                                      : dw_mpi_receive(&end->notes, &end->chunks, request, len);
    if (status == DW_PENDING)
        status = explain_wait(end, request->sends, why);
    else if (!request->sends)
        dw_mpi_expect(&end->chunks, false);
    pthread_mutex_unlock(&end->settings.node->lock);
    /* Ranks often share a processor with each other and with the computation. */
    if (status == DW_PENDING && !moved) sched_yield();
    return status;
}

/* For how many ns MPI need not be called. */
static int64_t nap(const mpi_traffic *traffic, const mpi_chunks *chunks)
{
    int64_t quiet = dw_now_ns() - traffic->moved_ns;
    bool under_way = chunks->incoming.is_active || chunks->out.n > 0;
    if (quiet < (under_way ? busy_ns : alert_ns)) return 0;
    return quiet / 16 < most_nap_ns ? quiet / 16 : most_nap_ns;
}

/* The link calls this while it neither sends nor receives. Signs of life and FIN must go on. */
static dw_status mpi_turn(void *context, dw_why *why)
{
    mpi_end *end = context;
    pthread_mutex_lock(&end->settings.node->lock);
    dw_mpi_step(end);
    pthread_mutex_unlock(&end->settings.node->lock);
    if (end->failure.status != DW_OK) *why = end->failure.why;
    return end->failure.status;
}

static void fill_traits(const void *context, dw_transport_traits *traits)
{
    const mpi_end *end = context;
    traits->framing_bytes = DW_MPI_NOTE_HEADER;
    snprintf(traits->peer, sizeof traits->peer, "rank %d", end->settings.peer);
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
    state->wake_ns = nap(&end->traffic, &end->chunks);
    state->wire_sent = end->traffic.sent;
    state->wire_received = end->traffic.received;
    state->kept_sends = end->settings.heeds_kept ? dw_mpi_kept(&end->chunks) : 0;
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
