/* SPDX-License-Identifier: Apache-2.0
 * check_trellis_blocks.c - tests entropy-coded blocks whose codes follow a trellis (docs/format.md,
 * 3.7): every table of kernels makes and reads the same blocks, between guard pages, and the slow
 * model of the page agrees. check_rans.c runs these tests. */
#include <math.h>

#include "base/bytes.h"
#include "rans_rig.h"

enum { LANES = 32 };

/* ---- Codes ----------------------------------------------------------------------------------- */

/* The state behind an even and behind an odd index. */
static const uint8_t next_state[4][2] = {{0, 2}, {2, 0}, {1, 3}, {3, 1}};

static int level_of(int index, uint32_t kind)
{
    return 2 * index - (kind ? (index > 0) - (index < 0) : 0);
}

/* Draws n codes that follow a trellis: indices of a normal distribution of this size, whose codes
 * are told in `codes`, and their marks in `marks`. */
static void draw_codes(rig *r, uint64_t n, float size, uint8_t *codes, uint8_t *marks)
{
    uint8_t states[LANES] = {0};
    for (uint64_t i = 0; i < n; i++) {
        float value = rintf(size * test_normal(&r->random));
        int index = (int)fmaxf(fminf(value, DW_TRELLIS_INDEX), -DW_TRELLIS_INDEX);
        uint8_t *state = &states[i % LANES];
        codes[i] = (uint8_t)(128 + level_of(index, *state >> 1));
        marks[i] = (uint8_t)(128 + 2 * index + (*state >> 1));
        *state = next_state[*state][index & 1];
    }
}

/* Encodes codes that follow a trellis. The encoder writes a block with one table if that is
 * shorter, so it gets noise as its codes; every block that it writes has the tables of a trellis.
 */
static size_t encode_trellis(rig *r, const dw_kernels *kernels, const uint8_t *marks, uint64_t n,
                             uint8_t *to, size_t cap)
{
    static uint8_t noise[MOST_CODES];
    for (uint64_t i = 0; i < n; i++) noise[i] = (uint8_t)(i * 151);
    uint8_t *guarded_marks = dirty(r, r->codes, n);
    memcpy(guarded_marks, marks, n);
    dw_rans_codes all = {.codes = noise, .marks = guarded_marks, .n = n};
    return dw_rans_encode(kernels, &all, to, cap, dirty(r, r->work, dw_rans_work_bytes(n, true)));
}

static const uint8_t *decode_trellis(rig *r, const dw_kernels *kernels, const uint8_t *block,
                                     size_t bytes, uint64_t n, const char **wrong)
{
    uint8_t *from = dirty(r, r->from, bytes), *back = dirty(r, r->back, n);
    size_t used = 0;
    memcpy(from, block, bytes);
    *wrong = dw_rans_decode_trellis(kernels, from, bytes, back, n,
                                    dirty(r, r->work, dw_rans_work_bytes(n, true)), &used);
    assert_true(*wrong || used == bytes);
    return *wrong ? NULL : back;
}

/* ---- Tests ----------------------------------------------------------------------------------- */

RANS_TEST(tables_make_the_same_trellis)
{
    static uint8_t codes[MOST_CODES], marks[MOST_CODES], block[MOST_CODES], by_model[MOST_CODES],
        again[RANS_MODEL_MOST];
    uint32_t paid = 0, draws = 300 / share;
    const char *wrong;
    for (uint32_t i = 0; i < draws; i++) {
        uint64_t n = any_n(r);
        draw_codes(r, n, ldexpf(1, (int)less_than(r, 8) - 3), codes, marks);
        size_t bytes = encode_trellis(r, specification, marks, n, block, n);
        for (int t = 0; t < r->n_tables; t++) {
            const char *name = r->tables[t]->name;
            uint8_t *to = dirty(r, r->to, bytes);
            size_t made = encode_trellis(r, r->tables[t], marks, n, to, bytes ? bytes : n);
            assert_int_equal(made, bytes);
            same_bytes("block", block, to, bytes, name, "of a trellis");
            if (bytes == 0) continue;
            const uint8_t *back = decode_trellis(r, r->tables[t], block, bytes, n, &wrong);
            if (wrong) fail_msg("%s: %s", name, wrong);
            same_bytes("codes", codes, back, n, name, "of a trellis");
        }
        if (bytes == 0) continue;
        paid++;
        assert_true(dw_rans_has_trellis(block, bytes) && !dw_rans_has_parts(block, bytes));
        const uint32_t count = (uint32_t)n;
        rans_model tables[RANS_MODEL_PARTS];
        assert_true(rans_model_decode(block, bytes, &count, RANS_MODEL_TRELLIS, by_model));
        same_bytes("the model's codes", codes, by_model, n, "c", "of a trellis");
        assert_int_equal(rans_model_read(block, bytes, tables), RANS_MODEL_TRELLIS);
        size_t made = rans_model_encode(tables, &count, RANS_MODEL_TRELLIS, codes, again);
        assert_int_equal(made, bytes);
        same_bytes("the model's block", block, again, bytes, "c", "of a trellis");
    }
    assert_true(paid > draws / 4);
}

