/* SPDX-License-Identifier: Apache-2.0
 * settings.c - defaults, limits and the greeting. */
#include "settings.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sentence.h"

enum { GREETING_VERSION = 1 };

static void fill_defaults(dw_train_config *config)
{
    if (!config->stages) config->stages = 1;
    if (!config->replicas) config->replicas = 1;
    if (!config->open_timeout_ms) config->open_timeout_ms = 60000;
    if (!config->threads) config->threads = 1;
    if (!config->peer_timeout_ms) config->peer_timeout_ms = 60000;
    if (!config->forward) config->forward = "raw:f32";
    if (!config->backward) config->backward = "raw:f32";
    if (!config->gradient) config->gradient = "raw:f32";
    if (!config->layers) config->layers = 4;
    if (!config->channels) config->channels = 128;
    if (!config->heads) config->heads = 4;
    if (!config->context) config->context = 128;
    if (!config->batch) config->batch = 16;
    if (!config->micro_batches) config->micro_batches = config->batch % 4 ? 1 : 4;
    if (!config->schedule) config->schedule = "gpipe";
    if (!config->slices) config->slices = 1;
    if (!config->repeat) config->repeat = 1;
    if (!config->local_steps) config->local_steps = 1;
    if (!config->hops) config->hops = 2;
    if (!config->epochs && !config->steps) config->epochs = 1;
    if (config->lr == 0) config->lr = 1e-3;
    if (config->beta1 == 0) config->beta1 = 0.9;
    if (config->beta2 == 0) config->beta2 = 0.95;
    if (config->weight_decay == 0) config->weight_decay = 0.1;
    if (config->weight_decay < 0) config->weight_decay = 0;
    if (config->clip == 0) config->clip = 1;
    if (config->clip < 0) config->clip = 0;
}

/* Finds the place of the rank in the grid. */
static dw_status find_place(dw_settings *settings, dw_why *why)
{
    const dw_train_config *config = &settings->config;
    uint32_t rank = config->rank, stages = config->stages, replicas = config->replicas;
    if (stages > config->layers)
        return dw_say(why, DW_ERR_ARGUMENT,
                      "%u stages cannot share %u layers; give at most one stage per layer", stages,
                      config->layers);
    if (replicas > 256)
        return dw_say(why, DW_ERR_ARGUMENT, "replicas is %u; give 1 to 256", replicas);
    settings->ranks = stages * replicas;
    if (rank >= settings->ranks && replicas == 1)
        return dw_say(why, DW_ERR_ARGUMENT,
                      "there is no rank %u among %u stages; ranks are counted from 0", rank,
                      stages);
    if (rank >= settings->ranks)
        return dw_say(
            why, DW_ERR_ARGUMENT,
            "there is no rank %u among %u replicas of %u stages; ranks are counted from 0", rank,
            replicas, stages);
    settings->stage = rank % stages;
    settings->replica = rank / stages;
    return DW_OK;
}

/* Settings that would be ignored without replicas are errors: whoever gave them expects something.
 */
static dw_status check_replicas(dw_settings *settings, const dw_train_config *given, dw_why *why)
{
    uint32_t samples = given->samples, replicas = settings->config.replicas;
    if (replicas == 1 && (given->gradient || given->check_every || given->hops))
        return dw_say(
            why, DW_ERR_ARGUMENT,
            "%s has a meaning only with several replicas; give 2 or more, or leave it out",
            given->gradient      ? "gradient"
            : given->check_every ? "check-every"
                                 : "hops");
    if (given->hops > 2)
        return dw_say(why, DW_ERR_ARGUMENT, "hops is %u; give 1 or 2", given->hops);
    if (samples % replicas)
        return dw_say(why, DW_ERR_ARGUMENT,
                      "%u samples cannot be divided evenly among %u replicas; give %u", samples,
                      replicas,
                      samples - samples % replicas ? samples - samples % replicas : replicas);
    const char *text = settings->config.gradient;
    dw_status status = dw_codec_setting_parse(&settings->gradient, text, "gradient", why);
    if (status == DW_OK && settings->gradient.config.group == DW_GROUP_CHANNEL)
        return dw_say(why, DW_ERR_CONFIG,
                      "gradient codec \"%.60s\": group=channel has no meaning for gradients, which "
                      "are sent as one row; give a number",
                      text);
    return status;
}

