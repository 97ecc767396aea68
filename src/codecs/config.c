/* SPDX-License-Identifier: Apache-2.0
 * config.c - "delta:bits=4,group=64" to dw_config and back; defaults and limits. */
#include <stdio.h>
#include <string.h>

#include "params.h"

typedef struct word {
    const char *text;
    uint32_t value;
} word;

static const word codecs[] = {
    {"delta", DW_CODEC_DELTA}, {"direct", DW_CODEC_DIRECT}, {"raw", DW_CODEC_RAW}, {0}};
static const word widths[] = {{"1", 1}, {"2", 2}, {"3", 3}, {"4", 4}, {"5", 5},
                              {"6", 6}, {"7", 7}, {"8", 8}, {0}};
static const word groups[] = {{"16", 16},
                              {"32", 32},
                              {"64", 64},
                              {"128", 128},
                              {"256", 256},
                              {"row", DW_GROUP_ROW},
                              {"channel", DW_GROUP_CHANNEL},
                              {0}};
static const word scales[] = {
    {"absmax", DW_SCALE_ABSMAX}, {"signed", DW_SCALE_SIGNED}, {"mse", DW_SCALE_MSE}, {0}};
static const word roundings[] = {
    {"nearest", DW_ROUNDING_NEAREST}, {"stochastic", DW_ROUNDING_STOCHASTIC}, {0}};
static const word keys[] = {{"2", 2},
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
                            {0}};
static const word dtypes[] = {{"f32", DW_F32}, {"f16", DW_F16}, {"bf16", DW_BF16}, {0}};
static const word choices[] = {{"group", DW_CHOOSE_GROUP}, {"never", DW_CHOOSE_NEVER}, {0}};
static const word replies[] = {{"always", DW_REPLIES_ALWAYS}, {"never", DW_REPLIES_NEVER}, {0}};

enum { FOR_DELTA = 1, FOR_DIRECT = 2, FOR_RAW = 4 };

/* One row per option: which codecs know it, its words (NULL: a number), and its place. */
typedef struct option {
    const char *name;
    int codecs;
    const word *words;
    uint64_t least, most;
    uint64_t (*get)(const dw_config *config);
    void (*set)(dw_config *config, uint64_t value);
} option;

#define FIELD(name, type)                                                                          \
    static uint64_t get_##name(const dw_config *config)                                            \
    {                                                                                              \
        return (uint64_t)config->name;                                                             \
    }                                                                                              \
    static void set_##name(dw_config *config, uint64_t value)                                      \
    {                                                                                              \
        config->name = (type)value;                                                                \
    }
FIELD(bits, uint32_t)
FIELD(group, uint32_t)
FIELD(scale, dw_scale)
FIELD(rounding, dw_rounding)
FIELD(seed, uint64_t)
FIELD(key, uint32_t)
FIELD(raw, dw_dtype)
FIELD(prev, dw_dtype)
FIELD(choose, dw_choose)
FIELD(replies, dw_replies)
FIELD(audit, uint32_t)
FIELD(quota_bytes, uint64_t)
FIELD(incarnation, uint64_t)
#undef FIELD

static const option options[] = {
    {"bits", FOR_DELTA | FOR_DIRECT, widths, 0, 0, get_bits, set_bits},
    {"group", FOR_DELTA | FOR_DIRECT, groups, 0, 0, get_group, set_group},
    {"scale", FOR_DELTA | FOR_DIRECT, scales, 0, 0, get_scale, set_scale},
    {"rounding", FOR_DELTA | FOR_DIRECT, roundings, 0, 0, get_rounding, set_rounding},
    {"seed", FOR_DELTA | FOR_DIRECT, NULL, 1, UINT64_MAX, get_seed, set_seed},
    {"key", FOR_DELTA, keys, 0, 0, get_key, set_key},
    {"dtype", FOR_RAW, dtypes, 0, 0, get_raw, set_raw},
    {"prev", FOR_DELTA, dtypes, 0, 0, get_prev, set_prev},
    {"choose", FOR_DELTA, choices, 0, 0, get_choose, set_choose},
    {"replies", FOR_DELTA | FOR_DIRECT | FOR_RAW, replies, 0, 0, get_replies, set_replies},
    {"audit", FOR_DELTA, NULL, 1, DW_AUDIT_NEVER, get_audit, set_audit},
    {"quota_bytes", FOR_DELTA, NULL, 1, UINT64_MAX, get_quota_bytes, set_quota_bytes},
    {"incarnation", FOR_DELTA | FOR_DIRECT | FOR_RAW, NULL, 1, UINT64_MAX, get_incarnation,
     set_incarnation},
};
enum { N_OPTIONS = sizeof options / sizeof *options };

