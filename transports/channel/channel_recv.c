/* SPDX-License-Identifier: Apache-2.0
 * channel_recv.c - receiving tensors: frames are decoded in the order in which they were sent, and
 * acknowledged. A frame that was rejected is requested again, while later frames wait in the link.
 */
#include <limits.h>

#include "channel/channel.h"

static dw_status report(dw_channel_receiver *receiver, dw_status status, const char *sentence)
{
    return dw_channel_report(receiver->errors, DW_WHY_RECV, status, sentence);
}

/* Ends receiving: from here on every call returns this error. */
static dw_status end_with(dw_channel_receiver *receiver, dw_status status, const char *sentence)
{
    receiver->status = status;
    return report(receiver, status, sentence);
}

static void release(dw_channel_receiver *receiver, void **message)
{
    dw_link_release(receiver->port->link, *message);
    *message = NULL;
}

/* ---- Requests -------------------------------------------------------------------------------- */

static bool can_request(const dw_channel_receiver *receiver)
{
    return receiver->codecs->recv.replies != DW_REPLIES_NEVER;
}

static dw_status request(dw_channel_receiver *receiver, dw_status because, const void *reply,
                         size_t reply_len)
{
    dw_status status = dw_channel_send_control(receiver->port, DW_TAG_CONTROL, DW_ENVELOPE_AGAIN,
                                               because, receiver->expected, reply, reply_len);
    if (status != DW_OK) return dw_channel_report_link(receiver->errors, DW_WHY_RECV, status);
    receiver->request = receiver->controls_sent++;
    receiver->requested = true;
    receiver->requested_for = because;
    receiver->heard_ns = dw_now_ns();
    return DW_OK;
}

/* The time at which to request a frame that may have been lost. */
static int64_t retry_due_ns(const dw_channel_receiver *receiver)
{
    if (receiver->port->link->settings.retry_ms == 0 || !can_request(receiver)) return INT64_MAX;
    return receiver->heard_ns + (int64_t)receiver->retry_wait_ms * DW_NS_PER_MS;
}

/* Requests frame `expected` after a time without a message. The frame, a request for it or the
 * answer may have been lost, or the frame was not sent yet. This does not count as a failed try,
 * because nothing was rejected. */
static dw_status request_lost(dw_channel_receiver *receiver)
{
    if (receiver->retry_wait_ms / DW_CHANNEL_LONGEST_RETRY <
        receiver->port->link->settings.retry_ms)
        receiver->retry_wait_ms *= 2;
    return request(receiver, receiver->requested ? receiver->requested_for : DW_ERR_CORRUPT, NULL,
                   0);
}

/* Requests frame `expected` again; the reply of the decoder says what it holds. If messages may be
 * lost, late answers to earlier requests may arrive damaged. So on such a link only a rejection by
 * the decoder, which makes a reply, counts as a failed try. */
static dw_status request_again(dw_channel_receiver *receiver, dw_status because, const void *reply,
                               size_t reply_len)
{
    bool counts = receiver->port->link->settings.retry_ms == 0 || reply != NULL;
    if (counts && receiver->tries >= DW_CHANNEL_TRIES) {
        dw_why why;
        dw_say(&why, because,
               "frame %llu was rejected %d times in a row (%.140s); the two ends cannot "
               "agree",
               (unsigned long long)receiver->expected, receiver->tries + 1,
               dw_status_string(because));
        return end_with(receiver, because, why.text);
    }
    dw_status status = request(receiver, because, reply, reply_len);
    receiver->tries += counts && status == DW_OK;
    return status;
}

/* ---- Messages -------------------------------------------------------------------------------- */

/* Handles a message that arrived on the tag of frames. The link keeps their order, so a message
 * with a damaged envelope can only be the next frame. */