static dw_status check_addresses(const dw_settings *settings, dw_why *why)
{
    const dw_train_config *config = &settings->config;
    uint32_t rank = config->rank, ranks = settings->ranks;
    if (rank + 1 < ranks && !config->listen)
        return dw_say(why, DW_ERR_ARGUMENT,
                      "rank %u of %u needs listen, the address on which it waits for rank %u", rank,
                      ranks, rank + 1);
    if (rank > 0 && !config->connect)
        return dw_say(why, DW_ERR_ARGUMENT,
                      "rank %u of %u needs connect, the address on which rank %u listens", rank,
                      ranks, rank - 1);
    if (rank + 1 == ranks && config->listen)
        return dw_say(
            why, DW_ERR_ARGUMENT,
            "rank %u of %u is the last, so there is nobody to listen for; leave out listen", rank,
            ranks);
    if (rank == 0 && config->connect)
        return dw_say(why, DW_ERR_ARGUMENT,
                      "rank 0 is the first, so there is nobody to connect to; leave out "
                      "connect");
    bool has_far_end = dw_settings_has_far_end(settings) && config->stages > 2;
    if ((config->replicas > 1 || has_far_end) && !config->replica_listen)
        return dw_say(
            why, DW_ERR_ARGUMENT,
            "rank %u needs replica-listen, the address on which %s can reach it, with "
            "port 0",
            rank, has_far_end ? "the first and last stages" : "the same stage of other replicas");
    return DW_OK;
}

static dw_status check_numbers(const dw_train_config *config, dw_why *why)
{
    if (!config->text)
        return dw_say(why, DW_ERR_ARGUMENT, "text is missing; name a file to train on");
    if (config->epochs && config->steps)
        return dw_say(why, DW_ERR_ARGUMENT, "both epochs (%u) and steps (%u) are given; give one",
                      config->epochs, config->steps);
    if (config->batch > 65536)
        return dw_say(why, DW_ERR_ARGUMENT, "batch is %u; give 1 to 65536", config->batch);
    if (config->micro_batches > config->batch || config->batch % config->micro_batches)
        return dw_say(why, DW_ERR_ARGUMENT,
                      "%u micro-batches do not divide a batch of %u evenly; give a number that "
                      "does",
                      config->micro_batches, config->batch);
    if (config->init && config->resume)
        return dw_say(why, DW_ERR_ARGUMENT, "both init and resume are given; give one");
    const struct {
        const char *name;
        double value, least, below;
    } reals[] = {
        {"lr", config->lr, 0, 1e6},       {"beta1", config->beta1, 0, 1},
        {"beta2", config->beta2, 0, 1},   {"weight-decay", config->weight_decay, 0, 1e6},
        {"clip", config->clip, 0, 1e300},
    };
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (!(reals[i].value >= reals[i].least && reals[i].value < reals[i].below))
            return dw_say(why, DW_ERR_ARGUMENT, "%s is %g; give a number from %g to below %g",
                          reals[i].name, reals[i].value, reals[i].least, reals[i].below);
    return DW_OK;
}

/* Fills in the settings of the outer optimizer. Between its steps the parameters of the replicas
 * differ, so evaluations, checks and checkpoints are only allowed at its steps. */
