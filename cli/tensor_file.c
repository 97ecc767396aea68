/* SPDX-License-Identifier: Apache-2.0
 * tensor_file.c - the headers of .safetensors and .npy files. Their grammars have a fixed depth, so
 * nothing here calls itself, however deeply a hostile header is nested. */
#include "tensor_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/printable.h"
#include "complain.h"

enum { MOST_HEADER = 100000000 }; /* bytes: the limit of the format safetensors */

/* The dtypes of both formats. Those without a dw_dtype cannot be measured. */
static const struct {
    const char *word;
    unsigned bytes;
    dw_dtype dtype;
} types[] = {{"F32", 4, DW_F32}, {"F16", 2, DW_F16}, {"BF16", 2, DW_BF16}, {"<f4", 4, DW_F32},
             {"<f2", 2, DW_F16}, {"BOOL", 1, 0},     {"U8", 1, 0},         {"I8", 1, 0},
             {"F8_E5M2", 1, 0},  {"F8_E4M3", 1, 0},  {"F8_E8M0", 1, 0},    {"I16", 2, 0},
             {"U16", 2, 0},      {"I32", 4, 0},      {"U32", 4, 0},        {"I64", 8, 0},
             {"U64", 8, 0},      {"F64", 8, 0},      {"C64", 8, 0}};

/* ---- Words of a header ----------------------------------------------------------------------- */

/* A header, behind whose end a NUL stands. Strings are decoded where they stand. */
typedef struct cursor {
    char *at, *begin, *end;
    bool python; /* a dictionary of Python, not an object of JSON */
    dw_why *why;
} cursor;

/* Says what the header should have had here. Returns false. */
static bool expected(cursor *c, const char *what)
{
    dw_say(c->why, DW_ERR_FORMAT, "byte %zu of the header should be %s", (size_t)(c->at - c->begin),
           what);
    return false;
}

/* Returns the next character that is not blank; 0: the end, or a NUL. */
static char peek(cursor *c)
{
    while (c->at < c->end && strchr(" \t\r\n", *c->at) && *c->at) c->at++;
    return *c->at;
}

static bool take(cursor *c, char wanted)
{
    char what[] = {'\'', wanted, '\'', 0};
    if (peek(c) != wanted) return expected(c, what);
    c->at++;
    return true;
}

/* Takes what stands behind an element of a list: a comma, or the end, which sets *more to false. In
 * Python a comma may stand in front of the end. */
static bool take_next(cursor *c, char close, bool *more)
{
    bool comma = peek(c) == ',';
    if (comma) c->at++;
    *more = comma && !(c->python && peek(c) == close);
    return *more || take(c, close);
}

/* Returns the length of the UTF-8 character at `at`, or 0 if it is none. A NUL ends the text. */
static int utf8_bytes(const unsigned char *at)
{
    int n = at[0] < 0x80 ? 1 : at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    for (int i = 1; i < n; i++)
        if (at[i] >> 6 != 2) return 0;
    bool is_wrong = (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) ||
                    (at[0] == 0xf0 && at[1] < 0x90) || at[0] > 0xf4 ||
                    (at[0] == 0xf4 && at[1] > 0x8f);
    return is_wrong ? 0 : n;
}

/* Takes four hexadecimal digits. */
static bool take_hex(cursor *c, uint32_t *code)
{
    *code = 0;
    for (int i = 0; i < 4; i++, c->at++) {
        static const char digits[] = "0123456789abcdefABCDEF";
        const char *found = *c->at ? strchr(digits, *c->at) : NULL;
        if (!found) return expected(c, "a hexadecimal digit");
        uint32_t digit = (uint32_t)(found - digits);
        *code = *code << 4 | (digit < 16 ? digit : digit - 6);
    }
    return true;
}

/* Takes what follows a backslash, and writes it to *to in UTF-8, which is never longer. */
static bool take_escape(cursor *c, char **to)
{
    static const char from[] = "\"'\\/bfnrt", means[] = "\"'\\/\b\f\n\r\t";
    const char *found = *c->at ? strchr(from, *c->at) : NULL;
    uint32_t code, low;
    if (found) {
        c->at++;
        *(*to)++ = means[found - from];
        return true;
    }
    if (*c->at != 'u') return expected(c, "an escape of JSON");
    c->at++;
    if (!take_hex(c, &code)) return false;
    if (code >> 10 == 0xd800 >> 10) {
        if (c->at[0] != '\\' || c->at[1] != 'u') return expected(c, "the second half of a pair");
        c->at += 2;
        if (!take_hex(c, &low)) return false;
        if (low >> 10 != 0xdc00 >> 10) return expected(c, "behind the second half of a pair");
        code = 0x10000 + ((code & 0x3ff) << 10 | (low & 0x3ff));
    }
    if (code == 0 || code >> 10 == 0xdc00 >> 10) return expected(c, "behind a character of text");
    int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const uint32_t lead[] = {0, 0xc0, 0xe0, 0xf0};
    *(*to)++ = (char)(lead[more] | code >> 6 * more);
    while (more-- > 0) *(*to)++ = (char)(0x80 | (code >> 6 * more & 0x3f));
    return true;
}

