/* SPDX-License-Identifier: Apache-2.0
 * channel_send.c - sending tensors: frames are encoded straight into a buffer of the link, and kept
 * until they are acknowledged. */
#include "channel/channel.h"

static dw_status report(dw_channel *channel, dw_status status, const char *sentence)
{
    return dw_channel_report(&channel->errors, DW_WHY_SEND, status, sentence);
}

static dw_status report_link(dw_channel *channel, dw_status status)
{
    return dw_channel_report_link(&channel->errors, DW_WHY_SEND, status);
}

static dw_status reserve(const dw_channel_port *port, size_t cap, void **room)
{
    for (;;) {
        uint32_t tag = dw_channel_tag(port, DW_TAG_FRAMES);
        dw_status status = dw_link_send_begin(port->link, tag, cap, room);
        if (status == DW_PENDING)
            status = dw_link_wait_room(port->link, cap, -1);
        else
            return status;
        if (status != DW_OK) return status;
    }
}

/* Encodes x into `room`, behind an envelope, and queues the message. The caller holds encoder_lock.
 * bound: the maximum length of the frame. */
static dw_status encode_into(dw_channel *channel, const dw_key *keys, const dw_channel_tensor *x,
                             void *room, size_t bound)
{
    dw_channel_codecs *codecs = &channel->codecs;
    dw_channel_answers_all(&channel->answers);
    size_t len;
    dw_why why;
    unsigned char *frame = (unsigned char *)room + DW_ENVELOPE_BYTES;
    dw_status status = dw_channel_encode(codecs, keys, x, frame, bound, &len, &why);
    if (status != DW_OK) {
        report(channel, status, why.text);
        dw_link_send_end(channel->port.link, room, DW_LINK_DROP);
        return status;
    }
    if (codecs->on_frame) codecs->on_frame(codecs->frame_context, 1, frame, len);
    uint64_t sequence = dw_kept_frames_number(&channel->answers.kept);
    if (codecs->send.replies != DW_REPLIES_NEVER)
        dw_channel_answers_keep(&channel->answers, sequence, room, DW_ENVELOPE_BYTES + len);
    status = dw_channel_send_finalized(&channel->port, room, DW_ENVELOPE_FRAME, sequence, len);
    return status == DW_OK ? DW_OK : report_link(channel, status);
}

static dw_status check_send(dw_channel *channel, const dw_key *keys, const dw_channel_tensor *x)
{
    if (!channel->codecs.encoder || !keys || !x->view) {
        return report(
            channel, DW_ERR_ARGUMENT,
            "sending needs a channel that was opened with a send config, keys and a tensor");
    }
    if (x->stream && !channel->codecs.device.cuda) {
        return report(channel, DW_ERR_ARGUMENT,
                      "a stream is given, but this channel's host has no cuda");
    }
    if (dw_control_queue_is_closed(&channel->answers.queue)) {
        return report(channel, DW_ERR_PEER, "the peer closed its end of this channel");
    }
    return DW_OK;
}

static dw_status send_tensor(dw_channel *channel, const dw_key *keys, const dw_channel_tensor *x)
{
    if (!dw_channel_is_ours(channel)) return DW_ERR_ARGUMENT;
    dw_status status = check_send(channel, keys, x);
    if (status != DW_OK) return status;
    size_t bound = dw_frame_bound(&channel->codecs.send, x->view);
    if (bound == 0) {
        return report(channel, DW_ERR_ARGUMENT,
                      "the tensor has no data, an extent of zero, or strides that overlap");
    }
    void *room;
    status = reserve(&channel->port, DW_ENVELOPE_BYTES + bound, &room);
    if (status == DW_ERR_LIMIT) {
        return report(channel, status,
                      "the frame could be longer than the link's "
                      "max_message_bytes; raise that at both ends or send fewer samples at once");
    }
    if (status != DW_OK) return report_link(channel, status);
    dw_channel_answers_lock(&channel->answers);
    status = encode_into(channel, keys, x, room, bound);
    dw_channel_answers_unlock(&channel->answers);
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
    if (!dw_channel_is_ours(channel)) return DW_ERR_ARGUMENT;
    if (!channel->codecs.encoder) {
        return report(channel, DW_ERR_ARGUMENT,
                      "this channel sends nothing, so it has no keys to forget");
    }
    dw_channel_answers_lock(&channel->answers);
    dw_status status = dw_encoder_forget(channel->codecs.encoder, key);
    if (status != DW_OK) report(channel, status, dw_encoder_why(channel->codecs.encoder));
    dw_channel_answers_unlock(&channel->answers);
    return status;
}

dw_status dw_channel_prefetch(dw_channel *channel, const dw_key *keys, size_t n)
{
    DW_UNCANCELLED;
    dw_status status = DW_OK;
    if ((!keys && n) || !dw_channel_is_ours(channel)) return DW_ERR_ARGUMENT;
    if (channel->codecs.encoder) {
        dw_channel_answers_lock(&channel->answers);
        status = dw_encoder_prefetch(channel->codecs.encoder, keys, n);
        dw_channel_answers_unlock(&channel->answers);
    }
    if (channel->codecs.decoder && !status) {
        pthread_mutex_lock(&channel->receiver.decoder_lock);
        status = dw_decoder_prefetch(channel->codecs.decoder, keys, n);
        pthread_mutex_unlock(&channel->receiver.decoder_lock);
    }
    return status;
}

dw_status dw_channel_count(dw_channel *channel, dw_counters *sent, dw_counters *received)
{
    DW_UNCANCELLED;
    const dw_counters none = {0};
    if (!dw_channel_is_ours(channel)) return DW_ERR_ARGUMENT;
    dw_status status = DW_OK;
    const char *why;
    if (sent && channel->codecs.encoder) {
        dw_channel_answers_lock(&channel->answers);
        status = dw_encoder_count(channel->codecs.encoder, sent);
        why = dw_encoder_why(channel->codecs.encoder);
        if (status) dw_channel_report(&channel->errors, 0, status, why);
        dw_channel_answers_unlock(&channel->answers);
    } else if (sent) {
        status = dw_give_told(sent, &none, sizeof none, "dw_counters", NULL);
    }
    if (status != DW_OK || !received) return status;
    if (!channel->codecs.decoder)
        return dw_give_told(received, &none, sizeof none, "dw_counters", NULL);
    pthread_mutex_lock(&channel->receiver.decoder_lock);
    status = dw_decoder_count(channel->codecs.decoder, received);
    why = dw_decoder_why(channel->codecs.decoder);
    if (status) dw_channel_report(&channel->errors, 1, status, why);
    pthread_mutex_unlock(&channel->receiver.decoder_lock);
    return status;
}

/* ---- The end --------------------------------------------------------------------------------- */

bool dw_channel_wait_acknowledged(dw_channel *channel)
{
    dw_link *link = channel->port.link;
    int64_t wait_ns = (int64_t)link->settings.close_timeout_ms * DW_NS_PER_MS;
    return dw_control_queue_wait(&channel->answers.queue, link, dw_now_ns() + wait_ns);
}
