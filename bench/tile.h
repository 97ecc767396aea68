/* SPDX-License-Identifier: Apache-2.0
 * tile.h - a codec's kernels over one tile that never leaves the first-level cache: what the
 * arithmetic takes where memory costs nothing. */
#ifndef DELTAWIRE_BENCH_TILE_H
#define DELTAWIRE_BENCH_TILE_H

#include <stdbool.h>

#include "deltawire/deltawire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Seconds per byte of x, of the median of some rounds: encode or decode as config asks, with the
 * digests of payload and state. prev: of a config without state ignored. 0 where a group is no part
 * of a tile (row, channel) or the codec has no kernels (raw). */
double dw_bench_tile_seconds(const char *table, const dw_config *config, bool encodes, dw_dtype x);

#ifdef __cplusplus
}
#endif
#endif
