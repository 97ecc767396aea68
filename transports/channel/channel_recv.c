/* SPDX-License-Identifier: Apache-2.0
 * channel_recv.c - receiving tensors: frames are decoded in the order in which they were sent, and
 * acknowledged. A frame that was rejected is requested again, while later frames wait in the link.
 */
#include <limits.h>

#include "channel/channel.h"

static dw_status report(dw_channel *channel, dw_status status, const char *sentence)
{
    return dw_channel_report(channel, DW_WHY_RECV, status, sentence);
}

/* Ends receiving: from here on every call returns this error. */
static dw_status end_with(dw_channel *channel, dw_status status, const char *sentence)
{
    channel->recv_status = status;
    return report(channel, status, sentence);
}

static void release(dw_channel *channel, void **message)
{
    dw_link_release(channel->link, *message);
    *message = NULL;
}

/* ---- Requests -------------------------------------------------------------------------------- */

static bool can_ask(const dw_channel *channel)
{
    return channel->recv.replies != DW_REPLIES_NEVER;
}

static dw_status request(dw_channel *channel, dw_status because, const void *reply,
                         size_t reply_len)
{
    dw_status status = dw_channel_tell(channel, DW_TAG_CONTROL, DW_ENVELOPE_AGAIN, because,
                                       channel->expected, reply, reply_len);
    if (status != DW_OK) return dw_channel_report_link(channel, DW_WHY_RECV, status);
    channel->request = channel->controls_told++;
    channel->requested = true;
    channel->requested_for = because;
    channel->heard_ns = dw_now_ns();
    return DW_OK;
}

/* The time at which to request a frame that may have been lost. */
static int64_t patience_ends(const dw_channel *channel)
{
    if (channel->link->retry_ms == 0 || !can_ask(channel)) return INT64_MAX;
    return channel->heard_ns + (int64_t)channel->patience_ms * DW_NS_PER_MS;
}

/* Requests frame `expected` after a time without a message. The frame, a request for it or the
 * answer may have been lost, or the frame was not sent yet. This does not count as a failed try,
 * because nothing was rejected. */
static dw_status ask_what_became(dw_channel *channel)
{
    if (channel->patience_ms / DW_CHANNEL_PATIENCE < channel->link->retry_ms)
        channel->patience_ms *= 2;
    return request(channel, channel->requested ? channel->requested_for : DW_ERR_CORRUPT, NULL, 0);
}

/* Requests frame `expected` again; the reply of the decoder says what it holds. If messages may be
 * lost, late answers to earlier requests may arrive damaged. So on such a link only a rejection by
 * the decoder, which makes a reply, counts as a failed try. */
static dw_status ask_again(dw_channel *channel, dw_status because, const void *reply,
                           size_t reply_len)
{
    bool counts = channel->link->retry_ms == 0 || reply != NULL;
    if (counts && channel->tries >= DW_CHANNEL_TRIES) {
        dw_why why;
        dw_say(&why, because,
               "frame %llu was rejected %d times in a row (%.140s); the two ends cannot "
               "agree",
               (unsigned long long)channel->expected, channel->tries + 1,
               dw_status_string(because));
        return end_with(channel, because, why.text);
    }
    dw_status status = request(channel, because, reply, reply_len);
    channel->tries += counts && status == DW_OK;
    return status;
}

/* ---- Messages -------------------------------------------------------------------------------- */

/* Handles a message that arrived on the tag of frames. The link keeps their order, so a message
 * with a damaged envelope can only be the next frame. */
static dw_status sort_frame(dw_channel *channel, void *message, size_t len)
{
    dw_envelope envelope;
    bool sound = dw_envelope_read(message, len, channel->link->session, &envelope);
    if (sound && envelope.kind == DW_ENVELOPE_FRAME && envelope.sequence == channel->expected) {
        channel->held = message;
        channel->held_len = len;
        return DW_OK;
    }
    if (sound && envelope.kind == DW_ENVELOPE_FRAME && envelope.sequence > channel->expected &&
        can_ask(channel)) {
        channel->ahead = message;
        channel->ahead_len = len;
        channel->ahead_sequence = envelope.sequence;
        return DW_OK;
    }
    dw_link_release(channel->link, message);
    if (!sound && can_ask(channel)) return ask_again(channel, DW_ERR_CORRUPT, NULL, 0);
    if (!sound) {
        channel->expected++;
        return report(channel, DW_ERR_CORRUPT, "a frame arrived with a damaged envelope");
    }
    if (envelope.kind == DW_ENVELOPE_CLOSED) {
        return end_with(channel, DW_ERR_PEER, "the peer closed its end of this channel");
    }
    if (envelope.kind != DW_ENVELOPE_FRAME || envelope.sequence > channel->expected) {
        return end_with(channel, DW_ERR_PROTOCOL,
                        "the message that arrived is not the next frame; does something else "
                        "use the tags of this channel?");
    }
    /* A duplicate of a frame that was decoded already: acknowledge it again. */
    if (can_ask(channel)) {
        dw_status told = dw_channel_tell(channel, DW_TAG_CONTROL, DW_ENVELOPE_ACK, DW_OK,
                                         envelope.sequence, NULL, 0);
        channel->controls_told += told == DW_OK;
    }
    return DW_OK;
}

