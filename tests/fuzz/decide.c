/* SPDX-License-Identifier: Apache-2.0
 * decide.c - derives configs, shapes and tensors from a fuzzer's input. */
#include "codecs/options.h"
#include "fuzz.h"
#include "support/profiles.h"

static uint32_t count_words(const dw_word *words)
{
    uint32_t n = 0;
    while (words[n].text) n++;
    return n;
}

/* 0 selects the default. For options with a large range, small numbers, as large as a few tensors,
 * are as likely as all others together, so that for example a quota is often full after a few
 * keys. */
static uint64_t pick_number(fuzz_input *input, const dw_option *option)
{
    uint64_t span = option->most - option->least;
    switch (fuzz_below(input, 6)) {
    case 0: return 0;
    case 1: return option->least;
    case 2: return option->most;
    case 3: return option->least + fuzz_bytes(input, 1) % (span < 255 ? span + 1 : 256);
    case 4: return option->least + fuzz_bytes(input, 2) % (span < 4095 ? span + 1 : 4096);
    default:
        return span == UINT64_MAX ? fuzz_bytes(input, 8)
                                  : option->least + fuzz_bytes(input, 8) % (span + 1);
    }
}

/* The last word of the option rounding, trellis, and the last two of prev, 8 and 4, came later than
 * the others (pick_trellis, pick_compact). */
enum { ROUNDING = 4, PREV = 8 };

static uint32_t later_words(const dw_option *option)
{
    return option->number == PREV ? 2 : option->number == ROUNDING;
}

static uint64_t pick(fuzz_input *input, const dw_option *option)
{
    if (!option->words) return pick_number(input, option);
    uint32_t choice = fuzz_below(input, count_words(option->words) + 1 - later_words(option));
    return choice ? option->words[choice - 1].value : 0;
}

/* The config always takes this many bytes from the beginning of the input, however many it needs.
 * So inputs of a corpus keep their meaning when an option is added. */
enum { CONFIG_BYTES = 64 };

static fuzz_input split_off(fuzz_input *from, size_t bytes)
{
    fuzz_input front = {from->data, from->left < bytes ? from->left : bytes};
    from->data += front.left;
    from->left -= front.left;
    return front;
}

/* The sparse codecs got the option element later than their other options. */
enum { ELEMENT = 15 };

static bool came_later(const dw_option *option, dw_codec codec)
{
    return option->number == ELEMENT && codec >= DW_CODEC_TOPK;
}

/* Picks values of the codec's options that have these numbers. Inputs of the corpus were made when
 * there were fewer options; later ones take their bytes from behind those. Options are picked in
 * the order of the rows, so rows that are moved change what inputs mean. */
static void pick_options(fuzz_input *input, dw_config *config, uint8_t least, uint8_t most)
{
    for (int i = 0; i < DW_OPTIONS; i++)
        if (dw_options[i].codecs & dw_codec_bit(config->codec) && dw_options[i].number >= least &&
            dw_options[i].number <= most && !came_later(&dw_options[i], config->codec))
            dw_option_set(&dw_options[i], config, pick(input, &dw_options[i]));
}

/* The codecs that there were when most of the corpus was made. */
enum { OLD_CODECS = 4 };

/* Returns a codec that came later, or 0: one of LATER_CODECS numbers, by the last byte but one of
 * the config, of which the corpus from before has none of these values. So inputs keep their
 * meaning when a codec is added. */
static dw_codec pick_later_codec(const fuzz_input *front)
{
    enum { FIRST_BYTE = 0xb9, LAST_BYTE = 0xcf, LATER_CODECS = 12 };
    if (front->left < CONFIG_BYTES) return (dw_codec)0;
    uint32_t byte = front->data[front->left - 2];
    uint32_t number = DW_CODEC_TOPK + (byte - FIRST_BYTE) % LATER_CODECS;
    bool is_later = byte >= FIRST_BYTE && byte <= LAST_BYTE && dw_word_of(dw_codec_words, number);
    return (dw_codec)(is_later ? number : 0);
}

/* Whether to pick the options transform and rotate, which older codecs got later: as for codecs
 * that came later, some values of another byte say so. */
enum { TRANSFORM = 32, ROTATE = 33, DECAY = 45, KEY_ERROR = 46 };

