/* SPDX-License-Identifier: Apache-2.0
 * channel_errors.c - the last error of each direction of a channel, for the program. */
#include "channel/channel.h"

dw_status dw_channel_report(dw_channel_errors *errors, int direction, dw_status status,
                            const char *sentence)
{
    pthread_mutex_lock(&errors->lock);
    dw_say(&errors->why[direction], status, "channel %u: %s", errors->port->id,
           sentence && sentence[0] ? sentence : dw_status_string(status));
    errors->of[direction] = pthread_self();
    errors->last = direction;
    pthread_mutex_unlock(&errors->lock);
    return status;
}

dw_status dw_channel_report_link(dw_channel_errors *errors, int direction, dw_status status)
{
    return dw_channel_report(errors, direction, status, dw_link_why(errors->port->link));
}

/* Another thread may use the other direction, so each has a copy: of its own error, if it was one
 * of the last two. */
const char *dw_channel_why(dw_channel *channel)
{
    static _Thread_local dw_why told;
    if (!channel) return "";
    if (!dw_channel_is_ours(channel)) return dw_link_why(channel->port.link);
    dw_channel_errors *errors = &channel->errors;
    pthread_mutex_lock(&errors->lock);
    int other = !errors->last;
    bool is_own = !pthread_equal(errors->of[errors->last], pthread_self()) &&
                  errors->why[other].text[0] && pthread_equal(errors->of[other], pthread_self());
    told = errors->why[is_own ? other : errors->last];
    pthread_mutex_unlock(&errors->lock);
    return told.text;
}