/* Handles an answer to a request. Late answers to earlier requests are dropped. */
static dw_status sort_answer(dw_channel *channel, void *message, size_t len)
{
    dw_envelope envelope;
    dw_status status = DW_OK;
    if (!dw_envelope_read(message, len, channel->link->session, &envelope)) {
        status = ask_again(channel, DW_ERR_CORRUPT, NULL, 0);
    } else if (envelope.kind == DW_ENVELOPE_REPEAT) {
        /* One of our control messages arrived damaged at the peer. If it was the latest request, it
         * is sent again. An acknowledgement need not be sent again. */
        if (envelope.sequence == channel->request)
            status = ask_again(channel, channel->requested_for, NULL, 0);
    } else if (envelope.kind == DW_ENVELOPE_CLOSED) {
        status = end_with(channel, DW_ERR_PEER,
                          "the peer closed its end of this channel before it had sent a "
                          "damaged frame again");
    } else if (envelope.sequence == channel->expected) {
        if (envelope.kind == DW_ENVELOPE_RESENT) {
            channel->held = message;
            channel->held_len = len;
            return DW_OK;
        }
        if (envelope.kind == DW_ENVELOPE_NOT_YET) channel->requested = false;
        if (envelope.kind == DW_ENVELOPE_REFUSED) {
            dw_why why;
            dw_say(&why, channel->requested_for,
                   "frame %llu was rejected (%.80s) and cannot be sent again: "
                   "%.*s",
                   (unsigned long long)channel->expected, dw_status_string(channel->requested_for),
                   envelope.body_len > 100 ? 100 : (int)envelope.body_len,
                   (const char *)envelope.body);
            status = end_with(channel, channel->requested_for, why.text);
        }
    }
    dw_link_release(channel->link, message);
    return status;
}

static int remaining_ms(int64_t deadline_ns)
{
    if (deadline_ns == INT64_MAX) return -1;
    int64_t left = (deadline_ns - dw_now_ns() + DW_NS_PER_MS - 1) / DW_NS_PER_MS;
    return left <= 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
}

/* Waits until frame `expected` has arrived and lies in channel->held. DW_PENDING: the time is over.
 * latest_ns: when it is, although messages that are no such frame still wait. */
