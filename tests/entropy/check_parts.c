/* SPDX-License-Identifier: Apache-2.0
 * check_parts.c - tests entropy-coded blocks whose codes are divided into parts (docs/format.md,
 * 3.7), like check_rans.c: every table of kernels makes and reads the same blocks, between guard
 * pages, and the slow model of the page agrees. check_rans.c runs these tests.
 *
 * In this file `parted` means the codes of all parts, one part directly behind the other, and
 * `counts` the number of codes in each part. The library wants a gap behind each part: see spread
 * and gather. */
#include "base/bytes.h"
#include "rans_rig.h"

enum { PARTS = DW_PARTS, GAP = DW_PART_GAP };

static uint64_t sum_of(const uint32_t *counts)
{
    uint64_t sum = 0;
    for (int i = 0; i < PARTS; i++) sum += counts[i];
    return sum;
}

/* Draws codes for every part from a source of its own, so that parts differ. Writes them to parted,
 * which has room for MOST_CODES, and sets counts. Returns the number of codes of all parts. */
static uint64_t draw_parts(rig *r, uint8_t *parted, uint32_t *counts)
{
    uint64_t n = any_n(r) + PARTS;
    n = n > MOST_CODES ? MOST_CODES : n;
    for (uint64_t i = 0, left = n, at = 0; i < PARTS; at += counts[i++]) {
        uint64_t most = left - (PARTS - 1 - i);
        counts[i] = (uint32_t)(i + 1 == PARTS ? left : 1 + less_than(r, (uint32_t)most));
        left -= counts[i];
        source s = any_source(r);
        memcpy(parted + at, draw(r, &s, counts[i]), counts[i]);
    }
    return n;
}

/* Copies the codes to `to`, with a gap of GAP bytes behind each part, which it does not write. */
static void spread(const uint8_t *parted, const uint32_t *counts, uint8_t *to)
{
    for (int i = 0; i < PARTS; parted += counts[i], to += counts[i] + GAP, i++)
        memcpy(to, parted, counts[i]);
}

/* The inverse of spread: removes the gaps in place, and returns the codes. Fails if something was
 * written to a gap: each of its bytes must still be `before`. */
static const uint8_t *gather(uint8_t *from, const uint32_t *counts, uint8_t before)
{
    uint8_t *to = from, *next = from;
    for (int i = 0; i < PARTS; next += counts[i++] + GAP) {
        for (int k = 0; k < GAP; k++) assert_int_equal(next[counts[i] + (uint32_t)k], before);
        memmove(to, next, counts[i]);
        to += counts[i];
    }
    return from;
}

/* Encodes codes in parts. The encoder writes a plain block if that is shorter; so it gets noise as
 * the plain codes, and every block that it writes has parts. Returns the bytes of the block; 0: the
 * block would not be shorter than cap allows. */
static size_t encode_parts(rig *r, const dw_kernels *kernels, const uint8_t *parted,
                           const uint32_t *counts, uint8_t *to, size_t cap)
{
    static uint8_t noise[MOST_CODES];
    uint64_t n = sum_of(counts);
    for (uint64_t i = 0; i < n; i++) noise[i] = (uint8_t)(i * 151);
    uint8_t *codes = dirty(r, r->codes, n + GAPS);
    spread(parted, counts, codes);
    dw_rans_codes all = {.codes = noise, .parted = codes, .n = n, .counts = counts};
    return dw_rans_encode(kernels, &all, to, cap, dirty(r, r->work, dw_rans_work_bytes(n, false)));
}

/* Decodes a block in parts, as `decode` does with a plain one. Returns its codes without gaps; or
 * NULL, and then *wrong is the decoder's sentence. */
static const uint8_t *decode_parts(rig *r, const dw_kernels *kernels, const uint8_t *block,
                                   size_t bytes, const uint32_t *counts, const char **wrong)
{
    uint64_t n = sum_of(counts);
    uint8_t *from = dirty(r, r->from, bytes), *back = dirty(r, r->back, n + GAPS), before = back[0];
    size_t used = 0;
    memcpy(from, block, bytes);
    *wrong = dw_rans_decode_parts(kernels, from, bytes, back, counts,
                                  dirty(r, r->work, dw_rans_work_bytes(n, false)), &used);
    assert_true(*wrong || (used > 0 && used <= bytes));
    return *wrong ? NULL : gather(back, counts, before);
}

