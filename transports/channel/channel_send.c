/* SPDX-License-Identifier: Apache-2.0
 * channel_send.c - sending tensors: frames are encoded straight into a buffer of the link and kept
 * until they are acknowledged. Requests of the receiver are answered while the caller computes. */
#include <string.h>

#include "channel/channel.h"

/* ---- Copies of unacknowledged frames; the encoder's lock is held ----------------------------- */

static dw_kept_frame *slot_of(dw_channel *channel, uint64_t sequence)
{
    return &channel->kept[sequence % DW_CHANNEL_KEPT];
}

static void let_go(dw_channel *channel, dw_kept_frame *kept)
{
    if (!kept->message) return;
    dw_link_release(channel->link, kept->message);
    channel->kept_bytes -= kept->len;
    *kept = (dw_kept_frame){.len = 0};
}

/* The message belongs to the link; another reference keeps the link from reusing its buffer. Older
 * copies are released if max_queued_bytes is exceeded. */
static void keep(dw_channel *channel, uint64_t sequence, void *message, size_t len, int resent)
{
    let_go(channel, slot_of(channel, sequence));
    uint64_t oldest = sequence > DW_CHANNEL_KEPT ? sequence - DW_CHANNEL_KEPT : 0;
    uint64_t i = channel->acknowledged > oldest ? channel->acknowledged : oldest;
    for (; i < sequence && channel->kept_bytes + len > channel->link->max_queued_bytes; i++) {
        let_go(channel, slot_of(channel, i));
    }
    (void)dw_link_retain(channel->link, message);
    *slot_of(channel, sequence) = (dw_kept_frame){.message = message, .len = len, .resent = resent};
    channel->kept_bytes += len;
}

static void publish_outstanding(dw_channel *channel)
{
    pthread_mutex_lock(&channel->replies_lock);
    channel->outstanding = channel->next_sequence - channel->acknowledged;
    pthread_cond_broadcast(&channel->replied);
    pthread_mutex_unlock(&channel->replies_lock);
}

static void acknowledge(dw_channel *channel, uint64_t sequence)
{
    if (sequence >= channel->next_sequence)
        return; /* the peer acknowledges a frame that was never sent */
    /* The receiver decodes frames in order, so it has all frames before this one, too. */
    for (; channel->acknowledged <= sequence; channel->acknowledged++) {
        if (channel->next_sequence - channel->acknowledged <= DW_CHANNEL_KEPT) {
            let_go(channel, slot_of(channel, channel->acknowledged));
        }
    }
    publish_outstanding(channel);
}

/* ---- Answers; the encoder's lock is held ----------------------------------------------------- */

static dw_status refuse(dw_channel *channel, uint64_t sequence, const char *sentence)
{
    return dw_channel_tell(channel, DW_TAG_RESENT, DW_ENVELOPE_REFUSED, DW_OK, sequence, sentence,
                           strlen(sentence));
}

/* Like dw_encoder_resync, for prev in main memory or on the device. */
static dw_status make_resync(dw_channel *channel, const dw_key *keys, uint32_t n, void *frame,
                             size_t cap, size_t *len, dw_why *why)
{
    if (channel->cuda) return dw_channel_device_resync(channel, keys, n, frame, cap, len, why);
    dw_status status = dw_encoder_resync(channel->encoder, keys, n, frame, cap, len);
    if (status == DW_OK) return DW_OK;
    return dw_say(why, status, "%s", dw_encoder_why(channel->encoder));
}

/* The state of the receiver differs from ours. A frame that carries prev itself brings it back into
 * step and contains the tensor. It replaces the copy of the original frame. */
