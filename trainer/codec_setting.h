/* SPDX-License-Identifier: Apache-2.0
 * codec_setting.h - a codec that a setting names. */
#ifndef DW_TRAINER_CODEC_SETTING_H
#define DW_TRAINER_CODEC_SETTING_H

#include "deltawire/deltawire.h"

typedef struct dw_codec_setting {
    dw_config config;
    char text[DW_CONFIG_TEXT_BYTES]; /* canonical */
} dw_codec_setting;

/* Parses a codec. Errors: those of dw_config_parse; the sentence in *why calls the codec by
 * `which`, for example "forward". */
dw_status dw_codec_setting_parse(dw_codec_setting *codec, const char *text, const char *which,
                                 dw_why *why);

#endif
