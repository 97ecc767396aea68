/* SPDX-License-Identifier: Apache-2.0
 * mpi_end.h - one end of a link over MPI: its state, and the rules by which its bytes travel.
 *
 * Everything goes in *notes*, one MPI message each: a header, and the bytes themselves where they
 * are few. A longer message is announced by a note and follows in chunks, from the sender's memory
 * straight into the receiver's.
 *
 * wide table:
 * | offset | bytes | header of a note                                               |
 * | 0      | 4     | kind                                                           |
 * | 4      | 4     | credit: so many more notes with data may come                  |
 * | 8      | 8     | DATA: bytes that follow; LONG: bytes of the message that is to come in chunks; FIN: chunks sent so far, in all |
 *
 * - A receiver has posted room for all notes that it gave credit for: what it has not taken never
 *   fills the memory of MPI.
 * - A process that dies tells nobody, and neither Open MPI 4.1 nor MPICH 4.0 notices for us. So
 *   each end speaks every few seconds (BEAT), whatever its program is doing.
 * - MPI cannot take back what was sent. An end that closes says FIN, and takes what is still under
 *   way until it has the other's FIN: then no request is left, and all memory is free. */
#ifndef DW_MPI_END_H
#define DW_MPI_END_H

#include <stdbool.h>

#include "mpi/mpi_node.h"

enum { DW_MPI_DATA = 1, DW_MPI_LONG = 2, DW_MPI_CREDIT = 3, DW_MPI_BEAT = 4, DW_MPI_FIN = 5 };

enum {
    DW_MPI_NOTE_HEADER = 16,
    /* Longer messages gain nothing from being copied. */
    DW_MPI_NOTE_BYTES = DW_MPI_NOTE_HEADER + 8192,
    DW_MPI_CREDITS = 32,               /* notes with data that may wait at the receiver */
    DW_MPI_NOTES = DW_MPI_CREDITS + 8, /* others come beside them, at most a few at a time */
    /* A timeout sees progress in steps of a chunk; several are under way, so that the wire does not
       fall idle between. */
    DW_MPI_CHUNK_BYTES = 2 << 20,
    DW_MPI_WINDOW = 4
};

/* Requests in the order in which they were made, which is the order in which they end. */
typedef struct mpi_ring {
    MPI_Request request[DW_MPI_NOTES];
    unsigned head, n, cap;
} mpi_ring;

/* Numbers of notes, oldest first. */
typedef struct mpi_line {
    unsigned char note[DW_MPI_NOTES];
    unsigned head, n;
} mpi_line;

/* MPI reads and writes here; outlives the end where MPI does not let go. */
typedef struct mpi_room {
    unsigned char in[DW_MPI_NOTES][DW_MPI_NOTE_BYTES], out[DW_MPI_NOTES][DW_MPI_NOTE_BYTES];
    unsigned char waste[DW_MPI_CHUNK_BYTES]; /* for chunks that nobody wants any more */
} mpi_room;

typedef struct mpi_end {
    dw_allocator allocator;
    dw_mpi *node;
    int peer, own_tag, peer_tag; /* notes; chunks have the next tag */
    char uri[64];
    mpi_room *room;
    int64_t silence_ns; /* how long a living peer may say nothing */

    MPI_Request in[DW_MPI_NOTES];
    mpi_line posted, arrived; /* of in */
    mpi_ring out;             /* notes, in room->out from head on */
    unsigned credit, owed;    /* what we may send; what we have not given back yet */

    mpi_ring chunks_out, chunks_in;
    struct mpi_chunk {
        size_t bytes;
        uint64_t message;                    /* its number, from 0 */
    } leaving[DW_MPI_WINDOW];                /* of chunks_out */
    uint64_t answered;                       /* sends that the link has back */
    bool heeds_kept;                         /* it keeps their data as long as we need it */
    uint64_t out_posted, in_posted, in_done; /* chunks, in all */
    /* The long message that is arriving. */
    unsigned char *long_room;
    size_t long_len, long_posted, long_done;
    bool long_active;
    /* Chunks came that nobody read: long messages that were announced are not whole any more. */
    bool wastes;

    bool fin_said, fin_heard;
    uint64_t fin_chunks;     /* what the peer's FIN tells */
    bool sending, receiving; /* requests of the link in flight */
    uint64_t sent, received;
    int64_t said_ns, heard_ns, pumped_ns, moved_ns;
    dw_status status; /* not DW_OK: broken */
    dw_why why;
} mpi_end;

/* All of these want the node's lock held, but the first, and call nothing that waits. */
/* Room, and posted notes: before the peer knows our tag. */
dw_status dw_mpi_end_make(mpi_end *end, dw_why *why);

/* Takes what has come and lets go of what has left; returns whether anything moved. */
bool dw_mpi_pump(mpi_end *end);

/* Sends a note; false: not now. DATA and LONG use up credit. */
bool dw_mpi_say(mpi_end *end, int kind, uint64_t value, const void *data, size_t len);

/* The oldest note with data that has arrived; false: none. Stays until it is taken off. */
bool dw_mpi_oldest(const mpi_end *end, int *kind, uint64_t *value, const unsigned char **data);
void dw_mpi_take_off(mpi_end *end);

/* Chunks: out_chunks hands over as much of data as the window lets; kept tells how many of the last
 * messages answered MPI still reads; post_chunks asks for what the arriving message still lacks. */
void dw_mpi_out_chunks(mpi_end *end, const unsigned char *data, size_t len, size_t *posted);
uint64_t dw_mpi_kept(const mpi_end *end);
void dw_mpi_post_chunks(mpi_end *end);

/* Whether nothing is under way any more, in either direction, after both FINs. */
bool dw_mpi_is_quiet(const mpi_end *end);
void dw_mpi_withdraw(mpi_end *end); /* what was posted and will never come */

/* The first trouble stays. */
void dw_mpi_break(mpi_end *end, dw_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
