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
#include <stdarg.h>

#include "engine/engine.h"
#include "golden_bad.h"
#include "golden_cases.h"
#include "golden_status.h"
#include "kernels/kernels.h"
#include "support/seal.h"
#include "support/tool.h"
#include "wire/bytes.h"
#include "wire/frame.h"

typedef struct golden {
    const char *name, *directory, *encoder; /* encoder: its config */
    int check, tells_x;                     /* tells_x: write x with each frame */
    char *text;
    size_t len, cap;
    test_pair pair;
    dw_dtype x, y;
    uint32_t n, t, c;
    uint32_t frame_n, frame_t, frame_c; /* the shape of y that the decoder is given */
    dw_key keys[4];
    float *data;
    int steps;
} golden;

static int failures;
static const dw_kernels *kernels; /* NULL: the best of this processor */

static void use_kernels(golden *g)
{
    dw_encoder_use(g->pair.encoder, kernels);
    dw_decoder_use(g->pair.decoder, kernels);
}

static void emit(golden *g, const char *format, ...)
{
    va_list arguments;
    if (g->cap - g->len < 1024) g->text = realloc(g->text, g->cap = 2 * g->cap + 4096);
    va_start(arguments, format);
    g->len += (size_t)vsnprintf(g->text + g->len, g->cap - g->len, format, arguments);
    va_end(arguments);
}

static void emit_hex(golden *g, const char *name, const void *data, size_t len)
{
    emit(g, "\"%s\": \"", name);
    for (size_t i = 0; i < len; i++) emit(g, "%02x", ((const uint8_t *)data)[i]);
    emit(g, "\"");
}

/* Writes floats as in frames: the low byte first, whatever the byte order of this machine. */
static void emit_floats(golden *g, const char *name, const void *data, size_t n, dw_dtype dtype)
{
    size_t size = dw_dtype_bytes(dtype);
    emit(g, "\"%s\": \"", name);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = size == 4 ? ((const uint32_t *)data)[i] : ((const uint16_t *)data)[i];
        for (size_t k = 0; k < size; k++) emit(g, "%02x", (unsigned)(bits >> 8 * k & 0xff));
    }
    emit(g, "\"");
}

static const char *dtype_name(dw_dtype dtype)
{
    return dtype == DW_F32 ? "f32" : dtype == DW_F16 ? "f16" : "bf16";
}

static bool comma(golden *g, bool first)
{
    if (!first) emit(g, ", ");
    return false;
}

/* Writes the beginning of a golden file: the parameters of the frame, with their names from
 * docs/format.md, 1.2; the list `own` of those that depend on the dtype of x; and the config. */
static void emit_config(golden *g, const uint8_t *frame)
{
    static const char *const codecs[] = {"", "delta", "direct", "raw", "mx"};
    static const char *const names[256] = {
        [1] = "bits",  [2] = "group",    [4] = "rounding", [6] = "key",
        [7] = "dtype", [8] = "prev",     [9] = "choose",   [11] = "audit",
        [14] = "form", [15] = "element", [18] = "entropy"};
    const dw_config *config = &g->pair.config;
    bool first = true;
    emit(g, "{\"config\": {\"codec\": \"%s\", \"parameters\": {", codecs[frame[6]]);
    for (int i = 0; i < frame[41]; i++) {
        const uint8_t *at = frame + DW_HEADER_BYTES + 8 * i;
        first = comma(g, first);
        emit(g, "\"%s\": %u", names[at[0]], (unsigned)dw_get(at + 4, 4));
    }
    emit(g, "}, \"own\": [");
    first = true;
    if (config->codec == DW_CODEC_DELTA && !config->prev)
        first = comma(g, first), emit(g, "\"prev\"");
    if (config->codec == DW_CODEC_DELTA && config->key == DW_KEY_RAW)
        first = comma(g, first), emit(g, "\"key\"");
    if (config->codec == DW_CODEC_RAW && !config->raw)
        first = comma(g, first), emit(g, "\"dtype\"");
    emit(g, "]},\n \"encoder\": \"%s\",\n \"steps\": [\n", g->encoder);
}

