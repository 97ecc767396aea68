/* SPDX-License-Identifier: Apache-2.0
 * test_feedback.c - tests the option feedback: an encoder adds what it did not send of a key's
 * tensor to the next one. tests/fuzz compares the residuals of all codecs with its ledger. */
#include "residuals.h"
#include "wire/reply.h"

static uint32_t share; /* one case in so many is run */

/* One value of 1e30, or many so that a sparse codec cannot send all of them at once, and gradients
 * of ordinary size ever after: within so many visits the value has been sent, or was counted. */
static void expect_drained(const char *codec, int every)
{
    enum { MOST = 500 };
    static float x[N * SIZE], y[N * SIZE];
    char text[160];
    test_pair pair;
    test_random random = {3};
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C), ty = dw_tensor_3d(y, DW_F32, N, T, C), held;
    float largest = 1;
    double sum = 0;
    snprintf(text, sizeof text, "%s,incarnation=77,feedback=ef", codec);
    test_pair_open(&pair, text, N, T, C, DW_F32);
    for (int visit = 0; visit == 0 || (largest > 1e4f && visit < MOST); visit++) {
        fill_kind(&random, x, 0, visit);
        for (int i = 17; visit == 0 && i < N * SIZE; i += every) x[i] = 1e30f;
        test_pair_pass(&pair, keys, &tx, &ty);
        sum += (double)y[17];
        largest = 0;
        for (int n = 0; n < N; n++) {
            assert_int_equal(dw_encoder_peek(pair.encoder, keys[n], &held), DW_OK);
            for (int i = 0; i < SIZE; i++)
                largest = fmaxf(largest, fabsf(((const float *)held.data)[i]));
        }
    }
    dw_counters c = test_encoder_counters(pair.encoder);
    if (!(largest < 1e4f))
        fail_msg("%s: after %d visits a residual is still %g", codec, MOST, (double)largest);
    if (!(fabs(sum - 1e30) < 1e28) && c.overflowed_values + c.poisoned_groups == 0)
        fail_msg("%s: %g arrived of 1e30, and nothing was counted", codec, sum);
    test_pair_close(&pair);
}

TEST(huge_values_do_not_stay_in_residuals)
{
    static const char *const narrow[] = {"raw:f16", "randk:keep=0.05,dtype=f16",
                                         "topk:keep=0.005,dtype=f16", "lowrank:rank=2,dtype=f16"};
    for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++) {
        expect_drained(narrow[i], N * SIZE);
        expect_drained(narrow[i], 47);
    }
    for (size_t codec = 0; codec < CODECS; codec++)
        if (codec % share == 0) expect_drained(residual_codecs[codec], N * SIZE);
}

/* Residuals that add up past the largest number of the dtype are counted, too. */
TEST(sums_that_overflow_are_counted)
{
    static const char *const codecs[] = {"randk:keep=0.25,dtype=f16,feedback=ef",
                                         "raw:f16,feedback=ef"};
    static float x[N * SIZE];
    for (int k = 0; k < 2; k++) {
        test_pair pair;
        dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C);
        for (int i = 0; i < N * SIZE; i++) x[i] = 65519; /* becomes 65504 */
        test_pair_open(&pair, codecs[k], N, T, C, DW_F32);
        test_pair_encode(&pair, keys, &tx);
        assert_int_equal(test_encoder_counters(pair.encoder).overflowed_values, 0);
        test_pair_encode(&pair, keys, &tx);
        uint64_t overflowed = test_encoder_counters(pair.encoder).overflowed_values;
        if (k == 0)
            assert_in_range(overflowed, N * SIZE / 8, N * SIZE / 4 + N);
        else
            assert_int_equal(overflowed, N * SIZE);
        test_pair_close(&pair);
    }
}

/* ---- Keys ------------------------------------------------------------------------------------ */

/* A pair with feedback, and tensors for it. */
typedef struct fixture {
    test_pair pair;
    test_random random;
    dw_tensor x, y;
    float x_room[N * SIZE], y_room[N * SIZE];
    reference r;
} fixture;

static fixture f;

static void begin(const char *config)
{
    memset(&f, 0, sizeof f);
    f.random.state = 5;
    f.x = dw_tensor_3d(f.x_room, DW_F32, N, T, C);
    f.y = dw_tensor_3d(f.r.y, DW_F32, N, T, C);
    test_pair_open(&f.pair, config, N, T, C, DW_F32);
}

