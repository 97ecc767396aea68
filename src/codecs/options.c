/* SPDX-License-Identifier: Apache-2.0
 * options.c - the table of options. */
#include "codecs/options.h"

#include <string.h>

#include "codecs/contraction.h"
#include "common/compact.h"

const dw_word dw_codec_words[] = {{"delta", DW_CODEC_DELTA},       {"direct", DW_CODEC_DIRECT},
                                  {"raw", DW_CODEC_RAW},           {"mx", DW_CODEC_MX},
                                  {"topk", DW_CODEC_TOPK},         {"randk", DW_CODEC_RANDK},
                                  {"cocktail", DW_CODEC_COCKTAIL}, {"chunk", DW_CODEC_CHUNK},
                                  {"lowrank", DW_CODEC_LOWRANK},   {"tah", DW_CODEC_TAH},
                                  {"blocks", DW_CODEC_BLOCKS},     {0}};

static const dw_word forms[] = {
    {"quantized", DW_FORM_QUANTIZED}, {"mx", DW_FORM_MX}, {"step", DW_FORM_STEP}, {0}};
static const dw_word elements[] = {{"int8", DW_ELEMENT_INT8},
                                   {"e4m3", DW_ELEMENT_E4M3},
                                   {"e5m2", DW_ELEMENT_E5M2},
                                   {"e3m2", DW_ELEMENT_E3M2},
                                   {"e2m3", DW_ELEMENT_E2M3},
                                   {"e2m1", DW_ELEMENT_E2M1},
                                   {0}};

static const dw_word widths[] = {{"1", 1}, {"2", 2}, {"3", 3}, {"4", 4}, {"5", 5},
                                 {"6", 6}, {"7", 7}, {"8", 8}, {0}};
static const dw_word groups[] = {{"16", 16},
                                 {"32", 32},
                                 {"64", 64},
                                 {"128", 128},
                                 {"256", 256},
                                 {"row", DW_GROUP_ROW},
                                 {"channel", DW_GROUP_CHANNEL},
                                 {"sample", DW_GROUP_SAMPLE},
                                 {0}};
static const dw_word scales[] = {
    {"absmax", DW_SCALE_ABSMAX}, {"signed", DW_SCALE_SIGNED}, {"mse", DW_SCALE_MSE}, {0}};
static const dw_word roundings[] = {{"nearest", DW_ROUNDING_NEAREST},
                                    {"stochastic", DW_ROUNDING_STOCHASTIC},
                                    {"dither", DW_ROUNDING_DITHER},
                                    {"trellis", DW_ROUNDING_TRELLIS},
                                    {0}};
static const dw_word keys[] = {{"2", 2},
                               {"3", 3},
                               {"4", 4},
                               {"5", 5},
                               {"6", 6},
                               {"7", 7},
                               {"8", 8},
                               {"raw", DW_KEY_RAW},
                               {"f32", DW_KEY_F32},
                               {"f16", DW_KEY_F16},
                               {"bf16", DW_KEY_BF16},
                               {"step", DW_KEY_STEP},
                               {"int8", DW_KEY_ELEMENT + DW_ELEMENT_INT8},
                               {"e4m3", DW_KEY_ELEMENT + DW_ELEMENT_E4M3},
                               {"e5m2", DW_KEY_ELEMENT + DW_ELEMENT_E5M2},
                               {"e3m2", DW_KEY_ELEMENT + DW_ELEMENT_E3M2},
                               {"e2m3", DW_KEY_ELEMENT + DW_ELEMENT_E2M3},
                               {"e2m1", DW_KEY_ELEMENT + DW_ELEMENT_E2M1},
                               {0}};
static const dw_word dtypes[] = {{"f32", DW_F32}, {"f16", DW_F16}, {"bf16", DW_BF16}, {0}};
static const dw_word prevs[] = {{"f32", DW_F32}, {"f16", DW_F16}, {"bf16", DW_BF16},
                                {"8", 8},        {"4", 4},        {0}};
static const dw_word choices[] = {{"group", DW_CHOOSE_GROUP}, {"never", DW_CHOOSE_NEVER}, {0}};
static const dw_word entropies[] = {{"none", DW_ENTROPY_NONE}, {"rans", DW_ENTROPY_RANS}, {0}};
static const dw_word feedbacks[] = {{"none", DW_FEEDBACK_NONE},
                                    {"ef", DW_FEEDBACK_EF},
                                    {"unstable", DW_FEEDBACK_UNSTABLE},
                                    {"lazy", DW_FEEDBACK_LAZY},
                                    {0}};