static dw_status resync(dw_channel *channel, uint64_t sequence, const dw_kept_frame *kept)
{
    int resent = kept->resent;
    const unsigned char *frame = (const unsigned char *)kept->message + DW_ENVELOPE_BYTES;
    size_t frame_len = kept->len - DW_ENVELOPE_BYTES;
    dw_frame_info info = {.struct_size = sizeof info};
    dw_status status = dw_frame_read(frame, frame_len, &info, NULL);
    if (status != DW_OK) return refuse(channel, sequence, "the copy of the frame cannot be read");
    const dw_allocator *allocator = &channel->link->allocator;
    dw_key *keys = dw_mem_allocate(allocator, (size_t)info.n * sizeof *keys);
    if (!keys) return DW_ERR_NO_MEMORY;
    dw_frame_keys(frame, frame_len, info.n, keys); /* cannot fail: the frame was read above */
    dw_config exact = channel->send;
    exact.key = DW_KEY_F32;
    /* dw_frame_bound uses only the shape; the pointer is not read. */
    dw_tensor shape = dw_tensor_3d(keys, info.x, info.n, info.t, info.c);
    size_t cap = dw_frame_bound(&exact, &shape);
    void *room;
    status = dw_link_send_begin_always(channel->link, dw_channel_tag(channel, DW_TAG_RESENT),
                                       DW_ENVELOPE_BYTES + cap, &room);
    if (status == DW_ERR_LIMIT) {
        status = refuse(channel, sequence,
                        "a frame with the whole state is longer than max_message_bytes; raise "
                        "that");
    } else if (status == DW_OK) {
        size_t len;
        dw_why why;
        dw_status made = make_resync(channel, keys, info.n,
                                     (unsigned char *)room + DW_ENVELOPE_BYTES, cap, &len, &why);
        if (made == DW_OK) {
            dw_envelope_seal(room, channel->link->session, DW_ENVELOPE_RESENT, DW_OK, sequence,
                             len);
            keep(channel, sequence, room, DW_ENVELOPE_BYTES + len, resent);
            status = dw_link_send_end(channel->link, room, DW_ENVELOPE_BYTES + len);
        } else {
            dw_link_send_end(channel->link, room, DW_LINK_DROP);
            status = refuse(channel, sequence, why.text);
        }
    }
    dw_mem_release(allocator, keys, (size_t)info.n * sizeof *keys);
    return status;
}

static dw_status send_again(dw_channel *channel, const dw_envelope *request)
{
    uint64_t sequence = request->sequence;
    if (sequence >= channel->next_sequence) {
        return dw_channel_tell(channel, DW_TAG_RESENT, DW_ENVELOPE_NOT_YET, DW_OK, sequence, NULL,
                               0);
    }
    dw_kept_frame *kept = slot_of(channel, sequence);
    if (channel->next_sequence - sequence > DW_CHANNEL_KEPT || !kept->message) {
        return refuse(channel, sequence, "the sender has no copy of the frame any more");
    }
    /* A request of 32 bytes makes us queue a whole frame, even above the limit of the queue. So the
     * number of answers is limited: a receiver that keeps asking must not fill our memory. */
    if (kept->resent >= (channel->link->retry_ms > 0 ? DW_CHANNEL_ANSWERS : DW_CHANNEL_TRIES))
        return refuse(channel, sequence, "the frame was requested too often");
    kept->resent++;
    bool out_of_step = request->about == DW_ERR_BASE || request->about == DW_ERR_STATE ||
                       request->about == DW_ERR_STALE;
    if (out_of_step) {
        /* The reply says what the receiver holds, so that the version of the new frame is higher.
         * If the reply cannot be read, the request is answered all the same. */
        if (request->body_len > 0)
            dw_encoder_take_reply(channel->encoder, request->body, request->body_len);
        return resync(channel, sequence, kept);
    }
    /* The frame was damaged on the way: send the same bytes again. The encoder need not know,
     * because its state does not change: after decoding the copy the receiver has the same state.
     */
    return dw_channel_tell(channel, DW_TAG_RESENT, DW_ENVELOPE_RESENT, DW_OK, sequence,
                           (const unsigned char *)kept->message + DW_ENVELOPE_BYTES,
                           kept->len - DW_ENVELOPE_BYTES);
}

/* The receiver waits for an answer. If there is no memory for one, the link is ended, so that the
 * receiver does not wait for ever. */
static void end_without_answer(dw_channel *channel, dw_status status)
{
    if (status != DW_ERR_NO_MEMORY) return;
    pthread_mutex_lock(&channel->link->lock);
    dw_link_fail(channel->link, status, "no memory to send a damaged frame again");
    pthread_mutex_unlock(&channel->link->lock);
}

