/* SPDX-License-Identifier: Apache-2.0
 * test_published.c - compares the codecs cocktail and chunk, with feedback, with the rules of their
 * papers: how large residuals become, and the loss of a training, in a hundredth of the bytes. */
#include "../../study/published.h"

#include "support/tool.h"

static const dw_key key = {3, 1};

/* ---- Residuals ------------------------------------------------------------------------------- */

enum { N = 1 << 16, VISITS = 100 };

/* Gradients whose sizes differ by channel, with a part that stays from visit to visit. */
static void gradient_of(test_random *random, const float *sizes, float *x)
{
    for (int i = 0; i < N; i++)
        x[i] = 0.3f * sizes[i] + sizes[(i * 7 + 1) % N] * test_normal(random);
}

static double norm_of(const float *values)
{
    double square = 0;
    for (int i = 0; i < N; i++) square += (double)values[i] * values[i];
    return sqrt(square);
}

enum rule { COCKTAIL, SPARSELOCO };

static double residual_of_rule(enum rule rule, const float *sizes)
{
    static float x[N], sent[N], error[N];
    test_random random = {9};
    published_random places = {11};
    double sum = 0;
    memset(error, 0, sizeof error);
    for (int visit = 0; visit < VISITS; visit++) {
        gradient_of(&random, sizes, x);
        if (rule == COCKTAIL)
            published_cocktail(&places, x, error, sent, N);
        else
            published_sparseloco(1, x, error, sent, N);
        if (visit >= VISITS / 2) sum += norm_of(error) / norm_of(x);
    }
    return sum / (VISITS - VISITS / 2);
}

/* Also checks that frames, with all that is in them, are a hundredth of the gradients. */
static double residual_of_codec(const char *config, const float *sizes)
{
    static float x[N];
    test_random random = {9};
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, N), held;
    double sum = 0;
    test_pair pair;
    test_pair_open(&pair, config, 1, 1, N, DW_F32);
    for (int visit = 0; visit < VISITS; visit++) {
        gradient_of(&random, sizes, x);
        test_pair_encode(&pair, &key, &tx);
        assert_true(pair.len * 100 <= sizeof x);
        assert_int_equal(dw_encoder_peek(pair.encoder, key, &held), DW_OK);
        if (visit >= VISITS / 2) sum += norm_of(held.data) / norm_of(x);
    }
    test_pair_close(&pair);
    return sum / (VISITS - VISITS / 2);
}

/* The same gradients leave residuals of the same norm, within two parts in a hundred, or smaller
 * ones, in a hundredth of the bytes. */
static void residuals_are_not_above_those_of_the_papers(void **state)
{
    static const char *const configs[] = {"cocktail:feedback=ef,incarnation=7",
                                          "chunk:feedback=ef,incarnation=7"};
    static float sizes[N];
    test_random random = {5};
    (void)state;
    for (int i = 0; i < N; i++)
        sizes[i] =
            test_normal(&random) * (1 + fabsf(test_normal(&random))) * (float)(1 + i / 64 % 7);
    for (int i = 0; i < 2; i++) {
        double ours = residual_of_codec(configs[i], sizes);
        double theirs = residual_of_rule(i ? SPARSELOCO : COCKTAIL, sizes);
        print_message("%s: residual %.3f of a gradient's norm, the paper's rule %.3f\n", configs[i],
                      ours, theirs);
        if (!(ours < 1.02 * theirs)) fail_msg("%s: %g, but %g", configs[i], ours, theirs);
    }
}

/* ---- A training ------------------------------------------------------------------------------ */

/* A net of two layers learns what another such net computes, from the mean of the gradients that
 * two workers send. */
enum { IN = 64, HIDDEN = 128, OUT = 32, WEIGHTS = IN * HIDDEN + HIDDEN * OUT };
enum { BATCH = 32, STEPS = 1000, WORKERS = 2, SEEDS = 1 };

typedef struct net {
    float first[HIDDEN][IN], second[OUT][HIDDEN];
} net;

static void draw(net *of, uint64_t seed)
{
    test_random random = {seed};
    test_fill(&random, of->first, DW_F32, (size_t)HIDDEN * IN, 0.125f);
    test_fill(&random, of->second, DW_F32, (size_t)OUT * HIDDEN, 0.09f);
}

static void forward(const net *of, const float *in, float *hidden, float *out)
{
    for (int j = 0; j < HIDDEN; j++) {
        float sum = 0;
        for (int i = 0; i < IN; i++) sum += of->first[j][i] * in[i];
        hidden[j] = sum > 0 ? sum : 0.01f * sum;
    }
    for (int k = 0; k < OUT; k++) {
        out[k] = 0;
        for (int j = 0; j < HIDDEN; j++) out[k] += of->second[k][j] * hidden[j];
    }
}