static dw_status check_local_steps(dw_settings *settings, const dw_train_config *given, dw_why *why)
{
    dw_train_config *config = &settings->config;
    uint32_t n = config->local_steps;
    const struct {
        const char *name;
        uint32_t steps;
    } looks[] = {{"eval-every", given->eval_every},
                 {"check-every", given->check_every},
                 {"save-every", given->save_every}};
    settings->has_outer = n > 1 || given->outer_momentum > 0;
    if (!(given->outer_lr >= 0 && given->outer_lr < 1e6) || !(given->outer_momentum < 1))
        return dw_say(why, DW_ERR_ARGUMENT,
                      "outer-lr is %g and outer-momentum %g; give a rate from 0 to below 1e6 and a "
                      "momentum below 1",
                      given->outer_lr, given->outer_momentum);
    if (config->replicas == 1 && (n > 1 || given->outer_lr != 0 || given->outer_momentum != 0))
        return dw_say(
            why, DW_ERR_ARGUMENT,
            "%s has a meaning only with several replicas; give 2 or more, or leave it out",
            n > 1                  ? "local-steps"
            : given->outer_lr != 0 ? "outer-lr"
                                   : "outer-momentum");
    if (!settings->has_outer && given->outer_lr != 0)
        return dw_say(why, DW_ERR_ARGUMENT,
                      "outer-lr has a meaning only with local-steps from 2 on or with "
                      "outer-momentum; give one of them, or leave it out");
    if (settings->has_outer && config->tied)
        return dw_say(why, DW_ERR_ARGUMENT,
                      "tied and local-steps are both given, but the copies of a tied matrix must "
                      "be the same after every step; leave out one of them");
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++)
        if (looks[i].steps % n)
            return dw_say(why, DW_ERR_ARGUMENT,
                          "%s is %u, but replicas hold the same parameters only after every %u "
                          "local-steps; give a multiple of %u",
                          looks[i].name, looks[i].steps, n, n);
    if (settings->has_outer && config->outer_lr == 0) config->outer_lr = 0.7;
    if (settings->has_outer && config->outer_momentum == 0) config->outer_momentum = 0.9;
    if (config->outer_momentum < 0) config->outer_momentum = 0;
    snprintf(settings->kept_text, sizeof settings->kept_text, "%s%s%s", settings->gradient.text,
             config->hops == 1 ? " in one hop" : "", settings->has_outer ? " and local steps" : "");
    return DW_OK;
}

static dw_status check_evaluation(const dw_train_config *config, dw_why *why)
{
    if (config->plain_eval && config->stages == 1)
        return dw_say(
            why, DW_ERR_ARGUMENT,
            "plain-eval has a meaning only with several stages, because a single one uses "
            "no codec; give 2 or more, or leave it out");
    if (config->plain_eval && !config->held_out)
        return dw_say(why, DW_ERR_ARGUMENT,
                      "plain-eval needs held-out, the number of samples to evaluate on");
    return DW_OK;
}

static dw_status check_slices(const dw_train_config *config, dw_why *why)
{
    uint32_t S = config->slices;
    if (S > config->context)
        return dw_say(why, DW_ERR_ARGUMENT,
                      "%u slices cannot share %u tokens; give at most one slice per token of the "
                      "context",
                      S, config->context);
    if ((uint64_t)S * config->micro_batches > INT32_MAX)
        return dw_say(why, DW_ERR_LIMIT,
                      "%u micro-batches of %u slices are more than 2^31 in a step; give fewer",
                      config->micro_batches, S);
    return DW_OK;
}

/* With GPipe (arXiv:1811.06965) all micro-batches may be in flight. With 1F1B (PipeDream-flush,
 * arXiv:2006.09503) stage k of K stops at K - k, and goes on when one has come back. The last stage
 * computes each micro-batch backward at once, whatever the schedule. */
static dw_status find_in_flight(dw_settings *settings, dw_why *why)
{
    const dw_train_config *config = &settings->config;
    uint32_t behind = config->stages - settings->stage; /* this stage and all after it */
    bool is_1f1b = strcmp(config->schedule, "1f1b") == 0;
    if (!is_1f1b && strcmp(config->schedule, "gpipe") != 0)
        return dw_say(why, DW_ERR_ARGUMENT, "schedule is \"%.40s\"; give gpipe or 1f1b",
                      config->schedule);
    settings->in_flight = config->micro_batches;
    if ((is_1f1b || behind == 1) && behind < settings->in_flight) settings->in_flight = behind;
    return DW_OK;
}

