/* SPDX-License-Identifier: Apache-2.0
 * nccl_end.h - one end of a link over NCCL: its state, and the format of its bytes.
 *
 * wide table:
 * | file           | its one thing                                                                    |
 * | nccl.c         | the backend's table of functions; dw_nccl, which the links of a program share    |
 * | nccl_open.c    | the greeting of the two ends, and their communicators                            |
 * | nccl_notes.c   | notes: short messages, announcements of long ones, credit                        |
 * | nccl_direction.c     | one direction of NCCL: chunks are staged, enqueued, completed                    |
 * | nccl_library.c | loads NCCL                                                                       |
 * | nccl_device.c  | loads the CUDA driver                                                            |
 *
 * The link behind is the endpoint of another backend, whose URI follows "nccl:". It carries the
 * notes; NCCL carries the long messages. A note is one message of the link behind:
 *
 * wide table:
 * | offset | bytes | header of a note                                                        |
 * | 0      | 4     | kind                                                                    |
 * | 4      | 4     | credit: how many more notes with data the other end may send            |
 * | 8      | 8     | DATA: bytes that follow; LONG: length of the message that follows over NCCL; GO: number of the long message that may be sent, from 1 |
 *
 * - Both ends must know the sizes of all sends and receives in advance, because NCCL does not
 *   compare them: it writes past the end of a receive that is too small, and one that is too large
 *   hangs. So a long message is announced (LONG), requested when there is room for it (GO), and cut
 *   into chunks in the same direction at both ends.
 * - Nothing is enqueued on the GPU before both ends are ready for it. A receive that waits there
 *   occupies the GPU, and the program's next cudaDeviceSynchronize waits for it.
 * - Each direction has its own communicator and stream, on which both ends enqueue the same
 *   operations in the same order. */
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
    dw_nccl_comm user_comm; /* the communicator that the program gave, or NULL */
    int user_rank;
    uint32_t max_ctas;
    pthread_mutex_t lock; /* held while the communicator of the program is split */
};

/* ---- nccl_direction.c: one direction
 * --------------------------------------------------------------- */

enum {
    /* a timeout counts progress in chunks, so they must not be too long */
    DW_NCCL_CHUNK_BYTES = 1 << 20,
    DW_NCCL_SLOTS = 4 /* chunks in flight, so that copies, sends and the work of the host overlap */
};

typedef struct nccl_slot {
    void *pinned;
    dw_nccl_address staged;
    dw_nccl_event event; /* recorded after the last operation of the chunk */
    size_t len;
} nccl_slot;

typedef struct nccl_direction {
    const dw_nccl *nccl;
    dw_nccl_comm comm;
    dw_nccl_stream stream;
    bool sends;
    int peer;
    nccl_slot slot[DW_NCCL_SLOTS];
    unsigned head, n; /* slots [head, head + n) are in use, oldest first, modulo DW_NCCL_SLOTS */
    bool is_issuing;  /* NCCL has not enqueued the newest chunk yet */
    /* The message that is being transferred: */
    unsigned char *data; /* only read if this direction sends */
    bool is_on_device;
    size_t len, posted, done; /* bytes enqueued, bytes completed */
    uint64_t moved_bytes;     /* bytes of all messages so far */
    dw_status status;         /* not DW_OK: the direction has failed */
    dw_why why;
} nccl_direction;

/* All of these must be called between dw_nccl_device_enter and _leave. make: creates the stream and
 * the slots; the communicator comes later. */
dw_status dw_nccl_direction_make(nccl_direction *direction, const dw_nccl *nccl, bool sends,
                                 dw_why *why);
void dw_nccl_direction_begin(nccl_direction *direction, void *data, size_t len, bool is_on_device);
bool dw_nccl_direction_step(nccl_direction *direction); /* returns whether it made progress */
bool dw_nccl_direction_is_busy(const nccl_direction *direction);
/* Aborts the communicator and frees everything. DW_PENDING: the GPU still uses the memory, which is
 * then never freed. */
dw_status dw_nccl_direction_end(nccl_direction *direction);

/* ---- nccl_notes.c ---------------------------------------------------------------------------- */

enum { DW_NCCL_DATA = 1, DW_NCCL_LONG = 2, DW_NCCL_GO = 3, DW_NCCL_CREDIT = 4 };

enum {
    DW_NCCL_NOTE_HEADER = 16,
    DW_NCCL_SHORT_BYTES = 16384, /* up to this length a socket is faster than NCCL can begin */
    DW_NCCL_NOTE_BYTES = DW_NCCL_NOTE_HEADER + DW_NCCL_SHORT_BYTES,
    DW_NCCL_CREDITS = 32,               /* the limit of notes with data that wait at the receiver */
    DW_NCCL_NOTES = DW_NCCL_CREDITS + 1 /* and the note that is being received */
};

typedef struct nccl_notes {
    dw_allocator allocator;
    dw_transport inner;
    void *end, *send_request, *recv_request;
    bool is_open, is_sending;
    unsigned char (*in)[DW_NCCL_NOTE_BYTES], *out;
    /* Notes with data that have arrived, oldest first. The next note is received into the place
     * after them. */
    unsigned head, n;
    unsigned credit, owed; /* credit: notes that we may send. owed: credit to give to the peer. */
    uint64_t said, left;   /* numbers of notes: given to the link behind; sent by it */
    uint64_t long_asked;   /* the long message for which a GO is due; 0: none is */
    /* longs_said: how many long messages we have announced. long_wanted: the last of them for which
     * the peer has sent GO. */
    uint64_t longs_said;
    uint64_t long_wanted;
    uint64_t whole_bytes; /* wire_received of the link behind when the last note was complete */
    dw_status status;
    dw_why why;
} nccl_notes;

/* Handles notes that have arrived and sends what is due; returns whether anything was done. */
bool dw_nccl_notes_pump(nccl_notes *notes);
/* Sends a note. false: not now. A note of kind DATA or LONG uses one credit. */
bool dw_nccl_notes_say(nccl_notes *notes, int kind, uint64_t value, const void *data, size_t len);
/* The oldest note with data that has arrived; false: there is none. It stays until take_off. */
bool dw_nccl_notes_oldest(const nccl_notes *notes, int *kind, uint64_t *value,
                          const unsigned char **data);
void dw_nccl_notes_take_off(nccl_notes *notes);
void dw_nccl_notes_listen(nccl_notes *notes); /* begins to receive the next note */

/* ---- The end --------------------------------------------------------------------------------- */

typedef struct nccl_end {
    dw_nccl *nccl;
    nccl_notes notes;
    nccl_direction out, in;
    uint64_t longs_in; /* long messages of the peer that were requested so far */
    bool receives_long;
    bool sending, receiving; /* the link has a send, a receive in progress */
    /* The test of one request also handles notes that concern the other. This flag says that the
     * other request must be tested soon, because no descriptor will report it. */
    bool send_stirred, recv_stirred;
    uint64_t sent, received; /* bytes of notes with data; the ways count what NCCL carries */
    /* bytes of the header of a note, and what the link behind adds to it */
    uint32_t framing_bytes;
    int64_t moved_ns;
} nccl_end;

/* nccl_open.c: greets the peer over the open link behind, and makes the communicators. To be called
 * between dw_nccl_device_enter and _leave. */
dw_status dw_nccl_agree(nccl_end *end, const dw_transport_open *how, int64_t deadline_ns);

#endif
