/* SPDX-License-Identifier: Apache-2.0
 * boundaries.h - the codecs of one direction at every boundary between two stages.
 *
 * Boundary b lies between stage b and stage b + 1, so K stages have the boundaries 0 to K - 2. The
 * setting is a list of entries, separated by commas. An entry begins with the number of a boundary
 * and a colon, and goes on with the codec of that boundary. The first entry may leave out the
 * number: its codec is that of all boundaries without an entry of their own, which otherwise have
 * raw:f32. For example "direct:bits=4,1:topk:keep=0.1".
 *
 * In the text of a codec no comma is followed by digits and a colon, because options have names. So
 * it is always clear where an entry begins. */
#ifndef DW_TRAINER_BOUNDARIES_H
#define DW_TRAINER_BOUNDARIES_H

#include "codec_setting.h"

enum { DW_BOUNDARIES_TEXT_BYTES = 16384 };

typedef struct dw_boundaries {
    /* The codec of the boundary before this rank's stage, and of the one after it. Where there is
     * no such boundary, it is that of boundary 0, or of the entry without a number. */
    dw_codec_setting before, after;
    /* Canonical text: one entry without a number if all boundaries have the same codec, otherwise
     * an entry for every boundary. */
    char text[DW_BOUNDARIES_TEXT_BYTES];
} dw_boundaries;

/* Parses and checks the whole setting. way: the direction, "forward" or "backward". Errors: those
 * of dw_config_parse; ARGUMENT (there is no such boundary, or it has two entries, or an entry is
 * too long), LIMIT (the canonical text is too long). The sentence in *why names the direction and
 * the boundary. */
dw_status dw_boundaries_parse(dw_boundaries *boundaries, const char *text, const char *way,
                              uint32_t stage, uint32_t stages, dw_why *why);

#endif
