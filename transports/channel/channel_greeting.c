/* SPDX-License-Identifier: Apache-2.0
 * channel_greeting.c - the two ends of a channel compare their configs. */
#include <stdio.h>
#include <string.h>

#include "channel/channel.h"

/* The body of a hello, by which each end checks that the other has the same configs:
 *
 * | offset | bytes | field                                                                 |
 * | 0      | 1     | major version of the frame format                                     |
 * | 1      | 1     | minor version                                                         |
 * | 2      | 1     | S: the number of send configs minus 1; 0 if there is none             |
 * | 3      | 1     | R: the number of receive configs minus 1; 0 if there is none          |
 * | 4      | 256   | the part of the first send config that both ends must have in common, |
 * |        |       | as canonical text, zero-filled; all zeros: this end sends nothing     |
 * |        | 256 S | the same for the other send configs, 256 bytes each                   |
 * |        | 256   | the same for the first receive config                                 |
 * |        | 256 R | the same for the other receive configs                                |
 */
enum { CONFIG_BYTES = 256, HEAD_BYTES = 4 };
enum { HELLO_BYTES = HEAD_BYTES + 2 * DW_CHOICE_MOST * CONFIG_BYTES }; /* of the longest hello */
_Static_assert((int)DW_AGREEMENT_TEXT_BYTES <= (int)CONFIG_BYTES,
               "a longer text needs another layout of the greeting");

/* A list of n configs in a hello; each text has CONFIG_BYTES. */
typedef struct texts {
    const char *at;
    uint32_t n;
} texts;

/* The two lists in a hello: the send configs and the receive configs of the end that wrote it. */
typedef struct hello_lists {
    texts sends, receives;
} hello_lists;

/* Returns the lists of a hello whose bytes 2 and 3 are set. */
static hello_lists lists_of(const unsigned char *hello)
{
    const char *at = (const char *)hello + HEAD_BYTES;
    uint32_t sends = hello[2] + 1u, receives = hello[3] + 1u;
    return (hello_lists){{at, sends}, {at + (size_t)sends * CONFIG_BYTES, receives}};
}

/* Returns text number i of a list; "" if the list has no such text. */
static const char *text_at(const texts *list, uint32_t i)
{
    return i < list->n ? list->at + (size_t)i * CONFIG_BYTES : "";
}

/* The canonical text of the part of a config that both ends must have in common. Rounding, the
 * choice of scales, feedback, its decay, iterations, restarts, seed and incarnation concern the
 * encoder only: what the decoder needs of them is in the frames. */
static dw_status shared_text(const dw_config *config, char *text)
{
    dw_config shared = *config;
    shared.scale = 0;
    shared.rounding = 0;
    shared.seed = 0;
    shared.feedback = 0;
    shared.iterations = shared.restart = shared.decay = 0;
    if (shared.codec != DW_CODEC_DELTA) shared.quota_bytes = 0; /* of residuals */
    shared.incarnation = 0;
    return dw_config_format(&shared, text, CONFIG_BYTES);
}

/* Whether two such texts mean the same. The text of the peer is parsed and formatted again, because
 * another release may write the same config differently. */
static bool is_same(const char *own, const char *peer)
{
    char anew[CONFIG_BYTES];
    dw_config config = {.struct_size = sizeof config};
    if (!own[0] || !peer[0]) return !own[0] && !peer[0];
    /* Parsing fails if the peer uses a word that this release does not know. */
    return dw_config_parse(&config, peer, NULL) == DW_OK && shared_text(&config, anew) == DW_OK &&
           strcmp(own, anew) == 0;
}

