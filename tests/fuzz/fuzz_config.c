/* SPDX-License-Identifier: Apache-2.0
 * fuzz_config.c - every text is either a config or gives a clear error, and a config is the same
 * after it was formatted and parsed again. */
#include "codecs/options.h"
#include "fuzz.h"
#include "support/profiles.h"

static void check_error(const char *text, dw_status status, const dw_why *why)
{
    REQUIRE(status == DW_ERR_CONFIG);
    REQUIRE(memchr(why->text, 0, sizeof why->text) != NULL && why->text[0] != 0);
    REQUIRE(why->offset >= 0 && (size_t)why->offset <= strlen(text));
}

static void check_text(const char *text)
{
    dw_config first, second, untouched;
    memset(&first, 0x5a, sizeof first);
    memcpy(&untouched, &first, sizeof first);
    dw_why why;
    dw_status status = dw_config_parse(&first, text, &why);
    REQUIRE(dw_config_parse(&second, text, NULL) == status);
    if (status != DW_OK) {
        REQUIRE(memcmp(&first, &untouched, sizeof first) == 0);
        check_error(text, status, &why);
        return;
    }
    char canonical[DW_CONFIG_TEXT_BYTES], again[DW_CONFIG_TEXT_BYTES];
    REQUIRE(dw_config_format(&first, canonical, sizeof canonical) == DW_OK);
    REQUIRE(dw_config_parse(&second, canonical, &why) == DW_OK);
    REQUIRE(dw_config_format(&second, again, sizeof again) == DW_OK);
    REQUIRE(strcmp(canonical, again) == 0);
    /* Whatever cap is, no byte after it is written. */
    size_t need = strlen(canonical) + 1;
    for (size_t cap = 0; cap <= need; cap++) {
        memset(again, 0x5a, sizeof again);
        status = dw_config_format(&first, again, cap);
        REQUIRE(status == (cap < need ? DW_ERR_BUFFER_TOO_SMALL : DW_OK));
        for (size_t i = cap; i < sizeof again; i++) REQUIRE(again[i] == 0x5a);
    }
    dw_encoder *encoder;
    REQUIRE(dw_encoder_create(&encoder, &first, fuzz_host(), NULL) == DW_OK);
    dw_encoder_destroy(encoder);
}

static uint32_t count_words(const dw_word *words)
{
    uint32_t n = 0;
    while (words[n].text) n++;
    return n;
}

/* A value for a field: one from the table, its neighbour, or any number. */
static uint64_t pick_value(fuzz_input *input, const dw_option *option)
{
    uint32_t how = fuzz_below(input, 8);
    uint64_t known = how & 1 ? option->least : option->most;
    if (option->words) known = option->words[fuzz_below(input, count_words(option->words))].value;
    switch (how) {
    case 0: return fuzz_bytes(input, 8);
    case 1: return known + 1;
    case 2: return known - 1;
    case 3: return 0;
    default: return known;
    }
}

/* Makes a text of the table's own words, in any order, some of them truncated, repeated or joined
 * wrongly. */
static void check_words(fuzz_input *input)
{
    char text[400];
    size_t used = 0;
    const dw_word *codec = &dw_codec_words[fuzz_below(input, count_words(dw_codec_words))];
    used += (size_t)snprintf(text, sizeof text, "%s", codec->text);
    for (uint32_t n = fuzz_below(input, 6); n > 0; n--) {
        const dw_option *o = &dw_options[fuzz_below(input, DW_OPTIONS)];
        uint64_t value = pick_value(input, o);
        uint32_t how = fuzz_byte(input);
        const char *word = o->words ? dw_word_of(o->words, value) : NULL;
        char mark = how % 16 == 1 ? ';' : used == strlen(codec->text) ? ':' : ',';
        bool bare = how >> 4 == 1;
        used += (size_t)snprintf(text + used, sizeof text - used, "%c%s%s", mark,
                                 bare ? "" : o->name, bare ? "" : "=");
        used += word ? (size_t)snprintf(text + used, sizeof text - used, "%s", word)
                     : (size_t)snprintf(text + used, sizeof text - used, "%llu",
                                        (unsigned long long)value);
    }
    REQUIRE(used < sizeof text);
    if (fuzz_byte(input) % 8 == 1) text[fuzz_below(input, 512) % (used + 1)] = 0;
    check_text(text);
}

/* A config that is valid by the table must be accepted by all functions, and its text must mean the
 * same. */
