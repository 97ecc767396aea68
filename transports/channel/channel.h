/* SPDX-License-Identifier: Apache-2.0
 * channel.h - what the files of a channel share.
 *
 * | file               | owns                                                             |
 * | channel_open.c     | opening, closing                                                 |
 * | channel_codecs.c   | creating and destroying the encoder and the decoder              |
 * | channel_greeting.c | check that both ends agree on config and format                  |
 * | channel_send.c     | encoder, copies of unacknowledged frames, answers to requests    |
 * | channel_recv.c     | decoder, requests for rejected frames                            |
 * | channel_device.c   | encoder and decoder on a device: pinned memory, streams          |
 * | channel_tell.c     | short messages to the peer; the last error                       |
 * | envelope.c         | the channel's own header in front of every message               |
 */
#ifndef DW_CHANNEL_H
#define DW_CHANNEL_H

#include <stdbool.h>

#include "channel/envelope.h"
#include "link/link.h"

/* The tags of a channel are id << 8 | one of these. CONTROL: greetings, acknowledgements, requests.
 * FRAMES: frames, in order. RESENT: answers to requests for frames; they have a separate tag, so
 * later frames stay queued in the link while a receiver waits for an answer. */
enum { DW_TAG_CONTROL = 0, DW_TAG_FRAMES = 1, DW_TAG_RESENT = 2 };

/* The sender keeps copies of frames until they are acknowledged: at most this many, and at most
 * max_queued_bytes of the link. Beyond that the oldest copies are released. A request for such a
 * frame is refused, which ends receiving at the peer with an error. */
enum { DW_CHANNEL_KEPT = 1024 };

/* After so many requests for the same frame the channel fails, so that two ends that cannot agree
 * do not go on for ever. */
enum { DW_CHANNEL_TRIES = 4 };

/* If the link may lose messages (retry_ms is not 0), answers may be lost, too. So a frame is sent
 * again up to DW_CHANNEL_ANSWERS times. A receiver that gets no answer doubles its waiting time
 * before the next request, up to about DW_CHANNEL_PATIENCE times retry_ms. */
enum { DW_CHANNEL_ANSWERS = 64, DW_CHANNEL_PATIENCE = 64 };

typedef struct dw_kept_frame {
    void *message; /* envelope and frame, a buffer of the link; NULL: acknowledged or released */
    size_t len;
    int resent; /* how often it was sent again */
} dw_kept_frame;

/* Index of dw_channel.why: the last error of each direction. */
enum { DW_WHY_SEND = 0, DW_WHY_RECV = 1 };

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

struct dw_channel {
    dw_link *link;
    uint32_t id;
    /* NULL: no tensors are sent, or received; then the config is not set. */
    dw_encoder *encoder;
    dw_decoder *decoder;
    dw_config send, recv;
    void (*on_frame)(void *context, int is_sent, const void *frame, size_t len); /* may be NULL */
    void *frame_context;

    /* NULL without a device. `sent` is protected by encoder_lock, `taken` by decoder_lock. */
    dw_cuda *cuda;
    void *answers; /* the stream for frames that carry prev itself (resync) */
    dw_channel_stage sent, taken;
    dw_status device_status; /* of sending: an error is permanent */

    /* Sending. A call may hold encoder_lock for as long as an encode takes, so the link's thread
     * never waits for it. If the lock is taken, the thread leaves control messages in the queue
     * `replies`, and the holder of the lock processes them before its call ends. */
    pthread_mutex_t encoder_lock;
    /* Frames [acknowledged, next_sequence) are not acknowledged yet. */
    uint64_t next_sequence, acknowledged;
    dw_kept_frame kept[DW_CHANNEL_KEPT];
    uint64_t kept_bytes;
    /* Protects the rest of this block, down to peer_closed; held for a few instructions only. */
    pthread_mutex_t replies_lock;
    pthread_cond_t replied;                 /* a frame was acknowledged, or the peer closed */
    dw_buffer *replies_head, *replies_tail; /* control messages to process, retained */
    uint64_t outstanding; /* next_sequence - acknowledged, for threads without encoder_lock */
    bool peer_closed;
    /* How many control messages have arrived, even damaged ones; used by the link's thread only. */
    uint64_t controls_taken;

