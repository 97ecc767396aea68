/* SPDX-License-Identifier: Apache-2.0
 * gpu_golden.c - reads golden files as text, relying on the order in which make_golden writes their
 * fields. */
#include "gpu_golden.h"

#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/async.h"
#include "support/profiles.h"

enum { MOST_SAMPLES = 4 };

typedef struct golden {
    gpu *g;
    const char *path;
    char *text, *at; /* at: after what was read last */
    dw_config config;
    dw_encoder *encoder;
    dw_decoder *decoder;
    int step;
} golden;

/* Bytes of a field, or '#' and their digest; data is the reader's to free. */
typedef struct field {
    uint8_t *data;
    size_t len;
    bool is_digest;
    uint64_t digest;
} field;

/* ---- Reading --------------------------------------------------------------------------------- */

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    gpu_expect(file != NULL, "cannot open %s", path);
    size_t cap = (size_t)1 << 20;
    char *text = malloc(cap);
    gpu_expect(text != NULL, "no memory for %s", path);
    size_t len = fread(text, 1, cap - 1, file);
    gpu_expect(len + 1 < cap, "%s is larger than any golden file", path);
    text[len] = '\0';
    fclose(file);
    return text;
}

/* Moves to the value of the next "name": and returns whether there is one. */
static bool find(golden *d, const char *name)
{
    char quoted[32];
    snprintf(quoted, sizeof quoted, "\"%s\": ", name);
    char *found = strstr(d->at, quoted);
    if (found) d->at = found + strlen(quoted);
    return found != NULL;
}

static uint32_t number(golden *d, const char *name)
{
    gpu_expect(find(d, name), "%s: no %s", d->path, name);
    return (uint32_t)strtoul(d->at, &d->at, 10);
}

static void word(golden *d, const char *name, char *to, size_t cap)
{
    gpu_expect(find(d, name) && *d->at == '"', "%s: no %s", d->path, name);
    size_t len = strcspn(d->at + 1, "\"");
    gpu_expect(len < cap, "%s: %s is too long", d->path, name);
    memcpy(to, d->at + 1, len);
    to[len] = '\0';
    d->at += len + 2;
}

static dw_dtype dtype(golden *d, const char *name)
{
    char text[8];
    word(d, name, text, sizeof text);
    return !strcmp(text, "f32") ? DW_F32 : !strcmp(text, "f16") ? DW_F16 : DW_BF16;
}

