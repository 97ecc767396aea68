/* SPDX-License-Identifier: Apache-2.0
 * schedule.c - the order in which a stage computes, sends and receives. */
#include "schedule.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/sentence.h"
#include "replicas.h"
#include "tied.h"

/* The current step: M micro-batches of N samples of T tokens, each divided into S slices. */
typedef struct step {
    dw_stage *stage;
    const dw_data *data;
    const uint32_t *ids, *next_ids; /* of this step; of the next one, or NULL */
    uint8_t *samples;               /* (N, T + 1) of one micro-batch */
    uint32_t M, N, S;
    uint32_t slots;               /* micro-batches that the stage has room for */
    uint32_t forwards, backwards; /* how many of the M S slices have gone forward, and backward */
    bool is_first_use;            /* of this batch; see repeat in trainer.h */
    double loss;                  /* sum over tokens */
} step;

/* The slice i of micro-batch m. */
static dw_piece piece_of(const step *s, uint32_t m, uint32_t i)
{
    return (dw_piece){.ids = s->ids + (size_t)m * s->N,
                      .N = s->N,
                      .slice = i,
                      .slot = m % s->slots,
                      .first_key = (uint64_t)m * s->N,
                      .is_first_use = s->is_first_use};
}

/* Lets a file read what the slice needs that comes a micro-batch after the next one. */
static void prefetch(const step *s)
{
    uint32_t m = s->forwards / s->S + 1;
    if (m < s->M || s->next_ids) {
        step of = *s;
        if (m >= s->M) of.ids = s->next_ids;
        dw_piece p = piece_of(&of, m % s->M, s->forwards % s->S);
        dw_stage_prefetch(s->stage, &p);
    }
}

/* The next slice to be computed forward. */
static dw_piece next_forward(const step *s)
{
    return piece_of(s, s->forwards / s->S, s->forwards % s->S);
}

/* The next slice to be computed backward. */
static dw_piece next_backward(const step *s)
{
    return piece_of(s, s->backwards / s->S, s->S - 1 - s->backwards % s->S);
}

static bool is_first(const dw_stage *stage)
{
    return !stage->before.channel;
}

static bool is_last(const dw_stage *stage)
{
    return !stage->after.channel;
}

/* Computes a slice forward from what is in its slot, and sends it on. samples: memory for the
 * samples of a micro-batch. */
static dw_status forward(dw_stage *stage, const dw_data *data, const dw_piece *p, uint8_t *samples)
{
    size_t width = (size_t)data->T + 1;
    uint64_t since = dw_now_ns();
    for (uint32_t n = 0; n < p->N; n++)
        memcpy(samples + n * width, dw_data_sample(data, p->ids[n]), width);
    dw_model_forward(stage->model, p->slot, p->slice, p->N, samples);
    dw_stage_computed(stage, since);
    return is_last(stage) ? DW_OK
                          : dw_stage_send(stage, &stage->after, p,
                                          dw_model_output(stage->model, p->slot, p->slice));
}

/* Receives the activation of a slice, unless this is the first stage. */
static dw_status receive(dw_stage *stage, const dw_piece *p, bool wait)
{
    return is_first(stage) ? DW_OK
                           : dw_stage_recv(stage, &stage->before, p,
                                           dw_model_input(stage->model, p->slot, p->slice), wait);
}

static void average(void *stage, uint32_t i)
{
    dw_tied_start(stage, i);
    dw_replicas_start(stage, i);
}

/* Computes the next slice backward from the gradient at the boundary, and sends the gradient of its
 * input back. The last slice of the step completes the gradients of one part after the other, which
 * the replicas begin to average at once. */
static dw_status backward(step *s)
{
    dw_stage *stage = s->stage;
    dw_piece p = next_backward(s);
    uint64_t since = dw_now_ns();
    if (s->backwards + 1 == s->M * s->S && !stage->settings->has_outer)
        dw_model_watch(stage->model, average, stage);
    dw_model_backward(stage->model, p.slot, p.slice);
    dw_model_watch(stage->model, NULL, NULL);
    dw_stage_computed(stage, since);
    s->backwards++;
    return is_first(stage)
               ? DW_OK
               : dw_stage_send(stage, &stage->before, &p, dw_model_gradient(stage->model));
}

/* Computes the next slice forward if its activation has arrived. The last stage then computes all
 * slices of the micro-batch backward, if this was the last one. */
static dw_status try_forward(step *s, bool wait)
{
    dw_stage *stage = s->stage;
    dw_piece p = next_forward(s);
    dw_status status = receive(stage, &p, wait);
    if (status == DW_OK) status = forward(stage, s->data, &p, s->samples);
    if (status != DW_OK) return status;
    prefetch(s);
    s->forwards++;
    if (!is_last(stage)) return DW_OK;
    uint64_t since = dw_now_ns();
    s->loss += dw_model_loss(stage->model, p.slot, p.slice, true,
                             1.0f / ((float)s->M * (float)s->N * (float)s->data->T));
    dw_stage_computed(stage, since);
    while (status == DW_OK && s->forwards % s->S == 0 && s->backwards < s->forwards)
        status = backward(s);
    return status;
}

