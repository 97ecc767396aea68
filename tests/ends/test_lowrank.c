/* SPDX-License-Identifier: Apache-2.0
 * test_lowrank.c - tests the codec lowrank: how near y is to x; shapes that allow no such rank; and
 * with feedback the residual, and the matrix that the encoder keeps of each key.
 *
 * tests/fuzz checks that y is the product of the two matrices in the payload. The golden frames
 * have what an encoder sends after a restart, and of samples with NaN or infinity. */
#include <math.h>

#include "base/bytes.h"
#include "support/tool.h"

static const dw_key key = {3, 1};

enum { GAP = 3, MOST = 40000 };

/* A pair of ends, and a sample whose rows do not touch. */
typedef struct bench {
    test_pair pair;
    uint32_t t, c, stride;
    dw_tensor x, y;
    float *x_room, *y_room;
} bench;

static void open_bench(bench *b, const char *config, dw_dtype dtype, uint32_t t, uint32_t c)
{
    *b = (bench){.t = t, .c = c, .stride = c + GAP};
    b->x_room = calloc((size_t)t * b->stride, sizeof(float));
    b->y_room = calloc((size_t)t * b->stride, sizeof(float));
    assert_true(b->x_room && b->y_room);
    b->x = dw_tensor_3d(b->x_room, dtype, 1, t, c);
    b->x.stride_t = b->stride;
    b->x.stride_n = (int64_t)t * b->stride;
    b->y = b->x;
    b->y.data = b->y_room;
    test_pair_open(&b->pair, config, 1, t, c, dtype);
}

static void close_bench(bench *b)
{
    test_pair_close(&b->pair);
    free(b->x_room);
    free(b->y_room);
}

static size_t place(const bench *b, size_t i)
{
    return i / b->c * b->stride + i % b->c;
}

static float y_at(const bench *b, size_t i)
{
    return test_get(b->y.data, b->y.dtype, place(b, i));
}

/* Encodes and decodes x. What stands between the rows of y must stay. */
static void pass(bench *b)
{
    for (size_t i = 0; i < (size_t)b->t * b->stride; i++) test_set(b->y.data, b->y.dtype, i, 7);
    test_pair_encode(&b->pair, &key, &b->x);
    if (test_pair_decode(&b->pair, &b->y) != DW_OK)
        fail_msg("%u x %u: %s", b->t, b->c, dw_decoder_why(b->pair.decoder));
    for (size_t i = 0; i < (size_t)b->t * b->stride; i++)
        if (i % b->stride >= b->c && test_get(b->y.data, b->y.dtype, i) != 7)
            fail_msg("%u x %u: value %zu, between two rows, was written", b->t, b->c, i);
}