/* Makes a frame of new gradients, decodes it to f.r.y, and keeps the reference. */
static void visit(void)
{
    fill_kind(&f.random, f.x_room, 0, 0);
    test_pair_pass(&f.pair, keys, &f.x, &f.y);
    keep_rest(&f.r, &f.x);
    expect_held(f.pair.encoder, &f.r, "visit");
}

static dw_status encode_with(const dw_key *with_keys, const dw_tensor *x,
                             const dw_encode_options *options)
{
    return dw_encode(f.pair.encoder, with_keys, x, options, f.pair.frame, f.pair.cap, &f.pair.len);
}

TEST(stateless_frames_leave_residuals_alone)
{
    static float back[N * SIZE];
    dw_tensor again = dw_tensor_3d(back, DW_F32, N, T, C);
    dw_encode_options options = {.struct_size = sizeof options, .stateless = 1};
    begin("direct:bits=3,feedback=ef");
    visit();
    assert_int_equal(encode_with(NULL, &f.x, &options), DW_OK);
    assert_int_equal(encode_with(keys, &f.x, &options), DW_OK);
    expect_held(f.pair.encoder, &f.r, "stateless");
    options = (dw_encode_options){.struct_size = sizeof options, .reconstruction = &again};
    assert_int_equal(encode_with(keys, &f.x, &options), DW_OK);
    assert_int_equal(test_pair_decode(&f.pair, &f.y), DW_OK);
    assert_memory_equal(back, f.r.y, sizeof back);
    keep_rest(&f.r, &f.x);
    expect_held(f.pair.encoder, &f.r, "reconstruction");
    /* Errors change nothing. */
    size_t len = f.pair.len;
    assert_int_equal(encode_with(NULL, &f.x, NULL), DW_ERR_ARGUMENT);
    assert_non_null(strstr(dw_encoder_why(f.pair.encoder), "feedback"));
    assert_int_equal(
        dw_encode(f.pair.encoder, keys, &f.x, NULL, f.pair.frame, len - 1, &f.pair.len),
        DW_ERR_BUFFER_TOO_SMALL);
    assert_int_equal(dw_encoder_resync(f.pair.encoder, keys, N, f.pair.frame, f.pair.cap, &len),
                     DW_ERR_ARGUMENT);
    expect_held(f.pair.encoder, &f.r, "errors");
    visit();
    test_pair_close(&f.pair);
}

TEST(keys_are_forgotten_with_their_residuals)
{
    dw_tensor held;
    begin("direct:bits=3,feedback=ef");
    visit();
    uint64_t full = test_encoder_counters(f.pair.encoder).state_bytes;
    assert_int_equal(dw_encoder_forget(f.pair.encoder, keys[1]), DW_OK);
    assert_true(test_encoder_counters(f.pair.encoder).state_bytes + SIZE * 4 <= full);
    assert_int_equal(dw_encoder_peek(f.pair.encoder, keys[1], &held), DW_ERR_ARGUMENT);
    memset(f.r.held + SIZE, 0, SIZE * sizeof(float));
    visit();
    dw_frame_info info = {.struct_size = sizeof info};
    assert_int_equal(dw_frame_read(f.pair.frame, f.pair.len, &info, NULL), DW_OK);
    assert_int_equal(info.n_forgotten, 0); /* the decoder has nothing to forget */
    assert_int_equal(dw_encoder_reset(f.pair.encoder), DW_OK);
    assert_int_equal(dw_encoder_peek(f.pair.encoder, keys[0], &held), DW_ERR_ARGUMENT);
    memset(f.r.held, 0, sizeof f.r.held);
    visit();
    test_pair_close(&f.pair);
}

TEST(another_shape_starts_without_a_residual)
{
    static reference other;
    begin("direct:bits=3,feedback=ef");
    visit();
    dw_tensor turned = dw_tensor_3d(f.x_room, DW_F32, N, 1, SIZE),
              y = dw_tensor_3d(other.y, DW_F32, N, 1, SIZE);
    test_pair_pass(&f.pair, keys, &turned, &y);
    memset(other.held, 0, sizeof other.held);
    for (int i = 0; i < N * SIZE; i++) other.held[i] = other.y[i] - f.x_room[i];
    expect_held(f.pair.encoder, &other, "another shape");
    test_pair_close(&f.pair);
}