static void answer(dw_channel *channel, dw_buffer *message)
{
    dw_envelope envelope;
    if (!dw_envelope_read(dw_buffer_payload(message), message->len, channel->link->session,
                          &envelope))
        return; /* cannot happen: it was checked before it was queued */
    if (envelope.kind == DW_ENVELOPE_ACK) {
        if (envelope.body_len > 0)
            dw_encoder_take_reply(channel->encoder, envelope.body, envelope.body_len);
        acknowledge(channel, envelope.sequence);
    } else {
        end_without_answer(channel, send_again(channel, &envelope));
    }
}

static dw_buffer *next_reply(dw_channel *channel)
{
    pthread_mutex_lock(&channel->replies_lock);
    dw_buffer *message = channel->replies_head;
    if (message) {
        channel->replies_head = message->next;
        if (!channel->replies_head) channel->replies_tail = NULL;
    }
    pthread_mutex_unlock(&channel->replies_lock);
    return message;
}

/* The encoder's lock is held. */
static void answer_all(dw_channel *channel)
{
    dw_buffer *message;
    while ((message = next_reply(channel)) != NULL) {
        answer(channel, message);
        dw_link_release(channel->link, dw_buffer_payload(message));
    }
}

static bool has_replies(dw_channel *channel)
{
    pthread_mutex_lock(&channel->replies_lock);
    bool has = channel->replies_head != NULL;
    pthread_mutex_unlock(&channel->replies_lock);
    return has;
}

/* Answers the queued requests, unless another thread holds the encoder's lock: that thread answers
 * them before it unlocks. A request may be queued between its last check and its unlock, so every
 * holder checks again after the unlock. */
static void answer_if_free(dw_channel *channel)
{
    while (has_replies(channel) && pthread_mutex_trylock(&channel->encoder_lock) == 0) {
        answer_all(channel);
        pthread_mutex_unlock(&channel->encoder_lock);
    }
}

/* Queues a message of the peer for the holder of encoder_lock. */
static void queue_reply(dw_channel *channel, const void *data)
{
    void *message = (void *)(uintptr_t)data;
    (void)dw_link_retain(channel->link, message);
    dw_buffer *buffer = dw_buffer_of(message);
    buffer->next = NULL;
    pthread_mutex_lock(&channel->replies_lock);
    if (channel->replies_tail)
        channel->replies_tail->next = buffer;
    else
        channel->replies_head = buffer;
    channel->replies_tail = buffer;
    pthread_mutex_unlock(&channel->replies_lock);
    answer_if_free(channel);
}

void dw_channel_take_control(void *context, const void *data, size_t len)
{
    dw_channel *channel = context;
    dw_envelope envelope;
    uint64_t number = channel->controls_taken++;
    if (!dw_envelope_read(data, len, channel->link->session, &envelope)) {
        /* Control messages arrive in order, so the number of this one is known although none of its
         * bytes can be trusted. */
        if (!channel->encoder) return;
        end_without_answer(channel, dw_channel_tell(channel, DW_TAG_RESENT, DW_ENVELOPE_REPEAT,
                                                    DW_OK, number, NULL, 0));
        return;
    }
    if (envelope.kind == DW_ENVELOPE_CLOSED) {
        pthread_mutex_lock(&channel->replies_lock);
        channel->peer_closed = true;
        pthread_cond_broadcast(&channel->replied);
        pthread_mutex_unlock(&channel->replies_lock);
        return;
    }
    /* Our hello was lost. */
    if (envelope.kind == DW_ENVELOPE_HELLO && envelope.about == DW_PENDING) {
        end_without_answer(channel, dw_channel_tell_hello(channel, DW_OK));
        return;
    }
    if (!channel->encoder ||
        (envelope.kind != DW_ENVELOPE_ACK && envelope.kind != DW_ENVELOPE_AGAIN))
        return;
    queue_reply(channel, data);
}

/* ---- The public side ------------------------------------------------------------------------- */

