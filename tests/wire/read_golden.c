/* SPDX-License-Identifier: Apache-2.0
 * read_golden.c - gives the frames of golden files to the library's decoder and to the model of
 * docs/format.md in tests/fuzz/, which knows nothing of the library, and compares the status, y,
 * reply and prev of both with those of the files.
 *
 * read_golden DIR reads every DIR/NAME.json. golden.h says what they contain. The files are read as
 * plain text, relying on the order in which make_golden writes the fields. */
#include <glob.h>

#include "fuzz/model.h"
#include "golden_digest.h"
#include "golden_status.h"
#include "support/profiles.h"
#include "support/tool.h"

typedef struct golden {
    const char *path;
    char *at; /* the position after what was read last */
    int step;
    dw_decoder *decoder;
    model model;
} golden;

/* Bytes, or their digest. */
typedef struct field {
    uint8_t *data;
    size_t len;
    bool is_digest;
    uint64_t digest;
} field;

/* What one of the two decoders makes of a frame. */
typedef struct outcome {
    const char *who;
    dw_status status;
    const char *why;
    uint8_t *y, reply[512];
    size_t reply_len;
} outcome;

static int failures, steps;

static void complain(const golden *g, const char *who, const char *what)
{
    printf("%s, step %d: %s: %s\n", g->path, g->step, who, what);
    failures++;
}

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) abort();
    long len = ftell(file);
    char *text = malloc((size_t)len + 1);
    rewind(file);
    if (!text || fread(text, 1, (size_t)len, file) != (size_t)len) abort();
    text[len] = '\0';
    fclose(file);
    return text;
}

/* The text after the next "name":, or NULL if there is none before `end` (NULL: the end of the
 * file). */
static char *find(const golden *g, const char *name, const char *end)
{
    char quoted[32];
    snprintf(quoted, sizeof quoted, "\"%s\": ", name);
    char *found = strstr(g->at, quoted);
    return found && (!end || found < end) ? found + strlen(quoted) : NULL;
}

static char *must_find(golden *g, const char *name)
{
    g->at = find(g, name, NULL);
    if (g->at) return g->at;
    printf("%s: no %s\n", g->path, name);
    exit(1);
}

static uint64_t number(golden *g, const char *name)
{
    return strtoull(must_find(g, name), &g->at, 10);
}

static void word(golden *g, const char *name, char *to, size_t cap)
{
    char *from = must_find(g, name) + 1;
    size_t len = strcspn(from, "\"");
    if (len >= cap) abort();
    memcpy(to, from, len);
    to[len] = '\0';
    g->at = from + len + 1;
}

/* Reads bytes that are written in hexadecimal; the caller frees the data. The buffer has exactly
 * len bytes, so that sanitizers detect reads past the end of a frame. */
