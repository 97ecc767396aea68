/* SPDX-License-Identifier: Apache-2.0
 * channel_saved.c - saves and restores the state of the encoder and of the decoder. */
#include "channel/saved.h"

#include "channel/channel.h"

static bool has_end(const dw_channel *channel, int is_sent)
{
    return dw_channel_is_ours(channel) &&
           (is_sent ? channel->codecs.encoder != NULL : channel->codecs.decoder != NULL);
}

void dw_channel_lock_end(dw_channel *channel, int is_sent)
{
    if (is_sent)
        dw_channel_answers_lock(&channel->answers);
    else
        pthread_mutex_lock(&channel->receiver.decoder_lock);
}

dw_status dw_channel_unlock_end(dw_channel *channel, int is_sent, dw_status status)
{
    if (status != DW_OK)
        dw_channel_report(&channel->errors, is_sent ? DW_WHY_SEND : DW_WHY_RECV, status,
                          is_sent ? dw_encoder_why(channel->codecs.encoder)
                                  : dw_decoder_why(channel->codecs.decoder));
    if (is_sent)
        dw_channel_answers_unlock(&channel->answers);
    else
        pthread_mutex_unlock(&channel->receiver.decoder_lock);
    return status;
}

/* Both ends may differ, so nothing is saved. */
static dw_status not_acknowledged(dw_channel *channel)
{
    dw_channel_errors *errors = &channel->errors;
    if (dw_control_queue_is_closed(&channel->answers.queue))
        return dw_channel_report(errors, DW_WHY_SEND, DW_ERR_PEER,
                                 "the peer closed its end of this channel");
    if (dw_link_why(channel->port.link)[0])
        return dw_channel_report(errors, DW_WHY_SEND, DW_ERR_PEER, dw_link_why(channel->port.link));
    return dw_channel_report(errors, DW_WHY_SEND, DW_ERR_TIMEOUT,
                             "the peer did not acknowledge all frames within close_timeout_ms");
}

dw_status dw_channel_export(dw_channel *channel, int is_sent, dw_saved_visit *visit, void *context)
{
    DW_UNCANCELLED;
    if (!has_end(channel, is_sent) || !visit) return DW_ERR_ARGUMENT;
    dw_channel_codecs *codecs = &channel->codecs;
    if (is_sent && codecs->send.replies != DW_REPLIES_NEVER &&
        !dw_channel_wait_acknowledged(channel))
        return not_acknowledged(channel);
    dw_channel_lock_end(channel, is_sent);
    return dw_channel_unlock_end(channel, is_sent,
                                 is_sent
                                     ? dw_encoder_export(codecs->encoder, NULL, visit, context)
                                     : dw_decoder_export(codecs->decoder, NULL, visit, context));
}

dw_status dw_channel_import(dw_channel *channel, int is_sent, const void *saved, size_t len)
{
    DW_UNCANCELLED;
    if (!has_end(channel, is_sent)) return DW_ERR_ARGUMENT;
    dw_channel_codecs *codecs = &channel->codecs;
    dw_channel_lock_end(channel, is_sent);
    return dw_channel_unlock_end(channel, is_sent,
                                 is_sent ? dw_encoder_import(codecs->encoder, saved, len)
                                         : dw_decoder_import(codecs->decoder, saved, len));
}