/* What does not fit the quota is sent without feedback, and nothing is held of it. */
TEST(the_quota_counts_residuals)
{
    char text[160];
    dw_tensor held;
    snprintf(text, sizeof text, "direct:bits=3,feedback=ef,quota_bytes=%d", SIZE * 4 + 100);
    begin(text);
    fill_kind(&f.random, f.x_room, 0, 0);
    for (int i = 0; i < 3; i++) test_pair_encode(&f.pair, keys, &f.x);
    assert_int_equal(dw_encoder_peek(f.pair.encoder, keys[0], &held), DW_OK);
    assert_int_equal(dw_encoder_peek(f.pair.encoder, keys[1], &held), DW_ERR_ARGUMENT);
    assert_int_equal(dw_encoder_give_back(f.pair.encoder, f.pair.frame, f.pair.len, NULL),
                     DW_ERR_ARGUMENT);
    assert_int_equal(dw_encoder_forget(f.pair.encoder, keys[0]), DW_OK);
    dw_tensor last = dw_tensor_3d(f.x_room + SIZE, DW_F32, 1, T, C);
    assert_int_equal(encode_with(keys + 1, &last, NULL), DW_OK); /* a forgotten key makes room */
    assert_int_equal(dw_encoder_peek(f.pair.encoder, keys[1], &held), DW_OK);
    test_pair_close(&f.pair);
}

/* ---- feedback=lazy --------------------------------------------------------------------------- */

/* The residual of a place goes to the sample that has the place in the next frame, and to no other
 * slice. f.r.held is that of place 0 in slice 0, and of place 1 in slice 1. */
TEST(places_have_residuals_of_their_own)
{
    static float other[N * SIZE];
    const dw_key first = {0, 0}, last = {1, 1};
    dw_tensor held;
    begin("direct:bits=3,feedback=lazy");
    for (uint64_t i = 0; i < 4; i++) {
        const dw_key frame[N] = {{100 + i, 0}, {200 - 5 * i, 1}},
                     turned[N] = {{100 + i, 1}, {200 - 5 * i, 0}};
        fill_kind(&f.random, f.x_room, 0, 0);
        assert_int_equal(encode_with(frame, &f.x, NULL), DW_OK);
        assert_int_equal(test_pair_decode(&f.pair, &f.y), DW_OK);
        keep_rest(&f.r, &f.x);
        for (int n = 0; n < N; n++) {
            assert_int_equal(dw_encoder_peek(f.pair.encoder, n ? last : first, &held), DW_OK);
            assert_memory_equal(held.data, f.r.held + n * SIZE, SIZE * sizeof(float));
            assert_int_equal(dw_encoder_peek(f.pair.encoder, frame[n], &held), DW_ERR_ARGUMENT);
        }
        /* A frame of the other slices at these places changes none of this. */
        fill_kind(&f.random, other, 0, 0);
        dw_tensor x = dw_tensor_3d(other, DW_F32, N, T, C);
        assert_int_equal(encode_with(turned, &x, NULL), DW_OK);
    }
    assert_int_equal(test_encoder_counters(f.pair.encoder).keys_held, 4);
    test_pair_close(&f.pair);
}

/* The residuals of places are given back, saved and forgotten as those of keys are. */
TEST(residuals_of_places_are_kept_like_others)
{
    dw_encoder *again;
    dw_tensor held;
    uint8_t saved[96 + 4 * SIZE];
    size_t len;
    const dw_key frame[N] = {{77, 0}, {78, 0}}, next[N] = {{78, 0}, {79, 0}}, second = {1, 0};
    begin("direct:bits=3,feedback=lazy,incarnation=5");
    fill_kind(&f.random, f.x_room, 0, 0);
    assert_int_equal(encode_with(frame, &f.x, NULL), DW_OK);
    assert_int_equal(encode_with(next, &f.x, NULL), DW_OK);
    assert_int_equal(test_pair_decode(&f.pair, &f.y), DW_OK);
    assert_int_equal(dw_encoder_peek(f.pair.encoder, second, &held), DW_OK);
    memcpy(f.r.held, held.data, SIZE * sizeof(float));
    assert_int_equal(dw_encoder_give_back(f.pair.encoder, f.pair.frame, f.pair.len, NULL), DW_OK);
    assert_int_equal(dw_encoder_peek(f.pair.encoder, second, &held), DW_OK);
    for (int i = 0; i < SIZE; i++)
        assert_true(((const float *)held.data)[i] == f.r.held[i] - f.r.y[SIZE + i]);
    assert_int_equal(test_export_encoder(f.pair.encoder, second, saved, sizeof saved, &len), DW_OK);
    assert_int_equal(dw_encoder_create(&again, &f.pair.config, NULL, NULL), DW_OK);
    assert_int_equal(dw_encoder_import(again, saved, len), DW_OK);
    assert_int_equal(dw_encoder_peek(again, second, &held), DW_OK);
    assert_int_equal(dw_encoder_forget(again, second), DW_OK);
    assert_int_equal(dw_encoder_peek(again, second, &held), DW_ERR_ARGUMENT);
    dw_encoder_destroy(again);
    test_pair_close(&f.pair);
}

