/* SPDX-License-Identifier: Apache-2.0
 * test_config.c - config strings, config structs, and the errors for invalid ones. */
#include "support/tool.h"

/* Text that is already canonical comes back unchanged. */
TEST(config_texts_have_every_option)
{
    static const char *const texts[] = {
        "delta",
        "direct",
        "raw",
        "raw:f16",
        "raw:bf16,replies=never,incarnation=3",
        "delta:bits=2,group=row,scale=absmax,key=raw,prev=bf16,choose=never,replies=never,audit=7,"
        "quota_bytes=1000,incarnation=5",
        "direct:bits=6,group=128",
        "delta:key=bf16",
        "delta:key=3,audit=255",
        "delta:bits=1,scale=mse", /* the bits of key entries have their own default */
        "direct:bits=1,group=channel,rounding=stochastic,seed=18446744073709551615",
        "direct:scale=signed,rounding=stochastic",
        "mx",
        "mx:element=e2m1,incarnation=5",
        "delta:form=mx",
        "delta:form=mx,element=e4m3,key=e5m2,prev=bf16,choose=never",
        "delta:form=mx,key=f16",
        "direct:form=step",
        "direct:form=step,group=sample,step=0.07,rounding=dither,seed=3",
        "direct:form=step,step=100,rounding=stochastic",
        "delta:form=step",
        "delta:form=step,step=1.4",
        "delta:form=step,group=64,step=0.375,key_step=99.999,key=f16,audit=7",
        "delta:form=step,step=3,rounding=dither",
        "delta:form=step,step=1.8,rounding=stochastic,prev=bf16",
        "direct:form=step,error=0.1",
        "direct:form=step,error=abs:0.001",
        "delta:form=step,group=sample,rate=1.2,entropy=rans",
        "delta:form=step,step=1.2,deadzone=0.62",
        "direct:form=step,rate=1.2,deadzone=0.625,entropy=rans",
        "delta:form=step,step=0.7,rounding=trellis,entropy=rans",
        ("delta:form=step,group=sample,error=abs:999999.999999999999,rounding=stochastic,"
         "seed=18446744073709551615,key=raw,prev=bf16,entropy=rans,"
         "replies=never,audit=255,quota_bytes=18446744073709551615,incarnation="
         "18446744073709551615"),
        "delta:form=step,group=sample,error=0.000123456789,rounding=dither,key=f32",
        "delta:form=step,error=0.058,key_error=0.02,entropy=rans",
        "topk:element=e2m1,keep=0.02",
        "randk:element=e4m3,seed=9,scaling=unbiased",
        "cocktail:element=int8,mask=0.5,seed=3",
        "chunk:element=e2m1,feedback=ef",
        /* with all options of groups */
        ("delta:bits=8,group=channel,scale=signed,rounding=stochastic,seed=18446744073709551615,"
         "key=bf16,prev=bf16,choose=never,"
         "replies=never,audit=255,quota_bytes=18446744073709551615,incarnation="
         "18446744073709551615"),
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        dw_config config, again;
        char text[256];
        assert_int_equal(dw_config_parse(&config, texts[i], NULL), DW_OK);
        assert_int_equal(dw_config_format(&config, text, sizeof text), DW_OK);
        assert_string_equal(text, texts[i]);
        assert_int_equal(dw_config_parse(&again, text, NULL), DW_OK);
        assert_memory_equal(&config, &again, sizeof config);
    }
}