static const dw_word scalings[] = {
    {"none", DW_SCALING_NONE}, {"unbiased", DW_SCALING_UNBIASED}, {0}};
static const dw_word transforms[] = {
    {"none", DW_TRANSFORM_NONE}, {"hadamard", DW_TRANSFORM_HADAMARD}, {0}};
static const dw_word rotations[] = {{"16", 16}, {"64", 64}, {"256", 256}, {0}}; /* and tiles */
static const dw_word replies[] = {{"always", DW_REPLIES_ALWAYS}, {"never", DW_REPLIES_NEVER}, {0}};
static const dw_word codebooks[] = {{"dynamic", DW_CODEBOOK_DYNAMIC},
                                    {"linear", DW_CODEBOOK_LINEAR},
                                    {"quantile", DW_CODEBOOK_QUANTILE},
                                    {0}};
/* Powers of two, so that a place in a chunk has a whole number of bits. */
static const dw_word lengths[] = {{"64", 64},       {"128", 128},     {"256", 256},
                                  {"512", 512},     {"1024", 1024},   {"2048", 2048},
                                  {"4096", 4096},   {"8192", 8192},   {"16384", 16384},
                                  {"32768", 32768}, {"65536", 65536}, {0}};

/* The smallest (arithmetic/step.h, DW_STEP_LEAST) and largest step of configs, in thousandths. */
enum { STEP_LEAST = 70, STEP_MOST = 100000 };

/* The codecs that have an option, one bit each. */
enum {
    DELTA = 1 << DW_CODEC_DELTA,
    DIRECT = 1 << DW_CODEC_DIRECT,
    RAW = 1 << DW_CODEC_RAW,
    MX = 1 << DW_CODEC_MX,
    TOPK = 1 << DW_CODEC_TOPK,
    RANDK = 1 << DW_CODEC_RANDK,
    COCKTAIL = 1 << DW_CODEC_COCKTAIL,
    CHUNK = 1 << DW_CODEC_CHUNK,
    LOWRANK = 1 << DW_CODEC_LOWRANK,
    SPARSE = TOPK | RANDK | COCKTAIL | CHUNK,
    NESTED = SPARSE | LOWRANK, /* with rows of values that another form writes (nested.h) */
    TAH = 1 << DW_CODEC_TAH,
    BLOCKS = 1 << DW_CODEC_BLOCKS,
    WITHOUT_PREV = DIRECT | RAW | MX | NESTED | TAH | BLOCKS,
    ALL = DELTA | WITHOUT_PREV
};

static bool has_nested_rows(const dw_config *config)
{
    return dw_codec_bit(config->codec) & NESTED;
}

/* Returns whether the values of a sparse codec are microscaled. In a config struct of a codec that
 * has no option element, the field may have any value and means nothing. */
static bool has_sparse_element(const dw_config *config)
{
    return dw_codec_bit(config->codec) & SPARSE && config->element;
}

bool dw_option_nested_floats(const dw_config *config)
{
    return dw_codec_bit(config->codec) & (TOPK | RANDK | LOWRANK) && !config->bits &&
           !has_sparse_element(config);
}

static uint64_t best_bits(const dw_config *config)
{
    if (dw_option_nested_floats(config)) return 0;
    return config->codec == DW_CODEC_CHUNK ? 2 : 4;
}

static uint64_t best_rank(const dw_config *config)
{
    (void)config;
    return 4;
}

static uint64_t nothing(const dw_config *config)
{
    (void)config;
    return 0;
}

/* With feedback, a visit of a key begins with what the last visit of this key found, so that one
 * iteration is enough. */
static uint64_t best_iterations(const dw_config *config)
{
    return config->feedback > DW_FEEDBACK_NONE ? 1 : 2;
}

/* Of cocktail and chunk as in the papers (docs/codecs/for_comparison.md). */
static uint64_t best_keep(const dw_config *config)
{
    if (config->codec == DW_CODEC_COCKTAIL) return DW_KEEP_ALL / 5;
    return config->codec == DW_CODEC_CHUNK ? DW_KEEP_ALL / 64 : DW_KEEP_ALL / 100;
}

static uint64_t tenth(const dw_config *config)
{
    (void)config;
    return DW_KEEP_ALL / 10;
}

static uint64_t usual_length(const dw_config *config)
{
    (void)config;
    return 4096;
}

static uint64_t first(const dw_config *config) /* the first of an option's words */
{
    (void)config;
    return 1;
}

static bool is_microscaled(const dw_config *config)
{
    return config->codec == DW_CODEC_MX ||
           (config->codec == DW_CODEC_DELTA && config->form == DW_FORM_MX) ||
           has_sparse_element(config);
}

