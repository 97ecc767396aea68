/* SPDX-License-Identifier: Apache-2.0
 * channel.h - a channel: its parts, and which thread may use which of them.
 *
 * Each struct has one file that writes it; channel_open.c makes them, and connects them by
 * pointers. A file calls those further down, and no others:
 *
 * | file                | what it is for                                                       |
 * | channel_open.c      | opening, closing                                                     |
 * | channel_saved.c     | the state of encoder and decoder, saved and restored                 |
 * | channel_compare.c   | both ends drop the keys of which they do not hold the same           |
 * | channel_send.c      | the public calls that send                                           |
 * | channel_recv.c      | the public calls that receive; requests for rejected frames          |
 * | channel_answers.c   | what the peer says of frames: acknowledgements, requests             |
 * | channel_handshake.c | check that both ends agree on config and format                      |
 * | control_queue.c     | control messages that wait for the holder of the encoder's lock      |
 * | kept_frames.c       | copies of frames that are not acknowledged                           |
 * | channel_codecs.c    | the encoder and the decoder                                          |
 * | channel_device.c    | both of them on a device: pinned memory, streams                     |
 * | channel_port.c      | messages to the peer                                                 |
 * | channel_errors.c    | the last error of each direction                                     |
 * | envelope.c          | the channel's own header in front of every message                   |
 * | comparison.c        | finds the keys that differ, by messages that others carry            |
 *
 * Only the public calls use the whole channel. */
#ifndef DW_CHANNEL_H
#define DW_CHANNEL_H

#include <stdbool.h>

#include "channel/envelope.h"
#include "link/link.h"

/* The tags of a channel are id << 8 | one of these. CONTROL: hellos, acknowledgements, requests.
 * FRAMES: frames, in order. RESENT: answers to requests for frames; they have a separate tag, so
 * later frames stay queued in the link while a receiver waits for an answer. COMPARE: comparisons
 * of the keys of both ends. */
enum { DW_TAG_CONTROL = 0, DW_TAG_FRAMES = 1, DW_TAG_RESENT = 2, DW_TAG_COMPARE = 3 };

/* The sender keeps copies of frames until they are acknowledged: at most this many, and at most
 * max_queued_bytes of the link. Beyond that the oldest copies are released. A request for such a
 * frame is refused, which ends receiving at the peer with an error. */
enum { DW_CHANNEL_KEPT = 1024 };

/* After so many requests for the same frame the channel fails, so that two ends that cannot agree
 * do not go on for ever. */
enum { DW_CHANNEL_TRIES = 4 };

/* If the link may lose messages (retry_ms is not 0), answers may be lost, too. So a frame is sent
 * again up to DW_CHANNEL_ANSWERS times. A receiver that gets no answer doubles its waiting time
 * before the next request, up to about DW_CHANNEL_LONGEST_RETRY times retry_ms. */
enum { DW_CHANNEL_ANSWERS = 64, DW_CHANNEL_LONGEST_RETRY = 64 };

/* ---- channel_port.c: fixed after open -------------------------------------------------------- */

typedef struct dw_channel_port {
    dw_link *link;
    uint32_t id;
} dw_channel_port;

static inline uint32_t dw_channel_tag(const dw_channel_port *port, uint32_t which)
{
    return port->id << 8 | which;
}

/* send_control: sends a message of the channel, envelope and body. It never waits for room in the
 * queue; it is for answers and control messages, which are short or were requested. send_finalized:
 * puts the envelope in front of a body that was written to `room`, and sends both. read: opens an
 * envelope; false: it is damaged. is_ours: after fork() the child must not use the channel. */
dw_status dw_channel_send_control(const dw_channel_port *port, uint32_t which,
                                  dw_envelope_kind kind, dw_status about, uint64_t sequence,
                                  const void *body, size_t body_len);
dw_status dw_channel_send_finalized(const dw_channel_port *port, void *room, dw_envelope_kind kind,
                                    uint64_t sequence, size_t body_len);
bool dw_channel_read_envelope(const dw_channel_port *port, const void *message, size_t len,
                              dw_envelope *envelope);
bool dw_channel_is_ours(const dw_channel *channel);

/* ---- channel_errors.c: under its own lock ---------------------------------------------------- */

/* Index of `why`: the last error of each direction. */
enum { DW_WHY_SEND = 0, DW_WHY_RECV = 1 };

typedef struct dw_channel_errors {
    const dw_channel_port *port;
    pthread_mutex_t lock;
    dw_why why[2];
    pthread_t of[2]; /* the threads whose calls failed */
    int last;
} dw_channel_errors;

/* report: stores a sentence as the last error of the channel; returns status. report_link: the same
 * with the sentence of the link. */
dw_status dw_channel_report(dw_channel_errors *errors, int direction, dw_status status,
                            const char *sentence);
dw_status dw_channel_report_link(dw_channel_errors *errors, int direction, dw_status status);

/* ---- channel_codecs.c, channel_device.c ------------------------------------------------------ */

/* A tensor of the caller, and the device's stream on which it is ready. */
typedef struct dw_channel_tensor {
    const dw_tensor *view;
    void *stream;
} dw_channel_tensor;

