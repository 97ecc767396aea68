/* SPDX-License-Identifier: Apache-2.0
 * mpi_end.c - what two ranks send each other: notes, credit, chunks, signs of life, and FIN. */
#include "mpi/mpi_end.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "common/report.h"

/* The interval of BEAT notes. Three of them fit into the shortest silence after which a peer counts
 * as dead (least_silence_ns in mpi.c). */
static const int64_t beat_ns = (int64_t)4000 * DW_NS_PER_MS;

__attribute__((format(printf, 3, 4))) static void fail(mpi_failure *failure, dw_status status,
                                                       const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    dw_link_report_first(&failure->status, &failure->why, status, format, arguments);
    va_end(arguments);
}

static bool is_fine(mpi_failure *failure, int code, const char *what)
{
    if (code == MPI_SUCCESS) return true;
    dw_why why;
    dw_status status = dw_mpi_failed(&why, code, what, failure->peer);
    fail(failure, status, "%s", why.text);
    return false;
}

/* ---- Requests in order ----------------------------------------------------------------------- */

static MPI_Request *next_place(mpi_ring *ring)
{
    return &ring->request[(ring->head + ring->n) % ring->cap];
}

/* Whether the oldest request is complete; it is then removed. *len: how many bytes it received. */
static bool has_ended(mpi_ring *ring, mpi_failure *failure, const char *what, int *len)
{
    int done = 0;
    MPI_Status envelope;
    if (ring->n == 0) return false;
    int code = MPI_Test(&ring->request[ring->head], &done, &envelope);
    if (!is_fine(failure, code, what) || !done) return false;
    if (len) MPI_Get_count(&envelope, MPI_BYTE, len);
    ring->head = (ring->head + 1) % ring->cap;
    ring->n--;
    return true;
}

static void push_note(mpi_line *line, unsigned char note)
{
    line->note[(line->head + line->n++) % DW_MPI_NOTES] = note;
}

static void remove_oldest(mpi_line *line)
{
    line->head = (line->head + 1) % DW_MPI_NOTES;
    line->n--;
}

/* ---- Notes ----------------------------------------------------------------------------------- */

static void post_note(mpi_notes *notes, unsigned char note)
{
    int code = MPI_Irecv(notes->room->in[note], DW_MPI_NOTE_BYTES, MPI_BYTE, notes->settings->peer,
                         notes->settings->own_tag, notes->settings->node->comm, &notes->in[note]);
    if (is_fine(notes->failure, code, "receiving")) push_note(&notes->posted, note);
}

static bool send_note(mpi_notes *notes, int kind, uint64_t value, const void *data, size_t len)
{
    bool costs = kind == DW_MPI_DATA || kind == DW_MPI_LONG;
    /* The last places are kept free for notes without data. */
    if (notes->fin_sent || notes->failure->status != DW_OK || (costs && notes->credit == 0))
        return false;
    if (notes->out.n >= (costs ? (unsigned)DW_MPI_CREDITS : notes->out.cap)) return false;
    unsigned char *note = notes->room->out[(notes->out.head + notes->out.n) % notes->out.cap];
    dw_put32(note, (uint32_t)kind);
    dw_put32(note + 4, notes->owed);
    dw_put64(note + 8, value);
    if (len > 0) memcpy(note + DW_MPI_NOTE_HEADER, data, len);
    int code =
        MPI_Isend(note, (int)(DW_MPI_NOTE_HEADER + len), MPI_BYTE, notes->settings->peer,
                  notes->settings->peer_tag, notes->settings->node->comm, next_place(&notes->out));
    if (!is_fine(notes->failure, code, "sending")) return false;
    notes->out.n++;
    notes->owed = 0;
    if (costs) notes->credit--;
    notes->traffic->sent_ns = dw_now_ns();
    if (kind != DW_MPI_BEAT) notes->traffic->moved_ns = notes->traffic->sent_ns;
    return true;
}

static bool oldest(const mpi_notes *notes, int *kind, uint64_t *value, const unsigned char **data)
{
    if (notes->arrived.n == 0) return false;
    const unsigned char *note = notes->room->in[notes->arrived.note[notes->arrived.head]];
    *kind = (int)dw_get32(note);
    *value = dw_get64(note + 8);
    *data = note + DW_MPI_NOTE_HEADER;
    return true;
}

static void pop_note(mpi_notes *notes)
{
    unsigned char note = notes->arrived.note[notes->arrived.head];
    remove_oldest(&notes->arrived);
    notes->owed++;
    if (!notes->fin_received) post_note(notes, note);
}

/* Handles a note that has arrived. false: it violates the protocol. chunks_done: how many chunks
 * have arrived. */
