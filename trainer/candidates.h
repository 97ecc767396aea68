/* SPDX-License-Identifier: Apache-2.0
 * candidates.h - the codecs of one direction: a single one, or several, among which the channels
 * choose for every frame. */
#ifndef DW_TRAINER_CANDIDATES_H
#define DW_TRAINER_CANDIDATES_H

#include <stdbool.h>

#include "deltawire/deltawire.h"

enum { DW_CANDIDATES_MOST = 8 }; /* as in dw_channel_auto */

typedef struct dw_candidates {
    uint32_t n;
    dw_config each[DW_CANDIDATES_MOST];
    char text[DW_CANDIDATES_MOST * DW_CONFIG_TEXT_BYTES]; /* canonical texts, with | between them */
} dw_candidates;

/* Parses "CODEC", "CODEC|CODEC|...", or "auto", which stands for codecs that suit activations, or
 * gradients. Errors: those of dw_config_parse, ARGUMENT; each with a sentence that names which
 * direction it is, "forward" or "backward". */
dw_status dw_candidates_parse(dw_candidates *candidates, const char *text, bool is_forward,
                              dw_why *why);

#endif
