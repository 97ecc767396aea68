/* SPDX-License-Identifier: Apache-2.0
 * channel_codecs.c - creates and destroys the encoder and the decoder of a channel. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "channel/channel.h"

/* Writes the sentence `said` to *why, with the channel's id in front of it, unless status is OK.
 * Returns status. */
static dw_status explain(const dw_channel_port *port, dw_status status, const dw_why *said,
                         dw_why *why)
{
    if (status == DW_OK) return DW_OK;
    return dw_say(why, status, "channel %u: %.200s", port->id,
                  said->text[0] ? said->text : dw_status_string(status));
}

uint64_t dw_channel_incarnation(const dw_channel_port *port, uint64_t given)
{
    unsigned char bytes[16];
    if (given == 0) return 0;
    dw_put64(bytes, given);
    dw_put32(bytes + 8, port->id);
    dw_put32(bytes + 12, port->link->settings.listens);
    uint64_t own = XXH3_64bits(bytes, sizeof bytes);
    return own ? own : 1;
}

static dw_status make_encoder(dw_channel_codecs *codecs, const dw_channel_port *port,
                              const dw_config *config, const dw_host *host, dw_why *why)
{
    dw_why said = {.text = ""};
    dw_status status = dw_take_asked(&codecs->send, sizeof codecs->send, config, "dw_config", why);
    if (status != DW_OK) return status;
    dw_config own = codecs->send;
    own.incarnation = dw_channel_incarnation(port, own.incarnation);
    return explain(port, dw_encoder_create(&codecs->encoder, &own, host, &said), &said, why);
}

static dw_status make_decoder(dw_channel_codecs *codecs, const dw_channel_port *port,
                              const dw_config *config, const dw_host *host, dw_why *why)
{
    dw_why said = {.text = ""};
    dw_status status = dw_take_asked(&codecs->recv, sizeof codecs->recv, config, "dw_config", why);
    if (status != DW_OK) return status;
    status = dw_decoder_create(&codecs->decoder, &codecs->recv, host, &said);
    return explain(port, status, &said, why);
}

dw_status dw_channel_make_codecs(dw_channel_codecs *codecs, const dw_channel_port *port,
                                 const dw_channel_config *config, dw_why *why)
{
    dw_host host = {.struct_size = sizeof host};
    dw_status status = DW_OK;
    codecs->on_frame = config->on_frame;
    codecs->frame_context = config->frame_context;
    if (config->host) status = dw_take_asked(&host, sizeof host, config->host, "dw_host", why);
    host.struct_size = sizeof host;
    /* Without a clock the counter busy_ns would stay 0. */
    if (!host.now_ns) host.now_ns = dw_host_now_ns;
    if (status == DW_OK && config->send)
        status = make_encoder(codecs, port, config->send, &host, why);
    if (status == DW_OK && config->recv)
        status = make_decoder(codecs, port, config->recv, &host, why);
    if (status != DW_OK || !host.cuda) return status;
    return dw_channel_device_open(&codecs->device, host.cuda, codecs->encoder != NULL, why);
}

void dw_channel_destroy_codecs(dw_channel_codecs *codecs)
{
    dw_channel_device_release(&codecs->device);
    dw_encoder_destroy(codecs->encoder);
    dw_decoder_destroy(codecs->decoder);
}

/* ---- Using them ------------------------------------------------------------------------------ */

/* In main memory the sentences are those of encoder and decoder. */
static dw_status say(dw_why *why, dw_status status, const char *sentence)
{
    return status == DW_OK ? DW_OK : dw_say(why, status, "%s", sentence);
}

dw_status dw_channel_encode(dw_channel_codecs *codecs, const dw_key *keys,
                            const dw_channel_tensor *x, void *frame, size_t cap, size_t *len,
                            dw_why *why)
{
    dw_encoder *encoder = codecs->encoder;
    if (codecs->device.cuda)
        return dw_channel_device_encode(&codecs->device, encoder, keys, x, frame, cap, len, why);
    dw_status status = dw_encode(encoder, keys, x->view, NULL, frame, cap, len);
    return say(why, status, dw_encoder_why(encoder));
}

dw_status dw_channel_resync(dw_channel_codecs *codecs, const dw_key *keys, uint32_t n, void *frame,
                            size_t cap, size_t *len, dw_why *why)
{
    dw_encoder *encoder = codecs->encoder;
    if (codecs->device.cuda)
        return dw_channel_device_resync(&codecs->device, encoder, keys, n, frame, cap, len, why);
    dw_status status = dw_encoder_resync(encoder, keys, n, frame, cap, len);
    return say(why, status, dw_encoder_why(encoder));
}

dw_status dw_channel_decode(dw_channel_codecs *codecs, const void *frame, size_t len,
                            const dw_channel_tensor *y, void *reply, size_t reply_cap,
                            size_t *reply_len, dw_why *why)
{
    dw_decoder *decoder = codecs->decoder;
    if (codecs->device.cuda)
        return dw_channel_device_decode(&codecs->device, decoder, frame, len, y, reply, reply_cap,
                                        reply_len, why);
    dw_status status = dw_decode(decoder, frame, len, y->view, NULL, reply, reply_cap, reply_len);
    return say(why, status, dw_decoder_why(decoder));
}
