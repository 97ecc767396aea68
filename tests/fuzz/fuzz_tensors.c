/* SPDX-License-Identifier: Apache-2.0
 * fuzz_tensors.c - every file is either read as tensors that lie within it, or gives a sentence. An
 * input is taken as a file, and as decisions of which a file is made that may be valid. */
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../cli/tensor_file.h"
#include "base/printable.h"
#include "fuzz.h"
#include "reach.h"

/* Words of the sentences that the corpus must reach together, and what else it must have. */
const char *const fuzz_goals[] = {"ends within its first bytes",
                                  "header would have",
                                  "UTF-8",
                                  "should be",
                                  "no gap and no overlap",
                                  "belong to no tensor",
                                  "of which there are",
                                  "need",
                                  "no file can hold",
                                  "two tensors have the name",
                                  "this is an archive",
                                  "of the format npy",
                                  "several tensors",
                                  "a tensor of npy",
                                  "Fortran",
                                  "dtypes",
                                  "no values",
                                  NULL};

static void reach_words(const char *sentence)
{
    for (size_t i = 0; fuzz_goals[i]; i++)
        if (strstr(sentence, fuzz_goals[i])) fuzz_reach(fuzz_goals[i]);
}

static void check_tensor(const dw_tensor_file *file, const dw_file_tensor *x)
{
    REQUIRE(x->begin <= x->end && x->end <= file->bytes && x->n_dims <= DW_FILE_DIMS);
    for (const char *at = x->name; *at;) {
        int n = dw_printable_bytes((const unsigned char *)at);
        REQUIRE(n > 0);
        at += n;
    }
    if (x->left_out) {
        reach_words(x->left_out);
        return;
    }
    uint64_t values = 1, size = dw_dtype_bytes(x->dtype);
    for (size_t i = 0; i < x->n_dims; i++) values *= x->dims[i];
    REQUIRE(size > 0 && values > 0 && values == (uint64_t)x->n * x->t * x->c);
    REQUIRE(x->end - x->begin == values * size);
    uint8_t *data = malloc(x->end - x->begin); /* of the exact size, for sanitizers */
    REQUIRE(data != NULL);
    REQUIRE(dw_tensor_file_read(file, x, data, NULL) == DW_OK);
    free(data);
}

/* Returns whether the bytes are a file that can be read. */
static bool check_file(const void *bytes, size_t len)
{
    char path[64];
    dw_tensor_file file;
    dw_why why = {.text = ""};
    int fd = memfd_create("tensors", MFD_CLOEXEC);
    REQUIRE(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    dw_status status = dw_tensor_file_open(&file, path, &why);
    close(fd);
    if (status != DW_OK) {
        REQUIRE(status == DW_ERR_FORMAT && why.text[0] && memchr(why.text, 0, sizeof why.text));
        REQUIRE(file.fd < 0 && !file.tensors && !file.header);
        reach_words(why.text);
        return false;
    }
    for (size_t i = 0; i < file.n; i++) {
        check_tensor(&file, &file.tensors[i]);
        REQUIRE(i == 0 || file.tensors[i].begin == file.tensors[i - 1].end);
    }
    REQUIRE(file.n == 0 || file.tensors[file.n - 1].end == file.bytes);
    fuzz_reach(file.n > 1 ? "several tensors" : "one tensor or none");
    fuzz_reach(file.n == 1 && !*file.tensors[0].name ? "a tensor of npy" : "safetensors");
    dw_tensor_file_close(&file);
    return true;
}

/* A file in the making. */
typedef struct draft {
    char text[4096];
    size_t head, len;
} draft;

__attribute__((format(printf, 2, 3))) static void add(draft *d, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    d->len += (size_t)vsnprintf(d->text + d->len, sizeof d->text - d->len, format, arguments);
    va_end(arguments);
    REQUIRE(d->len < sizeof d->text);
}

/* Adds a list of up to three extents. Returns their product. */
static uint64_t add_shape(fuzz_input *input, draft *d, const char *brackets)
{
    uint64_t product = 1;
    add(d, "%c", brackets[0]);
    for (uint32_t i = 0, n = fuzz_below(input, 4); i < n; i++) {
        uint64_t extent = fuzz_below(input, 6);
        product *= extent;
        add(d, "%s%llu%s", i ? ", " : "", (unsigned long long)extent,
            *brackets == '(' && i + 1 == n ? "," : "");
    }
    add(d, "%c", brackets[1]);
    return product;
}

/* Makes a valid header; returns how many bytes must follow it. */
static uint64_t draft_safetensors(fuzz_input *input, draft *d)
{
    static const char *const names[] = {"a", "layers.0", "gr\\u00e9", "\xf0\x9f\x98\x80"};
    static const char *const words[] = {"F32", "F16", "BF16", "I64"};
    static const uint64_t sizes[] = {4, 2, 2, 8};
    uint64_t used = 0;
    bool metadata = fuzz_byte(input) & 1;
    add(d, "%s{%s", "        ", metadata ? "\"__metadata__\": {\"a\": \"\\n\"}" : "");
    for (uint32_t i = 0, n = fuzz_below(input, 5); i < n; i++) {
        uint32_t type = fuzz_below(input, 4);
        add(d, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":", i || metadata ? "," : "", names[i],
            words[type]);
        uint64_t bytes = add_shape(input, d, "[]") * sizes[type];
        add(d, ",\"data_offsets\":[%llu,%llu]}", (unsigned long long)used,
            (unsigned long long)(used + bytes));
        used += bytes;
    }
    add(d, "}%*s", (int)fuzz_below(input, 9), "");
    d->head = 8;
    memset(d->text, 0, 8);
    d->text[0] = (char)((d->len - 8) & 255), d->text[1] = (char)((d->len - 8) >> 8);
    return used;
}

static uint64_t draft_npy(fuzz_input *input, draft *d)
{
    int head = fuzz_byte(input) & 1 ? 12 : 10;
    bool half = fuzz_byte(input) & 1;
    add(d, "%*s{'descr': '<f%d', 'fortran_order': %s, 'shape': ", head, "", half ? 2 : 4,
        fuzz_byte(input) & 1 ? "False" : "True");
    uint64_t values = add_shape(input, d, "()");
    add(d, "%s}  \n", fuzz_byte(input) & 1 ? ", " : "");
    d->head = (size_t)head;
    memset(d->text, 0, d->head);
    memcpy(d->text, "\x93NUMPY", 6);
    d->text[6] = head == 12 ? 2 : 1;
    d->text[8] = (char)((d->len - d->head) & 255), d->text[9] = (char)((d->len - d->head) >> 8);
    return values * (half ? 2 : 4);
}

/* Makes a valid file, which must be read; then one with some bytes of its header changed, and one
 * whose data have another length, which must not. */
static void check_drafts(fuzz_input *input)
{
    static draft d;
    d.len = 0;
    uint64_t bytes = fuzz_byte(input) & 1 ? draft_npy(input, &d) : draft_safetensors(input, &d);
    static char file[sizeof d.text + 8192];
    REQUIRE(bytes < 8192);
    memset(file, 'x', sizeof file);
    memcpy(file, d.text, d.len);
    REQUIRE(check_file(file, d.len + bytes));
    REQUIRE(!check_file(file, d.len + bytes + 1));
    if (bytes > 0) REQUIRE(!check_file(file, d.len + bytes - 1));
    for (uint32_t n = fuzz_below(input, 4); n > 0; n--)
        file[fuzz_below(input, (uint32_t)d.len)] = (char)fuzz_byte(input);
    check_file(file, d.len + bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = {data, size};
    check_file(data, size);
    check_drafts(&input);
    return 0;
}
