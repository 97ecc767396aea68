/* SPDX-License-Identifier: Apache-2.0
 * channel_open.c - opening and closing a channel. */
#include "channel/channel.h"

/* ---- Open and close -------------------------------------------------------------------------- */

static bool make_locks(dw_channel *channel)
{
    pthread_mutex_t *all[] = {&channel->encoder_lock, &channel->replies_lock,
                              &channel->decoder_lock, &channel->why_lock};
    size_t made = 0;
    while (made < 4 && pthread_mutex_init(all[made], NULL) == 0) made++;
    pthread_condattr_t monotonic;
    bool has_condition = false;
    if (made == 4 && pthread_condattr_init(&monotonic) == 0) {
        has_condition = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 &&
                        pthread_cond_init(&channel->replied, &monotonic) == 0;
        pthread_condattr_destroy(&monotonic);
    }
    if (has_condition) return true;
    while (made > 0) pthread_mutex_destroy(all[--made]);
    return false;
}

static void free_channel(dw_channel *channel)
{
    dw_channel_release_sent(channel);
    dw_channel_release_received(channel);
    dw_channel_device_release(channel);
    dw_channel_destroy_codecs(channel);
    pthread_mutex_destroy(&channel->encoder_lock);
    pthread_mutex_destroy(&channel->replies_lock);
    pthread_mutex_destroy(&channel->decoder_lock);
    pthread_mutex_destroy(&channel->why_lock);
    pthread_cond_destroy(&channel->replied);
    dw_mem_release(&channel->link->allocator, channel, sizeof *channel);
}

static dw_status set_handler(dw_channel *channel, dw_why *why)
{
    dw_status status = dw_link_handle(channel->link, dw_channel_tag(channel, DW_TAG_CONTROL),
                                      dw_channel_take_control, channel);
    if (status == DW_OK) return DW_OK;
    return dw_say(why, status, "channel %u: %s", channel->id, dw_link_why(channel->link));
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
    dw_channel *made = dw_mem_allocate_zeroed(&link->allocator, 1, sizeof *made);
    if (!made || !make_locks(made)) {
        dw_mem_release(&link->allocator, made, sizeof *made);
        return dw_say(why, DW_ERR_NO_MEMORY, "channel %u: no memory", config->id);
    }
    made->link = link;
    made->id = config->id;
    made->on_frame = config->on_frame;
    made->frame_context = config->frame_context;
    status = dw_channel_make_codecs(made, config, why);
    uint32_t timeout_ms = config->open_timeout_ms == 0 ? 60000 : config->open_timeout_ms;
    if (status == DW_OK) status = dw_channel_greet(made, timeout_ms, why);
    made->heard_ns = dw_now_ns();
    made->patience_ms = link->retry_ms;
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
    if (!channel || !dw_owner_is_us(&channel->link->owner)) return;
    /* The peer may still request frames that it has not acknowledged. */
    if (channel->encoder && channel->send.replies != DW_REPLIES_NEVER)
        dw_channel_wait_acknowledged(channel);
    if (channel->encoder) {
        dw_channel_tell(channel, DW_TAG_FRAMES, DW_ENVELOPE_CLOSED, DW_OK, 0, NULL, 0);
        dw_channel_tell(channel, DW_TAG_RESENT, DW_ENVELOPE_CLOSED, DW_OK, 0, NULL, 0);
    }
    dw_channel_tell(channel, DW_TAG_CONTROL, DW_ENVELOPE_CLOSED, DW_OK, 0, NULL, 0);
    dw_link_handle(channel->link, dw_channel_tag(channel, DW_TAG_CONTROL), NULL, NULL);
    free_channel(channel);
}
