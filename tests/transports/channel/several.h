/* SPDX-License-Identifier: Apache-2.0
 * several.h - channels with several configs, and what must arrive over them. Every function fails
 * the test on an unexpected error. */
#ifndef DW_TEST_SEVERAL_H
#define DW_TEST_SEVERAL_H

#include "channel_pair.h"

enum { MOST = DW_CHOICE_MOST };

typedef struct several {
    dw_config configs[2][MOST];
    const dw_config *lists[2][MOST];
    dw_channel_auto autos[2];
} several;

/* give: the configs of one end, as texts with | between them; NULL: that end has one config or
 * none. prepare: a pair with the same configs at both ends. open: after either. */
void several_give(test_channels *channels, several *s, int end, const char *texts);
void several_prepare(test_channels *channels, several *s, const suite_backend *backend,
                     const char *texts);
void several_open(test_channels *channels);

/* Makes the channel use this candidate for the next frame. */
void several_force(dw_channel *sender, uint32_t candidate);

/* Waits until everything is acknowledged; returns what the sender has measured. */
dw_choice several_measured(test_channels *channels);

/* What must arrive: each candidate with an encoder and a decoder of its own, without a link. */
typedef struct references {
    test_pair pairs[MOST];
    uint32_t n;
} references;

void several_begin(references *r, const several *s);
void several_end(references *r);

/* Receives tensor number i, which this candidate made. */
void several_expect(test_channels *channels, references *r, int i, uint32_t candidate);

#endif
