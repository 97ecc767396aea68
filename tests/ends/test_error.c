/* SPDX-License-Identifier: Apache-2.0
 * test_error.c - tests the option error: with error=0.1 the encoder chooses steps with which the
 * error of a sample is 0.1 of its norm; with error=abs:0.1 no value is off by more than 0.1. */
#include <math.h>

#include "support/tool.h"

enum { N = 2, T = 40, C = 800, SIZE = T * C };
static const dw_key keys[N] = {{7, 0}, {9, 1}};

/* Returns the Euclidean norm of a - b. */
static double distance(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(sum);
}

/* Draws a value of a normal distribution, or of Laplace's, which has more large and more small
 * values. */
static float draw(test_random *random, bool laplace)
{
    double u = test_uniform(random) - 0.5;
    if (!laplace) return test_normal(random);
    return (float)((u < 0 ? 1 : -1) * log(1 - 2 * fabs(u) + 1e-12));
}

/* Changes x to the samples of the next visit, which resemble those of the last one. first: this is
 * the first visit, and x has no values yet. */
static void visit_next(float *x, test_random *random, bool laplace, bool first)
{
    for (int i = 0; i < N * SIZE; i++)
        x[i] = (first ? 0 : 0.9f * x[i]) + (first ? 1 : 0.4f) * draw(random, laplace);
}

/* Fails unless the error |x - y| of each piece is at most `error` of the piece's norm |x|, and at
 * least `least` times as much as that. piece: the number of elements of a piece, which is a whole
 * sample or a row. */
static void check_pieces(const char *config, const float *x, const float *y, size_t piece,
                         double error, double least)
{
    for (size_t at = 0; at < N * SIZE; at += piece) {
        double part = distance(x + at, y + at, piece) / test_norm(x + at, piece);
        if (part > error || part < least * error)
            fail_msg("%s: the error of the piece at element %zu is %g of its norm, not %g", config,
                     at, part, error);
    }
}

/* At every visit and with every rounding, the error of each sample or row is at most what the
 * option allows, and nearly as much. */
TEST(the_error_is_the_one_asked_for)
{
    static const struct {
        const char *options;
        double error, least; /* least: the part of the allowed error that must be used at least */
        size_t piece;        /* the number of elements that share a step */
    } cases[] = {
        {"error=0.02", 0.02, 0.97, SIZE},
        {"error=0.1", 0.1, 0.97, SIZE},
        {"error=0.1,rounding=dither", 0.1, 0.97, SIZE},
        {"error=0.7,rounding=dither", 0.7, 0.97, SIZE},
        {"error=3e-1,rounding=stochastic", 0.3, 0.95, SIZE},
        {"error=0.1,group=row", 0.1, 0.83, C},
        {"error=0.1,group=row,rounding=dither", 0.1, 0.83, C},
        {"error=0.05,rounding=trellis,entropy=rans", 0.05, 0.9, SIZE},
        {"error=0.1,rounding=trellis,entropy=rans", 0.1, 0.85, SIZE},
        {"error=0.1,group=row,rounding=trellis,entropy=rans", 0.1, 0.75, C},
        {"error=0.6,rounding=trellis,entropy=rans", 0.6, 0.4, SIZE},
        /* With large steps, nearest rounding has a smaller error than step / sqrt(12), which the
         * encoder reckons with. */
        {"error=0.7", 0.7, 0.5, SIZE},
    };
    static float x[N * SIZE], y[N * SIZE];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C), ty = dw_tensor_3d(y, DW_F32, N, T, C);
    for (size_t k = 0; k < 4 * sizeof cases / sizeof *cases; k++) {
        test_random random = {11 + k};
        char config[128];
        test_pair pair;
        bool is_delta = k % 2, laplace = k / 2 % 2;
        const char *options = cases[k / 4].options;
        snprintf(config, sizeof config, "%s:form=step,incarnation=7,%s%s",
                 is_delta ? "delta" : "direct", options,
                 strstr(options, "group=") ? "" : ",group=sample");
        test_pair_open(&pair, config, N, T, C, DW_F32);
        for (int visit = 0; visit < 4; visit++) {
            /* Where the error may be as large as the change, nearest rounding may round nearly the
             * whole change to zero, and its error is then below step / sqrt(12). */
            bool coarse =
                cases[k / 4].error > 0.5 || (is_delta && visit && cases[k / 4].error > 0.2);
            visit_next(x, &random, laplace, visit == 0);
            test_pair_pass(&pair, keys, &tx, &ty);
            bool dithers = strstr(config, "dither") != NULL;
            check_pieces(config, x, y, cases[k / 4].piece, cases[k / 4].error,
                         coarse && !dithers ? 0.4 : cases[k / 4].least);
        }
        assert_int_equal(test_encoder_counters(pair.encoder).escaped_values, 0);
        test_pair_close(&pair);
    }
}

