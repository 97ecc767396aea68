/* SPDX-License-Identifier: Apache-2.0
 * way_codec.c - the way to send tensors through an encoder and a decoder of deltawire. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "way.h"

typedef struct ends {
    dw_way way; /* must be the first field, because a pointer to it is used as one to this struct */
    uint32_t T, C;
    dw_encoder *encoder;
    dw_decoder *decoder;
    void *frame, *reply;
    size_t frame_cap, reply_cap;
} ends;

/* Writes the sentence to *why, or, if it is empty, what the status means. Returns status. */
static dw_status say(dw_why *why, dw_status status, const char *sentence)
{
    snprintf(why->text, sizeof why->text, "%s", *sentence ? sentence : dw_status_string(status));
    return status;
}

/* Encodes a tensor, decodes the frame, and gives the decoder's reply to the encoder. Only encode
 * and decode are timed. */
static dw_status send(dw_way *way, const dw_bench_visit *visit, float *to, dw_cost *cost,
                      dw_why *why)
{
    ends *e = (ends *)way;
    dw_key key = {.sample = visit->sample};
    size_t reply_len = 0;
    /* An encoder only reads x, so the const may be cast away. */
    dw_tensor x = dw_tensor_3d((void *)(uintptr_t)visit->x, DW_F32, 1, e->T, e->C);
    dw_tensor y = dw_tensor_3d(to, DW_F32, 1, e->T, e->C);
    double begin = dw_now_s();
    dw_status status = dw_encode(e->encoder, &key, &x, NULL, e->frame, e->frame_cap, &cost->bytes);
    double middle = dw_now_s();
    if (status < 0) return say(why, status, dw_encoder_why(e->encoder));
    status =
        dw_decode(e->decoder, e->frame, cost->bytes, &y, NULL, e->reply, e->reply_cap, &reply_len);
    cost->decode_s = dw_now_s() - middle;
    cost->encode_s = middle - begin;
    if (status < 0) return say(why, status, dw_decoder_why(e->decoder));
    if (!reply_len) return DW_OK;
    status = dw_encoder_take_reply(e->encoder, e->reply, reply_len);
    return status < 0 ? say(why, status, dw_encoder_why(e->encoder)) : DW_OK;
}

static uint64_t outside(const dw_way *way)
{
    dw_counters counters = {.struct_size = sizeof counters};
    return dw_encoder_count(((const ends *)way)->encoder, &counters) < 0 ? 0
                                                                         : counters.escaped_values;
}

/* Frees the way and all that it has. */
static void part(dw_way *way)
{
    ends *e = (ends *)way;
    dw_encoder_destroy(e->encoder);
    dw_decoder_destroy(e->decoder);
    free(e->frame);
    free(e->reply);
    free(e);
}

dw_status dw_way_of_codec(dw_way **way, const dw_bench_record *set, const char *codec, dw_why *why)
{
    dw_config config;
    dw_tensor x = dw_tensor_3d(NULL, DW_F32, 1, set->T, set->C);
    dw_status status = dw_config_parse(&config, codec, why);
    if (status < 0) return status;
    /* Dither depends on the incarnation, which is random otherwise. With a fixed one, repeated runs
     * give the same figures. */
    config.incarnation = 1;
    ends *e = calloc(1, sizeof *e);
    if (!e) return say(why, DW_ERR_NO_MEMORY, "");
    e->way = (dw_way){send, outside, part};
    e->T = set->T;
    e->C = set->C;
    e->frame_cap = dw_frame_bound(&config, &x);
    e->reply_cap = dw_reply_bound(1);
    e->frame = malloc(e->frame_cap);
    e->reply = malloc(e->reply_cap);
    if (!e->frame || !e->reply) status = say(why, DW_ERR_NO_MEMORY, "");
    if (status == DW_OK) status = dw_encoder_create(&e->encoder, &config, NULL, why);
    if (status == DW_OK) status = dw_decoder_create(&e->decoder, &config, NULL, why);
    if (status < 0)
        part(&e->way);
    else
        *way = &e->way;
    return status;
}