static bool sort_note(mpi_notes *notes, unsigned char number, int len, uint64_t chunks_done)
{
    const unsigned char *note = notes->room->in[number];
    if (len < DW_MPI_NOTE_HEADER) return false;
    uint32_t kind = dw_get32(note), credit = dw_get32(note + 4);
    uint64_t value = dw_get64(note + 8);
    if (credit > DW_MPI_CREDITS - notes->credit) return false;
    notes->credit += credit;
    if (kind == DW_MPI_DATA || kind == DW_MPI_LONG) {
        uint64_t inside = (uint64_t)(len - DW_MPI_NOTE_HEADER);
        if (kind == DW_MPI_DATA ? value != inside
                                : inside != 0 || value <= DW_MPI_NOTE_BYTES - DW_MPI_NOTE_HEADER)
            return false;
        push_note(&notes->arrived, number);
        return notes->arrived.n <= DW_MPI_CREDITS;
    }
    if (kind == DW_MPI_FIN) {
        notes->fin_received = true;
        notes->fin_chunks = value;
        return value >= chunks_done; /* no note follows a FIN, so no receive is posted again */
    }
    post_note(notes, number);
    return kind == DW_MPI_CREDIT || kind == DW_MPI_BEAT;
}

static bool receive_notes(mpi_notes *notes, uint64_t chunks_done)
{
    bool moved = false;
    while (notes->posted.n > 0 && !notes->fin_received && notes->failure->status == DW_OK) {
        unsigned char note = notes->posted.note[notes->posted.head];
        int done = 0, len = 0;
        MPI_Status envelope;
        if (!is_fine(notes->failure, MPI_Test(&notes->in[note], &done, &envelope), "receiving") ||
            !done)
            break;
        MPI_Get_count(&envelope, MPI_BYTE, &len);
        remove_oldest(&notes->posted);
        notes->traffic->heard_ns = notes->traffic->stepped_ns;
        moved |= dw_get32(notes->room->in[note]) != DW_MPI_BEAT;
        if (!sort_note(notes, note, len, chunks_done)) {
            fail(notes->failure, DW_ERR_PROTOCOL, "rank %d sent a note that is not valid",
                 notes->settings->peer);
        }
    }
    return moved;
}

/* ---- Chunks ---------------------------------------------------------------------------------- */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void send_chunks(mpi_chunks *chunks, const unsigned char *data, size_t len, size_t *posted)
{
    mpi_ring *ring = &chunks->out;
    while (*posted < len && ring->n < ring->cap && !chunks->notes->fin_sent &&
           chunks->failure->status == DW_OK) {
        size_t bytes = least(len - *posted, DW_MPI_CHUNK_BYTES);
        int code = MPI_Isend(data + *posted, (int)bytes, MPI_BYTE, chunks->settings->peer,
                             chunks->settings->peer_tag + 1, chunks->settings->node->comm,
                             next_place(ring));
        if (!is_fine(chunks->failure, code, "sending")) break;
        chunks->leaving[(ring->head + ring->n) % ring->cap] =
            (struct mpi_chunk){.bytes = bytes, .message = chunks->answered};
        ring->n++;
        chunks->out_posted++;
        *posted += bytes;
        chunks->traffic->moved_ns = dw_now_ns();
    }
}

/* Removes the chunks that were sent. */
static bool release_chunks(mpi_chunks *chunks)
{
    bool moved = false;
    for (;; moved = true) {
        size_t bytes = chunks->leaving[chunks->out.head].bytes;
        if (!has_ended(&chunks->out, chunks->failure, "sending", NULL)) return moved;
        chunks->traffic->sent += bytes;
        chunks->traffic->heard_ns = chunks->traffic->stepped_ns; /* a peer that receives is alive */
    }
}

uint64_t dw_mpi_kept(const mpi_chunks *chunks)
{
    return chunks->out.n > 0 ? chunks->answered - chunks->leaving[chunks->out.head].message : 0;
}

static void post_chunk(mpi_chunks *chunks, unsigned char *to, size_t bytes)
{
    int code =
        MPI_Irecv(to, (int)bytes, MPI_BYTE, chunks->settings->peer, chunks->settings->own_tag + 1,
                  chunks->settings->node->comm, next_place(&chunks->in));
    if (!is_fine(chunks->failure, code, "receiving")) return;
    chunks->in.n++;
    chunks->in_posted++;
}