/* First visits have a limit of their own, whatever changes have. */
TEST(first_visits_keep_to_key_error)
{
    static const struct {
        const char *config;
        double key_error, error;
    } cases[] = {{"delta:form=step,key_error=0.02,error=0.1", 0.02, 0.1},
                 {"delta:form=step,key_error=0.3,error=0.05,rounding=dither", 0.3, 0.05},
                 {"delta:form=step,key_error=0.02,step=0.5", 0.02, 1}};
    static float x[N * SIZE], y[N * SIZE];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C), ty = dw_tensor_3d(y, DW_F32, N, T, C);
    test_random random = {5};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        test_pair pair;
        test_pair_open(&pair, cases[k].config, N, T, C, DW_F32);
        for (int visit = 0; visit < 2; visit++) {
            visit_next(x, &random, false, visit == 0);
            test_pair_pass(&pair, keys, &tx, &ty);
            check_pieces(cases[k].config, x, y, C, visit ? cases[k].error : cases[k].key_error,
                         visit && cases[k].error == 1 ? 0.05 : 0.8);
        }
        test_pair_close(&pair);
    }
}

/* Where some values are far larger than the others, the error is limited to a part of the norm of
 * the others, whose step is as small as without them. The large ones arrive as they are. */
TEST(an_error_limit_holds_for_the_values_beside_outliers)
{
    static const char *const configs[] = {
        "direct:form=step,group=sample,error=0.05",
        "delta:form=step,group=sample,error=0.05,rounding=dither",
        "direct:form=step,group=sample,error=0.05,rounding=stochastic",
        "direct:form=step,error=0.05,group=row"};
    static float x[N * SIZE], y[N * SIZE];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C), ty = dw_tensor_3d(y, DW_F32, N, T, C);
    test_random random = {5};
    for (size_t k = 0; k < sizeof configs / sizeof *configs; k++)
        for (float most = 100.0f; most < 1e30f; most *= 37.0f) {
            test_pair pair;
            for (int i = 0; i < N * SIZE; i++) x[i] = (float)(test_uniform(&random) - 0.5);
            double of_others = test_norm(x, SIZE);
            x[33] = most, x[SIZE + 1] = -most;
            test_pair_open(&pair, configs[k], N, T, C, DW_F32);
            test_pair_pass(&pair, keys, &tx, &ty);
            assert_int_equal(test_encoder_counters(pair.encoder).escaped_values, 2);
            assert_true(y[33] == most && y[SIZE + 1] == -most);
            assert_true(distance(x, y, SIZE) <= 0.0501 * of_others);
            test_pair_close(&pair);
        }
}

/* A sample of zeros has the norm 0, so that no error is a part of it. Such a sample must arrive
 * nevertheless: after each visit, y is at most 1/242 of what it was before. */
TEST(tensors_of_zeros_keep_an_error_limit)
{
    static float x[N * SIZE], y[N * SIZE];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C), ty = dw_tensor_3d(y, DW_F32, N, T, C);
    test_random random = {6};
    test_pair pair;
    double most = 0;
    test_pair_open(&pair, "delta:form=step,group=sample,error=0.05", N, T, C, DW_F32);
    for (int visit = 0; visit < 3; visit++) {
        test_fill(&random, x, DW_F32, N * SIZE, visit ? 0 : 1);
        for (int i = 0; i < N * SIZE; i++)
            if (fabs((double)y[i]) > most) most = fabs((double)y[i]);
        test_pair_pass(&pair, keys, &tx, &ty);
        for (int i = 0; i < N * SIZE && visit; i++)
            assert_true(fabs((double)y[i]) <= most / 242 * 1.0001);
        most = 0;
    }
    test_pair_close(&pair);
}

