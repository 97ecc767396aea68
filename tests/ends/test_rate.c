/* SPDX-License-Identifier: Apache-2.0
 * test_rate.c - tests the option rate, with which the encoder chooses its steps so that frames
 * take, on average, as many bits per element as the option says. */
#include <fenv.h>
#include <math.h>

#include "base/bytes.h"
#include "support/tool.h"
#include "wire/frame.h"

enum { N = 2, T = 25, C = 640, SIZE = N * T * C, FRAMES = 50 };
static const dw_key keys[N] = {{7, 0}, {9, 1}};

/* The distribution of random values: a normal one; Laplace's, which has more large and more small
 * values; or normal values of which nine tenths are replaced by 0. */
typedef enum source { NORMAL, LAPLACE, SPARSE } source;

/* Draws one value of a source. */
static float draw(test_random *random, source from)
{
    double u = test_uniform(random) - 0.5;
    if (from == SPARSE && test_uniform(random) < 0.9) return 0;
    if (from != LAPLACE) return test_normal(random);
    return (float)((u < 0 ? 1 : -1) * log(1 - 2 * fabs(u) + 1e-12));
}

/* Changes x to the samples of the next visit: they resemble those of the last one, and what is
 * added to them has another size at every visit. */
static void next_visit(float *x, test_random *random, source from)
{
    float size = (float)exp(test_normal(random));
    for (int i = 0; i < SIZE; i++) x[i] = 0.7f * x[i] + size * draw(random, from);
}

/* Returns how many bits per element the pair's last frame takes, headers included. */
static double bits_of(const test_pair *pair)
{
    return 8.0 * (double)pair->len / SIZE;
}

/* Sends so many frames from the pair's encoder to its decoder, each with the samples of another
 * visit. Returns the mean of their bits per element. */
static double mean_of(test_pair *pair, float *x, test_random *random, source from, int frames)
{
    static float y[SIZE];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C), ty = dw_tensor_3d(y, DW_F32, N, T, C);
    double sum = 0;
    for (int i = 0; i < frames; i++) {
        next_visit(x, random, from);
        test_pair_pass(pair, keys, &tx, &ty);
        sum += bits_of(pair);
    }
    return sum / frames;
}

/* The mean of 50 frames is within 1 % of the rate, as docs/codecs.md promises, from the first frame
 * on. */
TEST(frames_take_as_many_bits_as_the_rate_says)
{
    static const struct {
        const char *codec, *options;
        double rate;
        source from;
    } cases[] = {
        {"direct", "", 0.2, NORMAL},
        {"direct", "", 1.2, LAPLACE},
        {"direct", "", 6, NORMAL},
        {"direct", ",rounding=dither", 0.4, LAPLACE},
        {"direct", ",rounding=dither", 0.8, NORMAL},
        {"direct", ",rounding=stochastic", 1.5, LAPLACE},
        {"direct", ",group=row", 2, NORMAL},
        {"direct", "", 0.1, NORMAL},
        {"direct", ",rounding=dither", 0.25, NORMAL},
        {"direct", ",rounding=trellis", 0.4, NORMAL},
        {"direct", ",rounding=trellis", 2.5, LAPLACE},
        {"delta", ",rounding=trellis", 0.2, LAPLACE},
        {"delta", ",rounding=trellis", 1.2, NORMAL},
        {"delta", "", 0.3, LAPLACE},
        {"delta", "", 1.2, NORMAL},
        {"delta", ",rounding=dither", 1.4, NORMAL},
        {"delta", ",rounding=dither", 3.5, LAPLACE},
    };
    static float x[SIZE];
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        test_random random = {40 + k};
        test_pair pair;
        char config[128];
        snprintf(config, sizeof config, "%s:form=step%s,incarnation=7,entropy=rans,rate=%g%s",
                 cases[k].codec, strstr(cases[k].options, "group=") ? "" : ",group=sample",
                 cases[k].rate, cases[k].options);
        memset(x, 0, sizeof x);
        test_pair_open(&pair, config, N, T, C, DW_F32);
        double mean = mean_of(&pair, x, &random, cases[k].from, FRAMES);
        if (fabs(mean / cases[k].rate - 1) > 0.01)
            fail_msg("%s: frames take %g bits per element", config, mean);
        test_pair_close(&pair);
    }
}

