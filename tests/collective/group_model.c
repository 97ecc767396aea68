/* SPDX-License-Identifier: Apache-2.0
 * group_model.c - a group's operations, computed one after the other in one thread. Written from
 * collective.h and not from collective/. */
#include "group_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void check(dw_status status)
{
    assert_int_equal(status, DW_OK);
}

void model_create(group_model *model, uint32_t ranks, uint32_t piece, uint64_t slot,
                  const char *codec, const char *result)
{
    dw_config first, second;
    *model = (group_model){.ranks = ranks, .piece = piece, .hops = 2, .slot = slot};
    check(dw_config_parse(&first, codec, NULL));
    check(dw_config_parse(&second, result ? result : codec, NULL));
    first.replies = second.replies = DW_REPLIES_NEVER;
    for (uint32_t from = 0; from < ranks; from++) {
        for (uint32_t to = 0; to <= ranks; to++) {
            check(dw_encoder_create(&model->contribute[from][to], &first, NULL, NULL));
            check(dw_decoder_create(&model->add[from][to], &first, NULL, NULL));
        }
        check(dw_encoder_create(&model->share[from], &second, NULL, NULL));
        check(dw_decoder_create(&model->take[from], &second, NULL, NULL));
    }
}

void model_destroy(group_model *model)
{
    for (uint32_t from = 0; from < model->ranks; from++) {
        for (uint32_t to = 0; to <= model->ranks; to++) {
            dw_encoder_destroy(model->contribute[from][to]);
            dw_decoder_destroy(model->add[from][to]);
        }
        dw_encoder_destroy(model->share[from]);
        dw_decoder_destroy(model->take[from]);
    }
}

/* Rows of 2048, or one row. */
static dw_tensor view(const void *data, dw_dtype dtype, uint64_t n)
{
    uint32_t rows = n % 2048 == 0 ? (uint32_t)(n / 2048) : 1;
    return dw_tensor_3d((void *)(uintptr_t)data, dtype, 1, rows, (uint32_t)(n / rows));
}

static void carry(dw_encoder *encoder, dw_decoder *decoder, dw_key key, const dw_tensor *x,
                  const dw_tensor *y)
{
    size_t cap = (size_t)x->n * x->t * x->c * 8 + 65536, len;
    void *frame = malloc(cap);
    check(dw_encode(encoder, &key, x, NULL, frame, cap, &len));
    check(dw_decode(decoder, frame, len, y, NULL, NULL, 0, NULL));
    free(frame);
}

static uint64_t part_begin(uint64_t n, uint32_t rank, uint32_t ranks)
{
    uint64_t tiles = (n + 2047) / 2048, begin = rank * tiles / ranks * 2048;
    return begin < n ? begin : n;
}

/* Calls for each piece of the part of a rank. */
#define FOR_EACH_PIECE(model, first, end, index, at, count)                                        \
    for (uint64_t at = (first), index = 0, count;                                                  \
         at < (end) && (count = (end)-at < (model)->piece ? (end)-at : (model)->piece, 1);         \
         at += (model)->piece, index++)

/* The sums of the buffer from `begin` to `end`, which is a part. */
static void sums_of_part(group_model *model, const dw_group_job *job, const void *const *x,
                         uint32_t part, uint64_t begin, uint64_t end, float *sums)
{
    size_t bytes = dw_dtype_bytes(job->dtype);
    float *one = malloc(model->piece * sizeof *one);
    FOR_EACH_PIECE(model, begin, end, piece, at, count)
    {
        for (uint32_t from = 0; from < model->ranks; from++) {
            const unsigned char *bytes_of_x = x[from];
            dw_tensor in = view(bytes_of_x + at * bytes, job->dtype, count);
            dw_tensor out = view(from == 0 ? sums + at : one, DW_F32, count);
            dw_key key = {.sample = model->slot, .slice = (uint32_t)piece};
            carry(model->contribute[from][part], model->add[from][part], key, &in, &out);
            for (uint64_t i = 0; from > 0 && i < count; i++) sums[at + i] += one[i];
        }
        for (uint64_t i = 0; job->mean && i < count; i++) sums[at + i] /= (float)model->ranks;
    }
    free(one);
}

