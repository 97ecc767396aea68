/* SPDX-License-Identifier: Apache-2.0
 * channel_compare.c - both ends of a channel drop the keys of which they do not hold the same. */
#include "base/clock.h"
#include "channel/channel.h"
#include "channel/comparison.h"
#include "channel/saved.h"

enum { LOOK_MS = 50 };

/* The comparisons of both directions, each at the bit by which its messages name it: 1 for what the
 * end that connected sends. */
typedef struct comparing {
    dw_channel *channel;
    dw_comparison of[2];
    bool has_heard; /* a message of the peer */
    int timeout_ms;
    dw_compare_look *look;
    void *context;
} comparing;

static dw_status fail(const comparing *both, dw_status status, const char *sentence)
{
    return dw_channel_report(&both->channel->errors, DW_WHY_RECV, status, sentence);
}

static dw_status add(void *comparison, const dw_held_key *held)
{
    return dw_comparison_add(comparison, held);
}

static dw_status add_keys(const comparing *both, dw_comparison *c)
{
    const dw_channel_codecs *codecs = &both->channel->codecs;
    dw_channel_lock_end(both->channel, c->is_encoder);
    return dw_channel_unlock_end(both->channel, c->is_encoder,
                                 c->is_encoder ? dw_encoder_visit_keys(codecs->encoder, add, c)
                                               : dw_decoder_visit_keys(codecs->decoder, add, c));
}

static dw_status drop_keys(const comparing *both, const dw_comparison *c)
{
    const dw_channel_codecs *codecs = &both->channel->codecs;
    size_t n = (size_t)c->n_differing;
    dw_channel_lock_end(both->channel, c->is_encoder);
    return dw_channel_unlock_end(both->channel, c->is_encoder,
                                 c->is_encoder
                                     ? dw_encoder_drop_keys(codecs->encoder, c->differing, n)
                                     : dw_decoder_drop_keys(codecs->decoder, c->differing, n));
}

/* Sends the message that a comparison has left. */
static dw_status send_out(const comparing *both, uint64_t direction)
{
    const dw_comparison *c = &both->of[direction];
    if (!c->has_out) return DW_OK;
    dw_status status =
        dw_channel_send_control(&both->channel->port, DW_TAG_COMPARE, DW_ENVELOPE_COMPARE, DW_OK,
                                2 * c->out_step + direction, c->out, (size_t)c->out_len);
    if (status == DW_ERR_LIMIT)
        return fail(both, status,
                    "the comparison of both ends needs a message that is longer than "
                    "max_message_bytes; raise that");
    if (status < 0) dw_channel_report_link(&both->channel->errors, DW_WHY_RECV, status);
    return status;
}

static dw_status begin(comparing *both)
{
    const dw_channel_codecs *codecs = &both->channel->codecs;
    const dw_link *link = both->channel->port.link;
    bool has[2] = {codecs->decoder != NULL, codecs->encoder != NULL};
    for (int is_encoder = 0; is_encoder < 2; is_encoder++) {
        dw_comparison *c = &both->of[is_encoder ^ (int)link->settings.listens];
        dw_comparison_init(c, &link->settings.allocator, is_encoder);
        c->is_done = !has[is_encoder];
    }
    dw_status status = DW_OK;
    for (uint64_t i = 0; i < 2 && status == DW_OK; i++) {
        dw_comparison *c = &both->of[i];
        if (c->is_done) continue;
        status = add_keys(both, c);
        if (status < 0) return status;
        status = dw_comparison_begin(c);
        if (status < 0) return fail(both, status, NULL);
        status = send_out(both, i);
    }
    return status;
}

