/* SPDX-License-Identifier: Apache-2.0
 * make_golden.c - writes the golden frames: valid ones, and invalid ones with the status that they
 * must give.
 *
 * make_golden DIR writes all files tests/wire/golden/NAME.json again; those of valid frames contain
 * the input as well.
 *
 * make_golden --check DIR [KERNELS] compares the files with the results of this build, with the
 * best kernels or the named ones (exit code 77: this processor cannot run them). Encoders must give
 * the same bits with every compiler and on every machine. The statuses of invalid frames are
 * written here by hand. */
#include <math.h>

#include "golden.h"
#include "golden_bad.h"
#include "golden_cases.h"
#include "support/seal.h"
#include "wire/bytes.h"

/* Encodes and sends six visits of a case: two with ordinary values, one with hostile finite values,
 * one with NaN and infinities, and two with very small values. */
static void good(const char *directory, bool check, const golden_case *of)
{
    static const struct {
        float size;
        int spoil;
    } epochs[] = {{2, 0}, {2, 0}, {1, 1}, {1, 2}, {1e-31f, 0}, {3e-6f, 0}};
    golden g =
        golden_begin(directory, check, of->name, of->config, of->x, of->y, of->n, of->t, of->c);
    g.tells_x = 1;
    for (unsigned e = 0; e < sizeof epochs / sizeof *epochs; e++) {
        golden_fill(&g, e + 1, epochs[e].size, epochs[e].spoil);
        golden_encode_and_send(&g);
        if (g.pair.reply_len) test_pair_feedback(&g.pair);
    }
    golden_finish(&g);
}

/* Encodes and sends `epochs` visits of a case whose payloads are entropy-coded. In the first visit
 * x has many small values and few large ones, in the second one of them is NaN. In the third all
 * values are equally frequent, so that no block is shorter than its tiles, and the groups are
 * stored as their tiles. In the fourth all values are 0, so that a block has one code only. */
static void coded(const char *directory, bool check, const golden_case *of, unsigned epochs)
{
    golden g =
        golden_begin(directory, check, of->name, of->config, of->x, of->y, of->n, of->t, of->c);
    g.tells_x = 1;
    for (unsigned e = 0; e < epochs; e++) {
        golden_fill(&g, e + 1, 1, 0);
        for (size_t i = 0; i < (size_t)of->n * of->t * of->c; i++) {
            float x = test_get(g.data, g.x, i);
            if (e == 1 && i == 40) x = NAN;
            if (e > 1) x = e == 2 ? (float)(i * 37 % 255) / 127 - 1 : 0;
            test_set(g.data, g.x, i, e < 2 ? x * x * x : x);
        }
        golden_encode_and_send(&g);
        if (g.pair.reply_len) test_pair_feedback(&g.pair);
    }
    golden_finish(&g);
}

/* The input consists of values with few digits, which are elements or lie half way between two. The
 * rows have sizes from one end of binary32 to the other: n * 2^-k * 2^row, which is exact. */
