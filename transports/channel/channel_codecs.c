/* SPDX-License-Identifier: Apache-2.0
 * channel_codecs.c - creates and destroys the encoders and decoders of a channel: one for each
 * config of a direction. The configs of a direction have the same numbers at both ends. */
#include <math.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "channel/channel.h"

static uint64_t monotonic_ns(void *context)
{
    (void)context;
    return (uint64_t)dw_link_now_ns();
}

static dw_status take_config(dw_config *own, const dw_config *config, dw_why *why)
{
    dw_status status = dw_take_asked(own, sizeof *own, config, "dw_config", why);
    if (status != DW_OK) return status;
    /* Without a clock the counter busy_ns would stay 0. */
    if (!own->now_ns) own->now_ns = monotonic_ns;
    return DW_OK;
}

/* ---- One config ------------------------------------------------------------------------------ */

/* Writes the sentence `said` to *why, with the channel's id in front of it, unless status is OK.
 * Returns status. */
static dw_status explain(const dw_channel *channel, dw_status status, const dw_why *said,
                         dw_why *why)
{
    if (status == DW_OK) return DW_OK;
    return dw_link_report(why, status, "channel %u: %.200s", channel->id,
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

/* Creates an encoder and appends it to channel->send. */
static dw_status make_encoder(dw_channel *channel, const dw_config *config, dw_cuda_place place,
                              dw_why *why)
{
    dw_why said = {.text = ""};
    dw_channel_codec *codec = &channel->send[channel->sends];
    dw_status status = take_config(&codec->config, config, why);
    if (status != DW_OK) return status;
    dw_config own = codec->config;
    own.incarnation = dw_channel_incarnation(channel, own.incarnation);
    status = channel->cuda
                 ? dw_encoder_create_cuda(&codec->encoder, &own, channel->cuda, place, &said)
                 : dw_encoder_create_why(&codec->encoder, &own, &said);
    channel->sends += status == DW_OK;
    return explain(channel, status, &said, why);
}

/* Creates a decoder and appends it to channel->recv. */
static dw_status make_decoder(dw_channel *channel, const dw_config *config, dw_cuda_place place,
                              dw_why *why)
{
    dw_why said = {.text = ""};
    dw_channel_codec *codec = &channel->recv[channel->receives];
    dw_status status = take_config(&codec->config, config, why);
    if (status != DW_OK) return status;
    status = channel->cuda ? dw_decoder_create_cuda(&codec->decoder, &codec->config, channel->cuda,
                                                    place, &said)
                           : dw_decoder_create_why(&codec->decoder, &codec->config, &said);
    channel->receives += status == DW_OK;
    return explain(channel, status, &said, why);
}

/* ---- Several configs ------------------------------------------------------------------------- */

/* Copies *given to *own and checks it, except for the candidates themselves. */
static dw_status take_auto(const dw_channel *channel, dw_channel_auto *own,
                           const dw_channel_auto *given, dw_why *why)
{
    dw_status status = dw_take_asked(own, sizeof *own, given, "dw_channel_auto", why);
    if (status != DW_OK) return status;
    if (channel->cuda) {
        return dw_link_report(why, DW_ERR_UNSUPPORTED,
                              "channel %u: a channel on a GPU takes one config per direction; set "
                              "send and recv, not auto_send and auto_recv",
                              channel->id);
    }
    bool all_there = own->candidates != NULL && own->n >= 2 && own->n <= DW_CHOICE_MOST;
    for (uint32_t i = 0; all_there && i < own->n; i++) all_there = own->candidates[i] != NULL;
    if (!all_there) {
        return dw_link_report(why, DW_ERR_ARGUMENT,
                              "channel %u: dw_channel_auto needs 2 to %d candidates, and %u were "
                              "given, or one of them is NULL",
                              channel->id, DW_CHOICE_MOST, own->n);
    }
    if (!(own->compute_s >= 0) || isinf(own->compute_s)) {
        return dw_link_report(why, DW_ERR_ARGUMENT,
                              "channel %u: compute_s is not a time in seconds; 0 lets the channel "
                              "measure it",
                              channel->id);
    }
    return DW_OK;
}

/* Checks that config number `at` has replies = always and differs from the configs with smaller
 * numbers. */
static dw_status check_candidate(const dw_channel *channel, const dw_channel_codec *codecs,
                                 uint32_t at, dw_why *why)
{
    char text[DW_CONFIG_TEXT_BYTES], other[DW_CONFIG_TEXT_BYTES];
    const dw_config *config = &codecs[at].config;
    dw_status status = dw_config_format(config, text, sizeof text);
    if (status == DW_OK && config->replies == DW_REPLIES_NEVER) {
        return dw_link_report(why, DW_ERR_CONFIG,
                              "channel %u: candidate %u, '%.80s', has replies=never; the choice "
                              "needs replies, which tell how fast the link is",
                              channel->id, at + 1, text);
    }
    for (uint32_t i = 0; i < at && status == DW_OK; i++) {
        status = dw_config_format(&codecs[i].config, other, sizeof other);
        if (status == DW_OK && strcmp(text, other) == 0) {
            return dw_link_report(why, DW_ERR_CONFIG,
                                  "channel %u: candidates %u and %u are the same, '%.80s'; leave "
                                  "one out",
                                  channel->id, i + 1, at + 1, text);
        }
        if (config->incarnation && config->incarnation == codecs[i].config.incarnation) {
            return dw_link_report(why, DW_ERR_CONFIG,
                                  "channel %u: candidates %u and %u have the same incarnation; "
                                  "leave it out, and each gets one of its own",
                                  channel->id, i + 1, at + 1);
        }
    }
    return status;
}

static dw_status make_senders(dw_channel *channel, const dw_channel_auto *given, dw_why *why)
{
    dw_channel_auto own;
    dw_status status = take_auto(channel, &own, given, why);
    for (uint32_t i = 0; status == DW_OK && i < own.n; i++) {
        status = make_encoder(channel, own.candidates[i], 0, why);
        if (status == DW_OK) status = check_candidate(channel, channel->send, i, why);
    }
    if (status != DW_OK) return status;
    channel->log = own.log;
    channel->log_context = own.log_context;
    dw_choice_begin(&channel->choice, own.n, own.micro_batches, own.compute_s);
    return DW_OK;
}

static dw_status make_receivers(dw_channel *channel, const dw_channel_auto *given, dw_why *why)
{
    dw_channel_auto own;
    dw_status status = take_auto(channel, &own, given, why);
    for (uint32_t i = 0; status == DW_OK && i < own.n; i++) {
        status = make_decoder(channel, own.candidates[i], 0, why);
        if (status == DW_OK) status = check_candidate(channel, channel->recv, i, why);
    }
    return status;
}

/* ---- All configs ----------------------------------------------------------------------------- */

dw_status dw_channel_make_codecs(dw_channel *channel, const dw_channel_config *config, dw_why *why)
{
    dw_status status = DW_OK;
    dw_cuda_place place = config->place ? config->place : DW_CUDA_DEVICE;
    channel->cuda = config->cuda;
    if ((config->send && config->auto_send) || (config->recv && config->auto_recv)) {
        return dw_link_report(why, DW_ERR_ARGUMENT,
                              "channel %u: one direction has both a config and several to choose "
                              "from; set send or auto_send, and recv or auto_recv",
                              channel->id);
    }
    if (config->send) status = make_encoder(channel, config->send, place, why);
    if (config->auto_send) status = make_senders(channel, config->auto_send, why);
    if (status == DW_OK && config->recv) status = make_decoder(channel, config->recv, place, why);
    if (status == DW_OK && config->auto_recv)
        status = make_receivers(channel, config->auto_recv, why);
    if (status == DW_OK && channel->cuda) status = dw_channel_device_open(channel, why);
    return status;
}

void dw_channel_destroy_codecs(dw_channel *channel)
{
    for (uint32_t i = 0; i < channel->sends; i++) dw_encoder_destroy(channel->send[i].encoder);
    for (uint32_t i = 0; i < channel->receives; i++) dw_decoder_destroy(channel->recv[i].decoder);
}

/* ---- Counters -------------------------------------------------------------------------------- */

/* dw_counters consists of struct_size, then 64-bit integers, then doubles. So two counters can be
 * added as two arrays. */
enum { AT_WHOLE = offsetof(dw_counters, frames), AT_FRACTIONS = offsetof(dw_counters, x_square) };
enum {
    WHOLE_NUMBERS = (AT_FRACTIONS - AT_WHOLE) / 8,
    FRACTIONS = (sizeof(dw_counters) - AT_FRACTIONS) / 8
};
_Static_assert(AT_WHOLE == 8 && offsetof(dw_counters, busy_ns) == 8 * WHOLE_NUMBERS &&
                   offsetof(dw_counters, error_square) == AT_FRACTIONS + 8 * (FRACTIONS - 1),
               "dw_counters has another layout");

dw_counters dw_channel_count(const dw_channel_codec *codecs, uint32_t n)
{
    uint64_t whole[WHOLE_NUMBERS] = {0}, more[WHOLE_NUMBERS];
    double parts[FRACTIONS] = {0}, further[FRACTIONS];
    dw_counters counters = {.struct_size = sizeof counters};
    for (uint32_t i = 0; i < n; i++) {
        if (codecs[i].encoder)
            (void)dw_encoder_counters(codecs[i].encoder, &counters);
        else
            (void)dw_decoder_counters(codecs[i].decoder, &counters);
        memcpy(more, (char *)&counters + AT_WHOLE, sizeof more);
        memcpy(further, (char *)&counters + AT_FRACTIONS, sizeof further);
        for (int k = 0; k < WHOLE_NUMBERS; k++) whole[k] += more[k];
        for (int k = 0; k < FRACTIONS; k++) parts[k] += further[k];
    }
    memcpy((char *)&counters + AT_WHOLE, whole, sizeof whole);
    memcpy((char *)&counters + AT_FRACTIONS, parts, sizeof parts);
    return counters;
}
