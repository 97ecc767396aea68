/* SPDX-License-Identifier: Apache-2.0
 * make_golden.c - writes the golden frames: valid ones, and invalid ones with the status that they
 * must give.
 *
 * make_golden DIR writes all files DIR/NAME.json again; those of valid frames contain the input as
 * well.
 *
 * make_golden --check DIR [KERNELS] compares the files with the results of this build, with the
 * best kernels or the named ones (exit code 77: this processor cannot run them). Encoders must give
 * the same bits with every compiler and on every machine. The statuses of invalid frames are
 * written here by hand. */
#include <math.h>

#include "base/bytes.h"
#include "golden.h"
#include "golden_bad.h"
#include "golden_cases.h"
#include "support/seal.h"

/* Encodes and sends visits of a case: one with ordinary values, one with hostile finite ones, one
 * with NaN and infinities, two with very small values, and one that is like the first. */
static void good(const golden_case *of)
{
    static const struct {
        float size;
        int spoil;
    } visits[] = {{2, 0}, {1, 1}, {1, 2}, {3e-6f, 0}, {1e-31f, 0}, {2, 0}};
    golden g = golden_begin(of->name, of->config, of->x, of->y, of->n, of->t, of->c);
    g.tells_x = 1;
    for (unsigned i = 0; i < of->visits; i++) {
        golden_fill(&g, i + 1, visits[i].size, visits[i].spoil);
        golden_encode_and_send(&g);
        if (g.pair.reply_len) test_pair_take_reply(&g.pair);
    }
    golden_finish(&g);
}

/* Encodes and sends visits of a case whose payloads are entropy-coded. In the first visit x has
 * many small values and few large ones, in the second one of them is NaN. In the third all values
 * are equally frequent, so that no block is shorter than its tiles, and the groups are stored as
 * their tiles. In the fourth all values are 0, so that a block has one code only. */
static void coded(const golden_case *of)
{
    golden g = golden_begin(of->name, of->config, of->x, of->y, of->n, of->t, of->c);
    g.tells_x = 1;
    for (unsigned visit = 0; visit < of->visits; visit++) {
        golden_fill(&g, visit + 1, 1, 0);
        for (size_t i = 0; i < (size_t)of->n * of->t * of->c; i++) {
            float x = test_get(g.data, g.x, i);
            if (visit == 1 && i == 40) x = NAN;
            if (visit > 1) x = visit == 2 ? (float)(i * 37 % 255) / 127 - 1 : 0;
            test_set(g.data, g.x, i, visit < 2 ? x * x * x : x);
        }
        golden_repeat(&g);
        golden_encode_and_send(&g);
        if (g.pair.reply_len) test_pair_take_reply(&g.pair);
    }
    golden_finish(&g);
}

/* The input consists of values with few digits, which are elements or lie half way between two. The
 * rows have sizes from one end of binary32 to the other: n * 2^-k * 2^row, which is exact. */
static void ties(const golden_tie *of)
{
    static const int rows[] = {0, 3, -100, -126, -138, 122};
    golden g = golden_begin(of->name, of->config, DW_F32, DW_F32, 1, 6, 64);
    test_random random = {7};
    g.tells_x = 1;
    for (size_t i = 0; i < (size_t)g.t * g.c; i++) {
        int n = (int)(test_next(&random) % 127) - 63, k = (int)(test_next(&random) % 12);
        g.data[i] = ldexpf((float)n, rows[i / g.c] - k);
    }
    golden_encode_and_send(&g);
    golden_finish(&g);
}

/* Values half way between two levels, beside steps of many digits. Of every 16 values, 10 are half
 * a step large and 6 are one and a half, so that the root mean square, which is the step, is
 * exactly what was meant. Whether d is multiplied with 1 / s or divided by s makes a difference
 * here. */
static void step_ties(void)
{
    golden g = golden_begin("step_ties", "direct:form=step,group=16", DW_F32, DW_F32, 1, 4, 256);
    test_random random = {9};
    g.tells_x = 1;
    for (size_t i = 0; i < (size_t)g.t * g.c; i++) {
        float step = 1 + (float)(2 * (i / 16) + 1) / 128; /* 8 digits */
        float halves = i % 16 < 10 ? 0.5f : 1.5f;
        g.data[i] = test_next(&random) % 2 ? halves * step : -halves * step;
    }
    golden_encode_and_send(&g);
    golden_finish(&g);
}

