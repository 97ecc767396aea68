/* SPDX-License-Identifier: Apache-2.0
 * nccl_open.c - how two ends agree to use NCCL: a greeting over the link behind, two communicators,
 * and a verdict of each end.
 *
 *     both: HELLO (with the listener's two unique ids) --> communicators, not blocking --> VERDICT
 *
 * An end that fails tells the other one why in its verdict. So no end waits for a communicator that
 * will never be complete. */
#include "nccl/nccl_end.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "common/opening.h"
#include "common/report.h"

/* | offset | bytes | hello                                                     |
 * | 0      | 6     | "DWNCCL"                                                  |
 * | 6      | 1     | version of this greeting and of the notes                 |
 * | 7      | 1     | 1: the program gave a communicator                        |
 * | 8      | 4     | version of NCCL                                           |
 * | 12     | 4     | rank in the communicators                                 |
 * | 16     | 256   | unique ids of two communicators: the listener's, or zeros |
 *
 * | offset | bytes | verdict                  |
 * | 0      | 4     | 0, or what went wrong    |
 * | 4      | rest  | a sentence, no zero byte | */
enum { RULES_VERSION = 1, HELLO_BYTES = 16 + 2 * sizeof(dw_nccl_id), LOOK_MS = 1 };
static const unsigned char magic[6] = {'D', 'W', 'N', 'C', 'C', 'L'};

typedef struct nccl_meeting {
    nccl_end *end;
    const dw_transport_open *how;
    int64_t deadline_ns;
    int rank;
    dw_nccl_id id[2];
    const char *waits_for;
    bool tells, listens; /* a message is being sent, being received */
    size_t heard_len;
} nccl_meeting;

/* ---- Waiting --------------------------------------------------------------------------------- */

/* Waits for at most LOOK_MS. DW_PENDING: continue; other results end the open. */
static dw_status sleep_a_little(const nccl_meeting *m)
{
    const dw_transport_open *how = m->how;
    if (dw_link_is_set(how->cancelled))
        return dw_say(how->why, DW_ERR_CANCELLED, "opening nccl:%.120s was cancelled",
                      how->address);
    if (dw_now_ns() >= m->deadline_ns) {
        return dw_say(how->why, DW_ERR_TIMEOUT, "within %u ms %s", how->timeout_ms, m->waits_for);
    }
    nccl_notes *notes = &m->end->notes;
    dw_transport_state state = DW_NO_STATE;
    notes->inner.poll(notes->end, 0, &state);
    struct pollfd wait = {.fd = state.wait_fd, .events = (short)state.wait_events};
    poll(&wait, state.wait_fd >= 0, LOOK_MS);
    return DW_PENDING;
}

static dw_status look_at(const nccl_meeting *m, void *request, bool *is_under_way, size_t *len)
{
    nccl_notes *notes = &m->end->notes;
    if (!*is_under_way) return DW_OK;
    dw_status status = notes->inner.test(notes->end, request, len, m->how->why);
    if (status == DW_PENDING) return DW_OK;
    *is_under_way = false;
    if (status != DW_ERR_BUFFER_TOO_SMALL) return status;
    return dw_say(
        m->how->why, DW_ERR_PROTOCOL,
        "the peer does not send the greeting of a link over NCCL; begin the URI with nccl: "
        "at both ends");
}

/* Tests both directions, because a backend may be unable to send unless the other end receives. */
static dw_status look(nccl_meeting *m)
{
    size_t sent;
    dw_status status = look_at(m, m->end->notes.send_request, &m->tells, &sent);
    return status == DW_OK ? look_at(m, m->end->notes.recv_request, &m->listens, &m->heard_len)
                           : status;
}

static dw_status finish(nccl_meeting *m, const bool *is_under_way)
{
    for (;;) {
        dw_status status = look(m);
        if (status != DW_OK || !*is_under_way) return status;
        status = sleep_a_little(m);
        if (status != DW_PENDING) return status;
    }
}

static dw_status tell(nccl_meeting *m, const void *data, size_t len)
{
    nccl_notes *notes = &m->end->notes;
    memset(notes->send_request, 0, notes->inner.request_bytes);
    dw_status status = notes->inner.send(notes->end, notes->send_request, data, len);
    if (status != DW_OK)
        return dw_say(m->how->why, status, "the link behind NCCL refuses to send: %s",
                      dw_status_string(status));
    m->tells = true;
    return finish(m, &m->tells);
}