/* Of both kinds a block tells apart only half as many levels as it has in all: so it is shorter
 * than one with a single table. The encoder chooses the shorter one. */
RANS_TEST(blocks_with_a_trellis_are_shorter)
{
    static uint8_t codes[16384], marks[16384], block[16384];
    draw_codes(r, sizeof codes, 1, codes, marks);
    size_t plain = encode(r, specification, codes, sizeof codes, block, sizeof codes);
    dw_rans_codes all = {.codes = codes, .marks = marks, .n = sizeof codes};
    size_t bytes = dw_rans_encode(specification, &all, block, sizeof codes,
                                  dirty(r, r->work, dw_rans_work_bytes(sizeof codes, true)));
    assert_true(bytes > 0 && bytes < plain * 9 / 10);
    assert_true(dw_rans_has_trellis(block, bytes));
    memset(codes, 128, sizeof codes); /* nothing but zeros need six bytes and no trellis */
    memset(marks, 128, sizeof marks);
    assert_int_equal(dw_rans_encode(specification, &all, block, sizeof codes,
                                    dirty(r, r->work, dw_rans_work_bytes(sizeof codes, true))),
                     6);
    assert_false(dw_rans_has_trellis(block, 6));
}

/* Makes a valid block. Returns its bytes. */
static size_t sample(rig *r, uint8_t *block, uint64_t n)
{
    static uint8_t codes[MOST_CODES], marks[MOST_CODES];
    draw_codes(r, n, 2, codes, marks);
    size_t bytes = encode_trellis(r, specification, marks, n, block, n);
    assert_true(bytes > 0);
    return bytes;
}

static void expect_refused(rig *r, const uint8_t *block, size_t bytes, uint64_t n, const char *word)
{
    const char *wrong;
    for (int t = 0; t < r->n_tables; t++) {
        decode_trellis(r, r->tables[t], block, bytes, n, &wrong);
        if (!wrong) fail_msg("a block is taken that should be refused for its %s", word);
        if (!strstr(wrong, word)) fail_msg("'%s' does not name %s", wrong, word);
    }
}

static void refuse_byte(rig *r, size_t at, uint8_t value, const char *word)
{
    static uint8_t block[MOST_CODES];
    size_t bytes = sample(r, block, 8192);
    assert_true(block[at] != value);
    block[at] = value;
    expect_refused(r, block, bytes, 8192, word);
}

RANS_TEST(blocks_that_break_a_rule_of_the_trellis_are_refused)
{
    static uint8_t block[MOST_CODES];
    size_t bytes = sample(r, block, 8192);
    for (size_t cut = 1; cut < bytes; cut += 1 + bytes / 50)
        expect_refused(r, block, bytes - cut, 8192, "entropy-coded block");
    refuse_byte(r, 3, 0, "parts");
    refuse_byte(r, 3, 1, "parts");
    refuse_byte(r, 3, 3, "parts");
    refuse_byte(r, 0, 2, "trellis");
    refuse_byte(r, 1, 64, "trellis");
    refuse_byte(r, 1, 191, "trellis");
    refuse_byte(r, 2, 0, "trellis");
    size_t last_state = bytes - 2 * dw_get(block + 4, 2) - 4;
    memset(block + last_state + 2, 0, 2);
    expect_refused(r, block, bytes, 8192, "65536");
    bytes = sample(r, block, 8192);
    dw_put(block + 4, dw_get(block + 4, 2) - 1, 2);
    for (int again = 0; again < 6; again++) /* so that the block also ends at a guard page */
        expect_refused(r, block, bytes - 2, 8192, "words");
    dw_put(block + 4, dw_get(block + 4, 2) + 2, 2);
    expect_refused(r, block, bytes + 2, 8192, "words");
    /* with one code less, a state does not end where it should, or words are left */
    bytes = sample(r, block, 8192);
    expect_refused(r, block, bytes, 8191, "entropy-coded block");
}

int check_trellis_blocks(void)
{
    return test_run(NULL, NULL);
}