static size_t up16(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

/* ---- Matrices of every kind ------------------------------------------------------------------ */

/* Fills x with a matrix of rank `rank`, and noise beside it, all of it times `size`. */
static void fill(bench *b, uint64_t seed, uint32_t rank, double noise, double size)
{
    test_random random = {seed};
    static float p[MOST], q[MOST];
    for (size_t i = 0; i < rank * (size_t)b->t; i++) p[i] = test_normal(&random);
    for (size_t i = 0; i < rank * (size_t)b->c; i++) q[i] = test_normal(&random);
    for (size_t i = 0; i < (size_t)b->t * b->c; i++) {
        double sum = noise * (double)test_normal(&random);
        for (size_t k = 0; k < rank; k++)
            sum += (double)p[k * b->t + i / b->c] * (double)q[k * b->c + i % b->c];
        test_set(b->x.data, b->x.dtype, place(b, i), (float)(sum * size));
    }
}

/* The norm of x - y as a part of the norm of x. */
static double error_of(const bench *b)
{
    double error = 0, whole = 0;
    for (size_t i = 0; i < (size_t)b->t * b->c; i++) {
        double x = (double)test_get(b->x.data, b->x.dtype, place(b, i)), y = (double)y_at(b, i);
        error += (x - y) * (x - y);
        whole += x * x;
    }
    return sqrt(error / whole);
}

/* Whatever the sizes are: a frame is never longer than a decoder takes it, and no longer than
 * dw_frame_bound says. */
TEST(frames_of_any_shape_fit_their_bound)
{
    static const char *const options[] = {"bits=8,group=256", "bits=8,group=row", "bits=8,group=16",
                                          "bits=5", "dtype=f32"};
    static const uint32_t widths[] = {1, 3, 6, 17, 33, 2000};
    for (size_t k = 0; k < 5; k++)
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
            for (uint32_t n = 1; n < 5000; n += n < 1300 ? n / 7 + 1 : 2701) {
                char text[100];
                bench b;
                snprintf(text, sizeof text, "lowrank:rank=1024,width=%u,%s", widths[w], options[k]);
                open_bench(&b, text, DW_F32, 1, n);
                for (uint32_t i = 0; i < n; i++) b.x_room[i] = (float)(i * i % 31);
                pass(&b);
                if (error_of(&b) > 0.3) fail_msg("%s: %u: %g", text, n, error_of(&b));
                close_bench(&b);
            }
}

static void expect_error_of(const char *config, double size, uint32_t rank, double noise,
                            double least_error, double most_error)
{
    bench b;
    open_bench(&b, config, DW_F32, 60, 200);
    fill(&b, 11, rank, noise, size);
    pass(&b);
    double error = error_of(&b);
    if (error < least_error || error > most_error)
        fail_msg("%s: the error of a matrix of rank %u is %g", config, rank, error);
    close_bench(&b);
}

static void expect_error(const char *config, uint32_t rank, double noise, double least_error,
                         double most_error)
{
    expect_error_of(config, 1, rank, noise, least_error, most_error);
}

/* A matrix of a rank that is sent arrives, but for rounding; of a larger one, nearly the best
 * approximation. */
TEST(matrices_of_low_rank_arrive)
{
    expect_error("lowrank:rank=4", 4, 0, 0, 2e-6);
    expect_error("lowrank:rank=4", 1, 0, 0, 2e-6);
    expect_error_of("lowrank:rank=4", 1e-27, 4, 0, 0, 2e-6);
    expect_error_of("lowrank:rank=4", 1e30, 4, 0, 0, 2e-6);
    expect_error("lowrank:rank=60", 60, 0, 0, 4e-6);
    expect_error("lowrank:rank=4,iterations=1", 4, 0, 0, 2e-6);
    expect_error("lowrank:rank=3,iterations=8", 4, 0, 0.3, 0.52);
    expect_error("lowrank:rank=4,dtype=bf16", 4, 0, 1e-4, 4e-3);
    expect_error("lowrank:rank=4,dtype=f16", 4, 0, 1e-5, 1e-3);
    expect_error("lowrank:rank=4,bits=8", 4, 0, 1e-4, 0.02);
    expect_error("lowrank:rank=4,bits=4", 4, 0, 1e-3, 0.25);
    expect_error("lowrank:rank=4,bits=4,group=16,rounding=stochastic", 4, 0, 1e-3, 0.184);
    /* Without the fit of q to the rounded p, these are 0.188 and 0.531. */
    expect_error("lowrank:rank=4,bits=2", 4, 0, 0.1, 0.524);
    expect_error("lowrank:rank=4,iterations=8", 4, 0.1, 0.02, 0.06);
}

/* Where a matrix has a lower rank than the config, the rows of both factors that it does not need
 * are zeros, and not rounding errors that were scaled up. */
TEST(lowrank_factors_beyond_the_rank_of_x_are_zero)
{
    bench b;
    size_t second = up16(4 * 6 * 60);
    open_bench(&b, "lowrank:rank=6", DW_F32, 60, 200);
    fill(&b, 3, 2, 0, 1);
    pass(&b);
    const uint8_t *payload = test_pair_payload(&b.pair, NULL);
    for (size_t k = 0; k < 6; k++)
        for (size_t i = 0; i < 60; i++) {
            bool is_zero = dw_get(payload + 4 * (k * 60 + i), 4) << 33 == 0;
            bool q_is_zero = dw_get(payload + second + 4 * (k * 200 + i), 4) << 33 == 0;
            assert_true(k < 2 || (is_zero && q_is_zero));
        }
    close_bench(&b);
}

/* ---- Shapes and configs ---------------------------------------------------------------------- */

TEST(ranks_that_a_sample_cannot_have_are_refused)
{
    static float x[400], y[400];
    static const struct {
        uint32_t t, c;
        const char *says;
    } wrong[] = {{3, 50, "can be 1 to 3"}, {50, 3, "can be 1 to 3"}, {1, 400, "can be 1 to 1"}};
    test_pair pair;
    test_pair_open(&pair, "lowrank:rank=4", 1, 20, 20, DW_F32);
    for (int i = 0; i < 3; i++) {
        dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, wrong[i].t, wrong[i].c);
        test_pair_refuses(&pair, &key, &tx, DW_ERR_SHAPE, "rank is 4");
        assert_non_null(strstr(dw_encoder_why(pair.encoder), wrong[i].says));
        assert_non_null(strstr(dw_encoder_why(pair.encoder), "or a width"));
        assert_int_equal(dw_frame_bound(&pair.config, &tx), 0);
    }
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 20, 20), ty = dw_tensor_3d(y, DW_F32, 1, 20, 20);
    test_pair_pass(&pair, &key, &tx, &ty);
    assert_int_equal(test_encoder_counters(pair.encoder).frames, 1);
    test_pair_close(&pair);
}