/* Computes the next slice backward if its gradient has arrived. Not for the last stage. */
static dw_status try_backward(step *s, bool wait)
{
    dw_stage *stage = s->stage;
    dw_piece p = next_backward(s);
    dw_status status =
        dw_stage_recv(stage, &stage->after, &p, dw_model_gradient(stage->model), wait);
    return status == DW_OK ? backward(s) : status;
}

/* Whether the stage must compute a micro-batch backward before it has room for another one. That is
 * never so inside a micro-batch, because it was begun only when there was room for it. */
static bool is_full(const step *s)
{
    return s->forwards / s->S - s->backwards / s->S == s->slots;
}

/* Whether a gradient can arrive: not before all slices of its micro-batch have gone forward. */
static bool expects_gradient(const step *s)
{
    return s->backwards / s->S < s->forwards / s->S;
}

/* A stage in the middle receives from two neighbours. It polls both, and sleeps for a short time if
 * nothing has arrived. While it expects no gradient, it waits for the next activation instead. */
static dw_status do_what_has_arrived(step *s)
{
    bool expects = expects_gradient(s);
    dw_status status = expects ? try_backward(s, false) : DW_PENDING;
    if (status < 0) return status;
    dw_status next = try_forward(s, !expects);
    if (next != DW_PENDING || status == DW_OK) return next < 0 ? next : DW_OK;
    struct timespec nap = {.tv_nsec = 100000};
    nanosleep(&nap, NULL);
    s->stage->wait_ns += (uint64_t)nap.tv_nsec;
    return DW_OK;
}

dw_status dw_schedule_step(dw_stage *stage, const dw_data *data, const uint32_t *ids,
                           const uint32_t *next_ids, bool is_first_use, double *loss)
{
    const dw_train_config *config = &stage->settings->config;
    uint32_t M = config->micro_batches;
    step s = {.stage = stage,
              .data = data,
              .ids = ids,
              .next_ids = next_ids,
              .M = M,
              .N = config->batch / M,
              .S = config->slices,
              .is_first_use = is_first_use,
              .slots = stage->settings->in_flight};
    s.samples = malloc((size_t)s.N * (data->T + 1));
    if (!s.samples) return dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for a micro-batch");
    dw_status status = dw_stage_check(stage);
    while (status == DW_OK && s.forwards < M * s.S)
        status = is_full(&s)                         ? try_backward(&s, true)
                 : is_first(stage) || is_last(stage) ? try_forward(&s, true)
                                                     : do_what_has_arrived(&s);
    while (status == DW_OK && s.backwards < M * s.S) status = try_backward(&s, true);
    free(s.samples);
    *loss = s.loss / ((double)config->batch * data->T);
    return status;
}

/* The forward pass of one micro-batch of held-out samples; *sum: the loss is added to it. */
static dw_status evaluate(dw_stage *stage, const dw_data *data, dw_piece p, uint8_t *samples,
                          double *sum)
{
    dw_status status = dw_stage_check(stage);
    for (p.slice = 0; p.slice < stage->settings->config.slices && status == DW_OK; p.slice++) {
        status = receive(stage, &p, true);
        if (status == DW_OK) status = forward(stage, data, &p, samples);
        if (status < 0 || !is_last(stage)) continue;
        uint64_t since = dw_now_ns();
        *sum += dw_model_loss(stage->model, p.slot, p.slice, false, 0);
        dw_stage_computed(stage, since);
    }
    return status;
}

/* Returns the number of held-out samples that replicas with lower numbers evaluate. */
static uint32_t held_out_before(const dw_data *data, uint32_t replica)
{
    return (uint32_t)((uint64_t)data->held_out * replica / data->replicas);
}

dw_status dw_schedule_eval(dw_stage *stage, const dw_data *data, bool is_plain, double *loss)
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
    uint32_t end = held_out_before(data, data->replica + 1);
    dw_piece p = {.ids = ids,
                  .first_key = config->batch, /* behind those of a step */
                  .is_plain = is_plain,
                  .is_first_use = true};
    for (uint32_t at = held_out_before(data, data->replica); at < end && status == DW_OK; at += N) {
        p.N = end - at < N ? end - at : N;
        for (uint32_t i = 0; i < p.N; i++) ids[i] = data->samples + at + i;
        status = evaluate(stage, data, p, samples, &sum);
    }
    free(samples);
    free(ids);
    *loss = sum / ((double)data->held_out * data->T);
    return status;
}
