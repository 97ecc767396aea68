/* SPDX-License-Identifier: Apache-2.0
 * train.c - a run of one rank from its settings to its summary. */
#include <cblas.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint.h"
#include "optimizer.h"
#include "schedule.h"
#include "sentence.h"

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
    double train_loss, held_out_loss;
} run;

static double seconds_since(uint64_t ns)
{
    return (double)(dw_stage_now() - ns) * 1e-9;
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

/* ---- Costs between ranks --------------------------------------------------------------------- */

static json_t *pack_cost(const dw_train_cost *cost)
{
    const uint64_t counts[] = {cost->bytes_forward,   cost->bytes_backward, cost->frames_forward,
                               cost->frames_backward, cost->raw_forward,    cost->raw_backward,
                               cost->kernel_forward,  cost->kernel_backward};
    json_t *list = json_pack("[f, f, f]", cost->compute_s, cost->codec_s, cost->wait_s);
    for (size_t i = 0; list && i < sizeof counts / sizeof *counts; i++)
        json_array_append_new(list, json_integer((json_int_t)counts[i]));
    return list;
}

static void unpack_cost(json_t *list, dw_train_cost *cost)
{
    uint64_t *const counts[] = {
        &cost->bytes_forward, &cost->bytes_backward, &cost->frames_forward, &cost->frames_backward,
        &cost->raw_forward,   &cost->raw_backward,   &cost->kernel_forward, &cost->kernel_backward};
    cost->compute_s = number_of(json_array_get(list, 0));
    cost->codec_s = number_of(json_array_get(list, 1));
    cost->wait_s = number_of(json_array_get(list, 2));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        *counts[i] = (uint64_t)json_integer_value(json_array_get(list, 3 + i));
}

static void add_cost(dw_train_cost *sum, const dw_train_cost *cost)
{
    sum->compute_s += cost->compute_s;
    sum->codec_s += cost->codec_s;
    sum->wait_s += cost->wait_s;
    sum->bytes_forward += cost->bytes_forward;
    sum->bytes_backward += cost->bytes_backward;
    sum->frames_forward += cost->frames_forward;
    sum->frames_backward += cost->frames_backward;
    sum->raw_forward += cost->raw_forward;
    sum->raw_backward += cost->raw_backward;
    sum->kernel_forward += cost->kernel_forward;
    sum->kernel_backward += cost->kernel_backward;
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
                     pack_cost(&cost));
}

/* Rank 0 computes the norm over all parts and the bytes of all links, and takes the loss from the
 * last rank. */
static dw_status read_reports(run *r, json_t *reports, double *norm, double *loss,
                              dw_train_cost *cost)
{
    dw_stage *stage = &r->stage;
    uint32_t stages = r->settings.config.stages;
    double *sums = calloc(stage->total_parts, sizeof *sums);
    if (!sums)
        return dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for the norm of the gradient");
    uint32_t n = 0;
    memset(cost, 0, sizeof *cost);
    for (uint32_t rank = 0; rank < stages; rank++) {
        json_t *report = json_array_get(reports, rank), *list = json_object_get(report, "sums");
        for (size_t i = 0; i < json_array_size(list) && n < stage->total_parts; i++)
            sums[n++] = number_of(json_array_get(list, i));
        dw_train_cost one;
        unpack_cost(json_object_get(report, "cost"), &one);
        /* The seconds of a step are those of rank 0 alone; only the bytes are summed over all
         * ranks. */
        if (rank) one.compute_s = one.codec_s = one.wait_s = 0;
        add_cost(cost, &one);
    }
    *loss = number_of(json_object_get(json_array_get(reports, stages - 1), "loss"));
    *norm = dw_optimizer_norm(sums, n);
    free(sums);
    if (n != stage->total_parts)
        return dw_say(&stage->why, DW_ERR_PROTOCOL,
                      "the other ranks did not report on all parts of the model");
    if (isfinite(*loss) && isfinite(*norm)) return DW_OK;
    return dw_say(&stage->why, DW_ERR_LIMIT,
                  "the training diverged: at step %u the %s is not a finite number; lower lr",
                  r->step + 1, isfinite(*loss) ? "gradient" : "loss");
}

