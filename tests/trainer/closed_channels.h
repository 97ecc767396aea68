/* SPDX-License-Identifier: Apache-2.0
 * closed_channels.h - counts what channels had sent when they were closed; for programs that are
 * linked with --wrap=dw_channel_close. */
#ifndef DW_TEST_CLOSED_CHANNELS_H
#define DW_TEST_CLOSED_CHANNELS_H

#include <stdatomic.h>

#include "deltawire/transport.h"

static atomic_uint key_entries, delta_entries;

void __real_dw_channel_close(dw_channel *channel);
void __wrap_dw_channel_close(dw_channel *channel);
void __wrap_dw_channel_close(dw_channel *channel)
{
    if (channel) {
        dw_counters sent = {.struct_size = sizeof sent};
        dw_channel_count(channel, &sent, NULL);
        atomic_fetch_add(&key_entries, (unsigned)sent.key_entries);
        atomic_fetch_add(&delta_entries, (unsigned)sent.delta_entries);
    }
    __real_dw_channel_close(channel);
}

#endif
