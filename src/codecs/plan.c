/* SPDX-License-Identifier: Apache-2.0
 * plan.c - computes everything that depends only on config and shape. */
#include "codecs/plan.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "codecs/codecs.h"
#include "codecs/options.h"
#include "common/compact.h"

/* The option with the next higher number. Parameter blocks are in the order of numbers; the table
 * is not. */
static const dw_option *option_after(uint32_t number)
{
    const dw_option *next = NULL;
    for (int i = 0; i < DW_OPTIONS; i++) {
        const dw_option *o = &dw_options[i];
        if (o->number > number && (!next || o->number < next->number)) next = o;
    }
    return next;
}

/* Fills in the defaults of the options that frames contain. It must not touch other options,
 * because a config that was read from a frame does not have them. */
static void fill_agreed(dw_config *config, dw_dtype x)
{
    dw_options_fill(config, DW_AGREE_FRAME);
    dw_codec_own_dtypes(config, x);
}

/* Fills in the defaults of step, key_step and iterations, which only encoders use and frames do not
 * contain. */
static void fill_steps(dw_config *config)
{
    for (int i = 0; i < DW_OPTIONS; i++)
        if (dw_options[i].scope == DW_SCOPE_FACTOR || dw_options[i].scope == DW_SCOPE_KEY_FACTOR ||
            dw_options[i].offset == offsetof(dw_config, iterations))
            dw_option_fill(&dw_options[i], config);
}

static void write_block(dw_params *params, const dw_config *config)
{
    uint8_t *at = params->block;
    for (const dw_option *o = option_after(0); o; o = option_after(o->number)) {
        uint64_t value = dw_option_get(o, config);
        if (value == 0) continue; /* bits, where values are floats */
        if (!dw_option_is_in_frames(o, value) || !dw_option_applies(o, config)) continue;
        if (o->agrees == DW_AGREE_UNUSUAL && value == o->otherwise(config)) continue;
        memset(at, 0, DW_PARAMETER_BYTES);
        at[0] = o->number;
        dw_put(at + 4, value, 4);
        at += DW_PARAMETER_BYTES;
    }
    params->n_parameters = (uint32_t)((at - params->block) / DW_PARAMETER_BYTES);
    params->digest = dw_digest_bytes(params->block, (uint64_t)(at - params->block));
}

/* taken: a valid config. */
static void resolve(dw_params *params, const dw_config *taken, dw_dtype x)
{
    dw_config config = *taken;
    fill_agreed(&config, x);
    fill_steps(&config);
    memset(params, 0, sizeof *params);
    dw_codec_fill(params, &config, x);
    params->kept = params->keeps_prev ? (dw_dtype)config.prev : (dw_dtype)0;
    params->prev = dw_prev_dtype(params->kept);
    params->audit = params->keeps_prev && config.audit != DW_AUDIT_NEVER ? config.audit : 0;
    params->wants_reply = config.replies != DW_REPLIES_NEVER;
    params->is_stochastic = config.rounding == DW_ROUNDING_STOCHASTIC;
    params->is_trellis = config.rounding == DW_ROUNDING_TRELLIS;
    params->scale = config.scale ? config.scale : (dw_scale)dw_option_own_scale(&config);
    params->skip = params->keeps_prev ? config.skip : 0;
    params->bound = (double)config.error_abs / 1e12;
    params->rate = config.rate;
    params->deadzone = config.deadzone;
    params->keeps_residual = config.feedback > DW_FEEDBACK_NONE;
    params->decay = dw_config_decay(&config);
    params->step_most = dw_option_step_most(&config);
    write_block(params, &config);
}

dw_status dw_params_resolve(dw_params *params, const dw_config *config, dw_dtype x, dw_why *why)
{
    dw_config taken;
    dw_status status = dw_config_take(&taken, config, why);
    if (!status) status = dw_config_check(&taken, why);
    if (!status) resolve(params, &taken, x);
    return status;
}