/* The mean of 50 frames is within 1 % of the rate although the distribution of the values has
 * changed before them. It is so, too, after 200 frames of zeros, which cannot take as many bits as
 * the rate says: the encoder does not make up for all the bits that these frames have not used. */
TEST(rate_is_kept_when_the_values_change)
{
    static const char config[] = "direct:form=step,group=sample,entropy=rans,rate=1.5";
    static float x[SIZE];
    test_random random = {3};
    test_pair pair;
    test_pair_open(&pair, config, N, T, C, DW_F32);
    static const source sources[] = {NORMAL, SPARSE, LAPLACE, NORMAL};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        double mean = mean_of(&pair, x, &random, sources[i], FRAMES);
        if (fabs(mean / 1.5 - 1) > 0.01)
            fail_msg("source %zu: frames take %g bits per element, not 1.5", i, mean);
    }
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C);
    memset(x, 0, sizeof x);
    for (int i = 0; i < 200; i++) test_pair_encode(&pair, keys, &tx);
    (void)mean_of(&pair, x, &random, NORMAL, 20); /* the encoder finds the step again */
    double mean = mean_of(&pair, x, &random, NORMAL, FRAMES);
    if (fabs(mean / 1.5 - 1) > 0.01)
        fail_msg("after zeros: frames take %g bits per element, not 1.5", mean);
    test_pair_close(&pair);
}

/* The rate 0.05 would need steps that are larger than the option `step` allows for dithered
 * changes. The encoder keeps to that limit, so prev comes closer to the same x with every visit. */
TEST(a_rate_keeps_steps_within_limits)
{
    static float x[SIZE], y[SIZE];
    test_random random = {5};
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C), ty = dw_tensor_3d(y, DW_F32, N, T, C);
    test_pair pair;
    double first = 0, off = 0;
    test_pair_open(
        &pair, "delta:form=step,group=sample,entropy=rans,rate=0.05,rounding=dither,incarnation=7",
        N, T, C, DW_F32);
    next_visit(x, &random, NORMAL);
    for (int visit = 0; visit < 30; visit++, off = 0) {
        test_pair_pass(&pair, keys, &tx, &ty);
        for (int i = 0; i < SIZE; i++) off += pow((double)x[i] - y[i], 2);
        if (visit == 0) first = off;
        /* The largest step is 3, so each visit multiplies the squared error by 3^2 / 12 = 0.75. */
        if (visit == 29) assert_true(off < 0.01 * first);
    }
    test_pair_close(&pair);
}

/* The encoder learns from the lengths of the frames that it made. A call that fails for lack of
 * room changes nothing, and neither does the rounding mode of the calling thread: two encoders of
 * which one meets both make the same frames. */
TEST(failed_encodes_do_not_count_for_a_rate)
{
    static const char config[] =
        "delta:form=step,group=sample,entropy=rans,rate=1.1,skip=0.9,incarnation=7";
    static float x[SIZE];
    static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_TOWARDZERO, FE_DOWNWARD};
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C);
    test_random random = {6};
    test_pair one, other;
    size_t len;
    int skipped = 0;
    test_pair_open(&one, config, N, T, C, DW_F32);
    test_pair_open(&other, config, N, T, C, DW_F32);
    for (int i = 0; i < 24; i++) {
        /* Every third visit has the same x as the one before, and so both samples are skipped. */
        if (i % 3) next_visit(x, &random, LAPLACE);
        test_pair_encode(&one, keys, &tx);
        /* 300 bytes are enough only for a frame in which both samples are skipped. */
        dw_status status = dw_encode(other.encoder, keys, &tx, NULL, other.frame, 300, &len);
        assert_true(status == DW_OK || status == DW_ERR_BUFFER_TOO_SMALL);
        if (status == DW_OK) test_pair_encode(&one, keys, &tx);
        skipped += status == DW_OK;
        fesetround(modes[i % 4]);
        test_pair_encode(&other, keys, &tx);
        fesetround(FE_TONEAREST);
        assert_int_equal(one.len, other.len);
        assert_memory_equal(one.frame, other.frame, one.len);
    }
    assert_true(skipped > 0 && skipped < 23);
    test_pair_close(&one);
    test_pair_close(&other);
}