static void listen_for(nccl_meeting *m)
{
    dw_nccl_notes_listen(&m->end->notes);
    m->listens = true;
}

/* ---- Greeting -------------------------------------------------------------------------------- */

static dw_status say_hello(nccl_meeting *m)
{
    const dw_nccl *nccl = m->end->nccl;
    unsigned char hello[HELLO_BYTES] = {0};
    m->rank = nccl->user_comm ? nccl->user_rank : m->how->role == DW_LINK_CONNECT;
    memcpy(hello, magic, sizeof magic);
    hello[6] = RULES_VERSION;
    hello[7] = nccl->user_comm != NULL;
    dw_put32(hello + 8, (uint32_t)nccl->library.version);
    dw_put32(hello + 12, (uint32_t)m->rank);
    for (int i = 0; i < 2 && m->how->role == DW_LINK_LISTEN && !nccl->user_comm; i++) {
        int error = nccl->library.get_id(&m->id[i]);
        if (error != DW_NCCL_SUCCESS) {
            return dw_say(m->how->why, DW_ERR_IO, "NCCL cannot make a unique id: %.180s",
                          dw_nccl_library_error(&nccl->library, NULL, error));
        }
        memcpy(hello + 16 + (size_t)i * sizeof m->id[i], &m->id[i], sizeof m->id[i]);
    }
    return tell(m, hello, sizeof hello);
}

static dw_status take_hello(nccl_meeting *m)
{
    nccl_notes *notes = &m->end->notes;
    dw_why *why = m->how->why;
    const dw_nccl *nccl = m->end->nccl;
    const unsigned char *hello = notes->in[0];
    dw_status status = finish(m, &m->listens);
    size_t len = m->heard_len;
    if (status != DW_OK) return status;
    if (len < 8 || memcmp(hello, magic, sizeof magic) != 0) {
        return dw_say(
            why, DW_ERR_PROTOCOL,
            "the peer does not send the greeting of a link over NCCL; begin the URI with nccl: at "
            "both ends");
    }
    if (hello[6] != RULES_VERSION || len != HELLO_BYTES) {
        return dw_say(
            why, DW_ERR_VERSION,
            "the peer uses another version of the greeting; run the same release of deltawire "
            "at both ends");
    }
    int theirs = (int)dw_get32(hello + 8), ours = nccl->library.version;
    if (theirs / 100 != ours / 100) {
        return dw_say(why, DW_ERR_VERSION,
                      "the peer has NCCL %d.%d and this end %d.%d; these do not work "
                      "together, install the same "
                      "at both ends",
                      theirs / 10000, theirs / 100 % 100, ours / 10000, ours / 100 % 100);
    }
    if (hello[7] != (nccl->user_comm != NULL)) {
        return dw_say(why, DW_ERR_MISMATCH,
                      "one end was given an NCCL communicator and the other was not; do the "
                      "same at both ends");
    }
    if ((int)dw_get32(hello + 12) != 1 - m->rank) {
        return dw_say(
            why, DW_ERR_MISMATCH,
            "both ends are rank %d; one must listen and the other connect, and communicators "
            "that are given must be the same",
            m->rank);
    }
    if (m->how->role == DW_LINK_CONNECT) memcpy(m->id, hello + 16, sizeof m->id);
    return DW_OK;
}

/* ---- Verdicts -------------------------------------------------------------------------------- */

static dw_status read_verdict(const nccl_meeting *m)
{
    size_t len = m->heard_len;
    const unsigned char *verdict = m->end->notes.in[0];
    if (len < 4) return dw_say(m->how->why, DW_ERR_PROTOCOL, "the peer sent an incomplete verdict");
    if (dw_get32(verdict) == 0) return DW_OK;
    return dw_say(m->how->why, DW_ERR_PEER, "the peer could not use NCCL: %.*s",
                  len - 4 > 180 ? 180 : (int)(len - 4), (const char *)verdict + 4);
}

static dw_status say_verdict(nccl_meeting *m, dw_status ours)
{
    unsigned char verdict[4 + sizeof m->how->why->text];
    size_t len = ours == DW_OK ? 0 : strlen(m->how->why->text);
    dw_put32(verdict, (uint32_t)ours);
    memcpy(verdict + 4, m->how->why->text, len);
    dw_why own = *m->how->why;
    dw_status status = tell(m, verdict, 4 + len);
    if (ours != DW_OK) *m->how->why = own; /* our own error matters more than that of sending it */
    return ours != DW_OK ? ours : status;
}

