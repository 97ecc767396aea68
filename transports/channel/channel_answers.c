/* SPDX-License-Identifier: Apache-2.0
 * channel_answers.c - control messages of the peer: frames that it has decoded are acknowledged,
 * and requests for frames are answered while the caller computes. */
#include <string.h>

#include "base/held_keys.h"
#include "channel/channel.h"

/* ---- Answers; the encoder's lock is held ----------------------------------------------------- */

static dw_status answer(const dw_channel_answers *answers, dw_envelope_kind kind, uint64_t sequence,
                        const void *body, size_t body_len)
{
    return dw_channel_send_control(answers->port, DW_TAG_RESENT, kind, DW_OK, sequence, body,
                                   body_len);
}

static dw_status refuse(const dw_channel_answers *answers, uint64_t sequence, const char *sentence)
{
    return answer(answers, DW_ENVELOPE_REFUSED, sequence, sentence, strlen(sentence));
}

static void publish(dw_channel_answers *answers)
{
    dw_control_queue_set_unacknowledged(&answers->queue,
                                        answers->kept.next - answers->kept.acknowledged);
}

/* Sends a frame of n samples that carries prev itself, of at most cap bytes. */
static dw_status send_resync(dw_channel_answers *answers, uint64_t sequence, int resent,
                             const dw_key *keys, uint32_t n, size_t cap)
{
    const dw_channel_port *port = answers->port;
    void *room;
    dw_status status = dw_link_send_begin_always(port->link, dw_channel_tag(port, DW_TAG_RESENT),
                                                 DW_ENVELOPE_BYTES + cap, &room);
    if (status == DW_ERR_LIMIT)
        return refuse(answers, sequence,
                      "a frame with the whole state is longer than max_message_bytes; raise that");
    if (status != DW_OK) return status;
    size_t len;
    dw_why why;
    status = dw_channel_resync(answers->codecs, keys, n, (unsigned char *)room + DW_ENVELOPE_BYTES,
                               cap, &len, &why);
    if (status != DW_OK) {
        dw_link_send_end(port->link, room, DW_LINK_DROP);
        return refuse(answers, sequence, why.text);
    }
    dw_kept_frames_keep(&answers->kept, sequence, room, DW_ENVELOPE_BYTES + len, resent);
    return dw_channel_send_finalized(port, room, DW_ENVELOPE_RESENT, sequence, len);
}

/* The state of the receiver differs from ours. A frame that carries prev itself brings it back into
 * step and contains the tensor, if no later frame had a key of it. It replaces the copy of the
 * original frame. */
static dw_status resync(dw_channel_answers *answers, uint64_t sequence, const dw_kept_frame *kept)
{
    const unsigned char *frame = (const unsigned char *)kept->message + DW_ENVELOPE_BYTES;
    size_t frame_len = kept->len - DW_ENVELOPE_BYTES;
    dw_frame_info info = {.struct_size = sizeof info};
    dw_status status = dw_frame_read(frame, frame_len, &info, NULL);
    if (status != DW_OK) return refuse(answers, sequence, "the copy of the frame cannot be read");
    const dw_allocator *allocator = &answers->port->link->settings.allocator;
    dw_key *keys = dw_mem_allocate(allocator, (size_t)info.n * sizeof *keys);
    if (!keys) return DW_ERR_NO_MEMORY;
    dw_frame_keys(frame, frame_len, info.n, keys); /* cannot fail: the frame was read above */
    dw_config exact = answers->codecs->send;
    exact.key = DW_KEY_F32;
    exact.key_error = exact.rate = 0;
    /* dw_frame_bound uses only the shape; the pointer is not read. */
    dw_tensor shape = dw_tensor_3d(keys, info.x, info.n, info.t, info.c);
    if (dw_encoder_made(answers->codecs->encoder, keys, info.n, &info))
        status = send_resync(answers, sequence, kept->resent, keys, info.n,
                             dw_frame_bound(&exact, &shape));
    else
        status = refuse(answers, sequence,
                        "its tensor is gone: a later frame has a sample of it, or "
                        "one was forgotten, or had no room in quota_bytes");
    dw_mem_release(allocator, keys, (size_t)info.n * sizeof *keys);
    return status;
}