/* A sample with a NaN has no bound, but all its healthy rows arrive, however small the bound is. */
TEST(rows_beside_a_nan_arrive_whatever_the_bound)
{
    static float x[N * SIZE], y[N * SIZE];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C), ty = dw_tensor_3d(y, DW_F32, N, T, C);
    test_random random = {8};
    test_pair pair;
    for (int i = 0; i < N * SIZE; i++) x[i] = (float)(20 * test_uniform(&random) - 10);
    x[5] = x[SIZE + 5] = NAN;
    test_pair_open(&pair, "direct:form=step,error=abs:0.001,group=row", N, T, C, DW_F32);
    test_pair_pass(&pair, keys, &tx, &ty);
    for (int i = 0; i < N * SIZE; i++)
        if (i % SIZE >= C) assert_true(fabs((double)y[i] - x[i]) < 0.05);
    test_pair_close(&pair);
}

/* ---- error=abs: a bound for every value ------------------------------------------------------ */

enum { ROWS = 7, WIDTH = 70, FEW = ROWS * WIDTH };

/* Replaces the values of x, all of them by finite ones.
 *
 * | kind | the new values                                                                        |
 * | 0    | near the old ones                                                                     |
 * | 1    | random bits                                                                           |
 * | 2    | large ones, of which some exceed the range of f16                                     |
 * | 3    | the old ones, but one in 100 is replaced by one that is far away                      |
 * | 4    | half way between two numbers of bf16, where rounding to bf16 errs most                |
 * | 5    | small ones                                                                            |
 */
static void fill_bounded(test_random *random, const dw_tensor *x, int kind)
{
    for (size_t i = 0; i < FEW; i++) {
        float last = test_get(x->data, x->dtype, i), value = test_normal(random);
        uint32_t bits = (uint32_t)test_next(random);
        if (!isfinite(last)) last = 1;
        if (kind == 0) value = last + 0.01f * value;
        if (kind == 1) memcpy(&value, &bits, sizeof value);
        if (kind == 2) value = ldexpf(value, 15);
        if (kind == 3) value = i % 100 == 7 ? 300 * value : last;
        bits = (bits & 0x8fff0000u) | 0x33808000u;
        if (kind == 4) memcpy(&value, &bits, sizeof value);
        if (kind == 5) value *= 1e-6f;
        test_set(x->data, x->dtype, i, isfinite(value) ? value : 2);
        if (!isfinite(test_get(x->data, x->dtype, i))) test_set(x->data, x->dtype, i, 3);
    }
}

/* Returns the largest |x - y|. It is infinite if a y is not finite. dtype: that of y. */
static double furthest(const dw_tensor *x, const void *y, dw_dtype dtype)
{
    double most = 0;
    for (size_t i = 0; i < FEW; i++) {
        double off = fabs((double)test_get(x->data, x->dtype, i) - test_get(y, dtype, i));
        most = fmax(most, isnan(off) ? INFINITY : off);
    }
    return most;
}

/* A config with error=abs, and what became of its frames. */
typedef struct bounded {
    dw_dtype x, prev; /* the dtypes of x and of prev; prev 0: the codec is direct, without a prev */
    const char *options; /* all options but prev and error */
    double bound;        /* the value of error=abs */
    int refused, coded;  /* results: frames that were refused, and that consist of codes */
} bounded;

/* Sends x once. Fails unless all values of y, and of prev if there is one, are within the bound, or
 * encoding was refused with LIMIT where that is allowed. Counts the frame in b. */
static void visit_bounded(bounded *b, test_pair *pair, const dw_tensor *x, const char *config)
{
    static float y[FEW];
    dw_tensor ty = *x, prev;
    uint64_t floats = test_encoder_counters(pair->encoder).resyncs;
    dw_status status = dw_encode(pair->encoder, keys, x, NULL, pair->frame, pair->cap, &pair->len);
    ty.data = y;
    b->refused += status == DW_ERR_LIMIT;
    if (status == DW_ERR_LIMIT) {
        bool holds_x = b->prev == DW_F32 || b->prev == b->x;
        if (b->prev && holds_x) fail_msg("%s refused: %s", config, dw_encoder_why(pair->encoder));
        assert_non_null(strstr(dw_encoder_why(pair->encoder), "error=abs"));
        return;
    }
    assert_int_equal(status, DW_OK);
    assert_int_equal(test_pair_decode(pair, &ty), DW_OK);
    if (b->prev) test_pair_take_reply(pair);
    b->coded += test_encoder_counters(pair->encoder).resyncs == floats;
    if (furthest(x, y, x->dtype) > b->bound)
        fail_msg("%s, dtype %d: off by %g", config, (int)x->dtype, furthest(x, y, x->dtype));
    if (!b->prev) return;
    test_pair_in_step(pair, keys[0]);
    assert_int_equal(dw_decoder_peek(pair->decoder, keys[0], &prev), DW_OK);
    if (furthest(x, prev.data, prev.dtype) > b->bound)
        fail_msg("%s: prev is off by %g", config, furthest(x, prev.data, prev.dtype));
}