static const word *find_word(const word *words, const char *text, size_t len)
{
    for (; words->text; words++)
        if (strlen(words->text) == len && memcmp(words->text, text, len) == 0) return words;
    return NULL;
}

static const char *word_of(const word *words, uint64_t value)
{
    for (; words->text; words++)
        if (words->value == value) return words->text;
    return NULL;
}

static int codec_bit(dw_codec codec)
{
    return codec == DW_CODEC_DELTA ? FOR_DELTA : codec == DW_CODEC_DIRECT ? FOR_DIRECT : FOR_RAW;
}

/* "2 3 4 ..." into out. */
static void list_words(const word *words, char *out, size_t cap)
{
    size_t used = 0;
    out[0] = 0;
    for (; words->text && used < cap; words++)
        used += (size_t)snprintf(out + used, cap - used, "%s%s", used ? " " : "", words->text);
}

static void list_options(dw_codec codec, char *out, size_t cap)
{
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < N_OPTIONS && used < cap; i++)
        if (options[i].codecs & codec_bit(codec))
            used +=
                (size_t)snprintf(out + used, cap - used, "%s%s", used ? " " : "", options[i].name);
}

static dw_status complain(dw_why *why, const char *text, const char *at, size_t len,
                          const char *what, const char *known)
{
    if (why) {
        why->offset = (int)(at - text);
        snprintf(why->text, sizeof why->text, "%s '%.*s' at character %d; known are: %s", what,
                 (int)(len < 40 ? len : 40), at, why->offset + 1, known);
    }
    return DW_ERR_CONFIG;
}

static bool parse_number(const char *text, size_t len, const option *o, uint64_t *value)
{
    uint64_t sum = 0;
    if (len == 0 || len > 20) return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        if (!dw_size_multiply(sum, 10, &sum) || !dw_size_add(sum, (uint64_t)(text[i] - '0'), &sum))
            return false;
    }
    *value = sum;
    return sum >= o->least && sum <= o->most;
}

/* One "name=value", or a bare value where the codec has an obvious option for it (raw:f32). */
static dw_status parse_option(dw_config *config, const char *text, const char *at, size_t len,
                              uint32_t *seen, dw_why *why)
{
    char known[160];
    const char *equals = memchr(at, '=', len);
    const char *value = equals ? equals + 1 : at;
    size_t name_len = equals ? (size_t)(equals - at) : 0, value_len = len - (size_t)(value - at);
    const option *found = NULL;
    for (int i = 0; i < N_OPTIONS && !found; i++) {
        const option *o = &options[i];
        bool named = equals && strlen(o->name) == name_len && memcmp(o->name, at, name_len) == 0;
        if ((named || (!equals && o->get == get_raw)) && (o->codecs & codec_bit(config->codec)))
            found = o;
    }
    if (!found) {
        list_options(config->codec, known, sizeof known);
        return complain(why, text, at, equals ? name_len : len, "unknown option", known);
    }
    uint32_t bit = 1u << (found - options);
    if (*seen & bit) return complain(why, text, at, len, "doubled option", "once each");
    *seen |= bit;
    if (found->words) {
        const word *w = find_word(found->words, value, value_len);
        list_words(found->words, known, sizeof known);
        if (!w) return complain(why, text, value, value_len, "bad value", known);
        found->set(config, w->value);
        return DW_OK;
    }
    uint64_t number = 0;
    if (!parse_number(value, value_len, found, &number)) {
        snprintf(known, sizeof known, "whole numbers from %llu to %llu",
                 (unsigned long long)found->least, (unsigned long long)found->most);
        return complain(why, text, value, value_len, "bad value", known);
    }
    found->set(config, number);
    return DW_OK;
}

