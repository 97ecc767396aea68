/* SPDX-License-Identifier: Apache-2.0
 * mpi_open.c - addresses mpi://RANK/NUMBER, and the handshake of two ends, which can be cancelled.
 *
 * MPI has messages but no connections: a message is delivered even if its sender has given up
 * since. So each end chooses a nonce, and accepts only answers that contain it:
 *
 *     connector: KNOCK (its nonce, its tag)
 *     listener:  WELCOME (both nonces, its tag)
 *     connector: CONFIRM
 *
 * A KNOCK of an earlier attempt is answered, a WELCOME of one is ignored. Neither does harm. */
#include "mpi/mpi_node.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "common/report.h"

enum { KNOCK = 1, WELCOME = 2, CONFIRM = 3 };
enum { HANDSHAKE_VERSION = 1, LOOK_MS = 1 };

/* | offset | bytes | field                                             |
 * | 0      | 6     | "DWMPI\n"                                         |
 * | 6      | 1     | version of this handshake and of the notes        |
 * | 7      | 1     | kind                                              |
 * | 8      | 8     | the sender's nonce                                |
 * | 16     | 8     | the nonce that it answers, or 0                   |
 * | 24     | 4     | the tag that the sender receives on               |
 * | 28     | 4     | 0                                                 | */
enum { NOTE_BYTES = 32 };
static const unsigned char magic[6] = {'D', 'W', 'M', 'P', 'I', '\n'};

typedef struct mpi_note {
    int kind;
    uint64_t own_nonce, peer_nonce; /* as seen by the receiver of the note */
    int tag;
} mpi_note;

/* Freed when MPI has sent all its notes, which may never happen. */
typedef struct mpi_handshake {
    dw_mpi *node;
    const dw_transport_open *how;
    int peer, out_tag, in_tag, own_tag;
    uint64_t nonce;
    /* At most two notes are in flight: the second is sent only after an answer has arrived. */
    MPI_Request out[2], in;
    unsigned char out_bytes[2][NOTE_BYTES], in_bytes[NOTE_BYTES];
} mpi_handshake;

/* ---- Addresses ------------------------------------------------------------------------------- */

static bool read_number(const char **text, int most, int *value)
{
    size_t digits = strspn(*text, "0123456789");
    if (digits == 0 || digits > 9) return false;
    long number = strtol(*text, NULL, 10);
    *text += digits;
    *value = (int)number;
    return number <= most;
}

dw_status dw_mpi_read_address(const dw_mpi *node, const dw_transport_open *how, int *peer,
                              int *number)
{
    const char *at = how->address;
    *number = 0;
    if (!node) {
        return dw_say_at(how->why, DW_ERR_ARGUMENT, 0,
                         "mpi needs a context: call dw_mpi_create, and put "
                         "{\"mpi\", mpi} into dw_link_options.contexts");
    }
    if (!read_number(&at, node->size - 1, peer)) {
        return dw_say_at(how->why, DW_ERR_ADDRESS, 0,
                         "'%.60s' is not a rank; write mpi:// and a rank from 0 to %d",
                         how->address, node->size - 1);
    }
    if (*at == '/') {
        at++;
        if (!read_number(&at, DW_MPI_NUMBERS - 1, number)) *peer = -1;
    }
    if (*at || *peer < 0) {
        return dw_say_at(how->why, DW_ERR_ADDRESS, (int)(at - how->address),
                         "'%.60s' is not an address; write a rank, "
                         "or rank/number with a number from 0 to %d",
                         how->address, DW_MPI_NUMBERS - 1);
    }
    return DW_OK;
}

/* ---- Notes ----------------------------------------------------------------------------------- */

static int send_note(mpi_handshake *m, int i, int kind, uint64_t peer_nonce)
{
    unsigned char *note = m->out_bytes[i];
    memcpy(note, magic, sizeof magic);
    note[6] = HANDSHAKE_VERSION;
    note[7] = (unsigned char)kind;
    dw_put64(note + 8, m->nonce);
    dw_put64(note + 16, peer_nonce);
    dw_put32(note + 24, (uint32_t)m->own_tag);
    dw_put32(note + 28, 0);
    return MPI_Isend(note, NOTE_BYTES, MPI_BYTE, m->peer, m->out_tag, m->node->comm, &m->out[i]);
}

static int post_receive(mpi_handshake *m)
{
    return MPI_Irecv(m->in_bytes, NOTE_BYTES, MPI_BYTE, m->peer, m->in_tag, m->node->comm, &m->in);
}

/* DW_OK: a note has arrived and was read into *note. DW_PENDING: none has. */
static dw_status receive_note(mpi_handshake *m, mpi_note *note)
{
    int is_here = 0, len = 0, code;
    MPI_Status envelope;
    for (int i = 0; i < 2; i++) {
        if ((code = MPI_Test(&m->out[i], &is_here, MPI_STATUS_IGNORE)) != MPI_SUCCESS) {
            return dw_mpi_failed(m->how->why, code, "meeting", m->peer);
        }
    }
    code = MPI_Test(&m->in, &is_here, &envelope);
    if (code != MPI_SUCCESS) return dw_mpi_failed(m->how->why, code, "meeting", m->peer);
    if (!is_here) return DW_PENDING;
    MPI_Get_count(&envelope, MPI_BYTE, &len);
    const unsigned char *bytes = m->in_bytes;
    if (len != NOTE_BYTES || memcmp(bytes, magic, sizeof magic) != 0 ||
        bytes[6] != HANDSHAKE_VERSION) {
        return dw_say(m->how->why, DW_ERR_VERSION,
                      "rank %d uses another version of the handshake; run the same "
                      "release of deltawire at all ranks",
                      m->peer);
    }
    *note = (mpi_note){.kind = bytes[7],
                       .peer_nonce = dw_get64(bytes + 8),
                       .own_nonce = dw_get64(bytes + 16),
                       .tag = (int)dw_get32(bytes + 24)};
    code = post_receive(m);
    return code == MPI_SUCCESS ? DW_OK : dw_mpi_failed(m->how->why, code, "meeting", m->peer);
}