/* Clips the gradient and updates the parameters, with the same factors at every rank. */
static dw_status update(run *r, double loss, double *mean_loss, double *norm, dw_train_cost *cost)
{
    dw_stage *stage = &r->stage;
    json_t *reports, *agreed = NULL;
    uint64_t since = dw_stage_now();
    json_t *report = pack_report(r, loss);
    dw_stage_computed(stage, since);
    dw_status status = dw_stage_gather(stage, report, &reports);
    if (status < 0) return status;
    if (is_rank_0(r)) {
        status = read_reports(r, reports, norm, mean_loss, cost);
        if (status == DW_OK) agreed = number(*norm);
        json_decref(reports);
        if (status < 0) return status;
    }
    json_t *value;
    status = dw_stage_spread(stage, agreed, &value);
    if (status < 0) return status;
    *norm = number_of(value);
    json_decref(value);
    since = dw_stage_now();
    for (uint32_t i = 0; i < stage->n_parts; i++)
        dw_optimizer_update(&r->optimizer, dw_model_part(stage->model, i), r->step, *norm);
    dw_stage_computed(stage, since);
    return DW_OK;
}

static dw_status train_step(run *r)
{
    const dw_train_config *config = &r->settings.config;
    uint32_t epoch = r->step / r->settings.steps_per_epoch,
             place = r->step % r->settings.steps_per_epoch;
    uint64_t since = dw_stage_now();
    double loss = 0, mean_loss = 0, norm = 0;
    dw_train_cost cost;
    const uint32_t *ids = dw_data_order(&r->data, epoch, place * config->batch);
    r->stage.step = r->step + 1;
    dw_status status = dw_schedule_step(&r->stage, &r->data, ids, &loss);
    if (status == DW_OK) status = update(r, loss, &mean_loss, &norm, &cost);
    if (status < 0) return status;
    r->step++;
    if (!is_rank_0(r)) return DW_OK;
    if (place == 0) r->epoch_loss = r->epoch_steps = 0;
    r->epoch_loss += mean_loss;
    r->train_loss = r->epoch_loss / ++r->epoch_steps;
    if (!r->hooks->on_step) return DW_OK;
    dw_train_step done = {.step = r->step,
                          .epoch = epoch + 1,
                          .loss = mean_loss,
                          .lr = dw_optimizer_rate(&r->optimizer, r->step - 1),
                          .norm = norm,
                          .seconds = seconds_since(since),
                          .wall_s = seconds_since(r->began_ns),
                          .so_far = cost};
    r->hooks->on_step(r->hooks->context, &done);
    return DW_OK;
}

static dw_status evaluate(run *r)
{
    uint64_t since = dw_stage_now();
    double loss;
    json_t *all;
    dw_status status = dw_schedule_eval(&r->stage, &r->data, &loss);
    if (status == DW_OK) status = dw_stage_gather(&r->stage, number(loss), &all);
    if (status < 0 || !is_rank_0(r)) return status;
    r->held_out_loss = number_of(json_array_get(all, r->settings.config.stages - 1));
    json_decref(all);
    r->eval_ns += dw_stage_now() - since;
    if (!isfinite(r->held_out_loss))
        return dw_say(&r->stage.why, DW_ERR_LIMIT,
                      "the training diverged: after step %u the held-out loss is not a finite "
                      "number; lower lr",
                      r->step);
    if (!r->hooks->on_eval) return DW_OK;
    dw_train_eval done = {.step = r->step,
                          .epoch = (r->step - 1) / r->settings.steps_per_epoch + 1,
                          .loss = r->held_out_loss,
                          .seconds = seconds_since(since),
                          .wall_s = seconds_since(r->began_ns)};
    r->hooks->on_eval(r->hooks->context, &done);
    return DW_OK;
}

/* ---- Checkpoints ----------------------------------------------------------------------------- */

/* Writes the parts of this rank and returns their digests as strings, because JSON integers are
 * signed. */
static dw_status write_parts(run *r, json_t **digests)
{
    dw_stage *stage = &r->stage;
    *digests = json_array();
    for (uint32_t i = 0; i < stage->n_parts; i++) {
        uint64_t digest;
        dw_status status =
            dw_checkpoint_write(r->settings.config.save, &r->settings.shape,
                                dw_model_part(stage->model, i), r->step, &digest, &stage->why);
        if (status < 0) {
            json_decref(*digests);
            *digests = NULL;
            return status;
        }
        json_array_append_new(*digests, json_sprintf("%" PRIu64, digest));
    }
    return DW_OK;
}

