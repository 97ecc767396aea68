/* SPDX-License-Identifier: Apache-2.0
 * golden.c - makes a golden file: sends frames from an encoder to a decoder, and writes down what
 * each of them must give. */
#include "golden.h"

#include <inttypes.h>
#include <stdarg.h>

#include "golden_digest.h"
#include "golden_status.h"
#include "support/seal.h"

int golden_failures;
const char *golden_directory;
bool golden_checks;
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

/* Appends a field of bytes, or of their digest if they are more than `most`. */
static void emit_bytes(golden *g, const char *name, const uint8_t *bytes, size_t n, size_t most)
{
    emit(g, "\"%s\": \"", name);
    if (n > most) emit(g, "#%016" PRIx64, golden_digest(bytes, n));
    for (size_t i = 0; i < n && n <= most; i++) emit(g, "%02x", bytes[i]);
    emit(g, "\"");
}

/* Appends a field of n elements as they are in frames: each with its low byte first, whatever the
 * byte order of this machine is. */
static void emit_floats(golden *g, const char *name, const void *data, size_t n, dw_dtype dtype,
                        size_t most)
{
    size_t size = dw_dtype_bytes(dtype);
    uint8_t *bytes = malloc(n * size + 1);
    if (!bytes) abort();
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = size == 4 ? ((const uint32_t *)data)[i] : ((const uint16_t *)data)[i];
        for (size_t k = 0; k < size; k++) bytes[i * size + k] = (uint8_t)(bits >> 8 * k);
    }
    emit_bytes(g, name, bytes, n * size, most);
    free(bytes);
}

static const char *dtype_name(dw_dtype dtype)
{
    return dtype == DW_F32 ? "f32" : dtype == DW_F16 ? "f16" : "bf16";
}

golden golden_begin(const char *name, const char *config, dw_dtype x, dw_dtype y, uint32_t n,
                    uint32_t t, uint32_t c)
{
    char with_life[160];
    golden g = {.name = name,
                .x = x,
                .y = y,
                .n = n,
                .t = t,
                .c = c,
                .frame_n = n,
                .frame_t = t,
                .frame_c = c,
                .told = (size_t)n * t * c};
    snprintf(with_life, sizeof with_life, "%s%sincarnation=81985529216486895", config,
             strchr(config, ':') ? "," : ":");
    test_pair_open(&g.pair, with_life, n, t, c, x);
    golden_use_kernels(&g);
    for (uint32_t i = 0; i < n; i++) g.keys[i] = (dw_key){1000 + i, i};
    g.data = malloc(g.told * 4);
    emit(&g, "{\"encoder\": \"%s\",\n \"steps\": [\n", with_life);
    return g;
}

void golden_repeat(golden *g)
{
    size_t size = dw_dtype_bytes(g->x), all = (size_t)g->n * g->t * g->c;
    uint8_t *data = (uint8_t *)g->data;
    if (g->n * g->t == 1 || all <= GOLDEN_TOLD) return;
    g->told = GOLDEN_TOLD;
    for (size_t i = g->told; i < all; i++)
        memcpy(data + i * size, data + (i - g->told) * size, size);
}

void golden_fill(golden *g, uint64_t seed, float size, int non_finite)
{
    test_random random = {seed};
    size_t n = (size_t)g->n * g->t * g->c;
    test_fill(&random, g->data, g->x, n, size);
    if (non_finite)
        test_spoil(&random, g->data, g->x, n < GOLDEN_TOLD ? n : GOLDEN_TOLD, non_finite > 1);
    golden_repeat(g);
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
        emit_floats(g, "bits", prev.data, held ? (size_t)prev.t * prev.c : 0, prev.dtype,
                    GOLDEN_WHOLE);
        emit(g, "}");
    }
    emit(g, "]");
}

void golden_deliver(golden *g, const uint8_t *frame, size_t len, dw_status expected)
{
    size_t elements = (size_t)g->frame_n * g->frame_t * g->frame_c;
    void *out = calloc(elements, 4);
    dw_tensor y = dw_tensor_3d(out, g->y, g->frame_n, g->frame_t, g->frame_c);
    dw_status status = dw_decode(g->pair.decoder, frame, len, &y, NULL, g->pair.reply,
                                 g->pair.reply_cap, &g->pair.reply_len);
    if (status != expected) {
        printf("%s, step %d: %s, expected %s: %s\n", g->name, g->steps, golden_status(status),
               golden_status(expected), dw_decoder_why(g->pair.decoder));
        golden_failures++;
    }
    emit(g, g->steps++ ? ",\n{" : "{");
    if (g->tells_x) {
        emit(g, "\"x_dtype\": \"%s\", ", dtype_name(g->x));
        emit_floats(g, "x", g->data, g->told, g->x, SIZE_MAX);
        emit(g, ", ");
    }
    emit_bytes(g, "frame", frame, len, SIZE_MAX);
    emit(g, ", \"n\": %u, \"t\": %u, \"c\": %u, \"y_dtype\": \"%s\", \"status\": \"%s\", ",
         (unsigned)g->frame_n, (unsigned)g->frame_t, (unsigned)g->frame_c, dtype_name(g->y),
         golden_status(expected));
    emit_floats(g, "y", out, status ? 0 : elements, g->y, GOLDEN_WHOLE);
    emit(g, ", ");
    emit_bytes(g, "reply", g->pair.reply, g->pair.reply_len, SIZE_MAX);
    emit(g, ", ");
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

void golden_send_with(golden *g, size_t at, uint8_t value, bool sealed, dw_status expected)
{
    uint8_t *copy = malloc(g->pair.len);
    if (!copy) abort();
    memcpy(copy, g->pair.frame, g->pair.len);
    copy[at] = value;
    if (sealed) test_seal(copy, g->pair.len);
    golden_deliver(g, copy, g->pair.len, expected);
    free(copy);
}

void golden_send_cut(golden *g, size_t len, dw_status expected)
{
    uint8_t *copy = calloc(1, g->pair.len + 16);
    if (!copy) abort();
    memcpy(copy, g->pair.frame, g->pair.len);
    golden_deliver(g, copy, len, expected);
    free(copy);
}

/* Compares the file that is there, and names the step and the field of the first difference. */
static void compare(const golden *g, FILE *file, const char *path)
{
    char *there = calloc(1, g->len + 1);
    size_t got = fread(there, 1, g->len + 1, file), at = 0;
    int step = -2; /* two lines come before that of the first step */
    for (; at < got && at < g->len && there[at] == g->text[at]; at++) step += there[at] == '\n';
    if (at != got || at != g->len) {
        while (at > 2 && strncmp(g->text + at - 2, "\":", 2) != 0) at--;
        size_t end = at > 2 ? at - 2 : 0, begin = end;
        while (begin > 0 && g->text[begin - 1] != '"') begin--;
        printf("%s, step %d: %.*s of this build differs\n", path, step, (int)(end - begin),
               g->text + begin);
        golden_failures++;
    }
    free(there);
}

void golden_finish(golden *g)
{
    char path[512];
    emit(g, "\n]}\n");
    snprintf(path, sizeof path, "%s/%s.json", golden_directory, g->name);
    FILE *file = fopen(path, golden_checks ? "rb" : "wb");
    if (!file) {
        printf("cannot open %s\n", path);
        golden_failures++;
    } else if (golden_checks) {
        compare(g, file, path);
        fclose(file);
    } else {
        fwrite(g->text, 1, g->len, file);
        fclose(file);
    }
    test_pair_close(&g->pair);
    free(g->data);
    free(g->text);
}
