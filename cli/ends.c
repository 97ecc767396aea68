/* SPDX-License-Identifier: Apache-2.0
 * ends.c - an encoder and a decoder with which a codec is measured. */
#include "ends.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "complain.h"

dw_status dw_ends_open(dw_ends *e, const dw_config *config, const dw_tensor *shape, dw_why *why)
{
    *e = (dw_ends){0};
    dw_status status = dw_encoder_create(&e->encoder, config, NULL, why);
    if (status == DW_OK) status = dw_decoder_create(&e->decoder, config, NULL, why);
    if (status < 0) return status;
    e->frame_cap = dw_frame_bound(config, shape);
    e->reply_cap = dw_reply_bound(shape->n);
    e->frame = malloc(e->frame_cap);
    e->reply = malloc(e->reply_cap);
    e->keys = calloc(shape->n, sizeof *e->keys);
    if (!e->frame || !e->reply || !e->keys)
        return dw_say(why, DW_ERR_NO_MEMORY, "out of memory for a frame");
    for (uint32_t i = 0; i < shape->n; i++) e->keys[i].sample = i;
    return DW_OK;
}

void dw_ends_close(dw_ends *e)
{
    dw_encoder_destroy(e->encoder);
    dw_decoder_destroy(e->decoder);
    free(e->frame);
    free(e->reply);
    free(e->keys);
}

/* Writes the sentence to *why, or, if it is empty, what the status means. Returns status. */
static dw_status say(dw_why *why, dw_status status, const char *sentence)
{
    return dw_say(why, status, "%s", *sentence ? sentence : dw_status_string(status));
}

dw_status dw_ends_visit(dw_ends *e, const dw_tensor *x, const dw_tensor *y, dw_why *why)
{
    size_t reply_len = 0;
    double begin = dw_now_s();
    dw_status status = dw_encode(e->encoder, e->keys, x, NULL, e->frame, e->frame_cap, &e->len);
    double encoded = dw_now_s();
    if (status < 0) return say(why, status, dw_encoder_why(e->encoder));
    status = dw_decode(e->decoder, e->frame, e->len, y, NULL, e->reply, e->reply_cap, &reply_len);
    double decoded = dw_now_s();
    if (status < 0) return say(why, status, dw_decoder_why(e->decoder));
    if (reply_len) status = dw_encoder_take_reply(e->encoder, e->reply, reply_len);
    if (status < 0) return say(why, status, dw_encoder_why(e->encoder));
    e->encode_s = encoded - begin;
    e->decode_s = decoded - encoded;
    return DW_OK;
}

dw_status dw_fail_codec(dw_why *why, dw_status status, const char *codec, const dw_why *reason)
{
    if (reason->offset >= 0 && (size_t)reason->offset <= strlen(codec))
        return dw_say(why, status, "codec \"%.60s\", at \"%.40s\": %.120s", codec,
                      codec + reason->offset, reason->text);
    return dw_say(why, status, "codec \"%.60s\": %.180s", codec, reason->text);
}