static dw_status fetch(dw_channel *channel, int64_t deadline_ns, int64_t latest_ns)
{
    dw_status status = channel->recv_status;
    while (status == DW_OK && !channel->held) {
        if (dw_now_ns() > latest_ns) return DW_PENDING;
        if (!channel->requested && channel->ahead) {
            if (channel->ahead_sequence == channel->expected) {
                channel->held = channel->ahead;
                channel->held_len = channel->ahead_len;
                channel->ahead = NULL;
            } else {
                status = ask_again(channel, DW_ERR_CORRUPT, NULL, 0);
            }
            continue;
        }
        uint32_t tag = dw_channel_tag(channel, channel->requested ? DW_TAG_RESENT : DW_TAG_FRAMES);
        void *message;
        size_t len;
        int64_t patience_ns = patience_ends(channel);
        status = dw_link_recv(channel->link, tag,
                              remaining_ms(patience_ns < deadline_ns ? patience_ns : deadline_ns),
                              &message, &len);
        if (status == DW_PENDING && patience_ns < deadline_ns) {
            status = patience_ns <= dw_now_ns() ? ask_what_became(channel) : DW_OK;
            continue;
        }
        if (status == DW_PENDING) return status;
        if (status != DW_OK) return dw_channel_report_link(channel, DW_WHY_RECV, status);
        channel->heard_ns = dw_now_ns();
        status = channel->requested ? sort_answer(channel, message, len)
                                    : sort_frame(channel, message, len);
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
static bool is_callers(const dw_channel *channel, dw_status status)
{
    return status == DW_ERR_ARGUMENT || status == DW_ERR_SHAPE || status == DW_ERR_NO_MEMORY ||
           status == DW_ERR_NO_ROOM || (status == DW_ERR_IO && !channel->cuda);
}

static void accept_frame(dw_channel *channel)
{
    release(channel, &channel->held);
    channel->expected++;
    channel->requested = false;
    channel->tries = 0;
    channel->patience_ms = channel->link->retry_ms;
}

/* Like dw_decode; y is in main memory or on the device. */
static dw_status decode(dw_channel *channel, const void *frame, size_t frame_len,
                        const dw_channel_tensor *y, void *reply, size_t reply_cap,
                        size_t *reply_len)
{
    dw_why why;
    dw_decoder *decoder = channel->decoder;
    pthread_mutex_lock(&channel->decoder_lock);
    dw_status status = channel->cuda ? dw_channel_device_decode(channel, frame, frame_len, y, reply,
                                                                reply_cap, reply_len, &why)
                                     : dw_decode(decoder, frame, frame_len, y->view, NULL, reply,
                                                 reply_cap, reply_len);
    pthread_mutex_unlock(&channel->decoder_lock);
    if (status != DW_OK)
        report(channel, status, channel->cuda ? why.text : dw_decoder_why(decoder));
    return status;
}

/* Decodes into y, writes the reply to `room`, behind an envelope, and sends it. room = NULL: no
 * reply. */
static dw_status decode_and_reply(dw_channel *channel, dw_key *keys, const dw_channel_tensor *y,
                                  unsigned char *room, size_t reply_cap)
{
    const unsigned char *frame = (const unsigned char *)channel->held + DW_ENVELOPE_BYTES;
    size_t frame_len = channel->held_len - DW_ENVELOPE_BYTES;
    unsigned char *reply = room ? room + DW_ENVELOPE_BYTES : NULL;
    size_t reply_len = 0;
    dw_status status = decode(channel, frame, frame_len, y, reply, reply_cap, &reply_len);
    if (status == DW_OK) {
        if (keys) dw_frame_keys(frame, frame_len, y->view->n, keys);
        if (channel->on_frame) channel->on_frame(channel->frame_context, 0, frame, frame_len);
        if (room) {
            dw_envelope_seal(room, channel->link->session, DW_ENVELOPE_ACK, DW_OK,
                             channel->expected, reply_len);
            /* If the link has ended, the next call returns that. */
            dw_status told = dw_link_send_end(channel->link, room, DW_ENVELOPE_BYTES + reply_len);
            channel->controls_told += told == DW_OK;
        }
        accept_frame(channel);
        return DW_OK;
    }
    dw_status asked = status;
    if (!is_callers(channel, status)) {
        release(channel, &channel->held);
        if (room && can_heal(status))
            asked = ask_again(channel, status, reply, reply_len);
        else if (!can_heal(status))
            channel->recv_status = status;
        else if (can_ask(channel))
            /* The link has ended, so the frame cannot be requested. */
            channel->recv_status = status;
        else
            accept_frame(channel);
    }
    if (room) dw_link_send_end(channel->link, room, DW_LINK_DROP);
    return asked;
}

static dw_status decode_held(dw_channel *channel, dw_key *keys, const dw_channel_tensor *y)
{
    void *room = NULL;
    size_t reply_cap = dw_reply_bound(y->view->n);
    if (can_ask(channel)) {
        dw_status status =
            dw_link_send_begin_always(channel->link, dw_channel_tag(channel, DW_TAG_CONTROL),
                                      DW_ENVELOPE_BYTES + reply_cap, &room);
        if (status == DW_ERR_NO_MEMORY) return report(channel, status, "no memory for a reply");
        if (status != DW_OK)
            room = NULL; /* the link has ended; frames that arrived before are still decoded */
    }
    return decode_and_reply(channel, keys, y, room, reply_cap);
}

static dw_status receive(dw_channel *channel, int timeout_ms, dw_key *keys,
                         const dw_channel_tensor *y)
{
    if (!channel || !dw_owner_is_us(&channel->link->owner)) return DW_ERR_ARGUMENT;
    if (!channel->decoder || !y->view) {
        return report(channel, DW_ERR_ARGUMENT,
                      "receiving needs a channel that was opened with a recv config, "
                      "and a tensor");
    }
    if (y->stream && !channel->cuda) {
        return report(channel, DW_ERR_ARGUMENT,
                      "a stream is given, but this channel's host has no cuda");
    }
    int64_t deadline = INT64_MAX, latest = INT64_MAX;
    if (timeout_ms >= 0) {
        deadline = dw_now_ns() + (int64_t)timeout_ms * DW_NS_PER_MS;
        latest = deadline + (int64_t)(timeout_ms / 2 + 10) * DW_NS_PER_MS;
    }
    for (;;) {
        dw_status status = fetch(channel, deadline, latest);
        if (status != DW_OK) return status;
        status = decode_held(channel, keys, y);
        if (status != DW_OK || !channel->requested) return status;
    }
}

dw_status dw_channel_recv(dw_channel *channel, int timeout_ms, dw_key *keys, const dw_tensor *y,
                          void *stream)
{
    DW_UNCANCELLED;
    return receive(channel, timeout_ms, keys, &(dw_channel_tensor){.view = y, .stream = stream});
}

void dw_channel_release_received(dw_channel *channel)
{
    if (channel->held) release(channel, &channel->held);
    if (channel->ahead) release(channel, &channel->ahead);
}