/* Takes a string, and sets *text to it, decoded. */
static bool take_string(cursor *c, char **text)
{
    char quote = peek(c), *to = c->at + 1;
    if (quote != '"' && !(c->python && quote == '\'')) return expected(c, "a string in quotes");
    *text = to;
    for (c->at++; *c->at != quote;) {
        if ((unsigned char)*c->at < 0x20) return expected(c, "part of a string, or its end");
        if (*c->at != '\\') {
            *to++ = *c->at++;
        } else {
            c->at++;
            if (!take_escape(c, &to)) return false;
        }
    }
    c->at++;
    *to = 0;
    return true;
}

/* Takes a string, all of whose characters must be such as can be printed. */
static bool take_name(cursor *c, char **name)
{
    if (!take_string(c, name)) return false;
    for (const char *at = *name; *at;) {
        int n = dw_printable_bytes((const unsigned char *)at);
        if (n == 0) return expected(c, "behind a name without control characters");
        at += n;
    }
    return true;
}

static bool take_number(cursor *c, uint64_t *number)
{
    char first = peek(c);
    if (first < '0' || first > '9') return expected(c, "a whole number that is not negative");
    for (*number = 0; *c->at >= '0' && *c->at <= '9'; c->at++) {
        uint64_t digit = (uint64_t)(*c->at - '0');
        if (*number > (UINT64_MAX - digit) / 10) return expected(c, "part of a smaller number");
        *number = *number * 10 + digit;
        if (first == '0' && c->at[1] >= '0' && c->at[1] <= '9')
            return expected(c, "a number without zeros in front");
    }
    return true;
}

/* Takes a list of at most cap numbers. */
static bool take_numbers(cursor *c, uint64_t *numbers, size_t cap, size_t *n)
{
    char open = c->python ? '(' : '[', close = c->python ? ')' : ']';
    *n = 0;
    if (!take(c, open)) return false;
    if (peek(c) == close) return take(c, close);
    for (bool more = true; more; (*n)++) {
        if (*n == cap) return expected(c, "the end of a list that is too long");
        if (!take_number(c, &numbers[*n]) || !take_next(c, close, &more)) return false;
    }
    return true;
}

/* ---- Tensors --------------------------------------------------------------------------------- */

/* Sets the shape for the library from the dimensions. */
static void fold(dw_file_tensor *x, uint64_t values)
{
    uint64_t c = x->n_dims > 0 ? x->dims[x->n_dims - 1] : 1,
             t = x->n_dims > 1 ? x->dims[x->n_dims - 2] : 1;
    if (values == 0) {
        x->left_out = "it has no values";
        return;
    }
    uint64_t n = values / c / t;
    if (n > UINT32_MAX || t > UINT32_MAX || c > UINT32_MAX || values > PTRDIFF_MAX / 4)
        x->left_out = "it is larger than a tensor of the library can be";
    x->n = (uint32_t)n, x->t = (uint32_t)t, x->c = (uint32_t)c;
}

/* Checks dtype, shape and bytes of a tensor against each other. */
static dw_status check_tensor(dw_file_tensor *x, bool is_npy, dw_why *why)
{
    uint64_t values = 1, bytes = x->end - x->begin;
    bool is_empty = false;
    uint64_t size = 0;
    for (size_t i = 0; i < x->n_dims; i++) is_empty = is_empty || x->dims[i] == 0;
    for (size_t i = 0; i < x->n_dims && !is_empty; i++) {
        if (x->dims[i] > UINT64_MAX / 8 / values)
            return dw_say(why, DW_ERR_FORMAT,
                          "the shape of tensor \"%.80s\" has a product that no "
                          "file can hold",
                          x->name);
        values *= x->dims[i];
    }
    if (is_empty) values = 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(x->type, types[i].word) && (*types[i].word == '<') == is_npy)
            size = types[i].bytes, x->dtype = types[i].dtype;
    uint64_t need = values * size;
    if (size && need != bytes)
        return dw_say(why, DW_ERR_FORMAT,
                      "tensor \"%.80s\" has %llu bytes, but its shape and dtype %.16s need %llu",
                      x->name, (unsigned long long)bytes, x->type, (unsigned long long)need);
    if (x->dtype) fold(x, values);
    if (!x->dtype) x->left_out = "only the dtypes f32, f16 and bf16 (in .npy: <f4, <f2) are read";
    return DW_OK;
}