static dw_status reserve(dw_channel *channel, size_t cap, void **room)
{
    for (;;) {
        uint32_t tag = dw_channel_tag(channel, DW_TAG_FRAMES);
        dw_status status = dw_link_send_begin(channel->link, tag, cap, room);
        if (status == DW_PENDING)
            status = dw_link_wait_room(channel->link, cap, -1);
        else
            return status;
        if (status != DW_OK) return status;
    }
}

static bool is_closed_by_peer(dw_channel *channel)
{
    pthread_mutex_lock(&channel->replies_lock);
    bool closed = channel->peer_closed;
    pthread_mutex_unlock(&channel->replies_lock);
    return closed;
}

/* Encodes x into `room`, behind an envelope, and queues the message. The caller holds encoder_lock.
 * bound: the maximum length of the frame. */
static dw_status encode_into(dw_channel *channel, const dw_key *keys, const dw_channel_tensor *x,
                             void *room, size_t bound)
{
    answer_all(channel);
    size_t len;
    dw_why why;
    unsigned char *frame = (unsigned char *)room + DW_ENVELOPE_BYTES;
    dw_status status = channel->cuda
                           ? dw_channel_device_encode(channel, keys, x, frame, bound, &len, &why)
                           : dw_encode(channel->encoder, keys, x->view, NULL, frame, bound, &len);
    if (status != DW_OK) {
        dw_channel_report(channel, DW_WHY_SEND, status,
                          channel->cuda ? why.text : dw_encoder_why(channel->encoder));
        dw_link_send_end(channel->link, room, DW_LINK_DROP);
        return status;
    }
    if (channel->on_frame) channel->on_frame(channel->frame_context, 1, frame, len);
    uint64_t sequence = channel->next_sequence++;
    dw_envelope_seal(room, channel->link->session, DW_ENVELOPE_FRAME, DW_OK, sequence, len);
    if (channel->send.replies != DW_REPLIES_NEVER) {
        keep(channel, sequence, room, DW_ENVELOPE_BYTES + len, 0);
        publish_outstanding(channel);
    }
    status = dw_link_send_end(channel->link, room, DW_ENVELOPE_BYTES + len);
    return status == DW_OK ? DW_OK : dw_channel_report_link(channel, DW_WHY_SEND, status);
}

static dw_status check_send(dw_channel *channel, const dw_key *keys, const dw_channel_tensor *x)
{
    if (!channel->encoder || !keys || !x->view) {
        return dw_channel_report(
            channel, DW_WHY_SEND, DW_ERR_ARGUMENT,
            "sending needs a channel that was opened with a send config, keys and a tensor");
    }
    if (x->stream && !channel->cuda) {
        return dw_channel_report(channel, DW_WHY_SEND, DW_ERR_ARGUMENT,
                                 "a stream is given, but this channel's host has no cuda");
    }
    if (is_closed_by_peer(channel)) {
        return dw_channel_report(channel, DW_WHY_SEND, DW_ERR_PEER,
                                 "the peer closed its end of this channel");
    }
    return DW_OK;
}

static dw_status send_tensor(dw_channel *channel, const dw_key *keys, const dw_channel_tensor *x)
{
    if (!channel || !dw_owner_is_us(&channel->link->owner)) return DW_ERR_ARGUMENT;
    dw_status status = check_send(channel, keys, x);
    if (status != DW_OK) return status;
    size_t bound = dw_frame_bound(&channel->send, x->view);
    if (bound == 0) {
        return dw_channel_report(
            channel, DW_WHY_SEND, DW_ERR_ARGUMENT,
            "the tensor has no data, an extent of zero, or strides that overlap");
    }
    void *room;
    status = reserve(channel, DW_ENVELOPE_BYTES + bound, &room);
    if (status == DW_ERR_LIMIT) {
        return dw_channel_report(
            channel, DW_WHY_SEND, status,
            "the frame could be longer than the link's "
            "max_message_bytes; raise that at both ends or send fewer samples at once");
    }
    if (status != DW_OK) return dw_channel_report_link(channel, DW_WHY_SEND, status);
    pthread_mutex_lock(&channel->encoder_lock);
    status = encode_into(channel, keys, x, room, bound);
    pthread_mutex_unlock(&channel->encoder_lock);
    answer_if_free(channel);
    return status;
}