/* Sends x once, and keeps the payloads of the frame. to: room for pair->cap bytes. Returns how many
 * bytes the payloads have. */
static size_t payloads_of(test_pair *pair, const dw_tensor *tx, uint8_t *to)
{
    dw_entry_info entries[N];
    test_pair_encode(pair, keys, tx);
    assert_int_equal(dw_frame_entries(pair->frame, pair->len, 0, N, entries), DW_OK);
    size_t len = pair->len - entries[0].payload_offset;
    memcpy(to, pair->frame + entries[0].payload_offset, len);
    return len;
}

/* dw_encoder_reset makes the encoder forget what it has learned about the step: the next frame with
 * the same x has the same payloads as its first one. With nearest rounding no random numbers differ
 * between the two, so the bits are compared. */
TEST(a_reset_encoder_begins_anew)
{
    static float x[SIZE];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C);
    test_random random = {7};
    test_pair pair;
    test_pair_open(&pair, "direct:form=step,group=sample,entropy=rans,rate=0.7", N, T, C, DW_F32);
    uint8_t *first = malloc(pair.cap), *again = malloc(pair.cap);
    assert_true(first && again);
    next_visit(x, &random, LAPLACE);
    size_t len = payloads_of(&pair, &tx, first);
    for (int i = 0; i < 20; i++) test_pair_encode(&pair, keys, &tx);
    assert_int_not_equal(payloads_of(&pair, &tx, again), len); /* it has found another step */
    assert_int_equal(dw_encoder_reset(pair.encoder), DW_OK);
    assert_int_equal(payloads_of(&pair, &tx, again), len);
    assert_memory_equal(again, first, len);
    free(first);
    free(again);
    test_pair_close(&pair);
}

/* Makes an encoder that has the keys of another one, and encodes x with it. to: room for `cap`
 * bytes. Returns the bytes of the frame. */
static size_t taken_over(const char *config, dw_encoder *from, const dw_tensor *tx, uint8_t *to,
                         size_t cap)
{
    dw_encoder *encoder;
    uint8_t *saved = malloc(cap);
    size_t len;
    assert_non_null(saved);
    encoder = test_encoder(config);
    for (int i = 0; i < N; i++) {
        assert_int_equal(test_export_encoder(from, keys[i], saved, cap, &len), DW_OK);
        assert_int_equal(dw_encoder_import(encoder, saved, len), DW_OK);
    }
    assert_int_equal(dw_encode(encoder, keys, tx, NULL, to, cap, &len), DW_OK);
    dw_encoder_destroy(encoder);
    free(saved);
    return len;
}

/* What an encoder has learned about the step is not saved with its keys: an encoder that the keys
 * are imported to begins with the step of a new one. That is 2 for a rate of one bit, so its frame
 * has the same bytes as that of an encoder with step=2. */