/* Returns a new tensor at the end of the list, or NULL. */
static dw_file_tensor *append(dw_tensor_file *file, const char *name)
{
    if ((file->n & (file->n - 1)) == 0) { /* the room is the next power of two */
        size_t room = file->n ? 2 * file->n : 1;
        dw_file_tensor *larger = realloc(file->tensors, room * sizeof *larger);
        if (!larger) return NULL;
        file->tensors = larger;
    }
    dw_file_tensor *x = &file->tensors[file->n++];
    *x = (dw_file_tensor){.name = name};
    return x;
}

/* ---- safetensors ----------------------------------------------------------------------------- */

/* Takes "__metadata__", an object of strings, which are not used. */
static bool take_metadata(cursor *c)
{
    char *text;
    if (!take(c, '{')) return false;
    if (peek(c) == '}') return take(c, '}');
    for (bool more = true; more;)
        if (!take_string(c, &text) || !take(c, ':') || !take_string(c, &text) ||
            !take_next(c, '}', &more))
            return false;
    return true;
}

/* Takes the object that describes a tensor: each of the three fields once, and no other. */
static bool take_tensor(cursor *c, dw_file_tensor *x)
{
    uint64_t offsets[2];
    size_t n;
    char *field, *type = NULL;
    bool has_shape = false, has_offsets = false;
    if (!take(c, '{')) return false;
    for (bool more = true; more;) {
        if (!take_string(c, &field) || !take(c, ':')) return false;
        if (!strcmp(field, "dtype") && !type) {
            if (!take_name(c, &type)) return false;
        } else if (!strcmp(field, "shape") && !has_shape) {
            has_shape = true;
            if (!take_numbers(c, x->dims, DW_FILE_DIMS, &x->n_dims)) return false;
        } else if (!strcmp(field, "data_offsets") && !has_offsets) {
            has_offsets = true;
            if (!take_numbers(c, offsets, 2, &n)) return false;
            if (n < 2 || offsets[0] > offsets[1]) return expected(c, "behind two rising offsets");
        } else {
            return expected(c, "the value of dtype, shape or data_offsets, each of them once");
        }
        if (!take_next(c, '}', &more)) return false;
    }
    if (!type || !has_shape || !has_offsets)
        return expected(c, "behind a tensor that has a dtype, a shape and data_offsets");
    x->type = type, x->begin = offsets[0], x->end = offsets[1];
    return true;
}

static int by_place(const void *one, const void *other)
{
    const dw_file_tensor *a = one, *b = other;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end;
}

static int by_name(const void *one, const void *other)
{
    return strcmp(*(const char *const *)one, *(const char *const *)other);
}

/* No two tensors may have the same name. */
static dw_status check_names(const dw_tensor_file *file, dw_why *why)
{
    const char **names = malloc((file->n + 1) * sizeof *names), *twice = NULL;
    if (!names) return dw_say(why, DW_ERR_NO_MEMORY, "out of memory for its header");
    for (size_t i = 0; i < file->n; i++) names[i] = file->tensors[i].name;
    qsort(names, file->n, sizeof *names, by_name);
    for (size_t i = 1; i < file->n && !twice; i++)
        if (!strcmp(names[i - 1], names[i])) twice = names[i];
    free(names);
    return twice ? dw_say(why, DW_ERR_FORMAT, "two tensors have the name \"%.80s\"", twice) : DW_OK;
}

/* Tensors must follow each other without gaps, from the end of the header to that of the file.
 * Their offsets become places in the file. */
static dw_status check_places(dw_tensor_file *file, uint64_t head, dw_why *why)
{
    uint64_t used = 0, bytes = file->bytes - head;
    if (file->n) qsort(file->tensors, file->n, sizeof *file->tensors, by_place);
    for (size_t i = 0; i < file->n; i++) {
        dw_file_tensor *x = &file->tensors[i];
        if (x->end > bytes)
            return dw_say(why, DW_ERR_FORMAT,
                          "tensor \"%.80s\" ends at byte %llu of the data, of which there are %llu",
                          x->name, (unsigned long long)x->end, (unsigned long long)bytes);
        if (x->begin != used)
            return dw_say(why, DW_ERR_FORMAT,
                          "tensor \"%.80s\" begins at byte %llu of the data, and the one before "
                          "it ends at %llu: there may be no gap and no overlap",
                          x->name, (unsigned long long)x->begin, (unsigned long long)used);
        used = x->end;
        x->begin += head, x->end += head;
        dw_status status = check_tensor(x, false, why);
        if (status < 0) return status;
    }
    if (used != bytes)
        return dw_say(why, DW_ERR_FORMAT, "the last %llu bytes belong to no tensor",
                      (unsigned long long)(bytes - used));
    return check_names(file, why);
}

