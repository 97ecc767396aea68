/* SPDX-License-Identifier: Apache-2.0
 * codecs.h - looks up codecs in their table. */
#ifndef DW_CODECS_H
#define DW_CODECS_H

#include "codecs/plan.h"

bool dw_codec_is_known(uint8_t wire);
dw_tier dw_codec_tier(dw_codec codec); /* 0: there is no such codec */

/* Fills in codec and uses of *params. config: of a known codec, with defaults filled in. */
void dw_codec_fill(dw_params *params, const dw_config *config, dw_dtype x);

/* Replaces "x's own dtype" in the config by x. */
void dw_codec_own_dtypes(dw_config *config, dw_dtype x);

#endif