/* Decodes a block with every table, and fails unless each gives the codes `parted`. what: names the
 * block in the failure message. */
static void all_must_decode(rig *r, const uint8_t *block, size_t bytes, const uint32_t *counts,
                            const uint8_t *parted, const char *what)
{
    const char *wrong;
    for (int t = 0; t < r->n_tables; t++) {
        const uint8_t *back = decode_parts(r, r->tables[t], block, bytes, counts, &wrong);
        if (wrong) fail_msg("%s: %s: %s", r->tables[t]->name, what, wrong);
        same_bytes("codes", parted, back, sum_of(counts), r->tables[t]->name, what);
    }
}

/* Every table makes the same block, and decodes it; and so does the model with the frequencies that
 * it reads from the block. */
RANS_TEST(tables_make_the_same_parts)
{
    static uint8_t parted[MOST_CODES], block[MOST_CODES], again[RANS_MODEL_MOST], back[MOST_CODES];
    static rans_model models[PARTS];
    uint32_t counts[PARTS], draws = 400 / share, paid = 0;
    for (uint32_t i = 0; i < draws; i++) {
        uint64_t n = draw_parts(r, parted, counts);
        size_t bytes = encode_parts(r, specification, parted, counts, block, n);
        for (int t = 0; t < r->n_tables; t++) {
            uint8_t *to = dirty(r, r->to, bytes);
            size_t made = encode_parts(r, r->tables[t], parted, counts, to, bytes ? bytes : n);
            assert_int_equal(made, bytes);
            same_bytes("block", block, to, bytes, r->tables[t]->name, "in parts");
        }
        if (bytes == 0) continue;
        paid++;
        assert_true(bytes < n && dw_rans_has_parts(block, bytes));
        all_must_decode(r, block, bytes, counts, parted, "in parts");
        assert_true(rans_model_decode(block, bytes, counts, PARTS, back));
        assert_memory_equal(back, parted, n);
        assert_int_equal(rans_model_read(block, bytes, models), PARTS);
        assert_int_equal(rans_model_encode(models, counts, PARTS, parted, again), bytes);
        assert_memory_equal(again, block, bytes);
    }
    assert_true(paid > draws / 4 && paid < draws);
}

/* Draws counts, codes, and frequencies that another encoder than ours could choose, and lets the
 * model make their block. Returns the bytes of the block. */
static size_t model_block(rig *r, uint32_t *counts, uint8_t *parted, uint8_t *block)
{
    static rans_model models[PARTS];
    for (uint64_t i = 0, at = 0; i < PARTS; i++) {
        counts[i] = 1 + less_than(r, 3000);
        models[i] = any_model(r);
        for (uint64_t end = at + counts[i]; at < end; at++) {
            uint32_t c = less_than(r, models[i].range);
            parted[at] = (uint8_t)(models[i].least + (models[i].f[c] > 0 ? c : 0));
        }
    }
    return rans_model_encode(models, counts, PARTS, parted, block);
}

RANS_TEST(parts_of_the_model_are_read)
{
    static uint8_t parted[MOST_CODES], block[RANS_MODEL_MOST];
    uint32_t counts[PARTS], draws = 400 / share, valid = 0;
    for (uint32_t i = 0; i < draws; i++) {
        size_t bytes = model_block(r, counts, parted, block);
        if (bytes >= sum_of(counts)) continue; /* such a block is not valid */
        valid++;
        all_must_decode(r, block, bytes, counts, parted, "the model's parts");
    }
    assert_true(valid > draws / 8);
}

/* A block in parts has three more heads and tables than a plain one. So of four parts with the same
 * distribution the encoder makes a plain block, and of four parts that differ a block in parts. */