static void post_chunks(mpi_chunks *chunks)
{
    while (chunks->incoming.is_active && chunks->incoming.posted < chunks->incoming.len &&
           chunks->in.n < chunks->in.cap && chunks->failure->status == DW_OK &&
           !(chunks->notes->fin_received && chunks->in_posted >= chunks->notes->fin_chunks)) {
        size_t bytes = least(chunks->incoming.len - chunks->incoming.posted, DW_MPI_CHUNK_BYTES);
        post_chunk(chunks, chunks->incoming.room + chunks->incoming.posted, bytes);
        chunks->incoming.posted += bytes;
    }
}

/* Removes the chunks that were received. */
static bool take_chunks(mpi_chunks *chunks)
{
    bool moved = false;
    int len = 0;
    while (has_ended(&chunks->in, chunks->failure, "receiving", &len)) {
        moved = true;
        chunks->in_done++;
        chunks->traffic->heard_ns = chunks->traffic->stepped_ns;
        if (!chunks->incoming.is_active) continue; /* dropped */
        if ((size_t)len !=
            least(chunks->incoming.len - chunks->incoming.done, DW_MPI_CHUNK_BYTES)) {
            fail(chunks->failure, DW_ERR_PROTOCOL,
                 "rank %d sent a chunk of %d bytes, which is not the expected length",
                 chunks->settings->peer, len);
        }
        chunks->incoming.done += (size_t)len;
        chunks->traffic->received += (uint64_t)len;
    }
    return moved;
}

/* The peer has sent FIN and the link receives nothing more. The peer waits until its chunks are
 * received, so they are received and dropped. */
static void discard_chunks(mpi_chunks *chunks)
{
    if (chunks->notes->fin_received && !chunks->is_receiving && chunks->in.n == 0 &&
        chunks->in_posted < chunks->notes->fin_chunks) {
        chunks->incoming.is_active = false;
        chunks->discards = true;
        post_chunk(chunks, chunks->waste, DW_MPI_CHUNK_BYTES);
    }
}

/* ---- Requests of the link -------------------------------------------------------------------- */

void dw_mpi_expect(mpi_chunks *chunks, bool is_receiving)
{
    chunks->is_receiving = is_receiving;
}

static dw_status continue_send(mpi_notes *notes, mpi_chunks *chunks, mpi_request *request)
{
    if (!request->begun) {
        bool is_long = request->len > DW_MPI_NOTE_BYTES - DW_MPI_NOTE_HEADER;
        bool is_sent =
            is_long ? send_note(notes, DW_MPI_LONG, request->len, NULL, 0)
                    : send_note(notes, DW_MPI_DATA, request->len, request->data, request->len);
        if (!is_sent) return DW_PENDING;
        request->begun = true;
        notes->traffic->sent += DW_MPI_NOTE_HEADER;
        if (!is_long) {
            notes->traffic->sent += request->len;
            return DW_OK;
        }
    }
    /* If the link heeds kept_sends, a send is done when MPI was given all its chunks. So the next
     * message can be announced while they travel, and the network does not fall idle. Otherwise a
     * send is done when MPI has sent all its chunks, because the link may then reuse the data. */
    send_chunks(chunks, request->data, request->len, &request->posted);
    return request->posted == request->len && (chunks->settings->heeds_kept || chunks->out.n == 0)
               ? DW_OK
               : DW_PENDING;
}

dw_status dw_mpi_send(mpi_notes *notes, mpi_chunks *chunks, mpi_request *request, size_t *len)
{
    dw_status status = continue_send(notes, chunks, request);
    if (status == DW_OK) chunks->answered++;
    *len = request->len;
    return status;
}

dw_status dw_mpi_receive(mpi_notes *notes, mpi_chunks *chunks, mpi_request *request, size_t *len)
{
    mpi_incoming *incoming = &chunks->incoming;
    int kind;
    uint64_t value;
    const unsigned char *data;
    if (!incoming->is_active) {
        if (!oldest(notes, &kind, &value, &data) || (kind == DW_MPI_LONG && chunks->discards))
            return DW_PENDING;
        *len = value > SIZE_MAX ? SIZE_MAX : (size_t)value;
        if (*len > request->len) return DW_ERR_BUFFER_TOO_SMALL;
        if (kind == DW_MPI_DATA && value > 0) memcpy(request->room, data, *len);
        pop_note(notes);
        notes->traffic->received += DW_MPI_NOTE_HEADER;
        if (kind == DW_MPI_DATA) {
            notes->traffic->received += value;
            return DW_OK;
        }
        *incoming = (mpi_incoming){.room = request->room, .len = *len, .is_active = true};
    }
    post_chunks(chunks);
    *len = incoming->len;
    if (incoming->done < incoming->len) return DW_PENDING;
    incoming->is_active = false;
    return DW_OK;
}

/* ---- The end --------------------------------------------------------------------------------- */

