/* SPDX-License-Identifier: Apache-2.0
 * channel_saved.c - saves and restores the state of the encoder and of the decoder. */
#include "channel/saved.h"

#include "channel/channel.h"

static bool has_end(const dw_channel *channel, int is_sent)
{
    return channel && dw_owner_is_us(&channel->link->owner) &&
           (is_sent ? channel->encoder != NULL : channel->decoder != NULL);
}

static dw_status report(dw_channel *channel, int is_sent, dw_status status)
{
    if (status == DW_OK) return DW_OK;
    return dw_channel_report(channel, is_sent ? DW_WHY_SEND : DW_WHY_RECV, status,
                             is_sent ? dw_encoder_why(channel->encoder)
                                     : dw_decoder_why(channel->decoder));
}

dw_status dw_channel_export_all(dw_channel *channel, int is_sent, dw_saved_visit *visit,
                                void *context)
{
    DW_UNCANCELLED;
    if (!has_end(channel, is_sent) || !visit) return DW_ERR_ARGUMENT;
    if (is_sent && channel->send.replies != DW_REPLIES_NEVER) dw_channel_wait_acknowledged(channel);
    pthread_mutex_t *lock = is_sent ? &channel->encoder_lock : &channel->decoder_lock;
    pthread_mutex_lock(lock);
    dw_status status = is_sent ? dw_encoder_export_all(channel->encoder, visit, context)
                               : dw_decoder_export_all(channel->decoder, visit, context);
    report(channel, is_sent, status);
    pthread_mutex_unlock(lock);
    if (is_sent) dw_channel_answer_if_free(channel);
    return status;
}

dw_status dw_channel_import(dw_channel *channel, int is_sent, const void *saved, size_t len)
{
    DW_UNCANCELLED;
    if (!has_end(channel, is_sent)) return DW_ERR_ARGUMENT;
    pthread_mutex_t *lock = is_sent ? &channel->encoder_lock : &channel->decoder_lock;
    pthread_mutex_lock(lock);
    dw_status status = is_sent ? dw_encoder_import(channel->encoder, saved, len)
                               : dw_decoder_import(channel->decoder, saved, len);
    report(channel, is_sent, status);
    pthread_mutex_unlock(lock);
    if (is_sent) dw_channel_answer_if_free(channel);
    return status;
}
