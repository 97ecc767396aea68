/* SPDX-License-Identifier: Apache-2.0
 * comparison.c - finds the keys of which an encoder and its decoder do not hold the same, by
 * digests of ranges of keys. */
#include "channel/comparison.h"

#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/bytes.h"

enum { ROOT_BYTES = 16, WORD = 4 };
#define NEVER UINT64_MAX /* a step that no message has */

/* ---- Arrays ---------------------------------------------------------------------------------- */

/* array: the address of a pointer to elements of so many bytes. */
static bool grow(const dw_comparison *c, void *array, uint64_t *cap, uint64_t need, size_t element)
{
    void *memory;
    memcpy(&memory, array, sizeof memory);
    bool has_room = dw_mem_grow(c->allocator, &memory, cap, need, element);
    memcpy(array, &memory, sizeof memory);
    return has_room;
}

/* Appends so many bytes to the message, all 0. NULL: no memory. */
static uint8_t *append(dw_comparison *c, uint64_t bytes)
{
    if (!grow(c, &c->out, &c->out_cap, c->out_len + bytes + 1, 1)) return NULL;
    uint8_t *at = c->out + c->out_len;
    memset(at, 0, (size_t)bytes);
    c->out_len += bytes;
    return at;
}

static bool add_differing(dw_comparison *c, dw_key key)
{
    if (!grow(c, &c->differing, &c->differing_cap, c->n_differing + 1, sizeof key)) return false;
    c->differing[c->n_differing++] = key;
    return true;
}

static uint64_t mark_bytes(uint64_t marks)
{
    return (marks + 7) / 8;
}

static bool is_marked(const uint8_t *marks, uint64_t i)
{
    return marks[i / 8] >> i % 8 & 1;
}

static void mark(uint8_t *marks, uint64_t i)
{
    marks[i / 8] |= (uint8_t)(1 << i % 8);
}

/* ---- Keys and ranges ------------------------------------------------------------------------- */

void dw_comparison_init(dw_comparison *c, const dw_allocator *allocator, bool is_encoder)
{
    *c = (dw_comparison){.allocator = allocator, .is_encoder = is_encoder, .awaited = NEVER};
}

void dw_comparison_release(dw_comparison *c)
{
    if (!c->allocator) return;
    dw_mem_release(c->allocator, c->keys, c->cap * sizeof *c->keys);
    dw_mem_release(c->allocator, c->ranges, c->ranges_cap * sizeof *c->ranges);
    dw_mem_release(c->allocator, c->out, c->out_cap);
    dw_mem_release(c->allocator, c->differing, c->differing_cap * sizeof *c->differing);
    *c = (dw_comparison){.awaited = NEVER};
}

dw_status dw_comparison_add(dw_comparison *c, const dw_held_key *held)
{
    uint8_t bytes[36];
    if (!grow(c, &c->keys, &c->cap, c->n + 1, sizeof *c->keys)) return DW_ERR_NO_MEMORY;
    dw_put64(bytes, held->key.sample);
    dw_put32(bytes + 8, held->key.slice);
    dw_put64(bytes + 12, held->incarnation);
    dw_put64(bytes + 20, held->version);
    dw_put64(bytes + 28, held->chain);
    c->keys[c->n++] = (dw_compared_key){.place = XXH3_64bits(bytes, 12),
                                        .print = XXH3_64bits(bytes, sizeof bytes),
                                        .key = held->key};
    return DW_OK;
}

static int by_place(const void *left, const void *right)
{
    const dw_compared_key *a = left, *b = right;
    return a->place < b->place ? -1 : a->place > b->place;
}

static int by_print(const void *left, const void *right)
{
    const dw_compared_key *a = left, *b = right;
    return a->print < b->print ? -1 : a->print > b->print;
}

static bool is_in(const dw_comparison *c, uint64_t i, uint64_t range, unsigned depth)
{
    return i < c->n && (depth == 0 || c->keys[i].place >> (64 - depth) == range);
}

