/* SPDX-License-Identifier: Apache-2.0
 * saved.h - the state of a channel's encoder and of its decoder, for checkpoints of a program that
 * owns both ends of a link; and what becomes of it where both ends do not hold the same. Exported,
 * but no part of the public interface: the trainer has it.
 *
 * All replies to what was sent must have been taken before it is saved, so that both ends save the
 * same; export waits for them, at most the link's close_timeout_ms. Save and restore between
 * the same two frames of both ends, and restore before the first frame.
 *
 * Errors: those of dw_encoder_export and dw_encoder_import, of visit; TIMEOUT; PEER; ARGUMENT (the
 * channel has no such end). dw_channel_why says them. State: the channel's. Threads: as for sending
 * and for receiving. */
#ifndef DW_CHANNEL_SAVED_H
#define DW_CHANNEL_SAVED_H

#include "deltawire/transport.h"

/* is_sent: 1: the encoder, for what this end sends; 0: the decoder. */
DW_API dw_status dw_channel_export(dw_channel *channel, int is_sent, dw_saved_visit *visit,
                                   void *context);
DW_API dw_status dw_channel_import(dw_channel *channel, int is_sent, const void *saved, size_t len);

/* Finds the keys of which the two ends do not hold the same, in both directions, and drops them at
 * both, so that each is sent in full at its next visit; all others go on with changes. dw_counters
 * say how many (dropped_keys). Both ends must call it, between the same two frames, as after an
 * import; an end may have lost everything. It takes three round trips at most, and one if nothing
 * differs.
 *
 * timeout_ms: the limit for each message of the peer; < 0: as long as the link lives. look: called
 * about every 50 ms during a wait; an error of it ends the comparison; NULL: none.
 *
 * Errors: ARGUMENT (a key is in a frame in flight, an earlier comparison failed), those of look,
 * TIMEOUT, CORRUPT, PROTOCOL, NO_MEMORY, UNSUPPORTED (the link may lose messages), those of the
 * link. This end has dropped nothing then. The peer may have, which costs refused frames, as
 * without a comparison. The channel can be used, but not for another comparison, because the peer's
 * messages of this one may still come; they are discarded. */
typedef dw_status dw_compare_look(void *context);
DW_API dw_status dw_channel_compare(dw_channel *channel, int timeout_ms, dw_compare_look *look,
                                    void *context);

#endif