/* When all ranks have written their parts, all digests are sent to all ranks, and each rank then
 * writes the manifest. */
static dw_status agree_on_manifest(run *r, json_t *own)
{
    dw_stage *stage = &r->stage;
    json_t *lists, *value;
    dw_status status = dw_stage_gather(stage, own, &lists);
    if (status == DW_OK) status = dw_stage_spread(stage, lists, &value);
    if (status < 0) return status;
    uint64_t *digests = calloc(stage->total_parts, sizeof *digests);
    uint32_t n = 0;
    for (size_t rank = 0; digests && rank < json_array_size(value); rank++) {
        json_t *list = json_array_get(value, rank);
        for (size_t i = 0; i < json_array_size(list) && n < stage->total_parts; i++) {
            const char *text = json_string_value(json_array_get(list, i));
            digests[n++] = text ? strtoull(text, NULL, 10) : 0;
        }
    }
    json_decref(value);
    if (!digests)
        status = dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for a manifest");
    else if (n != stage->total_parts)
        status = dw_say(&stage->why, DW_ERR_PROTOCOL,
                        "the other ranks did not save all parts of the model");
    else
        status = dw_checkpoint_commit(r->settings.config.save, &r->settings.shape, r->step, digests,
                                      r->settings.config.rank, &stage->why);
    free(digests);
    return status;
}

static dw_status save(run *r)
{
    const char *directory = r->settings.config.save;
    json_t *digests = NULL;
    dw_status status = write_parts(r, &digests);
    if (status == DW_OK) status = agree_on_manifest(r, digests);
    for (uint32_t i = 0; i < r->stage.n_parts; i++)
        dw_checkpoint_tidy(directory, dw_model_part(r->stage.model, i));
    if (status == DW_OK && is_rank_0(r) && r->hooks->on_save)
        r->hooks->on_save(r->hooks->context, directory, r->step);
    return status;
}

static dw_status load_parts(run *r)
{
    dw_stage *stage = &r->stage;
    if (!r->start.n_parts) {
        dw_model_initialize(stage->model, r->settings.config.seed);
        return DW_OK;
    }
    dw_status status = DW_OK;
    for (uint32_t i = 0; i < stage->n_parts && status == DW_OK; i++)
        status = dw_checkpoint_read(&r->start, dw_model_part(stage->model, i),
                                    r->settings.config.resume != NULL, &stage->why);
    return status;
}

/* ---- The run --------------------------------------------------------------------------------- */

static dw_status open_checkpoints(run *r, dw_why *why)
{
    const dw_train_config *config = &r->settings.config;
    const char *start = config->resume ? config->resume : config->init;
    dw_status status = DW_OK;
    if (start) status = dw_checkpoint_open(&r->start, start, why);
    if (status == DW_OK && start &&
        memcmp(&r->start.shape, &r->settings.shape, sizeof r->start.shape)) {
        const dw_model_shape *a = &r->start.shape, *b = &r->settings.shape;
        status = dw_say(
            why, DW_ERR_MISMATCH,
            "%s holds a model of %u layers, %u channels, %u heads, context %u; asked for are "
            "%u, %u, %u, %u",
            start, a->layers, a->channels, a->heads, a->context, b->layers, b->channels, b->heads,
            b->context);
    }
    if (status == DW_OK && config->resume) {
        r->first_step = r->start.step;
        if (r->first_step >= config->steps)
            status = dw_say(why, DW_ERR_ARGUMENT,
                            "%s has done %u steps of %u already; give more steps or epochs", start,
                            r->first_step, config->steps);
    }
    if (status == DW_OK && config->save)
        status = dw_checkpoint_prepare(config->save, &r->settings.shape, why);
    return status;
}