static field bytes(golden *d, const char *name)
{
    gpu_expect(find(d, name) && *d->at == '"', "%s: no %s", d->path, name);
    const char *hex = d->at + 1;
    size_t letters = strcspn(hex, "\"");
    field f = {.is_digest = *hex == '#'};
    if (f.is_digest)
        f.digest = strtoull(hex + 1, NULL, 16);
    else
        f.len = letters / 2;
    f.data = malloc(f.len + 1);
    gpu_expect(f.data != NULL, "no memory for %s", d->path);
    for (size_t i = 0; i < f.len; i++) {
        const char digits[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        f.data[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    d->at += letters + 2;
    return f;
}

/* FNV-1a of 64 bits, as in tests/wire/golden_digest.h. */
static uint64_t digest_of(const uint8_t *data, size_t n)
{
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++) digest = (digest ^ data[i]) * UINT64_C(0x100000001b3);
    return digest;
}

/* x, whose elements are repeated until it has len bytes. */
static field repeated(field told, size_t len)
{
    field x = {.data = malloc(len), .len = len};
    gpu_expect(x.data != NULL, "no memory for x");
    for (size_t i = 0; i < len; i++) x.data[i] = told.data[i % told.len];
    free(told.data);
    return x;
}

/* ---- One file -------------------------------------------------------------------------------- */

static void same(const golden *d, const char *what, field expected, const uint8_t *found,
                 size_t len)
{
    if (expected.is_digest) {
        gpu_expect(digest_of(found, len) == expected.digest, "%s, step %d: %s differs", d->path,
                   d->step, what);
        return;
    }
    gpu_expect(expected.len == len, "%s, step %d: %s: %zu bytes, golden are %zu", d->path, d->step,
               what, len, expected.len);
    for (size_t i = 0; i < len; i++)
        gpu_expect(expected.data[i] == found[i],
                   "%s, step %d: %s: byte %zu of %zu is %02x, golden is %02x", d->path, d->step,
                   what, i, len, found[i], expected.data[i]);
}

static void *on_device(field f)
{
    void *memory = gpu_allocate(f.len + 16);
    if (f.len) gpu_put(memory, f.data, f.len);
    return memory;
}

static void check_encode(const golden *d, const dw_key *keys, dw_tensor x, field golden_x,
                         field frame)
{
    size_t cap = dw_frame_bound(&d->config, &x), head_len, len;
    uint8_t *found = malloc(cap);
    void *made = gpu_allocate(cap), *device_x = x.data = on_device(golden_x);
    dw_encode_ticket *ticket;
    gpu_expect(found != NULL, "no memory for a frame");
    dw_status status = test_encode_async(d->encoder, keys, &x, made, cap, d->g->stream, &ticket);
    gpu_expect(status == DW_OK, "%s: %s", d->path, dw_encoder_why(d->encoder));
    uint8_t *head = malloc(dw_frame_head_bound(MOST_SAMPLES));
    do status = dw_encode_finish(ticket, head, dw_frame_head_bound(MOST_SAMPLES), &head_len, &len);
    while (status == DW_PENDING);
    gpu_expect(status == DW_OK, "%s: %s", d->path, dw_encoder_why(d->encoder));
    gpu_get(found, made, len);
    memcpy(found, head, head_len);
    same(d, "frame", frame, found, len);
    free(head);
    free(found);
    gpu_free(made);
    gpu_free(device_x);
}

static void check_decode(const golden *d, field frame, dw_tensor y, field golden_y, field reply)
{
    size_t y_len = (size_t)y.n * y.t * y.c * dw_dtype_bytes(y.dtype);
    uint8_t *found = malloc(y_len), answer[4096];
    void *payloads = on_device(frame), *device_y = y.data = gpu_allocate(y_len);
    size_t reply_len, head_len = frame.len < dw_frame_head_bound(MOST_SAMPLES)
                                     ? frame.len
                                     : dw_frame_head_bound(MOST_SAMPLES);
    dw_decode_ticket *ticket;
    gpu_expect(found != NULL, "no memory for y");
    dw_status status = test_decode_async(d->decoder, frame.data, head_len, payloads, frame.len, &y,
                                         d->g->stream, &ticket);
    gpu_expect(status == DW_OK, "%s: %s", d->path, dw_decoder_why(d->decoder));
    do status = dw_decode_finish(ticket, answer, sizeof answer, &reply_len);
    while (status == DW_PENDING);
    gpu_expect(status == DW_OK, "%s: %s", d->path, dw_decoder_why(d->decoder));
    gpu_get(found, device_y, y_len);
    same(d, "y", golden_y, found, y_len);
    same(d, "reply", reply, answer, reply_len);
    if (reply_len)
        gpu_expect(dw_encoder_take_reply(d->encoder, answer, reply_len) == DW_OK, "%s: %s", d->path,
                   dw_encoder_why(d->encoder));
    free(found);
    gpu_free(payloads);
    gpu_free(device_y);
}

/* Compares the prev of every key with the next fields of the file. */
static void check_prev(golden *d, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        dw_key key = {.sample = number(d, "sample"), .slice = number(d, "slice")};
        field bits = bytes(d, "bits");
        dw_tensor prev = {0};
        bool held = dw_decoder_peek(d->decoder, key, &prev) == DW_OK;
        size_t len = held ? (size_t)prev.t * prev.c * dw_dtype_bytes(prev.dtype) : 0;
        uint8_t *found = malloc(len + 1);
        gpu_expect(found != NULL, "no memory for prev");
        if (held) gpu_get(found, prev.data, len);
        same(d, "prev", bits, found, len);
        free(found);
        free(bits.data);
    }
}

static void check_step(golden *d, bool has_state)
{
    dw_dtype x_dtype = dtype(d, "x_dtype");
    field x = bytes(d, "x"), frame = bytes(d, "frame");
    uint32_t n = number(d, "n"), t = number(d, "t"), c = number(d, "c");
    dw_dtype y_dtype = dtype(d, "y_dtype");
    x = repeated(x, (size_t)n * t * c * dw_dtype_bytes(x_dtype));
    field y = bytes(d, "y"), reply = bytes(d, "reply");
    dw_key keys[MOST_SAMPLES];
    gpu_expect(n <= MOST_SAMPLES, "%s: %u samples", d->path, (unsigned)n);
    for (uint32_t i = 0; i < n; i++)
        keys[i] = (dw_key){.sample = 1000 + i, .slice = i}; /* make_golden's */
    check_encode(d, keys, dw_tensor_3d(NULL, x_dtype, n, t, c), x, frame);
    check_decode(d, frame, dw_tensor_3d(NULL, y_dtype, n, t, c), y, reply);
    if (has_state) check_prev(d, n);
    free(x.data);
    free(frame.data);
    free(y.data);
    free(reply.data);
    d->step++;
}

/* 1: checked; 0: there are no GPU kernels for it; -1: the file has only frames. */
static int check_file(golden *d)
{
    char config_text[192];
    dw_why why = {.text = ""};
    word(d, "encoder", config_text, sizeof config_text);
    char *steps = d->at;
    if (!find(d, "x_dtype")) return -1;
    d->at = steps;
    gpu_expect(dw_config_parse(&d->config, config_text, &why) == DW_OK, "%s: %s", d->path,
               why.text);
    uint32_t means;
    if (d->config.profile_digest)
        d->config.profile = test_profile_find(d->config.profile_digest, &means);
    dw_host host = {.struct_size = sizeof host, .cuda = d->g->cuda};
    dw_status made = dw_encoder_create(&d->encoder, &d->config, &host, &why);
    gpu_expect(made == DW_OK || made == DW_ERR_UNSUPPORTED, "%s: %s", d->path, why.text);
    gpu_expect(dw_decoder_create(&d->decoder, &d->config, &host, &why) == made, "%s: one end only",
               d->path);
    if (made != DW_OK) return 0;
    for (char *next = strstr(steps, "\"x_dtype\""); next; next = strstr(d->at, "\"x_dtype\""))
        check_step(d, d->config.codec == DW_CODEC_DELTA);
    dw_encoder_destroy(d->encoder);
    dw_decoder_destroy(d->decoder);
    return 1;
}

void gpu_golden(gpu *g, const char *directory)
{
    char pattern[512];
    glob_t files;
    int checked = 0, without = 0;
    snprintf(pattern, sizeof pattern, "%s/*.json", directory);
    gpu_expect(glob(pattern, 0, NULL, &files) == 0, "no golden frames in %s", directory);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        golden d = {.g = g, .path = files.gl_pathv[i], .text = read_file(files.gl_pathv[i])};
        d.at = d.text;
        int outcome = check_file(&d);
        checked += outcome > 0;
        without += outcome == 0;
        free(d.text);
    }
    globfree(&files);
    gpu_expect(checked > 0, "no golden frame in %s tells what was encoded", directory);
    printf("same\tgolden frames\t%d files; no kernels for %d\n", checked, without);
    fflush(stdout);
}