/* The step lies so near to where it is rounded otherwise that the order of the sums shows: without
 * any rounding, three times the root mean square is 1 + 2^-8 + 2^-24, which is half way between two
 * binary32, and the lower one of them is half way between two bf16. */
static void step_sums(void)
{
    golden g = golden_begin("step_sums", "direct:form=step,group=sample,step=3", DW_F32, DW_BF16, 1,
                            11, 2049);
    test_random random = {3};
    float value = (float)(((1 << 24) + (1 << 16) + 1) / 3) / (1 << 24);
    g.tells_x = 1;
    for (size_t i = 0; i < (size_t)g.t * g.c; i++)
        g.data[i] = test_next(&random) % 2 ? value : -value;
    golden_repeat(&g);
    golden_encode_and_send(&g);
    golden_finish(&g);
}

/* Half steps, of which many lie half way between two levels, and many sequences of levels cost the
 * same. The largest value of each row is 123 and the error is small, so that the step is 1. */
static void trellis_ties(void)
{
    golden g = golden_begin("trellis_ties",
                            "direct:form=step,group=row,rounding=trellis,error=0.001,entropy=rans",
                            DW_F32, DW_F32, 1, 4, 300);
    test_random random = {11};
    g.tells_x = 1;
    for (size_t i = 0; i < (size_t)g.t * g.c; i++) {
        int halves = (int)(test_next(&random) % 41) - 20;
        g.data[i] = i % g.c == 7 ? 123 : (float)halves / 2;
    }
    golden_encode_and_send(&g);
    golden_finish(&g);
}

/* Sends the frame with each of the changes, and then as it is. */
static void bad(const struct golden_bad *of)
{
    golden g = golden_begin(of->name, of->config, DW_F32, DW_F32, of->n, of->t, of->c);
    golden_fill(&g, 1, 1, 0);
    golden_encode(&g);
    for (size_t i = 0; i < of->count; i++)
        golden_send_with(&g, of->changes[i].at, of->changes[i].value, true,
                         of->changes[i].expected);
    golden_send(&g, DW_OK);
    golden_finish(&g);
}

/* Sends the frame of the pair with n other bytes from `at` on, and with new digests of the tables.
 */
static void send_instead(golden *g, size_t at, const void *bytes, size_t n, dw_status expected)
{
    uint8_t *copy = malloc(g->pair.len);
    if (!copy) abort();
    memcpy(copy, g->pair.frame, g->pair.len);
    memcpy(copy + at, bytes, n);
    test_seal_tables(copy, g->pair.len);
    golden_deliver(g, copy, g->pair.len, expected);
    free(copy);
}

/* Frames that are cut, whose digests are wrong, or that do not fit y. */
static void bad_bytes(void)
{
    static const size_t cuts[] = {0, 1, 79, 80, ENTRY, TABLES_END - 1, TABLES_END, TABLES_END + 1};
    static const uint8_t zeros[8];
    golden g = golden_begin("bad_bytes", "delta:bits=4", DW_F32, DW_F32, 2, 1, 32);
    golden_fill(&g, 1, 1, 0);
    golden_encode(&g);
    size_t last = g.pair.len - 1;
    const uint8_t *frame = g.pair.frame, other = (uint8_t)(frame[ENTRY + 40] ^ 1);
    for (unsigned i = 0; i < sizeof cuts / sizeof *cuts; i++)
        golden_send_cut(&g, cuts[i], DW_ERR_FORMAT);
    golden_send_cut(&g, last, DW_ERR_FORMAT);
    golden_send_with(&g, 0, 'X', false, DW_ERR_FORMAT);
    golden_send_with(&g, 4, 1, false, DW_ERR_VERSION);
    golden_send_with(&g, 4, 3, true, DW_ERR_VERSION);
    golden_send_with(&g, 5, 1, true, DW_ERR_VERSION);
    golden_send_with(&g, 8, 0x55, false, DW_ERR_CORRUPT);
    golden_send_with(&g, 72, (uint8_t)(frame[72] ^ 1), false, DW_ERR_CORRUPT);
    golden_send_with(&g, PARAMETERS + 4, 0x55, false, DW_ERR_CORRUPT);
    golden_send_with(&g, ENTRY, 0x55, false, DW_ERR_CORRUPT);
    golden_send_with(&g, last, (uint8_t)(frame[last] ^ 0x80), false, DW_ERR_CORRUPT);
    send_instead(&g, ENTRY + 32, zeros, 8, DW_ERR_FORMAT);      /* a payload digest of 0 */
    send_instead(&g, ENTRY + 40, zeros, 8, DW_ERR_FORMAT);      /* a state digest of 0 */
    send_instead(&g, SECOND, frame + ENTRY, 12, DW_ERR_FORMAT); /* twice the same key */
    send_instead(&g, ENTRY + 40, &other, 1, DW_ERR_STATE);      /* the first state digest */
    g.frame_t = 2;
    golden_send(&g, DW_ERR_SHAPE);
    g.frame_t = 1;
    g.frame_n = 1;
    golden_send(&g, DW_ERR_SHAPE);
    g.frame_n = 2;
    golden_send_cut(&g, g.pair.len + 1, DW_OK); /* bytes after the end of a frame are ignored */
    dw_put(g.pair.frame + ENTRY + 24, UINT64_C(1) << 63, 8); /* sizes whose sum is 2^64 */
    dw_put(g.pair.frame + SECOND + 24, UINT64_C(1) << 63, 8);
    test_seal_tables(g.pair.frame, g.pair.len);
    golden_send(&g, DW_ERR_FORMAT);
    golden_finish(&g);
}

