/* SPDX-License-Identifier: Apache-2.0
 * fuzz_config.c - any text is a config or a clear error; what was parsed is written and read back
 * the same. */
#include "fuzz.h"

/* What a config means, field by field: padding and callbacks do not count. */
static bool same(const dw_config *a, const dw_config *b)
{
    return a->codec == b->codec && a->bits == b->bits && a->group == b->group &&
           a->scale == b->scale && a->key == b->key && a->raw == b->raw && a->prev == b->prev &&
           a->choose == b->choose && a->replies == b->replies && a->audit == b->audit &&
           a->quota_bytes == b->quota_bytes && a->incarnation == b->incarnation;
}

static void check_error(const char *text, dw_status status, const dw_why *why)
{
    REQUIRE(status == DW_ERR_CONFIG);
    REQUIRE(memchr(why->text, 0, sizeof why->text) != NULL && why->text[0] != 0);
    REQUIRE(why->offset >= 0 && (size_t)why->offset <= strlen(text));
}

static void check_text(const char *text)
{
    dw_config first, second, untouched;
    memset(&first, 0x5a, sizeof first);
    memcpy(&untouched, &first, sizeof first);
    dw_why why;
    dw_status status = dw_config_parse(&first, text, &why);
    REQUIRE(dw_config_parse(&second, text, NULL) == status);
    if (status != DW_OK) {
        REQUIRE(memcmp(&first, &untouched, sizeof first) == 0);
        check_error(text, status, &why);
        return;
    }
    char canonical[DW_CONFIG_TEXT_BYTES], again[DW_CONFIG_TEXT_BYTES];
    REQUIRE(dw_config_format(&first, canonical, sizeof canonical) == DW_OK);
    REQUIRE(dw_config_parse(&second, canonical, &why) == DW_OK);
    REQUIRE(dw_config_format(&second, again, sizeof again) == DW_OK);
    REQUIRE(strcmp(canonical, again) == 0);
    REQUIRE(same(&first, &second));
    /* No byte past cap is written, whatever cap is. */
    size_t need = strlen(canonical) + 1;
    for (size_t cap = 0; cap <= need; cap++) {
        memset(again, 0x5a, sizeof again);
        status = dw_config_format(&first, again, cap);
        REQUIRE(status == (cap < need ? DW_ERR_NO_ROOM : DW_OK));
        for (size_t i = cap; i < sizeof again; i++) REQUIRE(again[i] == 0x5a);
    }
    dw_encoder *encoder;
    REQUIRE(dw_encoder_create(&encoder, &first) == DW_OK);
    dw_encoder_destroy(encoder);
}

/* A struct filled in by hand: valid or not, and if valid its text gives the same frames. */
static void check_struct(fuzz_input *input)
{
    dw_config config = {.struct_size = sizeof config};
    config.codec = (dw_codec)fuzz_below(input, 5);
    config.bits = fuzz_below(input, 10);
    config.group = fuzz_below(input, 300);
    config.scale = (dw_scale)fuzz_below(input, 4);
    config.key = fuzz_below(input, 40);
    config.raw = (dw_dtype)fuzz_below(input, 5);
    config.prev = (dw_dtype)fuzz_below(input, 5);
    config.choose = (dw_choose)fuzz_below(input, 4);
    config.replies = (dw_replies)fuzz_below(input, 4);
    config.audit = fuzz_byte(input);
    for (int i = 0; i < 8; i++) {
        config.quota_bytes = config.quota_bytes << 8 | fuzz_byte(input);
        config.incarnation = config.incarnation << 8 | fuzz_byte(input);
    }
    char text[DW_CONFIG_TEXT_BYTES];
    dw_encoder *encoder = NULL;
    dw_status created = dw_encoder_create(&encoder, &config),
              formatted = dw_config_format(&config, text, sizeof text);
    REQUIRE(created == formatted); /* both OK, or both CONFIG */
    REQUIRE((created == DW_OK) == (encoder != NULL));
    dw_encoder_destroy(encoder);
    float x[40] = {0};
    dw_tensor view = dw_tensor_3d(x, DW_F32, 1, 2, 20);
    REQUIRE((dw_frame_bound(&config, &view) > 0) == (created == DW_OK));
    if (created != DW_OK) return;
    dw_config parsed;
    REQUIRE(dw_config_parse(&parsed, text, NULL) == DW_OK);
    if (config.codec == 0) config.codec = DW_CODEC_DELTA; /* the only default that is written out */
    if (config.codec == DW_CODEC_DELTA)
        config.raw = parsed.raw; /* an option of another codec is left out */
    REQUIRE(config.codec != DW_CODEC_DELTA || same(&parsed, &config));
    REQUIRE(dw_frame_bound(&parsed, &view) == dw_frame_bound(&config, &view));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 512) return 0;
    char *text = malloc(size + 1);
    REQUIRE(text != NULL);
    memcpy(text, data, size);
    text[size] = 0;
    check_text(text);
    free(text);
    fuzz_input input = {data, size};
    check_struct(&input);
    return 0;
}
