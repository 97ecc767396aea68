/* SPDX-License-Identifier: Apache-2.0
 * nccl_end.h - one end of a link over NCCL: its state, and the rules by which its bytes travel.
 *
 * wide table:
 * | file         | owns                                                                               |
 * | nccl.c       | the table of the backend; what all links of a program stand on                     |
 * | nccl_open.c  | the address, the greeting of the two ends, their communicators                     |
 * | nccl_notes.c | notes over the link behind: short messages, announcements, credit                  |
 * | nccl_way.c   | one direction of NCCL: chunks, staged, enqueued, finished                          |
 *
 * Notes are messages of the backend behind:
 *
 * wide table:
 * | offset | bytes | header of a note                                                        |
 * | 0      | 4     | kind                                                                    |
 * | 4      | 4     | credit: so many more notes with data may come                           |
 * | 8      | 8     | DATA: bytes that follow; LONG: bytes of the message that is to come; GO: number of the long message wanted |
 *
 * - Both ends know the sizes of all sends and receives before the first is made: a long message is
 *   announced (LONG), asked for once there is room for it (GO), and cut the same way at both ends.
 *   NCCL compares nothing: a smaller receive is written past its end, and a larger one hangs.
 * - Nothing is enqueued on the GPU before both ends want it: a receive that waits there occupies
 *   the GPU, and the program's next cudaDeviceSynchronize waits for it.
 * - Each direction has a communicator and a stream of its own, on which both ends do the same
 *   things in the same order. */
#ifndef DW_NCCL_END_H
#define DW_NCCL_END_H

#include <pthread.h>
#include <stdbool.h>

#include "nccl/nccl_device.h"
#include "nccl/nccl_library.h"

#include "deltawire/nccl.h"

struct dw_nccl {
    dw_allocator allocator;
    dw_nccl_library library;
    dw_nccl_device device;
    dw_nccl_comm user_comm; /* or NULL */
    int user_rank;
    uint32_t max_ctas;
    pthread_mutex_t lock; /* while the user's communicator is being split */
};

/* ---- nccl_way.c: one direction --------------------------------------------------------------- */

enum {
    DW_NCCL_CHUNK_BYTES = 1 << 20, /* a timeout sees progress in steps of this */
    DW_NCCL_SLOTS = 4 /* chunks under way, so that copies, sends and the host overlap */
};

typedef struct nccl_slot {
    void *pinned;
    dw_nccl_address staged;
    dw_nccl_event event; /* recorded behind the last thing that the chunk needs */
    size_t len;
} nccl_slot;

typedef struct nccl_way {
    const dw_nccl *nccl;
    dw_nccl_comm comm;
    dw_nccl_stream stream;
    bool sends;
    int peer;
    nccl_slot slot[DW_NCCL_SLOTS];
    unsigned head, n; /* slots in use, oldest first */
    bool is_issuing;  /* NCCL has not said yet that it has enqueued the newest */
    /* The message. */
    unsigned char *data; /* a sender's is not written */
    bool is_on_device;
    size_t len, posted, done; /* posted >= done */
    uint64_t moved_bytes;     /* ever */
    dw_status status;         /* not DW_OK: broken */
    dw_why why;
} nccl_way;

/* All of these want the context. make: streams, slots; the communicator comes later. */
dw_status dw_nccl_way_make(nccl_way *way, const dw_nccl *nccl, bool sends, dw_why *why);
void dw_nccl_way_begin(nccl_way *way, void *data, size_t len, bool is_on_device);
bool dw_nccl_way_step(nccl_way *way); /* whether anything moved */
bool dw_nccl_way_is_busy(const nccl_way *way);
/* Aborts the communicator. DW_PENDING: the GPU has not let go of the memory, which is left to
 * it. */
dw_status dw_nccl_way_end(nccl_way *way);

/* ---- nccl_notes.c ---------------------------------------------------------------------------- */

enum { DW_NCCL_DATA = 1, DW_NCCL_LONG = 2, DW_NCCL_GO = 3, DW_NCCL_CREDIT = 4 };

enum {
    DW_NCCL_NOTE_HEADER = 16,
    DW_NCCL_SHORT_BYTES = 16384, /* what NCCL takes longer to begin than a socket to carry */
    DW_NCCL_NOTE_BYTES = DW_NCCL_NOTE_HEADER + DW_NCCL_SHORT_BYTES,
    DW_NCCL_CREDITS = 32,               /* notes with data that may wait at the receiver */
    DW_NCCL_NOTES = DW_NCCL_CREDITS + 1 /* and the next one, which may have none */
};

typedef struct nccl_notes {
    dw_allocator allocator;
    dw_transport inner;
    void *end, *send_request, *recv_request;
    bool is_open, is_sending;
    unsigned char (*in)[DW_NCCL_NOTE_BYTES], *out;
    /* Notes with data that arrived, oldest first; the next one is being received behind them. */
    unsigned head, n;
    unsigned credit, owed; /* what we may send; what we have not given back yet */
    uint64_t said, left;   /* notes handed over, and those of them that have left */
    uint64_t long_asked;   /* GO is due for this long message, and was not said yet; 0: for none */
    /* Our long messages so far, and the last of them that the peer asked for. */
    uint64_t longs_said;
    uint64_t long_wanted;
    uint64_t whole_bytes; /* what the link behind had received when the last note was whole */
    dw_status status;
    dw_why why;
} nccl_notes;

/* Takes what has come and sends what is due; returns whether anything moved. */
bool dw_nccl_notes_pump(nccl_notes *notes);
/* false: not now. DATA and LONG use up credit. */
bool dw_nccl_notes_say(nccl_notes *notes, int kind, uint64_t value, const void *data, size_t len);
/* The oldest with data; false: none. Stays until it is taken off. */
bool dw_nccl_notes_oldest(const nccl_notes *notes, int *kind, uint64_t *value,
                          const unsigned char **data);
void dw_nccl_notes_take_off(nccl_notes *notes);
void dw_nccl_notes_listen(nccl_notes *notes); /* begins to receive */

/* ---- The end --------------------------------------------------------------------------------- */

typedef struct nccl_end {
    dw_nccl *nccl;
    nccl_notes notes;
    nccl_way out, in;
    uint64_t longs_in; /* long messages that were announced to us and asked for */
    bool receives_long;
    bool sending, receiving; /* requests of the link in flight */
    /* Notes came or went since the test of the one, by the test of the other: nothing else would
     * wake it. */
    bool send_stirred, recv_stirred;
    uint64_t sent, received; /* notes with data; what NCCL carries is counted by the ways */
    uint32_t framing_bytes;  /* the header of a note, and what the link behind adds to it */
    int64_t moved_ns;
} nccl_end;

/* nccl_open.c: greets the peer over the notes' backend, which is open, and makes the communicators;
 * in the context. */
dw_status dw_nccl_agree(nccl_end *end, const dw_transport_open *how, int64_t deadline_ns);

#endif
