/* SPDX-License-Identifier: Apache-2.0
 * held_keys.h - what an encoder or decoder holds of its keys, for channels, whose two ends compare
 * it and drop what differs. libdeltawire exports these functions, but no public header names them.
 *
 * visit: calls visit with each key of which there is a prev that the next delta may start from; no
 * copy is read for it. An encoder with feedback has none. drop: drops what is held of so many keys,
 * and counts them as dropped_keys. Unlike dw_encoder_forget it announces nothing, because the other
 * end does the same; a key that is not held is not counted. made: whether the copies that the
 * encoder has of so many keys now are those that the frame with this header made.
 *
 * Errors: ARGUMENT (a key, of visit any, is in a frame in flight), NO_MEMORY from visit; nothing is
 * changed then. State: the object's. Threads: as for all calls of the object. */
#ifndef DW_HELD_KEYS_H
#define DW_HELD_KEYS_H

#include <stdbool.h>

#include "deltawire/deltawire.h"

/* A key, and which copy of prev it is, as in the header of a frame and its entries. */
typedef struct dw_held_key {
    dw_key key;
    uint64_t incarnation, version, chain;
} dw_held_key;

typedef dw_status dw_held_key_visit(void *context, const dw_held_key *held);

DW_API dw_status dw_encoder_visit_keys(dw_encoder *encoder, dw_held_key_visit *visit,
                                       void *context);
DW_API dw_status dw_decoder_visit_keys(dw_decoder *decoder, dw_held_key_visit *visit,
                                       void *context);
DW_API bool dw_encoder_made(const dw_encoder *encoder, const dw_key *keys, size_t n,
                            const dw_frame_info *info);
DW_API dw_status dw_encoder_drop_keys(dw_encoder *encoder, const dw_key *keys, size_t n);
DW_API dw_status dw_decoder_drop_keys(dw_decoder *decoder, const dw_key *keys, size_t n);

#endif