    /* Receiving. */
    pthread_mutex_t decoder_lock; /* dw_channel_count may run in another thread */
    uint64_t expected;            /* sequence of the next frame to decode */
    bool requested;
    int tries; /* how often frame `expected` was rejected and requested again */
    dw_status requested_for;
    uint64_t controls_told; /* control messages sent ... */
    uint64_t request;       /* ... and the number of the latest request among them */
    void *held;             /* message with frame `expected`, not decoded yet */
    size_t held_len;
    void *ahead; /* message with a later frame: the frames between were lost */
    size_t ahead_len;
    uint64_t ahead_sequence;
    int64_t heard_ns; /* the time at which a message last arrived or was last requested */
    /* If the link may lose messages: the time after heard_ns after which to request a frame again.
     */
    uint32_t patience_ms;
    dw_status recv_status; /* of receiving: an error is permanent */

    pthread_mutex_t why_lock;
    dw_why why[2]; /* of sending and of receiving */
    int last_why;
};

static inline uint32_t dw_channel_tag(const dw_channel *channel, uint32_t which)
{
    return channel->id << 8 | which;
}

/* channel_tell.c. tell: sends a message of the channel, envelope and body. It never waits for room
 * in the queue; it is for answers and control messages, which are short or were requested. report:
 * stores a sentence as the last error of the channel; returns status. report_link: the same with
 * the sentence of the link. */
dw_status dw_channel_tell(dw_channel *channel, uint32_t which, dw_envelope_kind kind,
                          dw_status about, uint64_t sequence, const void *body, size_t body_len);
dw_status dw_channel_report(dw_channel *channel, int direction, dw_status status,
                            const char *sentence);
dw_status dw_channel_report_link(dw_channel *channel, int direction, dw_status status);

/* channel_codecs.c. make: creates the encoder and the decoder; for an error, *why is a sentence.
 * destroy: destroys them; it must also be called after make has failed. */
dw_status dw_channel_make_codecs(dw_channel *channel, const dw_channel_config *config, dw_why *why);
void dw_channel_destroy_codecs(dw_channel *channel);
/* Returns the incarnation for an encoder of this channel whose config has the incarnation `given`.
 * Two encoders with the same incarnation and seed would draw the same random numbers for a key
 * (docs/format.md, 3.6). So each channel of a link and each of its ends gets another number, and
 * the same one whenever the program runs again: the XXH3 digest of `given` (8 bytes), the channel's
 * id (4), and 1 at the end that listens or 0 at the other end (4). For 0 it returns 0, which makes
 * the encoder take a random one. */
uint64_t dw_channel_incarnation(const dw_channel *channel, uint64_t given);

/* channel_greeting.c. greet: exchanges greetings and checks that both ends have the same config.
 * tell_hello: sends the greeting; about = DW_PENDING: also asks the peer to send its own again. */
dw_status dw_channel_greet(dw_channel *channel, uint32_t timeout_ms, dw_why *why);
dw_status dw_channel_tell_hello(dw_channel *channel, dw_status about);

/* channel_send.c. take_control: the handler of DW_TAG_CONTROL; called by the link's thread. */
void dw_channel_take_control(void *channel, const void *data, size_t len);
/* Waits until the peer has acknowledged all frames or has closed, the link has ended, or its
 * close_timeout_ms is over. */
void dw_channel_wait_acknowledged(dw_channel *channel);
void dw_channel_release_sent(dw_channel *channel);

/* channel_device.c; open: to be called after encoder and decoder were created; release: before they
 * are destroyed. The others correspond to dw_encode, dw_encoder_resync and dw_decode, for frames in
 * main memory and tensors on the device. They return when the work on the device is complete. *why:
 * a sentence for any error. */
dw_status dw_channel_device_open(dw_channel *channel, dw_why *why);
void dw_channel_device_release(dw_channel *channel);
dw_status dw_channel_device_encode(dw_channel *channel, const dw_key *keys,
                                   const dw_channel_tensor *x, void *frame, size_t cap, size_t *len,
                                   dw_why *why);
dw_status dw_channel_device_resync(dw_channel *channel, const dw_key *keys, uint32_t n, void *frame,
                                   size_t cap, size_t *len, dw_why *why);
dw_status dw_channel_device_decode(dw_channel *channel, const void *frame, size_t len,
                                   const dw_channel_tensor *y, void *reply, size_t reply_cap,
                                   size_t *reply_len, dw_why *why);

/* channel_recv.c */
void dw_channel_release_received(dw_channel *channel);

#endif