static bool is_rotated(const fuzz_input *front)
{
    uint32_t byte = front->left < CONFIG_BYTES ? 0 : front->data[front->left - 3];
    return (byte >= 0x99 && byte <= 0xab) || (byte >= 0xda && byte <= 0xea);
}

/* Picks the element of sparse codecs, if the last byte but three says so. */
static void pick_element(const fuzz_input *front, fuzz_input *input, dw_config *config)
{
    uint32_t byte = front->left < CONFIG_BYTES ? 0 : front->data[front->left - 4];
    if (byte < 0x46 || byte > 0x5d) return;
    for (int i = 0; i < DW_OPTIONS; i++)
        if (dw_options[i].codecs & dw_codec_bit(config->codec) &&
            came_later(&dw_options[i], config->codec))
            dw_option_set(&dw_options[i], config, pick(input, &dw_options[i]));
}

/* Whether codes follow a trellis, by the last byte but four. Then the form is step and there is an
 * entropy coder, without which they cannot. */
static void pick_trellis(const fuzz_input *front, dw_config *config)
{
    uint32_t byte = front->left < CONFIG_BYTES ? 0 : front->data[front->left - 5];
    bool is_picked = (byte >= 0x79 && byte <= 0x88) || (byte >= 0x8b && byte <= 0x9b);
    if (!is_picked || (config->codec != DW_CODEC_DELTA && config->codec != DW_CODEC_DIRECT)) return;
    config->form = DW_FORM_STEP;
    config->entropy = DW_ENTROPY_RANS;
    config->rounding = DW_ROUNDING_TRELLIS;
}

/* Whether residuals decay, by the last byte but five. Then there are residuals. */
static void pick_decay(const fuzz_input *front, fuzz_input *input, dw_config *config)
{
    uint32_t byte = front->left < CONFIG_BYTES ? 0 : front->data[front->left - 6];
    if (!((byte >= 0x1b && byte <= 0x2d) || (byte >= 0x89 && byte <= 0x92))) return;
    pick_options(input, config, DECAY, DECAY);
    if (config->feedback <= DW_FEEDBACK_NONE && config->codec != DW_CODEC_DELTA)
        config->feedback = DW_FEEDBACK_EF;
}

/* Whether first visits have an error of their own, by the last byte but six. */
static void pick_key_error(const fuzz_input *front, fuzz_input *input, dw_config *config)
{
    uint32_t byte = front->left < CONFIG_BYTES ? 0 : front->data[front->left - 7];
    if ((byte >= 0x7c && byte <= 0x8a) || (byte >= 0x64 && byte <= 0x6e))
        pick_options(input, config, KEY_ERROR, KEY_ERROR);
}

/* Whether there is a profile of channels, by the last byte but seven. Then the form is step. Until
 * fuzz_fit knows the number of channels, the digest is how many lists of means there are, and 1. */
static void pick_profile(const fuzz_input *front, dw_config *config)
{
    uint32_t byte = front->left < CONFIG_BYTES ? 0 : front->data[front->left - 8];
    if (!((byte >= 0xc1 && byte <= 0xcb) || (byte >= 0xec && byte <= 0xf4))) return;
    if (config->codec != DW_CODEC_DELTA && config->codec != DW_CODEC_DIRECT) return;
    config->form = DW_FORM_STEP;
    config->profile_digest = 1 + byte % 3;
}

/* Whether prev is kept in few bits, by the last byte but eight. */
static void pick_compact(const fuzz_input *front, dw_config *config)
{
    uint32_t byte = front->left < CONFIG_BYTES ? 0 : front->data[front->left - 9];
    if (!((byte >= 0x51 && byte <= 0x5a) || (byte >= 0xe9 && byte <= 0xf5))) return;
    if (config->codec != DW_CODEC_DELTA) return;
    config->prev = byte % 2 ? 8 : 4;
    config->skip = 0;
    config->error_abs = 0;
}