/* Pinned memory through which frames are copied from and to the device. */
typedef struct dw_channel_stage {
    void *memory;
    size_t cap;
} dw_channel_stage;

typedef struct dw_channel_device {
    dw_cuda *cuda;                /* NULL: tensors are in main memory */
    void *answers;                /* the stream for frames that carry prev itself (resync) */
    dw_channel_stage sent, taken; /* protected by encoder_lock and decoder_lock */
    dw_status send_status;        /* an error is permanent */
} dw_channel_device;

typedef struct dw_channel_codecs {
    /* NULL: no tensors are sent, or received; then the config is not set. */
    dw_encoder *encoder;
    dw_decoder *decoder;
    dw_config send, recv;
    dw_channel_device device;
    void (*on_frame)(void *context, int is_sent, const void *frame, size_t len); /* may be NULL */
    void *frame_context;
} dw_channel_codecs;

/* make: creates the encoder and the decoder; for an error, *why is a sentence. destroy: destroys
 * them; it must also be called after make has failed. encode, resync, decode: like dw_encode,
 * dw_encoder_resync and dw_decode, for tensors in main memory or on the device; *why: a sentence
 * for any error. The caller holds the lock of the encoder or decoder. */
dw_status dw_channel_make_codecs(dw_channel_codecs *codecs, const dw_channel_port *port,
                                 const dw_channel_config *config, dw_why *why);
void dw_channel_destroy_codecs(dw_channel_codecs *codecs);
dw_status dw_channel_encode(dw_channel_codecs *codecs, const dw_key *keys,
                            const dw_channel_tensor *x, void *frame, size_t cap, size_t *len,
                            dw_why *why);
dw_status dw_channel_resync(dw_channel_codecs *codecs, const dw_key *keys, uint32_t n, void *frame,
                            size_t cap, size_t *len, dw_why *why);
dw_status dw_channel_decode(dw_channel_codecs *codecs, const void *frame, size_t len,
                            const dw_channel_tensor *y, void *reply, size_t reply_cap,
                            size_t *reply_len, dw_why *why);
/* Returns the incarnation for an encoder of this channel whose config has the incarnation `given`.
 * Two encoders with the same incarnation and seed would draw the same random numbers for a key
 * (docs/format.md, 3.6). So each channel of a link and each of its ends gets another number, and
 * the same one whenever the program runs again: the XXH3 digest of `given` (8 bytes), the channel's
 * id (4), and 1 at the end that listens or 0 at the other end (4). For 0 it returns 0, which makes
 * the encoder take a random one. */
uint64_t dw_channel_incarnation(const dw_channel_port *port, uint64_t given);

/* open: makes the stream for answers; release: before encoder and decoder are destroyed. The others
 * are as above, for tensors on the device. They return when the work on it is complete. */
dw_status dw_channel_device_open(dw_channel_device *device, dw_cuda *cuda, bool sends, dw_why *why);
void dw_channel_device_release(dw_channel_device *device);
dw_status dw_channel_device_encode(dw_channel_device *device, dw_encoder *encoder,
                                   const dw_key *keys, const dw_channel_tensor *x, void *frame,
                                   size_t cap, size_t *len, dw_why *why);
dw_status dw_channel_device_resync(dw_channel_device *device, dw_encoder *encoder,
                                   const dw_key *keys, uint32_t n, void *frame, size_t cap,
                                   size_t *len, dw_why *why);
dw_status dw_channel_device_decode(dw_channel_device *device, dw_decoder *decoder,
                                   const void *frame, size_t len, const dw_channel_tensor *y,
                                   void *reply, size_t reply_cap, size_t *reply_len, dw_why *why);

/* ---- channel_handshake.c --------------------------------------------------------------------- */

/* handshake: exchanges hellos and checks that both ends have the same config. send_hello: sends the
 * own one; about = DW_PENDING: also asks the peer to send its own again. */
dw_status dw_channel_handshake(const dw_channel_port *port, const dw_channel_codecs *codecs,
                               uint32_t timeout_ms, dw_why *why);
dw_status dw_channel_send_hello(const dw_channel_port *port, const dw_channel_codecs *codecs,
                                dw_status about);

/* ---- kept_frames.c: under encoder_lock ------------------------------------------------------- */

typedef struct dw_kept_frame {
    void *message; /* envelope and frame, a buffer of the link; NULL: acknowledged or released */
    size_t len;
    int resent; /* how often it was sent again */
} dw_kept_frame;

typedef struct dw_kept_frames {
    dw_link *link;
    /* Frames [acknowledged, next) are not acknowledged yet. */
    uint64_t next, acknowledged;
    dw_kept_frame frames[DW_CHANNEL_KEPT];
    uint64_t bytes;
} dw_kept_frames;

/* number: of the next frame. keep: keeps a copy. find: the copy of a frame that was sent; NULL:
 * there is none any more. acknowledge: the peer has this frame, and all before it; false: it was
 * never sent. */
