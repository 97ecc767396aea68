/* SPDX-License-Identifier: Apache-2.0
 * encoder_residual.c - error feedback: the residuals of a frame that was not delivered
 * (codecs/residual.h). What it carried is added back to them, or they become what they were. */
#include <string.h>

#include "arithmetic/half.h"
#include "codecs/elements.h"
#include "codecs/residual.h"
#include "common/cpu.h"
#include "common/tensor.h"
#include "ends/encoder.h"

/* A frame that was not delivered: it is given back, or undone.
 *
 * | name    | shape     | meaning                                                              |
 * | x       | (N, T, C) | what the frame was made of, if it is undone; NULL: it is given back  |
 * | entries | (N)       | the frame's entries                                                  |
 * | fresh   | (N)       | the new copies of their keys                                         |
 * | y       | (N, T, C) | f32: what the frame carried                                          |
 * | held    | (T, C)    | f32: room for a residual that lies on a device                       |
 * | row     | (C)       | f32: room for a row of x                                             |
 * | fetched | (C)       | room for a row of x that lies on a device, in its dtype              |
 *
 * What the form keeps beside a residual stays as it is. */
typedef struct returned {
    dw_encoder *encoder;
    const dw_tensor *x;
    dw_frame_info info;
    uint64_t elements; /* of a sample */
    float decay;
    dw_entry_info *entries;
    dw_copy *fresh;
    float *y, *held, *row, *fetched;
} returned;

/* What is held for entry i of the frame; NULL: nothing. */
static dw_held *held_of(const returned *g, uint32_t i)
{
    dw_key key = dw_encoder_held_key(g->encoder, g->entries[i].key, i);
    return dw_predictor_find(&g->encoder->end.predictor, key);
}

/* Checks that the residual of a key contains the frame, and that the frame has not been given back
 * yet. held: what is held of the key, or NULL. */
static dw_status check_key(const returned *g, const dw_held *held)
{
    if (!held || !dw_copy_is_held(&held->now) || held->incarnation != g->info.incarnation ||
        held->t != g->info.t || held->c != g->info.c)
        return dw_encoder_fail(g->encoder, DW_ERR_ARGUMENT,
                               "the residual of a key of this frame is gone, or does not contain "
                               "the frame");
    if (held->busy)
        return dw_encoder_fail(g->encoder, DW_ERR_ARGUMENT,
                               "a key is in a frame that is still in flight: finish or cancel that "
                               "frame first");
    if (g->info.sequence < held->now.chain || g->info.sequence > held->now.version)
        return dw_encoder_fail(g->encoder, DW_ERR_ARGUMENT,
                               "this frame, or a later one of the same key, has been given back "
                               "or undone already: give frames back in the order in which they "
                               "were made, each once");
    if (g->x && g->info.sequence != held->now.version)
        return dw_encoder_fail(g->encoder, DW_ERR_ARGUMENT,
                               "a later frame of a key was made: only the last one can be undone, "
                               "this one can be given back");
    return DW_OK;
}

/* Makes the residual of entry i resident, until the call has ended. */
static dw_status page_in(const returned *g, uint32_t i)
{
    dw_paging *paging = &g->encoder->end.predictor.paging;
    dw_held *held = held_of(g, i);
    dw_paging_mark(paging, held, g->encoder->calls);
    dw_status status = dw_paging_in(paging, held, &held->now);
    if (status) return dw_end_fail_paging(&g->encoder->end, status);
    return check_key(g, held);
}

/* Decodes the frame, with all checks of a decoder. */
static dw_status decode(const returned *g, const void *frame, size_t len)
{
    dw_encoder *encoder = g->encoder;
    dw_config config = encoder->end.config;
    dw_decoder *decoder;
    for (int i = 0; i < DW_OPTIONS; i++)
        if (dw_options[i].scope == DW_SCOPE_FEEDBACK &&
            (dw_options[i].codecs & dw_codec_bit(config.codec)))
            dw_option_set(&dw_options[i], &config, 0);
    config.feedback = (dw_feedback)0;
    dw_host host = encoder->end.host;
    host.cuda = NULL; /* the frame lies in main memory */
    host.place = (dw_cuda_place)0;
    dw_status status = dw_decoder_create(&decoder, &config, &host, &encoder->end.why);
    if (status) return status;
    dw_tensor y = dw_tensor_3d(g->y, DW_F32, g->info.n, g->info.t, g->info.c);
    status = dw_decode(decoder, frame, len, &y, NULL, NULL, 0, NULL);
    if (status) (void)dw_encoder_fail(encoder, status, dw_decoder_why(decoder));
    dw_decoder_destroy(decoder);
    return status;
}