static golden begin(const char *directory, int check, const char *name, const char *config,
                    dw_dtype x, dw_dtype y, uint32_t n, uint32_t t, uint32_t c)
{
    char with_life[160];
    golden g = {.name = name,
                .directory = directory,
                .encoder = config,
                .check = check,
                .x = x,
                .y = y,
                .n = n,
                .t = t,
                .c = c,
                .frame_n = n,
                .frame_t = t,
                .frame_c = c};
    snprintf(with_life, sizeof with_life, "%s%sincarnation=81985529216486895", config,
             strchr(config, ':') ? "," : ":");
    test_pair_open(&g.pair, with_life, n, t, c, x);
    use_kernels(&g);
    for (uint32_t i = 0; i < n; i++) g.keys[i] = (dw_key){1000 + i, i};
    g.data = malloc((size_t)n * t * c * 4);
    return g;
}

static void fill(golden *g, uint64_t seed, float size, int non_finite)
{
    test_random random = {seed};
    size_t n = (size_t)g->n * g->t * g->c;
    test_fill(&random, g->data, g->x, n, size);
    if (non_finite) test_spoil(&random, g->data, g->x, n, non_finite > 1);
}

static void encode(golden *g)
{
    dw_tensor x = dw_tensor_3d(g->data, g->x, g->n, g->t, g->c);
    test_pair_encode(&g->pair, g->keys, &x);
}

static void emit_prev(golden *g)
{
    emit(g, "\"prev\": [");
    for (uint32_t i = 0; i < g->n && g->pair.config.codec == DW_CODEC_DELTA; i++) {
        dw_tensor prev = {0};
        int held = dw_decoder_peek(g->pair.decoder, g->keys[i], &prev) == DW_OK;
        emit(g, "%s{\"sample\": %llu, \"slice\": %u, ", i ? ", " : "",
             (unsigned long long)g->keys[i].sample, (unsigned)g->keys[i].slice);
        emit_floats(g, "bits", prev.data, held ? (size_t)prev.t * prev.c : 0, prev.dtype);
        emit(g, "}");
    }
    emit(g, "]");
}

/* Decodes len bytes of the frame and writes all results; the status must be the expected one. */
static void deliver(golden *g, const uint8_t *frame, size_t len, dw_status expected)
{
    size_t elements = (size_t)g->frame_n * g->frame_t * g->frame_c;
    void *out = calloc(elements, 4);
    dw_tensor y = dw_tensor_3d(out, g->y, g->frame_n, g->frame_t, g->frame_c);
    dw_status status = dw_decode(g->pair.decoder, frame, len, &y, g->pair.reply, g->pair.reply_cap,
                                 &g->pair.reply_len);
    if (status != expected) {
        printf("%s, step %d: %s, expected %s: %s\n", g->name, g->steps, golden_status(status),
               golden_status(expected), dw_decoder_why(g->pair.decoder));
        failures++;
    }
    if (g->steps++ == 0) {
        emit_config(g, g->pair.frame);
    } else {
        emit(g, ",\n");
    }
    emit(g, "  {");
    if (g->tells_x) {
        emit(g, "\"x_dtype\": \"%s\", ", dtype_name(g->x));
        emit_floats(g, "x", g->data, elements, g->x);
        emit(g, ",\n   ");
    }
    emit_hex(g, "frame", frame, len);
    emit(g, ", \"n\": %u, \"t\": %u, \"c\": %u, \"y_dtype\": \"%s\", \"status\": \"%s\", ",
         (unsigned)g->frame_n, (unsigned)g->frame_t, (unsigned)g->frame_c, dtype_name(g->y),
         golden_status(expected));
    emit_floats(g, "y", out, status ? 0 : elements, g->y);
    emit(g, ", ");
    emit_hex(g, "reply", g->pair.reply, g->pair.reply_len);
    emit(g, ",\n   ");
    emit_prev(g);
    emit(g, "}");
    free(out);
}