static dw_status write_hello(const dw_channel *channel, unsigned char hello[HELLO_BYTES],
                             size_t *len, dw_why *why)
{
    memset(hello, 0, HELLO_BYTES);
    hello[0] = DW_FORMAT_MAJOR;
    hello[1] = DW_FORMAT_MINOR;
    hello[2] = (unsigned char)(channel->sends > 1 ? channel->sends - 1 : 0);
    hello[3] = (unsigned char)(channel->receives > 1 ? channel->receives - 1 : 0);
    dw_status status = DW_OK;
    hello_lists lists = lists_of(hello);
    char *at = (char *)hello + HEAD_BYTES;
    for (uint32_t i = 0; i < channel->sends && status == DW_OK; i++)
        status = shared_text(&channel->send[i].config, at + (size_t)i * CONFIG_BYTES);
    at += (size_t)lists.sends.n * CONFIG_BYTES;
    for (uint32_t i = 0; i < channel->receives && status == DW_OK; i++)
        status = shared_text(&channel->recv[i].config, at + (size_t)i * CONFIG_BYTES);
    *len = HEAD_BYTES + (size_t)(lists.sends.n + lists.receives.n) * CONFIG_BYTES;
    if (status == DW_OK) return DW_OK;
    return dw_link_report(why, status, "channel %u: a config cannot be written as text: %s",
                          channel->id, dw_status_string(status));
}

dw_status dw_channel_tell_hello(dw_channel *channel, dw_status about)
{
    unsigned char hello[HELLO_BYTES];
    size_t len;
    dw_why why;
    dw_status status = write_hello(channel, hello, &len, &why);
    if (status != DW_OK) return status;
    return dw_channel_tell(channel, DW_TAG_CONTROL, DW_ENVELOPE_HELLO, about, 0, hello, len);
}

/* Returns whether the body has the length that follows from its bytes 2 and 3, and every text in it
 * is terminated by a zero. */
static bool is_whole(const dw_envelope *envelope)
{
    if (envelope->body_len < HEAD_BYTES) return false;
    hello_lists lists = lists_of(envelope->body);
    uint32_t n = lists.sends.n + lists.receives.n;
    if (envelope->body_len != HEAD_BYTES + (size_t)n * CONFIG_BYTES) return false;
    for (uint32_t i = 1; i <= n; i++)
        if (envelope->body[HEAD_BYTES + (size_t)i * CONFIG_BYTES - 1]) return false;
    return true;
}

/* Compares the configs of one direction. own: the list in our hello. peer: the list in the peer's
 * hello. If they differ, returns MISMATCH, and *why quotes the first two configs that differ. */
static dw_status compare_lists(const dw_channel *channel, bool we_send, const texts *own,
                               const texts *peer, dw_why *why)
{
    uint32_t n = own->n > peer->n ? own->n : peer->n;
    for (uint32_t i = 0; i < n; i++) {
        const char *ours = text_at(own, i), *theirs = text_at(peer, i);
        char place[32] = "";
        if (i < own->n && i < peer->n && is_same(ours, theirs)) continue;
        if (n > 1) snprintf(place, sizeof place, " as candidate %u", i + 1);
        return dw_link_report(why, DW_ERR_MISMATCH,
                              "channel %u: this end %s '%.70s' but the peer %s '%.70s'%s; give "
                              "both ends the same config",
                              channel->id, we_send ? "sends" : "receives",
                              ours[0] ? ours : "nothing", we_send ? "receives" : "sends",
                              theirs[0] ? theirs : "nothing", place);
    }
    return DW_OK;
}

static dw_status compare(const dw_channel *channel, const unsigned char *own,
                         const dw_envelope *envelope, dw_why *why)
{
    const unsigned char *peer = envelope->body;
    if (!is_whole(envelope)) {
        return dw_link_report(why, DW_ERR_PROTOCOL, "channel %u: the peer's greeting is malformed",
                              channel->id);
    }
    if (peer[0] != DW_FORMAT_MAJOR || peer[1] != DW_FORMAT_MINOR) {
        return dw_link_report(why, DW_ERR_VERSION,
                              "channel %u: the peer writes frames of format %u.%u, this end of "
                              "%d.%d; run the same release at both ends",
                              channel->id, peer[0], peer[1], DW_FORMAT_MAJOR, DW_FORMAT_MINOR);
    }
    hello_lists ours = lists_of(own), theirs = lists_of(peer);
    dw_status status = compare_lists(channel, true, &ours.sends, &theirs.receives, why);
    if (status != DW_OK) return status;
    return compare_lists(channel, false, &ours.receives, &theirs.sends, why);
}

static bool is_hello(const void *message, size_t len, uint64_t session)
{
    dw_envelope envelope;
    return dw_envelope_read(message, len, session, &envelope) && envelope.kind == DW_ENVELOPE_HELLO;
}