static dw_status sort_frame(dw_channel_receiver *receiver, void *message, size_t len)
{
    dw_envelope envelope;
    bool sound = dw_channel_read_envelope(receiver->port, message, len, &envelope);
    if (sound && envelope.kind == DW_ENVELOPE_FRAME && envelope.sequence == receiver->expected) {
        receiver->held = message;
        receiver->held_len = len;
        return DW_OK;
    }
    if (sound && envelope.kind == DW_ENVELOPE_FRAME && envelope.sequence > receiver->expected &&
        can_request(receiver)) {
        receiver->ahead = message;
        receiver->ahead_len = len;
        receiver->ahead_sequence = envelope.sequence;
        return DW_OK;
    }
    dw_link_release(receiver->port->link, message);
    if (!sound && can_request(receiver)) return request_again(receiver, DW_ERR_CORRUPT, NULL, 0);
    if (!sound) {
        receiver->expected++;
        return report(receiver, DW_ERR_CORRUPT, "a frame arrived with a damaged envelope");
    }
    if (envelope.kind == DW_ENVELOPE_CLOSED) {
        return end_with(receiver, DW_ERR_PEER, "the peer closed its end of this channel");
    }
    if (envelope.kind != DW_ENVELOPE_FRAME || envelope.sequence > receiver->expected) {
        return end_with(receiver, DW_ERR_PROTOCOL,
                        "the message that arrived is not the next frame; does something else "
                        "use the tags of this channel?");
    }
    /* A duplicate of a frame that was decoded already: acknowledge it again. */
    if (can_request(receiver)) {
        dw_status told = dw_channel_send_control(receiver->port, DW_TAG_CONTROL, DW_ENVELOPE_ACK,
                                                 DW_OK, envelope.sequence, NULL, 0);
        receiver->controls_sent += told == DW_OK;
    }
    return DW_OK;
}

/* Handles an answer to a request. Late answers to earlier requests are dropped. */
static dw_status sort_answer(dw_channel_receiver *receiver, void *message, size_t len)
{
    dw_envelope envelope;
    dw_status status = DW_OK;
    if (!dw_channel_read_envelope(receiver->port, message, len, &envelope)) {
        status = request_again(receiver, DW_ERR_CORRUPT, NULL, 0);
    } else if (envelope.kind == DW_ENVELOPE_REPEAT) {
        /* One of our control messages arrived damaged at the peer. If it was the latest request, it
         * is sent again. An acknowledgement need not be sent again. */
        if (envelope.sequence == receiver->request)
            status = request_again(receiver, receiver->requested_for, NULL, 0);
    } else if (envelope.kind == DW_ENVELOPE_CLOSED) {
        status = end_with(receiver, DW_ERR_PEER,
                          "the peer closed its end of this channel before it had sent a "
                          "damaged frame again");
    } else if (envelope.sequence == receiver->expected) {
        if (envelope.kind == DW_ENVELOPE_RESENT) {
            receiver->held = message;
            receiver->held_len = len;
            return DW_OK;
        }
        if (envelope.kind == DW_ENVELOPE_NOT_YET) receiver->requested = false;
        if (envelope.kind == DW_ENVELOPE_REFUSED) {
            dw_why why;
            dw_say(&why, receiver->requested_for,
                   "frame %llu cannot be sent again: %.*s. It was rejected: %s",
                   (unsigned long long)receiver->expected,
                   envelope.body_len > 120 ? 120 : (int)envelope.body_len,
                   (const char *)envelope.body, dw_status_string(receiver->requested_for));
            status = end_with(receiver, receiver->requested_for, why.text);
        }
    }
    dw_link_release(receiver->port->link, message);
    return status;
}

static int remaining_ms(int64_t deadline_ns)
{
    if (deadline_ns == INT64_MAX) return -1;
    int64_t left = (deadline_ns - dw_now_ns() + DW_NS_PER_MS - 1) / DW_NS_PER_MS;
    return left <= 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
}

/* Waits until frame `expected` lies in receiver->held. Returns DW_PENDING after deadline_ns once no
 * message waits in the link, and after latest_ns even if some do. */