void dw_mpi_end_begin(mpi_end *end)
{
    end->traffic.heard_ns = end->traffic.stepped_ns = end->traffic.moved_ns = dw_now_ns();
}

dw_status dw_mpi_end_make(mpi_end *end, dw_why *why)
{
    mpi_notes *notes = &end->notes;
    mpi_chunks *chunks = &end->chunks;
    notes->room = dw_mem_allocate(&end->settings.allocator, sizeof *notes->room);
    if (!notes->room) return dw_say(why, DW_ERR_NO_MEMORY, "no memory for a link over MPI");
    end->failure.peer = end->settings.peer;
    notes->settings = chunks->settings = &end->settings;
    notes->traffic = chunks->traffic = &end->traffic;
    notes->failure = chunks->failure = &end->failure;
    notes->credit = DW_MPI_CREDITS;
    notes->out.cap = DW_MPI_NOTES;
    chunks->notes = notes;
    chunks->waste = notes->room->waste;
    chunks->out.cap = chunks->in.cap = DW_MPI_WINDOW;
    pthread_mutex_lock(&end->settings.node->lock);
    end->settings.own_tag = dw_mpi_take_tags(end->settings.node);
    for (int note = 0; note < DW_MPI_NOTES; note++) post_note(notes, (unsigned char)note);
    pthread_mutex_unlock(&end->settings.node->lock);
    end->traffic.sent_ns = dw_now_ns();
    dw_mpi_end_begin(end);
    if (end->failure.status != DW_OK) *why = end->failure.why;
    return end->failure.status;
}

void dw_mpi_end_free(mpi_end *end)
{
    dw_mem_release(&end->settings.allocator, end->notes.room, sizeof *end->notes.room);
}

static void check_life(mpi_end *end, int64_t now)
{
    if (end->notes.fin_received || now - end->traffic.heard_ns <= end->settings.silence_ns) return;
    fail(&end->failure, DW_ERR_TIMEOUT,
         "rank %d has sent nothing for %lld ms, although it sends a sign of life every %lld "
         "ms even while it computes; its process or machine is gone or stopped",
         end->failure.peer, (long long)(end->settings.silence_ns / DW_NS_PER_MS),
         (long long)(beat_ns / DW_NS_PER_MS));
}

bool dw_mpi_step(mpi_end *end)
{
    mpi_notes *notes = &end->notes;
    mpi_chunks *chunks = &end->chunks;
    mpi_traffic *traffic = &end->traffic;
    int64_t now = dw_now_ns();
    /* If this process itself was stopped, it cannot know whether the peer was silent. */
    if (now - traffic->stepped_ns > beat_ns) traffic->heard_ns = now;
    traffic->stepped_ns = now;
    bool heard = receive_notes(notes, chunks->in_done), taken = take_chunks(chunks),
         released = release_chunks(chunks), moved = heard || taken || released;
    while (has_ended(&notes->out, notes->failure, "sending", NULL)) {
    }
    if (moved) traffic->moved_ns = now;
    discard_chunks(chunks);
    if (notes->fin_received) {
        dw_mpi_send_fin(notes, chunks->out_posted);
    } else if (notes->owed >= DW_MPI_CREDITS / 2) {
        send_note(notes, DW_MPI_CREDIT, 0, NULL, 0);
    } else if (now - traffic->sent_ns > beat_ns) {
        send_note(notes, DW_MPI_BEAT, 0, NULL, 0);
    }
    check_life(end, now);
    return moved;
}

void dw_mpi_send_fin(mpi_notes *notes, uint64_t chunks_sent)
{
    if (!notes->fin_sent) notes->fin_sent = send_note(notes, DW_MPI_FIN, chunks_sent, NULL, 0);
}

bool dw_mpi_is_quiet(const mpi_notes *notes, const mpi_chunks *chunks)
{
    return notes->fin_sent && notes->fin_received && chunks->in_done >= notes->fin_chunks &&
           notes->out.n == 0 && chunks->out.n == 0;
}

/* Cancels a receive that no message was matched with; MPI_Wait returns at once. */
static void cancel(MPI_Request *request)
{
    MPI_Cancel(request);
    MPI_Wait(request, MPI_STATUS_IGNORE);
}

void dw_mpi_cancel_receives(mpi_notes *notes, mpi_chunks *chunks)
{
    for (; notes->posted.n > 0; remove_oldest(&notes->posted))
        cancel(&notes->in[notes->posted.note[notes->posted.head]]);
    mpi_ring *ring = &chunks->in;
    for (; ring->n > 0; ring->n--, ring->head = (ring->head + 1) % ring->cap)
        cancel(&ring->request[ring->head]);
}
