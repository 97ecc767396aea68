/* SPDX-License-Identifier: Apache-2.0
 * test_tools.c - tests the tools of the fuzzers: every option can be picked. */
#include "codecs/options.h"
#include "fuzz.h"

enum { SEEDS = 60000 };

static fuzz_input random_input(uint8_t *room, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i++) room[i] = (uint8_t)fuzz_random(&seed);
    return (fuzz_input){room, bytes};
}

enum { MOST_CODECS = 16, MOST_WORDS = 24, DEFAULT = MOST_WORDS, BETWEEN, KINDS };
static uint32_t picked[MOST_CODECS][DW_OPTIONS][KINDS];

static uint64_t value_of(const dw_option *option, uint32_t i)
{
    return option->words ? option->words[i].value : i == 0 ? option->least : option->most;
}

static void note(const dw_config *config, int o)
{
    const dw_option *option = &dw_options[o];
    uint64_t value = dw_option_get(option, config);
    uint32_t *row = picked[config->codec][o], i = 0;
    if (value == 0) {
        row[DEFAULT]++;
        return;
    }
    uint32_t all = 2;
    if (option->words)
        for (all = 0; option->words[all].text;) all++;
    REQUIRE(all < MOST_WORDS);
    while (i < all && value_of(option, i) != value) i++;
    REQUIRE(i < all || !option->words);
    row[i < all ? i : BETWEEN]++;
}

static void require_picked(uint32_t times, const char *codec, const char *option, const char *what)
{
    if (times == 0)
        fprintf(stderr, "%s: %s of %s was never picked from %d seeds\n", codec, what, option,
                SEEDS);
    REQUIRE(times > 0);
}

/* Some words belong to no config of a codec: direct is never microscaled, because mx is; the values
 * of sparse codecs, and the factors of lowrank, are rows, and are not in steps, which dither and a
 * trellis need. */
static bool is_possible(dw_codec codec, const dw_option *option, uint32_t word)
{
    if (codec >= DW_CODEC_TOPK && codec <= DW_CODEC_LOWRANK)
        return word != DW_GROUP_CHANNEL && word != DW_GROUP_SAMPLE &&
               (strcmp(option->name, "rounding") != 0 || word < DW_ROUNDING_DITHER);
    if (codec == DW_CODEC_TAH && strcmp(option->name, "scale") == 0) return word != DW_SCALE_ABSMAX;
    return codec != DW_CODEC_DIRECT || strcmp(option->name, "form") != 0 || word != DW_FORM_MX;
}

/* The incarnation is always picked, and the values of sparse codecs are not microscaled by
 * default. */
static bool has_default(dw_codec codec, const dw_option *option)
{
    bool is_element = strcmp(option->name, "element") == 0 && codec >= DW_CODEC_TOPK;
    return strcmp(option->name, "incarnation") != 0 && !is_element;
}

static void check_options(void)
{
    uint8_t room[64];
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        fuzz_input input = random_input(room, sizeof room, seed);
        dw_config config = fuzz_config(&input);
        REQUIRE(config.incarnation != 0);
        for (int o = 0; o < DW_OPTIONS; o++)
            if (dw_option_applies(&dw_options[o], &config)) note(&config, o);
    }
    for (const dw_word *codec = dw_codec_words; codec->text; codec++) {
        for (int o = 0; o < DW_OPTIONS; o++) {
            const dw_option *option = &dw_options[o];
            const uint32_t *row = picked[codec->value][o];
            if (!(option->codecs & dw_codec_bit((dw_codec)codec->value))) continue;
            for (uint32_t i = 0; option->words && option->words[i].text; i++)
                if (is_possible((dw_codec)codec->value, option, option->words[i].value))
                    require_picked(row[i], codec->text, option->name, option->words[i].text);
            if (has_default((dw_codec)codec->value, option))
                require_picked(row[DEFAULT], codec->text, option->name, "the default");
            /* The digest of a profile follows from a shape. */
            if (option->words || strcmp(option->name, "profile") == 0) continue;
            require_picked(row[0], codec->text, option->name, "the least");
            require_picked(row[1], codec->text, option->name, "the most");
            require_picked(row[BETWEEN], codec->text, option->name, "a number between");
        }
    }
}

int main(void)
{
    check_options();
    puts("every word of every option is picked");
    return 0;
}