/* The values are small ones, of which the indices are -1, 0 and 1. */
static void bad_trellis(void)
{
    golden g = golden_begin("bad_trellis",
                            "direct:form=step,group=sample,step=1,rounding=trellis,entropy=rans",
                            DW_F32, DW_F32, 1, 2, 150);
    golden_fill(&g, 1, 1, 0);
    for (size_t i = 0; i < (size_t)g.t * g.c; i++) g.data[i] *= g.data[i] * g.data[i];
    golden_encode(&g);
    if (g.pair.frame[TRELLIS_BLOCK + 3] != 2) golden_failures++;
    for (unsigned i = 0; i < sizeof trellis_fields / sizeof *trellis_fields; i++)
        golden_send_with(&g, trellis_fields[i].at, trellis_fields[i].value, true,
                         trellis_fields[i].expected);
    golden_send(&g, DW_OK);
    /* A payload that ends in the head of its block, which has 3 bytes, and one without sizes. */
    const size_t lens[] = {48, 16};
    for (int i = 0; i < 2; i++) {
        size_t len = TRELLIS_PAYLOAD + lens[i];
        dw_put(g.pair.frame + 48, len, 8);
        dw_put(g.pair.frame + TRELLIS_ENTRY + 24, lens[i], 8);
        dw_put(g.pair.frame + TRELLIS_PAYLOAD + 16, 3, 4);
        test_seal(g.pair.frame, len);
        golden_deliver(&g, g.pair.frame, len, DW_ERR_FORMAT);
    }
    golden_finish(&g);
}

/* Factors that no encoder writes. */
static void odd_factors(void)
{
    golden g = golden_begin("odd_factors", "lowrank:rank=2", DW_F32, DW_F32, 1, 4, 30);
    golden_fill(&g, 1, 1, 0);
    golden_encode(&g);
    if (g.pair.len != LOWRANK_END) golden_failures++;
    uint8_t *copy = malloc(g.pair.len);
    if (!copy) abort();
    for (unsigned i = 0; i < sizeof lowrank_factors / sizeof *lowrank_factors; i++) {
        memcpy(copy, g.pair.frame, g.pair.len);
        for (int k = 0; k < 4; k++)
            if (lowrank_factors[i].words[k].at)
                dw_put(copy + lowrank_factors[i].words[k].at, lowrank_factors[i].words[k].bits, 4);
        test_seal(copy, g.pair.len);
        golden_deliver(&g, copy, g.pair.len, DW_OK);
    }
    free(copy);
    golden_finish(&g);
}

