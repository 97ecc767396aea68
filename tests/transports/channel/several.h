/* SPDX-License-Identifier: Apache-2.0
 * several.h - test channels with several configs, and checks of the tensors that they deliver.
 * Every function fails the test on an unexpected error. */
#ifndef DW_TEST_SEVERAL_H
#define DW_TEST_SEVERAL_H

#include "channel_pair.h"

enum { MOST = DW_CHOICE_MOST };

/* The configs of a pair of channels. The first index is the end: 0 sends and 1 receives. */
typedef struct several {
    dw_config configs[2][MOST];
    const dw_config *lists[2][MOST];
    dw_channel_auto autos[2];
} several;

/* give: sets the configs of one end. texts: the configs, separated by |; NULL: sets none, and the
 * end keeps what channels_prepare has set. prepare: prepares a pair of channels whose two ends have
 * the same configs. open: opens the channels after prepare or give was called. */
void several_give(test_channels *channels, several *s, int end, const char *texts);
void several_prepare(test_channels *channels, several *s, const suite_backend *backend,
                     const char *texts);
void several_open(test_channels *channels);

/* Makes the sender use this candidate for the next frames, until it chooses another one; it does
 * not do so within the first DW_CHOICE_PAUSE frames. */
void several_force(dw_channel *sender, uint32_t candidate);

/* Waits until all frames are acknowledged, and returns a copy of the sender's measurements. */
dw_choice several_measured(test_channels *channels);

/* An encoder and a decoder for each candidate, without a link between them. They compute the
 * tensors that a channel must deliver. */
typedef struct references {
    test_pair pairs[MOST];
    uint32_t n;
} references;

void several_begin(references *r, const several *s);
void several_end(references *r);

/* Receives tensor number i and checks that it has the expected bits. candidate: the number of the
 * config with which it was encoded. Must be called once for each tensor, in the order of sending.
 */
void several_expect(test_channels *channels, references *r, int i, uint32_t candidate);

#endif
