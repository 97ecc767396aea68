/* SPDX-License-Identifier: Apache-2.0
 * channel_codecs.c - creates and destroys the encoder and the decoder of a channel. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "channel/channel.h"

/* Writes the sentence `said` to *why, with the channel's id in front of it, unless status is OK.
 * Returns status. */
static dw_status explain(const dw_channel *channel, dw_status status, const dw_why *said,
                         dw_why *why)
{
    if (status == DW_OK) return DW_OK;
    return dw_say(why, status, "channel %u: %.200s", channel->id,
                  said->text[0] ? said->text : dw_status_string(status));
}

uint64_t dw_channel_incarnation(const dw_channel *channel, uint64_t given)
{
    unsigned char bytes[16];
    if (given == 0) return 0;
    dw_put64(bytes, given);
    dw_put32(bytes + 8, channel->id);
    dw_put32(bytes + 12, channel->link->listens);
    uint64_t own = XXH3_64bits(bytes, sizeof bytes);
    return own ? own : 1;
}

static dw_status make_encoder(dw_channel *channel, const dw_config *config, const dw_host *host,
                              dw_why *why)
{
    dw_why said = {.text = ""};
    dw_status status =
        dw_take_asked(&channel->send, sizeof channel->send, config, "dw_config", why);
    if (status != DW_OK) return status;
    dw_config own = channel->send;
    own.incarnation = dw_channel_incarnation(channel, own.incarnation);
    return explain(channel, dw_encoder_create(&channel->encoder, &own, host, &said), &said, why);
}

static dw_status make_decoder(dw_channel *channel, const dw_config *config, const dw_host *host,
                              dw_why *why)
{
    dw_why said = {.text = ""};
    dw_status status =
        dw_take_asked(&channel->recv, sizeof channel->recv, config, "dw_config", why);
    if (status != DW_OK) return status;
    status = dw_decoder_create(&channel->decoder, &channel->recv, host, &said);
    return explain(channel, status, &said, why);
}

dw_status dw_channel_make_codecs(dw_channel *channel, const dw_channel_config *config, dw_why *why)
{
    dw_host host = {.struct_size = sizeof host};
    dw_status status = DW_OK;
    if (config->host) status = dw_take_asked(&host, sizeof host, config->host, "dw_host", why);
    host.struct_size = sizeof host;
    /* Without a clock the counter busy_ns would stay 0. */
    if (!host.now_ns) host.now_ns = dw_host_now_ns;
    channel->cuda = host.cuda;
    if (status == DW_OK && config->send) status = make_encoder(channel, config->send, &host, why);
    if (status == DW_OK && config->recv) status = make_decoder(channel, config->recv, &host, why);
    if (status == DW_OK && channel->cuda) status = dw_channel_device_open(channel, why);
    return status;
}

void dw_channel_destroy_codecs(dw_channel *channel)
{
    dw_encoder_destroy(channel->encoder);
    dw_decoder_destroy(channel->decoder);
}