/* ---- Saved residuals ------------------------------------------------------------------------- */

TEST(saved_residuals_continue)
{
    dw_encoder *other, *delta;
    unsigned char *frame = malloc(1 << 20);
    size_t len;
    begin("direct:form=step,group=sample,step=2,rounding=dither,feedback=ef");
    visit();
    visit();
    assert_int_equal(dw_encoder_create(&other, &f.pair.config, NULL, NULL), DW_OK);
    assert_int_equal(dw_encoder_export(f.pair.encoder, NULL, test_import_encoder, other), DW_OK);
    expect_held(other, &f.r, "imported");
    visit();
    assert_int_equal(dw_encode(other, keys, &f.x, NULL, frame, 1 << 20, &len), DW_OK);
    assert_int_equal(len, f.pair.len);
    assert_memory_equal(frame, f.pair.frame, len);
    expect_held(other, &f.r, "continued");
    /* Neither end of a codec with prev takes a residual, nor the other way round. */
    delta = test_encoder("delta:prev=f32");
    assert_int_equal(dw_encoder_export(other, NULL, test_import_encoder, delta), DW_ERR_MISMATCH);
    assert_non_null(strstr(dw_encoder_why(delta), "an encoder with feedback"));
    assert_int_equal(dw_encode(delta, keys, &f.x, NULL, frame, 1 << 20, &len), DW_OK);
    assert_int_equal(dw_encoder_export(delta, NULL, test_import_encoder, other), DW_ERR_MISMATCH);
    assert_non_null(strstr(dw_encoder_why(other), "an encoder without feedback"));
    dw_encoder_destroy(delta);
    dw_encoder_destroy(other);
    free(frame);
    test_pair_close(&f.pair);
}

/* An answer that no decoder gives to such frames begins a new incarnation. Then the numbers of the
 * frames that can be given back begin anew, too. */
TEST(frames_are_given_back_after_a_restore_under_a_new_incarnation)
{
    dw_frame_info info = {.struct_size = sizeof info};
    dw_encoder *other;
    begin("direct:bits=4,feedback=ef");
    for (int i = 0; i < 3; i++) visit();
    assert_int_equal(dw_encoder_give_back(f.pair.encoder, f.pair.frame, f.pair.len, NULL), DW_OK);
    assert_int_equal(dw_frame_read(f.pair.frame, f.pair.len, &info, NULL), DW_OK);
    dw_reply_finalize(f.pair.reply,
                      &(dw_reply_info){.replaced = 1, .incarnation = info.incarnation});
    f.pair.reply_len = dw_reply_bound(0);
    test_pair_take_reply(&f.pair);
    assert_int_equal(dw_encoder_create(&other, &f.pair.config, NULL, NULL), DW_OK);
    assert_int_equal(dw_encoder_export(f.pair.encoder, NULL, test_import_encoder, other), DW_OK);
    assert_int_equal(dw_encode(other, keys, &f.x, NULL, f.pair.frame, f.pair.cap, &f.pair.len),
                     DW_OK);
    assert_int_equal(dw_encoder_give_back(other, f.pair.frame, f.pair.len, NULL), DW_OK);
    dw_encoder_destroy(other);
    test_pair_close(&f.pair);
}

/* ---- Frames that are given back -------------------------------------------------------------- */

static void expect_given(const void *frame, size_t len, dw_status status, const char *word)
{
    assert_int_equal(dw_encoder_give_back(f.pair.encoder, frame, len, NULL), status);
    if (status && !strstr(dw_encoder_why(f.pair.encoder), word))
        fail_msg("'%s' does not contain '%s'", dw_encoder_why(f.pair.encoder), word);
    expect_held(f.pair.encoder, &f.r, word);
}

/* Takes y off what the reference holds. */
static void reference_back(const float *y)
{
    for (int i = 0; i < N * SIZE; i++)
        if (isfinite(y[i])) f.r.held[i] -= y[i];
}

