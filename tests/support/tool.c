/* SPDX-License-Identifier: Apache-2.0
 * tool.c - what tests share. */
#include "tool.h"

#include <math.h>
#include <stdbool.h>

#include "arithmetic/half.h"
#include "profiles.h"

uint64_t test_next(test_random *random)
{
    uint64_t z = random->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

double test_uniform(test_random *random)
{
    return (double)(test_next(random) >> 11) * 0x1p-53;
}

/* The sum of twelve uniform numbers is close enough to a normal distribution. It needs no function
 * of libm, whose results differ between machines. */
float test_normal(test_random *random)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += test_uniform(random);
    return (float)sum;
}

double test_norm(const float *values, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)values[i] * values[i];
    return sqrt(sum);
}

uint64_t test_seed(void)
{
    const char *given = getenv("DW_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : 20260601;
    print_message("seed %llu (DW_TEST_SEED sets it)\n", (unsigned long long)seed);
    return seed;
}

uint32_t test_share(int argc, char **argv)
{
    uint32_t share = 1;
    if (argc == 3 && strcmp(argv[1], "--share") == 0) share = (uint32_t)strtoul(argv[2], NULL, 10);
    if (argc == 2 || argc > 3 || share == 0) {
        fprintf(stderr, "usage: %s [--share N]\n", argv[0]);
        exit(2);
    }
    return share;
}

float test_get(const void *data, dw_dtype dtype, size_t i)
{
    if (dtype == DW_F32) return ((const float *)data)[i];
    uint16_t half = ((const uint16_t *)data)[i];
    return dtype == DW_F16 ? dw_f16_widen(half) : dw_bf16_widen(half);
}

void test_set(void *data, dw_dtype dtype, size_t i, float value)
{
    if (dtype == DW_F32)
        ((float *)data)[i] = value;
    else
        ((uint16_t *)data)[i] = dtype == DW_F16 ? dw_f16_round(value) : dw_bf16_round(value);
}

void test_fill(test_random *random, void *data, dw_dtype dtype, size_t n, float size)
{
    for (size_t i = 0; i < n; i++) test_set(data, dtype, i, size * test_normal(random));
}

void test_spoil(test_random *random, void *data, dw_dtype dtype, size_t n, bool non_finite)
{
    static const uint32_t finite[] = {0x80000000, 0x00000001, 0x807fffff, 0x7f7fffff,
                                      0xff7fffff, 0x3fffffff, 0x0f7fffff, 0x0f800000,
                                      0x33000001, 0x477fe000, 0x477ff000};
    static const uint32_t special[] = {0x7fc00000, 0x7f800000, 0xff800000, 0x7f800001, 0xffc12345};
    for (size_t k = 0; k < n / 16 + 1; k++) {
        size_t i = test_next(random) % n;
        uint32_t bits = non_finite && test_next(random) % 4 == 0
                            ? special[test_next(random) % 5]
                            : finite[test_next(random) % (sizeof finite / sizeof *finite)];
        test_set(data, dtype, i, dw_float_of(bits));
        if (dtype != DW_F32 && !non_finite && !isfinite(test_get(data, dtype, i)))
            test_set(data, dtype, i, -1.0f);
    }
}

void test_pair_open(test_pair *pair, const char *config, uint32_t n, uint32_t t, uint32_t c,
                    dw_dtype dtype)
{
    test_pair_open_with(pair, config, NULL, n, t, c, dtype);
}

void test_pair_open_with(test_pair *pair, const char *config, const struct dw_profile *profile,
                         uint32_t n, uint32_t t, uint32_t c, dw_dtype dtype)
{
    static float nothing;
    dw_why why = {.text = ""};
    memset(pair, 0, sizeof *pair);
    pair->host.struct_size = sizeof pair->host;
    if (dw_config_parse(&pair->config, config, &why)) fail_msg("%s: %s", config, why.text);
    uint32_t means;
    pair->config.profile = profile || !pair->config.profile_digest
                               ? profile
                               : test_profile_find(pair->config.profile_digest, &means);
    assert_int_equal(dw_encoder_create(&pair->encoder, &pair->config, NULL, NULL), DW_OK);
    assert_int_equal(dw_decoder_create(&pair->decoder, &pair->config, NULL, NULL), DW_OK);
    dw_tensor x = dw_tensor_3d(&nothing, dtype, n, t, c);
    pair->cap = dw_frame_bound(&pair->config, &x);
    assert_true(pair->cap > 0);
    pair->frame = malloc(pair->cap);
    pair->reply_cap = dw_reply_bound(n);
    pair->reply = malloc(pair->reply_cap);
    assert_true(pair->frame && pair->reply);
}

typedef struct test_room {
    void *room;
    size_t cap, *len;
} test_room;

static dw_status keep_saved(void *context, dw_key key, const void *saved, size_t len)
{
    const test_room *to = context;
    (void)key;
    *to->len = len;
    if (!to->room) return DW_OK;
    assert_true(len <= to->cap);
    memcpy(to->room, saved, len);
    return DW_OK;
}

dw_status test_export_encoder(dw_encoder *encoder, dw_key key, void *room, size_t cap, size_t *len)
{
    return dw_encoder_export(encoder, &key, keep_saved, &(test_room){room, cap, len});
}

dw_status test_export_decoder(dw_decoder *decoder, dw_key key, void *room, size_t cap, size_t *len)
{
    return dw_decoder_export(decoder, &key, keep_saved, &(test_room){room, cap, len});
}

dw_encoder *test_encoder(const char *config)
{
    dw_encoder *encoder;
    dw_config parsed;
    assert_int_equal(dw_config_parse(&parsed, config, NULL), DW_OK);
    assert_int_equal(dw_encoder_create(&encoder, &parsed, NULL, NULL), DW_OK);
    return encoder;
}

dw_decoder *test_decoder(const char *config)
{
    dw_decoder *decoder;
    dw_config parsed;
    assert_int_equal(dw_config_parse(&parsed, config, NULL), DW_OK);
    assert_int_equal(dw_decoder_create(&decoder, &parsed, NULL, NULL), DW_OK);
    return decoder;
}

void test_pair_close(test_pair *pair)
{
    dw_encoder_destroy(pair->encoder);
    dw_decoder_destroy(pair->decoder);
    free(pair->frame);
    free(pair->reply);
}

void test_pair_renew_encoder(test_pair *pair)
{
    dw_encoder_destroy(pair->encoder);
    assert_int_equal(dw_encoder_create(&pair->encoder, &pair->config, &pair->host, NULL), DW_OK);
}

void test_pair_renew_decoder(test_pair *pair)
{
    dw_decoder_destroy(pair->decoder);
    assert_int_equal(dw_decoder_create(&pair->decoder, &pair->config, &pair->host, NULL), DW_OK);
}

void test_pair_encode_with(test_pair *pair, const dw_key *keys, const dw_tensor *x,
                           const dw_encode_options *options)
{
    dw_status status =
        dw_encode(pair->encoder, keys, x, options, pair->frame, pair->cap, &pair->len);
    if (status) fail_msg("encode: %d %s", status, dw_encoder_why(pair->encoder));
}

void test_pair_encode(test_pair *pair, const dw_key *keys, const dw_tensor *x)
{
    test_pair_encode_with(pair, keys, x, NULL);
}

void test_pair_refuses(test_pair *pair, const dw_key *keys, const dw_tensor *x, dw_status status,
                       const char *says)
{
    size_t len;
    assert_int_equal(dw_encode(pair->encoder, keys, x, NULL, pair->frame, pair->cap, &len), status);
    assert_non_null(strstr(dw_encoder_why(pair->encoder), says));
}

dw_status test_pair_decode(test_pair *pair, const dw_tensor *y)
{
    return dw_decode(pair->decoder, pair->frame, pair->len, y, NULL, pair->reply, pair->reply_cap,
                     &pair->reply_len);
}

void test_pair_pass(test_pair *pair, const dw_key *keys, const dw_tensor *x, const dw_tensor *y)
{
    test_pair_encode(pair, keys, x);
    dw_status status = test_pair_decode(pair, y);
    if (status) fail_msg("decode: %d %s", status, dw_decoder_why(pair->decoder));
}

uint8_t *test_pair_payload(const test_pair *pair, uint64_t *bytes)
{
    dw_entry_info entry;
    assert_int_equal(dw_frame_entries(pair->frame, pair->len, 0, 1, &entry), DW_OK);
    if (bytes) *bytes = entry.payload_bytes;
    return pair->frame + entry.payload_offset;
}

void test_pair_take_reply(test_pair *pair)
{
    assert_int_equal(dw_encoder_take_reply(pair->encoder, pair->reply, pair->reply_len), DW_OK);
}

void test_pair_in_step(const test_pair *pair, dw_key key)
{
    dw_tensor a, b;
    dw_status first = dw_encoder_peek(pair->encoder, key, &a),
              second = dw_decoder_peek(pair->decoder, key, &b);
    assert_int_equal(first, second);
    if (first) return;
    assert_int_equal(a.dtype, b.dtype);
    assert_int_equal(a.t, b.t);
    assert_int_equal(a.c, b.c);
    assert_memory_equal(a.data, b.data, (size_t)a.t * a.c * dw_dtype_bytes(a.dtype));
}

void test_configs(const test_wrong_config *wrong, size_t n_wrong, const test_right_config *right,
                  size_t n_right)
{
    dw_config config;
    dw_why why;
    char text[DW_CONFIG_TEXT_BYTES];
    for (size_t i = 0; i < n_wrong; i++) {
        dw_status status = dw_config_parse(&config, wrong[i].text, &why);
        if (status != DW_ERR_CONFIG) fail_msg("%s: status %d", wrong[i].text, status);
        if (!strstr(why.text, wrong[i].says)) fail_msg("%s: %s", wrong[i].text, why.text);
    }
    for (size_t i = 0; i < n_right; i++) {
        if (dw_config_parse(&config, right[i].text, &why))
            fail_msg("%s: %s", right[i].text, why.text);
        assert_int_equal(dw_config_format(&config, text, sizeof text), DW_OK);
        assert_string_equal(text, right[i].becomes);
    }
}

static void *count_allocate(void *context, size_t bytes, size_t alignment)
{
    test_allocator *a = context;
    int64_t call = a->calls++;
    if (a->fail_at >= 0 && (a->only_once ? call == a->fail_at : call >= a->fail_at)) return NULL;
    a->out_bytes += bytes;
    if (a->out_bytes > a->most_bytes) a->most_bytes = a->out_bytes;
    a->out_blocks++;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void count_release(void *context, void *memory, size_t bytes)
{
    test_allocator *a = context;
    a->out_bytes -= bytes;
    a->out_blocks--;
    free(memory);
}

dw_allocator test_allocator_hooks(test_allocator *allocator)
{
    return (dw_allocator){count_allocate, count_release, allocator};
}

dw_status test_import_encoder(void *context, dw_key key, const void *saved, size_t len)
{
    (void)key;
    return dw_encoder_import(context, saved, len);
}
