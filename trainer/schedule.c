/* SPDX-License-Identifier: Apache-2.0
 * schedule.c - the order in which a stage computes, sends and receives. */
#include "schedule.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sentence.h"

/* The current step: M micro-batches of N samples of T tokens. */
typedef struct step {
    dw_stage *stage;
    const dw_data *data;
    const uint32_t *ids;
    uint8_t *samples; /* (N, T + 1) of one micro-batch */
    uint32_t M, N;
    uint32_t slots;               /* micro-batches that the stage has room for */
    uint32_t forwards, backwards; /* done */
    double loss;                  /* sum over tokens */
} step;

static bool is_first(const dw_stage *stage)
{
    return !stage->before.link;
}

static bool is_last(const dw_stage *stage)
{
    return !stage->after.link;
}

/* Computes micro-batch i forward from what is in its slot, and sends it on. */
static dw_status forward(dw_stage *stage, const dw_data *data, const uint32_t *ids, uint32_t N,
                         uint32_t slot, uint8_t *samples)
{
    size_t width = (size_t)data->T + 1;
    uint64_t since = dw_stage_now();
    for (uint32_t n = 0; n < N; n++)
        memcpy(samples + n * width, dw_data_sample(data, ids[n]), width);
    dw_model_forward(stage->model, slot, N, samples);
    dw_stage_computed(stage, since);
    return is_last(stage)
               ? DW_OK
               : dw_stage_send(stage, &stage->after, ids, N, dw_model_output(stage->model, slot));
}

/* Computes a micro-batch backward from the gradient at the boundary, and sends the gradient of its
 * input back. */
static dw_status backward(step *s, uint32_t slot)
{
    dw_stage *stage = s->stage;
    uint64_t since = dw_stage_now();
    dw_model_backward(stage->model, slot);
    dw_stage_computed(stage, since);
    const uint32_t *ids = s->ids + (size_t)s->backwards++ * s->N;
    return is_first(stage)
               ? DW_OK
               : dw_stage_send(stage, &stage->before, ids, s->N, dw_model_gradient(stage->model));
}

/* Computes the next micro-batch forward if its activation has arrived. */
static dw_status try_forward(step *s, bool wait)
{
    dw_stage *stage = s->stage;
    uint32_t i = s->forwards, slot = i % s->slots;
    const uint32_t *ids = s->ids + (size_t)i * s->N;
    dw_status status = DW_OK;
    if (!is_first(stage))
        status = dw_stage_recv(stage, &stage->before, ids, s->N, dw_model_input(stage->model, slot),
                               wait);
    if (status == DW_OK) status = forward(stage, s->data, ids, s->N, slot, s->samples);
    if (status != DW_OK) return status;
    s->forwards++;
    if (!is_last(stage)) return DW_OK;
    uint64_t since = dw_stage_now();
    s->loss += dw_model_loss(stage->model, slot, true,
                             1.0f / ((float)s->M * (float)s->N * (float)s->data->T));
    dw_stage_computed(stage, since);
    return backward(s, slot);
}

/* Computes the next micro-batch backward if its gradient has arrived. Not for the last stage. */
static dw_status try_backward(step *s, bool wait)
{
    dw_stage *stage = s->stage;
    uint32_t i = s->backwards;
    const uint32_t *ids = s->ids + (size_t)i * s->N;
    dw_status status =
        dw_stage_recv(stage, &stage->after, ids, s->N, dw_model_gradient(stage->model), wait);
    return status == DW_OK ? backward(s, i % s->slots) : status;
}

/* Whether the stage must compute a micro-batch backward before it has room for another one. */
static bool is_full(const step *s)
{
    return s->forwards - s->backwards == s->slots;
}

/* A stage in the middle receives from two neighbours. It polls both, and sleeps for a short time if
 * nothing has arrived. While it expects no gradient, it waits for the next activation instead. */
static dw_status do_what_has_arrived(step *s)
{
    dw_status status = s->backwards < s->forwards ? try_backward(s, false) : DW_PENDING;
    if (status < 0) return status;
    dw_status next = try_forward(s, s->backwards == s->forwards);
    if (next != DW_PENDING || status == DW_OK) return next < 0 ? next : DW_OK;
    struct timespec nap = {.tv_nsec = 100000};
    nanosleep(&nap, NULL);
    s->stage->wait_ns += (uint64_t)nap.tv_nsec;
    return DW_OK;
}

dw_status dw_schedule_step(dw_stage *stage, const dw_data *data, const uint32_t *ids, double *loss)
{
    const dw_train_config *config = &stage->settings->config;
    uint32_t M = config->micro_batches;
    step s = {.stage = stage,
              .data = data,
              .ids = ids,
              .M = M,
              .N = config->batch / M,
              .slots = stage->settings->in_flight};
    s.samples = malloc((size_t)s.N * (data->T + 1));
    if (!s.samples) return dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for a micro-batch");
    dw_status status = dw_stage_check(stage);
    while (status == DW_OK && s.forwards < M)
        status = is_full(&s)                         ? try_backward(&s, true)
                 : is_first(stage) || is_last(stage) ? try_forward(&s, true)
                                                     : do_what_has_arrived(&s);
    while (status == DW_OK && s.backwards < M) status = try_backward(&s, true);
    free(s.samples);
    *loss = s.loss / ((double)config->batch * data->T);
    return status;
}

dw_status dw_schedule_eval(dw_stage *stage, const dw_data *data, double *loss)
{
    const dw_train_config *config = &stage->settings->config;
    uint32_t N = config->batch / config->micro_batches;
    uint8_t *samples = malloc((size_t)N * (data->T + 1));
    uint32_t *ids = malloc(N * sizeof *ids);
    dw_status status = DW_OK;
    if (!samples || !ids) {
        dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for a micro-batch");
        status = DW_ERR_NO_MEMORY;
    }
    double sum = 0;
    for (uint32_t at = 0; at < data->held_out && status == DW_OK; at += N) {
        uint32_t n = data->held_out - at < N ? data->held_out - at : N;
        for (uint32_t i = 0; i < n; i++) ids[i] = data->samples + at + i;
        status = dw_stage_check(stage);
        if (status == DW_OK && !is_first(stage))
            status =
                dw_stage_recv(stage, &stage->before, ids, n, dw_model_input(stage->model, 0), true);
        if (status == DW_OK) status = forward(stage, data, ids, n, 0, samples);
        if (status < 0 || !is_last(stage)) continue;
        uint64_t since = dw_stage_now();
        sum += dw_model_loss(stage->model, 0, false, 0);
        dw_stage_computed(stage, since);
    }
    free(samples);
    free(ids);
    *loss = sum / ((double)data->held_out * data->T);
    return status;
}