/* ---- Communicators --------------------------------------------------------------------------- */

/* Waits until the communicator is complete, or the verdict of the peer says that it will not be. */
static dw_status await(nccl_meeting *m, dw_nccl_comm comm)
{
    const dw_nccl_library *library = &m->end->nccl->library;
    for (;;) {
        int state = DW_NCCL_SUCCESS;
        int error = library->async_error(comm, &state);
        if (error == DW_NCCL_SUCCESS && state == DW_NCCL_SUCCESS) return DW_OK;
        if (error != DW_NCCL_SUCCESS || state != DW_NCCL_IN_PROGRESS) {
            return dw_say(
                m->how->why, DW_ERR_IO, "NCCL could not join the two ends: %.180s",
                dw_nccl_library_error(library, comm, error != DW_NCCL_SUCCESS ? error : state));
        }
        dw_status status = look(m);
        if (status == DW_OK && !m->listens) status = read_verdict(m);
        if (status == DW_OK) status = sleep_a_little(m);
        if (status != DW_PENDING) return status;
    }
}

/* i: which of the two communicators. Both ends make them in the same order. */
static dw_status make_comm(nccl_meeting *m, int i, dw_nccl_comm *comm)
{
    dw_nccl *nccl = m->end->nccl;
    dw_nccl_config config = DW_NCCL_CONFIG;
    config.min_ctas = 1;
    config.max_ctas = (int)nccl->max_ctas;
    int error;
    dw_status status = DW_OK;
    if (nccl->user_comm) {
        error = nccl->library.split(nccl->user_comm, 0, m->rank, comm, &config);
        /* If the communicator of the program is nonblocking, the new one exists only after that. */
        if (error == DW_NCCL_IN_PROGRESS) status = await(m, nccl->user_comm);
    } else {
        error = nccl->library.init(comm, 2, m->id[i], m->rank, &config);
    }
    if (error != DW_NCCL_SUCCESS && error != DW_NCCL_IN_PROGRESS) {
        return dw_say(m->how->why, DW_ERR_IO, "NCCL could not begin to join the two ends: %.160s",
                      dw_nccl_library_error(&nccl->library, NULL, error));
    }
    return status == DW_OK ? await(m, *comm) : status;
}

static dw_status make_both(nccl_meeting *m)
{
    nccl_end *end = m->end;
    m->waits_for = "NCCL did not join the two ends; does it use the right network "
                   "(NCCL_SOCKET_IFNAME), and is each end on a GPU of "
                   "its own?";
    end->out.peer = end->in.peer = 1 - m->rank;
    dw_status status = DW_OK;
    if (end->nccl->user_comm) pthread_mutex_lock(&end->nccl->lock);
    for (int i = 0; i < 2 && status == DW_OK; i++) {
        /* Rank 0 sends on the first communicator, rank 1 on the second. */
        nccl_direction *direction = i == m->rank ? &end->out : &end->in;
        status = make_comm(m, i, &direction->comm);
    }
    if (end->nccl->user_comm) pthread_mutex_unlock(&end->nccl->lock);
    return status;
}

dw_status dw_nccl_agree(nccl_end *end, const dw_transport_open *how, int64_t deadline_ns)
{
    nccl_meeting m = {.end = end,
                      .how = how,
                      .deadline_ns = deadline_ns,
                      .waits_for = "no greeting came over the link behind NCCL"};
    nccl_notes *notes = &end->notes;
    listen_for(&m);
    dw_status status = say_hello(&m);
    if (status == DW_OK) status = take_hello(&m);
    if (status != DW_OK) return status;
    listen_for(&m);
    status = say_verdict(&m, make_both(&m));
    m.waits_for = "the peer did not say whether it can use NCCL";
    if (status == DW_OK) status = finish(&m, &m.listens);
    if (status == DW_OK) status = read_verdict(&m);
    if (status != DW_OK) return status;
    notes->credit = DW_NCCL_CREDITS;
    dw_transport_state state = DW_NO_STATE;
    dw_transport_traits traits = DW_NO_TRAITS;
    notes->inner.poll(notes->end, 0, &state);
    notes->inner.describe(notes->end, &traits);
    notes->whole_bytes = state.wire_received;
    end->framing_bytes = DW_NCCL_NOTE_HEADER + traits.framing_bytes;
    dw_nccl_notes_listen(notes);
    if (notes->status != DW_OK) *how->why = notes->why;
    return notes->status;
}