TEST(an_encoder_with_saved_keys_begins_anew)
{
    static const char config[] = "delta:form=step,group=sample,entropy=rans,rate=1,incarnation=7";
    static float x[SIZE];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C);
    test_random random = {8};
    test_pair pair;
    test_pair_open(&pair, config, N, T, C, DW_F32);
    size_t cap = pair.cap + 4 * SIZE;
    uint8_t *frame = malloc(cap), *other = malloc(cap);
    assert_true(frame && other);
    (void)mean_of(&pair, x, &random, NORMAL, 20);
    next_visit(x, &random, NORMAL);
    size_t len = taken_over(config, pair.encoder, &tx, frame, cap);
    assert_int_equal(taken_over("delta:form=step,group=sample,entropy=rans,step=2,incarnation=7",
                                pair.encoder, &tx, other, cap),
                     len);
    assert_memory_equal(frame, other, len);
    test_pair_encode(&pair, keys, &tx);
    assert_int_not_equal(pair.len, len); /* the encoder that learned uses another step */
    free(frame);
    free(other);
    test_pair_close(&pair);
}

/* What an encoder keeps beside its keys goes on: its rate, and the numbers that it draws. */
TEST(a_saved_encoder_goes_on_without_keys)
{
    static const char *const configs[] = {
        "direct:form=step,group=sample,entropy=rans,rate=0.7",
        "delta:form=step,group=sample,entropy=rans,rate=0.7,rounding=dither,replies=never",
        "direct:bits=2,rounding=stochastic",
        "direct:form=step,rounding=dither",
        "randk:keep=0.3",
    };
    static float x[SIZE];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C);
    test_random random = {.state = 5};
    for (size_t k = 0; k < sizeof configs / sizeof *configs; k++) {
        test_pair one, other;
        test_pair_open(&one, configs[k], N, T, C, DW_F32);
        test_pair_open(&other, configs[k], N, T, C, DW_F32);
        assert_int_equal(dw_encoder_export(one.encoder, NULL, test_import_encoder, other.encoder),
                         DW_OK);
        for (uint32_t i = 0; i < 6; i++) {
            next_visit(x, &random, NORMAL);
            test_pair_encode(&one, keys, &tx);
            if (i == 2)
                assert_int_equal(
                    dw_encoder_export(one.encoder, NULL, test_import_encoder, other.encoder),
                    DW_OK);
            if (i < 3) continue;
            test_pair_encode(&other, keys, &tx);
            if (one.len != other.len || memcmp(one.frame, other.frame, one.len))
                fail_msg("%s: frame %u is another one", configs[k], i);
        }
        test_pair_close(&one);
        test_pair_close(&other);
    }
}

static dw_status keep_last(void *context, dw_key key, const void *saved, size_t len)
{
    assert_true(len <= 112 && key.slice == UINT32_MAX);
    memcpy(context, saved, len);
    return DW_OK;
}

TEST(a_rate_that_cannot_be_is_refused)
{
    test_pair pair, other;
    uint8_t saved[112], bad[112];
    static float x[SIZE] = {1, 2, 3};
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C);
    static const char config[] = "direct:form=step,group=sample,entropy=rans,rate=0.7";
    test_pair_open(&pair, config, N, T, C, DW_F32);
    test_pair_open(&other, config, N, T, C, DW_F32);
    test_pair_encode(&pair, keys, &tx);
    assert_int_equal(dw_encoder_export(pair.encoder, NULL, keep_last, saved), DW_OK);
    for (size_t at = 0; at < sizeof saved; at++) {
        memcpy(bad, saved, sizeof bad);
        bad[at] ^= 0x10;
        assert_true(dw_encoder_import(other.encoder, bad, sizeof bad) < 0);
    }
    memcpy(bad, saved, sizeof bad);
    bad[96 + 7] = 0xff; /* the step is negative, or no number */
    dw_put(bad + 80, dw_digest_bytes(bad + 96, 16), 8);
    dw_put(bad + 88, dw_digest_bytes(bad, 88), 8);
    assert_int_equal(dw_encoder_import(other.encoder, bad, sizeof bad), DW_ERR_FORMAT);
    assert_int_equal(dw_decoder_import(pair.decoder, saved, sizeof saved), DW_ERR_MISMATCH);
    assert_int_equal(dw_encoder_import(other.encoder, saved, sizeof saved), DW_OK);
    test_pair_close(&pair);
    test_pair_close(&other);
}

RUN_TESTS(NULL, NULL)
