/* SPDX-License-Identifier: Apache-2.0
 * config.c - converts between text such as "delta:bits=4,group=64" and dw_config, and checks
 * configs. */
#include <stdio.h>
#include <string.h>

#include "base/sentence.h"
#include "base/sized.h"
#include "codecs/options.h"
#include "codecs/profile.h"

/* The size of dw_config in the first version. Fields added later lie behind it. */
enum { FIRST_CONFIG_BYTES = sizeof(dw_config) };

/* THOUSANDTHS: the decimals of most options. MOST_DECIMALS: 10^18 is the largest power of ten that
 * power_of_ten may compute. */
enum { THOUSANDTHS = 3, MOST_DECIMALS = 18 };

dw_status dw_config_take(dw_config *taken, const dw_config *given, dw_why *why)
{
    if (given->struct_size < FIRST_CONFIG_BYTES)
        return dw_say(
            why, DW_ERR_CONFIG,
            "the config's struct_size is not set: write {.struct_size = sizeof(dw_config)}");
    if (dw_take_asked(taken, sizeof *taken, given, "dw_config", why)) return DW_ERR_CONFIG;
    if (!taken->codec) taken->codec = DW_CODEC_DELTA;
    uint32_t digest = dw_profile_digest(taken->profile);
    if (digest && taken->profile_digest && taken->profile_digest != digest)
        return dw_say(why, DW_ERR_CONFIG,
                      "the config's profile is not the one that its option profile names: "
                      "give the profile with this digest, or leave the option out");
    if (digest) taken->profile_digest = digest;
    return DW_OK;
}

const dw_word *dw_word_find(const dw_word *words, const char *text, size_t len)
{
    for (; words->text; words++)
        if (strlen(words->text) == len && memcmp(words->text, text, len) == 0) return words;
    return NULL;
}

const char *dw_word_of(const dw_word *words, uint64_t value)
{
    for (; words->text; words++)
        if (words->value == value) return words->text;
    return NULL;
}

/* Writes the words as "2 3 4 ..." to out. */
static void list_words(const dw_word *words, char *out, size_t cap)
{
    size_t used = 0;
    out[0] = 0;
    for (; words->text && used < cap; words++)
        used += (size_t)snprintf(out + used, cap - used, "%s%s", used ? " " : "", words->text);
}

/* Whether an earlier row with the same name applies, too: `error` has one row for error=0.1 and one
 * for error=abs:0.1. */
static bool is_repeated(int row, const dw_config *config)
{
    for (int i = 0; i < row; i++)
        if (strcmp(dw_options[i].name, dw_options[row].name) == 0 &&
            dw_option_applies(&dw_options[i], config))
            return true;
    return false;
}

/* Writes the names of all options that have a meaning in this config. */
static void list_options(const dw_config *config, char *out, size_t cap)
{
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < DW_OPTIONS && used < cap; i++)
        if (dw_option_applies(&dw_options[i], config) && !is_repeated(i, config))
            used += (size_t)snprintf(out + used, cap - used, "%s%s", used ? " " : "",
                                     dw_options[i].name);
}

/* Returns 10 to the power of `decimals`, which is at most MOST_DECIMALS. */
static uint64_t power_of_ten(uint32_t decimals)
{
    uint64_t power = 1;
    while (decimals-- > 0) power *= 10;
    return power;
}

/* printf with %f would write the decimal point of the locale. */
void dw_option_write_decimal(uint64_t value, uint32_t decimals, char out[DW_DECIMAL_BYTES])
{
    uint64_t one = power_of_ten(decimals);
    size_t used =
        (size_t)snprintf(out, DW_DECIMAL_BYTES, "%llu.%0*llu", (unsigned long long)(value / one),
                         (int)decimals, (unsigned long long)(value % one));
    while (out[used - 1] == '0') used--;
    if (out[used - 1] == '.') used--;
    out[used] = 0;
}