/* Fills in and checks all settings but the addresses. */
static dw_status resolve(dw_settings *settings, const dw_train_config *given, dw_why *why)
{
    const dw_train_config *config = given;
    memset(settings, 0, sizeof *settings);
    if (config->struct_size != sizeof *config)
        return dw_say(
            why, DW_ERR_ARGUMENT,
            "dw_train_config.struct_size is %zu, not %zu: set it, and compile against the "
            "library's own header",
            config->struct_size, sizeof *config);
    settings->config = *config;
    fill_defaults(&settings->config);
    config = &settings->config;
    settings->shape = (dw_model_shape){.layers = config->layers,
                                       .channels = config->channels,
                                       .heads = config->heads,
                                       .context = config->context,
                                       .tied = config->tied ? 1 : 0,
                                       .bottleneck = config->bottleneck,
                                       .stages = config->bottleneck ? config->stages : 0};
    dw_status status = find_place(settings, why);
    if (status == DW_OK) status = dw_model_shape_check(&settings->shape, why);
    if (status == DW_OK) status = check_numbers(config, why);
    if (status == DW_OK) status = check_slices(config, why);
    if (status == DW_OK) status = check_evaluation(config, why);
    if (status == DW_OK) status = find_in_flight(settings, why);
    if (status == DW_OK)
        status = dw_boundaries_parse(&settings->forward, config->forward, "forward",
                                     settings->stage, config->stages, why);
    if (status == DW_OK)
        status = dw_boundaries_parse(&settings->backward, config->backward, "backward",
                                     settings->stage, config->stages, why);
    if (status == DW_OK) status = check_replicas(settings, given, why);
    if (status == DW_OK) status = check_local_steps(settings, given, why);
    return status;
}

dw_status dw_settings_resolve(dw_settings *settings, const dw_train_config *config, dw_why *why)
{
    dw_status status = resolve(settings, config, why);
    return status < 0 ? status : check_addresses(settings, why);
}

dw_status dw_train_check(const dw_train_config *config, dw_why *why)
{
    dw_settings settings;
    if (!config) return dw_say(why, DW_ERR_ARGUMENT, "dw_train_check needs a config");
    return resolve(&settings, config, why);
}

dw_status dw_settings_count(dw_settings *settings, uint32_t samples, dw_why *why)
{
    dw_train_config *config = &settings->config;
    config->samples = samples;
    uint64_t epoch = (uint64_t)(samples / config->replicas / config->batch) * config->repeat;
    if (epoch > INT32_MAX)
        return dw_say(why, DW_ERR_LIMIT,
                      "an epoch of %" PRIu64 " steps is longer than 2^31; give a smaller repeat",
                      epoch);
    settings->steps_per_epoch = (uint32_t)epoch;
    uint64_t steps =
        config->steps ? config->steps : (uint64_t)config->epochs * settings->steps_per_epoch;
    if (steps > INT32_MAX)
        return dw_say(why, DW_ERR_LIMIT, "%" PRIu64 " steps are more than 2^31; give fewer", steps);
    config->steps = (uint32_t)steps;
    if (config->warmup >= config->steps) {
        return dw_say(why, DW_ERR_ARGUMENT,
                      "warmup is %u of %u steps; give fewer than there are steps", config->warmup,
                      config->steps);
    }
    uint32_t n = config->local_steps;
    if (!config->eval_every) config->eval_every = (settings->steps_per_epoch + n - 1) / n * n;
    if (!config->check_every) config->check_every = config->eval_every;
    return DW_OK;
}

static json_t *hex(uint64_t digest)
{
    return json_sprintf("%016" PRIx64, digest);
}

/* In the order in which they are compared. The text comes last, because what is read of it depends
 * on other settings. */
