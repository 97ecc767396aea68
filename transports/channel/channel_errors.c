/* SPDX-License-Identifier: Apache-2.0
 * channel_errors.c - the last error of each direction of a channel, for the program. */
#include "channel/channel.h"

dw_status dw_channel_report(dw_channel_errors *errors, int direction, dw_status status,
                            const char *sentence)
{
    pthread_mutex_lock(&errors->lock);
    dw_say(&errors->why[direction], status, "channel %u: %s", errors->port->id,
           sentence && sentence[0] ? sentence : dw_status_string(status));
    errors->last = direction;
    pthread_mutex_unlock(&errors->lock);
    return status;
}

dw_status dw_channel_report_link(dw_channel_errors *errors, int direction, dw_status status)
{
    return dw_channel_report(errors, direction, status, dw_link_why(errors->port->link));
}

const char *dw_channel_why(dw_channel *channel)
{
    if (!channel) return "";
    if (!dw_channel_is_ours(channel)) return dw_link_why(channel->port.link);
    pthread_mutex_lock(&channel->errors.lock);
    const char *text = channel->errors.why[channel->errors.last].text;
    pthread_mutex_unlock(&channel->errors.lock);
    return text;
}