dw_status dw_channel_send(dw_channel *channel, const dw_key *keys, const dw_tensor *x, void *stream)
{
    DW_UNCANCELLED;
    return send_tensor(channel, keys, &(dw_channel_tensor){.view = x, .stream = stream});
}

dw_status dw_channel_forget(dw_channel *channel, dw_key key)
{
    DW_UNCANCELLED;
    if (!channel || !dw_owner_is_us(&channel->link->owner)) return DW_ERR_ARGUMENT;
    if (!channel->encoder) {
        return dw_channel_report(channel, DW_WHY_SEND, DW_ERR_ARGUMENT,
                                 "this channel sends nothing, so it has no keys to forget");
    }
    pthread_mutex_lock(&channel->encoder_lock);
    dw_status status = dw_encoder_forget(channel->encoder, key);
    if (status != DW_OK)
        dw_channel_report(channel, DW_WHY_SEND, status, dw_encoder_why(channel->encoder));
    pthread_mutex_unlock(&channel->encoder_lock);
    answer_if_free(channel);
    return status;
}

dw_status dw_channel_prefetch(dw_channel *channel, const dw_key *keys, size_t n)
{
    DW_UNCANCELLED;
    dw_status status = DW_OK;
    if (!channel || (!keys && n) || !dw_owner_is_us(&channel->link->owner)) return DW_ERR_ARGUMENT;
    if (channel->encoder) {
        pthread_mutex_lock(&channel->encoder_lock);
        status = dw_encoder_prefetch(channel->encoder, keys, n);
        pthread_mutex_unlock(&channel->encoder_lock);
        answer_if_free(channel);
    }
    if (channel->decoder && !status) {
        pthread_mutex_lock(&channel->decoder_lock);
        status = dw_decoder_prefetch(channel->decoder, keys, n);
        pthread_mutex_unlock(&channel->decoder_lock);
    }
    return status;
}

dw_status dw_channel_count(dw_channel *channel, dw_counters *sent, dw_counters *received)
{
    DW_UNCANCELLED;
    const dw_counters none = {0};
    if (!channel || !dw_owner_is_us(&channel->link->owner)) return DW_ERR_ARGUMENT;
    dw_status status = DW_OK;
    if (sent && channel->encoder) {
        pthread_mutex_lock(&channel->encoder_lock);
        status = dw_encoder_count(channel->encoder, sent);
        pthread_mutex_unlock(&channel->encoder_lock);
        answer_if_free(channel);
    } else if (sent) {
        status = dw_give_told(sent, &none, sizeof none, "dw_counters", NULL);
    }
    if (status != DW_OK || !received) return status;
    if (!channel->decoder) return dw_give_told(received, &none, sizeof none, "dw_counters", NULL);
    pthread_mutex_lock(&channel->decoder_lock);
    status = dw_decoder_count(channel->decoder, received);
    pthread_mutex_unlock(&channel->decoder_lock);
    return status;
}

/* ---- The end --------------------------------------------------------------------------------- */

void dw_channel_wait_acknowledged(dw_channel *channel)
{
    int64_t deadline = dw_now_ns() + (int64_t)channel->link->close_timeout_ms * DW_NS_PER_MS;
    /* Waits in short steps, because the end of the link does not signal this condition. */
    int64_t step_ns = (int64_t)20 * DW_NS_PER_MS;
    pthread_mutex_lock(&channel->replies_lock);
    while (channel->outstanding > 0 && !channel->peer_closed && dw_now_ns() < deadline &&
           dw_link_why(channel->link)[0] == '\0') {
        int64_t until = dw_now_ns() + step_ns;
        struct timespec at = {.tv_sec = (time_t)(until / 1000000000),
                              .tv_nsec = (long)(until % 1000000000)};
        pthread_cond_timedwait(&channel->replied, &channel->replies_lock, &at);
    }
    pthread_mutex_unlock(&channel->replies_lock);
}

void dw_channel_release_sent(dw_channel *channel)
{
    dw_buffer *message;
    while ((message = next_reply(channel)) != NULL)
        dw_link_release(channel->link, dw_buffer_payload(message));
    for (int i = 0; i < DW_CHANNEL_KEPT; i++) let_go(channel, &channel->kept[i]);
}