json_t *dw_settings_greeting(const dw_settings *settings, uint64_t text, uint64_t checkpoint)
{
    const dw_train_config *config = &settings->config;
    const struct {
        const char *name;
        json_t *value;
    } fields[] = {
        {"greeting", json_integer(GREETING_VERSION)},
        {"version", json_string(dw_version())},
        {"rank", json_integer(config->rank)},
        {"stages", json_integer(config->stages)},
        {"replicas", json_integer(config->replicas)},
        {"layers", json_integer(config->layers)},
        {"channels", json_integer(config->channels)},
        {"heads", json_integer(config->heads)},
        {"context", json_integer(config->context)},
        {"bottleneck", json_integer(config->bottleneck)},
        {"tied", json_boolean(config->tied)},
        {"forward", json_string(settings->forward.text)},
        {"backward", json_string(settings->backward.text)},
        {"gradient", json_string(settings->gradient.text)},
        {"batch", json_integer(config->batch)},
        {"micro-batches", json_integer(config->micro_batches)},
        {"schedule", json_string(config->schedule)},
        {"slices", json_integer(config->slices)},
        {"repeat", json_integer(config->repeat)},
        {"samples", json_integer(config->samples)},
        {"held-out", json_integer(config->held_out)},
        {"steps", json_integer(config->steps)},
        {"eval-every", json_integer(config->eval_every)},
        {"plain-eval", json_boolean(config->plain_eval)},
        {"hops", json_integer(config->hops)},
        {"local-steps", json_integer(config->local_steps)},
        {"outer-lr", json_real(config->outer_lr)},
        {"outer-momentum", json_real(config->outer_momentum)},
        {"check-every", json_integer(config->check_every)},
        {"save-every", json_integer(config->save ? config->save_every : 0)},
        {"save", json_string(config->save ? "yes" : "no")},
        {"lr", json_real(config->lr)},
        {"warmup", json_integer(config->warmup)},
        {"beta1", json_real(config->beta1)},
        {"beta2", json_real(config->beta2)},
        {"weight-decay", json_real(config->weight_decay)},
        {"clip", json_real(config->clip)},
        {"seed", json_sprintf("%" PRIu64, config->seed)},
        {"start", json_string(config->resume ? "resume"
                              : config->init ? "init"
                                             : "random")},
        {"checkpoint", hex(checkpoint)},
        {"text", hex(text)},
    };
    json_t *greeting = json_object();
    bool failed = !greeting;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (json_object_set_new(greeting, fields[i].name, fields[i].value)) failed = true;
    if (!failed) return greeting;
    json_decref(greeting);
    return NULL;
}

static dw_status differ(const char *name, const json_t *ours, const json_t *theirs, uint32_t peer,
                        dw_why *why)
{
    if (!strcmp(name, "text"))
        return dw_say(why, DW_ERR_MISMATCH,
                      "rank %u reads another text: give all ranks the same file and text-offset",
                      peer);
    if (!strcmp(name, "checkpoint"))
        return dw_say(
            why, DW_ERR_MISMATCH,
            "rank %u starts from another checkpoint: give all ranks the same; if they were "
            "killed while each saved to a directory of its own, copy the manifest.json of "
            "the later step to all of them",
            peer);
    char *mine = json_dumps(ours, JSON_ENCODE_ANY | JSON_ENSURE_ASCII),
         *other = json_dumps(theirs, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    dw_status status =
        dw_say(why, DW_ERR_MISMATCH,
               "rank %u was started with %s %.60s, this rank with %.60s: give both the "
               "same",
               peer, name, other ? other : "?", mine ? mine : "?");
    free(mine);
    free(other);
    return status;
}

dw_status dw_settings_compare(json_t *ours, json_t *theirs, uint32_t peer, dw_why *why)
{
    const char *name;
    json_t *mine;
    json_int_t rank = json_integer_value(json_object_get(theirs, "rank"));
    json_object_foreach(ours, name, mine)
    {
        const json_t *other = json_object_get(theirs, name);
        if (!other)
            return dw_say(why, DW_ERR_PROTOCOL,
                          "the neighbour that should be rank %u did not tell its %s: run the same "
                          "version everywhere",
                          peer, name);
        if (!strcmp(name, "rank")) {
            if (rank == peer) continue;
            return dw_say(
                why, DW_ERR_MISMATCH,
                "the neighbour calls itself rank %d, but rank %u belongs here: check rank, "
                "listen and connect",
                (int)rank, peer);
        }
        if (!json_equal(mine, other)) return differ(name, mine, other, peer, why);
    }
    return DW_OK;
}