/* Returns a sentence about an option that cannot be used on a GPU, or NULL if there is none. */
static const char *option_not_on_device(const dw_params *params)
{
    if (params->skip)
        return "skip cannot be used on a GPU, where x is not read before the frame is planned: "
               "leave it out, or use the CPU";
    if (params->deadzone)
        return "deadzone cannot be used on a GPU yet: leave it out, or use the CPU";
    if (params->decay != DW_DECAY_NONE)
        return "decay cannot be used on a GPU yet: leave it out, or use the CPU";
    if (params->is_trellis)
        return "rounding=trellis cannot be used on a GPU yet: leave it out, or use the CPU (a GPU "
               "decodes such frames if its config leaves it out, too)";
    if (params->rate)
        return "rate cannot be used on a GPU, where the length of a frame is not known before the "
               "next one is made: give step instead, or use the CPU";
    for (int use = DW_USE_WHOLE; use < DW_USES; use++) {
        if (params->use[use].bound > 0)
            return "error=abs cannot be used on a GPU yet: give error or step instead, or use the "
                   "CPU";
        if (params->use[use].error > 0 && params->use[use].group == DW_GROUP_SAMPLE)
            return "error cannot be used on a GPU with group=sample yet: give group=row, or use "
                   "the CPU";
    }
    return NULL;
}

dw_status dw_params_on_device(const dw_params *params, dw_why *why)
{
    const char *sentence = option_not_on_device(params);
    if (sentence && why) snprintf(why->text, sizeof why->text, "%s", sentence);
    if (sentence) return DW_ERR_UNSUPPORTED;
    for (int use = DW_USE_WHOLE; use < DW_USES; use++) {
        const dw_form *form = params->use[use].form;
        if (!form || form->device) continue;
        if (why)
            snprintf(why->text, sizeof why->text,
                     "the form \"%s\" cannot be computed on a GPU: choose another codec or key, "
                     "or use the CPU",
                     form->name);
        return DW_ERR_UNSUPPORTED;
    }
    return DW_OK;
}

bool dw_params_read(dw_config *config, uint8_t codec, dw_dtype x, const uint8_t *block,
                    uint32_t n_parameters, const char **reason)
{
    dw_params again;
    *config = (dw_config){.struct_size = sizeof *config, .codec = (dw_codec)codec};
    *reason = "unknown codec";
    if (!dw_codec_is_known(codec)) return false;
    *reason = "its parameters do not belong to its codec, are out of order or out of range";
    for (uint32_t i = 0; i < n_parameters; i++) {
        const uint8_t *at = block + (size_t)i * DW_PARAMETER_BYTES;
        const dw_option *o = at[0] ? option_after(at[0] - 1u) : NULL;
        if (!o || o->number != at[0]) return false;
        dw_option_set(o, config, dw_get(at + 4, 4));
    }
    if (dw_config_check(config, NULL)) return false;
    resolve(&again, config, x);
    fill_agreed(config, x);
    return again.n_parameters == n_parameters &&
           memcmp(again.block, block, (size_t)n_parameters * DW_PARAMETER_BYTES) == 0;
}

/* Returns the parameter with this number in a block of n parameters, or NULL if there is none. */
static const uint8_t *find_parameter(const uint8_t *block, uint32_t n, uint8_t number)
{
    for (uint32_t i = 0; i < n; i++)
        if (block[(size_t)i * DW_PARAMETER_BYTES] == number)
            return block + (size_t)i * DW_PARAMETER_BYTES;
    return NULL;
}

/* Writes an option's name and value for an error sentence. parameter: what a parameter block says
 * of the option; NULL if it says nothing. */