static void check_valid(fuzz_input *input)
{
    dw_config config = fuzz_config(input), parsed;
    char text[DW_CONFIG_TEXT_BYTES], agreed[DW_CONFIG_TEXT_BYTES], again[DW_CONFIG_TEXT_BYTES];
    REQUIRE(dw_config_format(&config, text, sizeof text) == DW_OK);
    REQUIRE(dw_config_parse(&parsed, text, NULL) == DW_OK);
    REQUIRE(parsed.codec == config.codec);
    for (int i = 0; i < DW_OPTIONS; i++)
        REQUIRE(!dw_option_applies(&dw_options[i], &config) ||
                dw_option_value(&dw_options[i], &parsed) ==
                    dw_option_value(&dw_options[i], &config));
    REQUIRE(dw_config_agreement(&config, agreed, sizeof agreed) == DW_OK);
    REQUIRE(dw_config_agreement(&parsed, again, sizeof again) == DW_OK);
    REQUIRE(strcmp(agreed, again) == 0);
    dw_decoder *decoder;
    fuzz_fit(&config, 1, 16);
    REQUIRE(dw_decoder_create(&decoder, &config, fuzz_host(), NULL) == DW_OK);
    dw_decoder_destroy(decoder);
}

/* Passes structs of programs that were compiled with fewer or more fields. */
static void check_sizes(fuzz_input *input)
{
    size_t size = fuzz_below(input, 2 * sizeof(dw_config));
    uint8_t *room = malloc(size ? size : 1);
    REQUIRE(room != NULL);
    memset(room, 0x5a, size);
    dw_config *config = (dw_config *)(void *)room;
    bool fits = size >= sizeof *config;
    REQUIRE(dw_config_parse_sized(config, size, "delta:bits=3", NULL) ==
            (fits ? DW_OK : DW_ERR_ARGUMENT));
    dw_encoder *encoder = NULL;
    if (fits) {
        size_t at = size > sizeof *config && fuzz_byte(input) & 1
                        ? sizeof *config + fuzz_below(input, 512) % (size - sizeof *config)
                        : 0;
        if (at) room[at] = 1; /* a field that this version does not have */
        REQUIRE(dw_encoder_create(&encoder, config, fuzz_host(), NULL) ==
                (at ? DW_ERR_CONFIG : DW_OK));
        dw_encoder_destroy(encoder);
    }
    free(room);
}

/* Fills in a struct directly, valid or not. If it is valid, its text gives the same frames. */
static void check_struct(fuzz_input *input)
{
    dw_config config = {.struct_size = sizeof config,
                        .codec = (dw_codec)fuzz_below(input, DW_CODEC_BLOCKS + 2)};
    for (int i = 0; i < DW_OPTIONS; i++)
        if (fuzz_byte(input) & 1)
            dw_option_set(&dw_options[i], &config, pick_value(input, &dw_options[i]));
    if (config.profile_digest) {
        config.profile = test_profile(config.profile_digest % 3, 1024);
        config.profile_digest = fuzz_byte(input) & 1 ? dw_profile_digest(config.profile) : 0;
    }
    char text[DW_CONFIG_TEXT_BYTES];
    dw_encoder *encoder = NULL;
    dw_status created = dw_encoder_create(&encoder, &config, fuzz_host(), NULL),
              formatted = dw_config_format(&config, text, sizeof text);
    REQUIRE(created == formatted); /* both are OK, or both are CONFIG */
    REQUIRE((created == DW_OK) == (encoder != NULL));
    dw_encoder_destroy(encoder);
    /* A shape that all codecs can code, of which only the extents are read. */
    float x = 0;
    dw_tensor view = dw_tensor_3d(&x, DW_F32, 1, 1024, 1024);
    REQUIRE((dw_frame_bound(&config, &view) > 0) == (created == DW_OK));
    if (created != DW_OK) return;
    dw_config parsed;
    REQUIRE(dw_config_parse(&parsed, text, NULL) == DW_OK);
    REQUIRE(dw_frame_bound(&parsed, &view) == dw_frame_bound(&config, &view));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 512) return 0;
    char *text = malloc(size + 1);
    REQUIRE(text != NULL);
    memcpy(text, data, size);
    text[size] = 0;
    check_text(text);
    free(text);
    fuzz_input input = {data, size};
    check_struct(&input);
    check_words(&input);
    check_valid(&input);
    check_sizes(&input);
    return 0;
}
