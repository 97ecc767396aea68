/* SPDX-License-Identifier: Apache-2.0
 * test_undo.c - frames that were not delivered, with decay=: the residuals of their keys become
 * what they were (dw_encoder_give_back with x), or contain what the frame carried (without x).
 *
 * The bits are those of a reference that computes with x and y alone. */
#include <fenv.h>

#include "residuals.h"

enum { GAP = 5, FRAME_BYTES = 1 << 20 };

/* An encoder, what it must hold, and a frame that it has made of x. */
typedef struct fixture {
    dw_encoder *encoder;
    const char *codec;
    test_random random;
    dw_tensor x;
    float room[N * T * (C + GAP)];
    reference r;
    uint8_t *frame;
    size_t len;
    int rounding; /* that of the caller, on which nothing may depend */
} fixture;

static fixture f;

static void begin(const char *codec, float decay, dw_dtype dtype)
{
    char text[160];
    memset(&f, 0, sizeof f);
    f.random.state = 11;
    f.r.decay = decay;
    f.codec = codec;
    f.rounding = FE_TONEAREST;
    f.x = dw_tensor_3d(f.room, dtype, N, T, C);
    f.x.stride_t = C + GAP;
    f.x.stride_n = T * f.x.stride_t;
    snprintf(text, sizeof text, decay > 0 ? "%s,feedback=ef,decay=%g" : "%s,feedback=ef", codec,
             (double)decay);
    f.encoder = test_encoder(text);
    f.frame = malloc(FRAME_BYTES);
}

static void end(void)
{
    free(f.frame);
    dw_encoder_destroy(f.encoder);
}

/* Decodes a frame to f.r.y. The decoder need not know of feedback. */
static void decode(const uint8_t *frame, size_t len)
{
    dw_decoder *decoder;
    dw_tensor y = dw_tensor_3d(f.r.y, DW_F32, N, T, C);
    decoder = test_decoder(f.codec);
    assert_int_equal(dw_decode(decoder, frame, len, &y, NULL, NULL, 0, NULL), DW_OK);
    dw_decoder_destroy(decoder);
}

/* Makes a frame of new gradients; every poisoned one has some values that are no numbers. */
static void visit(bool is_poisoned)
{
    for (size_t i = 0; i < N * SIZE; i++) {
        float value = test_normal(&f.random);
        if (is_poisoned && test_next(&f.random) % 501 == 0) value = i % C % 2 ? NAN : INFINITY;
        test_set(f.room, f.x.dtype, place_in(&f.x, i), value);
    }
    fesetround(f.rounding);
    assert_int_equal(dw_encode(f.encoder, keys, &f.x, NULL, f.frame, FRAME_BYTES, &f.len), DW_OK);
    fesetround(FE_TONEAREST);
    decode(f.frame, f.len);
    keep_rest(&f.r, &f.x);
    expect_held(f.encoder, &f.r, "visit");
}

static void expect(dw_status got, dw_status status, const char *word)
{
    assert_int_equal(got, status);
    if (status && !strstr(dw_encoder_why(f.encoder), word))
        fail_msg("'%s' does not contain '%s'", dw_encoder_why(f.encoder), word);
    expect_held(f.encoder, &f.r, word);
}

/* Computes what must be held after the last frame was undone. */
static void reference_undone(void)
{
    float decay = f.r.decay > 0 ? f.r.decay : 1;
    for (size_t i = 0; i < N * SIZE; i++) {
        float x = test_get(f.room, f.x.dtype, place_in(&f.x, i));
        volatile float after = f.r.held[i] / decay, less = after - f.r.y[i];
        volatile float before = less + x;
        f.r.held[i] = isfinite(before) ? before : after;
    }
}

static void check_undo(const char *codec, float decay, dw_dtype dtype)
{
    static float before[N * SIZE];
    begin(codec, decay, dtype);
    visit(false);
    visit(true);
    for (int i = 0; i < 3; i++) {
        memcpy(before, f.r.held, sizeof before);
        visit(i == 1);
        reference_undone();
        f.rounding = i == 2 ? FE_UPWARD : FE_TONEAREST;
        fesetround(f.rounding);
        assert_int_equal(dw_encoder_give_back(f.encoder, f.frame, f.len, &f.x), DW_OK);
        fesetround(FE_TONEAREST);
        expect_held(f.encoder, &f.r, codec);
        for (int k = 0; k < N * SIZE; k++)
            if (!(fabsf(f.r.held[k] - before[k]) < 1e-4f))
                fail_msg("%s: element %d was %g and is %g", codec, k, (double)before[k],
                         (double)f.r.held[k]);
        expect(dw_encoder_give_back(f.encoder, f.frame, f.len, &f.x), DW_ERR_ARGUMENT, "each once");
        visit(false);
    }
    end();
}

