/* SPDX-License-Identifier: Apache-2.0
 * mpi_end.h - one end of a link over MPI: its state, and the format of its bytes.
 *
 * Everything is sent in *notes*. A note is one MPI message: a header, and the bytes of a short
 * message. A long message is announced by a note and follows in chunks, each an MPI message without
 * a header, straight from the sender's memory into the receiver's.
 *
 * wide table:
 * | offset | bytes | header of a note                                               |
 * | 0      | 4     | kind                                                           |
 * | 4      | 4     | credit: how many more notes with data the other end may send   |
 * | 8      | 8     | DATA: bytes that follow; LONG: length of the message that follows in chunks; FIN: total number of chunks sent |
 *
 * - A receiver has posted a receive for every note that it gave credit for. So notes never pile up
 *   in MPI's own memory.
 * - Neither Open MPI 4.1 nor MPICH 4.0 reports that a peer has died. So each end sends a sign of
 *   life (BEAT) every few seconds, whatever its program is doing.
 * - MPI cannot cancel a send. An end that closes sends FIN, and receives what is still in flight
 *   until the FIN of the other end has arrived. Then no request is open, and all memory can be
 *   freed.
 *
 * Most requests are kept in rings and lines, in the order in which they were made. */
#ifndef DW_MPI_END_H
#define DW_MPI_END_H

#include <stdbool.h>

#include "mpi/mpi_node.h"

enum { DW_MPI_DATA = 1, DW_MPI_LONG = 2, DW_MPI_CREDIT = 3, DW_MPI_BEAT = 4, DW_MPI_FIN = 5 };

enum {
    DW_MPI_NOTE_HEADER = 16,
    /* Up to this length a message is copied into a note; a longer one is sent in chunks. */
    DW_MPI_NOTE_BYTES = DW_MPI_NOTE_HEADER + 8192,
    DW_MPI_CREDITS = 32,               /* the limit of notes with data that wait at the receiver */
    DW_MPI_NOTES = DW_MPI_CREDITS + 8, /* room for these and a few notes without data */
    /* A timeout counts progress in chunks, so they must not be too long. Several are in flight, so
     * that the network does not fall idle between them. */
    DW_MPI_CHUNK_BYTES = 2 << 20,
    DW_MPI_WINDOW = 4
};

/* Requests, oldest first. MPI completes them in this order. */
typedef struct mpi_ring {
    MPI_Request request[DW_MPI_NOTES];
    unsigned head, n, cap;
} mpi_ring;

/* Indices of notes, oldest first. */
typedef struct mpi_line {
    unsigned char note[DW_MPI_NOTES];
    unsigned head, n;
} mpi_line;

/* Buffers that MPI reads and writes. They are never freed if MPI keeps requests on them. */
typedef struct mpi_room {
    unsigned char in[DW_MPI_NOTES][DW_MPI_NOTE_BYTES], out[DW_MPI_NOTES][DW_MPI_NOTE_BYTES];
    unsigned char waste[DW_MPI_CHUNK_BYTES]; /* for chunks that are received only to be dropped */
} mpi_room;

/* Fixed after open; mpi.c, but own_tag by dw_mpi_end_make. */
typedef struct mpi_settings {
    dw_allocator allocator;
    dw_mpi *node;
    int peer, own_tag, peer_tag; /* own_tag, peer_tag: the tags of notes; chunks use the next tag */
    char uri[64];
    int64_t silence_ns; /* the peer counts as dead after so long without a sign of life */
    /* true: the link keeps the data of a send that was reported done until kept_sends falls, so a
     * send is done when MPI was given all its chunks. false: only when MPI has sent all of them. */
    bool heeds_kept;
} mpi_settings;

/* How many bytes were sent and received; when a note was last sent, something was heard of the
 * peer, the last step was taken, and anything but a sign of life was sent or received. */
typedef struct mpi_traffic {
    uint64_t sent, received;
    int64_t sent_ns, heard_ns, stepped_ns, moved_ns;
} mpi_traffic;