/* The large values are elements 10, 10 + every, ...; all others are 0. */
static void bad_sparse(const struct golden_sparse *of)
{
    uint32_t c = of->c, every = of->every;
    golden g = golden_begin(of->name, of->config, DW_F32, DW_F32, 1, 1, c);
    for (uint32_t i = 0; i < c; i++) g.data[i] = i % every == 10 % every ? 1 + (float)i / 8 : 0;
    golden_encode(&g);
    dw_entry_info entry;
    if (dw_frame_entries(g.pair.frame, g.pair.len, 0, 1, &entry)) golden_failures++;
    const uint8_t *payload = g.pair.frame + entry.payload_offset;
    for (uint32_t i = 0; i < of->count; i++) {
        uint32_t at = of->changes[2 * i] < 255 ? of->changes[2 * i] : 15u + payload[4];
        golden_send_with(&g, entry.payload_offset + at, of->changes[2 * i + 1], true,
                         DW_ERR_FORMAT);
    }
    golden_send(&g, DW_OK);
    golden_finish(&g);
}

/* Payloads that no encoder writes and every reader accepts: the first 64 codes are all codes in
 * steps of 4, and the first 4 bytes, which are a scale or an entry, have some hostile values. */
static void odd_blocks(const char *name, const char *config)
{
    static const uint32_t values[] = {0xbf800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
                                      0x7fc00001, 0x00000001, 0x80000003, 0x80000000, 0x3eaaaaab};
    golden g = golden_begin(name, config, DW_F32, DW_BF16, 1, 2, 70);
    golden_fill(&g, 1, 1, 0);
    golden_encode(&g);
    dw_entry_info entry;
    if (dw_frame_entries(g.pair.frame, g.pair.len, 0, 1, &entry)) golden_failures++;
    uint8_t *payload = g.pair.frame + entry.payload_offset;
    uint8_t *codes = payload + entry.payload_bytes - 144;
    for (unsigned i = 0; i < sizeof values / sizeof *values; i++) {
        dw_put(payload, values[i], 4);
        for (unsigned k = 0; k < 64; k++) codes[k] = (uint8_t)(4 * k + i % 4);
        for (unsigned k = 0; k < 4; k++) codes[140 + k] = 0xee; /* behind the codes */
        test_seal(g.pair.frame, g.pair.len);
        golden_send(&g, DW_OK);
    }
    golden_finish(&g);
}

/* Encoders poison all pieces of a rotated block, because they rotate NaN. A frame can have a block
 * of which one piece alone is poisoned. */
static void rotated_poison(void)
{
    golden g = golden_begin("rotated_poison", "direct:bits=4,group=16,transform=hadamard", DW_F32,
                            DW_F32, 1, 1, 192);
    dw_entry_info entry;
    golden_fill(&g, 1, 1, 0);
    golden_encode(&g);
    if (dw_frame_entries(g.pair.frame, g.pair.len, 0, 1, &entry)) golden_failures++;
    uint8_t *scales = g.pair.frame + entry.payload_offset;
    scales[2 * 5] = 0xc0; /* of the second block of 64, whose pieces are 4 to 7 */
    scales[2 * 5 + 1] = 0x7f;
    test_seal(g.pair.frame, g.pair.len);
    golden_deliver(&g, g.pair.frame, g.pair.len, DW_OK);
    golden_finish(&g);
}

static void out_of_step(void)
{
    golden g = golden_begin("out_of_step", "delta:bits=4,group=32", DW_F32, DW_F32, 1, 2, 64);
    golden_fill(&g, 1, 1, 0);
    golden_encode_and_send(&g);
    golden_send(&g, DW_ERR_STALE); /* a duplicate: the reply is an ACK */
    golden_fill(&g, 2, 1, 0);
    golden_encode(&g); /* this frame is lost */
    uint8_t *lost = malloc(g.pair.len);
    size_t lost_len = g.pair.len;
    memcpy(lost, g.pair.frame, g.pair.len);
    golden_fill(&g, 3, 1, 0);
    golden_encode(&g);
    golden_send(&g, DW_ERR_BASE);
    test_pair_take_reply(&g.pair); /* the encoder now uses the older base */
    golden_encode_and_send(&g);
    /* The lost frame comes late: the reply is a NACK. */
    golden_deliver(&g, lost, lost_len, DW_ERR_STALE);
    golden_fill(&g, 4, 1, 0);
    golden_encode(&g);
    uint8_t *copy = malloc(g.pair.len);
    memcpy(copy, g.pair.frame, g.pair.len);
    copy[ENTRY + 40] ^= 1; /* the state digest */
    test_seal_tables(copy, g.pair.len);
    golden_deliver(&g, copy, g.pair.len, DW_ERR_STATE);
    golden_send(&g, DW_ERR_BASE); /* the base was dropped */
    test_pair_take_reply(&g.pair);
    golden_fill(&g, 5, 1, 0);
    golden_encode(&g);
    golden_send(&g, DW_OK); /* a key frame */
    size_t len;
    uint8_t sync[2048];
    if (dw_encoder_resync(g.pair.encoder, g.keys, 1, sync, sizeof sync, &len)) golden_failures++;
    golden_deliver(&g, sync, len, DW_OK);
    free(copy);
    free(lost);
    golden_finish(&g);
}