static void send(golden *g, dw_status expected)
{
    deliver(g, g->pair.frame, g->pair.len, expected);
}

static void encode_and_send(golden *g)
{
    encode(g);
    send(g, DW_OK);
}

static void finish(golden *g)
{
    char path[512];
    emit(g, "\n]}\n");
    snprintf(path, sizeof path, "%s/%s.json", g->directory, g->name);
    FILE *file = fopen(path, g->check ? "rb" : "wb");
    if (!file) {
        printf("cannot open %s\n", path);
        failures++;
    } else if (g->check) {
        char *there = calloc(1, g->len + 1);
        size_t got = fread(there, 1, g->len + 1, file);
        if (got != g->len || memcmp(there, g->text, got) != 0) {
            printf("%s: the results of this build differ\n", path);
            failures++;
        }
        free(there);
        fclose(file);
    } else {
        fwrite(g->text, 1, g->len, file);
        fclose(file);
    }
    test_pair_close(&g->pair);
    free(g->data);
    free(g->text);
}

/* Encodes and sends six visits of a case: two with ordinary values, one with hostile finite values,
 * one with NaN and infinities, and two with very small values. */
static void good(const char *directory, int check, const golden_case *of)
{
    static const struct {
        float size;
        int spoil;
    } epochs[] = {{2, 0}, {2, 0}, {1, 1}, {1, 2}, {1e-31f, 0}, {3e-6f, 0}};
    golden g = begin(directory, check, of->name, of->config, of->x, of->y, of->n, of->t, of->c);
    g.tells_x = 1;
    for (unsigned e = 0; e < sizeof epochs / sizeof *epochs; e++) {
        fill(&g, e + 1, epochs[e].size, epochs[e].spoil);
        encode_and_send(&g);
        if (g.pair.reply_len) test_pair_feedback(&g.pair);
    }
    finish(&g);
}

/* Encodes and sends `epochs` visits of a case whose payloads are entropy-coded. In the first visit
 * x has many small values and few large ones, in the second one of them is NaN. In the third all
 * values are equally frequent, so that no block is shorter than its tiles, and the groups are
 * stored as their tiles. In the fourth all values are 0, so that a block has one code only. */
static void coded(const char *directory, int check, const golden_case *of, unsigned epochs)
{
    golden g = begin(directory, check, of->name, of->config, of->x, of->y, of->n, of->t, of->c);
    g.tells_x = 1;
    for (unsigned e = 0; e < epochs; e++) {
        fill(&g, e + 1, 1, 0);
        for (size_t i = 0; i < (size_t)of->n * of->t * of->c; i++) {
            float x = test_get(g.data, g.x, i);
            if (e == 1 && i == 40) x = NAN;
            if (e > 1) x = e == 2 ? (float)(i * 37 % 255) / 127 - 1 : 0;
            test_set(g.data, g.x, i, e < 2 ? x * x * x : x);
        }
        encode_and_send(&g);
        if (g.pair.reply_len) test_pair_feedback(&g.pair);
    }
    finish(&g);
}

/* The input consists of values with few digits, which are elements or lie half way between two. The
 * rows have sizes from one end of binary32 to the other: n * 2^-k * 2^row, which is exact. */
static void ties(const char *directory, int check, const char *name, const char *config)
{
    static const int rows[] = {0, 3, -100, -126, -138, 122};
    golden g = begin(directory, check, name, config, DW_F32, DW_F32, 1, 6, 64);
    test_random random = {7};
    g.tells_x = 1;
    for (size_t i = 0; i < (size_t)g.t * g.c; i++) {
        int n = (int)(test_next(&random) % 127) - 63, k = (int)(test_next(&random) % 12);
        g.data[i] = ldexpf((float)n, rows[i / g.c] - k);
    }
    encode_and_send(&g);
    finish(&g);
}

