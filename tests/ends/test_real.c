/* SPDX-License-Identifier: Apache-2.0
 * test_real.c - what codecs do to activations and gradients of a pretrained model, SmolLM2-135M
 * (Apache-2.0), which have outliers as random numbers have not.
 *
 * tests/data/smollm2.safetensors has the activations behind two layers and the gradients behind a
 * third one, of two rows of 128 tokens, in bf16; `./run real --slices` has written it. Limits are a
 * tenth above what was measured when they were written. */
#include <math.h>

#include "deltawire/profile.h"
#include "support/tool.h"

enum { N = 2, T = 128, C = 576, SIZE = N * T * C, HEADER = 1024 };
static const char *path;

/* Reads the tensor with this name, as f32. */
static void read_tensor(const char *name, float *to)
{
    static unsigned char values[2 * SIZE];
    char header[HEADER + 1] = "", *at;
    unsigned char size[8];
    unsigned from = 0, end = 0;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(size, 1, 8, file), 8);
    size_t bytes = size[0] | (size_t)size[1] << 8;
    assert_true(bytes < HEADER && fread(header, 1, bytes, file) == bytes);
    at = strstr(header, name);
    assert_non_null(at);
    at = strstr(at, "data_offsets");
    assert_true(at && sscanf(at, "data_offsets\": [%u, %u]", &from, &end) == 2);
    assert_int_equal(end - from, sizeof values);
    assert_int_equal(fseek(file, (long)(8 + bytes + from), SEEK_SET), 0);
    assert_int_equal(fread(values, 1, sizeof values, file), sizeof values);
    (void)fclose(file);
    for (size_t i = 0; i < SIZE; i++) {
        uint32_t bits = (uint32_t)values[2 * i] << 16 | (uint32_t)values[2 * i + 1] << 24;
        memcpy(&to[i], &bits, sizeof bits);
    }
}

/* What a codec does: the mean error of a row, as a part of its norm; the same of the values of up
 * to 6 rms of the row; and bits per value with all headers. */
typedef struct found {
    double row, bulk, bits;
} found;

static found errors_of(const float *x, const float *y)
{
    found f = {0, 0, 0};
    int rows = 0;
    for (const float *end = x + SIZE; x < end; x += C, y += C) {
        double all = 0, wrong = 0, kept = 0, kept_wrong = 0;
        for (int c = 0; c < C; c++) {
            all += (double)x[c] * x[c];
            wrong += ((double)x[c] - y[c]) * ((double)x[c] - y[c]);
        }
        for (int c = 0; c < C; c++) {
            if ((double)x[c] * x[c] > 36 * all / C) continue;
            kept += (double)x[c] * x[c];
            kept_wrong += ((double)x[c] - y[c]) * ((double)x[c] - y[c]);
        }
        if (!(kept > 0)) continue; /* rows of zeros: the last token has no gradient */
        f.row += sqrt(wrong / all);
        f.bulk += sqrt(kept_wrong / kept);
        rows++;
    }
    f.row /= rows;
    f.bulk /= rows;
    return f;
}

static found measure(const char *config, const dw_profile *profile, float *x)
{
    static float y[SIZE];
    static const dw_key keys[N] = {{1, 0}, {2, 0}};
    test_pair pair;
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C), ty = dw_tensor_3d(y, DW_F32, N, T, C);
    test_pair_open_with(&pair, config, profile, N, T, C, DW_F32);
    test_pair_pass(&pair, keys, &tx, &ty);
    found f = errors_of(x, y);
    f.bits = 8.0 * (double)pair.len / SIZE;
    test_pair_close(&pair);
    return f;
}

static const char *const names[] = {"first-activations", "last-activations", "middle-gradients"};