/* The new prev is base + change, first rounded to binary32 and then to bf16. Here the exact sum
 * lies just above the middle between two bf16, but in binary32 exactly on it, so that it makes a
 * difference whether binary32 comes first. The numbers: 261/256 = 9 * 29/256 is half way between
 * two bf16; the base 2^-30 vanishes beside it; the value 127 * 29/256 makes 29/256 the scale. */
static void rounded_twice(void)
{
    golden g =
        golden_begin("rounded_twice", "delta:bits=8,scale=absmax,key=raw,prev=bf16,choose=never",
                     DW_F32, DW_F32, 1, 1, 16);
    memset(g.data, 0, 16 * sizeof *g.data);
    g.data[1] = 0x1p-30f;
    golden_encode_and_send(&g);
    g.data[0] = 127 * 29 / 256.0f;
    g.data[1] = 261 / 256.0f;
    golden_encode_and_send(&g);
    golden_finish(&g);
}

/* Frames arrive when their key was forgotten or dropped: for the second time, or late for the first
 * time. */
static void dropped(void)
{
    golden g = golden_begin("dropped", "delta:bits=4", DW_F32, DW_F32, 1, 1, 64);
    uint8_t first[4096], late[4096], copy[4096];
    size_t first_len, late_len;
    dw_key key = g.keys[0];
    golden_fill(&g, 1, 1, 0);
    golden_encode(&g);
    memcpy(first, g.pair.frame, first_len = g.pair.len);
    golden_send(&g, DW_OK);
    g.keys[0].sample = 5;
    golden_encode(&g);
    memcpy(late, g.pair.frame, late_len = g.pair.len);
    dw_encoder_forget(g.pair.encoder, key);
    g.keys[0].sample = 6;
    golden_encode(&g);
    golden_send(&g, DW_OK); /* announces that the first key is forgotten */
    golden_deliver(&g, first, first_len, DW_ERR_STALE);
    /* The decoder has never seen this frame, but it was sent before the announcement. */
    golden_deliver(&g, late, late_len, DW_ERR_STALE);
    test_pair_take_reply(&g.pair);
    g.keys[0].sample = 5;
    golden_encode_and_send(&g);
    memcpy(first, g.pair.frame, first_len = g.pair.len);
    golden_fill(&g, 2, 1, 0);
    golden_encode(&g);
    memcpy(copy, g.pair.frame, g.pair.len);
    copy[ENTRY + 40] ^= 1; /* the state digest */
    test_seal_tables(copy, g.pair.len);
    golden_deliver(&g, copy, g.pair.len, DW_ERR_STATE); /* the decoder drops its base */
    /* The older frame does not restore the base. */
    golden_deliver(&g, first, first_len, DW_ERR_STALE);
    test_pair_take_reply(&g.pair);
    golden_encode_and_send(&g);
    golden_finish(&g);
}

static void lives(void)
{
    golden g = golden_begin("lives", "delta:bits=3,prev=bf16", DW_F32, DW_F32, 1, 1, 64);
    golden_fill(&g, 1, 1, 0);
    golden_encode_and_send(&g);
    uint8_t old[4096];
    size_t old_len;
    golden_fill(&g, 2, 1, 0);
    golden_encode(&g);
    memcpy(old, g.pair.frame, old_len = g.pair.len);
    dw_encoder_destroy(g.pair.encoder); /* the encoder is created anew: another incarnation */
    g.pair.config.incarnation = 77;
    if (dw_encoder_create(&g.pair.encoder, &g.pair.config, NULL, NULL)) golden_failures++;
    golden_use_kernels(&g);
    golden_fill(&g, 3, 1, 0);
    golden_encode_and_send(&g);
    golden_deliver(&g, old, old_len, DW_ERR_STALE); /* from an incarnation that was replaced */
    dw_encoder_forget(g.pair.encoder, g.keys[0]);
    g.keys[0].sample = 5;
    golden_encode(&g);
    g.keys[0].sample = 1000;
    golden_send(&g, DW_OK); /* announces that the first key is forgotten: its prev was dropped */
    golden_encode_and_send(&g);
    golden_finish(&g);
}