TEST(wrong_lowrank_configs_are_refused)
{
    static const test_wrong_config wrong[] = {
        {"lowrank:restart=3", "not allowed with the other options"},
        {"lowrank:group=64", "not allowed with the other options"},
        {"lowrank:bits=4,dtype=f16", "not allowed with the other options"},
        {"lowrank:bits=1,scale=absmax,feedback=ef", "none unstable"},
    };
    static const test_right_config right[] = {
        {"lowrank", "lowrank"},
        {"lowrank:rank=4,iterations=2", "lowrank"},
        {"lowrank:rank=1,iterations=1", "lowrank:rank=1,iterations=1"},
        {"lowrank:feedback=ef,iterations=1,restart=9", "lowrank:restart=9,feedback=ef"},
        {"lowrank:feedback=ef,iterations=2", "lowrank:iterations=2,feedback=ef"},
        {"lowrank:width=64,bits=8,group=64", "lowrank:width=64,bits=8"},
    };
    test_configs(wrong, sizeof wrong / sizeof *wrong, right, sizeof right / sizeof *right);
}

/* ---- Feedback: the residual ------------------------------------------------------------------ */

enum { T = 24, C = 70, SIZE = T * C, RANK = 3, KEPT = 4 * (RANK * C + 1) };

typedef struct fixture {
    test_pair pair;
    test_random random;
    float x[SIZE], y[SIZE], held[SIZE]; /* held: the residual, negated, as the encoder has it */
    dw_tensor tx, ty;
} fixture;

static void begin(fixture *f, const char *config)
{
    memset(f, 0, sizeof *f);
    f->random.state = 5;
    f->tx = dw_tensor_3d(f->x, DW_F32, 1, T, C);
    f->ty = dw_tensor_3d(f->y, DW_F32, 1, T, C);
    test_pair_open(&f->pair, config, 1, T, C, DW_F32);
}

static void end(fixture *f)
{
    test_pair_close(&f->pair);
}

/* A gradient: a part of rank 3 that stays, and noise. */
static void fill_gradient(fixture *f, float noise)
{
    float sides[T + C][3];
    test_random random = {1000};
    for (int i = 0; i < T + C; i++)
        for (int k = 0; k < 3; k++) sides[i][k] = test_normal(&random);
    for (int i = 0; i < SIZE; i++) {
        const float *row = sides[i / C], *column = sides[T + i % C];
        float stays = row[0] * column[0] + row[1] * column[1] / 2 + row[2] * column[2] / 4;
        f->x[i] = stays + noise * test_normal(&f->random);
    }
}

static const float *held_by(const dw_encoder *encoder, dw_key of)
{
    dw_tensor view;
    assert_int_equal(dw_encoder_peek(encoder, of, &view), DW_OK);
    assert_true(view.t == T && view.c == C && view.dtype == DW_F32);
    return view.data;
}

/* Encodes and decodes x, and requires that the residual is what was not sent. */
static void visit(fixture *f)
{
    test_pair_pass(&f->pair, &key, &f->tx, &f->ty);
    for (int i = 0; i < SIZE; i++) {
        volatile float sum = f->held[i] + f->y[i];
        if (isfinite(f->y[i])) f->held[i] = sum - f->x[i];
    }
    if (memcmp(held_by(f->pair.encoder, key), f->held, sizeof f->held) != 0)
        fail_msg("the residual is not what was not sent");
}

/* Rounding so coarse that sometimes zeros are sent. */
#define COARSE "lowrank:rank=1,bits=3,rounding=stochastic,group=256,width=420,feedback=ef"

static const char *const configs[] = {"lowrank:rank=3,feedback=ef,iterations=4,restart=2",
                                      "lowrank:rank=3,bits=1,group=16,feedback=ef", COARSE,
                                      "lowrank:rank=3,dtype=f16,width=41,feedback=ef"};
enum { CONFIGS = sizeof configs / sizeof *configs };

/* The error of a frame is never larger than what was coded, whatever x is. A sample that is not
 * finite changes neither the residual nor what is kept, and the next one is coded as if it had not
 * been there. */
