/* SPDX-License-Identifier: Apache-2.0
 * read_golden.c - decodes the frames of golden files, and compares status, y, reply and prev with
 * the expected values in the files.
 *
 * read_golden DIR... reads every DIR/NAME.json. The frames of golden/ come from make_golden, which
 * has decoded them already. Those of golden_page/ come from spec_encoder.py, which is written from
 * docs/format.md alone and also computes the expected results. The files are read as plain text,
 * relying on the order in which make_golden and spec_encoder.py write the fields. */
#include <glob.h>

#include "golden_status.h"
#include "support/tool.h"

typedef struct golden {
    const char *path;
    char *at; /* the position after what was read last */
    int step;
    dw_decoder *decoder;
} golden;

typedef struct field {
    uint8_t *data;
    size_t len;
} field;

static int failures, steps;

static void complain(const golden *g, const char *what)
{
    printf("%s, step %d: %s\n", g->path, g->step, what);
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
    field f = {.len = strcspn(hex, "\"") / 2};
    f.data = malloc(f.len ? f.len : 1);
    if (!f.data) abort();
    for (size_t i = 0; i < f.len; i++) {
        char digits[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        f.data[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    g->at += 2 * f.len + 2;
    return f;
}

/* Compares elements in memory with those of a file, where the low byte comes first. */
static bool same_floats(const void *data, dw_dtype dtype, field golden_bits)
{
    size_t size = dw_dtype_bytes(dtype);
    for (size_t i = 0; i < golden_bits.len / size; i++) {
        uint32_t bits = size == 4 ? ((const uint32_t *)data)[i] : ((const uint16_t *)data)[i];
        for (size_t k = 0; k < size; k++)
            if (golden_bits.data[i * size + k] != (uint8_t)(bits >> 8 * k)) return false;
    }
    return true;
}

/* y of a refused frame must be unchanged: all bytes are SPOILT. */
enum { SPOILT = 0xa5 };

static void check_y(const golden *g, const dw_tensor *y, size_t len, field wanted, bool accepted)
{
    const uint8_t *data = y->data;
    if (accepted && (wanted.len != len || !same_floats(data, y->dtype, wanted)))
        complain(g, "y differs");
    for (size_t i = 0; i < len && !accepted; i++) {
        if (data[i] == SPOILT) continue;
        complain(g, "y of a refused frame was written");
        return;
    }
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
        bool held = dw_decoder_peek(g->decoder, key, &prev) == DW_OK;
        size_t len = held ? (size_t)prev.t * prev.c * dw_dtype_bytes(prev.dtype) : 0;
        if (len != bits.len || !same_floats(prev.data, held ? prev.dtype : DW_F16, bits))
            complain(g, "prev differs");
        free(bits.data);
    }
}

/* Reads the factor of a step that adds to y, and the y before it. */
static void read_added(golden *g, float *factor, void *data, size_t len, dw_dtype dtype)
{
    uint32_t bits = (uint32_t)number(g, "factor");
    field before = bytes(g, "y");
    size_t size = dw_dtype_bytes(dtype);
    memcpy(factor, &bits, sizeof bits);
    if (before.len != len) abort();
    for (size_t i = 0; i < len / size; i++) {
        uint32_t element = 0;
        for (size_t k = 0; k < size; k++) element |= (uint32_t)before.data[i * size + k] << 8 * k;
        if (size == 4)
            ((uint32_t *)data)[i] = element;
        else
            ((uint16_t *)data)[i] = (uint16_t)element;
    }
    free(before.data);
}

static void check_step(golden *g)
{
    static uint8_t reply[1 << 16];
    char name[16];
    size_t reply_len = 0;
    field frame = bytes(g, "frame");
    uint32_t n = (uint32_t)number(g, "n"), t = (uint32_t)number(g, "t");
    uint32_t c = (uint32_t)number(g, "c");
    word(g, "y_dtype", name, sizeof name);
    dw_dtype dtype = !strcmp(name, "f32") ? DW_F32 : !strcmp(name, "f16") ? DW_F16 : DW_BF16;
    size_t len = (size_t)n * t * c * dw_dtype_bytes(dtype);
    void *data = malloc(len);
    if (!data) abort();
    memset(data, SPOILT, len);
    dw_decode_options options = {.struct_size = sizeof options};
    if (find(g, "adds", find(g, "status", NULL))) {
        options.adds = 1;
        read_added(g, &options.factor, data, len, dtype);
    }
    dw_tensor y = dw_tensor_3d(data, dtype, n, t, c);
    dw_status status = dw_decode_with(g->decoder, frame.data, frame.len, &y, &options, reply,
                                      sizeof reply, &reply_len);
    word(g, "status", name, sizeof name);
    if (strcmp(name, golden_status(status)) != 0) {
        printf("%s, step %d: %s, specified %s: %s\n", g->path, g->step, golden_status(status), name,
               dw_decoder_why(g->decoder));
        failures++;
    }
    field golden_y = bytes(g, "y"), golden_reply = bytes(g, "reply");
    check_y(g, &y, len, golden_y, status == DW_OK);
    if (golden_reply.len != reply_len || memcmp(golden_reply.data, reply, reply_len) != 0)
        complain(g, "the reply differs");
    check_prev(g);
    free(data);
    free(frame.data);
    free(golden_y.data);
    free(golden_reply.data);
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
    if (dw_config_parse(&config, config_text, &why) || dw_decoder_create(&g.decoder, &config)) {
        complain(&g, why.text);
    } else {
        while (find(&g, "frame", NULL)) check_step(&g);
        dw_decoder_destroy(g.decoder);
    }
    free(text);
}

int main(int argc, char **argv)
{
    if (!test_can_run()) return 77;
    for (int i = 1; i < argc; i++) {
        char pattern[512];
        glob_t files;
        snprintf(pattern, sizeof pattern, "%s/*.json", argv[i]);
        if (glob(pattern, 0, NULL, &files)) {
            printf("no golden files in %s\n", argv[i]);
            return 1;
        }
        for (size_t k = 0; k < files.gl_pathc; k++) check_file(files.gl_pathv[k]);
        globfree(&files);
    }
    printf("%d steps, %d failures\n", steps, failures);
    return failures || !steps ? 1 : 0;
}