static dw_status open_run(run *r, const dw_train_config *config, dw_why *why)
{
    dw_status status = dw_settings_resolve(&r->settings, config, why);
    config = &r->settings.config;
    if (status == DW_OK)
        status = dw_data_open(&r->data, config->text, config->text_offset, config->samples,
                              config->held_out, config->context, config->batch, config->seed, why);
    if (status == DW_OK) status = dw_settings_count(&r->settings, r->data.samples, why);
    if (status == DW_OK) status = open_checkpoints(r, why);
    if (status < 0) return status;
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
    dw_train_start start = {.stages = config->stages,
                            .steps = config->steps,
                            .steps_per_epoch = r->settings.steps_per_epoch,
                            .first_step = r->first_step,
                            .samples = r->data.samples,
                            .held_out = r->data.held_out,
                            .parameters = (V + T) * C + L * (12 * C * C + 13 * C) + 2 * C + V * C,
                            .forward = r->settings.forward.text,
                            .backward = r->settings.backward.text,
                            .blas = openblas_get_corename()};
    r->hooks->on_start(r->hooks->context, &start);
}

static dw_status train(run *r)
{
    const dw_train_config *config = &r->settings.config;
    dw_status status = load_parts(r);
    announce(r);
    r->began_ns = dw_stage_now();
    r->held_out_loss = (double)NAN;
    r->step = r->first_step;
    while (status == DW_OK && r->step < config->steps) {
        status = train_step(r);
        bool last = r->step == config->steps;
        if (status == DW_OK && r->data.held_out && (last || r->step % config->eval_every == 0))
            status = evaluate(r);
        if (status == DW_OK && config->save && !last && config->save_every &&
            r->step % config->save_every == 0)
            status = save(r);
    }
    return status;
}

/* Rank 0 collects the costs of all ranks. The other ranks then wait for the spread, so that none of
 * them ends before all costs have been collected. */
static dw_status summarize(run *r, double wall_s)
{
    uint32_t stages = r->settings.config.stages;
    dw_train_cost cost;
    json_t *all, *goodbye;
    dw_stage_settle(&r->stage);
    dw_stage_cost(&r->stage, &cost);
    dw_status status = dw_stage_gather(&r->stage, pack_cost(&cost), &all);
    if (status == DW_OK)
        status = dw_stage_spread(&r->stage, is_rank_0(r) ? json_true() : NULL, &goodbye);
    if (status < 0) {
        json_decref(all);
        return status;
    }
    json_decref(goodbye);
    if (!is_rank_0(r)) return DW_OK;
    dw_train_cost *ranks = calloc(stages, sizeof *ranks);
    dw_train_summary summary = {.steps = r->step,
                                .train_loss = r->train_loss,
                                .held_out_loss = r->held_out_loss,
                                .wall_s = wall_s,
                                .eval_s = (double)r->eval_ns * 1e-9,
                                .stages = stages,
                                .ranks = ranks};
    for (uint32_t rank = 0; ranks && rank < stages; rank++) {
        unpack_cost(json_array_get(all, rank), &ranks[rank]);
        add_cost(&summary.cost, &ranks[rank]);
    }
    json_decref(all);
    if (!ranks) return dw_say(&r->stage.why, DW_ERR_NO_MEMORY, "out of memory for the summary");
    summary.cost.compute_s /= stages;
    summary.cost.codec_s /= stages;
    summary.cost.wait_s /= stages;
    if (r->hooks->on_summary) r->hooks->on_summary(r->hooks->context, &summary);
    free(ranks);
    return DW_OK;
}

dw_status dw_train(const dw_train_config *config, const dw_train_hooks *hooks, dw_why *why)
{
    static const dw_train_hooks no_hooks;
    if (!config) return dw_say(why, DW_ERR_ARGUMENT, "no config was given");
    run *r = calloc(1, sizeof *r);
    if (!r) return dw_say(why, DW_ERR_NO_MEMORY, "out of memory for the run");
    r->hooks = hooks ? hooks : &no_hooks;
    /* One thread, because one process per stage already uses the cores, and because the order of
     * sums must not depend on the number of threads. */
    openblas_set_num_threads(1);
    dw_status status = open_run(r, config, why);
    if (status == DW_OK) {
        status = train(r);
        double wall_s = seconds_since(r->began_ns);
        if (status == DW_OK && r->settings.config.save) status = save(r);
        if (status == DW_OK) status = dw_stage_flush(&r->stage);
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