/* More incarnations than a decoder remembers. */
static void many_lives(void)
{
    golden g = golden_begin("many_lives", "delta:bits=1,audit=255", DW_F32, DW_F32, 1, 1, 16);
    golden_fill(&g, 1, 1, 0);
    for (uint64_t life = 1; life <= 18; life++) {
        dw_encoder_destroy(g.pair.encoder);
        g.pair.config.incarnation = life;
        if (dw_encoder_create(&g.pair.encoder, &g.pair.config, NULL, NULL)) golden_failures++;
        golden_use_kernels(&g);
        golden_encode_and_send(&g);
    }
    golden_finish(&g);
}

/* Frames of an encoder with another codec; deltas whose base has another shape or dtype; and the
 * same key in another shape and dtype. */
static void mismatches(void)
{
    golden g = golden_begin("mismatches", "delta:bits=4", DW_F32, DW_F32, 1, 1, 128);
    dw_tensor x = dw_tensor_3d(g.data, g.x, 1, 1, 128);
    test_pair other;
    golden_fill(&g, 1, 1, 0);
    golden_encode_and_send(&g);
    test_pair_take_reply(&g.pair);
    test_pair_open(&other, "direct:bits=4,incarnation=5", 1, 1, 128, DW_F32);
    test_pair_encode(&other, g.keys, &x);
    golden_deliver(&g, other.frame, other.len, DW_ERR_MISMATCH);
    test_pair_close(&other);
    golden_fill(&g, 2, 1, 0);
    golden_encode(&g);
    g.frame_c = 127; /* all payloads have as many bytes */
    golden_send_with(&g, 32, 127, true, DW_ERR_BASE);
    g.frame_t = 2;
    g.frame_c = 64;
    g.pair.frame[28] = 2;
    golden_send_with(&g, 32, 64, true, DW_ERR_BASE);
    g.frame_t = 1;
    g.frame_c = 128;
    g.pair.frame[28] = 1;
    g.pair.frame[40] = DW_BF16;
    golden_send_with(&g, PARAMETERS + 28, DW_BF16, true, DW_ERR_BASE);
    g.c = g.frame_c = 16;
    golden_encode_and_send(&g);
    g.x = DW_BF16;
    golden_fill(&g, 3, 1, 0);
    golden_encode_and_send(&g);
    golden_finish(&g);
}

/* Frames announce that keys are forgotten: one that the decoder holds and one that it never got;
 * then one that it holds, twice. */
static void forgotten(void)
{
    golden g = golden_begin("forgotten", "delta:bits=4,quota_bytes=4096", DW_F32, DW_F32, 2, 1, 16);
    const dw_key held[2] = {g.keys[0], g.keys[1]};
    golden_fill(&g, 1, 1, 0);
    golden_encode_and_send(&g);
    for (uint64_t turn = 0; turn < 2; turn++) {
        g.keys[0] = (dw_key){7, 0};
        g.keys[1] = held[1];
        golden_encode(&g); /* lost */
        dw_encoder_forget(g.pair.encoder, held[turn]);
        dw_encoder_forget(g.pair.encoder, g.keys[0]);
        g.keys[0] = (dw_key){8, 0};
        g.keys[1] = (dw_key){9, 0};
        golden_encode(&g);
        uint8_t *names = g.pair.frame + TABLES_END;
        if (turn) memcpy(names + 16, names, 16);
        test_seal_tables(g.pair.frame, g.pair.len);
        golden_send(&g, DW_OK);
    }
    golden_finish(&g);
}

/* A frame of role skip, which leaves prev as it is, the same frame again, and then one with a wrong
 * base. */
