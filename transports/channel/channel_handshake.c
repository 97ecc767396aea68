/* SPDX-License-Identifier: Apache-2.0
 * channel_handshake.c - the two ends of a channel compare their configs. */
#include <string.h>

#include "channel/channel.h"

/* The body of a hello, by which each end checks that the other has the same configs:
 *
 * | offset | bytes | field                                                                |
 * | 0      | 1     | major version of the frame format                                    |
 * | 1      | 1     | minor version                                                        |
 * | 2      | 256   | what both ends must agree on of the send config, as the text of      |
 * |        |       | dw_config_agreement, zero-filled; all zeros: this end sends nothing  |
 * | 258    | 256   | the same for the receive config                                      |
 */
enum { CONFIG_BYTES = 256, SEND_AT = 2, RECV_AT = SEND_AT + CONFIG_BYTES };
enum { HELLO_BYTES = RECV_AT + CONFIG_BYTES };
_Static_assert((int)DW_AGREEMENT_TEXT_BYTES <= (int)CONFIG_BYTES,
               "a longer text needs another layout of the hello");

/* Whether two such texts mean the same. The text of the peer is parsed and formatted again, because
 * another release may write the same config differently. */
static bool is_same(const char *own, const char *peer)
{
    char anew[CONFIG_BYTES];
    dw_config config = {.struct_size = sizeof config};
    if (!own[0] || !peer[0]) return !own[0] && !peer[0];
    /* Parsing fails if the peer uses a word that this release does not know. */
    return dw_config_parse(&config, peer, NULL) == DW_OK &&
           dw_config_agreement(&config, anew, sizeof anew) == DW_OK && strcmp(own, anew) == 0;
}

/* Writing the texts cannot fail: encoder and decoder were created with these configs. */
static void write_hello(const dw_channel_codecs *codecs, unsigned char hello[HELLO_BYTES])
{
    memset(hello, 0, HELLO_BYTES);
    hello[0] = DW_FORMAT_MAJOR;
    hello[1] = DW_FORMAT_MINOR;
    if (codecs->encoder)
        (void)dw_config_agreement(&codecs->send, (char *)hello + SEND_AT, CONFIG_BYTES);
    if (codecs->decoder)
        (void)dw_config_agreement(&codecs->recv, (char *)hello + RECV_AT, CONFIG_BYTES);
}

dw_status dw_channel_send_hello(const dw_channel_port *port, const dw_channel_codecs *codecs,
                                dw_status about)
{
    unsigned char hello[HELLO_BYTES];
    write_hello(codecs, hello);
    return dw_channel_send_control(port, DW_TAG_CONTROL, DW_ENVELOPE_HELLO, about, 0, hello,
                                   sizeof hello);
}

/* Compares the configs of one direction; *why quotes both if they differ. own: the text in our
 * hello. peer: the text in the peer's hello. */
static dw_status compare_texts(const dw_channel_port *port, bool we_send, const char *own,
                               const char *peer, dw_why *why)
{
    if (is_same(own, peer)) return DW_OK;
    return dw_say(why, DW_ERR_MISMATCH,
                  "channel %u: this end %s '%.70s' but the peer %s '%.70s'; give both ends "
                  "the same config",
                  port->id, we_send ? "sends" : "receives", own[0] ? own : "nothing",
                  we_send ? "receives" : "sends", peer[0] ? peer : "nothing");
}

static dw_status compare(const dw_channel_port *port, const dw_channel_codecs *codecs,
                         const dw_envelope *envelope, dw_why *why)
{
    unsigned char hello[HELLO_BYTES];
    const char *own = (const char *)hello, *peer = (const char *)envelope->body;
    /* The version comes first, because a hello of another one may have another length. */
    if (envelope->body_len > 1 && (peer[0] != DW_FORMAT_MAJOR || peer[1] != DW_FORMAT_MINOR)) {
        return dw_say(why, DW_ERR_VERSION,
                      "channel %u: the peer writes frames of format %u.%u, this end of "
                      "%d.%d; run the same release at both ends",
                      port->id, envelope->body[0], envelope->body[1], DW_FORMAT_MAJOR,
                      DW_FORMAT_MINOR);
    }
    if (envelope->body_len != HELLO_BYTES || peer[RECV_AT - 1] || peer[HELLO_BYTES - 1]) {
        return dw_say(why, DW_ERR_PROTOCOL, "channel %u: the peer's greeting is malformed",
                      port->id);
    }
    write_hello(codecs, hello);
    dw_status status = compare_texts(port, true, own + SEND_AT, peer + RECV_AT, why);
    if (status != DW_OK) return status;
    return compare_texts(port, false, own + RECV_AT, peer + SEND_AT, why);
}

