/* SPDX-License-Identifier: Apache-2.0
 * settings.h - what a group was opened with. Written by open.c, and read by everybody. */
#ifndef DW_GROUP_SETTINGS_H
#define DW_GROUP_SETTINGS_H

#include <stdbool.h>

#include "base/fork_guard.h"
#include "deltawire/collective.h"

enum { DW_GROUP_TILE = 2048, DW_GROUP_MOST_RANKS = 256 };

/* held_from: messages of so many bytes or more stay in memory of their link; shorter ones are
 * copied, because that takes less time than to lock the link twice. large_from: operations of so
 * many floats or more use more memory than the caches hold. ratio: frames are short if the floats
 * in them have at least so many times their bytes; longer ones take as much memory traffic as what
 * they are decoded to, so it does not pay to let them wait. Groups copy the global one when they
 * are opened; only tests change it. */
typedef struct dw_group_thresholds {
    size_t held_from;
    uint64_t large_from;
    uint32_t ratio;
} dw_group_thresholds;

extern dw_group_thresholds dw_group_all_thresholds;

typedef struct dw_settings {
    dw_fork_guard fork_guard; /* the process that opened the group */
    dw_allocator allocator;
    uint32_t id, rank, ranks, open_timeout_ms, timeout_ms;
    uint32_t hops; /* of an all-reduce */
    bool verifies;
    uint32_t piece; /* the given length of pieces in floats; 0: chosen, within these limits */
    uint32_t shortest_piece, longest_piece;
    dw_group_thresholds thresholds;
    uint64_t max_early_bytes, nonce;
    dw_host host;                         /* of the codecs */
    dw_config codec, result, rounding[2]; /* rounding: sums to f16 and to bf16 */
    bool keeps_state[2];                  /* whether codec and result keep anything of a key */
    bool has_fixed_results;               /* frames of results have one size for each shape */
} dw_settings;

#endif
