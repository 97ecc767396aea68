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

__attribute__((format(printf, 3, 4))) static void fail(mpi_end *end, dw_status status,
                                                       const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    dw_link_report_first(&end->failure.status, &end->failure.why, status, format, arguments);
    va_end(arguments);
}

static bool is_fine(mpi_end *end, int code, const char *what)
{
    if (code == MPI_SUCCESS) return true;
    dw_why why;
    dw_status status = dw_mpi_failed(&why, code, what, end->settings.peer);
    fail(end, status, "%s", why.text);
    return false;
}

/* ---- Requests in order ----------------------------------------------------------------------- */

static MPI_Request *next_place(mpi_ring *ring)
{
    return &ring->request[(ring->head + ring->n) % ring->cap];
}

/* Whether the oldest request is complete; it is then removed. *len: how many bytes it received. */
static bool has_ended(mpi_end *end, mpi_ring *ring, const char *what, int *len)
{
    int done = 0;
    MPI_Status envelope;
    if (ring->n == 0) return false;
    if (!is_fine(end, MPI_Test(&ring->request[ring->head], &done, &envelope), what) || !done)
        return false;
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

static void post_note(mpi_end *end, unsigned char note)
{
    int code = MPI_Irecv(end->room->in[note], DW_MPI_NOTE_BYTES, MPI_BYTE, end->settings.peer,
                         end->settings.own_tag, end->settings.node->comm, &end->notes.in[note]);
    if (is_fine(end, code, "receiving")) push_note(&end->notes.posted, note);
}

dw_status dw_mpi_end_make(mpi_end *end, dw_why *why)
{
    end->room = dw_mem_allocate(&end->settings.allocator, sizeof *end->room);
    if (!end->room) return dw_say(why, DW_ERR_NO_MEMORY, "no memory for a link over MPI");
    end->notes.credit = DW_MPI_CREDITS;
    end->notes.out.cap = DW_MPI_NOTES;
    end->chunks.out.cap = end->chunks.in.cap = DW_MPI_WINDOW;
    pthread_mutex_lock(&end->settings.node->lock);
    end->settings.own_tag = dw_mpi_take_tags(end->settings.node);
    for (int note = 0; note < DW_MPI_NOTES; note++) post_note(end, (unsigned char)note);
    pthread_mutex_unlock(&end->settings.node->lock);
    end->clocks.sent_ns = end->clocks.heard_ns = end->clocks.stepped_ns = end->clocks.moved_ns =
        dw_now_ns();
    if (end->failure.status != DW_OK) *why = end->failure.why;
    return end->failure.status;
}

void dw_mpi_end_begin(mpi_end *end)
{
    end->clocks.heard_ns = end->clocks.stepped_ns = end->clocks.moved_ns = dw_now_ns();
}

void dw_mpi_end_free(mpi_end *end)
{
    dw_mem_release(&end->settings.allocator, end->room, sizeof *end->room);
}

static bool send_note(mpi_end *end, int kind, uint64_t value, const void *data, size_t len)
{
    bool costs = kind == DW_MPI_DATA || kind == DW_MPI_LONG;
    /* The last places are kept free for notes without data. */
    if (end->notes.fin_sent || end->failure.status != DW_OK || (costs && end->notes.credit == 0))
        return false;
    if (end->notes.out.n >= (costs ? (unsigned)DW_MPI_CREDITS : end->notes.out.cap)) return false;
    unsigned char *note =
        end->room->out[(end->notes.out.head + end->notes.out.n) % end->notes.out.cap];
    dw_put32(note, (uint32_t)kind);
    dw_put32(note + 4, end->notes.owed);
    dw_put64(note + 8, value);
    if (len > 0) memcpy(note + DW_MPI_NOTE_HEADER, data, len);
    int code =
        MPI_Isend(note, (int)(DW_MPI_NOTE_HEADER + len), MPI_BYTE, end->settings.peer,
                  end->settings.peer_tag, end->settings.node->comm, next_place(&end->notes.out));
    if (!is_fine(end, code, "sending")) return false;
    end->notes.out.n++;
    end->notes.owed = 0;
    if (costs) end->notes.credit--;
    end->clocks.sent_ns = dw_now_ns();
    if (kind != DW_MPI_BEAT) end->clocks.moved_ns = end->clocks.sent_ns;
    return true;
}

static bool oldest(const mpi_end *end, int *kind, uint64_t *value, const unsigned char **data)
{
    if (end->notes.arrived.n == 0) return false;
    const unsigned char *note = end->room->in[end->notes.arrived.note[end->notes.arrived.head]];
    *kind = (int)dw_get32(note);
    *value = dw_get64(note + 8);
    *data = note + DW_MPI_NOTE_HEADER;
    return true;
}

static void pop_note(mpi_end *end)
{
    unsigned char note = end->notes.arrived.note[end->notes.arrived.head];
    remove_oldest(&end->notes.arrived);
    end->notes.owed++;
    if (!end->notes.fin_received) post_note(end, note);
}

/* Handles a note that has arrived. false: it violates the protocol. */
static bool sort_note(mpi_end *end, unsigned char number, int len)
{
    const unsigned char *note = end->room->in[number];
    if (len < DW_MPI_NOTE_HEADER) return false;
    uint32_t kind = dw_get32(note), credit = dw_get32(note + 4);
    uint64_t value = dw_get64(note + 8);
    if (credit > DW_MPI_CREDITS - end->notes.credit) return false;
    end->notes.credit += credit;
    if (kind == DW_MPI_DATA || kind == DW_MPI_LONG) {
        uint64_t inside = (uint64_t)(len - DW_MPI_NOTE_HEADER);
        if (kind == DW_MPI_DATA ? value != inside
                                : inside != 0 || value <= DW_MPI_NOTE_BYTES - DW_MPI_NOTE_HEADER)
            return false;
        push_note(&end->notes.arrived, number);
        return end->notes.arrived.n <= DW_MPI_CREDITS;
    }
    if (kind == DW_MPI_FIN) {
        end->notes.fin_received = true;
        end->notes.fin_chunks = value;
        return value >= end->chunks.in_done; /* no note follows a FIN, so no receive is posted again
                                              */
    }
    post_note(end, number);
    return kind == DW_MPI_CREDIT || kind == DW_MPI_BEAT;
}

static bool receive_notes(mpi_end *end)
{
    bool moved = false;
    while (end->notes.posted.n > 0 && !end->notes.fin_received && end->failure.status == DW_OK) {
        unsigned char note = end->notes.posted.note[end->notes.posted.head];
        int done = 0, len = 0;
        MPI_Status envelope;
        if (!is_fine(end, MPI_Test(&end->notes.in[note], &done, &envelope), "receiving") || !done)
            break;
        MPI_Get_count(&envelope, MPI_BYTE, &len);
        remove_oldest(&end->notes.posted);
        end->clocks.heard_ns = end->clocks.stepped_ns;
        moved |= dw_get32(end->room->in[note]) != DW_MPI_BEAT;
        if (!sort_note(end, note, len)) {
            fail(end, DW_ERR_PROTOCOL, "rank %d sent a note that is not valid", end->settings.peer);
        }
    }
    return moved;
}

/* ---- Chunks ---------------------------------------------------------------------------------- */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void send_chunks(mpi_end *end, const unsigned char *data, size_t len, size_t *posted)
{
    mpi_ring *ring = &end->chunks.out;
    while (*posted < len && ring->n < ring->cap && !end->notes.fin_sent &&
           end->failure.status == DW_OK) {
        size_t bytes = least(len - *posted, DW_MPI_CHUNK_BYTES);
        int code =
            MPI_Isend(data + *posted, (int)bytes, MPI_BYTE, end->settings.peer,
                      end->settings.peer_tag + 1, end->settings.node->comm, next_place(ring));
        if (!is_fine(end, code, "sending")) break;
        end->chunks.leaving[(ring->head + ring->n) % ring->cap] =
            (struct mpi_chunk){.bytes = bytes, .message = end->chunks.answered};
        ring->n++;
        end->chunks.out_posted++;
        *posted += bytes;
        end->clocks.moved_ns = dw_now_ns();
    }
}

/* Removes the chunks that were sent. */
static bool release_chunks(mpi_end *end)
{
    bool moved = false;
    for (;; moved = true) {
        size_t bytes = end->chunks.leaving[end->chunks.out.head].bytes;
        if (!has_ended(end, &end->chunks.out, "sending", NULL)) return moved;
        end->sent += bytes;
        end->clocks.heard_ns = end->clocks.stepped_ns; /* a peer that receives is alive */
    }
}

uint64_t dw_mpi_kept(const mpi_end *end)
{
    return end->chunks.out.n > 0
               ? end->chunks.answered - end->chunks.leaving[end->chunks.out.head].message
               : 0;
}

static void post_chunk(mpi_end *end, unsigned char *to, size_t bytes)
{
    int code = MPI_Irecv(to, (int)bytes, MPI_BYTE, end->settings.peer, end->settings.own_tag + 1,
                         end->settings.node->comm, next_place(&end->chunks.in));
    if (!is_fine(end, code, "receiving")) return;
    end->chunks.in.n++;
    end->chunks.in_posted++;
}

static void post_chunks(mpi_end *end)
{
    while (end->incoming.is_active && end->incoming.posted < end->incoming.len &&
           end->chunks.in.n < end->chunks.in.cap && end->failure.status == DW_OK &&
           !(end->notes.fin_received && end->chunks.in_posted >= end->notes.fin_chunks)) {
        size_t bytes = least(end->incoming.len - end->incoming.posted, DW_MPI_CHUNK_BYTES);
        post_chunk(end, end->incoming.room + end->incoming.posted, bytes);
        end->incoming.posted += bytes;
    }
}

/* Removes the chunks that were received. */
static bool take_chunks(mpi_end *end)
{
    bool moved = false;
    int len = 0;
    while (has_ended(end, &end->chunks.in, "receiving", &len)) {
        moved = true;
        end->chunks.in_done++;
        end->clocks.heard_ns = end->clocks.stepped_ns;
        if (!end->incoming.is_active) continue; /* dropped */
        if ((size_t)len != least(end->incoming.len - end->incoming.done, DW_MPI_CHUNK_BYTES)) {
            fail(end, DW_ERR_PROTOCOL,
                 "rank %d sent a chunk of %d bytes, which is not the expected length",
                 end->settings.peer, len);
        }
        end->incoming.done += (size_t)len;
        end->received += (uint64_t)len;
    }
    return moved;
}

/* The peer has sent FIN and the link receives nothing more. The peer waits until its chunks are
 * received, so they are received and dropped. */
static void discard_chunks(mpi_end *end)
{
    if (end->notes.fin_received && !end->is_receiving && end->chunks.in.n == 0 &&
        end->chunks.in_posted < end->notes.fin_chunks) {
        end->incoming.is_active = false;
        end->chunks.discards = true;
        post_chunk(end, end->room->waste, DW_MPI_CHUNK_BYTES);
    }
}

/* ---- Everything that is due ------------------------------------------------------------------ */

static void check_life(mpi_end *end, int64_t now)
{
    if (end->notes.fin_received || now - end->clocks.heard_ns <= end->settings.silence_ns) return;
    fail(end, DW_ERR_TIMEOUT,
         "rank %d has sent nothing for %lld ms, although it sends a sign of life every %lld "
         "ms even while it computes; its process or machine is gone or stopped",
         end->settings.peer, (long long)(end->settings.silence_ns / DW_NS_PER_MS),
         (long long)(beat_ns / DW_NS_PER_MS));
}

bool dw_mpi_step(mpi_end *end)
{
    int64_t now = dw_now_ns();
    /* If this process itself was stopped, it cannot know whether the peer was silent. */
    if (now - end->clocks.stepped_ns > beat_ns) end->clocks.heard_ns = now;
    end->clocks.stepped_ns = now;
    bool heard = receive_notes(end), taken = take_chunks(end), released = release_chunks(end),
         moved = heard || taken || released;
    while (has_ended(end, &end->notes.out, "sending", NULL)) {
    }
    if (moved) end->clocks.moved_ns = now;
    discard_chunks(end);
    if (end->notes.fin_received) {
        dw_mpi_send_fin(end);
    } else if (end->notes.owed >= DW_MPI_CREDITS / 2) {
        send_note(end, DW_MPI_CREDIT, 0, NULL, 0);
    } else if (now - end->clocks.sent_ns > beat_ns) {
        send_note(end, DW_MPI_BEAT, 0, NULL, 0);
    }
    check_life(end, now);
    return moved;
}

/* ---- Requests of the link -------------------------------------------------------------------- */

void dw_mpi_expect(mpi_end *end, bool is_receiving)
{
    end->is_receiving = is_receiving;
}

static dw_status continue_send(mpi_end *end, mpi_request *request)
{
    if (!request->begun) {
        bool is_long = request->len > DW_MPI_NOTE_BYTES - DW_MPI_NOTE_HEADER;
        bool is_sent = is_long
                           ? send_note(end, DW_MPI_LONG, request->len, NULL, 0)
                           : send_note(end, DW_MPI_DATA, request->len, request->data, request->len);
        if (!is_sent) return DW_PENDING;
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
    send_chunks(end, request->data, request->len, &request->posted);
    return request->posted == request->len && (end->settings.heeds_kept || end->chunks.out.n == 0)
               ? DW_OK
               : DW_PENDING;
}

dw_status dw_mpi_send(mpi_end *end, mpi_request *request)
{
    dw_status status = continue_send(end, request);
    if (status == DW_OK) end->chunks.answered++;
    return status;
}

dw_status dw_mpi_receive(mpi_end *end, mpi_request *request, size_t *len)
{
    int kind;
    uint64_t value;
    const unsigned char *data;
    if (!end->incoming.is_active) {
        if (!oldest(end, &kind, &value, &data) || (kind == DW_MPI_LONG && end->chunks.discards))
            return DW_PENDING;
        *len = value > SIZE_MAX ? SIZE_MAX : (size_t)value;
        if (*len > request->len) return DW_ERR_BUFFER_TOO_SMALL;
        if (kind == DW_MPI_DATA && value > 0) memcpy(request->room, data, *len);
        pop_note(end);
        end->received += DW_MPI_NOTE_HEADER;
        if (kind == DW_MPI_DATA) {
            end->received += value;
            return DW_OK;
        }
        end->incoming.is_active = true;
        end->incoming.room = request->room;
        end->incoming.len = *len;
        end->incoming.posted = end->incoming.done = 0;
    }
    post_chunks(end);
    *len = end->incoming.len;
    if (end->incoming.done < end->incoming.len) return DW_PENDING;
    end->incoming.is_active = false;
    return DW_OK;
}

/* ---- The end --------------------------------------------------------------------------------- */

void dw_mpi_send_fin(mpi_end *end)
{
    if (!end->notes.fin_sent)
        end->notes.fin_sent = send_note(end, DW_MPI_FIN, end->chunks.out_posted, NULL, 0);
}

bool dw_mpi_is_quiet(const mpi_end *end)
{
    return end->notes.fin_sent && end->notes.fin_received &&
           end->chunks.in_done >= end->notes.fin_chunks && end->notes.out.n == 0 &&
           end->chunks.out.n == 0;
}

/* Cancels a receive that no message was matched with; MPI_Wait returns at once. */
static void cancel(MPI_Request *request)
{
    MPI_Cancel(request);
    MPI_Wait(request, MPI_STATUS_IGNORE);
}

void dw_mpi_cancel_receives(mpi_end *end)
{
    for (; end->notes.posted.n > 0; remove_oldest(&end->notes.posted))
        cancel(&end->notes.in[end->notes.posted.note[end->notes.posted.head]]);
    mpi_ring *ring = &end->chunks.in;
    for (; ring->n > 0; ring->n--, ring->head = (ring->head + 1) % ring->cap)
        cancel(&ring->request[ring->head]);
}
