/* SPDX-License-Identifier: Apache-2.0
 * channel.h - what the files of a channel share.
 *
 * | file               | owns                                                             |
 * | channel_open.c     | opening, closing, encoder and decoder                            |
 * | channel_greeting.c | what the two ends must agree on                                  |
 * | channel_send.c     | encoder, copies of frames not acknowledged, answers to requests  |
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

/* Tags of channel id: id << 8 | ... Frames travel in order on their own tag, so a receiver that
 * waits for one to be sent anew on the third tag leaves the later ones where they are. */
enum { DW_TAG_CONTROL = 0, DW_TAG_FRAMES = 1, DW_TAG_RESENT = 2 };

/* Copies kept until acknowledged: so many frames, and so many bytes (the link's max_queued_bytes).
 * Older ones are given up; a request for such a frame is refused and becomes an error at the
 * peer. */
enum { DW_CHANNEL_KEPT = 1024 };

/* A frame that was rejected so often is an error: two broken ends must not talk for ever. */
enum { DW_CHANNEL_TRIES = 4 };

/* On a wire that may lose messages (the link's retry_ms), answers get lost as well: a frame is sent
 * anew so often. Whoever waits in vain waits twice as long before the next request, up to so many
 * times retry_ms. */
enum { DW_CHANNEL_ANSWERS = 64, DW_CHANNEL_PATIENCE = 64 };

typedef struct dw_kept_frame {
    void *message; /* envelope and frame, a buffer of the link; NULL: acknowledged or given up */
    size_t len;
    int resent; /* how often */
} dw_kept_frame;

/* One direction's last error. */
enum { DW_WHY_SEND = 0, DW_WHY_RECV = 1 };

/* A tensor of the caller's, and the stream that it is in order with on a device. */
typedef struct dw_channel_tensor {
    const dw_tensor *view;
    void *stream;
    bool is_cuda; /* which of the calls it came by */
} dw_channel_tensor;

/* Pinned memory that frames go through. */
typedef struct dw_channel_stage {
    void *memory;
    size_t cap;
} dw_channel_stage;

struct dw_channel {
    dw_link *link;
    uint32_t id;
    bool sends, receives;
    dw_config send, recv;

    /* A device, or NULL. The stages are guarded as encoder and decoder are. */
    dw_cuda *cuda;
    void *answers; /* the stream by which frames of prev itself are made */
    dw_channel_stage sent, taken;
    dw_status device_status; /* of sending: once it is not DW_OK, for ever */

    /* Sending. encoder_lock may be held for as long as an encode takes, so the link's thread only
     * tries it: what it cannot do at once waits in replies, and whoever holds the lock does it
     * before the end. */
    pthread_mutex_t encoder_lock;
    dw_encoder *encoder;
    uint64_t next_sequence, acknowledged; /* frames [acknowledged, next_sequence) are under way */
    dw_kept_frame kept[DW_CHANNEL_KEPT];
    uint64_t kept_bytes;
    /* Guards the rest of this block; held for a few instructions only. */
    pthread_mutex_t replies_lock;
    pthread_cond_t replied;                 /* something was acknowledged, or the peer closed */
    dw_buffer *replies_head, *replies_tail; /* messages of the link, retained */
    uint64_t outstanding;                   /* next_sequence - acknowledged, for whoever waits */
    bool peer_closed;
    /* Control messages that arrived, damaged ones too; the link's thread only. */
    uint64_t controls_taken;

    /* Receiving. */
    pthread_mutex_t decoder_lock; /* against dw_channel_received in another thread */
    dw_decoder *decoder;
    uint64_t expected; /* sequence of the next tensor */
    bool requested;
    int tries; /* it was rejected and has been asked for anew; how often */
    dw_status requested_for;
    uint64_t controls_told; /* control messages sent so far ... */
    uint64_t request;       /* ... and the number of the latest request among them */
    void *held;             /* message with frame `expected`, arrived and not decoded */
    size_t held_len;
    void *ahead; /* message with a later frame: what lies between was lost */
    size_t ahead_len;
    uint64_t ahead_sequence;
    int64_t heard_ns;      /* when something last came, or was last asked for ... */
    uint32_t patience_ms;  /* ... and when to ask next, on a wire that may lose messages */
    dw_status recv_status; /* once it is not DW_OK, for ever */

    pthread_mutex_t why_lock;
    dw_why why[2]; /* of sending, of receiving */
    int last_why;
};

static inline uint32_t dw_channel_tag(const dw_channel *channel, uint32_t which)
{
    return channel->id << 8 | which;
}

/* channel_tell.c. tell: a message of the channel, envelope and body. Never waits: for answers,
 * which are small or asked for. report: writes the channel's last error, a sentence; returns
 * status. report_link: the same with the link's sentence. */
dw_status dw_channel_tell(dw_channel *channel, uint32_t which, dw_envelope_kind kind,
                          dw_status about, uint64_t sequence, const void *body, size_t body_len);
dw_status dw_channel_report(dw_channel *channel, int direction, dw_status status,
                            const char *sentence);
dw_status dw_channel_report_link(dw_channel *channel, int direction, dw_status status);

/* channel_greeting.c. greet: both ends mean the same. tell_hello: what this end sends and receives;
 * about = DW_PENDING: the peer's greeting has not come, and is asked for. */
dw_status dw_channel_greet(dw_channel *channel, uint32_t timeout_ms, dw_why *why);
dw_status dw_channel_tell_hello(dw_channel *channel, dw_status about);

/* channel_send.c */
/* The link's handler for the control tag. */
void dw_channel_take_control(void *channel, const void *data, size_t len);
/* Waits until the peer has acknowledged all frames, closed, or the link's close timeout is over. */
void dw_channel_wait_acknowledged(dw_channel *channel);
void dw_channel_release_sent(dw_channel *channel);

/* channel_device.c; open: after encoder and decoder were made; release: before they end. The others
 * are dw_encode, dw_encoder_resync and dw_decode for frames in main memory and tensors on the
 * device: they return when that is done. *why: a sentence for any error. */
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