static bool is_stepped(const dw_config *config)
{
    return config->form == DW_FORM_STEP &&
           (config->codec == DW_CODEC_DELTA || config->codec == DW_CODEC_DIRECT);
}

/* The codec mx is the microscaled form without state. */
static bool form_fits(const dw_config *config, uint64_t form)
{
    return config->codec == DW_CODEC_DELTA || form != DW_FORM_MX;
}

static uint64_t best_group(const dw_config *config)
{
    if (config->codec == DW_CODEC_CHUNK) return 16;
    return is_stepped(config) ? (uint64_t)DW_GROUP_ROW : 64;
}

static bool group_fits(const dw_config *config, uint64_t group)
{
    /* Sparse values stand in one row, so a channel would be a single value; of lowrank, a channel
     * would have one value of each row, which do not belong together. */
    if (has_nested_rows(config) && group == DW_GROUP_CHANNEL) return false;
    return group != (is_stepped(config) ? DW_GROUP_CHANNEL : DW_GROUP_SAMPLE);
}

/* The coder works on tiles in order, and strips of channels go across them. */
static bool entropy_fits(const dw_config *config, uint64_t entropy)
{
    return entropy == DW_ENTROPY_NONE || config->group != DW_GROUP_CHANNEL;
}

/* Without an entropy coder, codes along a trellis would take as many bits as others. The trellis
 * bounds no single error. */
static bool rounding_fits(const dw_config *config, uint64_t rounding)
{
    if (rounding == DW_ROUNDING_TRELLIS)
        return is_stepped(config) && config->entropy == DW_ENTROPY_RANS && !config->error_abs;
    return rounding != DW_ROUNDING_DITHER || is_stepped(config);
}

/* With the codec delta, prev must come closer to x with every change that is sent: so the error of
 * a coded change must be smaller than the change. The variance of the error is step^2 / 12 with
 * dither, and up to step^2 / 4 with stochastic rounding; so steps from sqrt(12) and from 2 times
 * the root mean square of the change on are too large. The limits stay a little below that. Nearest
 * rounding never makes the error larger than the change, whatever the step. With feedback, however,
 * the error must be smaller than what is coded. Nearest rounding is wrong by at most the dead zone
 * (half a step by default), so the dead zone must be below the root mean square. Rounding along a
 * trellis never makes the error larger than the change either, because making all values 0 is one
 * of the ways that it compares; the norm of its error is about half a step. */
uint32_t dw_option_step_most(const dw_config *config)
{
    bool is_delta = config->codec == DW_CODEC_DELTA;
    bool is_bounded = config->feedback == DW_FEEDBACK_EF || config->feedback == DW_FEEDBACK_LAZY;
    if (!is_delta && !is_bounded) return STEP_MOST;
    if (config->rounding == DW_ROUNDING_DITHER) return 3000;
    if (config->rounding == DW_ROUNDING_STOCHASTIC) return 1800;
    if (config->rounding == DW_ROUNDING_TRELLIS) return is_delta ? STEP_MOST : 1260;
    return is_delta ? STEP_MOST : 950000 / (config->deadzone ? config->deadzone : 500);
}

/* Refuses steps that are too large for the codec delta. A step that is too large for feedback is
 * reported as an error of the option feedback instead (feedback_fits). */
static bool step_fits(const dw_config *config, uint64_t step)
{
    return config->codec != DW_CODEC_DELTA || step <= dw_option_step_most(config);
}

static uint64_t one_in_thousandths(const dw_config *config)
{
    (void)config;
    return 1000;
}

static uint64_t quarter_step(const dw_config *config)
{
    uint64_t step = config->step ? config->step : one_in_thousandths(config);
    return step / 4 < STEP_LEAST ? (uint64_t)STEP_LEAST : step / 4;
}

/* How key entries carry x: with 8 bits; in a wide format of the form of the changes. */
static uint64_t best_key(const dw_config *config)
{
    if (is_stepped(config)) return DW_KEY_STEP;
    return is_microscaled(config) ? (uint64_t)DW_KEY_ELEMENT + DW_ELEMENT_INT8 : 8;
}

/* A config has one kind of error at most. And a skipped sample keeps its old y, which may be
 * further away from x than error=abs allows. */
static bool fits_without_bound(const dw_config *config, uint64_t value)
{
    (void)value;
    return !config->error_abs;
}

/* Both options compare x with prev before a frame is planned, when it is not expanded yet. */
static bool prev_fits(const dw_config *config, uint64_t prev)
{
    return !dw_compact_bits((uint32_t)prev) || (!config->error_abs && !config->skip);
}