dw_config fuzz_config(fuzz_input *whole)
{
    fuzz_input front = split_off(whole, CONFIG_BYTES), *input = &front;
    uint32_t how = front.left ? front.data[front.left - 1] % 4u : 0;
    dw_codec later = pick_later_codec(&front);
    bool rotates = is_rotated(&front);
    const fuzz_input all = front;
    dw_config config = {.struct_size = sizeof config};
    /* Delta is the most likely codec, because it has the most state. */
    uint32_t choice = fuzz_below(input, 2 * OLD_CODECS);
    config.codec = (dw_codec)dw_codec_words[choice < OLD_CODECS ? choice : 0].value;
    if (later) config.codec = later;
    pick_options(input, &config, 0, 23);
    pick_options(input, &config, 24, TRANSFORM - 1);
    if (rotates) pick_options(input, &config, TRANSFORM, ROTATE);
    pick_options(input, &config, ROTATE + 1, DECAY - 1);
    pick_element(&all, input, &config);
    pick_trellis(&all, &config);
    pick_decay(&all, input, &config);
    pick_key_error(&all, input, &config);
    pick_profile(&all, &config);
    pick_compact(&all, &config);
    /* Of error, error=abs and rate a config may set only one. `how` decides which one keeps its
     * value, so that each of them occurs often. */
    if (how != 3) config.error_abs = 0;
    if (how != 2) config.error = 0;
    if (how != 1) config.rate = 0;
    /* Options that have no meaning beside the others are reset, which may take the meaning of
     * further ones. */
    for (int turn = 0; turn < DW_OPTIONS; turn++)
        for (int i = 0; i < DW_OPTIONS; i++)
            if (!(dw_options[i].codecs & dw_codec_bit(config.codec)))
                continue; /* a row of another codec may have the same field */
            else if (!dw_option_applies(&dw_options[i], &config) ||
                     !dw_option_fits(&dw_options[i], &config,
                                     dw_option_get(&dw_options[i], &config)))
                dw_option_set(&dw_options[i], &config, 0);
    if (config.incarnation == 0) config.incarnation = 0x1234;
    REQUIRE(dw_config_check(&config, NULL) == DW_OK);
    return config;
}

void fuzz_fit(dw_config *config, uint32_t t, uint32_t c)
{
    if (config->profile_digest && !config->profile) {
        config->profile = test_profile(config->profile_digest - 1, c);
        config->profile_digest = dw_profile_digest(config->profile);
    }
    uint32_t most = t < c ? t : c, rank = config->rank ? config->rank : 4;
    if (config->codec == DW_CODEC_LOWRANK && !config->width && rank > most) config->rank = most;
}

void fuzz_shape(fuzz_input *input, uint32_t *t, uint32_t *c)
{
    static const uint32_t edges[] = {1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128, 255, 257, 300};
    static const uint32_t long_rows[] = {2047, 2048, 2049, 2080, 2081, 4096, 4099};
    static const uint32_t many_tokens[] = {9, 17, 33, 65, 127, 128, 129, 257};
    switch (fuzz_below(input, 16)) {
    case 0: /* rows that are cut into segments, or nearly so long */
        *c = long_rows[fuzz_below(input, 7)];
        *t = 1 + fuzz_below(input, 2);
        break;
    case 1: /* more tokens than a tile of the narrowest groups has segments */
        *c = 1 + fuzz_below(input, 33);
        *t = many_tokens[fuzz_below(input, 8)];
        break;
    case 2:
    case 3: /* the last group, tile or plane is not full */
        *c = edges[fuzz_below(input, 14)];
        *t = 1 + fuzz_below(input, 5);
        break;
    default:
        *c = 1 + fuzz_below(input, 80);
        *t = 1 + fuzz_below(input, 4);
        break;
    }
    REQUIRE((uint64_t)*t * *c <= FUZZ_ELEMENTS);
}

void fuzz_fit_shape(const dw_config *config, uint32_t *t, uint32_t *c)
{
    uint32_t block = 1;
    if (config->transform == DW_TRANSFORM_HADAMARD) block = config->rotate ? config->rotate : 64;
    if (config->codec == DW_CODEC_TAH) block = config->tile ? config->tile : 64;
    *c = (*c + block - 1) / block * block;
    if ((uint64_t)*t * *c > FUZZ_ELEMENTS) *t = FUZZ_ELEMENTS / *c;
}