/* Takes one message of the peer. */
static dw_status take(comparing *both, const void *message, size_t len)
{
    dw_envelope envelope;
    if (!dw_channel_read_envelope(&both->channel->port, message, len, &envelope))
        return fail(both, DW_ERR_CORRUPT, "a message of the comparison of both ends is damaged");
    uint64_t direction = envelope.sequence & 1;
    dw_status status = DW_ERR_PROTOCOL;
    if (envelope.kind == DW_ENVELOPE_COMPARE)
        status = dw_comparison_take(&both->of[direction], envelope.sequence >> 1, envelope.body,
                                    envelope.body_len);
    if (status == DW_OK) return send_out(both, direction);
    return fail(both, status,
                status == DW_ERR_PROTOCOL
                    ? "what arrived does not belong to the comparison of both ends; do both call "
                      "it at the same place?"
                    : NULL);
}

/* Waits for a message of the peer, and looks meanwhile. */
static dw_status await(const comparing *both, void **message, size_t *len)
{
    const dw_channel_port *port = &both->channel->port;
    const int64_t since = dw_now_ms();
    for (int left_ms = both->timeout_ms;;) {
        int wait_ms = both->look && (left_ms < 0 || left_ms > LOOK_MS) ? LOOK_MS : left_ms;
        dw_status status =
            dw_link_recv(port->link, dw_channel_tag(port, DW_TAG_COMPARE), wait_ms, message, len);
        if (status < 0) return dw_channel_report_link(&both->channel->errors, DW_WHY_RECV, status);
        if (status != DW_PENDING) return status;
        if (both->look) status = both->look(both->context);
        if (status < 0) return fail(both, status, "the comparison of both ends was stopped");
        if (both->timeout_ms < 0) continue;
        int64_t passed_ms = dw_now_ms() - since;
        if (passed_ms >= both->timeout_ms) break;
        left_ms = both->timeout_ms - (int)passed_ms;
    }
    return fail(both, DW_ERR_TIMEOUT,
                both->has_heard ? "the peer did not go on with the comparison of both ends in time"
                                : "the peer sent nothing for the comparison of both ends in time; "
                                  "perhaps it does not compare");
}

static dw_status exchange(comparing *both)
{
    dw_status status = DW_OK;
    while (status == DW_OK && !(both->of[0].is_done && both->of[1].is_done)) {
        void *message;
        size_t len;
        status = await(both, &message, &len);
        if (status < 0) return status;
        both->has_heard = true;
        status = take(both, message, len);
        dw_link_release(both->channel->port.link, message);
    }
    return status;
}

static void discard(void *context, const void *data, size_t len)
{
    (void)context;
    (void)data;
    (void)len;
}

/* What the peer still sends would be taken for its part of the next comparison. */
static void end_comparisons(dw_channel *channel)
{
    const dw_channel_port *port = &channel->port;
    channel->compares_no_more = true;
    (void)dw_link_handle(port->link, dw_channel_tag(port, DW_TAG_COMPARE), discard, NULL);
}

dw_status dw_channel_compare(dw_channel *channel, int timeout_ms, dw_compare_look *look,
                             void *context)
{
    DW_UNCANCELLED;
    if (!dw_channel_is_ours(channel)) return DW_ERR_ARGUMENT;
    comparing both = {
        .channel = channel, .timeout_ms = timeout_ms, .look = look, .context = context};
    if (channel->compares_no_more)
        return fail(&both, DW_ERR_ARGUMENT,
                    "an earlier comparison of both ends failed, so what arrives could belong to "
                    "that one; open another link");
    if (channel->port.link->settings.retry_ms)
        return fail(&both, DW_ERR_UNSUPPORTED,
                    "this link may lose messages, so both ends cannot be compared over it; keys "
                    "that differ are found by refused frames");
    dw_status status = begin(&both);
    if (status == DW_OK) status = exchange(&both);
    for (int i = 0; i < 2 && status == DW_OK; i++)
        if (both.of[i].n_differing) status = drop_keys(&both, &both.of[i]);
    for (int i = 0; i < 2; i++) dw_comparison_release(&both.of[i]);
    if (status < 0) end_comparisons(channel);
    return status;
}
