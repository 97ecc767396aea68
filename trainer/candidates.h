/* SPDX-License-Identifier: Apache-2.0
 * candidates.h - the codecs of one direction: either one, or several, of which a channel chooses
 * one for each frame; and the codec of the weight gradients. */
#ifndef DW_TRAINER_CANDIDATES_H
#define DW_TRAINER_CANDIDATES_H

#include <stdbool.h>

#include "deltawire/deltawire.h"

enum { DW_CANDIDATES_MOST = 8 }; /* the maximum of dw_channel_auto.n */

typedef struct dw_candidates {
    uint32_t n;
    dw_config each[DW_CANDIDATES_MOST];
    /* The canonical texts of all codecs, separated by | */
    char text[DW_CANDIDATES_MOST * DW_CONFIG_TEXT_BYTES];
} dw_candidates;

/* Parses "CODEC", "CODEC|CODEC|...", or "auto". "auto" stands for a list of codecs that suit
 * activations (is_forward) or gradients (otherwise). Errors: those of dw_config_parse, ARGUMENT;
 * the sentence in *why calls the codecs by `which`, for example "forward". */
dw_status dw_candidates_parse(dw_candidates *candidates, const char *text, bool is_forward,
                              const char *which, dw_why *why);

/* Parses the codec of weight gradients, which is one codec and no list, and writes its canonical
 * text. Errors as above. */
dw_status dw_candidates_parse_gradient(dw_config *codec, char canonical[DW_CONFIG_TEXT_BYTES],
                                       const char *text, dw_why *why);

#endif