static bool key_error_fits(const dw_config *config, uint64_t error)
{
    (void)error;
    return !config->error_abs && !config->rate && (!config->key || config->key == DW_KEY_STEP);
}

/* Without an entropy coder every frame has the same length. */
static bool rate_fits(const dw_config *config, uint64_t rate)
{
    (void)rate;
    return config->entropy == DW_ENTROPY_RANS && !config->error && !config->error_abs;
}

/* A dead zone is a variant of nearest rounding. It would make the error larger than the options for
 * errors promise. */
static bool deadzone_fits(const dw_config *config, uint64_t deadzone)
{
    (void)deadzone;
    return config->rounding <= DW_ROUNDING_NEAREST && !config->error && !config->error_abs &&
           !config->key_error;
}

/* With feedback, what is coded is x and the residual together. So y may differ from x by more than
 * error=abs allows. */
static bool feedback_fits(const dw_config *config, uint64_t feedback)
{
    if (feedback == DW_FEEDBACK_NONE) return true;
    return !config->error_abs &&
           (feedback == DW_FEEDBACK_UNSTABLE || dw_contraction_of(config).kind != DW_CONTRACTS_NOT);
}

/* Key entries must be floats, or take the same form as changes. With error=abs floats of 16 bits
 * are not allowed, because they may be too coarse for the bound. With a rate no floats are allowed,
 * because the length of such entries cannot be controlled. */
static bool key_fits(const dw_config *config, uint64_t key)
{
    if (config->rate && key != DW_KEY_STEP) return false;
    if (config->error_abs && (key == DW_KEY_F16 || key == DW_KEY_BF16)) return false;
    bool is_step = key == DW_KEY_STEP, is_bits = key >= 2 && key <= 8,
         is_element = key > DW_KEY_ELEMENT && !is_step;
    if (is_stepped(config)) return !is_bits && !is_element;
    return !is_step && (is_microscaled(config) ? !is_bits : !is_element);
}

static bool is_rotated(const dw_config *config)
{
    return config->transform == DW_TRANSFORM_HADAMARD;
}

/* Scales per channel say that channels differ, and a rotation mixes them. An error of a rotated
 * value is spread over a block, so a bound for single values says nothing, and one for the norm of
 * a group only where the group consists of whole blocks. */
static bool transform_fits(const dw_config *config, uint64_t transform)
{
    uint32_t rotate = config->rotate ? config->rotate : 64;
    if (transform == DW_TRANSFORM_NONE) return true;
    bool limits = config->error || config->key_error;
    return config->group != DW_GROUP_CHANNEL && !config->error_abs &&
           !(limits && config->group && config->group < rotate);
}

static uint64_t four_fifths(const dw_config *config)
{
    (void)config;
    return DW_KEEP_ALL / 5 * 4;
}

/* A profile says which channels may have larger steps, so the pieces must be parts of rows, and the
 * bound of a single value would not hold for those that escape. With feedback the decoder does not
 * know whether an entry has a base. */
static bool profile_fits(const dw_config *config, uint64_t profile)
{
    (void)profile;
    return is_stepped(config) && !is_rotated(config) && config->group != DW_GROUP_SAMPLE &&
           !config->error_abs && config->feedback <= DW_FEEDBACK_NONE;
}

/* The levels of a tile reach from its lowest value to its highest. The rule absmax would use only
 * some of them. */
static bool scale_fits(const dw_config *config, uint64_t scale)
{
    return config->codec != DW_CODEC_TAH || scale != DW_SCALE_ABSMAX;
}

static uint64_t best_rotation(const dw_config *config)
{
    (void)config;
    return 64;
}

static uint64_t groups_form(const dw_config *config)
{
    (void)config;
    return DW_FORM_QUANTIZED;
}

/* The default element. For changes it is e2m1, which has 4 bits, the default of the quantized form.
 * For the codec mx it is e4m3, the 8-bit float with the longer fraction. Values of sparse codecs
 * are not microscaled by default. */
static uint64_t best_element(const dw_config *config)
{
    if (dw_codec_bit(config->codec) & SPARSE) return 0;
    return config->codec == DW_CODEC_MX ? DW_ELEMENT_E4M3 : DW_ELEMENT_E2M1;
}

/* The codec chunk has absmax as its default: with 2 bits, groups of 16 and absmax left the smallest
 * residuals (docs/codecs/for_comparison.md). With 1 bit it has no default of its own. */
