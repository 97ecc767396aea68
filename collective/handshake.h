/* SPDX-License-Identifier: Apache-2.0
 * handshake.h - the ranks of a group compare their configs, and agree on a session with each
 * other. */
#ifndef DW_GROUP_HANDSHAKE_H
#define DW_GROUP_HANDSHAKE_H

#include "peer.h"

/* run: exchanges hellos with all ranks, until the time is over; errors have a sentence. answer:
 * handles a hello that arrives after the group has opened. */
dw_status dw_handshake_run(const dw_settings *settings, dw_peer *peers, int64_t open_by_ns,
                           dw_why *why);
void dw_handshake_answer(dw_peer *peer, const dw_received *received);

#endif
