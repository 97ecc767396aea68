/* SPDX-License-Identifier: Apache-2.0
 * tile.h - runs the kernels of a codec over one tile that stays in the first-level cache: the cost
 * of the arithmetic without that of memory. */
#ifndef DELTAWIRE_BENCH_TILE_H
#define DELTAWIRE_BENCH_TILE_H

#include <stdbool.h>

#include "deltawire/deltawire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Seconds per byte of x, as the median of several rounds, of an encode or decode with config,
 * including the digests of payload and state. prev is ignored by a config without state. Returns 0
 * where a group is not part of a tile (row, channel) or the codec has no kernels (raw). A step that
 * a whole sample shares counts as that of the tile. */
double dw_bench_tile_seconds(const char *table, const dw_config *config, bool encodes, dw_dtype x);

#ifdef __cplusplus
}
#endif
#endif