TEST(undo_restores_residuals)
{
    static const dw_dtype dtypes[] = {DW_F32, DW_F16, DW_BF16};
    static const char *const codecs[] = {
        "direct:bits=2",
        "direct:form=step,group=sample,rounding=dither,step=2,entropy=rans",
        "mx:element=e2m1",
        "chunk:chunk=128,keep=0.1",
        "cocktail:mask=0.3,keep=0.3,group=16",
        "topk:keep=0.1",
        "lowrank:rank=2",
        "direct:bits=4,group=channel",
        "blocks:block=64",
        "raw:bf16"};
    for (size_t k = 0; k < sizeof codecs / sizeof *codecs; k++) {
        check_undo(codecs[k], 0, dtypes[k % 3]);
        check_undo(codecs[k], 0.9f, dtypes[(k + 1) % 3]);
    }
}

TEST(only_the_last_frame_of_a_key_is_undone)
{
    begin("direct:bits=4", 0.9f, DW_F32);
    visit(false);
    uint8_t *old = malloc(FRAME_BYTES);
    size_t len = f.len;
    memcpy(old, f.frame, len);
    visit(false);
    expect(dw_encoder_give_back(f.encoder, old, len, &f.x), DW_ERR_ARGUMENT, "a later frame");
    dw_tensor other = f.x;
    other.c--;
    expect(dw_encoder_give_back(f.encoder, f.frame, f.len, &other), DW_ERR_SHAPE, "shape");
    other = f.x;
    other.n = 1;
    expect(dw_encoder_give_back(f.encoder, f.frame, f.len, &other), DW_ERR_SHAPE, "shape");
    other = f.x;
    other.dtype = (dw_dtype)9;
    expect(dw_encoder_give_back(f.encoder, f.frame, f.len, &other), DW_ERR_ARGUMENT,
           "valid tensor");
    expect(dw_encoder_give_back(f.encoder, NULL, f.len, &f.x), DW_ERR_ARGUMENT, "NULL");
    assert_int_equal(dw_encoder_give_back(NULL, f.frame, f.len, &f.x), DW_ERR_ARGUMENT);
    f.frame[f.len - 1] ^= 1;
    expect(dw_encoder_give_back(f.encoder, f.frame, f.len, &f.x), DW_ERR_CORRUPT, "");
    f.frame[f.len - 1] ^= 1;
    /* A frame that was given back can still not be undone. */
    decode(f.frame, f.len);
    for (int i = 0; i < N * SIZE; i++) {
        volatile float carried = 0.9f * f.r.y[i];
        f.r.held[i] -= carried;
    }
    expect(dw_encoder_give_back(f.encoder, f.frame, f.len, NULL), DW_OK, "");
    expect(dw_encoder_give_back(f.encoder, f.frame, f.len, &f.x), DW_ERR_ARGUMENT, "each once");
    free(old);
    end();
}

TEST(frames_of_keys_that_changed_since_are_not_given_back)
{
    begin("direct:bits=4", 0, DW_F32);
    for (int how = 0; how < 3; how++) {
        visit(false);
        uint8_t *old = malloc(f.len);
        size_t len = f.len, other_len;
        memcpy(old, f.frame, len);
        dw_tensor other = f.x;
        other.t -= how == 1;
        other.c -= how == 2;
        if (how)
            assert_int_equal(
                dw_encode(f.encoder, keys, &other, NULL, f.frame, FRAME_BYTES, &other_len), DW_OK);
        else
            assert_int_equal(dw_encoder_forget(f.encoder, keys[1]), DW_OK);
        assert_int_equal(dw_encoder_give_back(f.encoder, old, len, NULL), DW_ERR_ARGUMENT);
        assert_non_null(strstr(dw_encoder_why(f.encoder), "is gone"));
        memset(f.r.held, 0, sizeof f.r.held); /* residuals of another shape are replaced */
        assert_int_equal(dw_encoder_reset(f.encoder), DW_OK);
        free(old);
    }
    end();
}

TEST(decay_needs_feedback)
{
    dw_config config;
    dw_why why;
    char text[DW_CONFIG_TEXT_BYTES];
    assert_int_equal(dw_config_parse(&config, "chunk:decay=0.95", &why), DW_ERR_CONFIG);
    assert_int_equal(dw_config_parse(&config, "delta:decay=0.95", &why), DW_ERR_CONFIG);
    assert_int_equal(dw_config_parse(&config, "chunk:feedback=ef,decay=1.1", &why), DW_ERR_CONFIG);
    assert_non_null(strstr(why.text, "0.001"));
    assert_int_equal(dw_config_parse(&config, "chunk:feedback=ef,decay=0", &why), DW_ERR_CONFIG);
    assert_int_equal(dw_config_parse(&config, "chunk:feedback=ef,decay=1", &why), DW_OK);
    assert_int_equal(dw_config_format(&config, text, sizeof text), DW_OK);
    assert_string_equal(text, "chunk:feedback=ef");
    assert_int_equal(dw_config_parse(&config, "chunk:decay=0.95,feedback=lazy", &why), DW_OK);
    assert_int_equal(config.decay, 950);
    assert_int_equal(dw_config_format(&config, text, sizeof text), DW_OK);
    assert_string_equal(text, "chunk:feedback=lazy,decay=0.95");
}

RUN_TESTS(NULL, NULL)
