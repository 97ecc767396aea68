/* SPDX-License-Identifier: Apache-2.0
 * golden.c - makes a golden file: sends frames from an encoder to a decoder, and writes down what
 * each of them must give. */
#include "golden.h"

#include <stdarg.h>

#include "golden_status.h"
#include "support/seal.h"
#include "wire/bytes.h"
#include "wire/frame.h"

int golden_failures;
const dw_kernels *golden_kernels;

void golden_use_kernels(golden *g)
{
    dw_encoder_use(g->pair.encoder, golden_kernels);
    dw_decoder_use(g->pair.decoder, golden_kernels);
}

/* Appends text to the file, at most 1023 characters. The arguments are those of printf. */
static void emit(golden *g, const char *format, ...)
{
    va_list arguments;
    if (g->cap - g->len < 1024) g->text = realloc(g->text, g->cap = 2 * g->cap + 4096);
    va_start(arguments, format);
    g->len += (size_t)vsnprintf(g->text + g->len, g->cap - g->len, format, arguments);
    va_end(arguments);
}

/* Appends a field with bytes in hexadecimal. */
static void emit_hex(golden *g, const char *name, const void *data, size_t len)
{
    emit(g, "\"%s\": \"", name);
    for (size_t i = 0; i < len; i++) emit(g, "%02x", ((const uint8_t *)data)[i]);
    emit(g, "\"");
}

/* Appends a field with n floats in hexadecimal, as in frames: each with its low byte first,
 * whatever the byte order of this machine is. */
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

/* Appends a comma, unless this is the first element of a list. Returns false, the next value of
 * `first`. */
static bool comma(golden *g, bool first)
{
    if (!first) emit(g, ", ");
    return false;
}

/* Appends the beginning of a golden file: the parameters of the frame, with their names from
 * docs/format.md, 1.2; the list `own` of those that depend on the dtype of x; and the config. */
static void emit_config(golden *g, const uint8_t *frame)
{
    static const char *const codecs[] = {"",      "delta",    "direct", "raw",     "mx",  "topk",
                                         "randk", "cocktail", "chunk",  "lowrank", "tah", "blocks"};
    static const char *const names[256] = {
        [1] = "bits",      [2] = "group",  [4] = "rounding", [6] = "key",    [7] = "dtype",
        [8] = "prev",      [9] = "choose", [11] = "audit",   [14] = "form",  [15] = "element",
        [18] = "entropy",  [26] = "keep",  [28] = "mask",    [29] = "chunk", [32] = "transform",
        [33] = "rotate",   [34] = "tile",  [36] = "share",   [37] = "rank",  [40] = "width",
        [41] = "codebook", [42] = "block", [44] = "project"};
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
    bool has_nested_rows = config->codec == DW_CODEC_TOPK || config->codec == DW_CODEC_RANDK ||
                           config->codec == DW_CODEC_LOWRANK;
    bool sends_floats =
        config->codec == DW_CODEC_RAW || (has_nested_rows && !config->bits && !config->element);
    if (sends_floats && !config->raw) first = comma(g, first), emit(g, "\"dtype\"");
    emit(g, "]},\n \"encoder\": \"%s\",\n \"steps\": [\n", g->encoder);
}

golden golden_begin(const char *directory, bool check, const char *name, const char *config,
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
    golden_use_kernels(&g);
    for (uint32_t i = 0; i < n; i++) g.keys[i] = (dw_key){1000 + i, i};
    g.data = malloc((size_t)n * t * c * 4);
    return g;
}

void golden_fill(golden *g, uint64_t seed, float size, int non_finite)
{
    test_random random = {seed};
    size_t n = (size_t)g->n * g->t * g->c;
    test_fill(&random, g->data, g->x, n, size);
    if (non_finite) test_spoil(&random, g->data, g->x, n, non_finite > 1);
}

void golden_encode(golden *g)
{
    dw_tensor x = dw_tensor_3d(g->data, g->x, g->n, g->t, g->c);
    test_pair_encode(&g->pair, g->keys, &x);
}

/* Appends the prev that the decoder holds of each key; it is empty where it holds none. */
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

void golden_deliver(golden *g, const uint8_t *frame, size_t len, dw_status expected)
{
    size_t elements = (size_t)g->frame_n * g->frame_t * g->frame_c;
    void *out = calloc(elements, 4);
    dw_tensor y = dw_tensor_3d(out, g->y, g->frame_n, g->frame_t, g->frame_c);
    dw_status status = dw_decode(g->pair.decoder, frame, len, &y, g->pair.reply, g->pair.reply_cap,
                                 &g->pair.reply_len);
    if (status != expected) {
        printf("%s, step %d: %s, expected %s: %s\n", g->name, g->steps, golden_status(status),
               golden_status(expected), dw_decoder_why(g->pair.decoder));
        golden_failures++;
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

void golden_send(golden *g, dw_status expected)
{
    golden_deliver(g, g->pair.frame, g->pair.len, expected);
}

void golden_encode_and_send(golden *g)
{
    golden_encode(g);
    golden_send(g, DW_OK);
}

void golden_send_with(golden *g, size_t at, uint8_t value, int sealed, dw_status expected)
{
    uint8_t *copy = malloc(g->pair.len);
    if (!copy) abort();
    memcpy(copy, g->pair.frame, g->pair.len);
    copy[at] = value;
    if (sealed) test_seal_tables(copy, g->pair.len);
    golden_deliver(g, copy, g->pair.len, expected);
    free(copy);
}

void golden_send_cut(golden *g, size_t len, dw_status expected)
{
    uint8_t *copy = malloc(g->pair.len + 16);
    memset(copy, 0, g->pair.len + 16);
    memcpy(copy, g->pair.frame, g->pair.len);
    golden_deliver(g, copy, len, expected);
    free(copy);
}

void golden_finish(golden *g)
{
    char path[512];
    emit(g, "\n]}\n");
    snprintf(path, sizeof path, "%s/%s.json", g->directory, g->name);
    FILE *file = fopen(path, g->check ? "rb" : "wb");
    if (!file) {
        printf("cannot open %s\n", path);
        golden_failures++;
    } else if (g->check) {
        char *there = calloc(1, g->len + 1);
        size_t got = fread(there, 1, g->len + 1, file);
        if (got != g->len || memcmp(there, g->text, got) != 0) {
            printf("%s: the results of this build differ\n", path);
            golden_failures++;
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