/* y becomes the residual, negated, as it would be if the frame had carried nothing: held - decay y.
 * Where y is poisoned, the frame has carried nothing. */
static void give_back_y(const returned *g, const float *held, float *y)
{
    for (uint64_t i = 0; i < g->elements; i++) {
        float carried = g->decay * y[i], less = held[i] - carried;
        y[i] = dw_is_finite(less) ? less : held[i];
    }
}

/* Returns row t of sample n of x as f32; NULL: it could not be copied from the device. */
static const float *row_of_x(const returned *g, uint32_t n, uint32_t t, dw_status *status)
{
    const dw_engine *engine = &g->encoder->end.engine;
    size_t each = dw_dtype_bytes(g->x->dtype);
    const void *at = (const uint8_t *)dw_tensor_sample(g->x, n) +
                     (ptrdiff_t)t * (ptrdiff_t)g->x->stride_t * (ptrdiff_t)each;
    if (engine->copy) {
        *status =
            engine->copy(engine->context, g->fetched, at, each * g->info.c, &g->encoder->end.why);
        at = g->fetched;
    }
    if (*status) return NULL;
    dw_elements_widen(at, g->x->dtype, g->info.c, g->row);
    return g->row;
}

/* y becomes the residual of sample n, negated, before the frame. The frame's commit has replaced it
 * by decay (before + y - x) or, where y is poisoned or x is not finite, by decay times before. */
static dw_status undo_y(const returned *g, uint32_t n, const float *held, float *y)
{
    dw_status status = DW_OK;
    for (uint32_t t = 0; t < g->info.t; t++) {
        const float *x = row_of_x(g, n, t, &status);
        if (!x) return status;
        for (uint32_t c = 0; c < g->info.c; c++) {
            uint64_t i = (uint64_t)t * g->info.c + c;
            float after = held[i] / g->decay, less = after - y[i], before = less + x[c];
            y[i] = dw_is_finite(before) ? before : dw_is_finite(after) ? after : held[i];
        }
    }
    return DW_OK;
}

/* Makes the new residual of sample n in `next`, and in y, too. `more` bytes follow the values of
 * prev; there are none on a device, whose forms keep nothing else. Residuals on a device are copied
 * to main memory and back, because this is rare. */
static dw_status make_residual(const returned *g, uint32_t n, const void *prev, void *next,
                               uint64_t more)
{
    float *y = g->y + n * g->elements;
    const dw_engine *engine = &g->encoder->end.engine;
    dw_why *why = &g->encoder->end.why;
    uint64_t bytes = 4 * g->elements;
    const float *held = prev;
    dw_status status = DW_OK;
    if (engine->copy) {
        held = g->held;
        status = engine->copy(engine->context, g->held, prev, bytes, why);
    }
    if (!status && g->x) status = undo_y(g, n, held, y);
    if (status) return status;
    if (!g->x) give_back_y(g, held, y);
    if (engine->copy) return engine->copy(engine->context, next, y, bytes, why);
    memcpy(next, y, bytes);
    memcpy((uint8_t *)next + bytes, (const uint8_t *)prev + bytes, more);
    return DW_OK;
}

/* Makes the new residuals in new slots. The slots of the first *taken keys have been taken. */
static dw_status make_residuals(returned *g, uint32_t *taken)
{
    dw_predictor *predictor = &g->encoder->end.predictor;
    uint64_t used = predictor->held_bytes + predictor->reserved_bytes;
    dw_status status = DW_OK;
    while (*taken < g->info.n && !status) {
        uint32_t i = *taken;
        dw_copy *fresh = &g->fresh[i];
        const dw_held *held = held_of(g, i);
        void *slot;
        status = dw_predictor_take(predictor, dw_held_bytes(held), 0, &used, &slot);
        if (status) return dw_end_fail_paging(&g->encoder->end, status);
        *fresh = held->now;
        fresh->data = slot;
        fresh->record = 0;
        ++*taken;
        fresh->chain = g->info.sequence + 1;
        status = make_residual(g, i, held->now.data, fresh->data, held->more);
    }
    return status;
}

static void commit(const returned *g)
{
    dw_predictor *predictor = &g->encoder->end.predictor;
    for (uint32_t i = 0; i < g->info.n; i++) {
        dw_held *held = held_of(g, i);
        dw_held shape = {.t = held->t,
                         .c = held->c,
                         .dtype = held->dtype,
                         .more = held->more,
                         .incarnation = held->incarnation};
        dw_predictor_commit(predictor, held, &shape, g->fresh[i], false);
    }
}

/* Gives the slots of the first n keys back. */
static void drop(const returned *g, uint32_t n)
{
    dw_predictor *predictor = &g->encoder->end.predictor;
    for (uint32_t i = 0; i < n; i++) {
        const dw_held *held = held_of(g, i);
        dw_predictor_give(predictor, g->fresh[i].data, dw_held_bytes(held));
    }
}