static dw_status fetch(dw_channel_receiver *receiver, int64_t deadline_ns, int64_t latest_ns)
{
    dw_status status = receiver->status;
    while (status == DW_OK && !receiver->held) {
        if (dw_now_ns() > latest_ns) return DW_PENDING;
        if (!receiver->requested && receiver->ahead) {
            if (receiver->ahead_sequence == receiver->expected) {
                receiver->held = receiver->ahead;
                receiver->held_len = receiver->ahead_len;
                receiver->ahead = NULL;
            } else {
                status = request_again(receiver, DW_ERR_CORRUPT, NULL, 0);
            }
            continue;
        }
        uint32_t tag =
            dw_channel_tag(receiver->port, receiver->requested ? DW_TAG_RESENT : DW_TAG_FRAMES);
        void *message;
        size_t len;
        int64_t retry_ns = retry_due_ns(receiver);
        status = dw_link_recv(receiver->port->link, tag,
                              remaining_ms(retry_ns < deadline_ns ? retry_ns : deadline_ns),
                              &message, &len);
        if (status == DW_PENDING && retry_ns < deadline_ns) {
            status = retry_ns <= dw_now_ns() ? request_lost(receiver) : DW_OK;
            continue;
        }
        if (status == DW_PENDING) return status;
        if (status != DW_OK) return dw_channel_report_link(receiver->errors, DW_WHY_RECV, status);
        receiver->heard_ns = dw_now_ns();
        status = receiver->requested ? sort_answer(receiver, message, len)
                                     : sort_frame(receiver, message, len);
    }
    return status;
}

/* ---- Decoding -------------------------------------------------------------------------------- */

/* Whether sending the frame again can heal the error: bytes were damaged (VERSION, too, because it
 * is read before any digest is checked), or the states of the two ends differ. */
static bool can_heal(dw_status status)
{
    return status == DW_ERR_CORRUPT || status == DW_ERR_FORMAT || status == DW_ERR_VERSION ||
           status == DW_ERR_BASE || status == DW_ERR_STATE || status == DW_ERR_STALE;
}

/* Whether the error is a fault of this call and not of the frame. Then the frame is kept, and a
 * corrected call can receive it. */
static bool is_callers(const dw_channel_receiver *receiver, dw_status status)
{
    return status == DW_ERR_ARGUMENT || status == DW_ERR_SHAPE || status == DW_ERR_NO_MEMORY ||
           status == DW_ERR_BUFFER_TOO_SMALL ||
           (status == DW_ERR_IO && !receiver->codecs->device.cuda);
}

static void accept_frame(dw_channel_receiver *receiver)
{
    release(receiver, &receiver->held);
    receiver->expected++;
    receiver->requested = false;
    receiver->tries = 0;
    receiver->retry_wait_ms = receiver->port->link->settings.retry_ms;
}

static dw_status decode(dw_channel_receiver *receiver, const void *frame, size_t frame_len,
                        const dw_channel_tensor *y, void *reply, size_t reply_cap,
                        size_t *reply_len)
{
    dw_why why;
    pthread_mutex_lock(&receiver->decoder_lock);
    dw_status status =
        dw_channel_decode(receiver->codecs, frame, frame_len, y, reply, reply_cap, reply_len, &why);
    pthread_mutex_unlock(&receiver->decoder_lock);
    return status == DW_OK ? DW_OK : report(receiver, status, why.text);
}

/* Decodes into y, writes the reply to `room`, behind an envelope, and sends it. room = NULL: no
 * reply. */
