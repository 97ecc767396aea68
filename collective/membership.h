/* SPDX-License-Identifier: Apache-2.0
 * membership.h - what ranks tell each other of failures, and of the end of the group. */
#ifndef DW_GROUP_MEMBERSHIP_H
#define DW_GROUP_MEMBERSHIP_H

#include "peer.h"

/* notify: sends the error of the group to a rank. asks: that rank should answer with the error that
 * it knows. must_notify: on a link that may lose messages: whether a rank may not know of the error
 * yet, and is to be notified again. take_abort: handles the message of that rank that the group has
 * failed; returns whether it is to be answered. take_lost: the link of a peer has failed: an error
 * of the group, unless that rank had closed its group. */
void dw_membership_notify(dw_peer *peer, bool asks);
bool dw_membership_must_notify(const dw_peer *peer);
bool dw_membership_take_abort(dw_peer *peer, const dw_received *received);
void dw_membership_take_lost(dw_peer *peer);

/* close: tells a rank that this one closes the group, if there is room. has_ended: whether all that
 * was promised to it is done. */
void dw_membership_close(dw_peer *peer);
bool dw_membership_has_ended(const dw_peer *peer);

#endif