/* Sends 12 visits with the config b, with values of all kinds. Counts the frames in b. */
static void try_bounded(bounded *b, test_random *random)
{
    static const char *const names[] = {"", "f32", "f16", "bf16"};
    static float x[FEW];
    char config[160], bound[32];
    test_pair pair;
    dw_tensor tx = dw_tensor_3d(x, b->x, 1, ROWS, WIDTH);
    snprintf(bound, sizeof bound, "%g", b->bound);
    const char *group = strstr(b->options, "group=") ? "" : "group=sample,";
    if (b->prev)
        snprintf(config, sizeof config, "delta:form=step,incarnation=7,prev=%s,error=abs:%s,%s%s",
                 names[b->prev], bound, group, b->options);
    else
        snprintf(config, sizeof config, "direct:form=step,incarnation=7,error=abs:%s,%s%s", bound,
                 group, b->options);
    test_pair_open(&pair, config, 1, ROWS, WIDTH, b->x);
    memset(x, 0, sizeof x);
    for (int visit = 0; visit < 12; visit++) {
        fill_bounded(random, &tx, visit < 6 ? visit : visit % 2 ? 0 : (int)(test_next(random) % 6));
        visit_bounded(b, &pair, &tx, config);
    }
    assert_int_equal(test_encoder_counters(pair.encoder).escaped_values, 0);
    test_pair_close(&pair);
}

/* Every value of y and of prev is within the bound, whatever x is. Encoding may be refused only if
 * prev has a dtype that cannot hold x to within the bound, or if the codec is direct, which cannot
 * send floats instead of codes; and then nothing has changed. */
TEST(every_value_is_within_the_bound)
{
    static const char *const options[] = {"rounding=nearest", "rounding=stochastic,group=row",
                                          "rounding=dither", "rounding=nearest,group=16,key=f32",
                                          "rounding=dither,entropy=rans,group=row"};
    static const double bounds[] = {1e-9, 2e-7, 1e-3, 0.05, 1000, 9e5};
    test_random random = {test_seed()};
    int refused = 0, coded = 0;
    for (int x = DW_F32; x <= DW_BF16; x++)
        for (int prev = 0; prev <= DW_BF16; prev++)
            for (size_t k = 0; k < 30; k++) {
                bounded b = {(dw_dtype)x, (dw_dtype)prev, options[k % 5], bounds[k / 5], 0, 0};
                if (!prev && strstr(b.options, "key")) continue;
                try_bounded(&b, &random);
                refused += b.refused, coded += b.coded;
            }
    assert_true(refused > 100 && coded > 500);
}

/* Where codes can keep to the bound, the encoder sends codes and no floats, and the largest error
 * of a frame is nearly the bound. */
TEST(an_absolute_bound_is_nearly_reached)
{
    static float x[N * SIZE], y[N * SIZE];
    test_random random = {8};
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C), ty = dw_tensor_3d(y, DW_F32, N, T, C);
    for (int k = 0; k < 3; k++) {
        test_pair pair;
        test_pair_open(
            &pair,
            k == 0   ? "delta:form=step,group=sample,error=abs:0.03,incarnation=7"
            : k == 1 ? "delta:form=step,group=sample,error=abs:3e-2,rounding=dither,incarnation=7"
                     : "direct:form=step,group=sample,error=abs:0.03,incarnation=7",
            N, T, C, DW_F32);
        for (int visit = 0; visit < 3; visit++) {
            double most = 0;
            for (int i = 0; i < N * SIZE; i++)
                x[i] = (visit && k < 2 ? x[i] : 0) + 3 * (float)(2 * test_uniform(&random) - 1);
            test_pair_pass(&pair, keys, &tx, &ty);
            for (int i = 0; i < N * SIZE; i++)
                if (fabs((double)x[i] - y[i]) > most) most = fabs((double)x[i] - y[i]);
            assert_true(most <= 0.03 && most > 0.97 * 0.03);
        }
        assert_int_equal(test_encoder_counters(pair.encoder).resyncs, 0);
        test_pair_close(&pair);
    }
}