/* Values half way between two levels, beside steps of many digits. Of every 16 values, 10 are half
 * a step large and 6 are one and a half, so that the root mean square, which is the step, is
 * exactly what was meant. Whether d is multiplied with 1 / s or divided by s makes a difference
 * here. */
static void step_ties(const char *directory, int check)
{
    golden g = begin(directory, check, "step_ties", "direct:form=step,group=16", DW_F32, DW_F32, 1,
                     4, 256);
    test_random random = {9};
    g.tells_x = 1;
    for (size_t i = 0; i < (size_t)g.t * g.c; i++) {
        float step = 1 + (float)(2 * (i / 16) + 1) / 128; /* 8 digits */
        float halves = i % 16 < 10 ? 0.5f : 1.5f;
        g.data[i] = test_next(&random) % 2 ? halves * step : -halves * step;
    }
    encode_and_send(&g);
    finish(&g);
}

/* The step lies so near to where it is rounded otherwise that the order of the sums shows: without
 * any rounding, three times the root mean square is 1 + 2^-8 + 2^-24, which is half way between two
 * binary32, and the lower one of them is half way between two bf16. */
static void step_sums(const char *directory, int check)
{
    golden g = begin(directory, check, "step_sums", "direct:form=step,step=3", DW_F32, DW_BF16, 1,
                     11, 2049);
    test_random random = {3};
    float value = (float)(((1 << 24) + (1 << 16) + 1) / 3) / (1 << 24);
    g.tells_x = 1;
    for (size_t i = 0; i < (size_t)g.t * g.c; i++)
        g.data[i] = test_next(&random) % 2 ? value : -value;
    encode_and_send(&g);
    finish(&g);
}

/* Sets one byte of the latest frame to a value, computes the digests again if `sealed`, and sends
 * it. */
static void send_with(golden *g, size_t at, uint8_t value, int sealed, dw_status expected)
{
    uint8_t *copy = malloc(g->pair.len);
    if (!copy) abort();
    memcpy(copy, g->pair.frame, g->pair.len);
    copy[at] = value;
    if (sealed) test_seal_tables(copy, g->pair.len);
    deliver(g, copy, g->pair.len, expected);
    free(copy);
}

static void send_cut(golden *g, size_t len, dw_status expected)
{
    uint8_t *copy = malloc(g->pair.len + 16);
    memset(copy, 0, g->pair.len + 16);
    memcpy(copy, g->pair.frame, g->pair.len);
    deliver(g, copy, len, expected);
    free(copy);
}

