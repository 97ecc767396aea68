/* SPDX-License-Identifier: Apache-2.0
 * codecs.h - the codecs by their rows. */
#ifndef DW_CODECS_H
#define DW_CODECS_H

#include "codecs/plan.h"

bool dw_codec_is_known(uint8_t wire);

/* Codec and uses of *params; config: of a known codec, with its defaults filled in. */
void dw_codec_fill(dw_params *params, const dw_config *config, dw_dtype x);

/* Puts x's dtype wherever the config says "x's own". */
void dw_codec_own_dtypes(dw_config *config, dw_dtype x);

#endif
