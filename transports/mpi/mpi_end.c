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

void dw_mpi_break(mpi_end *end, dw_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    dw_link_report_first(&end->status, &end->why, status, format, arguments);
    va_end(arguments);
}

static bool is_fine(mpi_end *end, int code, const char *what)
{
    if (code == MPI_SUCCESS) return true;
    dw_why why;
    dw_status status = dw_mpi_failed(&why, code, what, end->peer);
    dw_mpi_break(end, status, "%s", why.text);
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

static void line_up(mpi_line *line, unsigned char note)
{
    line->note[(line->head + line->n++) % DW_MPI_NOTES] = note;
}

static void step_off(mpi_line *line)
{
    line->head = (line->head + 1) % DW_MPI_NOTES;
    line->n--;
}

/* ---- Notes ----------------------------------------------------------------------------------- */

static void post_note(mpi_end *end, unsigned char note)
{
    int code = MPI_Irecv(end->room->in[note], DW_MPI_NOTE_BYTES, MPI_BYTE, end->peer, end->own_tag,
                         end->node->comm, &end->in[note]);
    if (is_fine(end, code, "receiving")) line_up(&end->posted, note);
}

dw_status dw_mpi_end_make(mpi_end *end, dw_why *why)
{
    end->room = dw_mem_allocate(&end->allocator, sizeof *end->room);
    if (!end->room) return dw_say(why, DW_ERR_NO_MEMORY, "no memory for a link over MPI");
    end->credit = DW_MPI_CREDITS;
    end->out.cap = DW_MPI_NOTES;
    end->chunks_out.cap = end->chunks_in.cap = DW_MPI_WINDOW;
    pthread_mutex_lock(&end->node->lock);
    end->own_tag = dw_mpi_take_tags(end->node);
    for (int note = 0; note < DW_MPI_NOTES; note++) post_note(end, (unsigned char)note);
    pthread_mutex_unlock(&end->node->lock);
    end->said_ns = end->heard_ns = end->pumped_ns = end->moved_ns = dw_now_ns();
    if (end->status != DW_OK) *why = end->why;
    return end->status;
}

bool dw_mpi_say(mpi_end *end, int kind, uint64_t value, const void *data, size_t len)
{
    bool costs = kind == DW_MPI_DATA || kind == DW_MPI_LONG;
    /* The last places are kept free for notes without data. */
    if (end->fin_said || end->status != DW_OK || (costs && end->credit == 0)) return false;
    if (end->out.n >= (costs ? (unsigned)DW_MPI_CREDITS : end->out.cap)) return false;
    unsigned char *note = end->room->out[(end->out.head + end->out.n) % end->out.cap];
    dw_put32(note, (uint32_t)kind);
    dw_put32(note + 4, end->owed);
    dw_put64(note + 8, value);
    if (len > 0) memcpy(note + DW_MPI_NOTE_HEADER, data, len);
    int code = MPI_Isend(note, (int)(DW_MPI_NOTE_HEADER + len), MPI_BYTE, end->peer, end->peer_tag,
                         end->node->comm, next_place(&end->out));
    if (!is_fine(end, code, "sending")) return false;
    end->out.n++;
    end->owed = 0;
    if (costs) end->credit--;
    end->said_ns = dw_now_ns();
    if (kind != DW_MPI_BEAT) end->moved_ns = end->said_ns;
    return true;
}

bool dw_mpi_oldest(const mpi_end *end, int *kind, uint64_t *value, const unsigned char **data)
{
    if (end->arrived.n == 0) return false;
    const unsigned char *note = end->room->in[end->arrived.note[end->arrived.head]];
    *kind = (int)dw_get32(note);
    *value = dw_get64(note + 8);
    *data = note + DW_MPI_NOTE_HEADER;
    return true;
}

void dw_mpi_take_off(mpi_end *end)
{
    unsigned char note = end->arrived.note[end->arrived.head];
    step_off(&end->arrived);
    end->owed++;
    if (!end->fin_heard) post_note(end, note);
}

/* Handles a note that has arrived. false: it violates the protocol. */
static bool sort_note(mpi_end *end, unsigned char number, int len)
{
    const unsigned char *note = end->room->in[number];
    if (len < DW_MPI_NOTE_HEADER) return false;
    uint32_t kind = dw_get32(note), credit = dw_get32(note + 4);
    uint64_t value = dw_get64(note + 8);
    if (credit > DW_MPI_CREDITS - end->credit) return false;
    end->credit += credit;
    if (kind == DW_MPI_DATA || kind == DW_MPI_LONG) {
        uint64_t inside = (uint64_t)(len - DW_MPI_NOTE_HEADER);
        if (kind == DW_MPI_DATA ? value != inside
                                : inside != 0 || value <= DW_MPI_NOTE_BYTES - DW_MPI_NOTE_HEADER)
            return false;
        line_up(&end->arrived, number);
        return end->arrived.n <= DW_MPI_CREDITS;
    }
    if (kind == DW_MPI_FIN) {
        end->fin_heard = true;
        end->fin_chunks = value;
        return value >= end->in_done; /* no note follows a FIN, so no receive is posted again */
    }
    post_note(end, number);
    return kind == DW_MPI_CREDIT || kind == DW_MPI_BEAT;
}

static bool hear(mpi_end *end)
{
    bool moved = false;
    while (end->posted.n > 0 && !end->fin_heard && end->status == DW_OK) {
        unsigned char note = end->posted.note[end->posted.head];
        int done = 0, len = 0;
        MPI_Status envelope;
        if (!is_fine(end, MPI_Test(&end->in[note], &done, &envelope), "receiving") || !done) break;
        MPI_Get_count(&envelope, MPI_BYTE, &len);
        step_off(&end->posted);
        end->heard_ns = end->pumped_ns;
        moved |= dw_get32(end->room->in[note]) != DW_MPI_BEAT;
        if (!sort_note(end, note, len)) {
            dw_mpi_break(end, DW_ERR_PROTOCOL, "rank %d sent a note that is not valid", end->peer);
        }
    }
    return moved;
}

/* ---- Chunks ---------------------------------------------------------------------------------- */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

void dw_mpi_out_chunks(mpi_end *end, const unsigned char *data, size_t len, size_t *posted)
{
    mpi_ring *ring = &end->chunks_out;
    while (*posted < len && ring->n < ring->cap && !end->fin_said && end->status == DW_OK) {
        size_t bytes = least(len - *posted, DW_MPI_CHUNK_BYTES);
        int code = MPI_Isend(data + *posted, (int)bytes, MPI_BYTE, end->peer, end->peer_tag + 1,
                             end->node->comm, next_place(ring));
        if (!is_fine(end, code, "sending")) break;
        end->leaving[(ring->head + ring->n) % ring->cap] =
            (struct mpi_chunk){.bytes = bytes, .message = end->answered};
        ring->n++;
        end->out_posted++;
        *posted += bytes;
        end->moved_ns = dw_now_ns();
    }
}

/* Removes the chunks that were sent. */
static bool let_chunks_go(mpi_end *end)
{
    bool moved = false;
    for (;; moved = true) {
        size_t bytes = end->leaving[end->chunks_out.head].bytes;
        if (!has_ended(end, &end->chunks_out, "sending", NULL)) return moved;
        end->sent += bytes;
        end->heard_ns = end->pumped_ns; /* a peer that receives is alive */
    }
}

uint64_t dw_mpi_kept(const mpi_end *end)
{
    return end->chunks_out.n > 0 ? end->answered - end->leaving[end->chunks_out.head].message : 0;
}

static void post_chunk(mpi_end *end, unsigned char *to, size_t bytes)
{
    int code = MPI_Irecv(to, (int)bytes, MPI_BYTE, end->peer, end->own_tag + 1, end->node->comm,
                         next_place(&end->chunks_in));
    if (!is_fine(end, code, "receiving")) return;
    end->chunks_in.n++;
    end->in_posted++;
}

void dw_mpi_post_chunks(mpi_end *end)
{
    while (end->long_active && end->long_posted < end->long_len &&
           end->chunks_in.n < end->chunks_in.cap && end->status == DW_OK &&
           !(end->fin_heard && end->in_posted >= end->fin_chunks)) {
        size_t bytes = least(end->long_len - end->long_posted, DW_MPI_CHUNK_BYTES);
        post_chunk(end, end->long_room + end->long_posted, bytes);
        end->long_posted += bytes;
    }
}

/* Removes the chunks that were received. */
static bool take_chunks(mpi_end *end)
{
    bool moved = false;
    int len = 0;
    while (has_ended(end, &end->chunks_in, "receiving", &len)) {
        moved = true;
        end->in_done++;
        end->heard_ns = end->pumped_ns;
        if (!end->long_active) continue; /* dropped */
        if ((size_t)len != least(end->long_len - end->long_done, DW_MPI_CHUNK_BYTES)) {
            dw_mpi_break(end, DW_ERR_PROTOCOL,
                         "rank %d sent a chunk of %d bytes, which is not the expected length",
                         end->peer, len);
        }
        end->long_done += (size_t)len;
        end->received += (uint64_t)len;
    }
    return moved;
}

/* The peer has sent FIN and the link receives nothing more. The peer waits until its chunks are
 * received, so they are received and dropped. */
static void waste_chunks(mpi_end *end)
{
    if (end->fin_heard && !end->receiving && end->chunks_in.n == 0 &&
        end->in_posted < end->fin_chunks) {
        end->long_active = false;
        end->wastes = true;
        post_chunk(end, end->room->waste, DW_MPI_CHUNK_BYTES);
    }
}

/* ---- Everything that is due ------------------------------------------------------------------ */

static void listen_for_life(mpi_end *end, int64_t now)
{
    if (end->fin_heard || now - end->heard_ns <= end->silence_ns) return;
    dw_mpi_break(
        end, DW_ERR_TIMEOUT,
        "rank %d has sent nothing for %lld ms, although it sends a sign of life every %lld "
        "ms even while it computes; its process or machine is gone or stopped",
        end->peer, (long long)(end->silence_ns / DW_NS_PER_MS),
        (long long)(beat_ns / DW_NS_PER_MS));
}

bool dw_mpi_pump(mpi_end *end)
{
    int64_t now = dw_now_ns();
    /* If this process itself was stopped, it cannot know whether the peer was silent. */
    if (now - end->pumped_ns > beat_ns) end->heard_ns = now;
    end->pumped_ns = now;
    bool heard = hear(end), taken = take_chunks(end), let_go = let_chunks_go(end),
         moved = heard || taken || let_go;
    while (has_ended(end, &end->out, "sending", NULL)) {
    }
    if (moved) end->moved_ns = now;
    waste_chunks(end);
    if (end->fin_heard) {
        end->fin_said |= dw_mpi_say(end, DW_MPI_FIN, end->out_posted, NULL, 0);
    } else if (end->owed >= DW_MPI_CREDITS / 2) {
        dw_mpi_say(end, DW_MPI_CREDIT, 0, NULL, 0);
    } else if (now - end->said_ns > beat_ns) {
        dw_mpi_say(end, DW_MPI_BEAT, 0, NULL, 0);
    }
    listen_for_life(end, now);
    return moved;
}

bool dw_mpi_is_quiet(const mpi_end *end)
{
    return end->fin_said && end->fin_heard && end->in_done >= end->fin_chunks && end->out.n == 0 &&
           end->chunks_out.n == 0;
}

/* Cancels a receive that no message was matched with; MPI_Wait returns at once. */
static void cancel(MPI_Request *request)
{
    MPI_Cancel(request);
    MPI_Wait(request, MPI_STATUS_IGNORE);
}

void dw_mpi_withdraw(mpi_end *end)
{
    for (; end->posted.n > 0; step_off(&end->posted))
        cancel(&end->in[end->posted.note[end->posted.head]]);
    mpi_ring *ring = &end->chunks_in;
    for (; ring->n > 0; ring->n--, ring->head = (ring->head + 1) % ring->cap)
        cancel(&ring->request[ring->head]);
}