static dw_status check_entries(const returned *g, const void *frame, size_t len)
{
    dw_status status = dw_frame_entries(frame, len, 0, g->info.n, g->entries);
    if (status) return dw_encoder_fail(g->encoder, status, "the frame's tables cannot be read");
    for (uint32_t i = 0; i < g->info.n && !status; i++) status = check_key(g, held_of(g, i));
    g->encoder->calls++;
    for (uint32_t i = 0; i < g->info.n && !status; i++) status = page_in(g, i);
    return status;
}

/* The entries have been checked, so the frame has the shape of what is held. */
static dw_status replace_residuals(returned *g, const void *frame, size_t len)
{
    uint32_t taken = 0;
    dw_status status = decode(g, frame, len);
    if (status) return status;
    dw_cpu_mode mode = dw_cpu_enter_exact();
    g->decay = dw_residual_factor(dw_config_decay(&g->encoder->end.config));
    status = make_residuals(g, &taken);
    dw_cpu_leave_exact(mode);
    if (!status)
        commit(g);
    else
        drop(g, taken);
    return status;
}

/* Takes the frame back, with room for its y and for two rows. */
static dw_status with_room(returned *g, const void *frame, size_t len)
{
    const dw_allocator *allocator = &g->encoder->end.host.allocator;
    uint64_t bytes, rows = (uint64_t)4 * 2 * g->info.c;
    if (!dw_size_multiply(g->elements, (uint64_t)4 * (g->info.n + UINT64_C(1)), &bytes) ||
        !dw_size_add(bytes, rows, &bytes))
        return dw_encoder_fail(g->encoder, DW_ERR_LIMIT, NULL);
    g->y = dw_mem_allocate(allocator, bytes);
    if (!g->y) return dw_encoder_fail(g->encoder, DW_ERR_NO_MEMORY, NULL);
    g->held = g->y + g->info.n * g->elements;
    g->row = g->held + g->elements;
    g->fetched = g->row + g->info.c;
    dw_status status = replace_residuals(g, frame, len);
    dw_mem_release(allocator, g->y, bytes);
    return status;
}

/* Reads what the frame says of itself, without its tables. */
static dw_status open_frame(returned *g, const void *frame, size_t len)
{
    dw_encoder *encoder = g->encoder;
    g->info = (dw_frame_info){.struct_size = sizeof g->info};
    dw_status status = dw_frame_read(frame, len, &g->info, &encoder->end.why);
    if (status) return status;
    if (g->info.incarnation != encoder->end.incarnation)
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT,
                               "another encoder made this frame, or this one before it was reset");
    g->elements = (uint64_t)g->info.t * g->info.c;
    const dw_tensor *x = g->x;
    if (x && (x->n != g->info.n || x->t != g->info.t || x->c != g->info.c))
        return dw_encoder_fail(encoder, DW_ERR_SHAPE,
                               "x does not have the shape of the frame, which was made of another "
                               "tensor");
    return DW_OK;
}

/* x: NULL: the frame is given back; else it is undone. */
static dw_status return_frame(dw_encoder *encoder, const void *frame, size_t len,
                              const dw_tensor *x)
{
    returned g = {.encoder = encoder, .x = x};
    const dw_allocator *allocator = &encoder->end.host.allocator;
    if (!frame) return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "an argument is NULL");
    if (encoder->end.config.feedback <= DW_FEEDBACK_NONE)
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT,
                               "this encoder keeps no residuals: create it with feedback=ef");
    dw_status status = open_frame(&g, frame, len);
    if (status) return status;
    g.entries = dw_mem_allocate(allocator, g.info.n * sizeof *g.entries);
    g.fresh = dw_mem_allocate(allocator, g.info.n * sizeof *g.fresh);
    if (!g.entries || !g.fresh)
        status = dw_encoder_fail(encoder, DW_ERR_NO_MEMORY, NULL);
    else
        status = check_entries(&g, frame, len);
    if (!status) status = with_room(&g, frame, len);
    dw_mem_release(allocator, g.fresh, g.info.n * sizeof *g.fresh);
    dw_mem_release(allocator, g.entries, g.info.n * sizeof *g.entries);
    return status;
}

dw_status dw_encoder_give_back(dw_encoder *encoder, const void *frame, size_t len,
                               const dw_tensor *x)
{
    if (!encoder) return DW_ERR_ARGUMENT;
    dw_status status = x ? dw_encoder_check_tensor(encoder, x) : DW_OK;
    return status ? status : return_frame(encoder, frame, len, x);
}