/* Writes to out which numbers an option accepts: those from its least value to `most`. */
static void list_decimals(const dw_option *option, uint64_t most, char *out, size_t cap)
{
    char from[DW_DECIMAL_BYTES], to[DW_DECIMAL_BYTES];
    dw_option_write_decimal(option->least, option->decimals, from);
    dw_option_write_decimal(most, option->decimals, to);
    snprintf(out, cap, "%s%s from %s to %s%s", dw_option_prefix(option),
             *dw_option_prefix(option) ? " followed by a number" : "numbers", from, to,
             option->decimals == THOUSANDTHS ? " with up to three decimals" : "");
}

/* Writes to out what the value of a decimal option can be, such as "numbers from 0.0001 to 1, or
 * abs: followed by a number from 0.5 to 2". option: any of the rows that have its name. */
static void list_all_decimals(const dw_option *option, char *out, size_t cap)
{
    size_t used = 0;
    for (int i = 0; i < DW_OPTIONS && used < cap; i++) {
        if (strcmp(dw_options[i].name, option->name) != 0) continue;
        if (used) used += (size_t)snprintf(out + used, cap - used, ", or ");
        if (used >= cap) return;
        list_decimals(&dw_options[i], dw_options[i].most, out + used, cap - used);
        used += strlen(out + used);
    }
}

static void list_values(const dw_option *option, char *out, size_t cap)
{
    if (option->words)
        list_words(option->words, out, cap);
    else if (option->decimals)
        list_all_decimals(option, out, cap);
    else
        snprintf(out, cap, "whole numbers from %llu to %llu", (unsigned long long)option->least,
                 (unsigned long long)option->most);
}

static dw_status complain_at(dw_why *why, const char *text, const char *at, size_t len,
                             const char *what, const char *known)
{
    int offset = (int)(at - text);
    return dw_say_at(why, DW_ERR_CONFIG, offset, "%s '%.*s' at character %d; allowed: %s", what,
                     (int)(len < 40 ? len : 40), at, offset + 1, known);
}

static bool parse_digits(const char *text, size_t len, uint64_t *value)
{
    uint64_t sum = 0;
    if (len == 0 || len > 20) return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        if (!dw_size_multiply(sum, 10, &sum) || !dw_size_add(sum, (uint64_t)(text[i] - '0'), &sum))
            return false;
    }
    *value = sum;
    return true;
}

/* Parses a number such as "1", "1.4" or "1.375", which has at most so many decimals. *value becomes
 * the number in units of the last decimal. Returns false where the text is no such number, or is
 * too large. */
static bool parse_decimal(const char *text, size_t len, uint32_t decimals, uint64_t *value)
{
    const char *point = memchr(text, '.', len);
    size_t whole_len = point ? (size_t)(point - text) : len,
           places = point ? len - whole_len - 1 : 0;
    uint64_t whole, part = 0;
    if (!parse_digits(text, whole_len, &whole) ||
        !dw_size_multiply(whole, power_of_ten(decimals), &whole))
        return false;
    if (point && (places > decimals || !parse_digits(point + 1, places, &part))) return false;
    for (; point && places < decimals; places++) part *= 10;
    return dw_size_add(whole, part, value);
}

/* Removes an exponent from the end of a number: of "1.5e-3" it leaves "1.5", by making *len
 * shorter. So that the value in units of the last decimal is right nevertheless, *decimals becomes
 * smaller by 3 here: the caller reads "1.5" with so many decimals. A positive exponent makes
 * *decimals larger. Returns false where the exponent is no number, or is too large. */
static bool take_exponent(const char *text, size_t *len, uint32_t *decimals)
{
    const char *mark = memchr(text, 'e', *len);
    uint64_t places;
    if (!mark) return true;
    bool is_negative = mark[1] == '-';
    const char *digits = mark + 1 + is_negative;
    if (!parse_digits(digits, (size_t)(text + *len - digits), &places) ||
        places > (is_negative ? *decimals : MOST_DECIMALS - *decimals))
        return false;
    *decimals = is_negative ? *decimals - (uint32_t)places : *decimals + (uint32_t)places;
    *len = (size_t)(mark - text);
    return true;
}