static void bad_bytes(const char *directory, int check)
{
    golden g = begin(directory, check, "bad_bytes", "delta:bits=4", DW_F32, DW_F32, 2, 1, 64);
    fill(&g, 1, 1, 0);
    encode(&g);
    static const size_t cuts[] = {0, 1, 79, 80, ENTRY, TABLES_END - 1, TABLES_END, TABLES_END + 1};
    for (unsigned i = 0; i < sizeof cuts / sizeof *cuts; i++) send_cut(&g, cuts[i], DW_ERR_FORMAT);
    send_cut(&g, g.pair.len - 1, DW_ERR_FORMAT);
    send_with(&g, 0, 'X', 0, DW_ERR_FORMAT);
    send_with(&g, 4, 1, 0, DW_ERR_VERSION);
    send_with(&g, 4, 3, 1, DW_ERR_VERSION);
    send_with(&g, 5, 1, 1, DW_ERR_VERSION);
    send_with(&g, 8, 0x55, 0, DW_ERR_CORRUPT);
    send_with(&g, 72, (uint8_t)(g.pair.frame[72] ^ 1), 0, DW_ERR_CORRUPT);
    send_with(&g, PARAMETERS + 4, 0x55, 0, DW_ERR_CORRUPT);
    send_with(&g, ENTRY, 0x55, 0, DW_ERR_CORRUPT);
    send_with(&g, g.pair.len - 1, (uint8_t)(g.pair.frame[g.pair.len - 1] ^ 0x80), 0,
              DW_ERR_CORRUPT);
    for (unsigned i = 0; i < sizeof fields / sizeof *fields; i++)
        send_with(&g, fields[i].at, fields[i].value, 1, fields[i].expected);
    uint8_t *copy = malloc(g.pair.len);
    memcpy(copy, g.pair.frame, g.pair.len);
    memset(copy + ENTRY + 32, 0, 8); /* a payload digest of 0 */
    test_seal_tables(copy, g.pair.len);
    deliver(&g, copy, g.pair.len, DW_ERR_FORMAT);
    memcpy(copy, g.pair.frame, g.pair.len);
    memset(copy + ENTRY + 40, 0, 8); /* a state digest of 0 */
    test_seal_tables(copy, g.pair.len);
    deliver(&g, copy, g.pair.len, DW_ERR_FORMAT);
    memcpy(copy, g.pair.frame, g.pair.len);
    memcpy(copy + SECOND, copy + ENTRY, 12); /* the second entry gets the first one's key */
    test_seal_tables(copy, g.pair.len);
    deliver(&g, copy, g.pair.len, DW_ERR_FORMAT);
    memcpy(copy, g.pair.frame, g.pair.len);
    copy[ENTRY + 40] ^= 1; /* the first entry's state digest */
    test_seal_tables(copy, g.pair.len);
    deliver(&g, copy, g.pair.len, DW_ERR_STATE);
    free(copy);
    g.frame_t = 2;
    send(&g, DW_ERR_SHAPE);
    g.frame_t = 1;
    g.frame_n = 1;
    send(&g, DW_ERR_SHAPE);
    g.frame_n = 2;
    send_cut(&g, g.pair.len + 1, DW_OK); /* bytes after the end of a frame are ignored */
    finish(&g);
}

static void bad_mx(const char *directory, int check)
{
    golden g = begin(directory, check, "bad_mx", "delta:form=mx,element=e4m3,key=e5m2", DW_F32,
                     DW_F32, 2, 1, 64);
    fill(&g, 1, 1, 0);
    encode(&g);
    for (unsigned i = 0; i < sizeof mx_fields / sizeof *mx_fields; i++)
        send_with(&g, mx_fields[i].at, mx_fields[i].value, 1, mx_fields[i].expected);
    send(&g, DW_OK);
    finish(&g);
}

static void bad_step(const char *directory, int check)
{
    golden g = begin(directory, check, "bad_step", "delta:form=step,rounding=dither,group=row",
                     DW_F32, DW_F32, 2, 1, 64);
    fill(&g, 1, 1, 0);
    encode(&g);
    for (unsigned i = 0; i < sizeof step_fields / sizeof *step_fields; i++)
        send_with(&g, step_fields[i].at, step_fields[i].value, 1, step_fields[i].expected);
    send(&g, DW_OK);
    finish(&g);
}

static void out_of_step(const char *directory, int check)
{
    golden g =
        begin(directory, check, "out_of_step", "delta:bits=4,group=32", DW_F32, DW_F32, 1, 2, 64);
    fill(&g, 1, 1, 0);
    encode_and_send(&g);
    send(&g, DW_ERR_STALE); /* a duplicate: the reply is an ACK */
    fill(&g, 2, 1, 0);
    encode(&g); /* this frame is lost */
    uint8_t *lost = malloc(g.pair.len);
    size_t lost_len = g.pair.len;
    memcpy(lost, g.pair.frame, g.pair.len);
    fill(&g, 3, 1, 0);
    encode(&g);
    send(&g, DW_ERR_BASE);
    test_pair_feedback(&g.pair); /* the encoder now uses the older base */
    encode_and_send(&g);
    deliver(&g, lost, lost_len, DW_ERR_STALE); /* the frame comes late: the reply is a NACK */
    fill(&g, 4, 1, 0);
    encode(&g);
    uint8_t *copy = malloc(g.pair.len);
    memcpy(copy, g.pair.frame, g.pair.len);
    copy[ENTRY + 40] ^= 1; /* the state digest */
    test_seal_tables(copy, g.pair.len);
    deliver(&g, copy, g.pair.len, DW_ERR_STATE);
    send(&g, DW_ERR_BASE); /* the base was dropped */
    test_pair_feedback(&g.pair);
    fill(&g, 5, 1, 0);
    encode(&g);
    send(&g, DW_OK); /* a key frame */
    size_t len;
    uint8_t sync[2048];
    if (dw_encoder_resync(g.pair.encoder, g.keys, 1, sync, sizeof sync, &len)) failures++;
    deliver(&g, sync, len, DW_OK);
    free(copy);
    free(lost);
    finish(&g);
}