/* Texts with the same meaning have the same canonical text. */
TEST(defaults_are_left_out)
{
    static const struct {
        const char *text, *canonical, *agreement;
    } cases[] = {
        {"delta:bits=4", "delta", "delta"},
        {"delta:group=64,bits=4,key=8,choose=group,replies=always,audit=1,rounding=nearest",
         "delta", "delta"},
        {"delta:scale=signed", "delta", "delta"},
        {"delta:bits=1,scale=signed", "delta:bits=1,scale=signed", "delta:bits=1"},
        {"delta:bits=1,key=f32,scale=mse", "delta:bits=1,key=f32", "delta:bits=1,key=f32"},
        {"direct:bits=1,scale=mse", "direct:bits=1", "direct:bits=1"},
        {"direct:rounding=stochastic,scale=absmax", "direct:rounding=stochastic", "direct"},
        {"delta:seed=3,quota_bytes=5,incarnation=9,bits=2",
         "delta:bits=2,seed=3,quota_bytes=5,incarnation=9", "delta:bits=2,quota_bytes=5"},
        {"direct:replies=always,bits=6", "direct:bits=6", "direct:bits=6"},
        {"delta:form=quantized", "delta", "delta"},
        {"delta:key=int8,element=e2m1,form=mx", "delta:form=mx", "delta:form=mx"},
        {"mx:element=e4m3,replies=always", "mx", "mx"},
        {"direct:form=quantized", "direct", "direct"},
        {"delta:key=step,key_step=0.25,step=1,group=row,form=step", "delta:form=step",
         "delta:form=step"},
        {"delta:step=1.40,form=step,key_step=0.350,rounding=dither,seed=5",
         "delta:form=step,step=1.4,rounding=dither,seed=5", "delta:form=step,rounding=dither"},
        {"direct:form=step,rounding=stochastic,step=002.5",
         "direct:form=step,step=2.5,rounding=stochastic", "direct:form=step"},
        {"delta:form=step,step=0.07,key_step=0.07,rounding=nearest", "delta:form=step,step=0.07",
         "delta:form=step"},
        {"delta:form=step,step=0.25,key_step=1,group=16",
         "delta:form=step,group=16,step=0.25,key_step=1", "delta:form=step,group=16"},
        {"delta:form=step,error=1e-3", "delta:form=step,error=0.001", "delta:form=step"},
        {"delta:error=abs:1e-12,form=step", "delta:form=step,error=abs:0.000000000001",
         "delta:form=step,error=abs:0.000000000001"},
        {"direct:error=01.0e0,form=step", "direct:form=step,error=1", "direct:form=step"},
        {"direct:error=0.0123e1,form=step", "direct:form=step,error=0.123", "direct:form=step"},
        {"direct:error=1234567.8901e-8,form=step", "direct:form=step,error=0.012345678901",
         "direct:form=step"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dw_config config;
        char text[256];
        assert_int_equal(dw_config_parse(&config, cases[i].text, NULL), DW_OK);
        assert_int_equal(dw_config_format(&config, text, sizeof text), DW_OK);
        assert_string_equal(text, cases[i].canonical);
        assert_int_equal(dw_config_agreement(&config, text, sizeof text), DW_OK);
        assert_string_equal(text, cases[i].agreement);
    }
}

/* A program that was compiled with another version of the library passes a struct of another
 * size. */
TEST(structs_of_other_lengths_are_accepted)
{
    struct {
        dw_config config;
        uint64_t more;
    } longer;
    char text[64];
    dw_encoder *encoder;
    dw_why why;
    assert_int_equal(dw_config_parse_sized(&longer.config, sizeof longer, "direct:bits=3", NULL),
                     DW_OK);
    assert_int_equal(longer.config.struct_size, sizeof longer);
    assert_int_equal(longer.more, 0);
    assert_int_equal(dw_config_format(&longer.config, text, sizeof text), DW_OK);
    assert_string_equal(text, "direct:bits=3");
    longer.more = 1; /* a field that this version does not know */
    assert_int_equal(dw_encoder_create(&encoder, &longer.config, NULL, &why), DW_ERR_CONFIG);
    assert_null(encoder);
    assert_non_null(strstr(why.text, "version"));
    longer.config.struct_size = 0;
    assert_int_equal(dw_encoder_create(&encoder, &longer.config, NULL, &why), DW_ERR_CONFIG);
    assert_non_null(strstr(why.text, "struct_size"));
    assert_int_equal(dw_config_parse_sized(&longer.config, 8, "raw", NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_config_parse_sized(NULL, sizeof longer, "raw", NULL), DW_ERR_ARGUMENT);
}

/* Texts with a mistake, and the word and offset that the error names. */
static const struct {
    const char *text, *word;
    int offset;
} bad_texts[] = {
    {"dleta:bits=4", "'dleta'", 0},
    {"delta:bits=9", "'9'", 11},
    {"delta:bits=4,grup=64", "'grup'", 13},
    {"delta:bits=", "''", 11},
    {"raw:f64", "'f64'", 4},
    {"direct:key=8", "'key'", 7},
    {"delta:bits=4,", "''", 13},
    {"delta:quota_bytes=-1", "'-1'", 18},
    {"delta:audit=99999999999999999999", "'9999", 12},
    {"", "''", 0},
    {"delta:scale=SIGNED", "'SIGNED'", 12},
    {"delta:bits", "'bits'", 6},
    {"delta:bits=2,bits=8", "'bits=8'", 13},
    /* Each option is valid alone, but not together with the others. */
    {"delta:bits=2,form=mx", "'bits'", 6},
    {"delta:scale=mse,form=mx", "'scale'", 6},
    {"delta:element=e2m1", "'element'", 6},
    {"delta:key=8,form=mx", "'key=8'", 6},
    {"delta:bits=2,key=e4m3", "'key=e4m3'", 13},
    {"mx:bits=4", "'bits'", 3},
    {"mx:form=mx", "'form'", 3},
    {"direct:element=e4m3", "'element'", 7},
    {"delta:form=floats", "'floats'", 11},
    {"delta:form=step,step=0.069", "'0.069'", 21},
    {"delta:form=step,step=100.001", "'100.001'", 21},
    {"delta:form=step,step=0", "'0'", 21},
    {"delta:form=step,step=", "''", 21},
    {"delta:form=step,step=1.0625", "'1.0625'", 21},
    {"delta:form=step,step=1.", "'1.'", 21},
    {"delta:form=step,step=.5", "'.5'", 21},
    {"delta:form=step,step=1.5.5", "'1.5.5'", 21},
    {"delta:form=step,step=-1", "'-1'", 21},
    {"delta:form=step,step=1e1", "'1e1'", 21},
    {"delta:form=step,step=18446744073709551.626", "'18446744073709551.626'", 21},
    {"delta:form=step,step=18446744073709552", "'18446744073709552'", 21},
    {"delta:form=step,key_step=0.001", "'0.001'", 25},
    {"delta:error=0.1", "'error'", 6},
    {"delta:form=mx,error=0.1", "'error'", 14},
    {"delta:form=step,error=0.1,step=2", "'step'", 26},
    {"delta:form=step,key_step=1,error=0.1", "'key_step'", 16},
    {"delta:form=step,key_step=1,key_error=0.1", "'key_step'", 16},
    {"delta:form=step,key=f32,key_error=0.1", "'key_error=0.1'", 24},
    {"delta:form=step,error=abs:1,key_error=0.1", "'key_error=0.1'", 28},
    {"delta:bits=4,key_error=0.1", "'key_error'", 13},
    {"delta:form=step,error=0", "'0'", 22},
    {"delta:form=step,error=0.000099999999", "'0.000099999999'", 22},
    {"delta:form=step,error=1.000000000001", "'1.000000000001'", 22},
    {"delta:form=step,error=0.1000000000001", "'0.1000000000001'", 22},
    {"delta:form=step,error=1e", "'1e'", 22},
    {"delta:form=step,error=1e-", "'1e-'", 22},
    {"delta:form=step,error=e-1", "'e-1'", 22},
    {"delta:form=step,error=1e-13", "'1e-13'", 22},
    {"delta:form=step,error=0.01e-11", "'0.01e-11'", 22},
    {"delta:form=step,error=1e7", "'1e7'", 22},
    {"delta:form=step,error=1e99999999999999999999", "'1e99999999999999999999'", 22},
    {"delta:form=step,error=1e--1", "'1e--1'", 22},
    /* In units of the 20th decimal this number is 2^64 + 100000000004, so in 64 bits it would wrap
     * to a small one. */
    {"delta:form=step,error=0.1844674417370955162e8", "'0.1844674417370955162e8'", 22},
    {"delta:form=step,error=abs:", "'abs:'", 22},
    {"delta:form=step,error=abs:0", "'abs:0'", 22},
    {"delta:form=step,error=abs:1e6", "'abs:1e6'", 22},
    {"delta:form=step,error=abs:1,error=abs:1", "'error=abs:1'", 28},
    {"delta:form=step,error=0.1,error=abs:1", "'error=0.1'", 16},
    {"delta:form=step,error=abs:1,step=1", "'step'", 28},
    {"delta:form=step,error=abs:1,skip=0.1", "'skip=0.1'", 28},
    {"delta:form=step,error=abs:1,key=f16", "'key=f16'", 28},
    {"delta:form=step,error=abs:1,key=bf16", "'key=bf16'", 28},
    {"delta:error=abs:1", "'error'", 6},
    {"raw:abs:1", "'abs:1'", 4},
    {"delta:form=step,deadzone=0.499", "'0.499'", 25},
    {"delta:form=step,deadzone=1.001", "'1.001'", 25},
    {"delta:deadzone=0.6", "'deadzone'", 6},
    {"delta:form=step,deadzone=0.6,rounding=dither", "'deadzone=0.6'", 16},
    {"delta:form=step,deadzone=0.6,rounding=stochastic", "'deadzone=0.6'", 16},
    {"delta:form=step,deadzone=0.6,error=0.1", "'deadzone=0.6'", 16},
    {"delta:form=step,deadzone=0.6,error=abs:1", "'deadzone=0.6'", 16},
    {"delta:form=step,rounding=trellis", "'rounding=trellis'", 16},
    {"delta:rounding=trellis,entropy=rans", "'rounding=trellis'", 6},
    {"delta:form=step,entropy=rans,error=abs:1,rounding=trellis", "'rounding=trellis'", 41},
    {"delta:form=step,entropy=rans,deadzone=0.6,rounding=trellis", "'deadzone=0.6'", 29},
    {"delta:form=step,rate=1", "'rate=1'", 16},
    {"delta:form=step,rate=1,entropy=none", "'rate=1'", 16},
    {"delta:rate=1,entropy=rans", "'rate'", 6},
    {"delta:form=step,entropy=rans,rate=0.049", "'0.049'", 34},
    {"delta:form=step,entropy=rans,rate=8.001", "'8.001'", 34},
    {"delta:form=step,entropy=rans,rate=1,step=2", "'step'", 36},
    {"delta:form=step,entropy=rans,rate=1,key_step=2", "'key_step'", 36},
    {"delta:form=step,entropy=rans,rate=1,error=0.1", "'rate=1'", 29},
    {"delta:form=step,entropy=rans,rate=1,error=abs:1", "'rate=1'", 29},
    {"delta:form=step,entropy=rans,rate=1,key=f32", "'key=f32'", 36},
    {"direct:form=step,key_step=1", "'key_step'", 17},
    {"direct:form=step,key=step", "'key'", 17},
    {"direct:form=mx", "'form=mx'", 7},
    {"direct:step=2", "'step'", 7},
    {"delta:key_step=2", "'key_step'", 6},
    {"delta:form=mx,step=2", "'step'", 14},
    {"delta:bits=8,form=step", "'bits'", 6},
    {"delta:form=step,scale=mse", "'scale'", 16},
    {"delta:form=step,choose=never", "'choose'", 16},
    {"delta:form=step,element=e4m3", "'element'", 16},
    {"delta:form=step,group=channel", "'group=channel'", 16},
    {"delta:group=sample", "'group=sample'", 6},
    {"delta:form=mx,group=sample", "'group'", 14},
    {"delta:form=step,key=8", "'key=8'", 16},
    {"delta:form=step,key=e4m3", "'key=e4m3'", 16},
    {"delta:key=step", "'key=step'", 6},
    {"delta:form=mx,key=step", "'key=step'", 14},
    {"delta:rounding=dither", "'rounding=dither'", 6},
    {"direct:bits=8,rounding=dither", "'rounding=dither'", 14},
    {"delta:form=step,rounding=dither,step=3.001", "'step=3.001'", 32},
    {"delta:form=step,step=1.801,rounding=stochastic", "'step=1.801'", 16},
};

TEST(errors_give_the_offset_of_the_wrong_word)
{
    for (size_t i = 0; i < sizeof bad_texts / sizeof *bad_texts; i++) {
        dw_config config, before;
        dw_why why;
        memset(&config, 0x11, sizeof config);
        before = config;
        assert_int_equal(dw_config_parse(&config, bad_texts[i].text, &why), DW_ERR_CONFIG);
        if (!strstr(why.text, bad_texts[i].word) || why.offset != bad_texts[i].offset)
            fail_msg("%s: '%s' at %d", bad_texts[i].text, why.text, why.offset);
        assert_non_null(strstr(why.text, "allowed: "));
        assert_memory_equal(&config, &before, sizeof config);
    }
    assert_int_equal(dw_config_parse(NULL, "delta", NULL), DW_ERR_ARGUMENT);
}

/* The list of options names each once, also those that have two rows in the table. */
TEST(options_are_listed_once)
{
    dw_config config;
    dw_why why;
    assert_int_equal(dw_config_parse(&config, "delta:form=step,foo=1", &why), DW_ERR_CONFIG);
    const char *found = strstr(why.text, " error ");
    assert_non_null(found);
    assert_null(strstr(found + 1, " error"));
}

/* Where only a part of a range is allowed, the sentence has its end. */
TEST(errors_tell_the_allowed_values)
{
    static const struct {
        const char *text, *allowed;
    } bad[] = {
        {"delta:form=step,step=100.001", "numbers from 0.07 to 100 with up to three decimals"},
        {"delta:form=step,step=3.001,rounding=dither", "numbers from 0.07 to 3 with"},
        {"delta:form=step,step=50,rounding=stochastic", "numbers from 0.07 to 1.8 with"},
        {"delta:form=step,group=channel", "row sample"},
        {"delta:form=step,key=7", "raw f32 f16 bf16 step"},
        {"delta:form=step,error=2",
         "numbers from 0.0001 to 1, or abs: followed by a number from 0.0000"},
        {"delta:form=step,error=x",
         "numbers from 0.0001 to 1, or abs: followed by a number from 0.0000"},
        {"delta:form=step,rate=1", "only with entropy=rans"},
        {"delta:form=step,deadzone=0.6,rounding=dither", "only with rounding=nearest"},
        {"delta:form=step,rounding=trellis", "entropy=rans"},
        {"delta:form=step,error=abs:1,skip=0.1", "not with error=abs"},
        {"delta:form=step,error=abs:1000000",
         "abs: followed by a number from 0.000000000001 to 999999.999999999999"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        dw_config config;
        dw_why why;
        assert_int_equal(dw_config_parse(&config, bad[i].text, &why), DW_ERR_CONFIG);
        if (!strstr(why.text, bad[i].allowed)) fail_msg("%s: '%s'", bad[i].text, why.text);
    }
}

TEST(a_struct_out_of_range_is_refused)
{
    dw_encoder *encoder;
    dw_decoder *decoder;
    char text[64];
    const dw_config bad[] = {
        {.struct_size = 8},
        {.struct_size = sizeof(dw_config), .bits = 9},
        {.struct_size = sizeof(dw_config), .scale = (dw_scale)4},
        {.struct_size = sizeof(dw_config), .rounding = (dw_rounding)3},
        {.struct_size = sizeof(dw_config), .group = 48},
        {.struct_size = sizeof(dw_config), .codec = (dw_codec)99},
        {.struct_size = sizeof(dw_config), .key = 9},
        {.struct_size = sizeof(dw_config), .prev = 5},
        {.struct_size = sizeof(dw_config), .audit = 256},
        {.struct_size = sizeof(dw_config), .choose = (dw_choose)3},
        {.struct_size = sizeof(dw_config), .form = DW_FORM_FLOATS},
        {.struct_size = sizeof(dw_config), .form = DW_FORM_MX, .bits = 4},
        {.struct_size = sizeof(dw_config), .form = DW_FORM_MX, .key = 8},
        {.struct_size = sizeof(dw_config), .form = DW_FORM_MX, .key = DW_KEY_ELEMENT},
        {.struct_size = sizeof(dw_config), .element = DW_ELEMENT_E4M3},
        {.struct_size = sizeof(dw_config), .codec = DW_CODEC_MX, .element = (dw_element)7},
        {.struct_size = sizeof(dw_config), .key = DW_KEY_ELEMENT + DW_ELEMENT_E4M3},
        {.struct_size = sizeof(dw_config), .rounding = (dw_rounding)4},
        {.struct_size = sizeof(dw_config), .rounding = DW_ROUNDING_DITHER},
        {.struct_size = sizeof(dw_config), .step = 1000},
        {.struct_size = sizeof(dw_config), .error = 100000000000},
        {.struct_size = sizeof(dw_config), .form = DW_FORM_STEP, .error = 1},
        {.struct_size = sizeof(dw_config), .form = DW_FORM_STEP, .error = 100000000000, .step = 9},
        {.struct_size = sizeof(dw_config),
         .form = DW_FORM_STEP,
         .error = 100000000000,
         .step = 1000},
        {.struct_size = sizeof(dw_config), .group = DW_GROUP_SAMPLE},
        {.struct_size = sizeof(dw_config), .key = DW_KEY_STEP},
        {.struct_size = sizeof(dw_config), .form = (dw_form_name)5},
        {.struct_size = sizeof(dw_config), .codec = DW_CODEC_DIRECT, .form = DW_FORM_MX},
        {.struct_size = sizeof(dw_config), .form = DW_FORM_STEP, .step = 9},
        {.struct_size = sizeof(dw_config), .form = DW_FORM_STEP, .key_step = 100001},
        {.struct_size = sizeof(dw_config), .form = DW_FORM_STEP, .group = DW_GROUP_CHANNEL},
        {.struct_size = sizeof(dw_config), .form = DW_FORM_STEP, .key = 8},
        {.struct_size = sizeof(dw_config), .form = DW_FORM_STEP, .choose = DW_CHOOSE_NEVER},
        {.struct_size = sizeof(dw_config),
         .form = DW_FORM_STEP,
         .step = 3001,
         .rounding = DW_ROUNDING_DITHER},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(dw_encoder_create(&encoder, &bad[i], NULL, NULL), DW_ERR_CONFIG);
        assert_int_equal(dw_decoder_create(&decoder, &bad[i], NULL, NULL), DW_ERR_CONFIG);
        assert_int_equal(dw_config_format(&bad[i], text, sizeof text), DW_ERR_CONFIG);
    }
    assert_int_equal(dw_encoder_create(&encoder, NULL, NULL, NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_encoder_create(NULL, &bad[0], NULL, NULL), DW_ERR_ARGUMENT);
    dw_encoder_destroy(NULL);
    dw_decoder_destroy(NULL);
}

TEST(forms_have_names)
{
    assert_string_equal(dw_form_string(DW_FORM_FLOATS), "floats");
    assert_string_equal(dw_form_string(DW_FORM_QUANTIZED), "quantized");
    assert_string_equal(dw_form_string(DW_FORM_MX), "mx");
    assert_string_equal(dw_form_string(DW_FORM_STEP), "step");
    assert_string_equal(dw_form_string(DW_FORM_SPARSE), "sparse");
    assert_string_equal(dw_form_string(DW_FORM_LOWRANK), "lowrank");
    assert_string_equal(dw_form_string(DW_FORM_TAH), "tah");
    assert_string_equal(dw_form_string(DW_FORM_BLOCKS), "blocks");
    assert_string_equal(dw_form_string((dw_form_name)0), "none");
    assert_string_equal(dw_form_string((dw_form_name)77), "?");
}

/* With all options that there can be beside each other, each of them in the longest way. */
TEST(config_text_bytes_hold_the_longest_text)
{
    static const char *const longest =
        "delta:form=step,transform=hadamard,rotate=256,group=256,step=1.799,key_step=99.999,"
        "rounding=stochastic,seed=18446744073709551615,key=bf16,prev=bf16,entropy=rans,skip=0.999,"
        "replies=never,audit=254,quota_bytes=18446744073709551615,incarnation=18446744073709551615";
    dw_config config;
    char text[DW_CONFIG_TEXT_BYTES];
    assert_int_equal(dw_config_parse(&config, longest, NULL), DW_OK);
    assert_int_equal(dw_config_format(&config, text, sizeof text), DW_OK);
    assert_string_equal(text, longest);
    assert_int_equal(dw_config_format(&config, text, strlen(longest)), DW_ERR_BUFFER_TOO_SMALL);
    config.rounding = DW_ROUNDING_DITHER;
    assert_int_equal(dw_config_agreement(&config, text, DW_AGREEMENT_TEXT_BYTES), DW_OK);
}

TEST(config_format_refuses_a_short_buffer)
{
    dw_config config;
    char text[16];
    assert_int_equal(dw_config_parse(&config, "delta:bits=3,group=32", NULL), DW_OK);
    for (size_t cap = 0; cap < sizeof text; cap++)
        assert_int_equal(dw_config_format(&config, text, cap), DW_ERR_BUFFER_TOO_SMALL);
}

/* The decoder refuses a frame with DW_ERR_MISMATCH if the encoder's config differs from its own. */
TEST(different_configs_are_a_mismatch)
{
    float x[64] = {1}, y[64];
    static const char *const others[] = {"delta:bits=3",
                                         "delta:bits=4,group=32",
                                         "delta:bits=4,key=7",
                                         "delta:bits=4,prev=f16",
                                         "delta:bits=4,choose=never",
                                         "delta:bits=4,audit=2",
                                         "delta:form=mx",
                                         "delta:form=step",
                                         "direct:bits=4",
                                         "mx",
                                         "raw"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        test_pair pair;
        dw_config other;
        test_pair_open(&pair, "delta:bits=4", 1, 1, 64, DW_F32);
        dw_decoder_destroy(pair.decoder);
        assert_int_equal(dw_config_parse(&other, others[i], NULL), DW_OK);
        assert_int_equal(dw_decoder_create(&pair.decoder, &other, NULL, NULL), DW_OK);
        dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, 64), ty = dw_tensor_3d(y, DW_F32, 1, 1, 64);
        test_pair_encode(&pair, &(dw_key){1, 0}, &tx);
        assert_int_equal(test_pair_decode(&pair, &ty), DW_ERR_MISMATCH);
        assert_non_null(strstr(dw_decoder_why(pair.decoder), "config"));
        test_pair_close(&pair);
    }
}

/* What only some frames say is compared, too, and the sentence names it. */
TEST(the_option_that_differs_is_named)
{
    float x[64] = {1}, y[64];
    static const char *const cases[][3] = {
        {"delta:form=step", "delta:form=step,rounding=dither", "another rounding"},
        {"delta:form=step,rounding=dither", "delta:form=step", "rounding"},
        {"direct:form=step,rounding=stochastic", "direct:form=step,rounding=dither", "rounding"},
        {"direct:form=step,rounding=dither", "direct:form=step,rounding=stochastic", "rounding"},
        {"delta:form=step", "delta:form=step,group=sample", "group"},
        {"delta:form=step", "delta:form=step,key=f32", "key"},
        {"delta:form=step", "delta:form=step,audit=9", "audit"},
        {"direct:form=step", "direct:bits=8", "form=step, but this decoder has the default form"},
        {"delta:bits=3", "delta:form=mx", "the default form, but this decoder has form=mx"},
        {"topk:keep=0.0125", "topk", "keep=0.0125, but this decoder has keep=0.01"},
        {"topk:element=e2m1", "topk:element=e4m3",
         "element=e2m1, but this decoder has element=e4m3"},
        {"topk:element=e2m1", "topk:bits=4", "element"},
        {"chunk", "chunk:element=int8", "element"},
        {"cocktail:mask=1e-6", "cocktail", "mask=0.000001, but this decoder has mask=0.1"},
        {"chunk:chunk=128", "chunk", "chunk=128, but this decoder has chunk=4096"},
        {"chunk", "topk", "codec chunk, but this decoder has topk"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_pair pair;
        test_pair_open(&pair, cases[i][0], 1, 1, 64, DW_F32);
        dw_decoder_destroy(pair.decoder);
        pair.decoder = test_decoder(cases[i][1]);
        dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, 64), ty = dw_tensor_3d(y, DW_F32, 1, 1, 64);
        test_pair_encode(&pair, &(dw_key){1, 0}, &tx);
        assert_int_equal(test_pair_decode(&pair, &ty), DW_ERR_MISMATCH);
        if (!strstr(dw_decoder_why(pair.decoder), cases[i][2]))
            fail_msg("%s for %s: %s", cases[i][0], cases[i][1], dw_decoder_why(pair.decoder));
        test_pair_close(&pair);
    }
}

/* What only the encoder must know may differ. */
TEST(private_options_are_no_mismatch)
{
    float x[64] = {1}, y[64];
    static const char *const cases[][2] = {
        {"delta:form=step,step=0.5,key_step=0.1", "delta:form=step"},
        {"delta:form=step,error=0.1", "delta:form=step"},
        {"delta:form=step,rounding=stochastic,seed=3", "delta:form=step"},
        {"delta:form=step", "delta:form=step,rounding=stochastic,step=0.1"},
        {"direct:form=step,rounding=dither,seed=5", "direct:form=step,rounding=dither,step=2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_pair pair;
        test_pair_open(&pair, cases[i][0], 1, 1, 64, DW_F32);
        dw_decoder_destroy(pair.decoder);
        pair.decoder = test_decoder(cases[i][1]);
        dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, 64), ty = dw_tensor_3d(y, DW_F32, 1, 1, 64);
        for (int visit = 0; visit < 3; visit++) {
            x[visit] += 1;
            test_pair_encode(&pair, &(dw_key){1, 0}, &tx);
            assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
        }
        test_pair_close(&pair);
    }
}

RUN_TESTS(NULL, NULL)