TEST(the_residual_is_x_minus_y)
{
    static fixture f;
    for (int k = 0; k < CONFIGS; k++) {
        begin(&f, configs[k]);
        for (int i = 0; i < 12; i++) {
            float before[SIZE];
            memcpy(before, f.held, sizeof before);
            fill_gradient(&f, i % 3 ? 0.2f : 3.0f);
            /* Rounded at random and coarsely, many small values beside a large one lose more than
             * they are. */
            for (int at = 0; i >= 8 && at < SIZE; at++) f.x[at] = at % 210 == 9 ? 1200.0f : 100.0f;
            if (i % 4 == 2) f.x[i * 7] = i == 2 ? NAN : INFINITY;
            if (i == 5) memset(f.x, 0, sizeof f.x);
            double coded = 0;
            for (int at = 0; at < SIZE; at++) {
                double whole = (double)f.x[at] - (double)before[at];
                coded += whole * whole;
            }
            visit(&f);
            if (i % 4 == 2) {
                for (int at = 0; at < SIZE; at++) assert_true(isnan(f.y[at]));
                assert_memory_equal(before, f.held, sizeof before);
            } else if (test_norm(f.held, SIZE) > sqrt(coded) * (1 + 1e-6)) {
                fail_msg("%s: the error is %g of %g", configs[k], test_norm(f.held, SIZE),
                         sqrt(coded));
            }
        }
        assert_true(test_norm(f.held, SIZE) > 0);
        end(&f);
    }
}

/* ---- Feedback: the matrix that is kept ------------------------------------------------------- */

typedef struct saved {
    uint8_t bytes[96 + 4 * SIZE + KEPT + 8];
    size_t len;
} saved;

static void save(dw_encoder *encoder, saved *to)
{
    assert_int_equal(test_export_encoder(encoder, key, to->bytes, sizeof to->bytes, &to->len),
                     DW_OK);
}

/* q is saved behind the residual, and who imports it goes on with the same frames. Without it the
 * frames would be others. */
TEST(saved_state_contains_the_lowrank_matrix)
{
    static fixture f, again, without;
    static saved s;
    begin(&f, "lowrank:rank=3,feedback=ef,restart=4,incarnation=7");
    begin(&again, "lowrank:rank=3,feedback=ef,restart=4,incarnation=7");
    begin(&without, "lowrank:rank=2,feedback=ef,restart=4,incarnation=7");
    for (int i = 0; i < 3; i++) {
        fill_gradient(&f, 0.2f);
        visit(&f);
    }
    save(f.pair.encoder, &s);
    assert_int_equal(s.len, 96 + 4 * SIZE + KEPT);
    assert_int_equal(dw_get(s.bytes + 36, 4), RANK * C + 1);
    assert_int_equal(dw_get(s.bytes + s.len - 4, 4), 3); /* visits */
    assert_int_equal(dw_encoder_import(again.pair.encoder, s.bytes, s.len), DW_OK);
    /* What an encoder of another rank kept is of no use here, but its residual is. */
    assert_int_equal(dw_encoder_import(without.pair.encoder, s.bytes, s.len), DW_OK);
    memcpy(without.held, f.held, sizeof f.held);
    for (int i = 0; i < 6; i++) {
        fill_gradient(&f, 0.2f);
        memcpy(again.x, f.x, sizeof f.x);
        memcpy(without.x, f.x, sizeof f.x);
        visit(&f);
        visit(&without);
        test_pair_encode(&again.pair, &key, &again.tx);
        assert_int_equal(f.pair.len, again.pair.len);
        assert_memory_equal(f.pair.frame, again.pair.frame, f.pair.len);
    }
    assert_true(test_encoder_counters(f.pair.encoder).state_bytes >= 4 * SIZE + KEPT);
    save(without.pair.encoder, &s);
    assert_int_equal(s.len, 96 + 4 * SIZE + 4 * (2 * C + 1));
    assert_int_equal(dw_get(s.bytes + s.len - 4, 4), 6); /* its own visits */
    end(&f);
    end(&again);
    end(&without);
}

/* A row of zeros says nothing and would stay as it is, so it is drawn anew. The first gradient has
 * rank 1, so that the second row of q is zeros: it has to find what comes later. */
TEST(kept_rows_of_zeros_are_drawn_anew)
{
    static fixture f;
    begin(&f, "lowrank:rank=2,feedback=ef");
    for (int i = 0; i < 40; i++) {
        for (int at = 0; at < SIZE; at++) {
            bool low = at / C >= T / 2, right = at % C >= C / 2;
            f.x[at] = low == right && (!low || i > 0) ? 1.0f : 0.0f;
        }
        visit(&f);
    }
    assert_true(test_norm(f.held, SIZE) < 1);
    end(&f);
}

RUN_TESTS(NULL, NULL)
