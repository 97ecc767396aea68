/* SPDX-License-Identifier: Apache-2.0
 * test_compact.c - copies of prev in 8 and 4 bits (delta:prev=8, prev=4): both ends hold the same,
 * near y, in the memory that docs/state.md says, whatever the other options are.
 *
 * test_real.c compares their errors with those of prev=bf16. */
#include <math.h>

#include "base/bytes.h"
#include "codecs/copies.h"
#include "kernels/kernels.h"
#include "support/tool.h"
#include "wire/frame.h"

enum { N = 2, T = 5, C = 67, SIZE = T * C, GROUP = 16, GROUPS = (SIZE + GROUP - 1) / GROUP };
static const dw_key keys[N] = {{1, 0}, {2, 5}};

typedef struct rig {
    test_pair pair;
    test_random random;
    float x[N * SIZE], y[N * SIZE], again[N * SIZE];
    dw_tensor tx, ty;
    int visits;
} rig;

static void open_rig(rig *r, const char *config)
{
    memset(r, 0, sizeof *r);
    r->random.state = 7;
    r->tx = dw_tensor_3d(r->x, DW_F32, N, T, C);
    r->ty = dw_tensor_3d(r->y, DW_F32, N, T, C);
    test_pair_open(&r->pair, config, N, T, C, DW_F32);
}

/* A first row of 150 times the size of others, a row of zeros, and channels of many sizes; later
 * visits change a tenth of that. */
static void change_x(rig *r)
{
    for (int i = 0; i < N * SIZE; i++) {
        int t = i / C % T, c = i % C;
        float size = t == 1 ? 0 : powf(2.0f, (float)(c * 7 % 11) - 5) * (t == 0 ? 150 : 1);
        r->x[i] += (r->visits ? 0.1f : 1) * size * test_normal(&r->random);
    }
    r->visits++;
}

static void encode(rig *r)
{
    dw_tensor again = dw_tensor_3d(r->again, DW_F32, N, T, C);
    dw_encode_options options = {.struct_size = sizeof options, .reconstruction = &again};
    test_pair_encode_with(&r->pair, keys, &r->tx, &options);
}

static dw_status decode(rig *r)
{
    dw_status status = test_pair_decode(&r->pair, &r->ty);
    if (!status) assert_memory_equal(r->y, r->again, sizeof r->y);
    return status;
}

/* Both ends hold the same, which is as near y as codes of so many bits allow: half a unit of 8
 * bits, and a fifth of the value, or half a unit, of 4. */
static void expect_near_y(const rig *r, int bits)
{
    for (int n = 0; n < N; n++) {
        dw_tensor prev;
        test_pair_in_step(&r->pair, keys[n]);
        assert_int_equal(dw_encoder_peek(r->pair.encoder, keys[n], &prev), DW_OK);
        assert_int_equal(prev.dtype, DW_BF16);
        for (int g = 0; g < SIZE; g += GROUP) {
            float largest = 0;
            for (int i = g; i < g + GROUP && i < SIZE; i++)
                largest = fmaxf(largest, fabsf(r->y[n * SIZE + i]));
            for (int i = g; i < g + GROUP && i < SIZE; i++) {
                float y = r->y[n * SIZE + i], is = test_get(prev.data, DW_BF16, (size_t)i),
                      most = bits == 8 ? largest / 127 : fmaxf(largest / 12, fabsf(y) / 4.99f);
                if (!(fabsf(is - y) <= most)) fail_msg("%g is kept as %g", (double)y, (double)is);
                assert_true(y != 0 || is == 0);
            }
        }
    }
}

static void run(const char *config, int bits)
{
    rig r;
    char text[200];
    snprintf(text, sizeof text, "%s,prev=%d", config, bits);
    open_rig(&r, text);
    for (int i = 0; i < 5; i++) {
        change_x(&r);
        encode(&r);
        assert_int_equal(decode(&r), DW_OK);
        expect_near_y(&r, bits);
        if (r.pair.reply_len) test_pair_take_reply(&r.pair);
    }
    dw_counters c = test_encoder_counters(r.pair.encoder);
    assert_int_equal(c.key_entries, N);
    assert_int_equal(c.delta_entries, 4 * N);
    uint64_t copies = (uint64_t)N * GROUPS * (2 * (uint64_t)bits + 1);
    assert_in_range(test_decoder_counters(r.pair.decoder).state_bytes, copies, copies + N * 512);
    test_pair_close(&r.pair);
}