dw_status dw_config_parse(dw_config *config, const char *text, dw_why *why)
{
    char known[160];
    if (why) *why = (dw_why){.offset = -1};
    if (!config || !text) return DW_ERR_ARGUMENT;
    dw_config found = {.struct_size = sizeof found};
    size_t len = strcspn(text, ":");
    const word *codec = find_word(codecs, text, len);
    list_words(codecs, known, sizeof known);
    if (!codec) return complain(why, text, text, len, "unknown codec", known);
    found.codec = (dw_codec)codec->value;
    uint32_t seen = 0;
    for (const char *at = text + len; *at;) {
        size_t option_len = strcspn(++at, ",");
        dw_status status = parse_option(&found, text, at, option_len, &seen, why);
        if (status) return status;
        at += option_len;
    }
    *config = found;
    return DW_OK;
}

/* One option as ",name=value"; the length that it takes. */
static size_t write_option(const option *o, uint64_t value, char mark, char *room, size_t cap)
{
    bool bare = o->get == get_raw; /* raw:f32 */
    if (o->words)
        return (size_t)snprintf(room, cap, "%c%s%s%s", mark, bare ? "" : o->name, bare ? "" : "=",
                                word_of(o->words, value));
    return (size_t)snprintf(room, cap, "%c%s=%llu", mark, o->name, (unsigned long long)value);
}

dw_status dw_config_format(const dw_config *config, char *text, size_t cap)
{
    dw_params params;
    char all[DW_CONFIG_TEXT_BYTES], mark = ':'; /* enough for any, so that used stays below */
    if (!config || !text) return DW_ERR_ARGUMENT;
    if (cap) text[0] = 0;
    dw_status status = dw_params_resolve(&params, config, DW_F32);
    if (status) return status;
    size_t used = (size_t)snprintf(all, sizeof all, "%s", word_of(codecs, params.codec));
    for (int i = 0; i < N_OPTIONS; i++) {
        uint64_t value = options[i].get(config);
        if (!(options[i].codecs & codec_bit(params.codec)) || value == 0) continue;
        used += write_option(&options[i], value, mark, all + used, sizeof all - used);
        mark = ',';
    }
    if (used >= cap) return DW_ERR_NO_ROOM;
    memcpy(text, all, used + 1);
    return DW_OK;
}

static bool option_is_valid(const option *o, uint64_t value)
{
    if (value == 0) return true;
    return o->words ? word_of(o->words, value) != NULL : value >= o->least && value <= o->most;
}

dw_status dw_params_resolve(dw_params *params, const dw_config *config, dw_dtype x)
{
    if (config->struct_size != sizeof *config) return DW_ERR_CONFIG;
    dw_codec codec = config->codec ? config->codec : DW_CODEC_DELTA;
    if (!word_of(codecs, codec)) return DW_ERR_CONFIG;
    for (int i = 0; i < N_OPTIONS; i++)
        if (!option_is_valid(&options[i], options[i].get(config))) return DW_ERR_CONFIG;
    if (!config->allocator.allocate != !config->allocator.release) return DW_ERR_CONFIG;
    bool delta = codec == DW_CODEC_DELTA, raw = codec == DW_CODEC_RAW;
    dw_dtype own = raw && config->raw ? config->raw : x;
    uint32_t own_form = own == DW_F32 ? DW_KEY_F32 : own == DW_F16 ? DW_KEY_F16 : DW_KEY_BF16;
    uint32_t key = config->key == 0 ? 8 : config->key == DW_KEY_RAW ? own_form : config->key;
    uint32_t audit = config->audit == 0 ? 1 : config->audit == DW_AUDIT_NEVER ? 0 : config->audit;
    *params = (dw_params){
        .codec = codec,
        .bits = raw            ? 0
                : config->bits ? config->bits
                               : 4,
        .group = raw             ? 0
                 : config->group ? config->group
                                 : 64,
        .key = delta ? key
               : raw ? own_form
                     : 0,
        .prev = delta ? (config->prev ? config->prev : x) : (dw_dtype)0,
        .chooses = delta && config->choose != DW_CHOOSE_NEVER,
        .scale = config->scale,
        .is_stochastic = config->rounding == DW_ROUNDING_STOCHASTIC,
        .wants_reply = config->replies != DW_REPLIES_NEVER,
        .audit = delta ? audit : 0,
    };
    return DW_OK;
}