uint64_t dw_kept_frames_number(dw_kept_frames *kept);
void dw_kept_frames_keep(dw_kept_frames *kept, uint64_t sequence, void *message, size_t len,
                         int resent);
dw_kept_frame *dw_kept_frames_find(dw_kept_frames *kept, uint64_t sequence);
void dw_kept_frames_count_resent(dw_kept_frame *frame);
bool dw_kept_frames_acknowledge(dw_kept_frames *kept, uint64_t sequence);
void dw_kept_frames_release(dw_kept_frames *kept);

/* ---- control_queue.c: under its own lock, which is held for a few instructions only ---------- */

typedef struct dw_control_queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;  /* a frame was acknowledged, or the peer closed */
    dw_buffer *head, *tail;  /* control messages to process, retained */
    uint64_t unacknowledged; /* how many frames are, for threads without encoder_lock */
    bool is_peer_closed;
} dw_control_queue;

dw_buffer *dw_control_queue_next(dw_control_queue *queue); /* NULL: there is none */
void dw_control_queue_put(dw_control_queue *queue, dw_buffer *message);
bool dw_control_queue_has_messages(dw_control_queue *queue);
void dw_control_queue_set_unacknowledged(dw_control_queue *queue, uint64_t n);
void dw_control_queue_close(dw_control_queue *queue);
bool dw_control_queue_is_closed(dw_control_queue *queue);
/* Waits until all frames are acknowledged, or the peer has closed; link: or it has ended. Returns
 * whether all are. */
bool dw_control_queue_wait(dw_control_queue *queue, dw_link *link, int64_t deadline_ns);

/* ---- channel_answers.c ----------------------------------------------------------------------- */

/* A call may hold encoder_lock for as long as an encode takes, so the link's thread never waits for
 * it. If the lock is taken, the thread leaves control messages in the queue, and the holder of the
 * lock processes them before its call ends. */
typedef struct dw_channel_answers {
    const dw_channel_port *port;
    dw_channel_codecs *codecs;
    pthread_mutex_t encoder_lock;
    dw_kept_frames kept;
    dw_control_queue queue;
    /* How many control messages have arrived, even damaged ones; used by the link's thread only. */
    uint64_t controls_taken;
} dw_channel_answers;

/* take_control: the handler of DW_TAG_CONTROL; called by the link's thread. lock: takes
 * encoder_lock. unlock: gives it back, and processes what has come meanwhile. all: processes what
 * waits; the lock is held. keep: keeps the copy of a frame; the lock is held. release: frees all.
 */
void dw_channel_take_control(void *answers, const void *data, size_t len);
void dw_channel_answers_lock(dw_channel_answers *answers);
void dw_channel_answers_unlock(dw_channel_answers *answers);
void dw_channel_answers_all(dw_channel_answers *answers);
void dw_channel_answers_keep(dw_channel_answers *answers, uint64_t sequence, void *message,
                             size_t len);
void dw_channel_answers_release(dw_channel_answers *answers);

/* ---- channel_recv.c -------------------------------------------------------------------------- */

typedef struct dw_channel_receiver {
    const dw_channel_port *port;
    dw_channel_codecs *codecs;
    dw_channel_errors *errors;
    pthread_mutex_t decoder_lock; /* dw_channel_count may run in another thread */
    uint64_t expected;            /* sequence of the next frame to decode */
    bool requested;
    int tries; /* how often frame `expected` was rejected and requested again */
    dw_status requested_for;
    uint64_t controls_sent; /* control messages sent ... */
    uint64_t request;       /* ... and the number of the latest request among them */
    void *held;             /* message with frame `expected`, not decoded yet */
    size_t held_len;
    void *ahead; /* message with a later frame: the frames between were lost */
    size_t ahead_len;
    uint64_t ahead_sequence;
    int64_t heard_ns; /* the time at which a message last arrived or was last requested */
    /* If the link may lose messages: the time after heard_ns after which to request a frame again.
     */
    uint32_t retry_wait_ms;
    dw_status status; /* an error is permanent */
} dw_channel_receiver;

void dw_channel_begin_receiving(dw_channel_receiver *receiver);
void dw_channel_release_received(dw_channel_receiver *receiver);

/* ---- The channel ----------------------------------------------------------------------------- */

struct dw_channel {
    dw_channel_port port;
    dw_channel_errors errors;
    dw_channel_codecs codecs;
    dw_channel_answers answers; /* of sending */
    dw_channel_receiver receiver;
    bool compares_no_more; /* after a comparison that failed: its messages are discarded */
};

/* channel_saved.c. For calls that use the encoder (is_sent: 1) or the decoder outside of sending
 * and receiving. unlock: keeps its sentence, if status is an error, and returns status. */
void dw_channel_lock_end(dw_channel *channel, int is_sent);
dw_status dw_channel_unlock_end(dw_channel *channel, int is_sent, dw_status status);

/* channel_send.c. Waits until the peer has acknowledged all frames or has closed, the link has
 * ended, or its close_timeout_ms is over. Returns whether all are acknowledged. */
bool dw_channel_wait_acknowledged(dw_channel *channel);

#endif