static dw_status parse_safetensors(dw_tensor_file *file, cursor *c, uint64_t head)
{
    bool more = true, has_metadata = false;
    char *name;
    if (!take(c, '{')) return DW_ERR_FORMAT;
    if (peek(c) == '}') {
        c->at++;
        more = false;
    }
    while (more) {
        if (!take_name(c, &name) || !take(c, ':')) return DW_ERR_FORMAT;
        if (!strcmp(name, "__metadata__") && !has_metadata) {
            has_metadata = true;
            if (!take_metadata(c)) return DW_ERR_FORMAT;
        } else {
            dw_file_tensor *x = append(file, name);
            if (!x) return dw_say(c->why, DW_ERR_NO_MEMORY, "out of memory for its header");
            if (!take_tensor(c, x)) return DW_ERR_FORMAT;
        }
        if (!take_next(c, '}', &more)) return DW_ERR_FORMAT;
    }
    if (peek(c) || c->at < c->end)
        return expected(c, "blank, like all behind the object"), DW_ERR_FORMAT;
    return check_places(file, head, c->why);
}

/* ---- npy ------------------------------------------------------------------------------------- */

/* Takes True or False. */
static bool take_truth(cursor *c, bool *is_true)
{
    *is_true = peek(c) == 'T';
    const char *word = *is_true ? "True" : "False";
    if (strncmp(c->at, word, strlen(word)) != 0) return expected(c, "True or False");
    c->at += strlen(word);
    return true;
}

/* Takes the dictionary of a header: each of its three entries once, and no other. */
static bool take_npy(cursor *c, dw_file_tensor *x, bool *fortran)
{
    char *field, *type = NULL;
    bool has_order = false, has_shape = false;
    if (!take(c, '{')) return false;
    for (bool more = true; more;) {
        if (!take_string(c, &field) || !take(c, ':')) return false;
        if (!strcmp(field, "descr") && !type) {
            if (!take_name(c, &type)) return false;
        } else if (!strcmp(field, "fortran_order") && !has_order) {
            has_order = true;
            if (!take_truth(c, fortran)) return false;
        } else if (!strcmp(field, "shape") && !has_shape) {
            has_shape = true;
            if (!take_numbers(c, x->dims, DW_FILE_DIMS, &x->n_dims)) return false;
        } else {
            return expected(c, "the value of descr, fortran_order or shape, each of them once");
        }
        if (!take_next(c, '}', &more)) return false;
    }
    if (!type || !has_order || !has_shape)
        return expected(c, "behind a dictionary of descr, fortran_order and shape");
    x->type = type;
    if (peek(c) || c->at < c->end) return expected(c, "blank, like all behind the dictionary");
    return true;
}

static dw_status parse_npy(dw_tensor_file *file, cursor *c, uint64_t head)
{
    bool fortran = false;
    dw_file_tensor *x = append(file, "");
    if (!x) return dw_say(c->why, DW_ERR_NO_MEMORY, "out of memory for its header");
    if (!take_npy(c, x, &fortran)) return DW_ERR_FORMAT;
    x->begin = head, x->end = file->bytes;
    dw_status status = check_tensor(x, true, c->why);
    if (fortran && x->n_dims > 1)
        x->left_out = "it is stored in Fortran order: save numpy.ascontiguousarray of it";
    return status;
}

/* ---- Files ----------------------------------------------------------------------------------- */

/* Reads bytes of the file, all of which it had when it was opened. */
static dw_status read_bytes(const dw_tensor_file *file, uint64_t from, void *to, uint64_t bytes,
                            dw_why *why)
{
    for (uint64_t got = 0; got < bytes;) {
        ssize_t n = pread(file->fd, (char *)to + got, bytes - got, (off_t)(from + got));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return dw_say(why, DW_ERR_IO, "it cannot be read: %s", strerror(errno));
        if (n == 0) return dw_say(why, DW_ERR_IO, "it became shorter while it was read");
        got += (uint64_t)n;
    }
    return DW_OK;
}