static void ties(const char *directory, bool check, const char *name, const char *config)
{
    static const int rows[] = {0, 3, -100, -126, -138, 122};
    golden g = golden_begin(directory, check, name, config, DW_F32, DW_F32, 1, 6, 64);
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
static void step_ties(const char *directory, bool check)
{
    golden g = golden_begin(directory, check, "step_ties", "direct:form=step,group=16", DW_F32,
                            DW_F32, 1, 4, 256);
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
static void step_sums(const char *directory, bool check)
{
    golden g = golden_begin(directory, check, "step_sums", "direct:form=step,step=3", DW_F32,
                            DW_BF16, 1, 11, 2049);
    test_random random = {3};
    float value = (float)(((1 << 24) + (1 << 16) + 1) / 3) / (1 << 24);
    g.tells_x = 1;
    for (size_t i = 0; i < (size_t)g.t * g.c; i++)
        g.data[i] = test_next(&random) % 2 ? value : -value;
    golden_encode_and_send(&g);
    golden_finish(&g);
}

static void bad_bytes(const char *directory, bool check)
{
    golden g =
        golden_begin(directory, check, "bad_bytes", "delta:bits=4", DW_F32, DW_F32, 2, 1, 64);
    golden_fill(&g, 1, 1, 0);
    golden_encode(&g);
    static const size_t cuts[] = {0, 1, 79, 80, ENTRY, TABLES_END - 1, TABLES_END, TABLES_END + 1};
    for (unsigned i = 0; i < sizeof cuts / sizeof *cuts; i++)
        golden_send_cut(&g, cuts[i], DW_ERR_FORMAT);
    golden_send_cut(&g, g.pair.len - 1, DW_ERR_FORMAT);
    golden_send_with(&g, 0, 'X', 0, DW_ERR_FORMAT);
    golden_send_with(&g, 4, 1, 0, DW_ERR_VERSION);
    golden_send_with(&g, 4, 3, 1, DW_ERR_VERSION);
    golden_send_with(&g, 5, 1, 1, DW_ERR_VERSION);
    golden_send_with(&g, 8, 0x55, 0, DW_ERR_CORRUPT);
    golden_send_with(&g, 72, (uint8_t)(g.pair.frame[72] ^ 1), 0, DW_ERR_CORRUPT);
    golden_send_with(&g, PARAMETERS + 4, 0x55, 0, DW_ERR_CORRUPT);
    golden_send_with(&g, ENTRY, 0x55, 0, DW_ERR_CORRUPT);
    golden_send_with(&g, g.pair.len - 1, (uint8_t)(g.pair.frame[g.pair.len - 1] ^ 0x80), 0,
                     DW_ERR_CORRUPT);
    for (unsigned i = 0; i < sizeof fields / sizeof *fields; i++)
        golden_send_with(&g, fields[i].at, fields[i].value, 1, fields[i].expected);
    uint8_t *copy = malloc(g.pair.len);
    memcpy(copy, g.pair.frame, g.pair.len);
    memset(copy + ENTRY + 32, 0, 8); /* a payload digest of 0 */
    test_seal_tables(copy, g.pair.len);
    golden_deliver(&g, copy, g.pair.len, DW_ERR_FORMAT);
    memcpy(copy, g.pair.frame, g.pair.len);
    memset(copy + ENTRY + 40, 0, 8); /* a state digest of 0 */
    test_seal_tables(copy, g.pair.len);
    golden_deliver(&g, copy, g.pair.len, DW_ERR_FORMAT);
    memcpy(copy, g.pair.frame, g.pair.len);
    memcpy(copy + SECOND, copy + ENTRY, 12); /* the second entry gets the first one's key */
    test_seal_tables(copy, g.pair.len);
    golden_deliver(&g, copy, g.pair.len, DW_ERR_FORMAT);
    memcpy(copy, g.pair.frame, g.pair.len);
    copy[ENTRY + 40] ^= 1; /* the first entry's state digest */
    test_seal_tables(copy, g.pair.len);
    golden_deliver(&g, copy, g.pair.len, DW_ERR_STATE);
    free(copy);
    g.frame_t = 2;
    golden_send(&g, DW_ERR_SHAPE);
    g.frame_t = 1;
    g.frame_n = 1;
    golden_send(&g, DW_ERR_SHAPE);
    g.frame_n = 2;
    golden_send_cut(&g, g.pair.len + 1, DW_OK); /* bytes after the end of a frame are ignored */
    golden_finish(&g);
}

static void bad_mx(const char *directory, bool check)
{
    golden g = golden_begin(directory, check, "bad_mx", "delta:form=mx,element=e4m3,key=e5m2",
                            DW_F32, DW_F32, 2, 1, 64);
    golden_fill(&g, 1, 1, 0);
    golden_encode(&g);
    for (unsigned i = 0; i < sizeof mx_fields / sizeof *mx_fields; i++)
        golden_send_with(&g, mx_fields[i].at, mx_fields[i].value, 1, mx_fields[i].expected);
    golden_send(&g, DW_OK);
    golden_finish(&g);
}

/* The large values are elements 10, 10 + every, ...; all others are 0. */
static void bad_sparse(const char *directory, bool check, size_t which)
{
    uint32_t c = sparse_payloads[which].c, every = sparse_payloads[which].every;
    golden g = golden_begin(directory, check, sparse_payloads[which].name,
                            sparse_payloads[which].config, DW_F32, DW_F32, 1, 1, c);
    for (uint32_t i = 0; i < c; i++) g.data[i] = i % every == 10 % every ? 1 + (float)i / 8 : 0;
    golden_encode(&g);
    dw_entry_info entry;
    if (dw_frame_entries(g.pair.frame, g.pair.len, 0, 1, &entry)) golden_failures++;
    uint8_t *copy = malloc(g.pair.len);
    if (!copy) abort();
    for (unsigned i = 0; i < 16; i++) {
        memcpy(copy, g.pair.frame, g.pair.len);
        uint8_t *payload = copy + entry.payload_offset;
        unsigned at = sparse_payloads[which].changes[i].at;
        if (at == 0 && i > 2 && !sparse_payloads[which].changes[i].value) break;
        if (at == 255) at = 15u + payload[4];
        payload[at] = sparse_payloads[which].changes[i].value;
        test_seal(copy, g.pair.len);
        golden_deliver(&g, copy, g.pair.len, DW_ERR_FORMAT);
    }
    free(copy);
    golden_send(&g, DW_OK);
    golden_finish(&g);
}

static void bad_blocks(const char *directory, bool check)
{
    golden g =
        golden_begin(directory, check, "bad_blocks", "blocks:block=64", DW_F32, DW_F32, 1, 5, 100);
    golden_fill(&g, 1, 1, 0);
    golden_encode(&g);
    for (unsigned i = 0; i < sizeof blocks_fields / sizeof *blocks_fields; i++)
        golden_send_with(&g, blocks_fields[i].at, blocks_fields[i].value, 1,
                         blocks_fields[i].expected);
    golden_send(&g, DW_OK);
    golden_finish(&g);
}

static void bad_project(const char *directory, bool check)
{
    golden g =
        golden_begin(directory, check, "bad_project", "raw:f32,project=7", DW_F32, DW_F32, 1, 1, 4);
    golden_fill(&g, 1, 1, 0);
    golden_encode(&g);
    for (unsigned i = 0; i < sizeof projected_fields / sizeof *projected_fields; i++)
        golden_send_with(&g, projected_fields[i].at, projected_fields[i].value, 1,
                         projected_fields[i].expected);
    golden_send(&g, DW_OK);
    golden_finish(&g);
}

/* Payloads that no encoder writes and every reader accepts: the first 64 codes are all codes in
 * steps of 4, and the first 4 bytes, which are a scale or an entry, have some hostile values. */
static void odd_blocks(const char *directory, bool check, const char *name, const char *config)
{
    static const uint32_t values[] = {0xbf800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
                                      0x7fc00001, 0x00000001, 0x80000003, 0x80000000, 0x3eaaaaab};
    golden g = golden_begin(directory, check, name, config, DW_F32, DW_BF16, 1, 2, 70);
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

static void bad_step(const char *directory, bool check)
{
    golden g = golden_begin(directory, check, "bad_step",
                            "delta:form=step,rounding=dither,group=row", DW_F32, DW_F32, 2, 1, 64);
    golden_fill(&g, 1, 1, 0);
    golden_encode(&g);
    for (unsigned i = 0; i < sizeof step_fields / sizeof *step_fields; i++)
        golden_send_with(&g, step_fields[i].at, step_fields[i].value, 1, step_fields[i].expected);
    golden_send(&g, DW_OK);
    golden_finish(&g);
}

static void bad_rotated(const char *directory, bool check)
{
    golden g = golden_begin(directory, check, "bad_rotated",
                            "direct:bits=4,group=row,transform=hadamard,rotate=16", DW_F32, DW_F32,
                            1, 32, 32);
    golden_fill(&g, 1, 1, 0);
    golden_encode(&g);
    for (unsigned i = 0; i < sizeof rotated_fields / sizeof *rotated_fields; i++)
        golden_send_with(&g, rotated_fields[i].at, rotated_fields[i].value, 1,
                         rotated_fields[i].expected);
    golden_send(&g, DW_OK);
    golden_finish(&g);
}

static void bad_tah(const char *directory, bool check)
{
    golden g = golden_begin(directory, check, "bad_tah", "tah", DW_F32, DW_F32, 1, 3, 192);
    golden_fill(&g, 1, 1, 0);
    golden_encode(&g);
    uint8_t *copy = malloc(g.pair.len);
    if (!copy) abort();
    for (unsigned i = 0; i < sizeof tah_fields / sizeof *tah_fields; i++) {
        memcpy(copy, g.pair.frame, g.pair.len);
        copy[tah_fields[i].at] = tah_fields[i].value;
        test_seal(copy, g.pair.len);
        golden_deliver(&g, copy, g.pair.len, tah_fields[i].expected);
    }
    free(copy);
    golden_send(&g, DW_OK);
    golden_finish(&g);
}

/* Encoders poison all pieces of a rotated block, because they rotate NaN. A frame can have a block
 * of which one piece alone is poisoned. */
static void rotated_poison(const char *directory, bool check)
{
    golden g = golden_begin(directory, check, "rotated_poison",
                            "direct:bits=4,group=16,transform=hadamard", DW_F32, DW_F32, 1, 1, 192);
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

static void bad_lowrank(const char *directory, bool check)
{
    golden g =
        golden_begin(directory, check, "bad_lowrank", "lowrank:rank=2", DW_F32, DW_F32, 1, 4, 30);
    golden_fill(&g, 1, 1, 0);
    golden_encode(&g);
    if (g.pair.len != LOWRANK_END) golden_failures++;
    for (unsigned i = 0; i < sizeof lowrank_fields / sizeof *lowrank_fields; i++)
        golden_send_with(&g, lowrank_fields[i].at, lowrank_fields[i].value, 1,
                         lowrank_fields[i].expected);
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
    golden_send(&g, DW_OK);
    golden_finish(&g);
    g = golden_begin(directory, check, "bad_lowrank_width", "lowrank:rank=6,width=5,dtype=f32",
                     DW_F32, DW_F32, 1, 3, 6);
    golden_fill(&g, 1, 1, 0);
    golden_encode(&g);
    golden_send_with(&g, 80 + 16 + 4, 0, 1, DW_ERR_FORMAT); /* width 0 */
    golden_send_with(&g, 80 + 16 + 4, 6, 1, DW_ERR_FORMAT); /* another size */
    golden_send_with(&g, 80 + 8 + 4, 3, 1, DW_ERR_FORMAT);  /* rank */
    golden_send_with(&g, 80 + 8 + 4, 7, 1, DW_ERR_MISMATCH);
    golden_send(&g, DW_OK);
    golden_finish(&g);
    /* The payload would be one of rank 5 if ranks were cut down to the number of tokens. */
    g = golden_begin(directory, check, "bad_lowrank_rank", "lowrank:rank=4", DW_F32, DW_F32, 1, 4,
                     30);
    golden_fill(&g, 1, 1, 0);
    golden_encode(&g);
    golden_send_with(&g, 80 + 8 + 4, 5, 1, DW_ERR_FORMAT);
    golden_send(&g, DW_OK);
    golden_finish(&g);
}

static void out_of_step(const char *directory, bool check)
{
    golden g = golden_begin(directory, check, "out_of_step", "delta:bits=4,group=32", DW_F32,
                            DW_F32, 1, 2, 64);
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
    test_pair_feedback(&g.pair); /* the encoder now uses the older base */
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
    test_pair_feedback(&g.pair);
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
static void rounded_twice(const char *directory, bool check)
{
    golden g = golden_begin(directory, check, "rounded_twice",
                            "delta:bits=8,scale=absmax,key=raw,prev=bf16,choose=never", DW_F32,
                            DW_F32, 1, 1, 16);
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
static void dropped(const char *directory, bool check)
{
    golden g = golden_begin(directory, check, "dropped", "delta:bits=4", DW_F32, DW_F32, 1, 1, 64);
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
    test_pair_feedback(&g.pair);
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
    test_pair_feedback(&g.pair);
    golden_encode_and_send(&g);
    golden_finish(&g);
}

static void lives(const char *directory, bool check)
{
    golden g =
        golden_begin(directory, check, "lives", "delta:bits=3,prev=bf16", DW_F32, DW_F32, 1, 1, 64);
    golden_fill(&g, 1, 1, 0);
    golden_encode_and_send(&g);
    uint8_t old[4096];
    size_t old_len;
    golden_fill(&g, 2, 1, 0);
    golden_encode(&g);
    memcpy(old, g.pair.frame, old_len = g.pair.len);
    dw_encoder_destroy(g.pair.encoder); /* the encoder is created anew: another incarnation */
    g.pair.config.incarnation = 77;
    if (dw_encoder_create(&g.pair.encoder, &g.pair.config)) golden_failures++;
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

/* A frame of role skip, which leaves prev as it is, the same frame again, and then one with a wrong
 * base. */
static void skipped(const char *directory, bool check)
{
    uint8_t frame[512];
    golden g = golden_begin(directory, check, "skip", "delta:bits=4,audit=2,prev=f16", DW_F32,
                            DW_BF16, 1, 3, 2048);
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
static void brief(const char *directory, bool check)
{
    golden g =
        golden_begin(directory, check, "brief", "delta:bits=3,group=32", DW_F32, DW_F32, 2, 2, 64);
    golden_fill(&g, 1, 1, 0);
    dw_tensor x = dw_tensor_3d(g.data, g.x, g.n, g.t, g.c);
    dw_encode_options options = {.struct_size = sizeof options,
                                 .limit = 80 + 6 * 8 + 2 * 48 + 64 + 144};
    if (dw_encode_with(g.pair.encoder, g.keys, &x, &options, g.pair.frame, g.pair.cap, &g.pair.len))
        golden_failures++;
    golden_send(&g, DW_OK);
    options.limit = 0;
    options.stateless = 1;
    if (dw_encode_with(g.pair.encoder, NULL, &x, &options, g.pair.frame, g.pair.cap, &g.pair.len))
        golden_failures++;
    golden_send(&g, DW_OK);
    golden_finish(&g);
}

/* Places that are drawn alike: by this number and the keys alone, in the first two frames and in
 * the last. */
static void alike(const char *directory, bool check, const char *name, const char *config)
{
    golden g = golden_begin(directory, check, name, config, DW_F32, DW_F32, 2, 3, 100);
    dw_tensor x = dw_tensor_3d(g.data, g.x, g.n, g.t, g.c);
    dw_encode_options options = {.struct_size = sizeof options};
    for (uint64_t i = 1; i <= 4; i++) {
        golden_fill(&g, i, 1, 0);
        options.places = i == 3 ? 0 : UINT64_C(0x1234567890abcdef);
        if (dw_encode_with(g.pair.encoder, g.keys, &x, &options, g.pair.frame, g.pair.cap,
                           &g.pair.len))
            golden_failures++;
        golden_send(&g, DW_OK);
    }
    golden_send_with(&g, 7, 7, 1, DW_ERR_FORMAT); /* flags */
    golden_finish(&g);
}

#include "golden_trellis.h"

int main(int argc, char **argv)
{
    if (!test_can_run()) return 77;
    bool check = (argc == 3 || argc == 4) && strcmp(argv[1], "--check") == 0;
    if (argc != 2 && !check) {
        fprintf(stderr, "usage: make_golden DIR, or make_golden --check DIR [KERNELS]\n");
        return 2;
    }
    const char *d = argv[check ? 2 : 1];
    if (argc == 4 && !(golden_kernels = dw_kernels_find(argv[3]))) return 77;
    for (size_t i = 0; i < sizeof golden_cases / sizeof *golden_cases; i++)
        good(d, check, &golden_cases[i]);
    for (size_t i = 0; i < sizeof golden_ties / sizeof *golden_ties; i++)
        ties(d, check, golden_ties[i][0], golden_ties[i][1]);
    for (size_t i = 0; i < sizeof golden_coded / sizeof *golden_coded; i++)
        coded(d, check, &golden_coded[i].of, golden_coded[i].epochs);
    step_ties(d, check);
    step_sums(d, check);
    trellis_ties(d, check);
    bad_bytes(d, check);
    bad_mx(d, check);
    for (size_t i = 0; i < sizeof golden_sparse / sizeof *golden_sparse; i++)
        good(d, check, &golden_sparse[i]);
    alike(d, check, "alike_randk", "randk:keep=0.1,seed=5");
    alike(d, check, "alike_cocktail", "cocktail:mask=0.4,rounding=stochastic");
    for (size_t i = 0; i < sizeof sparse_payloads / sizeof *sparse_payloads; i++)
        bad_sparse(d, check, i);
    for (size_t i = 0; i < sizeof golden_lowrank / sizeof *golden_lowrank; i++)
        good(d, check, &golden_lowrank[i]);
    bad_lowrank(d, check);
    for (size_t i = 0; i < sizeof golden_blocks / sizeof *golden_blocks; i++)
        good(d, check, &golden_blocks[i]);
    odd_blocks(d, check, "odd_blocks", "blocks:block=64");
    odd_blocks(d, check, "odd_blocks_linear", "blocks:codebook=linear,block=64");
    odd_blocks(d, check, "odd_blocks_quantile", "blocks:codebook=quantile");
    bad_blocks(d, check);
    for (size_t i = 0; i < sizeof golden_rotated / sizeof *golden_rotated; i++)
        good(d, check, &golden_rotated[i]);
    for (size_t i = 0; i < sizeof golden_tah / sizeof *golden_tah; i++)
        good(d, check, &golden_tah[i]);
    bad_tah(d, check);
    bad_rotated(d, check);
    rotated_poison(d, check);
    bad_project(d, check);
    bad_step(d, check);
    bad_trellis(d, check);
    out_of_step(d, check);
    dropped(d, check);
    lives(d, check);
    rounded_twice(d, check);
    skipped(d, check);
    brief(d, check);
    printf("%d failures\n", golden_failures);
    return golden_failures ? 1 : 0;
}
