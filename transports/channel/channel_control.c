/* SPDX-License-Identifier: Apache-2.0
 * channel_control.c - sends messages of a channel to the peer, and keeps its last error for the
 * program. */
#include <string.h>

#include "channel/channel.h"

dw_status dw_channel_send_control(dw_channel *channel, uint32_t which, dw_envelope_kind kind,
                                  dw_status about, uint64_t sequence, const void *body,
                                  size_t body_len)
{
    void *room;
    dw_status status = dw_link_send_begin_always(channel->link, dw_channel_tag(channel, which),
                                                 DW_ENVELOPE_BYTES + body_len, &room);
    if (status != DW_OK) return status;
    if (body_len > 0) memcpy((unsigned char *)room + DW_ENVELOPE_BYTES, body, body_len);
    dw_envelope_seal(room, channel->link->settings.session, kind, about, sequence, body_len);
    return dw_link_send_end(channel->link, room, DW_ENVELOPE_BYTES + body_len);
}

dw_status dw_channel_report(dw_channel *channel, int direction, dw_status status,
                            const char *sentence)
{
    pthread_mutex_lock(&channel->why_lock);
    dw_say(&channel->why[direction], status, "channel %u: %s", channel->id,
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