void model_sums(group_model *model, const dw_group_job *job, const void *const *x, float *sums)
{
    for (uint32_t owner = 0; owner < model->ranks; owner++)
        sums_of_part(model, job, x, owner, part_begin(job->n, owner, model->ranks),
                     part_begin(job->n, owner + 1, model->ranks), sums);
}

/* One hop: everybody gets everything, and rounds the sums once. */
static void all_reduce_at_once(group_model *model, const dw_group_job *job, const void *const *x,
                               float *sums, void *y)
{
    dw_encoder *encoder;
    dw_decoder *decoder;
    dw_config plain = {.struct_size = sizeof plain, .codec = DW_CODEC_RAW, .raw = job->dtype};
    sums_of_part(model, job, x, model->ranks, 0, job->n, sums);
    if (job->n == 0) return;
    if (job->dtype == DW_F32) {
        memcpy(y, sums, (size_t)job->n * sizeof *sums);
        return;
    }
    check(dw_encoder_create(&encoder, &plain, NULL, NULL));
    check(dw_decoder_create(&decoder, &plain, NULL, NULL));
    dw_tensor in = view(sums, DW_F32, job->n), out = view(y, job->dtype, job->n);
    carry(encoder, decoder, (dw_key){0, 0}, &in, &out);
    dw_encoder_destroy(encoder);
    dw_decoder_destroy(decoder);
}

void model_all_reduce(group_model *model, const dw_group_job *job, const void *const *x, void *y)
{
    float *sums = malloc((size_t)job->n * sizeof *sums + 1);
    size_t bytes = dw_dtype_bytes(job->dtype);
    if (model->hops == 1) {
        all_reduce_at_once(model, job, x, sums, y);
        free(sums);
        return;
    }
    model_sums(model, job, x, sums);
    for (uint32_t owner = 0; owner < model->ranks; owner++) {
        uint64_t end = part_begin(job->n, owner + 1, model->ranks);
        FOR_EACH_PIECE(model, part_begin(job->n, owner, model->ranks), end, piece, at, count)
        {
            dw_tensor in = view(sums + at, DW_F32, count);
            dw_tensor out = view((unsigned char *)y + at * bytes, job->dtype, count);
            dw_key key = {.sample = model->slot, .slice = (uint32_t)piece};
            carry(model->share[owner], model->take[owner], key, &in, &out);
        }
    }
    free(sums);
}

void model_gather(group_model *model, const dw_group_job *job, const void *const *x, void *y)
{
    size_t bytes = dw_dtype_bytes(job->dtype);
    for (uint32_t owner = 0; owner < model->ranks; owner++) {
        uint64_t begin = part_begin(job->n, owner, model->ranks);
        uint64_t end = part_begin(job->n, owner + 1, model->ranks);
        FOR_EACH_PIECE(model, begin, end, piece, at, count)
        {
            const unsigned char *bytes_of_x = x[owner];
            dw_tensor in = view(bytes_of_x + (at - begin) * bytes, job->dtype, count);
            dw_tensor out = view((unsigned char *)y + at * bytes, job->dtype, count);
            dw_key key = {.sample = model->slot, .slice = (uint32_t)piece};
            carry(model->share[owner], model->take[owner], key, &in, &out);
        }
    }
}

void model_broadcast(group_model *model, const dw_group_job *job, const void *x, void *y)
{
    size_t bytes = dw_dtype_bytes(job->dtype);
    FOR_EACH_PIECE(model, 0, job->n, piece, at, count)
    {
        const unsigned char *bytes_of_x = x;
        dw_tensor in = view(bytes_of_x + at * bytes, job->dtype, count);
        dw_tensor out = view((unsigned char *)y + at * bytes, job->dtype, count);
        dw_key key = {.sample = model->slot, .slice = (uint32_t)piece};
        carry(model->share[job->root], model->take[job->root], key, &in, &out);
    }
}