/* Parses the value of an option that is a number, and checks that it is in the option's range. */
static bool parse_number(const char *text, size_t len, const dw_option *option, uint64_t *value)
{
    uint32_t decimals = option->decimals;
    if (decimals > THOUSANDTHS && !take_exponent(text, &len, &decimals)) return false;
    bool is_number = option->decimals ? parse_decimal(text, len, decimals, value)
                                      : parse_digits(text, len, value);
    return is_number && *value >= option->least && *value <= option->most;
}

/* The codec raw has one option that matters, so its value may be written without a name: raw:f32.
 */
static bool is_bare(const dw_option *option, const dw_config *config)
{
    return config->codec == DW_CODEC_RAW && option->offset == offsetof(dw_config, raw);
}

/* Returns whether a value begins as all values of this option do: see dw_option_prefix. */
static bool has_prefix(const dw_option *option, const char *value)
{
    const char *prefix = dw_option_prefix(option);
    return strncmp(value, prefix, strlen(prefix)) == 0;
}

/* Returns the row of the table that "name=value" belongs to, or NULL if the codec has no such
 * option. name: not terminated, name_len characters long; NULL for a value without a name. Two rows
 * may have the same name; then the later one has a prefix, and is taken if the value begins with
 * it. */
static const dw_option *find_option(const dw_config *config, const char *name, size_t name_len,
                                    const char *value)
{
    const dw_option *found = NULL;
    for (int i = 0; i < DW_OPTIONS; i++) {
        const dw_option *o = &dw_options[i];
        bool named = name ? strlen(o->name) == name_len && memcmp(o->name, name, name_len) == 0
                          : is_bare(o, config);
        if (named && (o->codecs & dw_codec_bit(config->codec)) && has_prefix(o, value)) found = o;
    }
    return found;
}

/* Parses the value of an option, which begins with the option's prefix. */
static bool parse_value(const dw_option *option, const char *text, size_t len, uint64_t *value)
{
    const dw_word *word = option->words ? dw_word_find(option->words, text, len) : NULL;
    size_t skipped = strlen(dw_option_prefix(option));
    if (!option->words) return parse_number(text + skipped, len - skipped, option, value);
    if (word) *value = word->value;
    return word != NULL;
}

/* Parses one "name=value", or a value without a name. */
static dw_status parse_option(dw_config *config, const char *text, const char *at, size_t len,
                              const char *where[DW_OPTIONS], dw_why *why)
{
    char known[160];
    const char *equals = memchr(at, '=', len), *value = equals ? equals + 1 : at;
    size_t name_len = equals ? (size_t)(equals - at) : 0, value_len = len - (size_t)(value - at);
    const dw_option *found = find_option(config, equals ? at : NULL, name_len, value);
    if (!found) {
        list_options(config, known, sizeof known);
        return complain_at(why, text, at, equals ? name_len : len, "unknown option", known);
    }
    if (where[found - dw_options])
        return complain_at(why, text, at, len, "this option is given twice:", "each option once");
    where[found - dw_options] = at;
    uint64_t number;
    if (!parse_value(found, value, value_len, &number)) {
        list_values(found, known, sizeof known);
        return complain_at(why, text, value, value_len, "bad value", known);
    }
    dw_option_set(found, config, number);
    return DW_OK;
}

/* Writes to out which values of a number's option are allowed together with the rest of the config.
 * If the least value is allowed, all are up to some limit, which is found by bisection. If not, no
 * value is, and the text says on what the option depends. */
static void list_fitting_range(const dw_option *option, const dw_config *config, char *out,
                               size_t cap)
{
    uint64_t least = option->least, most = option->most;
    if (!dw_option_fits(option, config, least)) {
        snprintf(out, cap, "%s", dw_option_condition(option));
        return;
    }
    while (least < most) {
        uint64_t middle = least + (most - least + 1) / 2;
        if (dw_option_fits(option, config, middle))
            least = middle;
        else
            most = middle - 1;
    }
    list_decimals(option, least, out, cap);
}

/* Lists what is allowed of an option together with the rest of a config. */
static void list_fitting(const dw_option *option, const dw_config *config, char *out, size_t cap)
{
    size_t used = 0;
    out[0] = 0;
    if (!option->words) {
        list_fitting_range(option, config, out, cap);
        return;
    }
    for (const dw_word *word = option->words; word->text && used < cap; word++)
        if (dw_option_fits(option, config, word->value))
            used += (size_t)snprintf(out + used, cap - used, "%s%s", used ? " " : "", word->text);
    if (dw_option_condition(option) && used < cap)
        snprintf(out + used, cap - used, " (%s)", dw_option_condition(option));
}