TEST(both_ends_hold_the_same_near_y)
{
    static const char *const configs[] = {
        "delta:bits=4",
        "delta:bits=2,choose=never,replies=never",
        "delta:bits=1,group=channel,audit=3",
        "delta:bits=5,group=row,key=f32,rounding=stochastic",
        "delta:bits=3,key=raw,audit=255",
        "delta:form=mx",
        "delta:form=step,error=0.06,entropy=rans",
        "delta:form=step,step=0.5,rounding=dither,group=sample",
        "delta:form=step,step=1,rounding=trellis,entropy=rans",
        "delta:form=step,rate=3,entropy=rans",
    };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++)
        for (int bits = 8; bits >= 4; bits -= 4) run(configs[i], bits);
}

/* No encoder writes it, and whoever read it would hold another prev than one who gets that in a
 * frame. */
static void refuses_code_0(dw_decoder *decoder, const uint8_t *saved, size_t len)
{
    uint8_t changed[4096];
    memcpy(changed, saved, len);
    changed[96 + 20] = 0;
    dw_put(changed + 80, dw_digest_bytes(changed + 96, len - 96), 8);
    dw_put(changed + 88, dw_digest_bytes(changed, 88), 8);
    assert_int_equal(dw_decoder_import(decoder, changed, len), DW_ERR_FORMAT);
    assert_non_null(strstr(dw_decoder_why(decoder), "stands for no value"));
}

/* A frame that is refused, and one that is lost, change nothing; a frame that carries prev, and a
 * saved state, bring the other end exactly what this one holds. */
TEST(copies_survive_losses_resyncs_and_saving)
{
    for (int bits = 8; bits >= 4; bits -= 4) {
        rig r;
        uint8_t saved[4096];
        size_t len;
        char text[64];
        snprintf(text, sizeof text, "delta:bits=4,prev=%d,incarnation=9", bits);
        open_rig(&r, text);
        for (int i = 0; i < 6; i++) {
            change_x(&r);
            encode(&r);
            if (i == 3) continue; /* the frame is lost */
            if (i == 1) r.pair.frame[r.pair.len - 40] ^= 1;
            dw_status status = i == 1 ? DW_ERR_CORRUPT : i == 4 ? DW_ERR_BASE : DW_OK;
            assert_int_equal(decode(&r), status);
            test_pair_take_reply(&r.pair);
            if (!status) expect_near_y(&r, bits);
        }
        change_x(&r);
        encode(&r); /* is lost, and repaired without x, in another order than working memory has */
        const dw_key turned[N] = {keys[1], keys[0]};
        assert_int_equal(
            dw_encoder_resync(r.pair.encoder, turned, N, r.pair.frame, r.pair.cap, &r.pair.len),
            DW_OK);
        assert_int_equal(test_pair_decode(&r.pair, &r.ty), DW_OK);
        for (int n = 0; n < N; n++) {
            dw_tensor prev;
            test_pair_in_step(&r.pair, keys[n]);
            assert_int_equal(dw_encoder_peek(r.pair.encoder, keys[n], &prev), DW_OK);
            for (size_t i = 0; i < SIZE; i++) /* y is the rounded prev, in the order of turned */
                assert_true(r.y[(1 - (size_t)n) * SIZE + i] == test_get(prev.data, DW_BF16, i));
        }
        test_pair_take_reply(&r.pair);

        dw_decoder *other = test_decoder(text);
        for (int n = 0; n < N; n++) {
            assert_int_equal(
                test_export_decoder(r.pair.decoder, keys[n], saved, sizeof saved, &len), DW_OK);
            assert_int_equal(len, 96 + GROUPS * (2 * bits + 1));
            if (bits == 8) refuses_code_0(other, saved, len);
            assert_int_equal(dw_decoder_import(other, saved, len), DW_OK);
        }
        dw_decoder_destroy(r.pair.decoder);
        r.pair.decoder = other;
        change_x(&r);
        encode(&r);
        assert_int_equal(decode(&r), DW_OK);
        expect_near_y(&r, bits);
        assert_int_equal(test_encoder_counters(r.pair.encoder).key_entries, 2 * N);
        test_pair_close(&r.pair);
    }
}

/* A state of another prev is never read as if it were of this one. */
TEST(states_of_another_prev_are_not_read)
{
    static const char *const prevs[] = {"8", "4", "bf16", "f32"};
    uint8_t saved[4096];
    for (size_t from = 0; from < 4; from++)
        for (size_t to = 0; to < 4; to++) {
            rig r;
            size_t len;
            char text[64];
            if (from == to) continue;
            snprintf(text, sizeof text, "delta:prev=%s,incarnation=9", prevs[from]);
            open_rig(&r, text);
            change_x(&r);
            encode(&r);
            assert_int_equal(
                test_export_encoder(r.pair.encoder, keys[0], saved, sizeof saved, &len), DW_OK);
            test_pair_close(&r.pair);
            snprintf(text, sizeof text, "delta:prev=%s,incarnation=9", prevs[to]);
            open_rig(&r, text);
            assert_int_equal(dw_encoder_import(r.pair.encoder, saved, len), DW_OK);
            assert_int_equal(
                dw_encoder_resync(r.pair.encoder, keys, 1, r.pair.frame, r.pair.cap, &r.pair.len),
                DW_ERR_ARGUMENT);
            assert_non_null(strstr(dw_encoder_why(r.pair.encoder), "another prev"));
            change_x(&r);
            encode(&r);
            assert_int_equal(test_encoder_counters(r.pair.encoder).key_entries, N);
            test_pair_close(&r.pair);
        }
}

