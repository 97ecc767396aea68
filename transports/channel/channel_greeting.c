/* SPDX-License-Identifier: Apache-2.0
 * channel_greeting.c - the two ends of a channel meet, compare their configs, and part. */
#include "channel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The hello's body, after which both ends know that they mean the same:
 *
 * | offset | bytes | field                                                                 |
 * | 0      | 1     | major version of the frame format                                     |
 * | 1      | 1     | minor version                                                         |
 * | 2      | 2     | zero                                                                  |
 * | 4      | 192   | config of what this end sends, canonical text, zero-filled; empty: nothing |
 * | 196    | 192   | config of what it receives                                            |
 */
enum { CONFIG_BYTES = DW_CONFIG_TEXT_BYTES, HELLO_BYTES = 4 + 2 * CONFIG_BYTES };

/* ---- Errors -------------------------------------------------------------------------------------
 */

dw_status dw_channel_report(dw_channel *channel, int direction, dw_status status,
                            const char *sentence)
{
    pthread_mutex_lock(&channel->why_lock);
    dw_link_report(&channel->why[direction], status, "channel %u: %s", channel->id,
                   sentence && sentence[0] ? sentence : dw_status_string(status));
    channel->last_why = direction;
    pthread_mutex_unlock(&channel->why_lock);
    return status;
}

dw_status dw_channel_report_link(dw_channel *channel, int direction, dw_status status)
{
    return dw_channel_report(channel, direction, status, dw_link_why(channel->link));
}

const char *dw_channel_why(dw_channel *channel)
{
    if (!channel) return "";
    if (!dw_owner_is_us(&channel->link->owner)) return dw_link_why(channel->link);
    pthread_mutex_lock(&channel->why_lock);
    const char *text = channel->why[channel->last_why].text;
    pthread_mutex_unlock(&channel->why_lock);
    return text;
}

/* ---- Configs ------------------------------------------------------------------------------------
 */

static uint64_t monotonic_ns(void *context)
{
    (void)context;
    return (uint64_t)dw_link_now_ns();
}

static dw_status take_config(dw_config *own, const dw_config *config, dw_why *why)
{
    if (config->struct_size < sizeof(size_t) || config->struct_size > sizeof *own) {
        return dw_link_report(why, DW_ERR_ARGUMENT,
                              "dw_config.struct_size is %zu; set it to sizeof(dw_config), %zu",
                              config->struct_size, sizeof *own);
    }
    *own = (dw_config){0};
    memcpy(own, config, config->struct_size);
    own->struct_size = sizeof *own;
    if (!own->now_ns) own->now_ns = monotonic_ns; /* the library's clock, so that busy_ns counts */
    return DW_OK;
}

/* The canonical text of what both ends must share: how the encoder chooses scales and what it calls
 * itself are its own affair. */
static dw_status shared_text(const dw_config *config, char *text)
{
    dw_config shared = *config;
    shared.scale = 0;
    shared.incarnation = 0;
    return dw_config_format(&shared, text, CONFIG_BYTES);
}

static int same_config(const dw_config *own, int has_own, const char *peer_text)
{
    char own_shared[CONFIG_BYTES] = "", peer_shared[CONFIG_BYTES] = "";
    dw_config peer = {0};
    if (!has_own || !peer_text[0]) return !has_own && !peer_text[0];
    if (dw_config_parse(&peer, peer_text, NULL) != DW_OK)
        return 0; /* a word that this release does not know */
    return shared_text(own, own_shared) == DW_OK && shared_text(&peer, peer_shared) == DW_OK &&
           strcmp(own_shared, peer_shared) == 0;
}

/* ---- Greeting -----------------------------------------------------------------------------------
 */

static dw_status write_hello(const dw_channel *channel, unsigned char *hello, dw_why *why)
{
    memset(hello, 0, HELLO_BYTES);
    hello[0] = DW_FORMAT_MAJOR;
    hello[1] = DW_FORMAT_MINOR;
    dw_status status = DW_OK;
    char *send_text = (char *)hello + 4, *recv_text = send_text + CONFIG_BYTES;
    if (channel->sends) status = dw_config_format(&channel->send, send_text, CONFIG_BYTES);
    if (status == DW_OK && channel->receives)
        status = dw_config_format(&channel->recv, recv_text, CONFIG_BYTES);
    if (status == DW_OK) return DW_OK;
    return dw_link_report(why, status, "channel %u: a config cannot be written as text: %s",
                          channel->id, dw_status_string(status));
}

dw_status dw_channel_tell_hello(dw_channel *channel, dw_status about)
{
    unsigned char hello[HELLO_BYTES];
    dw_why why;
    const dw_status status = write_hello(channel, hello, &why);
    if (status != DW_OK) return status;
    return dw_channel_tell(channel, DW_TAG_CONTROL, DW_ENVELOPE_HELLO, about, 0, hello,
                           HELLO_BYTES);
}