static dw_status decode_and_reply(dw_channel_receiver *receiver, dw_key *keys,
                                  const dw_channel_tensor *y, unsigned char *room, size_t reply_cap)
{
    const unsigned char *frame = (const unsigned char *)receiver->held + DW_ENVELOPE_BYTES;
    size_t frame_len = receiver->held_len - DW_ENVELOPE_BYTES;
    const dw_channel_codecs *codecs = receiver->codecs;
    unsigned char *reply = room ? room + DW_ENVELOPE_BYTES : NULL;
    size_t reply_len = 0;
    dw_status status = decode(receiver, frame, frame_len, y, reply, reply_cap, &reply_len);
    if (status == DW_OK) {
        if (keys) dw_frame_keys(frame, frame_len, y->view->n, keys);
        if (codecs->on_frame) codecs->on_frame(codecs->frame_context, 0, frame, frame_len);
        if (room) {
            /* If the link has ended, the next call returns that. */
            dw_status told = dw_channel_send_finalized(receiver->port, room, DW_ENVELOPE_ACK,
                                                       receiver->expected, reply_len);
            receiver->controls_sent += told == DW_OK;
        }
        accept_frame(receiver);
        return DW_OK;
    }
    dw_status asked = status;
    if (!is_callers(receiver, status)) {
        release(receiver, &receiver->held);
        if (room && can_heal(status))
            asked = request_again(receiver, status, reply, reply_len);
        else if (!can_heal(status))
            receiver->status = status;
        else if (can_request(receiver))
            /* The link has ended, so the frame cannot be requested. */
            receiver->status = status;
        else
            accept_frame(receiver);
    }
    if (room) dw_link_send_end(receiver->port->link, room, DW_LINK_DROP);
    return asked;
}

static dw_status decode_held(dw_channel_receiver *receiver, dw_key *keys,
                             const dw_channel_tensor *y)
{
    void *room = NULL;
    size_t reply_cap = dw_reply_bound(y->view->n);
    if (can_request(receiver)) {
        dw_status status = dw_link_send_begin_always(receiver->port->link,
                                                     dw_channel_tag(receiver->port, DW_TAG_CONTROL),
                                                     DW_ENVELOPE_BYTES + reply_cap, &room);
        if (status == DW_ERR_NO_MEMORY) return report(receiver, status, "no memory for a reply");
        if (status != DW_OK)
            room = NULL; /* the link has ended; frames that arrived before are still decoded */
    }
    return decode_and_reply(receiver, keys, y, room, reply_cap);
}

static dw_status receive(dw_channel *channel, int timeout_ms, dw_key *keys,
                         const dw_channel_tensor *y)
{
    if (!dw_channel_is_ours(channel)) return DW_ERR_ARGUMENT;
    dw_channel_receiver *receiver = &channel->receiver;
    if (!channel->codecs.decoder || !y->view) {
        return report(receiver, DW_ERR_ARGUMENT,
                      "receiving needs a channel that was opened with a recv config, "
                      "and a tensor");
    }
    if (y->stream && !channel->codecs.device.cuda) {
        return report(receiver, DW_ERR_ARGUMENT,
                      "a stream is given, but this channel's host has no cuda");
    }
    int64_t deadline = INT64_MAX, latest = INT64_MAX;
    if (timeout_ms >= 0) {
        deadline = dw_now_ns() + (int64_t)timeout_ms * DW_NS_PER_MS;
        latest = deadline + (int64_t)(timeout_ms / 2 + 10) * DW_NS_PER_MS;
    }
    for (;;) {
        dw_status status = fetch(receiver, deadline, latest);
        if (status != DW_OK) return status;
        status = decode_held(receiver, keys, y);
        if (status != DW_OK || !receiver->requested) return status;
    }
}

dw_status dw_channel_recv(dw_channel *channel, int timeout_ms, dw_key *keys, const dw_tensor *y,
                          void *stream)
{
    DW_UNCANCELLED;
    return receive(channel, timeout_ms, keys, &(dw_channel_tensor){.view = y, .stream = stream});
}

void dw_channel_begin_receiving(dw_channel_receiver *receiver)
{
    receiver->heard_ns = dw_now_ns();
    receiver->retry_wait_ms = receiver->port->link->settings.retry_ms;
}

void dw_channel_release_received(dw_channel_receiver *receiver)
{
    if (receiver->held) release(receiver, &receiver->held);
    if (receiver->ahead) release(receiver, &receiver->ahead);
}
