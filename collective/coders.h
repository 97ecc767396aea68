/* SPDX-License-Identifier: Apache-2.0
 * coders.h - the encoders and decoders of a group: made, destroyed, found, and used. */
#ifndef DW_GROUP_CODERS_H
#define DW_GROUP_CODERS_H

#include <stdbool.h>

#include "deltawire/collective.h"
#include "message.h"

typedef struct dw_group_slot dw_group_slot;
typedef struct dw_frame_room dw_frame_room;

/* What an encoder or decoder is for; saved states have these numbers. Each decoder follows the
 * encoder whose frames it takes. CONTRIBUTE: of hop 1, one for each rank that it sends to. SHARE:
 * of hop 2. GATHER: of an all-reduce in one hop. Keys are (slot, piece of the part). */
typedef enum dw_coder_kind {
    DW_REDUCE_SCATTER_ENCODER = 1,
    DW_REDUCE_SCATTER_DECODER = 2,
    DW_ALL_GATHER_ENCODER = 3,
    DW_ALL_GATHER_DECODER = 4,
    DW_ONE_SHOT_ENCODER = 5,
    DW_ONE_SHOT_DECODER = 6
} dw_coder_kind;

static inline bool dw_coder_is_encoder(dw_coder_kind kind)
{
    return kind % 2 == 1;
}

static inline bool dw_coder_is_of_result(dw_coder_kind kind)
{
    return kind == DW_ALL_GATHER_ENCODER || kind == DW_ALL_GATHER_DECODER;
}

/* Encoders and decoders, by their places (coders.c). NULL: not made. */
typedef struct dw_coders {
    dw_encoder **encoders;
    dw_decoder **decoders;
} dw_coders;

/* One of them. other: the rank that it sends to, or takes the frames of; 0 if it sends to all. */
typedef struct dw_coder {
    dw_coder_kind kind;
    uint32_t other;
    dw_encoder *encoder;
    dw_decoder *decoder;
} dw_coder;

/* agree: sets what places are drawn from, once all ranks have answered. make: those of
 * codecs that keep nothing, for all slots. prepare: those of its own that the operation of a slot
 * needs; the slot is STARTING. make_one: one of a slot's own, if it is not there; for callers with
 * exclusive access. */
void dw_coders_agree(dw_group *group);
dw_status dw_coders_make(dw_group *group);
dw_status dw_coders_prepare(dw_group *group, dw_group_slot *slot);
dw_status dw_coders_make_one(dw_group *group, dw_group_slot *slot, dw_coder_kind kind,
                             uint32_t other);
void dw_coders_destroy(const dw_group *group, dw_coders *coders);
/* The one that the operations of a slot use; NULL: it was not made. of: that of the frame which
 * `head` names. */
dw_encoder *dw_coders_encoder(const dw_group *group, const dw_group_slot *slot, dw_coder_kind kind,
                              uint32_t to);
dw_decoder *dw_coders_decoder(const dw_group *group, const dw_group_slot *slot, dw_coder_kind kind,
                              uint32_t from);
dw_encoder *dw_coders_encoder_of(const dw_group *group, const dw_group_slot *slot,
                                 const dw_message *head);
/* Calls visit for each of a slot's own coders, or, with slot NULL, for those of all slots, until it
 * returns another status than OK, which is returned then. For exclusive_waiters. */
typedef dw_status dw_coder_visit(void *context, dw_group_slot *slot, const dw_coder *coder);
dw_status dw_coders_visit(dw_group *group, dw_group_slot *slot, dw_coder_visit *visit,
                          void *context);
/* The most bytes that the frame of a piece of so many values has, under one of the group's configs;
 * an empty piece has none. Called by the progress owner. It remembers bounds, because to compute
 * one takes several times as long as to encode a short piece. */
size_t dw_coders_bound(dw_group *group, const dw_config *config, dw_dtype dtype, uint64_t count);
/* Whether frames under this config can be checked for much less than it takes to decode them. */
bool dw_coders_can_check(const dw_config *config);
/* Encode and decode the piece that `head` names, and count what that costs. If they return false,
 * the group has failed. encode: with error feedback the frame is kept. decode: a frame of rank
 * `from` into *y. y NULL: the piece is empty, and so must be the frame. options: as in
 * dw_decode_with. Poisoned groups are counted where the frame is a result, or a part of one in an
 * all-reduce of one hop. */
bool dw_coders_encode(dw_group *group, dw_group_slot *slot, const dw_message *head,
                      const dw_tensor *x, dw_frame_room *frame);
bool dw_coders_decode(dw_group *group, const dw_group_slot *slot, const dw_message *head,
                      uint32_t from, const void *frame, size_t len, const dw_tensor *y,
                      const dw_decode_options *options);

#endif