static bool is_hello(const dw_channel_port *port, const void *message, size_t len)
{
    dw_envelope envelope;
    return dw_channel_read_envelope(port, message, len, &envelope) &&
           envelope.kind == DW_ENVELOPE_HELLO;
}

/* Waits for the hello of the peer. If messages may be lost, either hello may be, so it is requested
 * until it arrives. Other messages that arrive before it are dropped: the peer repeats them later.
 */
static dw_status await_hello(const dw_channel_port *port, const dw_channel_codecs *codecs,
                             uint32_t timeout_ms, void **message, size_t *len)
{
    uint32_t tag = dw_channel_tag(port, DW_TAG_CONTROL);
    int64_t deadline = dw_now_ns() + (int64_t)timeout_ms * DW_NS_PER_MS;
    uint32_t wait_ms = port->link->settings.retry_ms;
    if (wait_ms == 0)
        return dw_link_recv(port->link, tag, timeout_ms > INT32_MAX ? INT32_MAX : (int)timeout_ms,
                            message, len);
    for (;;) {
        int64_t left_ms = (deadline - dw_now_ns()) / DW_NS_PER_MS;
        if (left_ms <= 0) return DW_PENDING;
        dw_status status = dw_link_recv(
            port->link, tag, left_ms < wait_ms ? (int)left_ms : (int)wait_ms, message, len);
        if (status == DW_OK && is_hello(port, *message, *len)) return DW_OK;
        if (status == DW_OK) dw_link_release(port->link, *message);
        if (status == DW_PENDING) {
            status = dw_channel_send_hello(port, codecs, DW_PENDING);
            if (wait_ms < 8 * port->link->settings.retry_ms) wait_ms *= 2;
        }
        if (status != DW_OK) return status;
    }
}

/* Sends our hello and waits for the hello of the peer, which may have arrived already. */
static dw_status exchange(const dw_channel_port *port, const dw_channel_codecs *codecs,
                          uint32_t timeout_ms, void **message, size_t *len, dw_why *why)
{
    uint32_t tag = dw_channel_tag(port, DW_TAG_CONTROL);
    dw_status status = dw_link_recv(port->link, tag, 0, message, len);
    if (status == DW_ERR_ARGUMENT) { /* the tag has a handler */
        return dw_say(why, status, "channel %u is open already on this link", port->id);
    }
    bool has_come = status == DW_OK;
    if (has_come && port->link->settings.retry_ms > 0 && !is_hello(port, *message, *len)) {
        dw_link_release(port->link, *message);
        has_come = false;
        status = DW_PENDING;
    }
    if (has_come || status == DW_PENDING) {
        status = dw_channel_send_hello(port, codecs, DW_OK);
        if (has_come && status != DW_OK) dw_link_release(port->link, *message);
    }
    if (status == DW_OK && !has_come) status = await_hello(port, codecs, timeout_ms, message, len);
    if (status == DW_PENDING) {
        return dw_say(why, DW_ERR_TIMEOUT,
                      "channel %u: the peer did not open its end within %u ms; do both "
                      "ends open the same ids?",
                      port->id, timeout_ms);
    }
    if (status != DW_OK) {
        const char *sentence = dw_link_why(port->link);
        return dw_say(why, status, "channel %u: %s", port->id,
                      sentence[0] ? sentence : dw_status_string(status));
    }
    return DW_OK;
}

dw_status dw_channel_handshake(const dw_channel_port *port, const dw_channel_codecs *codecs,
                               uint32_t timeout_ms, dw_why *why)
{
    void *message;
    size_t len;
    dw_status status = exchange(port, codecs, timeout_ms, &message, &len, why);
    if (status != DW_OK) return status;
    dw_envelope envelope;
    if (!dw_channel_read_envelope(port, message, len, &envelope)) {
        status = dw_say(why, DW_ERR_CORRUPT, "channel %u: the peer's greeting arrived damaged",
                        port->id);
    } else if (envelope.kind != DW_ENVELOPE_HELLO) {
        status = dw_say(why, DW_ERR_PROTOCOL,
                        "channel %u: the peer did not begin with a greeting; was this "
                        "id used before on the link?",
                        port->id);
    } else {
        status = compare(port, codecs, &envelope, why);
    }
    dw_link_release(port->link, message);
    return status;
}
