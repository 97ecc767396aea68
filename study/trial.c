/* SPDX-License-Identifier: Apache-2.0
 * trial.c - an encoder and a decoder in one process, and exact sums of the errors. */
#include "trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The objects of a trial. */
typedef struct ends {
    dw_encoder *encoder;
    dw_decoder *decoder;
    void *frame, *reply;
    size_t frame_cap, reply_cap;
    float *y, *last; /* (T, C); (places, T, C): the y of each sample's last visit */
} ends;

static dw_status say(dw_why *why, dw_status status, const char *sentence)
{
    if (why)
        snprintf(why->text, sizeof why->text, "%s",
                 *sentence ? sentence : dw_status_string(status));
    return status;
}

static dw_status meet(ends *e, const dw_config *config, const dw_bench_record *record)
{
    dw_tensor x = dw_tensor_3d(NULL, DW_F32, 1, record->T, record->C);
    size_t values = (size_t)record->T * record->C;
    e->frame_cap = dw_frame_bound(config, &x);
    e->reply_cap = dw_reply_bound(1);
    e->frame = malloc(e->frame_cap);
    e->reply = malloc(e->reply_cap);
    e->y = malloc(values * sizeof *e->y);
    e->last = calloc(record->places, values * sizeof *e->last);
    if (!e->frame || !e->reply || !e->y || !e->last) return DW_ERR_NO_MEMORY;
    dw_status status = dw_encoder_create(&e->encoder, config, NULL, NULL);
    return status < 0 ? status : dw_decoder_create(&e->decoder, config, NULL, NULL);
}

static void part(ends *e)
{
    dw_encoder_destroy(e->encoder);
    dw_decoder_destroy(e->decoder);
    free(e->frame);
    free(e->reply);
    free(e->y);
    free(e->last);
}

/* Encodes x, decodes it into e->y, and hands the reply to the encoder. */
static dw_status send(ends *e, const dw_bench_record *record, const dw_bench_visit *visit,
                      size_t *len, dw_why *why)
{
    dw_key key = {.sample = visit->sample};
    size_t reply_len = 0;
    /* It is only read. */
    dw_tensor x = dw_tensor_3d((void *)(uintptr_t)visit->x, DW_F32, 1, record->T, record->C);
    dw_tensor y = dw_tensor_3d(e->y, DW_F32, 1, record->T, record->C);
    dw_status status = dw_encode(e->encoder, &key, &x, NULL, e->frame, e->frame_cap, len);
    if (status < 0) return say(why, status, dw_encoder_why(e->encoder));
    status = dw_decode(e->decoder, e->frame, *len, &y, NULL, e->reply, e->reply_cap, &reply_len);
    if (status < 0) return say(why, status, dw_decoder_why(e->decoder));
    if (!reply_len) return DW_OK;
    status = dw_encoder_take_reply(e->encoder, e->reply, reply_len);
    return status < 0 ? say(why, status, dw_encoder_why(e->encoder)) : DW_OK;
}

/* Adds one visit to the sums. Each row is summed separately first, so that a long record does not
 * lose small values to rounding. */
static void add_visit(dw_trial_sums *sums, const dw_bench_record *record,
                      const dw_bench_visit *visit, const float *y, float *last)
{
    for (uint32_t t = 0; t < record->T; t++) {
        double x_square = 0, change_square = 0, error_square = 0;
        for (size_t i = (size_t)t * record->C, end = i + record->C; i < end; i++) {
            double x = visit->x[i], change = x - (double)last[i], error = x - (double)y[i];
            if (!isfinite(error)) {
                sums->left_out++;
                continue;
            }
            x_square += x * x;
            change_square += change * change;
            error_square += error * error;
            last[i] = y[i];
        }
        sums->x_square += x_square;
        sums->change_square += change_square;
        sums->error_square += error_square;
    }
    sums->tensors++;
    sums->elements += (uint64_t)record->T * record->C;
}

dw_trial_sums dw_trial_all(const dw_trial *trial)
{
    dw_trial_sums all = trial->first; /* its change_square has no meaning */
    const dw_trial_sums *more = &trial->later;
    all.tensors += more->tensors;
    all.elements += more->elements;
    all.frame_bytes += more->frame_bytes;
    all.left_out += more->left_out;
    all.x_square += more->x_square;
    all.error_square += more->error_square;
    return all;
}

double dw_trial_relative(double part_square, double whole_square)
{
    return whole_square > 0 ? sqrt(part_square / whole_square) : (double)NAN;
}

dw_status dw_trial_run(dw_trial *trial, const dw_bench_record *record, const char *codec,
                       dw_trial_progress *progress, void *context, dw_why *why)
{
    dw_config config;
    ends e = {0};
    memset(trial, 0, sizeof *trial);
    dw_status status = dw_config_parse(&config, codec, why);
    if (status < 0) return status;
    status = dw_config_format(&config, trial->codec, sizeof trial->codec);
    if (status == DW_OK) status = meet(&e, &config, record);
    if (status < 0) say(why, status, "");
    size_t often = record->tensors / 100 + 1, values = (size_t)record->T * record->C;
    for (size_t i = 0; i < record->tensors && status == DW_OK; i++) {
        const dw_bench_visit *visit = &record->visits[i];
        dw_trial_sums *sums = visit->first ? &trial->first : &trial->later;
        size_t len = 0;
        if (progress && i % often == 0) progress(context, (double)i / (double)record->tensors);
        status = send(&e, record, visit, &len, why);
        if (status < 0) break;
        sums->frame_bytes += len;
        add_visit(sums, record, visit, e.y, e.last + visit->place * values);
    }
    part(&e);
    return status;
}