/* The new prev is base + change, first rounded to binary32 and then to bf16. Here the exact sum
 * lies just above the middle between two bf16, but in binary32 exactly on it, so that it makes a
 * difference whether binary32 comes first. The numbers: 261/256 = 9 * 29/256 is half way between
 * two bf16; the base 2^-30 vanishes beside it; the value 127 * 29/256 makes 29/256 the scale. */
static void rounded_twice(const char *directory, int check)
{
    golden g =
        begin(directory, check, "rounded_twice",
              "delta:bits=8,scale=absmax,key=raw,prev=bf16,choose=never", DW_F32, DW_F32, 1, 1, 16);
    memset(g.data, 0, 16 * sizeof *g.data);
    g.data[1] = 0x1p-30f;
    encode_and_send(&g);
    g.data[0] = 127 * 29 / 256.0f;
    g.data[1] = 261 / 256.0f;
    encode_and_send(&g);
    finish(&g);
}

/* Frames arrive when their key was forgotten or dropped: for the second time, or late for the first
 * time. */
static void dropped(const char *directory, int check)
{
    golden g = begin(directory, check, "dropped", "delta:bits=4", DW_F32, DW_F32, 1, 1, 64);
    uint8_t first[4096], late[4096], copy[4096];
    size_t first_len, late_len;
    dw_key key = g.keys[0];
    fill(&g, 1, 1, 0);
    encode(&g);
    memcpy(first, g.pair.frame, first_len = g.pair.len);
    send(&g, DW_OK);
    g.keys[0].sample = 5;
    encode(&g);
    memcpy(late, g.pair.frame, late_len = g.pair.len);
    dw_encoder_forget(g.pair.encoder, key);
    g.keys[0].sample = 6;
    encode(&g);
    send(&g, DW_OK); /* announces that the first key is forgotten */
    deliver(&g, first, first_len, DW_ERR_STALE);
    deliver(&g, late, late_len, DW_ERR_STALE); /* never seen, but sent before the announcement */
    test_pair_feedback(&g.pair);
    g.keys[0].sample = 5;
    encode_and_send(&g);
    memcpy(first, g.pair.frame, first_len = g.pair.len);
    fill(&g, 2, 1, 0);
    encode(&g);
    memcpy(copy, g.pair.frame, g.pair.len);
    copy[ENTRY + 40] ^= 1; /* the state digest */
    test_seal_tables(copy, g.pair.len);
    deliver(&g, copy, g.pair.len, DW_ERR_STATE); /* the decoder drops its base */
    deliver(&g, first, first_len, DW_ERR_STALE); /* and the older frame does not restore it */
    test_pair_feedback(&g.pair);
    encode_and_send(&g);
    finish(&g);
}