/* A sample that has changed too much for codes to keep to the bound is sent as floats, in an entry
 * of role sync, which the counter `resyncs` counts. */
TEST(values_too_far_for_a_bound_are_sent_as_floats)
{
    float x[2 * 64], y[2 * 64];
    size_t expected;
    test_pair pair;
    dw_entry_info entries[2];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 2, 1, 64), ty = tx;
    ty.data = y;
    test_pair_open(&pair, "delta:form=step,group=sample,error=abs:0.01", 2, 1, 64, DW_F32);
    for (int visit = 0; visit < 5; visit++) {
        for (int i = 0; i < 128; i++) x[i] = (float)i / 64 + 0.001f * (float)visit;
        /* This is a change of nearly 200 steps of 0.02; the next visit changes it back. */
        if (visit == 2) x[70] = 5;
        assert_int_equal(dw_decoder_expect(pair.decoder, keys, &tx, &expected), DW_OK);
        test_pair_encode(&pair, keys, &tx);
        assert_true(pair.len <= expected && expected <= pair.cap);
        assert_int_equal(dw_frame_entries(pair.frame, pair.len, 0, 2, entries), DW_OK);
        assert_int_equal(entries[0].role, visit ? DW_ROLE_DELTA : DW_ROLE_KEY);
        assert_int_equal(entries[1].role, visit == 0                 ? DW_ROLE_KEY
                                          : visit == 2 || visit == 3 ? DW_ROLE_SYNC
                                                                     : DW_ROLE_DELTA);
        assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
        test_pair_take_reply(&pair);
        for (int i = 0; i < 128; i++) assert_true(fabsf(x[i] - y[i]) <= 0.01f);
        for (int i = 0; i < 2; i++) test_pair_in_step(&pair, keys[i]);
    }
    assert_int_equal(test_encoder_counters(pair.encoder).resyncs, 2);
    assert_int_equal(test_decoder_counters(pair.decoder).resyncs, 2);
    test_pair_close(&pair);
}

/* The decoder expects a change, but the encoder has forgotten the key and sends x itself, in f32,
 * which is longer than prev in bf16. The frame is not longer than the decoder expects. */
TEST(frames_of_forgotten_keys_are_not_longer_than_expected)
{
    float x[64] = {1, 2, 3}, y[64];
    size_t expected;
    test_pair pair;
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, 64), ty = dw_tensor_3d(y, DW_F32, 1, 1, 64);
    dw_encode_options options = {.struct_size = sizeof options};
    test_pair_open(&pair, "delta:form=step,group=sample,key=f32,prev=bf16,error=abs:0.5", 1, 1, 64,
                   DW_F32);
    test_pair_pass(&pair, keys, &tx, &ty);
    assert_int_equal(dw_decoder_expect(pair.decoder, keys, &tx, &expected), DW_OK);
    assert_int_equal(dw_encoder_forget(pair.encoder, keys[0]), DW_OK);
    options.limit = expected;
    test_pair_encode_with(&pair, keys, &tx, &options);
    assert_true(pair.len <= expected);
    assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
    for (int i = 0; i < 64; i++) assert_true(fabsf(x[i] - y[i]) <= 0.5f);
    test_pair_close(&pair);
}

/* With the option `limit`, key entries may be sent as short as changes. Such short entries might
 * not keep to the bound, so with error=abs the call fails instead: BUFFER_TOO_SMALL, and nothing
 * has changed. */
TEST(an_error_limit_makes_no_short_entries)
{
    float x[64] = {1, 2, 3};
    test_pair pair;
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, 64), prev;
    dw_encode_options options = {.struct_size = sizeof options, .limit = 80 + 64 + 48 + 200};
    test_pair_open(&pair, "delta:form=step,group=sample,key=f32,error=abs:0.01", 1, 1, 64, DW_F32);
    assert_int_equal(dw_encode(pair.encoder, keys, &tx, &options, pair.frame, pair.cap, &pair.len),
                     DW_ERR_BUFFER_TOO_SMALL);
    assert_int_equal(dw_encoder_peek(pair.encoder, keys[0], &prev), DW_ERR_ARGUMENT);
    test_pair_encode(&pair, keys, &tx);
    test_pair_close(&pair);
}

RUN_TESTS(NULL, NULL)