uint32_t dw_option_own_scale(const dw_config *config)
{
    return config->codec == DW_CODEC_CHUNK && config->bits != 1 ? (uint32_t)DW_SCALE_ABSMAX : 0;
}

/* The default of the option scale. 0: no single rule. The default then depends on the bits of an
 * entry (dw_params_scale), because changes have one bit and key entries have more. */
static uint64_t best_scale(const dw_config *config)
{
    bool delta = config->codec == DW_CODEC_DELTA || config->codec == 0,
         has_quantized_keys = config->key == 0 || (config->key >= 2 && config->key <= 8);
    if (dw_option_own_scale(config)) return dw_option_own_scale(config);
    if (config->rounding == DW_ROUNDING_STOCHASTIC) return DW_SCALE_ABSMAX;
    if (config->bits != 1) return DW_SCALE_SIGNED;
    return delta && has_quantized_keys ? 0 : DW_SCALE_MSE;
}

#define FIELD(name) offsetof(dw_config, name), sizeof(((dw_config *)0)->name)

/* clang-format off */
/* The order of the rows is the order of options in canonical text. */
const dw_option dw_options[DW_OPTIONS] = {
    {14, "form", DELTA | DIRECT, DW_SCOPE_ALWAYS, DW_AGREE_UNUSUAL, forms, 0, 0, false, FIELD(form), groups_form, form_fits,
     "how changes (delta) or values (direct) become bytes", "quantized"},
    {15, "element", DELTA | MX | SPARSE, DW_SCOPE_MX, DW_AGREE_FRAME, elements, 0, 0, false, FIELD(element), best_element, NULL,
     "element format of microscaling; with topk, randk, cocktail and chunk in place of bits", "e4m3; e2m1 for changes; not set with topk, randk, cocktail and chunk"},
    {32, "transform", DELTA | DIRECT | MX, DW_SCOPE_ALWAYS, DW_AGREE_UNUSUAL, transforms, 0, 0, false, FIELD(transform), first, transform_fits,
     "hadamard: blocks of channels are rotated before they are coded, and rotated back", "none"},
    {33, "rotate", DELTA | DIRECT | MX, DW_SCOPE_ROTATED, DW_AGREE_FRAME, rotations, 0, 0, false, FIELD(rotate), best_rotation, NULL,
     "channels of a rotated block; only with transform", "64"},
    {28, "mask", COCKTAIL, DW_SCOPE_ALWAYS, DW_AGREE_FRAME, NULL, 1, DW_KEEP_ALL, DW_KEEP_DECIMALS, FIELD(mask), tenth, NULL,
     "which part of a sample's values may be sent; drawn anew for each frame", "0.1"},
    {29, "chunk", CHUNK, DW_SCOPE_ALWAYS, DW_AGREE_FRAME, lengths + 1, 0, 0, false, FIELD(chunk), usual_length, NULL,
     "how many consecutive values make a chunk", "4096"},
    {26, "keep", SPARSE, DW_SCOPE_ALWAYS, DW_AGREE_FRAME, NULL, 1, DW_KEEP_ALL, DW_KEEP_DECIMALS, FIELD(keep), best_keep, NULL,
     "which part of a sample's values is sent; of the values in the mask (cocktail), of a chunk (chunk)", "0.01; 0.2 with cocktail; 0.015625 with chunk"},
    {37, "rank", LOWRANK, DW_SCOPE_ALWAYS, DW_AGREE_FRAME, NULL, 1, DW_RANK_MOST, false, FIELD(rank), best_rank, NULL,
     "columns of both thin matrices", "4"},
    {40, "width", LOWRANK, DW_SCOPE_ALWAYS, DW_AGREE_FRAME, NULL, 1, 0x7fffffff, false, FIELD(width), NULL, NULL,
     "the matrix has rows of so many of a sample's values, one row behind the other", "the sample's channels"},
    {38, "iterations", LOWRANK, DW_SCOPE_ALWAYS, DW_AGREE_NO, NULL, 1, 8, false, FIELD(iterations), best_iterations, NULL,
     "power iterations that the encoder makes for a sample", "1 with feedback, else 2"},
    {39, "restart", LOWRANK, DW_SCOPE_FEEDBACK, DW_AGREE_NO, NULL, 1, 1000000, false, FIELD(restart), NULL, NULL,
     "every so many visits of a key begin with a new random matrix; only with feedback", "never"},
    {34, "tile", TAH, DW_SCOPE_ALWAYS, DW_AGREE_FRAME, rotations, 0, 0, false, FIELD(tile), best_rotation, NULL,
     "channels of a tile, which is rotated", "64"},
    {36, "share", TAH, DW_SCOPE_ALWAYS, DW_AGREE_FRAME, NULL, 1, DW_KEEP_ALL, DW_KEEP_DECIMALS, FIELD(share), four_fifths, NULL,
     "which part of the tiles has 4 bits for each value; the others have 3", "0.8"},
    {35, "tau", TAH, DW_SCOPE_ALWAYS, DW_AGREE_NO, NULL, 1000, 1000000000, 3, FIELD(tau), one_in_thousandths, NULL,
     "the largest value of a tile is put first if it is more than so many times as large as the second", "1"},
    {41, "codebook", BLOCKS, DW_SCOPE_ALWAYS, DW_AGREE_FRAME, codebooks, 0, 0, false, FIELD(codebook), first, NULL,
     "what the codes stand for", "dynamic"},
    {42, "block", BLOCKS, DW_SCOPE_BLOCKS, DW_AGREE_FRAME, lengths, 0, 0, false, FIELD(block), usual_length, NULL,
     "consecutive values of a sample that share a scale; not with codebook=quantile", "4096"},
    {1, "bits", DELTA | DIRECT | NESTED, DW_SCOPE_BITS, DW_AGREE_FRAME, widths, 0, 0, false, FIELD(bits), best_bits, NULL,
     "bits per change (delta) or value (others)", "4; 2 with chunk; floats with topk, randk and lowrank"},
    {2, "group", DELTA | DIRECT | NESTED, DW_SCOPE_GROUPS, DW_AGREE_FRAME, groups, 0, 0, false, FIELD(group), best_group, group_fits,
     "channels that share a scale or step; sample: all values of a sample", "64; 16 with chunk; row with form=step"},
    {16, "step", DELTA | DIRECT, DW_SCOPE_FACTOR, DW_AGREE_NO, NULL, STEP_LEAST, STEP_MOST, 3, FIELD(step), one_in_thousandths, step_fits,
     "step, as a multiple of the root mean square of what is coded", "1"},
    {17, "key_step", DELTA, DW_SCOPE_KEY_FACTOR, DW_AGREE_NO, NULL, STEP_LEAST, STEP_MOST, 3, FIELD(key_step), quarter_step, NULL,
     "the same for key entries, unless they are floats", "a quarter of step"},
    {20, "error", DELTA | DIRECT, DW_SCOPE_STEP, DW_AGREE_NO, NULL, 100000000, 1000000000000, DW_ERROR_DECIMALS, FIELD(error), NULL, fits_without_bound,
     "largest norm of the error of a sample, row or group, as a part of its norm; replaces step", "not set"},
    {23, "error", DELTA | DIRECT, DW_SCOPE_STEP, DW_AGREE_CONFIG, NULL, 1, 999999999999999999, DW_ERROR_DECIMALS, FIELD(error_abs), NULL, NULL,
     "largest error of any single value; replaces step", "not set"},
    {46, "key_error", DELTA, DW_SCOPE_STEP, DW_AGREE_NO, NULL, 100000000, 1000000000000, DW_ERROR_DECIMALS, FIELD(key_error), NULL, key_error_fits,
     "the same as error=, for key entries; replaces key_step", "error"},
    {21, "rate", DELTA | DIRECT, DW_SCOPE_STEP, DW_AGREE_NO, NULL, 50, 8000, 3, FIELD(rate), NULL, rate_fits,
     "bits per element that frames take on average; replaces step", "not set"},
    {22, "deadzone", DELTA | DIRECT, DW_SCOPE_STEP, DW_AGREE_NO, NULL, 500, 1000, 3, FIELD(deadzone), NULL, deadzone_fits,
     "values of up to so many steps become 0; only with nearest rounding", "0.5: plain nearest rounding"},
    {3, "scale", DELTA | DIRECT | NESTED | TAH, DW_SCOPE_QUANTIZED, DW_AGREE_NO, scales, 0, 0, false, FIELD(scale), best_scale, scale_fits,
     "how the encoder finds a scale", "signed; mse for 1 bit; absmax with stochastic rounding and with chunk"},
    {4, "rounding", DELTA | DIRECT | NESTED, DW_SCOPE_GROUPS, DW_AGREE_DITHER, roundings, 0, 0, false, FIELD(rounding), first, rounding_fits,
     "how the encoder rounds; dither and trellis only with form=step, trellis only with entropy=rans", "nearest"},
    {5, "seed", DELTA | DIRECT | NESTED, DW_SCOPE_RANDOM, DW_AGREE_NO, NULL, 1, UINT64_MAX, false, FIELD(seed), NULL, NULL,
     "seed of stochastic rounding, dither and random places", "0"},
    {27, "scaling", RANDK, DW_SCOPE_ALWAYS, DW_AGREE_NO, scalings, 0, 0, false, FIELD(scaling), first, NULL,
     "unbiased: values are multiplied so that the mean of y over many frames is x", "none"},
    {6, "key", DELTA, DW_SCOPE_ALWAYS, DW_AGREE_FRAME, keys, 0, 0, false, FIELD(key), best_key, key_fits,
     "how a key entry carries x itself", "8; int8 with form=mx; step with form=step"},
    {7, "dtype", RAW | TOPK | RANDK | LOWRANK, DW_SCOPE_FLOATS, DW_AGREE_FRAME, dtypes, 0, 0, false, FIELD(raw), NULL, NULL,
     "dtype of the floats that are sent", "x's dtype"},
    {8, "prev", DELTA, DW_SCOPE_ALWAYS, DW_AGREE_FRAME, prevs, 0, 0, false, FIELD(prev), NULL, prev_fits,
     "how both ends keep prev: dtype, or 8 or 4 bits a value with a scale for 16", "x's dtype"},
    {9, "choose", DELTA, DW_SCOPE_CHOICES, DW_AGREE_FRAME, choices, 0, 0, false, FIELD(choose), first, NULL,
     "whether each group is coded as change or value, whichever is better", "group"},
    {18, "entropy", DELTA | DIRECT | MX, DW_SCOPE_ALWAYS, DW_AGREE_UNUSUAL, entropies, 0, 0, false, FIELD(entropy), first, entropy_fits,
     "lossless coding of the codes", "none"},
    {19, "skip", DELTA, DW_SCOPE_ALWAYS, DW_AGREE_NO, NULL, 1, 1000, 3, FIELD(skip), NULL, fits_without_bound,
     "a sample is not sent if it differs from prev by less than this part of its norm", "0: always sent"},
    {DW_PROFILE_OPTION, "profile", DELTA | DIRECT, DW_SCOPE_STEP, DW_AGREE_UNUSUAL, NULL, 1, UINT32_MAX, false, FIELD(profile_digest), nothing, profile_fits,
     "digest of the profile of channels that the config has; both ends must have it", "0: no profile"},
    {10, "replies", ALL, DW_SCOPE_ALWAYS, DW_AGREE_CONFIG, replies, 0, 0, false, FIELD(replies), first, NULL,
     "whether the decoder sends replies", "always"},
    {11, "audit", DELTA, DW_SCOPE_ALWAYS, DW_AGREE_FRAME, NULL, 1, DW_AUDIT_NEVER, false, FIELD(audit), first, NULL,
     "state digest over one stretch of prev in so many; 255: none", "1"},
    {24, "feedback", WITHOUT_PREV, DW_SCOPE_ALWAYS, DW_AGREE_NO, feedbacks, 0, 0, false, FIELD(feedback), first, feedback_fits,
     "whether the encoder adds what it did not send of a key's tensor to the next one", "none"},
    {45, "decay", WITHOUT_PREV, DW_SCOPE_FEEDBACK, DW_AGREE_NO, NULL, 1, DW_DECAY_NONE, 3, FIELD(decay), one_in_thousandths, NULL,
     "what residuals are multiplied by at each visit of their key; only with feedback", "1"},
    {12, "quota_bytes", DELTA, DW_SCOPE_ALWAYS, DW_AGREE_CONFIG, NULL, 1, UINT64_MAX, false, FIELD(quota_bytes), NULL, NULL,
     "limit for the bytes of prev; the same at both ends", "no limit"},
    {25, "quota_bytes", WITHOUT_PREV, DW_SCOPE_FEEDBACK, DW_AGREE_NO, NULL, 1, UINT64_MAX, false, FIELD(quota_bytes), NULL, NULL,
     "limit for the bytes of residuals; only with feedback", "no limit"},
    {13, "incarnation", ALL, DW_SCOPE_ALWAYS, DW_AGREE_NO, NULL, 1, UINT64_MAX, false, FIELD(incarnation), NULL, NULL,
     "identifies the encoder from its creation to its end or reset", "random"},
};
/* clang-format on */