/* Values that are not finite are sent as NaN and not kept; the largest numbers are kept as the
 * largest that codes can say; and prev is never infinite. */
TEST(extreme_values_stay_finite)
{
    for (int bits = 8; bits >= 4; bits -= 4) {
        rig r;
        char text[64];
        snprintf(text, sizeof text, "delta:bits=4,key=f32,prev=%d", bits);
        open_rig(&r, text);
        for (int i = 0; i < 4; i++) {
            change_x(&r);
            test_spoil(&r.random, r.x, DW_F32, N * SIZE, i % 2);
            test_pair_pass(&r.pair, keys, &r.tx, &r.ty);
            test_pair_take_reply(&r.pair);
            for (int n = 0; n < N; n++) {
                dw_tensor prev;
                test_pair_in_step(&r.pair, keys[n]);
                assert_int_equal(dw_decoder_peek(r.pair.decoder, keys[n], &prev), DW_OK);
                for (size_t k = 0; k < SIZE; k++)
                    assert_true(isfinite(test_get(prev.data, DW_BF16, k)));
            }
        }
        test_pair_close(&r.pair);
    }
}

TEST(quotas_count_compact_bytes)
{
    for (int bits = 8; bits >= 4; bits -= 4) {
        rig r;
        char text[96];
        snprintf(text, sizeof text, "delta:bits=4,prev=%d,quota_bytes=%d", bits,
                 GROUPS * (2 * bits + 1));
        open_rig(&r, text);
        for (int i = 0; i < 4; i++) {
            change_x(&r);
            encode(&r);
            assert_int_equal(decode(&r), DW_OK);
            test_pair_in_step(&r.pair, keys[0]);
            test_pair_take_reply(&r.pair);
        }
        dw_counters c = test_decoder_counters(r.pair.decoder);
        assert_int_equal(c.key_entries, 1);
        assert_int_equal(c.delta_entries, 3);
        assert_int_equal(c.stateless_entries, 4);
        test_pair_close(&r.pair);
    }
}

/* However many chunks a sample has, among which its copy is divided. */
TEST(parts_of_a_copy_join_to_the_whole)
{
    static uint16_t made[SIZE], base[2][SIZE];
    static uint8_t fresh[2][GROUPS * 17];
    test_random random = {1};
    test_fill(&random, made, DW_BF16, SIZE, 3);
    for (uint32_t bits = 8; bits >= 4; bits -= 4)
        for (uint64_t parts = 1; parts < GROUPS + 3; parts++)
            for (int which = parts > 1; which < 2; which++) {
                dw_copies copies = {.bits = bits,
                                    .elements = SIZE,
                                    .held = fresh[which],
                                    .base = base[which],
                                    .made = made,
                                    .fresh = fresh[which]};
                uint64_t n = which ? parts : 1;
                memset(fresh[which], 0xa5, sizeof fresh[which]);
                for (uint64_t i = n; i-- > 0;) dw_copies_store(&dw_kernels_c, &copies, i, n);
                for (uint64_t i = n; i-- > 0;) dw_copies_expand(&dw_kernels_c, &copies, i, n);
                if (!which) continue;
                assert_memory_equal(fresh[0], fresh[1], GROUPS * (2 * bits + 1));
                assert_memory_equal(base[0], base[1], sizeof base[0]);
            }
}

TEST(what_does_not_go_with_it_is_refused)
{
    static const test_wrong_config wrong[] = {
        {"delta:prev=8,skip=0.1", "8 and 4 not with error=abs and skip"},
        {"delta:form=step,error=abs:0.1,prev=4", "8 and 4 not with error=abs and skip"},
        {"delta:prev=16", "f32 f16 bf16 8 4"},
        {"direct:prev=8", "prev"},
    };
    static const test_right_config right[] = {{"delta:prev=8", "delta:prev=8"},
                                              {"delta:form=step,prev=4", "delta:form=step,prev=4"}};
    test_configs(wrong, sizeof wrong / sizeof *wrong, right, sizeof right / sizeof *right);
    dw_config config;
    dw_facts facts = {.struct_size = sizeof facts};
    assert_int_equal(dw_config_parse(&config, "delta:prev=8", NULL), DW_OK);
    assert_int_equal(dw_config_facts(&config, &facts), DW_OK);
    assert_true(facts.runs_on_device);
}

RUN_TESTS(NULL, NULL)
