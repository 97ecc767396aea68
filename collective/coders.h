/* SPDX-License-Identifier: Apache-2.0
 * coders.h - the encoders and decoders of a group: made, destroyed, found, and used. All is the
 * progress owner's alone, or of callers with exclusive access. */
#ifndef DW_GROUP_CODERS_H
#define DW_GROUP_CODERS_H

#include "peer.h"

/* What an encoder or decoder is for; saved states contain these numbers. A decoder takes the frames
 * of the encoder above it. REDUCE_SCATTER: hop 1; one encoder for each rank that receives.
 * ALL_GATHER: hop 2. ONE_SHOT: an all-reduce in one hop. Keys are (slot, piece of the part). */
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

/* Encoders and decoders, by their places (coders.c). NULL: not made. forgotten_at: the number of
 * operations before which those of a slot were last destroyed. */
typedef struct dw_coders {
    dw_encoder **encoders;
    dw_decoder **decoders;
    uint64_t forgotten_at;
} dw_coders;

/* One of them. other: the rank that it sends to, or takes the frames of; 0 if it sends to all. */
typedef struct dw_coder {
    dw_coder_kind kind;
    uint32_t other;
    dw_encoder *encoder;
    dw_decoder *decoder;
} dw_coder;

/* The most bytes that a frame of t rows of c values has under a config. */
typedef struct dw_known_bound {
    const dw_config *config; /* NULL: the entry is not used */
    dw_dtype dtype;
    uint32_t t, c;
    size_t bytes;
} dw_known_bound;

/* Both hops, with pieces of the usual length and a shorter last one, of a few buffers. */
enum { DW_FRAME_BOUNDS = 16 };

/* What is encoded with, apart from a slot's own coders. */
typedef struct dw_coding {
    const dw_settings *settings;
    dw_failure *failure;      /* of the group */
    dw_group_counters *count; /* of the group */
    uint64_t places;          /* what places are drawn from; the same on all ranks */
    dw_coders common;         /* of codecs that keep nothing, for all slots */
    dw_encoder *round[2];     /* of the settings' configs `rounding`; they keep nothing */
    dw_decoder *rounded[2];
    dw_known_bound bounds[DW_FRAME_BOUNDS];
    uint32_t next_bound; /* the entry that is replaced next */
    void *scratch;       /* room for one frame that this rank makes for itself */
    size_t scratch_bytes;
} dw_coding;

/* open: makes the coders of codecs that keep nothing. It sets all but settings, failure and count;
 * after an error it must be closed. agree: sets what places are drawn from; nonce: that of rank
 * 0. */
dw_status dw_coding_open(dw_coding *coding);
void dw_coding_close(dw_coding *coding);
void dw_coding_agree(dw_coding *coding, uint64_t nonce);

/* A slot's own coders: of codecs that keep state. are_ready: whether all that a job needs are
 * there. prepare: makes them. make: makes one, if it is not there. They are changed with exclusive
 * access alone. */
bool dw_coders_are_ready(const dw_coding *coding, const dw_coders *own, const dw_group_job *job);
dw_status dw_coders_prepare(const dw_coding *coding, dw_coders *own, const dw_group_job *job);
dw_status dw_coders_make(const dw_coding *coding, dw_coders *own, dw_coder_kind kind,
                         uint32_t other);
void dw_coders_destroy(const dw_coding *coding, dw_coders *own);
/* Calls visit for each of a slot's own coders, or of those of all slots (coding->common), until it
 * returns another status than OK, which is returned then. */
typedef dw_status dw_coder_visit(void *context, const dw_coder *coder);
dw_status dw_coders_visit(const dw_coding *coding, const dw_coders *coders, dw_coder_visit *visit,
                          void *context);

/* Those that a slot with these own coders uses; NULL: not made. of: the encoder of the frame which
 * `head` names. */
dw_encoder *dw_coders_encoder(const dw_coding *coding, const dw_coders *own, dw_coder_kind kind,
                              uint32_t to);
dw_decoder *dw_coders_decoder(const dw_coding *coding, const dw_coders *own, dw_coder_kind kind,
                              uint32_t from);
dw_encoder *dw_coders_encoder_of(const dw_coding *coding, const dw_coders *own,
                                 const dw_message *head);

/* The most bytes that the frame of a piece of so many values has, under one of the group's configs;
 * an empty piece has none. It remembers bounds, because to compute one takes several times as long
 * as to encode a short piece. */
size_t dw_coding_bound(dw_coding *coding, const dw_config *config, dw_dtype dtype, uint64_t count);
/* Encode and decode the piece that `head` names, and count what that costs. If they return false,
 * the group has failed. bypass_caches: as in dw_encode_options. decode: a frame of rank `from` into
 * *y. y NULL: the piece is empty, and so must be the frame. options: as in dw_decode. Poisoned
 * groups are counted where the frame is a result, or a part of one in an all-reduce of one hop. */
bool dw_coding_encode(dw_coding *coding, const dw_coders *own, const dw_message *head,
                      const dw_tensor *x, bool bypass_caches, dw_frame_room *frame);
bool dw_coding_decode(dw_coding *coding, const dw_coders *own, const dw_message *head,
                      uint32_t from, const void *frame, size_t len, const dw_tensor *y,
                      const dw_decode_options *options);
/* Rounds floats to f16 or bf16, as a decoder of plain floats does. */
dw_status dw_coding_round(dw_coding *coding, const dw_tensor *x, const dw_tensor *y);

#endif