uint64_t dw_option_get(const dw_option *option, const dw_config *config)
{
    const unsigned char *field = (const unsigned char *)config + option->offset;
    uint32_t narrow;
    uint64_t wide;
    if (option->size == sizeof wide) {
        memcpy(&wide, field, sizeof wide);
        return wide;
    }
    memcpy(&narrow, field, sizeof narrow);
    return narrow;
}

void dw_option_set(const dw_option *option, dw_config *config, uint64_t value)
{
    unsigned char *field = (unsigned char *)config + option->offset;
    uint32_t narrow = (uint32_t)value;
    if (option->size == sizeof value)
        memcpy(field, &value, sizeof value);
    else
        memcpy(field, &narrow, sizeof narrow);
}

/* By docs/comparison.md a skipped sample loses, and rotated values gain nothing that was measured.
 */
bool dw_option_is_stable(const dw_option *option)
{
    static const char *const others[] = {"skip", "transform", "rotate"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(option->name, others[i]) == 0) return false;
    return true;
}

bool dw_option_applies(const dw_option *option, const dw_config *config)
{
    if (!(option->codecs & dw_codec_bit(config->codec))) return false;
    switch (option->scope) {
    case DW_SCOPE_ALWAYS: break;
    case DW_SCOPE_BITS: return !is_microscaled(config) && !is_stepped(config);
    case DW_SCOPE_QUANTIZED:
        return !is_microscaled(config) && !is_stepped(config) && !dw_option_nested_floats(config);
    case DW_SCOPE_MX: return is_microscaled(config);
    case DW_SCOPE_STEP: return is_stepped(config);
    case DW_SCOPE_FACTOR:
        return is_stepped(config) && !config->error && !config->error_abs && !config->rate;
    case DW_SCOPE_KEY_FACTOR:
        return is_stepped(config) && !config->error && !config->error_abs && !config->rate &&
               !config->key_error;
    case DW_SCOPE_GROUPS: return !is_microscaled(config) && !dw_option_nested_floats(config);
    case DW_SCOPE_RANDOM:
        return config->codec == DW_CODEC_RANDK || config->codec == DW_CODEC_COCKTAIL ||
               (!is_microscaled(config) && !dw_option_nested_floats(config));
    case DW_SCOPE_FLOATS: return !has_nested_rows(config) || dw_option_nested_floats(config);
    case DW_SCOPE_CHOICES: return !is_stepped(config) && !is_rotated(config);
    case DW_SCOPE_BLOCKS: return config->codebook != DW_CODEBOOK_QUANTILE;
    case DW_SCOPE_ROTATED: return is_rotated(config);
    case DW_SCOPE_FEEDBACK: return config->feedback > DW_FEEDBACK_NONE;
    }
    return true;
}