static dw_status compare(const dw_channel *channel, const unsigned char *own,
                         const dw_envelope *envelope, dw_why *why)
{
    const unsigned char *peer = envelope->body;
    const char *peer_sends = (const char *)peer + 4, *peer_receives = peer_sends + CONFIG_BYTES;
    const char *own_sends = (const char *)own + 4, *own_receives = own_sends + CONFIG_BYTES;
    if (envelope->body_len != HELLO_BYTES || peer_sends[CONFIG_BYTES - 1] ||
        peer_receives[CONFIG_BYTES - 1]) {
        return dw_link_report(why, DW_ERR_PROTOCOL, "channel %u: the peer's greeting is malformed",
                              channel->id);
    }
    if (peer[0] != DW_FORMAT_MAJOR || peer[1] != DW_FORMAT_MINOR) {
        return dw_link_report(why, DW_ERR_VERSION,
                              "channel %u: the peer writes frames of format %u.%u, this end of "
                              "%d.%d; run the same release at both ends",
                              channel->id, peer[0], peer[1], DW_FORMAT_MAJOR, DW_FORMAT_MINOR);
    }
    const struct {
        int same;
        const char *here, *own, *there, *peer;
    } directions[2] = {{same_config(&channel->send, channel->sends, peer_receives), "sends",
                        own_sends, "receives", peer_receives},
                       {same_config(&channel->recv, channel->receives, peer_sends), "receives",
                        own_receives, "sends", peer_sends}};
    for (int i = 0; i < 2; i++) {
        if (directions[i].same) continue;
        return dw_link_report(
            why, DW_ERR_MISMATCH,
            "channel %u: this end %s '%.70s' but the peer %s '%.70s'; give "
            "both ends the same config",
            channel->id, directions[i].here, directions[i].own[0] ? directions[i].own : "nothing",
            directions[i].there, directions[i].peer[0] ? directions[i].peer : "nothing");
    }
    return DW_OK;
}

static int is_hello(const void *message, size_t len, uint64_t session)
{
    dw_envelope envelope;
    return dw_envelope_read(message, len, session, &envelope) && envelope.kind == DW_ENVELOPE_HELLO;
}

/* Where messages may get lost, ours or the peer's: it is asked for until it comes. What else
 * arrives meanwhile is repeated by a peer that has heard us. */