static void skipped(void)
{
    uint8_t frame[512];
    golden g = golden_begin("skip", "delta:bits=4,audit=2,prev=f16", DW_F32, DW_BF16, 1, 3, 40);
    golden_fill(&g, 1, 1, 0);
    golden_encode_and_send(&g);
    size_t len = test_skip_frame(g.pair.frame, g.pair.decoder, frame, sizeof frame);
    golden_deliver(&g, frame, len, DW_OK);
    golden_deliver(&g, frame, len, DW_ERR_STALE);
    frame[80 + 6 * 8 + 16] ^= 1; /* another base, in a frame with a later sequence */
    frame[16] += 1;
    test_seal_tables(frame, len);
    golden_deliver(&g, frame, len, DW_ERR_BASE);
    golden_finish(&g);
}

/* Key entries that exceed the limit are sent in as few bits as a delta; then stateless ones. */
static void brief(void)
{
    golden g = golden_begin("brief", "delta:bits=3,group=32", DW_F32, DW_F32, 2, 2, 64);
    golden_fill(&g, 1, 1, 0);
    dw_tensor x = dw_tensor_3d(g.data, g.x, g.n, g.t, g.c);
    dw_encode_options options = {.struct_size = sizeof options,
                                 .limit = 80 + 6 * 8 + 2 * 48 + 64 + 144};
    if (dw_encode(g.pair.encoder, g.keys, &x, &options, g.pair.frame, g.pair.cap, &g.pair.len))
        golden_failures++;
    golden_send(&g, DW_OK);
    options.limit = 0;
    options.stateless = 1;
    if (dw_encode(g.pair.encoder, NULL, &x, &options, g.pair.frame, g.pair.cap, &g.pair.len))
        golden_failures++;
    golden_send(&g, DW_OK);
    golden_finish(&g);
}

/* Places that are drawn alike: by this number and the keys alone, in the first two frames and in
 * the last. */
static void alike(const char *name, const char *config)
{
    golden g = golden_begin(name, config, DW_F32, DW_F32, 2, 3, 100);
    dw_tensor x = dw_tensor_3d(g.data, g.x, g.n, g.t, g.c);
    dw_encode_options options = {.struct_size = sizeof options};
    for (uint64_t i = 1; i <= 4; i++) {
        golden_fill(&g, i, 1, 0);
        options.places = i == 3 ? 0 : UINT64_C(0x1234567890abcdef);
        if (dw_encode(g.pair.encoder, g.keys, &x, &options, g.pair.frame, g.pair.cap, &g.pair.len))
            golden_failures++;
        golden_send(&g, DW_OK);
    }
    golden_send_with(&g, 7, 7, 1, DW_ERR_FORMAT); /* flags */
    golden_finish(&g);
}

#define EACH(function, table)                                                                      \
    for (size_t i = 0; i < sizeof(table) / sizeof *(table); i++) function(&(table)[i])

int main(int argc, char **argv)
{
    if (!test_can_run()) return 77;
    golden_checks = (argc == 3 || argc == 4) && strcmp(argv[1], "--check") == 0;
    if (argc != 2 && !golden_checks) {
        fprintf(stderr, "usage: make_golden DIR, or make_golden --check DIR [KERNELS]\n");
        return 2;
    }
    golden_directory = argv[golden_checks ? 2 : 1];
    if (argc == 4 && !(golden_kernels = dw_kernels_find(argv[3]))) return 77;
    EACH(good, golden_cases);
    EACH(coded, golden_coded);
    EACH(ties, golden_ties);
    EACH(bad, golden_bad);
    EACH(bad_sparse, golden_sparse);
    step_ties();
    step_sums();
    trellis_ties();
    bad_bytes();
    bad_trellis();
    alike("alike_randk", "randk:keep=0.1,seed=5");
    alike("alike_cocktail", "cocktail:mask=0.4,rounding=stochastic");
    odd_factors();
    odd_blocks("odd_blocks", "blocks:block=64");
    odd_blocks("odd_blocks_linear", "blocks:codebook=linear,block=64");
    odd_blocks("odd_blocks_quantile", "blocks:codebook=quantile");
    rotated_poison();
    out_of_step();
    dropped();
    lives();
    many_lives();
    mismatches();
    forgotten();
    rounded_twice();
    skipped();
    brief();
    printf("%d failures\n", golden_failures);
    return golden_failures ? 1 : 0;
}