/* Waits for the hello of the peer. If messages may be lost, either hello may be, so it is requested
 * until it arrives. Other messages that arrive before it are dropped: the peer repeats them later.
 */
static dw_status await_hello(dw_channel *channel, uint32_t timeout_ms, void **message, size_t *len)
{
    uint32_t tag = dw_channel_tag(channel, DW_TAG_CONTROL);
    int64_t deadline = dw_link_now_ns() + (int64_t)timeout_ms * DW_NS_PER_MS;
    uint32_t wait_ms = channel->link->retry_ms;
    if (wait_ms == 0)
        return dw_link_recv(channel->link, tag,
                            timeout_ms > INT32_MAX ? INT32_MAX : (int)timeout_ms, message, len);
    for (;;) {
        int64_t left_ms = (deadline - dw_link_now_ns()) / DW_NS_PER_MS;
        if (left_ms <= 0) return DW_PENDING;
        dw_status status = dw_link_recv(
            channel->link, tag, left_ms < wait_ms ? (int)left_ms : (int)wait_ms, message, len);
        if (status == DW_OK && is_hello(*message, *len, channel->link->session)) return DW_OK;
        if (status == DW_OK) dw_link_release(channel->link, *message);
        if (status == DW_PENDING) {
            status = dw_channel_tell_hello(channel, DW_PENDING);
            if (wait_ms < 8 * channel->link->retry_ms) wait_ms *= 2;
        }
        if (status != DW_OK) return status;
    }
}

/* Sends our hello and waits for the hello of the peer, which may have arrived already. */
static dw_status exchange(dw_channel *channel, const unsigned char *hello, size_t hello_len,
                          uint32_t timeout_ms, void **message, size_t *len, dw_why *why)
{
    uint32_t tag = dw_channel_tag(channel, DW_TAG_CONTROL);
    dw_status status = dw_link_recv(channel->link, tag, 0, message, len);
    if (status == DW_ERR_ARGUMENT) { /* the tag has a handler */
        return dw_link_report(why, status, "channel %u is open already on this link", channel->id);
    }
    bool has_come = status == DW_OK;
    if (has_come && channel->link->retry_ms > 0 &&
        !is_hello(*message, *len, channel->link->session)) {
        dw_link_release(channel->link, *message);
        has_come = false;
        status = DW_PENDING;
    }
    if (has_come || status == DW_PENDING) {
        status =
            dw_channel_tell(channel, DW_TAG_CONTROL, DW_ENVELOPE_HELLO, DW_OK, 0, hello, hello_len);
        if (has_come && status != DW_OK) dw_link_release(channel->link, *message);
    }
    if (status == DW_OK && !has_come) status = await_hello(channel, timeout_ms, message, len);
    if (status == DW_PENDING) {
        return dw_link_report(why, DW_ERR_TIMEOUT,
                              "channel %u: the peer did not open its end within %u ms; do both "
                              "ends open the same ids?",
                              channel->id, timeout_ms);
    }
    if (status != DW_OK) {
        const char *sentence = dw_link_why(channel->link);
        return dw_link_report(why, status, "channel %u: %s", channel->id,
                              sentence[0] ? sentence : dw_status_string(status));
    }
    return DW_OK;
}

dw_status dw_channel_greet(dw_channel *channel, uint32_t timeout_ms, dw_why *why)
{
    unsigned char hello[HELLO_BYTES];
    void *message;
    size_t hello_len, len;
    dw_status status = write_hello(channel, hello, &hello_len, why);
    if (status == DW_OK)
        status = exchange(channel, hello, hello_len, timeout_ms, &message, &len, why);
    if (status != DW_OK) return status;
    dw_envelope envelope;
    if (!dw_envelope_read(message, len, channel->link->session, &envelope)) {
        status = dw_link_report(why, DW_ERR_CORRUPT,
                                "channel %u: the peer's greeting arrived damaged", channel->id);
    } else if (envelope.kind != DW_ENVELOPE_HELLO) {
        status = dw_link_report(why, DW_ERR_PROTOCOL,
                                "channel %u: the peer did not begin with a greeting; was this "
                                "id used before on the link?",
                                channel->id);
    } else {
        status = compare(channel, hello, &envelope, why);
    }
    dw_link_release(channel->link, message);
    return status;
}
