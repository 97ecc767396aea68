/* SPDX-License-Identifier: Apache-2.0
 * codecs.c - the table of codecs and the table of forms.
 *
 * A codec says which form each use of an entry takes and whether both ends keep prev. A new codec
 * is a new row here. If it needs a new form, that is a file of its own. */
#include "codecs/codecs.h"

#include "codecs/options.h"
#include "common/compact.h"

/* Where a use of a codec takes its form and the form's parameters from. */
typedef enum source {
    NOTHING, /* the codec has no such use */
    /* The option form: quantized, with the options bits and group; microscaled, with the option
     * element; or with one step, with the options step, group and rounding. */
    OF_FORM,
    OF_ELEMENT,  /* microscaled, with the option element */
    OF_DTYPE,    /* floats, with the option dtype */
    OF_KEY,      /* the option key */
    OF_PREV,     /* floats in prev's dtype */
    OF_LARGEST,  /* sparse: the largest values, with the options keep and bits or dtype */
    OF_RANDOM,   /* sparse: values at random places, with the same options and scaling */
    OF_MASK,     /* sparse: the largest of values at random places, with the option mask, too */
    OF_CHUNKS,   /* sparse: the largest values of each chunk, with the option chunk, too */
    OF_RANK,     /* lowrank: two thin matrices, with the options rank and bits or dtype */
    OF_TILES,    /* rotated tiles, with the options tile, tau and share */
    OF_CODEBOOK, /* blocks, with the options codebook and block */
    EMPTY        /* no payload */
} source;

static const struct codec_row {
    dw_codec wire;
    dw_tier tier;
    bool keeps_prev;
    source of[DW_USES];
} codecs[] = {
    {DW_CODEC_DELTA,
     DW_TIER_STABLE,
     true,
     {[DW_USE_NONE] = EMPTY,
      [DW_USE_WHOLE] = OF_KEY,
      [DW_USE_CHANGE] = OF_FORM,
      [DW_USE_BRIEF] = OF_FORM,
      [DW_USE_EXACT] = OF_PREV}},
    {DW_CODEC_DIRECT, DW_TIER_STABLE, false, {[DW_USE_WHOLE] = OF_FORM}},
    {DW_CODEC_RAW, DW_TIER_STABLE, false, {[DW_USE_WHOLE] = OF_DTYPE}},
    {DW_CODEC_MX, DW_TIER_STABLE, false, {[DW_USE_WHOLE] = OF_ELEMENT}},
    {DW_CODEC_TOPK, DW_TIER_COMPARISON, false, {[DW_USE_WHOLE] = OF_LARGEST}},
    {DW_CODEC_RANDK, DW_TIER_COMPARISON, false, {[DW_USE_WHOLE] = OF_RANDOM}},
    {DW_CODEC_COCKTAIL, DW_TIER_COMPARISON, false, {[DW_USE_WHOLE] = OF_MASK}},
    {DW_CODEC_CHUNK, DW_TIER_COMPARISON, false, {[DW_USE_WHOLE] = OF_CHUNKS}},
    {DW_CODEC_LOWRANK, DW_TIER_COMPARISON, false, {[DW_USE_WHOLE] = OF_RANK}},
    {DW_CODEC_TAH, DW_TIER_COMPARISON, false, {[DW_USE_WHOLE] = OF_TILES}},
    {DW_CODEC_BLOCKS, DW_TIER_COMPARISON, false, {[DW_USE_WHOLE] = OF_CODEBOOK}},
};
enum { CODECS = sizeof codecs / sizeof *codecs };

static const dw_form *const forms[] = {&dw_form_floats, &dw_form_quantized, &dw_form_mx,
                                       &dw_form_step,   &dw_form_sparse,    &dw_form_lowrank,
                                       &dw_form_tah,    &dw_form_blocks};
enum { FORMS = sizeof forms / sizeof *forms };

const char *dw_form_string(dw_form_name form)
{
    for (int i = 0; i < FORMS; i++)
        if (forms[i]->wire == form) return forms[i]->name;
    return form ? "?" : "none";
}

bool dw_codec_is_known(uint8_t wire)
{
    return dw_codec_tier((dw_codec)wire) != 0;
}

dw_tier dw_codec_tier(dw_codec codec)
{
    for (int i = 0; i < CODECS; i++)
        if (codecs[i].wire == codec) return codecs[i].tier;
    return (dw_tier)0;
}

static dw_dtype dtype_of_key(uint32_t key, dw_dtype x)
{
    switch (key) {
    case DW_KEY_RAW: return x;
    case DW_KEY_F32: return DW_F32;
    case DW_KEY_F16: return DW_F16;
    case DW_KEY_BF16: return DW_BF16;
    default: return (dw_dtype)0;
    }
}

static dw_form_params quantized(uint32_t bits, uint32_t group)
{
    return (dw_form_params){.form = &dw_form_quantized, .bits = bits, .group = group};
}

static dw_form_params floats(dw_dtype dtype)
{
    return (dw_form_params){.form = &dw_form_floats, .dtype = dtype};
}