static field bytes(golden *g, const char *name)
{
    const char *hex = must_find(g, name) + 1;
    size_t letters = strcspn(hex, "\"");
    field f = {.is_digest = *hex == '#'};
    if (f.is_digest)
        f.digest = strtoull(hex + 1, NULL, 16);
    else
        f.len = letters / 2;
    f.data = malloc(f.len ? f.len : 1);
    if (!f.data) abort();
    for (size_t i = 0; i < f.len; i++) {
        char digits[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        f.data[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    g->at += letters + 2;
    return f;
}

/* Compares n elements in memory with those of a file, where the low byte comes first. */
static bool same_floats(const void *data, size_t n, dw_dtype dtype, field wanted)
{
    size_t size = dw_dtype_bytes(dtype);
    uint8_t *found = malloc(n * size + 1);
    if (!found) abort();
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = size == 4 ? ((const uint32_t *)data)[i] : ((const uint16_t *)data)[i];
        for (size_t k = 0; k < size; k++) found[i * size + k] = (uint8_t)(bits >> 8 * k);
    }
    bool same = wanted.is_digest
                    ? golden_digest(found, n * size) == wanted.digest
                    : wanted.len == n * size && memcmp(found, wanted.data, n * size) == 0;
    free(found);
    return same;
}

/* y of a refused frame must be unchanged: all bytes are SPOILT. */
enum { SPOILT = 0xa5 };

static void check_outcome(const golden *g, const outcome *o, const char *status, dw_tensor y,
                          field wanted, field reply)
{
    size_t n = (size_t)y.n * y.t * y.c, len = n * dw_dtype_bytes(y.dtype), changed = 0;
    if (strcmp(status, golden_status(o->status)) != 0) {
        printf("%s, step %d: %s: %s, specified %s: %s\n", g->path, g->step, o->who,
               golden_status(o->status), status, o->why);
        failures++;
    }
    for (size_t i = 0; i < len; i++) changed += o->y[i] != SPOILT;
    if (o->status == DW_OK && !same_floats(o->y, n, y.dtype, wanted))
        complain(g, o->who, "y differs");
    if (o->status != DW_OK && changed) complain(g, o->who, "y of a refused frame was written");
    if (reply.len != o->reply_len || memcmp(reply.data, o->reply, reply.len) != 0)
        complain(g, o->who, "the reply differs");
}

/* Checks the prev of every key that the step names. */
static void check_prev(golden *g)
{
    const char *next = find(g, "frame", NULL);
    while (find(g, "sample", next)) {
        dw_key key = {.sample = number(g, "sample")};
        dw_tensor prev = {0};
        key.slice = (uint32_t)number(g, "slice");
        field bits = bytes(g, "bits");
        if (dw_decoder_peek(g->decoder, key, &prev)) prev = (dw_tensor){.dtype = DW_F16};
        if (!same_floats(prev.data, (size_t)prev.t * prev.c, prev.dtype, bits))
            complain(g, "library", "prev differs");
        const model_held *held = model_find(&g->model, key);
        if (!same_floats(held ? held->prev : NULL, held ? (size_t)held->t * held->c : 0,
                         held ? (dw_dtype)held->dtype : DW_F16, bits))
            complain(g, "model", "prev differs");
        free(bits.data);
    }
}

static void check_step(golden *g)
{
    char name[16];
    field frame = bytes(g, "frame");
    uint32_t n = (uint32_t)number(g, "n"), t = (uint32_t)number(g, "t");
    uint32_t c = (uint32_t)number(g, "c");
    word(g, "y_dtype", name, sizeof name);
    dw_dtype dtype = !strcmp(name, "f32") ? DW_F32 : !strcmp(name, "f16") ? DW_F16 : DW_BF16;
    size_t len = (size_t)n * t * c * dw_dtype_bytes(dtype);
    outcome library = {.who = "library", .y = malloc(len)};
    outcome second = {.who = "model", .why = "", .y = malloc(len)};
    if (!library.y || !second.y) abort();
    memset(library.y, SPOILT, len);
    memset(second.y, SPOILT, len);
    dw_tensor y = dw_tensor_3d(library.y, dtype, n, t, c), modelled = y;
    modelled.data = second.y;
    library.status = dw_decode(g->decoder, frame.data, frame.len, &y, NULL, library.reply,
                               sizeof library.reply, &library.reply_len);
    library.why = dw_decoder_why(g->decoder);
    model_answer answer = model_decode(&g->model, frame.data, frame.len, &modelled, NULL,
                                       second.reply, sizeof second.reply);
    second.status = answer.status;
    second.reply_len = answer.reply_len;
    word(g, "status", name, sizeof name);
    field wanted = bytes(g, "y"), reply = bytes(g, "reply");
    check_outcome(g, &library, name, y, wanted, reply);
    check_outcome(g, &second, name, y, wanted, reply);
    check_prev(g);
    free(library.y);
    free(second.y);
    free(frame.data);
    free(wanted.data);
    free(reply.data);
    g->step++;
    steps++;
}

static void check_file(const char *path)
{
    char *text = read_file(path), config_text[DW_CONFIG_TEXT_BYTES];
    golden g = {.path = path, .at = text};
    dw_config config;
    dw_why why = {.text = ""};
    word(&g, "encoder", config_text, sizeof config_text);
    dw_status status = dw_config_parse(&config, config_text, &why);
    if (!status && config.profile_digest)
        config.profile = test_profile_find(config.profile_digest, &(uint32_t){0});
    if (status || dw_decoder_create(&g.decoder, &config, NULL, &why)) {
        complain(&g, "library", why.text);
    } else {
        model_open(&g.model, &config);
        while (find(&g, "frame", NULL)) check_step(&g);
        model_close(&g.model);
        dw_decoder_destroy(g.decoder);
    }
    free(text);
}

int main(int argc, char **argv)
{
    char pattern[512];
    glob_t files;
    if (!test_can_run()) return 77;
    if (argc != 2) return 2;
    snprintf(pattern, sizeof pattern, "%s/*.json", argv[1]);
    if (glob(pattern, 0, NULL, &files)) {
        printf("no golden files in %s\n", argv[1]);
        return 1;
    }
    for (size_t k = 0; k < files.gl_pathc; k++) check_file(files.gl_pathv[k]);
    globfree(&files);
    printf("%d steps, %d failures\n", steps, failures);
    return failures || !steps ? 1 : 0;
}
