/* SPDX-License-Identifier: Apache-2.0
 * failure_detector.h - finds the rank that owes something for too long, or takes nothing. */
#ifndef DW_GROUP_FAILURE_DETECTOR_H
#define DW_GROUP_FAILURE_DETECTOR_H

#include "exchange.h"

/* hear: something arrived from this rank that a running operation was owed. hear_early: a frame, of
 * so many bytes, of an operation that has not begun here. */
void dw_failure_detector_hear(dw_peer *peer);
void dw_failure_detector_hear_early(dw_peer *peer, uint64_t bytes);

/* Fails the group if a rank closed too early, or kept this one waiting too long; until then tells
 * the others whom this rank waits for. *pinged_ns: when it last told them. */
void dw_failure_detector_check(dw_exchange *exchange, int64_t now_ns, int64_t *pinged_ns);

/* From when on the silence of a rank counts, for an operation that began at start_ns. */
int64_t dw_failure_detector_silent_since(const dw_settings *settings, const dw_peer *peer,
                                         int64_t start_ns);

#endif
