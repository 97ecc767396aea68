/* SPDX-License-Identifier: Apache-2.0
 * channel_open.c - opening and closing a channel. */
#include "channel/channel.h"

/* ---- Open and close -------------------------------------------------------------------------- */

static bool make_locks(dw_channel *channel)
{
    pthread_mutex_t *all[] = {&channel->answers.encoder_lock, &channel->answers.queue.lock,
                              &channel->receiver.decoder_lock, &channel->errors.lock};
    size_t made = 0;
    while (made < 4 && pthread_mutex_init(all[made], NULL) == 0) made++;
    pthread_condattr_t monotonic;
    bool has_condition = false;
    if (made == 4 && pthread_condattr_init(&monotonic) == 0) {
        has_condition = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 &&
                        pthread_cond_init(&channel->answers.queue.changed, &monotonic) == 0;
        pthread_condattr_destroy(&monotonic);
    }
    if (has_condition) return true;
    while (made > 0) pthread_mutex_destroy(all[--made]);
    return false;
}

/* Each part gets pointers to those that it calls. */
static void connect_parts(dw_channel *channel, dw_link *link, uint32_t id)
{
    channel->port = (dw_channel_port){.link = link, .id = id};
    channel->errors.port = channel->answers.port = channel->receiver.port = &channel->port;
    channel->answers.codecs = channel->receiver.codecs = &channel->codecs;
    channel->answers.kept.link = link;
    channel->receiver.errors = &channel->errors;
}

static void free_channel(dw_channel *channel)
{
    dw_channel_answers_release(&channel->answers);
    dw_channel_release_received(&channel->receiver);
    dw_channel_destroy_codecs(&channel->codecs);
    pthread_mutex_destroy(&channel->answers.encoder_lock);
    pthread_mutex_destroy(&channel->answers.queue.lock);
    pthread_mutex_destroy(&channel->receiver.decoder_lock);
    pthread_mutex_destroy(&channel->errors.lock);
    pthread_cond_destroy(&channel->answers.queue.changed);
    dw_mem_release(&channel->port.link->settings.allocator, channel, sizeof *channel);
}

static dw_status set_handler(dw_channel *channel, dw_why *why)
{
    dw_link *link = channel->port.link;
    dw_status status = dw_link_handle(link, dw_channel_tag(&channel->port, DW_TAG_CONTROL),
                                      dw_channel_take_control, &channel->answers);
    if (status == DW_OK) return DW_OK;
    return dw_say(why, status, "channel %u: %s", channel->port.id, dw_link_why(link));
}

dw_status dw_channel_open(dw_channel **channel, dw_link *link, const dw_channel_config *given,
                          dw_why *why)
{
    DW_UNCANCELLED;
    dw_why own_why;
    if (!why) why = &own_why;
    *why = (dw_why){.text = "", .offset = -1};
    if (!channel || !link || !given) {
        return dw_say(why, DW_ERR_ARGUMENT, "dw_channel_open needs a channel, a link and a config");
    }
    *channel = NULL;
    dw_channel_config full;
    const dw_channel_config *config = &full;
    dw_status status = dw_take_asked(&full, sizeof full, given, "dw_channel_config", why);
    if (status != DW_OK) return status;
    if (config->id < 1 || config->id > 0xffff) {
        return dw_say(why, DW_ERR_ARGUMENT, "%u is not a valid channel id; use 1 to 65535",
                      config->id);
    }
    if (!config->send && !config->recv) {
        return dw_say(why, DW_ERR_ARGUMENT, "channel %u: set a send config, a recv config, or both",
                      config->id);
    }
    dw_channel *made = dw_mem_allocate_zeroed(&link->settings.allocator, 1, sizeof *made);
    if (!made || !make_locks(made)) {
        dw_mem_release(&link->settings.allocator, made, sizeof *made);
        return dw_say(why, DW_ERR_NO_MEMORY, "channel %u: no memory", config->id);
    }
    connect_parts(made, link, config->id);
    status = dw_channel_make_codecs(&made->codecs, &made->port, config, why);
    uint32_t timeout_ms = config->open_timeout_ms == 0 ? 60000 : config->open_timeout_ms;
    if (status == DW_OK) status = dw_channel_handshake(&made->port, &made->codecs, timeout_ms, why);
    dw_channel_begin_receiving(&made->receiver);
    if (status == DW_OK) status = set_handler(made, why);
    if (status != DW_OK) {
        free_channel(made);
        return status;
    }
    *channel = made;
    return DW_OK;
}

void dw_channel_close(dw_channel *channel)
{
    DW_UNCANCELLED;
    if (!dw_channel_is_ours(channel)) return;
    const dw_channel_port *port = &channel->port;
    const dw_channel_codecs *codecs = &channel->codecs;
    /* The peer may still request frames that it has not acknowledged. */
    if (codecs->encoder && codecs->send.replies != DW_REPLIES_NEVER)
        (void)dw_channel_wait_acknowledged(channel);
    if (codecs->encoder) {
        dw_channel_send_control(port, DW_TAG_FRAMES, DW_ENVELOPE_CLOSED, DW_OK, 0, NULL, 0);
        dw_channel_send_control(port, DW_TAG_RESENT, DW_ENVELOPE_CLOSED, DW_OK, 0, NULL, 0);
    }
    dw_channel_send_control(port, DW_TAG_CONTROL, DW_ENVELOPE_CLOSED, DW_OK, 0, NULL, 0);
    dw_link_handle(port->link, dw_channel_tag(port, DW_TAG_CONTROL), NULL, NULL);
    dw_link_handle(port->link, dw_channel_tag(port, DW_TAG_COMPARE), NULL, NULL);
    free_channel(channel);
}
