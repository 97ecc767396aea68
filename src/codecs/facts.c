/* SPDX-License-Identifier: Apache-2.0
 * facts.c - what follows from a config, for programs that must not know the codecs by name. */
#include "base/sized.h"
#include "codecs/codecs.h"
#include "codecs/options.h"

static dw_tier tier_of(const dw_config *config)
{
    for (int i = 0; i < DW_OPTIONS; i++) {
        const dw_option *option = &dw_options[i];
        dw_config without = *config;
        if (dw_option_is_stable(option) || !dw_option_applies(option, config)) continue;
        dw_option_set(option, &without, 0);
        if (dw_option_value(option, config) != dw_option_value(option, &without))
            return DW_TIER_COMPARISON;
    }
    return dw_codec_tier(config->codec);
}

/* Entries of codecs with prev differ, those with error=abs may carry floats instead, and a stage
 * writes as much as the values need, unless both ends know which values are sent. */
static bool has_fixed_size(const dw_params *params)
{
    const dw_form_params *whole = &params->use[DW_USE_WHOLE];
    return !params->keeps_prev && !(params->bound > 0) && (!whole->behind || whole->is_random);
}

dw_status dw_config_facts(const dw_config *config, dw_facts *facts)
{
    dw_config all;
    dw_params params;
    if (!config || !facts) return DW_ERR_ARGUMENT;
    dw_status status = dw_config_take(&all, config, NULL);
    if (!status) status = dw_params_resolve(&params, &all, DW_F32, NULL);
    if (status) return status;
    dw_facts found = {.codec = dw_word_of(dw_codec_words, all.codec),
                      .tier = tier_of(&all),
                      .keeps_prev = params.keeps_prev,
                      .keeps_residual = params.keeps_residual,
                      .has_fixed_size = has_fixed_size(&params),
                      .runs_on_device = dw_params_on_device(&params, NULL) == DW_OK};
    return dw_give_told(facts, &found, sizeof found, "dw_facts", NULL);
}
