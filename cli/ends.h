/* SPDX-License-Identifier: Apache-2.0
 * ends.h - an encoder and a decoder with which a codec is measured: both ends of a link that costs
 * nothing. */
#ifndef DW_CLI_ENDS_H
#define DW_CLI_ENDS_H

#include "deltawire/deltawire.h"

typedef struct dw_ends {
    dw_encoder *encoder;
    dw_decoder *decoder;
    dw_key *keys; /* (n): 0, 1, 2 and so on */
    void *frame, *reply;
    size_t frame_cap, reply_cap;
    /* Of the last visit: bytes of the frame, and the time of each end. */
    size_t len;
    double encode_s, decode_s;
} dw_ends;

/* Creates both ends, for tensors of the shape of `shape`. Errors: those of creating them, with a
 * sentence in *why; the caller closes *ends in any case. */
dw_status dw_ends_open(dw_ends *ends, const dw_config *config, const dw_tensor *shape, dw_why *why);
void dw_ends_close(dw_ends *ends);

/* Encodes x, decodes it into y, and gives the decoder's reply to the encoder. Errors: those of
 * encoder and decoder, with a sentence in *why. */
dw_status dw_ends_visit(dw_ends *ends, const dw_tensor *x, const dw_tensor *y, dw_why *why);

/* Writes a sentence to *why that names the codec, and the place in its text if the reason has one.
 * Returns status. */
dw_status dw_fail_codec(dw_why *why, dw_status status, const char *codec, const dw_why *reason);

#endif
