/* SPDX-License-Identifier: Apache-2.0
 * candidates.c - parses the setting that gives the codecs of one direction. */
#include "candidates.h"

#include <stdint.h>
#include <string.h>
#include <time.h>

#include "sentence.h"

/* The codecs that "auto" stands for, in descending quality: first exact floats, then the codecs
 * that docs/codecs.md recommends, in the order of how much they raise the loss of a training. */
static const char auto_forward[] = "raw:f32|raw:bf16|direct:bits=8|delta:bits=4|delta:bits=2|"
                                   "delta:form=step,step=1.65,entropy=rans";
static const char auto_backward[] = "raw:f32|raw:bf16|direct:bits=8|direct:bits=6|direct:bits=4|"
                                    "direct:form=step,step=3,rounding=dither,entropy=rans";

static uint64_t now_ns(void *context)
{
    (void)context;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Parses one codec and writes its canonical text. which: "forward", "backward" or "gradient", or
 * one of them with its boundary, for the error sentence. That sentence quotes the text from the
 * position of the error on, because a number of characters is of little use to somebody who reads
 * it in a terminal. */
static dw_status parse_one(dw_config *codec, char canonical[DW_CONFIG_TEXT_BYTES], const char *text,
                           const char *which, dw_why *why)
{
    dw_why codec_why = {.offset = -1};
    dw_status status = dw_config_parse(codec, text, &codec_why);
    if (status == DW_OK) status = dw_config_format(codec, canonical, DW_CONFIG_TEXT_BYTES);
    if (status < 0 && codec_why.offset >= 0 && (size_t)codec_why.offset <= strlen(text))
        return dw_say(why, status, "%s codec \"%.60s\", at \"%.40s\": %.120s", which, text,
                      text + codec_why.offset, codec_why.text);
    if (status < 0)
        return dw_say(why, status, "%s codec \"%.60s\": %.180s", which, text, codec_why.text);
    codec->now_ns = now_ns;
    return DW_OK;
}

/* Checks that the last candidate differs from all others, and that no candidate has replies = never
 * if there are several. dw_channel_open would refuse them too, but only after the ranks have
 * connected. canonical: the canonical text of the last candidate. */
static dw_status check_last(const dw_candidates *candidates, const char *canonical,
                            const char *which, dw_why *why)
{
    char other[DW_CONFIG_TEXT_BYTES];
    uint32_t last = candidates->n - 1;
    for (uint32_t i = 0; i < last; i++) {
        dw_config_format(&candidates->each[i], other, sizeof other);
        if (!strcmp(canonical, other))
            return dw_say(why, DW_ERR_ARGUMENT,
                          "%s codecs: \"%.100s\" is given twice; give it once", which, canonical);
    }
    for (uint32_t i = 0; last > 0 && i <= last; i++)
        if (candidates->each[i].replies == DW_REPLIES_NEVER)
            return dw_say(why, DW_ERR_ARGUMENT,
                          "%s codecs: number %u has replies=never, but the choice among several "
                          "needs replies",
                          which, i + 1);
    return DW_OK;
}

dw_status dw_candidates_parse(dw_candidates *candidates, const char *text, bool is_forward,
                              const char *which, dw_why *why)
{
    size_t used = 0;
    *candidates = (dw_candidates){.n = 0};
    if (!strcmp(text, "auto")) text = is_forward ? auto_forward : auto_backward;
    for (const char *at = text;; at++) {
        char one[4 * DW_CONFIG_TEXT_BYTES], canonical[DW_CONFIG_TEXT_BYTES];
        size_t len = strcspn(at, "|");
        if (candidates->n == DW_CANDIDATES_MOST)
            return dw_say(why, DW_ERR_ARGUMENT, "more than %d %s codecs are given",
                          DW_CANDIDATES_MOST, which);
        if (len >= sizeof one)
            return dw_say(why, DW_ERR_ARGUMENT, "%s codec \"%.60s...\" is too long", which, at);
        memcpy(one, at, len);
        one[len] = '\0';
        dw_status status = parse_one(&candidates->each[candidates->n], canonical, one, which, why);
        if (status < 0) return status;
        candidates->n++;
        status = check_last(candidates, canonical, which, why);
        if (status < 0) return status;
        if (used > 0) candidates->text[used++] = '|';
        memcpy(candidates->text + used, canonical, strlen(canonical) + 1);
        used += strlen(canonical);
        at += len;
        if (!*at) return DW_OK;
    }
}

dw_status dw_candidates_parse_gradient(dw_config *codec, char canonical[DW_CONFIG_TEXT_BYTES],
                                       const char *text, dw_why *why)
{
    if (strchr(text, '|') || !strcmp(text, "auto"))
        return dw_say(why, DW_ERR_ARGUMENT,
                      "gradient codec \"%.60s\": give one codec; only forward and backward can "
                      "choose among several",
                      text);
    dw_status status = parse_one(codec, canonical, text, "gradient", why);
    if (status == DW_OK && codec->group == DW_GROUP_CHANNEL)
        return dw_say(why, DW_ERR_CONFIG,
                      "gradient codec \"%.60s\": group=channel has no meaning for gradients, which "
                      "are sent as one row; give a number",
                      text);
    return status;
}