TEST(frames_are_given_back)
{
    static const char *const configs[] = {
        "direct:bits=4,feedback=ef",
        "direct:form=step,group=sample,step=2,rounding=dither,entropy=rans,feedback=ef",
        "direct:form=step,group=sample,step=0.7,rounding=trellis,entropy=rans,feedback=ef",
        "mx:element=e2m1,feedback=ef", "raw:bf16,feedback=ef"};
    enum { FRAMES = 3 };
    static float y[FRAMES][N * SIZE];
    for (size_t k = 0; k < sizeof configs / sizeof *configs; k++) {
        unsigned char *frames[FRAMES];
        size_t lens[FRAMES];
        begin(configs[k]);
        for (int i = 0; i < FRAMES; i++) {
            visit();
            frames[i] = malloc(f.pair.len);
            lens[i] = f.pair.len;
            memcpy(frames[i], f.pair.frame, f.pair.len);
            memcpy(y[i], f.r.y, sizeof y[i]);
        }
        frames[1][lens[1] - 1] ^= 0x40;
        expect_given(frames[1], lens[1], DW_ERR_CORRUPT, "");
        frames[1][lens[1] - 1] ^= 0x40;
        expect_given(frames[1], lens[1] - 1, DW_ERR_FORMAT, "");
        reference_back(y[1]);
        expect_given(frames[1], lens[1], DW_OK, "given back");
        expect_given(frames[1], lens[1], DW_ERR_ARGUMENT, "each once");
        expect_given(frames[0], lens[0], DW_ERR_ARGUMENT, "in the order");
        reference_back(y[2]);
        expect_given(frames[2], lens[2], DW_OK, "given back");
        visit();
        assert_int_equal(dw_encoder_reset(f.pair.encoder), DW_OK);
        memset(f.r.held, 0, sizeof f.r.held);
        visit();
        expect_given(frames[2], lens[2], DW_ERR_ARGUMENT, "reset");
        for (int i = 0; i < FRAMES; i++) free(frames[i]);
        test_pair_close(&f.pair);
    }
}

TEST(encoders_without_feedback_take_nothing_back)
{
    begin("direct:bits=4");
    test_pair_encode(&f.pair, keys, &f.x);
    assert_int_equal(dw_encoder_give_back(f.pair.encoder, f.pair.frame, f.pair.len, NULL),
                     DW_ERR_ARGUMENT);
    assert_non_null(strstr(dw_encoder_why(f.pair.encoder), "feedback=ef"));
    assert_int_equal(dw_encoder_give_back(f.pair.encoder, NULL, 1, NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_encoder_give_back(NULL, f.pair.frame, f.pair.len, NULL), DW_ERR_ARGUMENT);
    test_pair_close(&f.pair);
}

/* ---- Failed allocations ---------------------------------------------------------------------- */

/* Whatever allocation fails, the residual remains, and the call succeeds when it is repeated. */
TEST(failed_allocations_change_nothing)
{
    test_allocator allocator = {.fail_at = -1};
    begin("direct:bits=4,feedback=ef");
    test_pair_close(&f.pair);
    dw_config config;
    assert_int_equal(dw_config_parse(&config, "direct:bits=4,feedback=ef", NULL), DW_OK);
    dw_host host = {.struct_size = sizeof host, .allocator = test_allocator_hooks(&allocator)};
    for (int64_t fail_at = 0, failed = 1; failed; fail_at++) {
        dw_encoder *encoder;
        size_t len = 0;
        allocator.fail_at = -1;
        assert_int_equal(dw_encoder_create(&encoder, &config, &host, NULL), DW_OK);
        uint8_t *frame = malloc(1 << 20);
        memset(&f.r, 0, sizeof f.r);
        fill_kind(&f.random, f.x_room, 0, 0);
        allocator.calls = 0;
        allocator.fail_at = fail_at;
        dw_status status = dw_encode(encoder, keys, &f.x, NULL, frame, 1 << 20, &len), back = DW_OK;
        if (!status) back = dw_encoder_give_back(encoder, frame, len, NULL);
        failed = status || back;
        allocator.fail_at = -1;
        if (status) {
            assert_int_equal(status, DW_ERR_NO_MEMORY);
            dw_tensor held;
            assert_int_equal(dw_encoder_peek(encoder, keys[0], &held), DW_ERR_ARGUMENT);
            assert_int_equal(dw_encode(encoder, keys, &f.x, NULL, frame, 1 << 20, &len), DW_OK);
        }
        if (back) assert_int_equal(back, DW_ERR_NO_MEMORY);
        if (failed) assert_int_equal(dw_encoder_give_back(encoder, frame, len, NULL), DW_OK);
        free(frame);
        dw_encoder_destroy(encoder);
        assert_int_equal(allocator.out_blocks, 0);
    }
}

int main(int argc, char **argv)
{
    share = test_share(argc, argv);
    return test_run(NULL, NULL);
}
