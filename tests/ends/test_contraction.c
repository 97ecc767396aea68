/* SPDX-License-Identifier: Apache-2.0
 * test_contraction.c - tests that the error of every codec is as small a part of what is coded as
 * its form states, so that residuals are bounded; and that other codecs get no feedback. */
#include "codecs/contraction.h"
#include "residuals.h"

/* Returns the largest magnitude among n values. */
static double largest(const float *values, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) most = fmax(most, fabs((double)values[i]));
    return most;
}

/* The error is at most the part of what is coded that the form states: of its largest value or, for
 * a bound that holds on average, of its norm. With the largest part c that was measured, the
 * residual is at most c / (1 - c) times the largest gradient. */
static void check_bound(size_t codec, int kind)
{
    static float x[N * SIZE];
    static reference r;
    char text[160];
    test_pair pair;
    test_random random = {(uint64_t)kind + 1};
    dw_tensor view = dw_tensor_3d(x, DW_F32, N, T, C);
    double most = 0, measured = 0;
    memset(&r, 0, sizeof r);
    test_pair_open(&pair, text_of(codec, ",feedback=ef", text), N, T, C, DW_F32);
    dw_contraction contraction = dw_contraction_of(&pair.config);
    bool always = contraction.kind == DW_CONTRACTS_ALWAYS;
    assert_int_not_equal(contraction.kind, DW_CONTRACTS_NOT);
    double (*size)(const float *, size_t) = always ? largest : test_norm;
    for (int visit = 0; visit < 20; visit++) {
        fill_kind(&random, x, kind, visit);
        add_residual(&r, &view);
        test_pair_encode(&pair, keys, &view);
        for (int n = 0; n < N; n++) {
            dw_tensor held;
            most = fmax(most, size(x + n * SIZE, SIZE));
            assert_int_equal(dw_encoder_peek(pair.encoder, keys[n], &held), DW_OK);
            memcpy(r.held + n * SIZE, held.data, SIZE * sizeof *r.held);
            double error = size(held.data, SIZE), coded = size(r.coded + n * SIZE, SIZE);
            /* The mean of so many errors is within a tenth of what is expected. */
            double part = always ? contraction.part * (1 + 1e-6) : contraction.part * 1.1;
            if (error > part * coded)
                fail_msg("%s: the error is %g of %g, not %g of it", text, error, coded,
                         contraction.part);
            measured = fmax(measured, error / coded);
            if (error > measured / (1 - measured) * most * (1 + 1e-6))
                fail_msg("%s: the residual is %g after gradients of %g", text, error, most);
        }
    }
    test_pair_close(&pair);
}

TEST(residual_of_contracting_codecs_stays_bounded)
{
    for (size_t codec = 0; codec < CODECS; codec++)
        for (int kind = 0; kind < 4; kind++) check_bound(codec, kind);
}

TEST(codecs_that_do_not_contract_are_refused)
{
    static const char *const not [] = {
        "direct:bits=1,scale=absmax",
        "direct:bits=1,scale=signed",
        "direct:bits=1,rounding=stochastic",
        "direct:bits=2,rounding=stochastic",
        "direct:form=step,group=sample,step=2",
        "direct:form=step,group=sample,step=1.5,deadzone=0.7",
        "direct:form=step,group=sample,step=4,rounding=dither",
        "direct:form=step,group=sample,step=2,rounding=stochastic",
        "direct:form=step,group=sample,error=0.6",
        "direct:form=step,group=sample,step=1.3,rounding=trellis,entropy=rans",
        "direct:form=step,group=sample,error=0.97,rounding=dither",
    };
    dw_config config;
    dw_why why;
    char text[160];
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++) {
        snprintf(text, sizeof text, "%s,feedback=ef", not [i]);
        assert_int_equal(dw_config_parse(&config, text, &why), DW_ERR_CONFIG);
        assert_non_null(strstr(why.text, "feedback=ef"));
        assert_non_null(strstr(why.text, "none unstable"));
        assert_non_null(strstr(why.text, "smaller than what is coded"));
        snprintf(text, sizeof text, "%s,feedback=lazy", not [i]);
        assert_int_equal(dw_config_parse(&config, text, &why), DW_ERR_CONFIG);
        snprintf(text, sizeof text, "%s,feedback=unstable", not [i]);
        assert_int_equal(dw_config_parse(&config, text, &why), DW_OK);
        assert_int_equal(dw_config_parse(&config, not [i], &why), DW_OK);
    }
    static const char *const wrong[] = {
        "delta:feedback=ef", "direct:form=step,group=sample,error=abs:1,feedback=ef",
        "direct:form=step,group=sample,error=abs:1,feedback=unstable",
        "direct:bits=4,quota_bytes=9"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(dw_config_parse(&config, wrong[i], &why), DW_ERR_CONFIG);
}

/* A rate is reached with steps that contract, so a low rate is not reached. */
static void check_rate(const char *feedback)
{
    static float x[N * SIZE];
    char text[100];
    dw_tensor view = dw_tensor_3d(x, DW_F32, N, T, C), held;
    test_random random = {3};
    test_pair pair;
    snprintf(text, sizeof text, "direct:form=step,group=sample,rate=0.1,entropy=rans,feedback=%s",
             feedback);
    test_pair_open(&pair, text, N, T, C, DW_F32);
    for (int visit = 0; visit < 60; visit++) {
        fill_kind(&random, x, 0, visit);
        test_pair_encode(&pair, keys, &view);
    }
    /* With feedback=lazy the first sample has place 0. */
    dw_key first = {strcmp(feedback, "lazy") ? keys[0].sample : 0, keys[0].slice};
    assert_int_equal(dw_encoder_peek(pair.encoder, first, &held), DW_OK);
    assert_true(largest(held.data, SIZE) < 0.95 / 0.05 * 5);
    assert_true(pair.len * 8 > N * SIZE / 2);
    test_pair_close(&pair);
}

TEST(a_rate_keeps_to_steps_that_contract)
{
    check_rate("ef");
    check_rate("lazy");
}

RUN_TESTS(NULL, NULL)