/* Whether a note was sent, so that its buffer is free. The lock is held. */
static bool is_sent(mpi_handshake *m, int i)
{
    int done = 1;
    MPI_Test(&m->out[i], &done, MPI_STATUS_IGNORE);
    return done;
}

/* DW_OK: the handshake is complete, and *peer_tag is known. */
static dw_status answer(mpi_handshake *m, const mpi_note *note, uint64_t *connector_nonce,
                        int *peer_tag)
{
    bool listens = m->how->role == DW_LINK_LISTEN;
    int code = MPI_SUCCESS;
    if (note->tag < DW_MPI_FIRST_TAG) return DW_PENDING;
    if (listens && note->kind == KNOCK) {
        *connector_nonce = note->peer_nonce;
        *peer_tag = note->tag;
        /* The answer to an earlier KNOCK may still be in flight; use the other buffer then. */
        int i = is_sent(m, 0) ? 0 : 1;
        if (i == 0 || is_sent(m, 1)) code = send_note(m, i, WELCOME, note->peer_nonce);
    } else if (listens && note->kind == CONFIRM && note->own_nonce == m->nonce &&
               note->peer_nonce == *connector_nonce) {
        return DW_OK;
    } else if (!listens && note->kind == WELCOME && note->own_nonce == m->nonce) {
        *peer_tag = note->tag;
        code = send_note(m, 1, CONFIRM, note->peer_nonce);
        if (code == MPI_SUCCESS) return DW_OK;
    }
    return code == MPI_SUCCESS ? DW_PENDING : dw_mpi_failed(m->how->why, code, "meeting", m->peer);
}

/* ---- The handshake --------------------------------------------------------------------------- */

static dw_status check_time(const mpi_handshake *m, int64_t deadline_ns)
{
    const dw_transport_open *how = m->how;
    if (dw_link_is_set(how->cancelled)) {
        return dw_say(how->why, DW_ERR_CANCELLED, "opening mpi://%.60s was cancelled",
                      how->address);
    }
    if (dw_now_ns() < deadline_ns) return DW_PENDING;
    return dw_say(how->why, DW_ERR_TIMEOUT,
                  "rank %d did not open its end of mpi://%.60s within %u ms; does it "
                  "take the other role, and the same number?",
                  m->peer, how->address, how->timeout_ms);
}

static dw_status wait_for_peer(mpi_handshake *m, int *peer_tag)
{
    int64_t deadline = dw_now_ns() + (int64_t)m->how->timeout_ms * DW_NS_PER_MS;
    uint64_t connector_nonce = 0;
    dw_status status = DW_PENDING;
    while (status == DW_PENDING) {
        mpi_note note = {.kind = 0};
        pthread_mutex_lock(&m->node->lock);
        status = receive_note(m, &note);
        bool came = status == DW_OK;
        if (came) status = answer(m, &note, &connector_nonce, peer_tag);
        pthread_mutex_unlock(&m->node->lock);
        if (status == DW_PENDING) status = check_time(m, deadline);
        if (status == DW_PENDING && !came) poll(NULL, 0, LOOK_MS);
    }
    return status;
}

/* Ends the handshake. If a note was not received yet, MPI still reads its memory, which can then
 * never be freed. */
static void end_handshake(mpi_handshake *m)
{
    int done = 1;
    pthread_mutex_lock(&m->node->lock);
    if (m->in != MPI_REQUEST_NULL) {
        MPI_Cancel(&m->in);
        MPI_Wait(&m->in, MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < 2 && done; i++) done = is_sent(m, i);
    pthread_mutex_unlock(&m->node->lock);
    const dw_allocator allocator = m->how->allocator;
    if (done) dw_mem_release(&allocator, m, sizeof *m);
}

dw_status dw_mpi_handshake(dw_mpi *node, const dw_transport_open *how, int peer, int number,
                           int own_tag, int *peer_tag)
{
    bool listens = how->role == DW_LINK_LISTEN;
    mpi_handshake *m = dw_mem_allocate(&how->allocator, sizeof *m);
    if (!m) return dw_say(how->why, DW_ERR_NO_MEMORY, "no memory for a handshake over MPI");
    *m = (mpi_handshake){.node = node, .how = how, .peer = peer, .own_tag = own_tag};
    m->out_tag = 2 * number + !listens;
    m->in_tag = 2 * number + listens;
    m->out[0] = m->out[1] = m->in = MPI_REQUEST_NULL;
    pthread_mutex_lock(&node->lock);
    m->nonce = node->next_nonce++;
    int code = post_receive(m);
    if (code == MPI_SUCCESS && !listens) code = send_note(m, 0, KNOCK, 0);
    pthread_mutex_unlock(&node->lock);
    dw_status status = DW_OK;
    if (code != MPI_SUCCESS) status = dw_mpi_failed(how->why, code, "meeting", peer);
    if (status == DW_OK) status = wait_for_peer(m, peer_tag);
    end_handshake(m);
    return status;
}
