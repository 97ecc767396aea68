/* SPDX-License-Identifier: Apache-2.0
 * test_tools.c - tests the tools of the fuzzers: frames with new digests are valid, every option
 * can be picked, and the model accepts the frames of encoders. */
#include "codecs/options.h"
#include "model_frame.h"

enum { N = 2, T = 3, C = 40, SEEDS = 60000, SEALED = 400 };

static fuzz_input random_input(uint8_t *room, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i++) room[i] = (uint8_t)fuzz_random(&seed);
    return (fuzz_input){room, bytes};
}

/* ---- New digests. ---------------------------------------------------------------------------- */

/* Damages every digest that sealing writes; it does not write state digests. */
static void spoil_digests(uint8_t *frame)
{
    uint8_t *entries = frame + 80 + 8 * frame[41];
    for (uint32_t i = 0; i < model_get(frame + 24, 4); i++) {
        if (model_get(entries + 48 * i + 24, 8) == 0)
            continue; /* without payload, without digest */
        for (int k = 32; k < 40; k++) entries[48 * i + k] ^= 0xff;
    }
    for (int k = 64; k < 80; k++) frame[k] ^= 0xff;
}

/* The digests of a key frame and of a delta frame are damaged and sealed again: the bytes must be
 * the same as before, and library and model must accept them. */
static void check_sealing(const dw_config *given)
{
    static const dw_key keys[N] = {{.sample = 1}, {.sample = 1, .slice = 1}};
    static float values[FUZZ_ELEMENTS], out[FUZZ_ELEMENTS];
    static uint8_t noise[64], reply[48 + 40 * N];
    uint32_t t = T, c = C;
    fuzz_fit_shape(given, &t, &c);
    dw_tensor x = dw_tensor_3d(values, DW_F32, N, t, c), y = x, none = x;
    dw_encoder *encoder;
    dw_decoder *decoder;
    model m;
    dw_config fitted = *given, *config = &fitted;
    fuzz_fit(config, t, c);
    size_t cap = dw_frame_bound(config, &x), len, reply_len;
    uint8_t *frame = malloc(cap), *sealed = malloc(cap);
    y.data = out;
    none.data = NULL;
    REQUIRE(frame && sealed);
    REQUIRE(dw_encoder_create(&encoder, config, fuzz_host(), NULL) == DW_OK);
    REQUIRE(dw_decoder_create(&decoder, config, fuzz_host(), NULL) == DW_OK);
    model_open(&m, config);
    for (uint64_t visit = 0; visit < 2; visit++) {
        fuzz_input input = random_input(noise, sizeof noise, visit);
        fuzz_tensor_fill(&input, &x);
        REQUIRE(fuzz_encode(encoder, keys, &x, frame, cap, &len) == DW_OK);
        memcpy(sealed, frame, len);
        spoil_digests(sealed);
        fuzz_seal_frame(sealed, len);
        REQUIRE(memcmp(frame, sealed, len) == 0);
        REQUIRE(dw_decode(decoder, sealed, len, &y, NULL, reply, sizeof reply, &reply_len) ==
                DW_OK);
        REQUIRE(model_decode(&m, sealed, len, &none, NULL, NULL, 0).status == DW_OK);
    }
    model_close(&m);
    dw_encoder_destroy(encoder);
    dw_decoder_destroy(decoder);
    free(sealed);
    free(frame);
}

static void check_sealing_of_all(void)
{
    uint8_t room[64];
    for (uint64_t seed = 0; seed < SEALED; seed++) {
        fuzz_input input = random_input(room, sizeof room, seed);
        dw_config config = fuzz_config(&input);
        check_sealing(&config);
    }
}

/* ---- What fuzz_config and fuzz_shape can pick. ----------------------------------------------- */

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

static void check_shapes(void)
{
    uint8_t room[16];
    uint32_t cut = 0, long_cut = 0, many = 0, dtypes[4] = {0}, gaps = 0, t, c;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        fuzz_input input = random_input(room, sizeof room, seed);
        fuzz_shape(&input, &t, &c);
        dw_tensor x = fuzz_tensor(&input, 2, t, c);
        cut += c > 2048;
        long_cut += c > 2048 && c % 2048 && t > 1;
        many += t > 2048 / 16 && c <= 16;
        dtypes[x.dtype]++;
        gaps += x.stride_t > (int64_t)c && x.stride_n > x.stride_t * (int64_t)t;
    }
    REQUIRE(cut && long_cut && many && dtypes[1] && dtypes[2] && dtypes[3] && gaps);
}

int main(void)
{
    check_sealing_of_all();
    check_options();
    check_shapes();
    puts("frames with new digests decode; every word of every option is picked");
    return 0;
}
