/* SPDX-License-Identifier: Apache-2.0
 * test_lowrank_state.c - tests the codec lowrank with feedback: its residuals, bit for bit; the
 * matrix that it keeps of each key; and restarts. */
#include <math.h>

#include "base/bytes.h"
#include "support/tool.h"

enum { T = 24, C = 70, SIZE = T * C, RANK = 3, KEPT = 4 * (RANK * C + 1) };

static const dw_key key = {3, 1}, other_key = {4, 1};

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

/* A gradient: a part of rank 3 that stays, and noise. Another `number` makes another part. */
static void fill_other(fixture *f, float noise, int number)
{
    float sides[T + C][3];
    test_random random = {(uint64_t)number + 1000};
    for (int i = 0; i < T + C; i++)
        for (int k = 0; k < 3; k++) sides[i][k] = test_normal(&random);
    for (int i = 0; i < SIZE; i++) {
        const float *row = sides[i / C], *column = sides[T + i % C];
        float stays = row[0] * column[0] + row[1] * column[1] / 2 + row[2] * column[2] / 4;
        f->x[i] = stays + noise * test_normal(&f->random);
    }
}

static void fill(fixture *f, float noise)
{
    fill_other(f, noise, 0);
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

/* ---- Residuals ------------------------------------------------------------------------------- */

/* Rounding so coarse that sometimes zeros are sent. */
#define COARSE "lowrank:rank=1,bits=3,rounding=stochastic,group=256,width=420,feedback=ef"

static const char *const configs[] = {"lowrank:rank=3,feedback=ef",
                                      "lowrank:rank=3,feedback=ef,iterations=4,restart=2",
                                      "lowrank:rank=3,bits=4,feedback=ef",
                                      "lowrank:rank=3,bits=1,group=16,feedback=ef",
                                      "lowrank:rank=3,bits=6,rounding=stochastic,feedback=ef",
                                      COARSE,
                                      "lowrank:rank=3,dtype=f16,width=41,feedback=ef",
                                      "lowrank:rank=3,dtype=bf16,feedback=ef"};
enum { CONFIGS = sizeof configs / sizeof *configs };

/* The error of a frame is never larger than what was coded, whatever x is. A sample that is not
 * finite changes neither the residual nor what is kept, and the next one is coded as if it had not
 * been there. */
static void lowrank_residual_is_x_minus_decoded_y(void **state)
{
    static fixture f;
    for (int k = 0; k < CONFIGS; k++) {
        begin(&f, configs[k]);
        for (int i = 0; i < 12; i++) {
            float before[SIZE];
            memcpy(before, f.held, sizeof before);
            fill(&f, i % 3 ? 0.2f : 3.0f);
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

/* Whether two encoders would make the same frame of x. */
static bool makes_equal_frames(fixture *a, fixture *b)
{
    memcpy(b->x, a->x, sizeof a->x);
    test_pair_encode(&a->pair, &key, &a->tx);
    test_pair_encode(&b->pair, &key, &b->tx);
    dw_entry_info of_a, of_b;
    assert_int_equal(dw_frame_entries(a->pair.frame, a->pair.len, 0, 1, &of_a), DW_OK);
    assert_int_equal(dw_frame_entries(b->pair.frame, b->pair.len, 0, 1, &of_b), DW_OK);
    assert_int_equal(of_a.payload_bytes, of_b.payload_bytes);
    return memcmp(a->pair.frame + of_a.payload_offset, b->pair.frame + of_b.payload_offset,
                  (size_t)of_a.payload_bytes) == 0;
}

/* Neither a poisoned sample nor one of zeros changes what is kept. */
static void poisoned_samples_do_not_change_the_matrix(void **state)
{
    static fixture f, plain;
    for (int spoiled = 0; spoiled < 3; spoiled++) {
        begin(&f, "lowrank:rank=3,feedback=ef");
        begin(&plain, "lowrank:rank=3,feedback=ef");
        fill(&f, 0.2f);
        assert_true(makes_equal_frames(&f, &plain));
        memset(f.x, 0, sizeof f.x);
        if (spoiled == 0) f.x[5] = NAN;
        if (spoiled == 1) f.x[5] = INFINITY;
        /* x and the residual together are 0. */
        if (spoiled == 2) memcpy(f.x, held_by(f.pair.encoder, key), sizeof f.x);
        test_pair_encode(&f.pair, &key, &f.tx);
        if (spoiled == 2) {
            memcpy(plain.x, f.x, sizeof f.x);
            test_pair_encode(&plain.pair, &key, &plain.tx);
        }
        fill(&f, 0.2f);
        assert_true(makes_equal_frames(&f, &plain));
        end(&f);
        end(&plain);
    }
}

/* ---- What is kept ---------------------------------------------------------------------------- */

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
static void saved_state_contains_the_lowrank_matrix(void **state)
{
    static fixture f, again, without;
    static saved s;
    begin(&f, "lowrank:rank=3,feedback=ef,restart=4,incarnation=7");
    begin(&again, "lowrank:rank=3,feedback=ef,restart=4,incarnation=7");
    begin(&without, "lowrank:rank=2,feedback=ef,restart=4,incarnation=7");
    for (int i = 0; i < 3; i++) {
        fill(&f, 0.2f);
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
        fill(&f, 0.2f);
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

/* Saved states whose lengths do not fit are refused. */
static void damaged_states_are_refused(void **state)
{
    static fixture f;
    static saved s;
    begin(&f, "lowrank:rank=3,feedback=ef,incarnation=7");
    fill(&f, 0.2f);
    visit(&f);
    save(f.pair.encoder, &s);
    assert_int_equal(dw_encoder_import(f.pair.encoder, s.bytes, s.len - 4), DW_ERR_FORMAT);
    s.bytes[s.len - 1] ^= 1;
    assert_int_equal(dw_encoder_import(f.pair.encoder, s.bytes, s.len), DW_ERR_CORRUPT);
    s.bytes[s.len - 1] ^= 1;
    s.bytes[36] ^= 1;
    assert_int_equal(dw_encoder_import(f.pair.encoder, s.bytes, s.len), DW_ERR_CORRUPT);
    s.bytes[36] ^= 1;
    assert_int_equal(dw_encoder_import(f.pair.encoder, s.bytes, s.len), DW_OK);
    visit(&f);
    end(&f);
}

/* A frame that is given back leaves what is kept as it is. */
static void giving_back_keeps_the_matrix(void **state)
{
    static fixture f;
    static saved before, after;
    begin(&f, "lowrank:rank=3,feedback=ef,restart=100");
    for (int i = 0; i < 2; i++) {
        fill(&f, 0.2f);
        visit(&f);
    }
    save(f.pair.encoder, &before);
    assert_int_equal(dw_encoder_give_back(f.pair.encoder, f.pair.frame, f.pair.len, NULL), DW_OK);
    save(f.pair.encoder, &after);
    assert_int_equal(after.len, before.len);
    assert_memory_equal(before.bytes + 96 + 4 * SIZE, after.bytes + 96 + 4 * SIZE, KEPT);
    for (int i = 0; i < SIZE; i++) f.held[i] -= f.y[i];
    fill(&f, 0.2f);
    visit(&f);
    end(&f);
}

/* A key that was forgotten begins anew, and so does one of another shape. */
static void forgotten_keys_start_without_a_matrix(void **state)
{
    static fixture f, fresh;
    begin(&f, "lowrank:rank=3,feedback=ef");
    begin(&fresh, "lowrank:rank=3,feedback=ef");
    for (int i = 0; i < 3; i++) {
        fill(&f, 0.2f);
        visit(&f);
    }
    assert_int_equal(dw_encoder_forget(f.pair.encoder, key), DW_OK);
    fill(&f, 0.2f);
    assert_true(makes_equal_frames(&f, &fresh));
    dw_tensor turned = dw_tensor_3d(f.x, DW_F32, 1, C, T);
    test_pair_encode(&f.pair, &key, &turned);
    test_pair_encode(&f.pair, &key, &f.tx);
    end(&fresh);
    begin(&fresh, "lowrank:rank=3,feedback=ef");
    test_pair_encode(&f.pair, &key, &turned);
    fill(&f, 0.2f);
    assert_true(makes_equal_frames(&f, &fresh));
    end(&f);
    end(&fresh);
}

/* quota_bytes counts the residual and what is kept beside it. */
static void the_quota_counts_the_matrix(void **state)
{
    static fixture f;
    dw_tensor view;
    char text[100];
    for (int fits = 0; fits < 2; fits++) {
        snprintf(text, sizeof text, "lowrank:rank=3,feedback=ef,quota_bytes=%d",
                 2 * (4 * SIZE + KEPT) - !fits);
        begin(&f, text);
        fill(&f, 0.2f);
        for (int i = 0; i < 3; i++) {
            test_pair_encode(&f.pair, &key, &f.tx);
            test_pair_encode(&f.pair, &other_key, &f.tx);
        }
        assert_int_equal(dw_encoder_peek(f.pair.encoder, key, &view), DW_OK);
        assert_int_equal(dw_encoder_peek(f.pair.encoder, other_key, &view),
                         fits ? DW_OK : DW_ERR_ARGUMENT);
        end(&f);
    }
}

/* With what is kept, one iteration for each visit comes closer than one that begins anew. */
static void a_kept_matrix_lowers_the_error(void **state)
{
    static fixture f;
    double sums[2] = {0};
    for (int k = 0; k < 2; k++)
        for (int number = 0; number < 8; number++) {
            begin(&f, k ? "lowrank:rank=2,feedback=ef,restart=1" : "lowrank:rank=2,feedback=ef");
            for (int i = 0; i < 30; i++) {
                fill_other(&f, 0.3f, number);
                visit(&f);
                sums[k] += test_norm(f.held, SIZE);
            }
            end(&f);
        }
    if (sums[0] > sums[1] * 0.97) fail_msg("with what is kept %g, anew %g", sums[0], sums[1]);
}

/* ---- Restarts -------------------------------------------------------------------------------- */

/* The first gradient is 0 but for the upper left quarter, all others are 0 but for both quarters of
 * the diagonal. q of the first visit is 0 in the right half, and stays so for ever: with rank 1, M
 * times such a q is 0 in the lower half. PowerSGD+ (arXiv:2509.11254) draws it anew now and then.
 */
static double residual_of_blocks(const char *config, bool is_stuck, double *early)
{
    static fixture f;
    begin(&f, config);
    for (int i = 0; i < 400; i++) {
        for (int at = 0; at < SIZE; at++) {
            bool low = at / C >= T / 2, right = at % C >= C / 2;
            bool is_set = low == right && (!low || i > 0 || !is_stuck);
            f.x[at] = is_set ? 1.0f : 0.0f;
        }
        visit(&f);
        if (i == 100) *early = test_norm(f.held, SIZE);
    }
    double late = test_norm(f.held, SIZE);
    end(&f);
    return late;
}

static void restarts_help_where_the_iteration_is_stuck(void **state)
{
    double early, late;
    late = residual_of_blocks("lowrank:rank=1,feedback=ef", true, &early);
    assert_true(late > 3.9 * early && early > 100 * sqrt(SIZE / 4.0 - 100)); /* grows for ever */
    late = residual_of_blocks("lowrank:rank=1,feedback=ef,restart=10", true, &early);
    assert_true(late < 25 * sqrt(SIZE) && early < 25 * sqrt(SIZE));
    /* Where the first gradient is as all others are, nothing gets stuck. */
    late = residual_of_blocks("lowrank:rank=1,feedback=ef", false, &early);
    assert_true(late < 25 * sqrt(SIZE) && early < 25 * sqrt(SIZE));
    /* A row of zeros says nothing, so it is drawn: with rank 2 the second one finds the rest. */
    late = residual_of_blocks("lowrank:rank=2,feedback=ef", true, &early);
    assert_true(late < 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lowrank_residual_is_x_minus_decoded_y),
        cmocka_unit_test(poisoned_samples_do_not_change_the_matrix),
        cmocka_unit_test(saved_state_contains_the_lowrank_matrix),
        cmocka_unit_test(damaged_states_are_refused),
        cmocka_unit_test(giving_back_keeps_the_matrix),
        cmocka_unit_test(forgotten_keys_start_without_a_matrix),
        cmocka_unit_test(the_quota_counts_the_matrix),
        cmocka_unit_test(a_kept_matrix_lowers_the_error),
        cmocka_unit_test(restarts_help_where_the_iteration_is_stuck),
    };
    return cmocka_run_group_tests_name("lowrank_state", tests, NULL, NULL);
}