/* Refuses options and values that are valid alone but have no meaning together, such as `bits` with
 * form=mx. */
static dw_status check_together(const dw_config *config, const char *text,
                                const char *const where[DW_OPTIONS], dw_why *why)
{
    char known[160];
    for (int i = 0; i < DW_OPTIONS; i++) {
        const dw_option *o = &dw_options[i];
        if (!where[i]) continue;
        if (dw_option_applies(o, config)) {
            if (dw_option_fits(o, config, dw_option_get(o, config))) continue;
            list_fitting(o, config, known, sizeof known);
            return complain_at(why, text, where[i], strcspn(where[i], ","),
                               "not allowed with the other options:", known);
        }
        list_options(config, known, sizeof known);
        return complain_at(why, text, where[i], strlen(o->name),
                           "not allowed with the other options:", known);
    }
    return DW_OK;
}

dw_status dw_config_parse_sized(dw_config *config, size_t struct_size, const char *text,
                                dw_why *why)
{
    char known[160];
    const char *where[DW_OPTIONS] = {NULL};
    if (why) *why = (dw_why){.offset = -1};
    if (!config || !text || struct_size < FIRST_CONFIG_BYTES) return DW_ERR_ARGUMENT;
    dw_config found = {.struct_size = sizeof found};
    size_t len = strcspn(text, ":");
    const dw_word *codec = dw_word_find(dw_codec_words, text, len);
    list_words(dw_codec_words, known, sizeof known);
    if (!codec) return complain_at(why, text, text, len, "unknown codec", known);
    found.codec = (dw_codec)codec->value;
    for (const char *at = text + len; *at;) {
        size_t option_len = strcspn(++at, ",");
        dw_status status = parse_option(&found, text, at, option_len, where, why);
        if (status) return status;
        at += option_len;
    }
    dw_status status = check_together(&found, text, where, why);
    if (status) return status;
    memset(config, 0, struct_size);
    memcpy(config, &found, struct_size < sizeof found ? struct_size : sizeof found);
    config->struct_size = struct_size;
    return DW_OK;
}

/* Writes one option as ",name=value" and returns the length. */
static size_t write_option(const dw_option *option, const dw_config *config, char mark, char *room,
                           size_t cap)
{
    bool bare = is_bare(option, config);
    uint64_t value = dw_option_get(option, config);
    char decimal[DW_DECIMAL_BYTES];
    if (option->decimals) {
        dw_option_write_decimal(value, option->decimals, decimal);
        return (size_t)snprintf(room, cap, "%c%s=%s%s", mark, option->name,
                                dw_option_prefix(option), decimal);
    }
    if (option->words)
        return (size_t)snprintf(room, cap, "%c%s%s%s", mark, bare ? "" : option->name,
                                bare ? "" : "=", dw_word_of(option->words, value));
    return (size_t)snprintf(room, cap, "%c%s=%llu", mark, option->name, (unsigned long long)value);
}

/* Whether the other end need not know the value. */
static bool is_private(const dw_option *option, uint64_t value)
{
    return option->agrees == DW_AGREE_DITHER ? !dw_option_is_in_frames(option, value)
                                             : option->agrees == DW_AGREE_NO;
}

static dw_status write_text(const dw_config *given, bool only_agreed, char *text, size_t cap)
{
    char all[DW_CONFIG_TEXT_BYTES], mark = ':'; /* large enough for any config, so `used` stays
                                                   below its size */
    dw_config config;
    if (!given || !text) return DW_ERR_ARGUMENT;
    if (cap) text[0] = 0;
    dw_status status = dw_config_take(&config, given, NULL);
    if (!status) status = dw_config_check(&config, NULL);
    if (status) return status;
    size_t used = (size_t)snprintf(all, sizeof all, "%s", dw_word_of(dw_codec_words, config.codec));
    for (int i = 0; i < DW_OPTIONS; i++) {
        const dw_option *o = &dw_options[i];
        uint64_t value = dw_option_get(o, &config);
        dw_config without = config;
        dw_option_set(o, &without, 0);
        if (value == 0 || !dw_option_applies(o, &config) || (only_agreed && is_private(o, value)) ||
            value == dw_option_value(o, &without))
            continue;
        used += write_option(o, &config, mark, all + used, sizeof all - used);
        mark = ',';
    }
    if (used >= cap) return DW_ERR_BUFFER_TOO_SMALL;
    memcpy(text, all, used + 1);
    return DW_OK;
}