RANS_TEST(the_shorter_block_is_written)
{
    static uint8_t codes[8192], parted[8192], spaced[8192 + GAPS], block[8192];
    const uint32_t counts[PARTS] = {2048, 2048, 2048, 2048};
    dw_rans_codes all = {.codes = codes, .parted = spaced, .n = sizeof codes, .counts = counts};
    source same = {.kind = GAUSS, .step = 1};
    memcpy(codes, draw(r, &same, sizeof codes), sizeof codes);
    spread(codes, counts, spaced);
    size_t plain = dw_rans_encode(specification, &all, block, sizeof block, r->work.start);
    assert_true(plain > 0 && !dw_rans_has_parts(block, plain));
    for (size_t i = 0; i < sizeof codes; i++) codes[i] = parted[i] = (uint8_t)(i / 2048);
    spread(parted, counts, spaced);
    for (size_t i = 0; i < sizeof codes; i += 2) codes[i] = (uint8_t)(3 - codes[i]);
    size_t bytes = dw_rans_encode(specification, &all, block, sizeof block, r->work.start);
    assert_int_equal(bytes, 6 + 3 * 3); /* each part has one code: there are no states */
    assert_true(dw_rans_has_parts(block, bytes));
    all_must_decode(r, block, bytes, counts, parted, "one code each");
}

/* Fails unless every table refuses the block with the same sentence, which contains `word`. */
static void refuse(rig *r, const uint8_t *block, size_t bytes, const uint32_t *counts,
                   const char *word)
{
    const char *wrong, *first = NULL;
    for (int t = 0; t < r->n_tables; t++) {
        decode_parts(r, r->tables[t], block, bytes, counts, &wrong);
        if (!wrong) fail_msg("%s takes a block that is wrong: %s", r->tables[t]->name, word);
        if (t == 0) first = wrong;
        assert_ptr_equal(wrong, first);
        if (!strstr(wrong, word)) fail_msg("'%s' does not name %s", wrong, word);
    }
}

/* Makes a block of four parts with 1000 codes each. The first part has one code, and so no table of
 * frequencies; therefore the head of the second part is at byte 6. Sets counts, and returns the
 * bytes of the block. */
static size_t sample_parts(rig *r, uint8_t *block, uint32_t *counts)
{
    static uint8_t parted[4000];
    static const rans_model models[PARTS] = {{1, 128, 1, {4096}},
                                             {2, 127, 3, {96, 3900, 100}},
                                             {4, 5, 2, {4000, 96}},
                                             {1, 9, 3, {1000, 2000, 1096}}};
    for (uint32_t i = 0; i < sizeof parted; i++)
        parted[i] = (uint8_t)(models[i / 1000].least +
                              (less_than(r, 9) ? models[i / 1000].range / 2
                                               : less_than(r, models[i / 1000].range)));
    for (int i = 0; i < PARTS; i++) counts[i] = 1000;
    size_t bytes = rans_model_encode(models, counts, PARTS, parted, block);
    all_must_decode(r, block, bytes, counts, parted, "the sample");
    return bytes;
}

/* Breaks every rule about parts in a valid block. The decoder's sentence names the rule. */
RANS_TEST(rules_of_parts_have_sentences)
{
    static uint8_t good[RANS_MODEL_MOST], block[RANS_MODEL_MOST];
    static const struct {
        size_t at; /* the byte that is changed to value */
        uint8_t value;
        const char *word; /* is in the sentence */
    } cases[] = {
        {3, 0, "parts"}, {3, 2, "parts"},        {6, 3, "per symbol"},        {6, 0, "per symbol"},
        {7, 254, "255"}, {8, 16, "256 symbols"}, {0, 2, "several per symbol"}};
    uint32_t counts[PARTS];
    size_t bytes = sample_parts(r, good, counts);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(block, good, bytes);
        block[cases[i].at] = cases[i].value;
        refuse(r, block, bytes, counts, cases[i].word);
    }
    for (size_t cut = 0; cut < bytes; cut++) {
        const char *wrong;
        decode_parts(r, specification, good, cut, counts, &wrong);
        assert_non_null(wrong);
    }
    refuse(r, good, 8, counts, "head of a part");
    dw_put(good + 4, dw_get(good + 4, 2) + 1, 2);
    refuse(r, good, bytes + 2, counts, "more words");
    dw_put(good + 4, dw_get(good + 4, 2) - 2, 2);
    refuse(r, good, bytes, counts, "words");
    for (int i = 0; i < PARTS; i++) {
        uint32_t few[PARTS] = {1000, 1000, 1000, 1000};
        few[i] = 0;
        refuse(r, good, bytes, few, "no codes");
    }
}

