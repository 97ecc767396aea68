/* SPDX-License-Identifier: Apache-2.0
 * codec_setting.c - parses a setting that names a codec. */
#include "codec_setting.h"

#include <string.h>

#include "base/sentence.h"

/* The sentence about an error quotes the text from the position of the error on, because a number
 * of characters is of little use to somebody who reads it in a terminal. */
dw_status dw_codec_setting_parse(dw_codec_setting *codec, const char *text, const char *which,
                                 dw_why *why)
{
    dw_why codec_why = {.offset = -1};
    dw_status status = dw_config_parse(&codec->config, text, &codec_why);
    if (status == DW_OK) status = dw_config_format(&codec->config, codec->text, sizeof codec->text);
    if (status < 0 && codec_why.offset >= 0 && (size_t)codec_why.offset <= strlen(text))
        return dw_say(why, status, "%s codec \"%.60s\", at \"%.40s\": %.120s", which, text,
                      text + codec_why.offset, codec_why.text);
    if (status < 0)
        return dw_say(why, status, "%s codec \"%.60s\": %.180s", which, text, codec_why.text);
    return DW_OK;
}