static void name_value(const dw_option *o, const uint8_t *parameter, char *text, size_t cap)
{
    uint64_t value = parameter ? dw_get(parameter + 4, 4) : 0;
    const char *word = o->words ? dw_word_of(o->words, value) : NULL;
    char decimal[DW_DECIMAL_BYTES];
    if (!parameter)
        snprintf(text, cap, "%s %s",
                 o->agrees == DW_AGREE_UNUSUAL  ? "the default"
                 : o->agrees == DW_AGREE_DITHER ? "another"
                                                : "no",
                 o->name);
    else if (word)
        snprintf(text, cap, "%s=%s", o->name, word);
    else if (o->decimals) {
        dw_option_write_decimal(value, o->decimals, decimal);
        snprintf(text, cap, "%s=%s", o->name, decimal);
    } else
        snprintf(text, cap, "%s=%llu", o->name, (unsigned long long)value);
}

/* Returns whether an option of a frame's parameter block differs from our own. If so, writes both
 * values to text. */
static bool name_difference(const dw_option *o, const dw_params *own, const uint8_t *block,
                            uint32_t n_parameters, char *text, size_t cap)
{
    char ours[64], theirs[64];
    const uint8_t *mine = find_parameter(own->block, own->n_parameters, o->number);
    const uint8_t *other = find_parameter(block, n_parameters, o->number);
    if (mine && other ? memcmp(mine, other, DW_PARAMETER_BYTES) == 0 : mine == other) return false;
    name_value(o, mine, ours, sizeof ours);
    name_value(o, other, theirs, sizeof theirs);
    snprintf(text, cap, "%s, but this decoder has %s", theirs, ours);
    return true;
}

void dw_params_difference(const dw_params *own, uint8_t codec, const uint8_t *block,
                          uint32_t n_parameters, char *text, size_t cap)
{
    if (codec != own->codec) {
        snprintf(text, cap, "codec %s, but this decoder has %s", dw_word_of(dw_codec_words, codec),
                 dw_word_of(dw_codec_words, own->codec));
        return;
    }
    /* The first difference is the one to tell. The form is the first row of the table, because it
     * decides which other options have a meaning. */
    for (int i = 0; i < DW_OPTIONS; i++)
        if (name_difference(&dw_options[i], own, block, n_parameters, text, cap)) return;
    snprintf(text, cap, "other parameters");
}

/* The default rules. signed costs as much as absmax and lost less on recorded activations and
 * gradients at every number of bits above one. For one bit, a search
 * (mse) is better. Stochastic rounding needs absmax: unbiased rounding requires that every value
 * lies between two levels, and this is the only rule that guarantees it. */
dw_scale dw_params_scale(const dw_params *params, uint32_t bits)
{
    if (params->scale) return params->scale;
    if (params->is_stochastic) return DW_SCALE_ABSMAX;
    return bits == 1 ? DW_SCALE_MSE : DW_SCALE_SIGNED;
}

dw_audit dw_audit_of(uint32_t every, dw_key key, uint64_t sequence)
{
    uint8_t bytes[24] = {0};
    if (every <= 1) return (dw_audit){every, 0};
    dw_put(bytes, key.sample, 8);
    dw_put(bytes + 8, key.slice, 4);
    dw_put(bytes + 16, sequence, 8);
    return (dw_audit){every, (uint32_t)(dw_digest_bytes(bytes, sizeof bytes) % every)};
}

enum { ALIKE_BYTES = 24, VISIT_BYTES = 32 };

static void put_visit(uint8_t bytes[VISIT_BYTES], uint64_t seed, dw_key key, uint64_t sequence)
{
    dw_put(bytes, seed, 8);
    dw_put(bytes + 8, key.sample, 8);
    dw_put(bytes + 16, key.slice, 8);
    dw_put(bytes + 24, sequence, 8);
}

uint64_t dw_draws_key(uint64_t seed, dw_key key, uint64_t sequence)
{
    uint8_t bytes[VISIT_BYTES];
    put_visit(bytes, seed, key, sequence);
    return dw_digest_bytes(bytes, sizeof bytes);
}