static dw_status send_again(dw_channel_answers *answers, const dw_envelope *request)
{
    uint64_t sequence = request->sequence;
    if (sequence >= answers->kept.next)
        return answer(answers, DW_ENVELOPE_NOT_YET, sequence, NULL, 0);
    dw_kept_frame *kept = dw_kept_frames_find(&answers->kept, sequence);
    if (!kept) return refuse(answers, sequence, "the sender has no copy of the frame any more");
    /* A request of 32 bytes makes us queue a whole frame, even above the limit of the queue. So the
     * number of answers is limited: a receiver that keeps asking must not fill our memory. */
    bool may_lose = answers->port->link->settings.retry_ms > 0;
    if (kept->resent >= (may_lose ? DW_CHANNEL_ANSWERS : DW_CHANNEL_TRIES))
        return refuse(answers, sequence, "the frame was requested too often");
    dw_kept_frames_count_resent(kept);
    bool state_differs = request->about == DW_ERR_BASE || request->about == DW_ERR_STATE ||
                         request->about == DW_ERR_STALE;
    if (state_differs) {
        /* The reply says what the receiver holds, so that the version of the new frame is higher.
         * If the reply cannot be read, the request is answered all the same. */
        if (request->body_len > 0)
            dw_encoder_take_reply(answers->codecs->encoder, request->body, request->body_len);
        return resync(answers, sequence, kept);
    }
    /* The frame was damaged on the way: send the same bytes again. The encoder need not know,
     * because its state does not change: after decoding the copy the receiver has the same state.
     */
    return answer(answers, DW_ENVELOPE_RESENT, sequence,
                  (const unsigned char *)kept->message + DW_ENVELOPE_BYTES,
                  kept->len - DW_ENVELOPE_BYTES);
}

/* The receiver waits for an answer. If there is no memory for one, the link is ended, so that the
 * receiver does not wait for ever. */
static void end_without_answer(const dw_channel_answers *answers, dw_status status)
{
    if (status != DW_ERR_NO_MEMORY) return;
    dw_link_abort(answers->port->link, status, "no memory to send a damaged frame again");
}

static void process(dw_channel_answers *answers, dw_buffer *message)
{
    dw_envelope envelope;
    if (!dw_channel_read_envelope(answers->port, dw_buffer_payload(message), message->len,
                                  &envelope))
        return; /* cannot happen: it was checked before it was queued */
    if (envelope.kind == DW_ENVELOPE_ACK) {
        if (envelope.body_len > 0)
            dw_encoder_take_reply(answers->codecs->encoder, envelope.body, envelope.body_len);
        if (dw_kept_frames_acknowledge(&answers->kept, envelope.sequence)) publish(answers);
    } else {
        end_without_answer(answers, send_again(answers, &envelope));
    }
}

void dw_channel_answers_all(dw_channel_answers *answers)
{
    dw_buffer *message;
    while ((message = dw_control_queue_next(&answers->queue)) != NULL) {
        process(answers, message);
        dw_link_release(answers->port->link, dw_buffer_payload(message));
    }
}

void dw_channel_answers_keep(dw_channel_answers *answers, uint64_t sequence, void *message,
                             size_t len)
{
    dw_kept_frames_keep(&answers->kept, sequence, message, len, 0);
    publish(answers);
}

/* ---- The encoder's lock ---------------------------------------------------------------------- */

/* Answers the queued requests, unless another thread holds the encoder's lock: that thread answers
 * them before it unlocks. A request may be queued between its last check and its unlock, so every
 * holder checks again after the unlock. */
static void answer_if_free(dw_channel_answers *answers)
{
    while (dw_control_queue_has_messages(&answers->queue) &&
           pthread_mutex_trylock(&answers->encoder_lock) == 0) {
        dw_channel_answers_all(answers);
        pthread_mutex_unlock(&answers->encoder_lock);
    }
}

void dw_channel_answers_lock(dw_channel_answers *answers)
{
    pthread_mutex_lock(&answers->encoder_lock);
}

void dw_channel_answers_unlock(dw_channel_answers *answers)
{
    pthread_mutex_unlock(&answers->encoder_lock);
    answer_if_free(answers);
}

void dw_channel_answers_release(dw_channel_answers *answers)
{
    dw_buffer *message;
    while ((message = dw_control_queue_next(&answers->queue)) != NULL)
        dw_link_release(answers->port->link, dw_buffer_payload(message));
    dw_kept_frames_release(&answers->kept);
}

/* ---- The handler ----------------------------------------------------------------------------- */

void dw_channel_take_control(void *context, const void *data, size_t len)
{
    dw_channel_answers *answers = context;
    const dw_channel_codecs *codecs = answers->codecs;
    dw_envelope envelope;
    uint64_t number = answers->controls_taken++;
    if (!dw_channel_read_envelope(answers->port, data, len, &envelope)) {
        /* Control messages arrive in order, so the number of this one is known although none of its
         * bytes can be trusted. */
        if (!codecs->encoder) return;
        end_without_answer(answers, answer(answers, DW_ENVELOPE_REPEAT, number, NULL, 0));
    } else if (envelope.kind == DW_ENVELOPE_CLOSED) {
        dw_control_queue_close(&answers->queue);
    } else if (envelope.kind == DW_ENVELOPE_HELLO && envelope.about == DW_PENDING) {
        /* Our hello was lost. */
        end_without_answer(answers, dw_channel_send_hello(answers->port, codecs, DW_OK));
    } else if (codecs->encoder &&
               (envelope.kind == DW_ENVELOPE_ACK || envelope.kind == DW_ENVELOPE_AGAIN)) {
        dw_control_queue_put(&answers->queue,
                             dw_buffer_of(dw_link_retain(answers->port->link, data)));
        answer_if_free(answers);
    }
}
