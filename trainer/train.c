/* SPDX-License-Identifier: Apache-2.0
 * train.c - a run of one rank from its settings to its summary. */
#include <cblas.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "agreement.h"
#include "base/sentence.h"
#include "cost.h"
#include "joint_checkpoint.h"
#include "optimizer.h"
#include "outer.h"
#include "replicas.h"
#include "schedule.h"
#include "tied.h"

typedef struct run {
    dw_settings settings;
    const dw_train_hooks *hooks;
    dw_data data;
    dw_checkpoint start; /* the checkpoint to start from; n_parts 0: random parameters */
    dw_optimizer optimizer;
    dw_stage stage;
    uint32_t first_step, step; /* done */
    uint64_t began_ns, eval_ns;
    double epoch_loss; /* sum over the steps of the current epoch */
    uint32_t epoch_steps;
    double train_loss, held_out_loss, plain_loss;
    bool told[2]; /* on_misfit: of activations, and of gradients */
} run;

static double seconds_since(uint64_t ns)
{
    return (double)(dw_now_ns() - ns) * 1e-9;
}

static bool is_rank_0(const run *r)
{
    return r->settings.config.rank == 0;
}

/* JSON has neither NaN nor infinity; null stands for them. */
static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static double number_of(const json_t *value)
{
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* ---- One step -------------------------------------------------------------------------------- */

/* The report of this rank to rank 0 after its backward pass: the sum of squares of each part, the
 * loss if it is known here, and the cost. */
static json_t *pack_report(run *r, double loss)
{
    dw_stage *stage = &r->stage;
    dw_train_cost cost;
    json_t *sums = json_array();
    for (uint32_t i = 0; sums && i < stage->n_parts; i++)
        json_array_append_new(sums, number(dw_optimizer_sum(dw_model_part(stage->model, i))));
    dw_stage_cost(stage, &cost);
    return json_pack("{s:o, s:o, s:o}", "sums", sums, "loss", number(loss), "cost",
                     dw_cost_pack(&cost));
}

/* The first stage of each replica computes the norm over all parts. The gradients are the same in
 * all replicas, and so is the norm; with local steps each replica has its own. */
static dw_status find_norm(run *r, const json_t *reports, double *norm)
{
    dw_stage *stage = &r->stage;
    double *sums = calloc(stage->total_parts, sizeof *sums);
    if (!sums)
        return dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for the norm of the gradient");
    uint32_t n = 0;
    for (size_t k = 0; k < json_array_size(reports); k++) {
        json_t *list = json_object_get(json_array_get(reports, k), "sums");
        for (size_t i = 0; i < json_array_size(list) && n < stage->total_parts; i++)
            sums[n++] = number_of(json_array_get(list, i));
    }
    *norm = dw_optimizer_norm(sums, n);
    free(sums);
    if (n == stage->total_parts) return DW_OK;
    return dw_say(&stage->why, DW_ERR_PROTOCOL,
                  "the other ranks did not report on all parts of the model");
}

/* The mean loss over the replicas, as the last stages report it. */
static double mean_loss_of(const run *r, const json_t *reports)
{
    const dw_train_config *config = &r->settings.config;
    double sum = 0;
    for (uint32_t d = 0; d < config->replicas; d++) {
        uint32_t last = (d + 1) * config->stages - 1;
        sum += number_of(json_object_get(json_array_get(reports, last), "loss"));
    }
    return sum / config->replicas;
}

/* Adds up the bytes of all ranks. The seconds are those of rank 0 alone. */
static void sum_costs(const json_t *reports, dw_train_cost *cost)
{
    memset(cost, 0, sizeof *cost);
    for (size_t rank = 0; rank < json_array_size(reports); rank++) {
        dw_train_cost one;
        dw_cost_unpack(json_object_get(json_array_get(reports, rank), "cost"), &one);
        if (rank) one.compute_s = one.codec_s = one.wait_s = one.gradient_wait_s = 0;
        dw_cost_add(cost, &one);
    }
}

static dw_status diverged(run *r, const char *what)
{
    return dw_say(&r->stage.why, DW_ERR_LIMIT,
                  "the training diverged: at step %u the %s is not a finite number; lower lr",
                  r->step + 1, what);
}

/* Sets *norm to the norm of the gradient, at every rank, and *reports at the first stage of a
 * replica to the reports of its ranks. */
static dw_status agree_on_norm(run *r, double loss, double *norm, json_t **reports)
{
    dw_stage *stage = &r->stage;
    json_t *agreed = NULL, *value;
    uint64_t since = dw_now_ns();
    json_t *report = pack_report(r, loss);
    dw_stage_computed(stage, since);
    dw_status status = dw_stage_gather_replica(stage, report, reports);
    if (status == DW_OK && r->settings.stage == 0) {
        json_t *last = json_array_get(*reports, r->settings.config.stages - 1);
        status = find_norm(r, *reports, norm);
        if (status == DW_OK && !isfinite(number_of(json_object_get(last, "loss"))))
            status = diverged(r, "loss");
        if (status == DW_OK && !isfinite(*norm)) status = diverged(r, "gradient");
        if (status == DW_OK) agreed = number(*norm);
    }
    if (status == DW_OK) status = dw_stage_spread_replica(stage, agreed, &value);
    if (status < 0) {
        json_decref(*reports);
        return status;
    }
    *norm = number_of(value);
    json_decref(value);
    return DW_OK;
}

/* Whether the current step is the last one of a round of local steps. */
static bool ends_round(const run *r)
{
    const dw_train_config *config = &r->settings.config;
    return (r->step + 1) % config->local_steps == 0 || r->step + 1 == config->steps;
}

/* Clips the gradient and updates the parameters, with the same factors at every rank. Rank 0
 * collects the reports of the other replicas only after that, so that no update waits for them. */
static dw_status update(run *r, double loss, double *mean_loss, double *norm, dw_train_cost *cost)
{
    dw_stage *stage = &r->stage;
    json_t *reports, *all;
    dw_status status = dw_replicas_collect(stage);
    if (status == DW_OK) status = dw_tied_collect(stage);
    if (status == DW_OK) status = agree_on_norm(r, loss, norm, &reports);
    if (status < 0) return status;
    uint64_t since = dw_now_ns();
    for (uint32_t i = 0; i < stage->n_parts; i++)
        dw_optimizer_update(&r->optimizer, dw_model_part(stage->model, i), r->step, *norm);
    dw_stage_computed(stage, since);
    if (ends_round(r)) status = dw_outer_average(stage);
    if (status < 0) {
        json_decref(reports);
        return status;
    }
    status = dw_stage_join(stage, reports, &all);
    if (status < 0 || !is_rank_0(r)) return status;
    *mean_loss = mean_loss_of(r, all);
    sum_costs(all, cost);
    json_decref(all);
    return DW_OK;
}

static void report_step(run *r, uint32_t place, dw_train_step *done)
{
    if (place == 0) r->epoch_loss = r->epoch_steps = 0;
    r->epoch_loss += done->loss;
    r->train_loss = r->epoch_loss / ++r->epoch_steps;
    done->lr = dw_optimizer_rate(&r->optimizer, r->step - 1);
    done->wall_s = seconds_since(r->began_ns);
    if (r->hooks->on_step) r->hooks->on_step(r->hooks->context, done);
}

/* Tells once if the codec of a channel does not fit what this rank sends. */
static void tell_misfit(run *r, dw_channel *channel, const dw_codec_setting *codec,
                        dw_tensor_kind kind)
{
    enum { FIRST_STEPS = 32 };
    bool *told = &r->told[kind == DW_GRADIENTS], is_forward = kind == DW_ACTIVATIONS;
    uint32_t stage = r->settings.stage;
    char text[DW_CONFIG_TEXT_BYTES + 512];
    dw_why why;
    if (!channel || *told || !r->hooks->on_misfit || r->step > r->first_step + FIRST_STEPS) return;
    dw_counters sent = {.struct_size = sizeof sent};
    dw_channel_count(channel, &sent, NULL);
    *told = dw_counters_misfit(&sent, &codec->config, kind, &why);
    if (!*told) return;
    snprintf(text, sizeof text, "the %s codec %s does not fit what stage %u sends to stage %u: %s",
             is_forward ? "forward" : "backward", codec->text, stage,
             is_forward ? stage + 1 : stage - 1, why.text);
    r->hooks->on_misfit(r->hooks->context, text);
}

static dw_status train_step(run *r)
{
    const dw_train_config *config = &r->settings.config;
    uint32_t epoch = r->step / r->settings.steps_per_epoch,
             place = r->step % r->settings.steps_per_epoch;
    uint64_t since = dw_now_ns();
    double loss = 0;
    dw_train_step done = {.step = r->step + 1, .epoch = epoch + 1};
    uint32_t use = place % config->repeat;
    const uint32_t *ids = dw_data_order(&r->data, epoch, place / config->repeat * config->batch);
    bool is_last = place + config->repeat >= r->settings.steps_per_epoch;
    const uint32_t *next = is_last ? NULL : ids + (use + 1 == config->repeat) * config->batch;
    dw_status status = dw_schedule_step(&r->stage, &r->data, ids, next, use == 0, &loss);
    if (status == DW_OK) status = update(r, loss, &done.loss, &done.norm, &done.so_far);
    if (status < 0) return status;
    r->step++;
    done.seconds = seconds_since(since);
    if (is_rank_0(r)) report_step(r, place, &done);
    tell_misfit(r, r->stage.after.channel, &r->settings.forward.after, DW_ACTIVATIONS);
    tell_misfit(r, r->stage.before.channel, &r->settings.backward.before, DW_GRADIENTS);
    return DW_OK;
}

/* Sets *loss at rank 0 to the mean over all held-out samples. */
static dw_status find_held_out_loss(run *r, bool is_plain, double *loss)
{
    const dw_train_config *config = &r->settings.config;
    double share;
    json_t *all;
    dw_status status = dw_schedule_eval(&r->stage, &r->data, is_plain, &share);
    if (status == DW_OK) status = dw_stage_gather(&r->stage, number(share), &all);
    if (status < 0 || !is_rank_0(r)) return status;
    *loss = 0;
    for (uint32_t d = 0; d < config->replicas; d++)
        *loss += number_of(json_array_get(all, (d + 1) * config->stages - 1));
    json_decref(all);
    if (isfinite(*loss)) return DW_OK;
    return dw_say(&r->stage.why, DW_ERR_LIMIT,
                  "the training diverged: after step %u the held-out loss is not a finite number; "
                  "lower lr",
                  r->step);
}

static dw_status evaluate(run *r)
{
    uint64_t since = dw_now_ns();
    dw_status status = find_held_out_loss(r, false, &r->held_out_loss);
    if (status == DW_OK && r->settings.config.plain_eval)
        status = find_held_out_loss(r, true, &r->plain_loss);
    if (status < 0 || !is_rank_0(r)) return status;
    r->eval_ns += dw_now_ns() - since;
    if (!r->hooks->on_eval) return DW_OK;
    dw_train_eval done = {.step = r->step,
                          .epoch = (r->step - 1) / r->settings.steps_per_epoch + 1,
                          .loss = r->held_out_loss,
                          .plain_loss = r->plain_loss,
                          .seconds = seconds_since(since),
                          .wall_s = seconds_since(r->began_ns)};
    r->hooks->on_eval(r->hooks->context, &done);
    return DW_OK;
}

/* ---- The run --------------------------------------------------------------------------------- */

static dw_status open_run(run *r, const dw_train_config *config, dw_why *why)
{
    dw_status status = dw_settings_resolve(&r->settings, config, why);
    config = &r->settings.config;
    if (status == DW_OK)
        status = dw_data_open(&r->data, config->text, config->text_offset, config->samples,
                              config->held_out, config->context, config->batch, config->seed, why);
    if (status == DW_OK)
        status = dw_data_share(&r->data, r->settings.replica, config->replicas, config->batch, why);
    if (status == DW_OK) status = dw_settings_count(&r->settings, r->data.samples, why);
    if (status == DW_OK) status = dw_joint_checkpoint_open(&r->start, &r->settings, why);
    if (status < 0) return status;
    r->settings.samples_digest = r->data.digest;
    if (config->resume) r->first_step = r->start.step;
    r->optimizer = (dw_optimizer){.lr = config->lr,
                                  .beta1 = config->beta1,
                                  .beta2 = config->beta2,
                                  .epsilon = 1e-8,
                                  .decay = config->weight_decay,
                                  .clip = config->clip,
                                  .warmup = config->warmup,
                                  .steps = config->steps};
    json_t *greeting = dw_settings_greeting(&r->settings, r->data.digest, r->start.digest);
    if (!greeting) return dw_say(why, DW_ERR_NO_MEMORY, "out of memory for the greeting");
    status = dw_stage_open(&r->stage, &r->settings, r->hooks, greeting);
    json_decref(greeting);
    if (status < 0 && why) *why = r->stage.why;
    return status;
}

static void announce(run *r)
{
    if (!is_rank_0(r) || !r->hooks->on_start) return;
    const dw_train_config *config = &r->settings.config;
    uint64_t L = config->layers, C = config->channels, T = config->context, V = DW_VOCABULARY;
    dw_train_start start = {
        .stages = config->stages,
        .replicas = config->replicas,
        .steps = config->steps,
        .steps_per_epoch = r->settings.steps_per_epoch,
        .first_step = r->first_step,
        .samples = r->data.samples,
        .held_out = r->data.held_out,
        .parameters = (V + T) * C + L * (12 * C * C + 13 * C) + 2 * C + (config->tied ? 0 : V * C) +
                      2 * (config->stages - 1) * (uint64_t)config->bottleneck * C,
        .forward = r->settings.forward.text,
        .backward = r->settings.backward.text,
        .gradient = r->settings.gradient.text,
        .blas = openblas_get_corename()};
    r->hooks->on_start(r->hooks->context, &start);
}

static dw_status train(run *r)
{
    const dw_train_config *config = &r->settings.config;
    dw_status status = dw_outer_open(&r->stage);
    if (status == DW_OK && r->start.n_parts)
        status = dw_joint_checkpoint_load(&r->stage, &r->start);
    else
        dw_model_initialize(r->stage.model, config->seed);
    if (status == DW_OK) {
        dw_outer_begin(&r->stage);
        announce(r);
        dw_joint_checkpoint_compare(&r->stage, &r->start);
    }
    r->began_ns = dw_now_ns();
    r->held_out_loss = r->plain_loss = (double)NAN;
    r->step = r->first_step;
    while (status == DW_OK && r->step < config->steps) {
        status = train_step(r);
        bool last = r->step == config->steps;
        if (status == DW_OK && r->data.held_out && (last || r->step % config->eval_every == 0))
            status = evaluate(r);
        if (status == DW_OK && (last || r->step % config->check_every == 0))
            status = dw_agreement_check(&r->stage, r->step);
        if (status == DW_OK && config->save && !last && config->save_every &&
            r->step % config->save_every == 0)
            status = dw_joint_checkpoint_save(&r->stage, r->step);
    }
    return status;
}

/* Rank 0 collects the costs of all ranks. The other ranks then wait for the spread, so that none of
 * them ends before all costs have been collected. */
static dw_status summarize(run *r, double wall_s)
{
    uint32_t ranks = r->settings.ranks;
    dw_train_cost cost;
    json_t *all, *goodbye;
    dw_stage_await_counters(&r->stage);
    dw_stage_cost(&r->stage, &cost);
    dw_status status = dw_stage_gather(&r->stage, dw_cost_pack(&cost), &all);
    if (status == DW_OK)
        status = dw_stage_spread(&r->stage, is_rank_0(r) ? json_true() : NULL, &goodbye);
    if (status < 0) {
        json_decref(all);
        return status;
    }
    json_decref(goodbye);
    if (!is_rank_0(r)) return DW_OK;
    dw_train_cost *costs = calloc(ranks, sizeof *costs);
    dw_train_summary summary = {.steps = r->step,
                                .train_loss = r->train_loss,
                                .held_out_loss = r->held_out_loss,
                                .plain_held_out_loss = r->plain_loss,
                                .wall_s = wall_s,
                                .eval_s = (double)r->eval_ns * 1e-9,
                                .stages = r->settings.config.stages,
                                .replicas = r->settings.config.replicas,
                                .ranks = costs};
    for (uint32_t rank = 0; costs && rank < ranks; rank++) {
        dw_cost_unpack(json_array_get(all, rank), &costs[rank]);
        dw_cost_add(&summary.cost, &costs[rank]);
    }
    json_decref(all);
    if (!costs) return dw_say(&r->stage.why, DW_ERR_NO_MEMORY, "out of memory for the summary");
    summary.cost.compute_s /= ranks;
    summary.cost.codec_s /= ranks;
    summary.cost.wait_s /= ranks;
    summary.cost.gradient_wait_s /= ranks;
    if (r->hooks->on_summary) r->hooks->on_summary(r->hooks->context, &summary);
    free(costs);
    return DW_OK;
}

dw_status dw_train(const dw_train_config *config, const dw_train_hooks *hooks, dw_why *why)
{
    static const dw_train_hooks no_hooks;
    if (!config) return dw_say(why, DW_ERR_ARGUMENT, "no config was given");
    run *r = calloc(1, sizeof *r);
    if (!r) return dw_say(why, DW_ERR_NO_MEMORY, "out of memory for the run");
    r->hooks = hooks ? hooks : &no_hooks;
    /* One thread, because one process per rank already uses the cores, and because the order of
     * sums must not depend on the number of threads. */
    openblas_set_num_threads(1);
    dw_status status = open_run(r, config, why);
    if (status == DW_OK) {
        status = train(r);
        double wall_s = seconds_since(r->began_ns);
        if (status == DW_OK && r->settings.config.save)
            status = dw_joint_checkpoint_save(&r->stage, r->step);
        if (status == DW_OK) status = summarize(r, wall_s);
        if (status < 0 && why) *why = r->stage.why;
        dw_stage_close(&r->stage, status);
    }
    dw_checkpoint_close(&r->start);
    dw_data_close(&r->data);
    free(r);
    return status;
}

const char *dw_train_blas_advice(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    /* The core to which OpenBLAS falls back if it does not know the CPU, and the other ones without
     * AVX2. */
    static const char *const old[] = {
        "Prescott",     "Core2",     "Penryn", "Dunnington", "Nehalem",     "Athlon", "Opteron",
        "Opteron_SSE3", "Barcelona", "Bobcat", "Atom",       "Sandybridge", "Generic"};
    const char *now = openblas_get_corename();
    bool slow = false;
    for (size_t i = 0; i < sizeof old / sizeof *old; i++) slow |= !strcmp(now, old[i]);
    __builtin_cpu_init();
    if (!slow || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return NULL;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        return "SkylakeX";
    return "Haswell";
#else
    return NULL;
#endif
}