static dw_form_params microscaled(dw_element element)
{
    return (dw_form_params){.form = &dw_form_mx, .element = element};
}

/* error: how large the error may be, in units of 10^-12; 0: `step` says how large the step is. */
static dw_form_params stepped(const dw_config *config, uint32_t step, uint64_t error)
{
    return (dw_form_params){.form = &dw_form_step,
                            .bits = 8,
                            .group = config->group,
                            .step = step,
                            .error = (double)error / 1e12,
                            .bound = (double)config->error_abs / 1e12,
                            .dithers = config->rounding == DW_ROUNDING_DITHER};
}

/* The options mask and chunk are 0 with codecs that do not have them. */
static dw_form_params sparse(const dw_config *config, bool is_random)
{
    return (dw_form_params){.form = &dw_form_sparse,
                            .bits = config->bits,
                            .group = config->group,
                            .element = config->element,
                            .dtype = config->raw,
                            .keep = config->keep,
                            .is_random = is_random,
                            .unbiased = config->scaling == DW_SCALING_UNBIASED,
                            .mask = config->mask,
                            .chunk = config->chunk,
                            .behind = &dw_stage_indices};
}

static dw_form_params lowrank(const dw_config *config)
{
    return (dw_form_params){.form = &dw_form_lowrank,
                            .bits = config->bits,
                            .group = config->group,
                            .dtype = config->raw,
                            .rank = config->rank,
                            .iterations = config->iterations,
                            .restart = config->restart,
                            .width = config->width};
}

static dw_form_params blocked(const dw_config *config)
{
    return (dw_form_params){
        .form = &dw_form_blocks, .codebook = config->codebook, .block = config->block};
}

static dw_form_params by_key(const dw_config *config, dw_dtype x)
{
    uint32_t key = config->key;
    dw_dtype dtype = dtype_of_key(key, x);
    if (dtype) return floats(dtype);
    if (key == DW_KEY_STEP)
        return stepped(config, config->key_step,
                       config->key_error ? config->key_error : config->error);
    if (key > DW_KEY_ELEMENT) return microscaled((dw_element)(key - DW_KEY_ELEMENT));
    return quantized(key, config->group);
}

static dw_form_params by_form(const dw_config *config)
{
    if (config->form == DW_FORM_MX) return microscaled(config->element);
    if (config->form == DW_FORM_STEP) return stepped(config, config->step, config->error);
    return quantized(config->bits, config->group);
}

/* config: with defaults filled in. */
static dw_form_params params_of(source of, const dw_config *config, dw_dtype x)
{
    switch (of) {
    case NOTHING: break;
    case OF_FORM: return by_form(config);
    case OF_ELEMENT: return microscaled(config->element);
    case OF_DTYPE: return floats(config->raw);
    case OF_KEY: return by_key(config, x);
    case OF_PREV: return floats(dw_prev_dtype(config->prev));
    case OF_RANDOM: return sparse(config, true);
    case OF_LARGEST:
    case OF_MASK:
    case OF_CHUNKS: return sparse(config, false);
    case OF_RANK: return lowrank(config);
    case OF_TILES:
        return (dw_form_params){
            .form = &dw_form_tah, .tile = config->tile, .tau = config->tau, .share = config->share};
    case EMPTY: return (dw_form_params){.form = &dw_form_skip};
    case OF_CODEBOOK: return blocked(config);
    }
    return (dw_form_params){0};
}

void dw_codec_fill(dw_params *params, const dw_config *config, dw_dtype x)
{
    const struct codec_row *row = codecs;
    while (row->wire != config->codec) row++;
    params->codec = (uint8_t)row->wire;
    params->keeps_prev = row->keeps_prev;
    for (int use = 0; use < DW_USES; use++) params->use[use] = params_of(row->of[use], config, x);
    bool rotates = config->transform == DW_TRANSFORM_HADAMARD;
    for (int use = 0; use < DW_USES; use++) {
        const dw_form *form = params->use[use].form;
        if (!form || !form->has_codes) continue;
        if (config->entropy == DW_ENTROPY_RANS) params->use[use].behind = &dw_stage_rans;
        if (rotates) params->use[use].rotates = config->rotate;
        params->use[use].weighs = form == &dw_form_step && config->profile_digest;
        if (params->use[use].weighs) params->use[use].profile = config->profile;
    }
    params->use[DW_USE_CHANGE].chooses = row->keeps_prev && config->choose != DW_CHOOSE_NEVER &&
                                         config->form != DW_FORM_STEP && !rotates;
}

void dw_codec_own_dtypes(dw_config *config, dw_dtype x)
{
    bool sends_floats = config->codec == DW_CODEC_RAW || dw_option_nested_floats(config);
    if (sends_floats && !config->raw) config->raw = x;
    if (config->codec != DW_CODEC_DELTA) return;
    if (!config->prev) config->prev = x;
    if (config->key == DW_KEY_RAW)
        config->key = x == DW_F32 ? DW_KEY_F32 : x == DW_F16 ? DW_KEY_F16 : DW_KEY_BF16;
}