/* Returns the loss of a batch, and adds its gradient. */
static double learn(const net *of, const net *teacher, test_random *random, net *gradient)
{
    double loss = 0;
    for (int b = 0; b < BATCH; b++) {
        float in[IN], hidden[HIDDEN], out[OUT], wanted[OUT], back[HIDDEN] = {0};
        for (int i = 0; i < IN; i++) in[i] = test_normal(random) * (i < 8 ? 2.0f : 0.5f);
        forward(teacher, in, hidden, wanted);
        forward(of, in, hidden, out);
        for (int k = 0; k < OUT; k++) {
            float d = (out[k] - wanted[k]) / BATCH;
            loss += 0.5 * (double)d * d * BATCH;
            for (int j = 0; j < HIDDEN; j++) {
                gradient->second[k][j] += d * hidden[j];
                back[j] += d * of->second[k][j];
            }
        }
        for (int j = 0; j < HIDDEN; j++)
            for (int i = 0; i < IN; i++)
                gradient->first[j][i] += back[j] * (hidden[j] > 0 ? 1.0f : 0.01f) * in[i];
    }
    return loss;
}

/* Sends a gradient by the rule of a paper, or by a codec if it is not NULL. */
static void send(enum rule rule, test_pair *pair, published_random *places, net *gradient,
                 float *error)
{
    static net arrived;
    float *from = &gradient->first[0][0], *to = &arrived.first[0][0];
    dw_tensor x = dw_tensor_3d(from, DW_F32, 1, 1, WEIGHTS), y = x;
    y.data = to;
    if (pair) {
        test_pair_encode(pair, &key, &x);
        assert_true(pair->len * 100 <= sizeof *gradient);
        assert_int_equal(test_pair_decode(pair, &y), DW_OK);
    } else if (rule == COCKTAIL) {
        published_cocktail(places, from, error, to, WEIGHTS);
    } else {
        published_sparseloco(1, from, error, to, WEIGHTS);
    }
    *gradient = arrived;
}

static double loss_of(enum rule rule, const char *config, uint64_t seed)
{
    static net of, teacher, gradient;
    static float error[WORKERS][WEIGHTS];
    test_pair pairs[WORKERS];
    test_random data = {100 + seed}, check = {55};
    published_random places = {7 + seed};
    double loss = 0;
    draw(&teacher, 1);
    draw(&of, 200 + seed);
    memset(error, 0, sizeof error);
    for (int w = 0; config && w < WORKERS; w++) {
        char text[100];
        snprintf(text, sizeof text, "%s,incarnation=%d", config, (int)seed * WORKERS + w + 1);
        test_pair_open(&pairs[w], text, 1, 1, WEIGHTS, DW_F32);
    }
    for (int step = 0; step < STEPS; step++) {
        net before = of;
        for (int w = 0; w < WORKERS; w++) {
            const float *g = &gradient.first[0][0];
            memset(&gradient, 0, sizeof gradient);
            (void)learn(&before, &teacher, &data, &gradient);
            send(rule, config ? &pairs[w] : NULL, &places, &gradient, error[w]);
            for (int i = 0; i < WEIGHTS; i++) (&of.first[0][0])[i] -= 0.15f / WORKERS * g[i];
        }
    }
    for (int i = 0; i < 20; i++) loss += learn(&of, &teacher, &check, &gradient) / 20;
    for (int w = 0; config && w < WORKERS; w++) test_pair_close(&pairs[w]);
    return loss;
}

/* The loss is not higher than that of the paper's rule, within a hundredth of it: as much as it
 * differs between seeds. */
static void losses_are_not_above_those_of_the_papers(void **state)
{
    static const char *const configs[] = {"cocktail:feedback=ef", "chunk:feedback=ef"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        double ours = 0, theirs = 0;
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            ours += loss_of(i ? SPARSELOCO : COCKTAIL, configs[i], seed) / SEEDS;
            theirs += loss_of(i ? SPARSELOCO : COCKTAIL, NULL, seed) / SEEDS;
        }
        print_message("%s: loss %.4f, the paper's rule %.4f\n", configs[i], ours, theirs);
        if (!(ours < 1.01 * theirs)) fail_msg("%s: %g, but %g", configs[i], ours, theirs);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(residuals_are_not_above_those_of_the_papers),
        cmocka_unit_test(losses_are_not_above_those_of_the_papers),
    };
    return cmocka_run_group_tests_name("published", tests, NULL, NULL);
}