/* Returns the number of `n` bytes, the lowest first. */
static uint64_t little(const unsigned char *bytes, int n)
{
    uint64_t value = 0;
    while (n-- > 0) value = value << 8 | bytes[n];
    return value;
}

/* Finds out from the first bytes which format the file has, and where its header lies. */
static dw_status find_header(const dw_tensor_file *file, uint64_t *from, uint64_t *bytes,
                             bool *is_npy, dw_why *why)
{
    unsigned char first[12] = {0};
    uint64_t have = file->bytes < sizeof first ? file->bytes : sizeof first;
    dw_status status = read_bytes(file, 0, first, have, why);
    if (status < 0) return status;
    if (!memcmp(first, "PK\3\4", 4))
        return dw_say(why, DW_ERR_FORMAT,
                      "this is an archive, as torch.save and numpy.savez write "
                      "it: give .pt files to `python -m deltawire.measure', or save .safetensors");
    *is_npy = !memcmp(first, "\x93NUMPY", 6);
    if (*is_npy && first[6] != 1 && first[6] != 2)
        return dw_say(why, DW_ERR_FORMAT,
                      "it has version %u.%u of the format npy, and only 1.0 "
                      "and 2.0 are read",
                      first[6], first[7]);
    *from = !*is_npy ? 8 : first[6] == 1 ? 10 : 12;
    if (file->bytes < *from) return dw_say(why, DW_ERR_FORMAT, "it ends within its first bytes");
    *bytes = little(first + (*is_npy ? 8 : 0), *is_npy ? (int)*from - 8 : 8);
    if (*bytes > file->bytes - *from || *bytes > MOST_HEADER)
        return dw_say(why, DW_ERR_FORMAT,
                      "its header would have %llu bytes, and %llu are there (at most %d are "
                      "allowed): it is cut short, or neither .safetensors nor .npy",
                      (unsigned long long)*bytes, (unsigned long long)(file->bytes - *from),
                      MOST_HEADER);
    return DW_OK;
}

static dw_status read_header(dw_tensor_file *file, dw_why *why)
{
    uint64_t from = 0, bytes = 0;
    bool is_npy = false;
    dw_status status = find_header(file, &from, &bytes, &is_npy, why);
    if (status < 0) return status;
    file->header = malloc(bytes + 1);
    if (!file->header) return dw_say(why, DW_ERR_NO_MEMORY, "out of memory for its header");
    status = read_bytes(file, from, file->header, bytes, why);
    if (status < 0) return status;
    file->header[bytes] = 0;
    cursor c = {file->header, file->header, file->header + bytes, is_npy, why};
    for (; c.at < c.end; c.at++) {
        int n = utf8_bytes((unsigned char *)c.at);
        if (n == 0) return expected(&c, "UTF-8"), DW_ERR_FORMAT;
        c.at += n - 1;
    }
    c.at = c.begin;
    return is_npy ? parse_npy(file, &c, from + bytes) : parse_safetensors(file, &c, from + bytes);
}

dw_status dw_tensor_file_open(dw_tensor_file *file, const char *path, dw_why *why)
{
    struct stat stat;
    dw_status status;
    *file = (dw_tensor_file){.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (file->fd < 0 || fstat(file->fd, &stat) < 0) {
        status = dw_say(why, DW_ERR_IO, "it cannot be opened: %s", strerror(errno));
    } else if (!S_ISREG(stat.st_mode)) {
        status = dw_say(why, DW_ERR_IO, "it is no regular file: write the tensors to one");
    } else {
        file->bytes = (uint64_t)stat.st_size;
        status = read_header(file, why);
    }
    if (status < 0) dw_tensor_file_close(file);
    return status;
}

void dw_tensor_file_close(dw_tensor_file *file)
{
    if (file->fd >= 0) close(file->fd);
    free(file->header);
    free(file->tensors);
    *file = (dw_tensor_file){.fd = -1};
}

dw_status dw_tensor_file_read(const dw_tensor_file *file, const dw_file_tensor *tensor, void *data,
                              dw_why *why)
{
    uint64_t bytes = tensor->end - tensor->begin;
    dw_status status = read_bytes(file, tensor->begin, data, bytes, why);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    unsigned char *at = data;
    size_t size = dw_dtype_bytes(tensor->dtype);
    for (uint64_t i = 0; i < bytes && status == DW_OK; i += size)
        for (size_t j = 0; j < size / 2; j++) {
            unsigned char low = at[i + j];
            at[i + j] = at[i + size - 1 - j], at[i + size - 1 - j] = low;
        }
#endif
    return status;
}