typedef struct mpi_failure {
    dw_status status; /* not DW_OK: the end has failed */
    dw_why why;
    int peer; /* the rank that sentences name */
} mpi_failure;

typedef struct mpi_notes {
    const mpi_settings *settings;
    mpi_traffic *traffic;
    mpi_failure *failure;
    mpi_room *room;
    MPI_Request in[DW_MPI_NOTES];
    mpi_line posted, arrived; /* indices into in */
    mpi_ring out;             /* being sent; the buffer of request i is room->out[i] */
    /* credit: notes that we may send. owed: credit to give to the peer. */
    unsigned credit, owed;
    bool fin_sent, fin_received;
    uint64_t fin_chunks; /* the number of chunks in the peer's FIN */
} mpi_notes;

/* The long message that is being received. */
typedef struct mpi_incoming {
    unsigned char *room;
    size_t len, posted, done;
    bool is_active;
} mpi_incoming;

typedef struct mpi_chunks {
    const mpi_settings *settings;
    mpi_traffic *traffic;
    mpi_failure *failure;
    const mpi_notes *notes; /* after a FIN there are no more chunks */
    mpi_ring out, in;
    struct mpi_chunk {
        size_t bytes;
        uint64_t message;                    /* the number of the message, from 0 */
    } leaving[DW_MPI_WINDOW];                /* what each request of `out` sends */
    uint64_t answered;                       /* sends that were reported done to the link */
    uint64_t out_posted, in_posted, in_done; /* numbers of chunks, in total */
    mpi_incoming incoming;
    bool is_receiving; /* the link has a receive in progress */
    /* Chunks were dropped, so long messages that were announced are incomplete. */
    bool discards;
    unsigned char *waste; /* of the room */
} mpi_chunks;

/* All but the settings is written by mpi_end.c. */
typedef struct mpi_end {
    mpi_settings settings;
    mpi_traffic traffic;
    mpi_failure failure;
    mpi_notes notes;
    mpi_chunks chunks;
} mpi_end;

typedef struct mpi_request {
    bool sends, begun;
    const unsigned char *data; /* of a send */
    unsigned char *room;       /* of a receive */
    size_t len;                /* bytes to send; room to receive into */
    size_t posted;             /* of a long send: how much was given to MPI */
} mpi_request;

/* make: allocates the buffers and posts receives for notes; to be called before the peer learns our
 * tag. begin: the handshake is complete. free: MPI has no request on the buffers. */
dw_status dw_mpi_end_make(mpi_end *end, dw_why *why);
void dw_mpi_end_begin(mpi_end *end);
void dw_mpi_end_free(mpi_end *end);

/* Whether the link has a receive in progress. */
void dw_mpi_expect(mpi_chunks *chunks, bool is_receiving);

/* All functions below must be called with the lock of the node held. None of them waits. */
/* Handles what has arrived and what was sent; returns whether anything has. */
bool dw_mpi_step(mpi_end *end);

/* send, receive: continue a request of the link; OK: it is complete. BUFFER_TOO_SMALL: *len bytes
 * are needed. kept: how many of the last messages that were reported done are still being read by
 * MPI. */
dw_status dw_mpi_send(mpi_notes *notes, mpi_chunks *chunks, mpi_request *request, size_t *len);
dw_status dw_mpi_receive(mpi_notes *notes, mpi_chunks *chunks, mpi_request *request, size_t *len);
uint64_t dw_mpi_kept(const mpi_chunks *chunks);

/* Sends FIN, unless it was sent. */
void dw_mpi_send_fin(mpi_notes *notes, uint64_t chunks_sent);
/* Whether both FINs were exchanged and nothing is in flight in either direction. */
bool dw_mpi_is_quiet(const mpi_notes *notes, const mpi_chunks *chunks);
void dw_mpi_cancel_receives(mpi_notes *notes, mpi_chunks *chunks); /* which will never complete */

#endif