static const struct {
    const char *config;
    bool has_profile;
    found most[3]; /* for each tensor */
} cases[] = {
    {"raw:bf16", false, {{0, 0, 16.1}, {0, 0, 16.1}, {0, 0, 16.1}}},
    {"mx", false, {{0.034, 0.035, 8.3}, {0.035, 0.036, 8.3}, {0.034, 0.034, 8.3}}},
    {"direct:bits=8", false, {{0.016, 0.024, 8.3}, {0.016, 0.024, 8.3}, {0.007, 0.007, 8.3}}},
    {"direct:form=step,step=0.35,entropy=rans",
     false,
     {{0.074, 0.106, 3.75}, {0.073, 0.106, 3.8}, {0.111, 0.111, 3.8}}},
    {"direct:form=step,step=0.35,entropy=rans",
     true,
     {{0.064, 0.092, 3.75}, {0.066, 0.096, 3.75}, {0.114, 0.114, 3.8}}},
    {"direct:form=step,step=1,rounding=dither,entropy=rans",
     false,
     {{0.211, 0.304, 2.35}, {0.21, 0.304, 2.35}, {0.317, 0.318, 2.35}}},
    {"delta:form=step,key_error=0.02,entropy=rans",
     false,
     {{0.0135, 0.0195, 6.4}, {0.0135, 0.0195, 6.4}, {0.02, 0.0205, 6.3}}},
};

TEST(codecs_keep_to_their_errors_and_bits_on_real_tensors)
{
    static float x[SIZE];
    for (int t = 0; t < 3; t++) {
        dw_profile *profile;
        dw_tensor fit = dw_tensor_3d(x, DW_F32, 1, T, C); /* the first row of text */
        read_tensor(names[t], x);
        assert_int_equal(dw_profile_fit(&profile, &fit, NULL, NULL, NULL), DW_OK);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            const found *most = &cases[i].most[t];
            found f = measure(cases[i].config, cases[i].has_profile ? profile : NULL, x);
            printf("%-18s %s%s: %.4f, %.4f of a row, %.2f bits\n", names[t], cases[i].config,
                   cases[i].has_profile ? ", profile" : "", f.row, f.bulk, f.bits);
            if (f.row > most->row || f.bulk > most->bulk || f.bits > most->bits)
                fail_msg("%s of %s: more than %.3f, %.3f or %.2f bits", cases[i].config, names[t],
                         most->row, most->bulk, most->bits);
        }
        dw_profile_destroy(profile);
    }
}

typedef struct visited {
    double error, bits;
} visited;

/* The mean error of rows, and bits, in the visits after the first, with values that change by a
 * part of themselves. */
static visited visit(const char *codec, const char *prev, float part)
{
    enum { VISITS = 4 };
    static float x[SIZE], y[SIZE];
    static const dw_key keys[N] = {{1, 0}, {2, 0}};
    char config[160];
    test_random random = {3};
    test_pair pair;
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C), ty = dw_tensor_3d(y, DW_F32, N, T, C);
    double error = 0, bits = 0;
    snprintf(config, sizeof config, "%s,prev=%s", codec, prev);
    read_tensor(names[0], x);
    test_pair_open(&pair, config, N, T, C, DW_F32);
    for (int visit = 0; visit < VISITS; visit++) {
        test_pair_pass(&pair, keys, &tx, &ty);
        test_pair_take_reply(&pair);
        error += visit ? errors_of(x, y).row / (VISITS - 1) : 0;
        bits += visit ? 8.0 * (double)pair.len / SIZE / (VISITS - 1) : 0;
        for (int i = 0; i < SIZE; i++) x[i] *= 1 + part * test_normal(&random);
    }
    printf("%s, changes of %.2f: %.5f of a row, %.2f bits\n", config, (double)part, error, bits);
    test_pair_close(&pair);
    return (visited){error, bits};
}

/* With a limit for the error, only bits pay for what 4 bits lose. */
TEST(prev_in_8_bits_costs_5_percent_and_in_4_bits_what_its_page_says)
{
    static const char *const codecs[] = {"delta:bits=4", "delta:form=step,error=0.06,entropy=rans"};
    static const float parts[] = {0.04f, 0.1f, 0.24f};
    static const double of_4[] = {2.9, 1.65, 1.25, 2.5, 1.6, 1.2};
    for (int i = 0; i < 6; i++) {
        const char *codec = codecs[i / 3];
        visited whole = visit(codec, "bf16", parts[i % 3]), eight = visit(codec, "8", parts[i % 3]),
                four = visit(codec, "4", parts[i % 3]);
        bool in_bits = i >= 3; /* the error is the codec's own limit */
        assert_true(eight.error <= 1.05 * whole.error && eight.bits <= 1.06 * whole.bits);
        assert_true(four.error <= (in_bits ? 1.05 : of_4[i]) * whole.error);
        assert_true(four.bits <= (in_bits ? of_4[i] : 1.01) * whole.bits);
    }
}

RUN_TESTS_GIVEN(path)
