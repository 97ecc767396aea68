/* SPDX-License-Identifier: Apache-2.0
 * channel_port.c - the messages of a channel: their tags and envelopes. */
#include <string.h>

#include "channel/channel.h"

dw_status dw_channel_send_control(const dw_channel_port *port, uint32_t which,
                                  dw_envelope_kind kind, dw_status about, uint64_t sequence,
                                  const void *body, size_t body_len)
{
    void *room;
    dw_status status = dw_link_send_begin_always(port->link, dw_channel_tag(port, which),
                                                 DW_ENVELOPE_BYTES + body_len, &room);
    if (status != DW_OK) return status;
    if (body_len > 0) memcpy((unsigned char *)room + DW_ENVELOPE_BYTES, body, body_len);
    dw_envelope_finalize(room, port->link->settings.session, kind, about, sequence, body_len);
    return dw_link_send_end(port->link, room, DW_ENVELOPE_BYTES + body_len);
}

dw_status dw_channel_send_finalized(const dw_channel_port *port, void *room, dw_envelope_kind kind,
                                    uint64_t sequence, size_t body_len)
{
    dw_envelope_finalize(room, port->link->settings.session, kind, DW_OK, sequence, body_len);
    return dw_link_send_end(port->link, room, DW_ENVELOPE_BYTES + body_len);
}

bool dw_channel_read_envelope(const dw_channel_port *port, const void *message, size_t len,
                              dw_envelope *envelope)
{
    return dw_envelope_read(message, len, port->link->settings.session, envelope);
}

bool dw_channel_is_ours(const dw_channel *channel)
{
    return channel && dw_fork_guard_is_ours(&channel->port.link->fork_guard);
}