static dw_status await_hello(dw_channel *channel, uint32_t timeout_ms, void **message, size_t *len)
{
    const uint32_t tag = dw_channel_tag(channel, DW_TAG_CONTROL);
    const int64_t deadline = dw_link_now_ns() + (int64_t)timeout_ms * DW_NS_PER_MS;
    uint32_t wait_ms = channel->link->retry_ms;
    if (wait_ms == 0)
        return dw_link_recv(channel->link, tag,
                            timeout_ms > INT32_MAX ? INT32_MAX : (int)timeout_ms, message, len);
    for (;;) {
        const int64_t left_ms = (deadline - dw_link_now_ns()) / DW_NS_PER_MS;
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

/* Sends our hello and waits for the peer's, which may be there already. */
static dw_status exchange(dw_channel *channel, const unsigned char *hello, uint32_t timeout_ms,
                          void **message, size_t *len, dw_why *why)
{
    const uint32_t tag = dw_channel_tag(channel, DW_TAG_CONTROL);
    dw_status status = dw_link_recv(channel->link, tag, 0, message, len);
    if (status == DW_ERR_ARGUMENT) { /* somebody handles the tag */
        return dw_link_report(why, status, "channel %u is open already on this link", channel->id);
    }
    int has_come = status == DW_OK;
    if (has_come && channel->link->retry_ms > 0 &&
        !is_hello(*message, *len, channel->link->session)) {
        dw_link_release(channel->link, *message);
        has_come = 0;
        status = DW_PENDING;
    }
    if (has_come || status == DW_PENDING) {
        status = dw_channel_tell(channel, DW_TAG_CONTROL, DW_ENVELOPE_HELLO, DW_OK, 0, hello,
                                 HELLO_BYTES);
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

static dw_status greet(dw_channel *channel, uint32_t timeout_ms, dw_why *why)
{
    unsigned char hello[HELLO_BYTES];
    void *message;
    size_t len;
    dw_status status = write_hello(channel, hello, why);
    if (status == DW_OK) status = exchange(channel, hello, timeout_ms, &message, &len, why);
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

/* ---- Open and close -----------------------------------------------------------------------------
 */

static int make_locks(dw_channel *channel)
{
    pthread_mutex_t *all[] = {&channel->encoder_lock, &channel->replies_lock,
                              &channel->decoder_lock, &channel->why_lock};
    size_t made = 0;
    while (made < 4 && pthread_mutex_init(all[made], NULL) == 0) made++;
    pthread_condattr_t monotonic;
    int has_condition = 0;
    if (made == 4 && pthread_condattr_init(&monotonic) == 0) {
        has_condition = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 &&
                        pthread_cond_init(&channel->replied, &monotonic) == 0;
        pthread_condattr_destroy(&monotonic);
    }
    if (has_condition) return 1;
    while (made > 0) pthread_mutex_destroy(all[--made]);
    return 0;
}

static void free_channel(dw_channel *channel)
{
    dw_channel_release_sent(channel);
    dw_channel_release_received(channel);
    dw_encoder_destroy(channel->encoder);
    dw_decoder_destroy(channel->decoder);
    pthread_mutex_destroy(&channel->encoder_lock);
    pthread_mutex_destroy(&channel->replies_lock);
    pthread_mutex_destroy(&channel->decoder_lock);
    pthread_mutex_destroy(&channel->why_lock);
    pthread_cond_destroy(&channel->replied);
    free(channel);
}

static dw_status make_codecs(dw_channel *channel, const dw_channel_config *config, dw_why *why)
{
    dw_status status = DW_OK;
    if (config->send) {
        status = take_config(&channel->send, config->send, why);
        if (status == DW_OK) status = dw_encoder_create(&channel->encoder, &channel->send);
    }
    if (status == DW_OK && config->recv) {
        status = take_config(&channel->recv, config->recv, why);
        if (status == DW_OK) status = dw_decoder_create(&channel->decoder, &channel->recv);
    }
    channel->sends = channel->encoder != NULL;
    channel->receives = channel->decoder != NULL;
    if (status != DW_OK && !why->text[0]) {
        dw_link_report(why, status, "channel %u: %s", channel->id, dw_status_string(status));
    }
    return status;
}

dw_status dw_channel_open(dw_channel **channel, dw_link *link, const dw_channel_config *config,
                          dw_why *why)
{
    dw_why own_why;
    if (!why) why = &own_why;
    *why = (dw_why){.text = "", .offset = -1};
    if (!channel || !link || !config ||
        config->struct_size < offsetof(dw_channel_config, open_timeout_ms) ||
        config->struct_size > sizeof *config) {
        return dw_link_report(why, DW_ERR_ARGUMENT,
                              "dw_channel_open needs a channel, a link, and a config with "
                              "struct_size = sizeof(dw_channel_config)");
    }
    *channel = NULL;
    if (config->id < 1 || config->id > 0xffff) {
        return dw_link_report(why, DW_ERR_ARGUMENT, "%u is no channel id; use 1 to 65535",
                              config->id);
    }
    if (!config->send && !config->recv) {
        return dw_link_report(why, DW_ERR_ARGUMENT,
                              "channel %u: name a send config, a recv config, or both", config->id);
    }
    dw_channel *made = calloc(1, sizeof *made);
    if (!made || !make_locks(made)) {
        free(made);
        return dw_link_report(why, DW_ERR_NO_MEMORY, "channel %u: no memory", config->id);
    }
    made->link = link;
    made->id = config->id;
    dw_status status = make_codecs(made, config, why);
    const uint32_t timeout_ms = config->struct_size < sizeof *config || config->open_timeout_ms == 0
                                    ? 60000
                                    : config->open_timeout_ms;
    if (status == DW_OK) status = greet(made, timeout_ms, why);
    made->heard_ns = dw_link_now_ns();
    made->patience_ms = link->retry_ms;
    if (status == DW_OK) {
        status = dw_link_handle(link, dw_channel_tag(made, DW_TAG_CONTROL), dw_channel_take_control,
                                made);
        if (status != DW_OK)
            dw_link_report(why, status, "channel %u: %s", made->id, dw_link_why(link));
    }
    if (status != DW_OK) {
        free_channel(made);
        return status;
    }
    *channel = made;
    return DW_OK;
}

void dw_channel_close(dw_channel *channel)
{
    if (!channel || !dw_owner_is_us(&channel->link->owner)) return;
    /* What the peer has not taken yet it may still ask for anew. */
    if (channel->sends && channel->send.replies != DW_REPLIES_NEVER)
        dw_channel_wait_acknowledged(channel);
    if (channel->sends) {
        dw_channel_tell(channel, DW_TAG_FRAMES, DW_ENVELOPE_CLOSED, DW_OK, 0, NULL, 0);
        dw_channel_tell(channel, DW_TAG_RESENT, DW_ENVELOPE_CLOSED, DW_OK, 0, NULL, 0);
    }
    dw_channel_tell(channel, DW_TAG_CONTROL, DW_ENVELOPE_CLOSED, DW_OK, 0, NULL, 0);
    dw_link_handle(channel->link, dw_channel_tag(channel, DW_TAG_CONTROL), NULL, NULL);
    free_channel(channel);
}