bool dw_option_fits(const dw_option *option, const dw_config *config, uint64_t value)
{
    return value == 0 || !option->fits || option->fits(config, value);
}

bool dw_option_is_in_frames(const dw_option *option, uint64_t value)
{
    if (option->agrees == DW_AGREE_DITHER) return value == DW_ROUNDING_DITHER;
    return option->agrees >= DW_AGREE_FRAME;
}

void dw_option_fill(const dw_option *option, dw_config *config)
{
    uint64_t value = dw_option_applies(option, config) ? dw_option_value(option, config) : 0;
    dw_option_set(option, config, value);
}

void dw_options_fill(dw_config *config, dw_agreement least)
{
    for (int i = 0; i < DW_OPTIONS; i++)
        if (dw_options[i].agrees >= least) dw_option_fill(&dw_options[i], config);
}

uint64_t dw_option_value(const dw_option *option, const dw_config *config)
{
    uint64_t value = dw_option_get(option, config);
    return value || !option->otherwise ? value : option->otherwise(config);
}

const char *dw_option_condition(const dw_option *option)
{
    if (option->fits == rate_fits) return "only with entropy=rans, and without error";
    if (option->fits == feedback_fits)
        return "ef only where the error is smaller than what is coded, and without error=abs: "
               "docs/codecs/feedback.md";
    if (option->fits == rounding_fits)
        return "dither only with form=step, trellis only with form=step and entropy=rans and "
               "without error=abs";
    if (option->fits == deadzone_fits) return "only with rounding=nearest, and without error";
    if (option->fits == transform_fits)
        return "hadamard not with group=channel or error=abs, and with error only if rotate is not "
               "more than group";
    if (option->fits == prev_fits) return "8 and 4 not with error=abs and skip";
    if (option->fits == key_error_fits)
        return "only where key entries are in steps, and without error=abs and rate";
    if (option->fits == profile_fits)
        return "only with form=step, and without group=sample, transform, error=abs and feedback";
    return option->words ? NULL : "not with error=abs";
}

const char *dw_option_prefix(const dw_option *option)
{
    return option->offset == offsetof(dw_config, error_abs) ? "abs:" : "";
}