static void lives(const char *directory, int check)
{
    golden g = begin(directory, check, "lives", "delta:bits=3,prev=bf16", DW_F32, DW_F32, 1, 1, 64);
    fill(&g, 1, 1, 0);
    encode_and_send(&g);
    uint8_t old[4096];
    size_t old_len;
    fill(&g, 2, 1, 0);
    encode(&g);
    memcpy(old, g.pair.frame, old_len = g.pair.len);
    dw_encoder_destroy(g.pair.encoder); /* the encoder is created anew: another incarnation */
    g.pair.config.incarnation = 77;
    if (dw_encoder_create(&g.pair.encoder, &g.pair.config)) failures++;
    use_kernels(&g);
    fill(&g, 3, 1, 0);
    encode_and_send(&g);
    deliver(&g, old, old_len, DW_ERR_STALE); /* from an incarnation that was replaced */
    dw_encoder_forget(g.pair.encoder, g.keys[0]);
    g.keys[0].sample = 5;
    encode(&g);
    g.keys[0].sample = 1000;
    send(&g, DW_OK); /* announces that the first key is forgotten, because its prev was dropped */
    encode_and_send(&g);
    finish(&g);
}

/* A frame of role skip, which leaves prev as it is, the same frame again, and then one with a wrong
 * base. */
static void skipped(const char *directory, int check)
{
    uint8_t frame[512];
    golden g = begin(directory, check, "skip", "delta:bits=4,audit=2,prev=f16", DW_F32, DW_BF16, 1,
                     3, 2048);
    fill(&g, 1, 1, 0);
    encode_and_send(&g);
    size_t len = test_skip_frame(g.pair.frame, g.pair.decoder, frame, sizeof frame);
    deliver(&g, frame, len, DW_OK);
    deliver(&g, frame, len, DW_ERR_STALE);
    frame[80 + 6 * 8 + 16] ^= 1; /* another base, in a frame with a later sequence */
    frame[16] += 1;
    test_seal_tables(frame, len);
    deliver(&g, frame, len, DW_ERR_BASE);
    finish(&g);
}

/* Key entries that exceed the limit are sent in as few bits as a delta; then stateless ones. */
static void brief(const char *directory, int check)
{
    golden g = begin(directory, check, "brief", "delta:bits=3,group=32", DW_F32, DW_F32, 2, 2, 64);
    fill(&g, 1, 1, 0);
    dw_tensor x = dw_tensor_3d(g.data, g.x, g.n, g.t, g.c);
    dw_encode_options options = {.struct_size = sizeof options,
                                 .limit = 80 + 6 * 8 + 2 * 48 + 64 + 144};
    if (dw_encode_with(g.pair.encoder, g.keys, &x, &options, g.pair.frame, g.pair.cap, &g.pair.len))
        failures++;
    send(&g, DW_OK);
    options.limit = 0;
    options.stateless = 1;
    if (dw_encode_with(g.pair.encoder, NULL, &x, &options, g.pair.frame, g.pair.cap, &g.pair.len))
        failures++;
    send(&g, DW_OK);
    finish(&g);
}

int main(int argc, char **argv)
{
    if (!test_can_run()) return 77;
    int check = (argc == 3 || argc == 4) && strcmp(argv[1], "--check") == 0;
    if (argc != 2 && !check) {
        fprintf(stderr, "usage: make_golden DIR, or make_golden --check DIR [KERNELS]\n");
        return 2;
    }
    const char *d = argv[check ? 2 : 1];
    if (argc == 4 && !(kernels = dw_kernels_find(argv[3]))) return 77;
    for (size_t i = 0; i < sizeof golden_cases / sizeof *golden_cases; i++)
        good(d, check, &golden_cases[i]);
    for (size_t i = 0; i < sizeof golden_ties / sizeof *golden_ties; i++)
        ties(d, check, golden_ties[i][0], golden_ties[i][1]);
    for (size_t i = 0; i < sizeof golden_coded / sizeof *golden_coded; i++)
        coded(d, check, &golden_coded[i].of, golden_coded[i].epochs);
    step_ties(d, check);
    step_sums(d, check);
    bad_bytes(d, check);
    bad_mx(d, check);
    bad_step(d, check);
    out_of_step(d, check);
    dropped(d, check);
    lives(d, check);
    rounded_twice(d, check);
    skipped(d, check);
    brief(d, check);
    printf("%d failures\n", failures);
    return failures ? 1 : 0;
}