dw_status dw_config_format(const dw_config *config, char *text, size_t cap)
{
    return write_text(config, false, text, cap);
}

dw_status dw_config_agreement(const dw_config *config, char *text, size_t cap)
{
    return write_text(config, true, text, cap);
}

static bool option_is_valid(const dw_option *option, uint64_t value)
{
    if (value == 0) return true;
    return option->words ? dw_word_of(option->words, value) != NULL
                         : value >= option->least && value <= option->most;
}

/* Makes all rows of a name unset, so that error=abs:0.1 can follow error=0.1. */
static void unset(dw_config *config, const char *name)
{
    for (int i = 0; i < DW_OPTIONS; i++) {
        const dw_option *o = &dw_options[i];
        if (strcmp(o->name, name) != 0) continue;
        dw_option_set(o, config, 0);
    }
}

dw_status dw_config_set(dw_config *config, const char *name, const char *value, dw_why *why)
{
    char known[160];
    dw_config set;
    uint64_t number = 0;
    if (why) *why = (dw_why){.offset = -1};
    if (!config || !name) return DW_ERR_ARGUMENT;
    dw_status status = dw_config_take(&set, config, why);
    if (status) return status;
    const dw_option *option = find_option(&set, name, strlen(name), value ? value : "");
    if (!option) {
        list_options(&set, known, sizeof known);
        return dw_say(why, DW_ERR_CONFIG, "unknown option '%.40s'; allowed: %s", name, known);
    }
    if (value && !parse_value(option, value, strlen(value), &number)) {
        list_values(option, known, sizeof known);
        return dw_say(why, DW_ERR_CONFIG, "bad value '%.40s' of %s; allowed: %s", value, name,
                      known);
    }
    unset(&set, name);
    dw_option_set(option, &set, number);
    bool names_it = set.profile && dw_profile_digest(set.profile) == number;
    if (option->number == DW_PROFILE_OPTION && !names_it) set.profile = NULL;
    status = dw_config_check(&set, why);
    if (status) return status;
    size_t size = config->struct_size < sizeof set ? config->struct_size : sizeof set;
    set.struct_size = config->struct_size;
    memcpy(config, &set, size);
    return DW_OK;
}

dw_status dw_config_check(const dw_config *config, dw_why *why)
{
    char known[160];
    if (!dw_word_of(dw_codec_words, config->codec))
        return dw_say(why, DW_ERR_CONFIG, "the config's codec is not a dw_codec");
    for (int i = 0; i < DW_OPTIONS; i++) {
        const dw_option *o = &dw_options[i];
        uint64_t value = dw_option_get(o, config);
        if (!option_is_valid(o, value)) {
            list_values(o, known, sizeof known);
            return dw_say(why, DW_ERR_CONFIG, "the config's %s is %llu; allowed: %.120s", o->name,
                          (unsigned long long)value, known);
        }
        if (value && (o->codecs & dw_codec_bit(config->codec)) && !dw_option_applies(o, config)) {
            return dw_say(why, DW_ERR_CONFIG,
                          "the config's %s has no meaning with its other options: leave it 0",
                          o->name);
        }
        if (dw_option_applies(o, config) && !dw_option_fits(o, config, value)) {
            char given[64];
            list_fitting(o, config, known, sizeof known);
            snprintf(given, sizeof given, " %s=0", o->name);
            if (value) (void)write_option(o, config, ' ', given, sizeof given);
            return dw_say(why, DW_ERR_CONFIG,
                          "the config has%s; allowed with its other options: %.150s", given, known);
        }
    }
    return DW_OK;
}