uint64_t dw_shared_draws_key(const dw_header *header, dw_key key)
{
    uint8_t bytes[VISIT_BYTES + 8];
    put_visit(bytes, header->seed, key, header->sequence);
    dw_put(bytes + VISIT_BYTES, header->incarnation, 8);
    return dw_digest_bytes(bytes, header->draws_alike ? ALIKE_BYTES : sizeof bytes);
}

bool dw_plan_draws_places(const dw_plan *plan)
{
    return plan->draws && (plan->params.is_random || plan->params.mask);
}

uint64_t dw_rounding_key(const dw_header *header, uint64_t seed, dw_key key)
{
    dw_header own = *header;
    if (!own.draws_alike) return dw_draws_key(seed, key, own.sequence);
    own.seed = seed;
    own.draws_alike = false;
    return dw_shared_draws_key(&own, key);
}

const char *dw_plans_bad_entry(const dw_plans *plans, const dw_entry *entry)
{
    const dw_plan *plan = &plans->of[entry->use];
    bool audited = dw_role_has_state(entry->role) && plans->params.audit != 0;
    if (!plan->form || (dw_role_has_state(entry->role) && !plans->params.keeps_prev))
        return "an entry's role or use does not belong to the codec";
    if (plan->form->wire != (dw_form_name)entry->form)
        return "an entry's form is not the one that the parameters demand";
    if (audited != (entry->state_digest != 0)) return "an entry's state digest does not fit";
    if (plan->size_varies ? entry->payload_bytes > plan->payload_bytes
                          : entry->payload_bytes != plan->payload_bytes)
        return "a payload's size does not follow from shape and parameters";
    return NULL;
}

dw_status dw_plan_too_large(const dw_plan *plan, uint64_t most, dw_why *why)
{
    char limit[48] = "";
    if (most) snprintf(limit, sizeof limit, ", which takes at most %llu", (unsigned long long)most);
    if (why)
        snprintf(why->text, sizeof why->text,
                 "a sample of %u x %u values is too large for the form %s%s: encode it as several "
                 "samples, or as slices of one",
                 (unsigned)plan->t, (unsigned)plan->c, plan->form ? plan->form->name : "", limit);
    return DW_ERR_LIMIT;
}

dw_status dw_plans_make(dw_plans *plans, const dw_config *config, dw_dtype x, uint32_t t,
                        uint32_t c, dw_why *why)
{
    plans->t = plans->c = 0;
    dw_status status = dw_params_resolve(&plans->params, config, x, why);
    if (status) return status;
    for (int use = 0; use < DW_USES; use++) {
        dw_plan *plan = &plans->of[use];
        memset(plan, 0, sizeof *plan);
        plan->params = plans->params.use[use];
        plan->form = plan->params.form;
        plan->kept = plans->params.kept;
        plan->prev = plans->params.prev;
        plan->t = t;
        plan->c = c;
        if (plan->form) status = plan->form->plan(plan, why);
        plan->behind = plan->params.behind;
        if (!status && plan->behind) status = plan->behind->plan(plan, why);
        if (status) return status;
    }
    plans->x = x;
    plans->profile = config->profile;
    plans->t = t;
    plans->c = c;
    return DW_OK;
}

const dw_plans *dw_plan_cache_get(dw_plan_cache *cache, const dw_config *config, dw_dtype x,
                                  uint32_t t, uint32_t c, dw_status *status, dw_why *why)
{
    for (int i = 0; i < DW_PLANS_KEPT; i++) {
        const dw_plans *kept = &cache->kept[i];
        if (kept->t == t && kept->c == c && kept->x == x && kept->profile == config->profile)
            return kept;
    }
    dw_plans *made = &cache->kept[cache->oldest];
    *status = dw_plans_make(made, config, x, t, c, why);
    if (*status) return NULL;
    cache->oldest = (cache->oldest + 1) % DW_PLANS_KEPT;
    return made;
}
