/* SPDX-License-Identifier: Apache-2.0
 * test_facts.c - what follows from a config, and options that are set one by one. */
#include "deltawire/profile.h"
#include "support/tool.h"

TEST(facts_follow_from_configs)
{
    static const struct {
        const char *text, *codec;
        dw_tier tier;
        int keeps_prev, keeps_residual, has_fixed_size, runs_on_device;
    } cases[] = {{"delta:form=step,entropy=rans", "delta", DW_TIER_STABLE, 1, 0, 0, 1},
                 {"delta", "delta", DW_TIER_STABLE, 1, 0, 0, 1},
                 {"direct:bits=4,feedback=ef", "direct", DW_TIER_STABLE, 0, 1, 1, 1},
                 {"direct:form=step,entropy=rans", "direct", DW_TIER_STABLE, 0, 0, 0, 1},
                 {"direct:form=step,error=abs:0.1", "direct", DW_TIER_STABLE, 0, 0, 0, 0},
                 {"direct:transform=none", "direct", DW_TIER_STABLE, 0, 0, 1, 1},
                 {"raw:bf16", "raw", DW_TIER_STABLE, 0, 0, 1, 1},
                 {"mx", "mx", DW_TIER_STABLE, 0, 0, 1, 1},
                 {"delta:skip=0.1", "delta", DW_TIER_COMPARISON, 1, 0, 0, 0},
                 {"direct:transform=hadamard", "direct", DW_TIER_COMPARISON, 0, 0, 1, 1},
                 {"topk", "topk", DW_TIER_COMPARISON, 0, 0, 0, 0},
                 {"randk", "randk", DW_TIER_COMPARISON, 0, 0, 1, 0},
                 {"cocktail", "cocktail", DW_TIER_COMPARISON, 0, 0, 0, 0},
                 {"chunk", "chunk", DW_TIER_COMPARISON, 0, 0, 0, 0},
                 {"lowrank", "lowrank", DW_TIER_COMPARISON, 0, 0, 1, 0},
                 {"tah", "tah", DW_TIER_COMPARISON, 0, 0, 1, 0},
                 {"blocks", "blocks", DW_TIER_COMPARISON, 0, 0, 1, 0}};
    dw_config config;
    dw_facts facts = {.struct_size = sizeof facts};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(dw_config_parse(&config, cases[i].text, NULL), DW_OK);
        assert_int_equal(dw_config_facts(&config, &facts), DW_OK);
        assert_string_equal(facts.codec, cases[i].codec);
        assert_int_equal(facts.tier, cases[i].tier);
        assert_int_equal(facts.keeps_prev, cases[i].keeps_prev);
        assert_int_equal(facts.keeps_residual, cases[i].keeps_residual);
        assert_int_equal(facts.has_fixed_size, cases[i].has_fixed_size);
        assert_int_equal(facts.runs_on_device, cases[i].runs_on_device);
    }
    config.bits = 99;
    assert_int_equal(dw_config_facts(&config, &facts), DW_ERR_CONFIG);
    assert_int_equal(dw_config_facts(NULL, &facts), DW_ERR_ARGUMENT);
    assert_int_equal(dw_config_facts(&config, NULL), DW_ERR_ARGUMENT);
}

TEST(an_option_can_be_set)
{
    static const struct {
        const char *from, *name, *value, *to;
    } cases[] = {{"delta:bits=2", "replies", "never", "delta:bits=2,replies=never"},
                 {"delta:replies=never", "replies", "always", "delta"},
                 {"delta:bits=2,seed=3", "bits", NULL, "delta:seed=3"},
                 {"direct:form=step", "group", "128", "direct:form=step,group=128"},
                 {"delta:form=step,error=0.1", "error", "abs:0.5", "delta:form=step,error=abs:0.5"},
                 {"delta:form=step,error=abs:0.5", "error", "0.1", "delta:form=step,error=0.1"},
                 {"delta:form=step,error=abs:0.5", "error", NULL, "delta:form=step"},
                 {"direct:form=step,profile=7", "profile", NULL, "direct:form=step"},
                 {"raw:f32", "dtype", "bf16", "raw:bf16"}};
    static const struct {
        const char *from, *name, *value, *says;
    } wrong[] = {{"delta", "colour", "red", "unknown option 'colour'"},
                 {"raw:f32", "bits", "4", "unknown option 'bits'"},
                 {"delta", "bits", "9", "bad value '9' of bits; allowed"},
                 {"delta", "replies", "", "bad value '' of replies; allowed: always never"},
                 {"delta:form=mx", "bits", "4", "bits has no meaning"},
                 {"delta:form=step,rounding=stochastic", "step", "5", "the config has step=5;"},
                 {"direct:form=step", "feedback", "lazy,", "bad value 'lazy,'"}};
    char text[DW_CONFIG_TEXT_BYTES];
    dw_config config, before;
    dw_why why;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(dw_config_parse(&config, cases[i].from, NULL), DW_OK);
        assert_int_equal(dw_config_set(&config, cases[i].name, cases[i].value, &why), DW_OK);
        assert_int_equal(dw_config_format(&config, text, sizeof text), DW_OK);
        assert_string_equal(text, cases[i].to);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(dw_config_parse(&config, wrong[i].from, NULL), DW_OK);
        before = config;
        assert_int_equal(dw_config_set(&config, wrong[i].name, wrong[i].value, &why),
                         DW_ERR_CONFIG);
        assert_non_null(strstr(why.text, wrong[i].says));
        assert_memory_equal(&config, &before, sizeof config);
    }
    const float weights[] = {0.5f, 1};
    const dw_tensor values = dw_tensor_3d((void *)(uintptr_t)weights, DW_F32, 1, 1, 2);
    dw_profile *profile;
    assert_int_equal(dw_profile_create(&profile, &values, NULL, &why), DW_OK);
    assert_int_equal(dw_config_parse(&config, "direct:form=step", NULL), DW_OK);
    config.profile = profile;
    snprintf(text, sizeof text, "%u", (unsigned)dw_profile_digest(profile));
    assert_int_equal(dw_config_set(&config, "profile", text, &why), DW_OK);
    assert_ptr_equal(config.profile, profile);
    assert_int_equal(dw_config_set(&config, "profile", NULL, &why), DW_OK);
    assert_null(config.profile);
    dw_profile_destroy(profile);
    assert_int_equal(dw_config_set(NULL, "bits", "4", NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_config_set(&config, NULL, "4", NULL), DW_ERR_ARGUMENT);
}

RUN_TESTS(NULL, NULL)