dw_tensor fuzz_tensor(fuzz_input *input, uint32_t n, uint32_t t, uint32_t c)
{
    dw_tensor x = dw_tensor_3d(NULL, (dw_dtype)(1 + fuzz_below(input, 3)), n, t, c);
    uint32_t gaps = fuzz_byte(input);
    x.stride_t = (int64_t)c + (gaps & 3);
    x.stride_n = x.stride_t * t + (gaps >> 2 & 3);
    return x;
}

size_t fuzz_tensor_bytes(const dw_tensor *x)
{
    int64_t last = (x->n - 1) * x->stride_n + (x->t - 1) * x->stride_t + x->c;
    return (size_t)last * dw_dtype_bytes(x->dtype);
}

void fuzz_floats(fuzz_input *input, float *x, size_t n)
{
    static const uint32_t special[] = {
        0x00000000, 0x80000000,             /* +-0 */
        0x00000001, 0x807fffff,             /* the smallest and the largest subnormal */
        0x00800000, 0x7f7fffff, 0xff7fffff, /* the smallest and the largest normal numbers */
        0x0f800000, 0x0f7fffff,             /* 2^-96, the limit of a zero group, and just below */
        0x477fe000, 0x7f7f0000, 0x33800000, /* the largest f16 and bf16, the smallest f16 */
        0x7f800000, 0xff800000,             /* infinities */
        0x7fc00000, 0xff812345,             /* quiet and signalling NaN */
    };
    uint32_t mode = fuzz_byte(input), seed = fuzz_byte(input) | 1u, spot = fuzz_below(input, 1024);
    uint32_t exponent = fuzz_byte(input),
             value = special[fuzz_below(input, sizeof special / sizeof *special)];
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t bits;
        switch (mode & 3) {
        case 0:
            bits = (seed & 0x80000000u) | (127u - (exponent & 7u)) << 23 | (seed >> 9);
            break; /* ordinary values */
        case 1:
            bits = (seed & 0x80000000u) | exponent << 23 | (seed >> 9);
            break;                    /* any exponent */
        case 2: bits = seed; break;   /* any bits */
        default: bits = value; break; /* all elements are equal */
        }
        if ((mode & 4) && i % 1024 == spot) bits = value; /* an outlier per 1024 elements */
        memcpy(&x[i], &bits, sizeof bits);
    }
}

/* Only the first rows of a sample are decided one by one, and the rest together, so that one tensor
 * does not use up the input. */
enum { ROWS_DECIDED = 2 };

static void fill_sample(fuzz_input *input, const dw_tensor *x, uint32_t n, float *values)
{
    for (uint32_t t = 0; t < x->t && t < ROWS_DECIDED; t++)
        fuzz_floats(input, values + (size_t)t * x->c, x->c);
    if (x->t > ROWS_DECIDED)
        fuzz_floats(input, values + (size_t)ROWS_DECIDED * x->c,
                    (size_t)(x->t - ROWS_DECIDED) * x->c);
    for (uint32_t t = 0; t < x->t; t++) {
        int64_t at = (int64_t)n * x->stride_n + (int64_t)t * x->stride_t;
        const float *row = values + (size_t)t * x->c;
        if (x->dtype == DW_F32) {
            memcpy((float *)x->data + at, row, x->c * sizeof *row);
            continue;
        }
        for (uint32_t c = 0; c < x->c; c++) {
            uint32_t bits;
            memcpy(&bits, &row[c], sizeof bits);
            /* For f16 these bits stand for another number than in x, which does not matter. */
            ((uint16_t *)x->data)[at + c] = (uint16_t)(bits >> 16);
        }
    }
}

void fuzz_tensor_fill(fuzz_input *input, const dw_tensor *x)
{
    static float values[FUZZ_ELEMENTS];
    REQUIRE((uint64_t)x->t * x->c <= FUZZ_ELEMENTS);
    for (uint32_t n = 0; n < x->n; n++) fill_sample(input, x, n, values);
}

dw_status fuzz_encode(dw_encoder *encoder, const dw_key *keys, const dw_tensor *x, void *frame,
                      size_t cap, size_t *len)
{
    dw_status status = dw_encode(encoder, keys, x, NULL, frame, cap, len);
    if (status != DW_ERR_LIMIT || !strstr(dw_encoder_why(encoder), "error=abs")) return status;
    memset(x->data, 0, fuzz_tensor_bytes(x));
    return dw_encode(encoder, keys, x, NULL, frame, cap, len);
}