/* The first key of a range, or of those behind it. */
static uint64_t first_of(const dw_comparison *c, uint64_t range, unsigned depth)
{
    uint64_t place = depth ? range << (64 - depth) : 0, low = 0, high = c->n;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (c->keys[middle].place < place)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Cuts the prints of a range that begins with this key to what a list has of them, and brings its
 * keys into their order. Returns the first key behind it. No peer can make this slow: it could
 * choose keys of one place and one print. */
static uint64_t sort_range(dw_comparison *c, uint64_t begin, uint32_t range)
{
    uint64_t end = begin;
    for (; is_in(c, end, range, c->depth); end++)
        if (c->listed_bytes == WORD) c->keys[end].print = (uint32_t)c->keys[end].print;
    qsort(c->keys + begin, (size_t)(end - begin), sizeof *c->keys, by_print);
    return end;
}

/* The digest of the range that begins with key *at, which becomes the first one behind it. */
static uint32_t digest_of(const dw_comparison *c, uint64_t range, unsigned depth, uint64_t *at)
{
    uint64_t sum = 0;
    for (; is_in(c, *at, range, depth); ++*at) sum += c->keys[*at].print;
    return (uint32_t)sum;
}

/* Replaces the ranges by those of their parts that are marked. */
static dw_status narrow(dw_comparison *c, unsigned bits, const uint8_t *marks)
{
    uint64_t parts = c->n_ranges << bits, n = 0, cap = 0;
    uint32_t *kept = NULL;
    for (uint64_t i = 0; i < parts; i++) n += is_marked(marks, i);
    if (!grow(c, &kept, &cap, n + 1, sizeof *kept)) return DW_ERR_NO_MEMORY;
    n = 0;
    for (uint64_t i = 0; i < parts; i++)
        if (is_marked(marks, i))
            kept[n++] = c->ranges[i >> bits] << bits | (uint32_t)(i & ((1U << bits) - 1));
    dw_mem_release(c->allocator, c->ranges, c->ranges_cap * sizeof *c->ranges);
    c->ranges = kept;
    c->ranges_cap = cap;
    c->n_ranges = n;
    c->depth += bits;
    return DW_OK;
}

/* ---- Messages to the peer -------------------------------------------------------------------- */

/* The message is complete, and so is the comparison if it has no further step. */
static void leave(dw_comparison *c, uint64_t step)
{
    c->has_out = true;
    c->out_step = step;
    c->is_done = step == c->splits + 2;
    c->awaited = c->is_done ? NEVER : step ? step + 1 : 0;
}

dw_status dw_comparison_begin(dw_comparison *c)
{
    uint8_t *body = append(c, ROOT_BYTES);
    if (!body) return DW_ERR_NO_MEMORY;
    if (c->n) qsort(c->keys, (size_t)c->n, sizeof *c->keys, by_place);
    for (uint64_t i = 0; i < c->n; i++) c->root += c->keys[i].print;
    dw_put64(body, c->n);
    dw_put64(body + 8, c->root);
    leave(c, 0);
    return DW_OK;
}

/* The digests of all parts of the ranges. */
static dw_status append_digests(dw_comparison *c, unsigned bits)
{
    uint8_t *to = append(c, (c->n_ranges << bits) * WORD);
    if (!to) return DW_ERR_NO_MEMORY;
    for (uint64_t r = 0; r < c->n_ranges; r++) {
        uint64_t at = first_of(c, c->ranges[r], c->depth);
        for (uint64_t part = 0; part < 1U << bits; part++, to += WORD)
            dw_put32(to, digest_of(c, (uint64_t)c->ranges[r] << bits | part, c->depth + bits, &at));
    }
    return DW_OK;
}

/* The keys of all ranges. */
static dw_status append_list(dw_comparison *c)
{
    for (uint64_t r = 0; r < c->n_ranges; r++) {
        uint64_t begin = first_of(c, c->ranges[r], c->depth);
        uint64_t end = sort_range(c, begin, c->ranges[r]);
        uint8_t *to = append(c, WORD + (end - begin) * c->listed_bytes);
        if (!to) return DW_ERR_NO_MEMORY;
        dw_put32(to, (uint32_t)(end - begin));
        to += WORD;
        for (uint64_t i = begin; i < end; i++, to += c->listed_bytes)
            if (c->listed_bytes == WORD)
                dw_put32(to, (uint32_t)c->keys[i].print);
            else
                dw_put64(to, c->keys[i].print);
        c->n_listed += end - begin;
    }
    return DW_OK;
}

/* Completes the message behind its marks. */
static dw_status answer(dw_comparison *c, uint64_t step)
{
    dw_status status = step <= c->splits ? append_digests(c, c->bits[step - 1]) : append_list(c);
    if (status == DW_OK) leave(c, step);
    return status;
}

/* ---- Messages of the peer -------------------------------------------------------------------- */

static void choose_splits(dw_comparison *c, uint64_t n_of_other)
{
    unsigned depth = 0;
    c->n_of_lister = c->n < n_of_other ? c->n : n_of_other;
    while (c->n_of_lister >> depth > DW_COMPARISON_SMALL && depth < DW_COMPARISON_DEEPEST) depth++;
    c->bits[0] = depth < DW_COMPARISON_FIRST ? depth : DW_COMPARISON_FIRST;
    c->bits[1] = depth - c->bits[0];
    c->splits = (c->bits[0] > 0) + (c->bits[1] > 0);
    uint64_t larger = c->n < n_of_other ? n_of_other : c->n;
    c->listed_bytes = larger >> depth > 2 * DW_COMPARISON_SMALL ? 2 * WORD : WORD;
}

static dw_status take_root(dw_comparison *c, const uint8_t *body, size_t len)
{
    if (len != ROOT_BYTES) return DW_ERR_PROTOCOL;
    uint64_t n = dw_get64(body);
    bool is_same = n == c->n && dw_get64(body + 8) == c->root;
    c->is_done = is_same || n == 0 || c->n == 0;
    for (uint64_t i = 0; i < c->n && c->is_done && !is_same; i++)
        if (!add_differing(c, c->keys[i].key)) return DW_ERR_NO_MEMORY;
    if (c->is_done) return DW_OK;
    c->is_lister = c->n < n || (c->n == n && c->is_encoder);
    choose_splits(c, n);
    if (!grow(c, &c->ranges, &c->ranges_cap, 1, sizeof *c->ranges)) return DW_ERR_NO_MEMORY;
    c->ranges[0] = 0;
    c->n_ranges = 1;
    c->awaited = 1;
    return (c->splits % 2 == 0) == c->is_lister ? answer(c, 1) : DW_OK;
}

/* Reads the marks of the ranges in our message before, with which a message begins. */
static dw_status take_marks(dw_comparison *c, uint64_t step, const uint8_t **body, size_t *len)
{
    if (step < 2) return DW_OK;
    unsigned bits = c->bits[step - 2];
    uint64_t bytes = mark_bytes(c->n_ranges << bits);
    if (*len < bytes) return DW_ERR_PROTOCOL;
    dw_status status = narrow(c, bits, *body);
    *body += bytes;
    *len -= (size_t)bytes;
    return status;
}

static dw_status take_digests(dw_comparison *c, uint64_t step, const uint8_t *body, size_t len)
{
    unsigned bits = c->bits[step - 1];
    uint64_t parts = c->n_ranges << bits, i = 0;
    if (len != parts * WORD) return DW_ERR_PROTOCOL;
    uint8_t *marks = append(c, mark_bytes(parts));
    if (!marks) return DW_ERR_NO_MEMORY;
    for (uint64_t r = 0; r < c->n_ranges; r++) {
        uint64_t at = first_of(c, c->ranges[r], c->depth);
        for (uint64_t part = 0; part < 1U << bits; part++, i++)
            if (digest_of(c, (uint64_t)c->ranges[r] << bits | part, c->depth + bits, &at) !=
                dw_get32(body + i * WORD))
                mark(marks, i);
    }
    dw_status status = narrow(c, bits, marks);
    return status == DW_OK ? answer(c, step + 1) : status;
}

/* Compares the keys of a range with those that the peer lists, `count` of them at *body, the first
 * of which has mark *i. */
static dw_status take_range(dw_comparison *c, uint32_t range, uint32_t count, const uint8_t **body,
                            uint8_t *marks, uint64_t *i)
{
    uint64_t k = first_of(c, range, c->depth), end = sort_range(c, k, range), before = 0;
    for (uint32_t listed = 0; listed < count; listed++, ++*i, *body += c->listed_bytes) {
        uint64_t print = c->listed_bytes == WORD ? dw_get32(*body) : dw_get64(*body);
        if (print < before) return DW_ERR_PROTOCOL;
        before = print;
        for (; k < end && c->keys[k].print < print; k++)
            if (!add_differing(c, c->keys[k].key)) return DW_ERR_NO_MEMORY;
        if (k < end && c->keys[k].print == print)
            k++;
        else
            mark(marks, *i);
    }
    for (; k < end; k++)
        if (!add_differing(c, c->keys[k].key)) return DW_ERR_NO_MEMORY;
    return DW_OK;
}

static dw_status take_list(dw_comparison *c, const uint8_t *body, size_t len)
{
    if (len < c->n_ranges * WORD) return DW_ERR_PROTOCOL;
    uint64_t bytes = len - c->n_ranges * WORD, left = bytes / c->listed_bytes, i = 0;
    if (bytes % c->listed_bytes || left > c->n_of_lister) return DW_ERR_PROTOCOL;
    uint8_t *marks = append(c, mark_bytes(left));
    if (!marks) return DW_ERR_NO_MEMORY;
    for (uint64_t r = 0; r < c->n_ranges; r++) {
        uint32_t count = dw_get32(body);
        if (count > left) return DW_ERR_PROTOCOL;
        left -= count;
        body += WORD;
        dw_status status = take_range(c, c->ranges[r], count, &body, marks, &i);
        if (status < 0) return status;
    }
    if (left) return DW_ERR_PROTOCOL;
    leave(c, c->splits + 2);
    return DW_OK;
}

static dw_status take_verdict(dw_comparison *c, const uint8_t *body, size_t len)
{
    uint64_t i = 0;
    if (len != mark_bytes(c->n_listed)) return DW_ERR_PROTOCOL;
    for (uint64_t r = 0; r < c->n_ranges; r++) {
        uint64_t k = first_of(c, c->ranges[r], c->depth);
        for (; is_in(c, k, c->ranges[r], c->depth); k++, i++)
            if (is_marked(body, i) && !add_differing(c, c->keys[k].key)) return DW_ERR_NO_MEMORY;
    }
    c->is_done = true;
    return DW_OK;
}

dw_status dw_comparison_take(dw_comparison *c, uint64_t step, const uint8_t *body, size_t len)
{
    dw_status status = DW_OK;
    if (c->is_done || step == NEVER || step != c->awaited) return DW_ERR_PROTOCOL;
    c->awaited = NEVER;
    c->has_out = false;
    c->out_len = 0;
    if (step == 0) return take_root(c, body, len);
    if (step <= c->splits + 1) status = take_marks(c, step, &body, &len);
    if (status < 0) return status;
    if (step <= c->splits) return take_digests(c, step, body, len);
    return step == c->splits + 1 ? take_list(c, body, len) : take_verdict(c, body, len);
}