/* Flips every bit of a valid block. All tables must refuse the damaged block with the same
 * sentence, or all of them, and the model, must decode the same codes from it. At least three
 * quarters of the damaged blocks are refused. */
RANS_TEST(damaged_parts_are_treated_alike)
{
    static uint8_t good[RANS_MODEL_MOST], block[RANS_MODEL_MOST], expected[4000];
    uint32_t counts[PARTS];
    size_t bytes = sample_parts(r, good, counts), tried = 0, refused = 0;
    for (size_t bit = 0; bit < 8 * bytes; bit += bit < 400 ? 1 : share) {
        const char *wrong, *first = NULL;
        memcpy(block, good, bytes);
        block[bit / 8] = (uint8_t)(block[bit / 8] ^ 1u << bit % 8);
        for (int t = 0; t < r->n_tables; t++) {
            const uint8_t *back = decode_parts(r, r->tables[t], block, bytes, counts, &wrong);
            if (t == 0) first = wrong;
            assert_ptr_equal(wrong, first);
            if (t == 0 && back) {
                assert_true(rans_model_decode(block, bytes, counts, PARTS, expected));
            }
            if (back) assert_memory_equal(back, expected, sizeof expected);
        }
        tried++;
        refused += first != NULL;
    }
    if (refused < tried - tried / 4)
        fail_msg("only %zu of %zu damaged blocks are refused", refused, tried);
}

/* ---- The kernels ----------------------------------------------------------------------------- */

/* Sorts n codes into parts and back again with every table, between guard pages. All tables must
 * find the counts and the parts that C's table finds, and restore the codes. */
static void sort_with_all(rig *r, uint64_t n)
{
    static uint8_t high[MOST_CODES], codes[MOST_CODES], sorted[MOST_CODES + GAPS];
    uint32_t counts[PARTS], found[PARTS];
    /* 0: all parts have codes; 1: nearly all codes are in two parts; 2: in one part. */
    uint32_t kind = less_than(r, 3);
    for (uint64_t i = 0; i < n; i++) {
        high[i] = (uint8_t)(kind == 0   ? less_than(r, 256)
                            : kind == 1 ? 120 + less_than(r, 16) * (i % 50 == 0)
                                        : 255);
        codes[i] = (uint8_t)less_than(r, 256);
    }
    for (int t = 0; t < r->n_tables; t++) {
        const dw_kernels *kernels = r->tables[t];
        uint8_t *h = dirty(r, r->from, n), *c = dirty(r, r->codes, n);
        memcpy(h, high, n);
        memcpy(c, codes, n);
        kernels->count_parts(h, n, found);
        if (t == 0) memcpy(counts, found, sizeof counts);
        assert_memory_equal(found, counts, sizeof counts);
        assert_int_equal(sum_of(counts), n);
        uint8_t *to = dirty(r, r->back, n + GAPS), *next[PARTS], *at = to;
        for (int i = 0; i < PARTS; at += counts[i++] + GAP) next[i] = at;
        const uint8_t *again[PARTS] = {next[0], next[1], next[2], next[3]};
        kernels->sort_parts(h, c, n, next);
        for (int i = 0; i < PARTS; i++) {
            assert_ptr_equal(next[i], again[i] + counts[i]);
            if (t == 0) memcpy(sorted + (again[i] - to), again[i], counts[i]);
            same_bytes("a part", sorted + (again[i] - to), again[i], counts[i], kernels->name, "");
        }
        uint8_t *back = dirty(r, r->to, n);
        kernels->restore_parts(h, again, n, back);
        same_bytes("restored", codes, back, n, kernels->name, "");
        for (int i = 0; i < PARTS; i++) assert_ptr_equal(again[i], next[i]);
    }
}

RANS_TEST(tables_sort_alike)
{
    for (uint64_t n = 1; n < 200; n++) sort_with_all(r, n);
    for (uint32_t i = 0; i < 200 / share; i++) sort_with_all(r, any_n(r));
}

int check_parts(void)
{
    return test_run(NULL, NULL);
}
