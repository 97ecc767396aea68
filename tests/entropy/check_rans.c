/* SPDX-License-Identifier: Apache-2.0
 * check_rans.c - tests entropy-coded blocks (docs/format.md, 3.7): every table of kernels makes and
 * reads the same blocks, between guard pages, and the slow model of the page (rans_model.h) agrees.
 * The tests of blocks in parts are in check_parts.c, those of blocks whose codes follow a trellis
 * in check_trellis_blocks.c.
 *
 * usage: check_rans [--share N]
 * With --share, the tests make only one in N of their random draws. */
#include <math.h>

#include "base/bytes.h"
#include "rans_rig.h"

/* Returns the entropy of n codes in bytes: a coder that knows only how often each code occurs
 * cannot make them shorter. */
static double entropy_bytes(const uint8_t *codes, uint64_t n)
{
    double counts[256] = {0}, bits = 0;
    for (uint64_t i = 0; i < n; i++) counts[codes[i]]++;
    for (int c = 0; c < 256; c++)
        if (counts[c] > 0) bits -= counts[c] * log2(counts[c] / (double)n);
    return bits / 8;
}

/* Lets the model make a plain block of n codes with the head and frequencies m. Returns the bytes
 * of the block. */
static size_t model_block(const rans_model *m, const uint8_t *codes, uint64_t n, uint8_t *block)
{
    return rans_model_encode(m, &(uint32_t){(uint32_t)n}, 1, codes, block);
}

/* Draws n codes from a source. Every table must make the same block of them as C's table, and
 * decode it to these codes; and so must the model. Writes the block to `block`, which has room for
 * n bytes, and returns its bytes; 0: no block would be shorter than the codes. */
static size_t check_block(rig *r, const source *s, uint64_t n, uint8_t *block)
{
    static uint8_t plain[MOST_CODES], by_model[MOST_CODES], again[RANS_MODEL_MOST];
    const char *what = describe(s, n);
    memcpy(plain, draw(r, s, n), n);
    size_t bytes = encode(r, specification, plain, n, block, n);
    for (int i = 0; i < r->n_tables; i++) {
        const dw_kernels *kernels = r->tables[i];
        uint8_t *codes = dirty(r, r->codes, n), *to = dirty(r, r->to, bytes);
        memcpy(codes, plain, n);
        size_t made = encode(r, kernels, codes, n, to, bytes > 0 ? bytes : n);
        if (made != bytes) fail_msg("%s: %zu bytes, not %zu: %s", kernels->name, made, bytes, what);
        same_bytes("block", block, to, bytes, kernels->name, what);
        if (bytes > 0) must_decode(r, kernels, block, bytes, plain, n, what);
    }
    if (bytes > 0) {
        assert_true(bytes < n);
        assert_true(rans_model_decode(block, bytes, &(uint32_t){(uint32_t)n}, 1, by_model));
        same_bytes("the model's codes", plain, by_model, n, "c", what);
        rans_model m;
        assert_int_equal(rans_model_read(block, bytes, &m), 1);
        assert_int_equal(model_block(&m, plain, n, again), bytes);
        same_bytes("the model's block", again, block, bytes, "c", what);
    }
    return bytes;
}

/* ---- Tests ----------------------------------------------------------------------------------- */

RANS_TEST(tables_make_the_same_blocks)
{
    static uint8_t block[MOST_CODES];
    uint32_t draws = 600 / share, paid = 0, ways[5] = {0}; /* ways: the blocks with each k */
    for (uint32_t i = 0; i < draws; i++) {
        source s = any_source(r);
        size_t bytes = check_block(r, &s, any_n(r), block);
        paid += bytes > 0;
        if (bytes > 0) ways[block[0]]++;
    }
    assert_true(paid > draws / 4 && paid < draws);
    assert_true(share > 1 || (ways[1] > 20 && ways[2] > 20 && ways[4] > 20));
}

/* An encoder may choose k and the frequencies as it likes, and a decoder must accept any that are
 * valid. So every table decodes blocks that the model makes with random ones. */
RANS_TEST(blocks_of_the_model_are_read)
{
    static uint8_t block[RANS_MODEL_MOST], codes[MOST_CODES];
    uint32_t draws = 600 / share, valid = 0;
    for (uint32_t i = 0; i < draws; i++) {
        rans_model m = any_model(r);
        uint64_t n = any_n(r);
        uint32_t usual = 0;
        for (uint32_t c = 0; c < m.range; c++) usual = m.f[c] > m.f[usual] ? c : usual;
        for (uint64_t at = 0; at < n; at++) {
            uint32_t c = less_than(r, 3) ? usual : less_than(r, m.range);
            codes[at] = (uint8_t)(m.least + (m.f[c] > 0 ? c : usual));
        }
        size_t bytes = model_block(&m, codes, n, block);
        if (bytes >= n) continue; /* such a block is not valid */
        valid++;
        for (int t = 0; t < r->n_tables; t++)
            must_decode(r, r->tables[t], block, bytes, codes, n, "a block of the model");
    }
    assert_true(valid > draws / 4);
}

/* Blocks are at most 1 % and 150 bytes longer than the entropy of their codes. The 32 states alone
 * take 128 bytes. */
RANS_TEST(sizes_are_near_the_entropy)
{
    static uint8_t block[MOST_CODES];
    static const double steps[] = {0.1, 0.35, 1, 1.4, 2, 3, 4, 6};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        for (int kind = GAUSS; kind <= LAPLACE; kind++) {
            source s = {.kind = kind, .step = steps[i]};
            const uint8_t *codes = draw(r, &s, 32768);
            double least = entropy_bytes(codes, 32768);
            size_t bytes = encode(r, specification, codes, 32768, block, 32768);
            assert_true(bytes > 0);
            if ((double)bytes > 1.01 * least + 150)
                fail_msg("%zu bytes, entropy %.1f: %s", bytes, least, describe(&s, 32768));
        }
}

/* Fails unless encoding n codes with room for `cap` bytes returns 0 and leaves that room
 * unchanged. */
static void writes_nothing(rig *r, const dw_kernels *kernels, const uint8_t *codes, uint64_t n,
                           size_t cap)
{
    uint8_t *to = dirty(r, r->to, cap), before = to[0];
    assert_int_equal(encode(r, kernels, codes, n, to, cap), 0);
    for (size_t i = 0; i < cap; i++) assert_int_equal(to[i], before);
}

/* The encoder writes no block of noise, none that is longer than the room for it, and none that
 * would be as long as its codes. */
RANS_TEST(blocks_that_do_not_pay_are_not_written)
{
    source noise = {.kind = UNIFORM, .range = 256}, skew = {.kind = GAUSS, .step = 1};
    for (int t = 0; t < r->n_tables; t++) {
        const dw_kernels *kernels = r->tables[t];
        writes_nothing(r, kernels, draw(r, &noise, 32768), 32768, 32768);
        const uint8_t *codes = draw(r, &skew, 4096);
        size_t bytes = encode(r, kernels, codes, 4096, dirty(r, r->to, 4096), 4096);
        assert_in_range(bytes, 1000, 1500);
        for (size_t cap = bytes - 1; cap > 0; cap = cap > 300 ? cap - 97 : cap - 1)
            writes_nothing(r, kernels, codes, 4096, cap);
        writes_nothing(r, kernels, draw(r, &skew, 130), 130, 130);
    }
}

/* A block in which all codes are equal consists of the header alone. It is written only if it is
 * shorter than the codes. */
RANS_TEST(blocks_of_one_code_take_six_bytes)
{
    static const uint8_t expected[6] = {1, 77, 0, 0, 0, 0};
    source s = {.kind = CONSTANT, .least = 77};
    for (uint64_t n = 1; n < 100; n++) {
        const uint8_t *codes = draw(r, &s, n);
        uint8_t *to = dirty(r, r->to, 6);
        size_t bytes = encode(r, specification, codes, n, to, 6);
        assert_int_equal(bytes, n > 6 ? 6 : 0);
        if (bytes > 0) assert_memory_equal(to, expected, 6);
        if (bytes > 0) must_decode(r, specification, to, 6, codes, n, "one code");
    }
}

/* Decodes a block of n codes, which may be damaged, with every table. Fails unless all refuse it
 * with the same sentence, or all of them, and the model, decode the same codes. Returns whether
 * they refuse it. */
static bool is_refused(rig *r, const uint8_t *block, size_t bytes, uint64_t n)
{
    static uint8_t expected[MOST_CODES];
    const char *wrong, *said = NULL;
    for (int t = 0; t < r->n_tables; t++) {
        const uint8_t *back = decode(r, r->tables[t], block, bytes, n, &wrong);
        if (t == 0) {
            said = wrong;
            assert_true(wrong ||
                        rans_model_decode(block, bytes, &(uint32_t){(uint32_t)n}, 1, expected));
        }
        if (wrong != said)
            fail_msg("%s: '%s', not '%s'", r->tables[t]->name, wrong ? wrong : "",
                     said ? said : "");
        if (back) same_bytes("damaged", expected, back, n, r->tables[t]->name, "");
    }
    return said != NULL;
}

/* Makes a valid block with k codes per symbol, the same block in every call. The number of codes is
 * such that the last symbol is incomplete, and so is the last group of 32 symbols. Sets *n to the
 * number of codes, and returns the bytes of the block. */
static size_t sample_block(rig *r, uint32_t k, uint64_t *n, uint8_t *block)
{
    static uint8_t codes[MOST_CODES];
    r->random.state = k;
    rans_model m = {.k = k, .least = 9, .range = k == 1 ? 33 : k == 2 ? 7 : 3};
    *n = k == 1 ? 401 : k == 2 ? 803 : 1607;
    for (uint32_t i = 0; i < m.range; i++) m.f[i] = 10 + 5 * i;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < m.range; i++) sum += m.f[i];
    m.f[m.range / 2] += DW_RANS_SLOTS - sum;
    for (uint64_t i = 0; i < *n; i++)
        codes[i] = (uint8_t)(m.least + (less_than(r, 5) ? m.range / 2 : less_than(r, m.range)));
    return model_block(&m, codes, *n, block);
}

/* Fails unless every beginning of a valid block is refused, with and without a header that says so
 * many words as are left. Changes the block. */
static void check_truncated(rig *r, uint8_t *block, size_t bytes, uint64_t n)
{
    assert_false(is_refused(r, block, bytes, n));
    for (size_t cut = 0; cut < bytes; cut += share) assert_true(is_refused(r, block, cut, n));
    /* Here the header says one word less in every round. */
    for (size_t cut = bytes - 2; block[4] | block[5]; cut -= 2) {
        block[5] = (uint8_t)(block[5] - (block[4] == 0));
        block[4]--;
        assert_true(is_refused(r, block, cut, n));
    }
}

RANS_TEST(truncated_blocks_are_refused)
{
    static uint8_t block[RANS_MODEL_MOST];
    uint64_t n;
    for (uint32_t k = 1; k <= 4; k *= 2) {
        size_t bytes = sample_block(r, k, &n, block);
        check_truncated(r, block, bytes, n);
    }
}

/* A decoder reads whole groups of 32 symbols with fast loops and the rest with others, and both
 * must notice that words are missing. The block has more codes than the reader is told, and each of
 * its last symbols takes nearly a word; so as words are removed from its end, there are blocks in
 * which words are missing only behind the last whole group. */
RANS_TEST(words_missing_at_the_end_are_noticed)
{
    static uint8_t block[RANS_MODEL_MOST], codes[32 * 30 + 31 + 64];
    const rans_model m = {.k = 1, .least = 7, .range = 3, .f = {1, 4094, 1}};
    for (size_t i = 0; i < sizeof codes; i++)
        codes[i] = (uint8_t)(i + 127 < sizeof codes ? 8 : i % 2 ? 7 : 9);
    size_t bytes = model_block(&m, codes, sizeof codes, block);
    uint64_t words = dw_get(block + 4, 2);
    for (int again = 0; again < 4; again++) /* so that blocks lie at either guard page */
        for (uint64_t count = words + 1; count-- > 0;) {
            dw_put(block + 4, count, 2);
            bool is = is_refused(r, block, bytes - (size_t)(2 * (words - count)), 32 * 30 + 31);
            assert_true(is);
        }
}

/* Flips every bit of valid blocks, and overwrites random stretches of them. A wrong bit changes a
 * state, and the state stays wrong to its end, where the decoder sees it; unless the wrong bit
 * leads to another symbol with as many slots as the right one. So at least three quarters of the
 * blocks with a flipped bit are refused, and in the header all but those with another `least`. */
RANS_TEST(nearly_all_damaged_blocks_are_refused)
{
    static uint8_t block[RANS_MODEL_MOST], damaged[RANS_MODEL_MOST];
    for (uint32_t k = 1; k <= 4; k *= 2) {
        uint64_t n;
        size_t bytes = sample_block(r, k, &n, block), tried = 0, refused = 0;
        for (size_t bit = 0; bit < 8 * bytes; bit += bit < 48 ? 1 : share) {
            memcpy(damaged, block, bytes);
            damaged[bit / 8] = (uint8_t)(damaged[bit / 8] ^ 1u << bit % 8);
            bool is = is_refused(r, damaged, bytes, n);
            /* Byte 1 of the header is `least`: any other value may give a valid block. */
            assert_true(is || bit / 8 == 1 || bit / 8 > 5);
            tried++;
            refused += is;
        }
        if (refused < tried - tried / 4)
            fail_msg("only %zu of %zu damaged blocks are refused", refused, tried);
        for (uint32_t i = 0; i < 1000 / share; i++) {
            memcpy(damaged, block, bytes);
            uint32_t first = less_than(r, (uint32_t)bytes), length = 1 + less_than(r, 40);
            for (uint32_t at = first; at < first + length && at < bytes; at++)
                damaged[at] = (uint8_t)less_than(r, 256);
            is_refused(r, damaged, bytes, n);
        }
    }
}

/* Fails unless C's table refuses the block with a sentence that contains `word`. */
static void expect_refusal(rig *r, const uint8_t *block, size_t bytes, uint64_t n, const char *word)
{
    const char *wrong;
    decode(r, specification, block, bytes, n, &wrong);
    if (!wrong) fail_msg("a block is taken that should be refused for its %s", word);
    if (!strstr(wrong, word)) fail_msg("'%s' does not name %s", wrong, word);
}

/* Changes one byte of a valid block with k = 1. Fails unless the block is refused with a sentence
 * that contains `word`. */
static void refuse_changed(rig *r, size_t at, uint8_t value, const char *word)
{
    static uint8_t block[RANS_MODEL_MOST];
    uint64_t n;
    size_t bytes = sample_block(r, 1, &n, block);
    assert_true(block[at] != value);
    block[at] = value;
    expect_refusal(r, block, bytes, n, word);
}

/* Breaks every rule of plain blocks. The decoder's sentence names the rule. */
RANS_TEST(decoders_name_the_rule_that_a_block_breaks)
{
    static uint8_t block[RANS_MODEL_MOST];
    static const uint8_t one[6] = {1, 3, 0, 0, 0, 0}, pairs[6] = {2, 3, 0, 0, 0, 0},
                         word[6] = {1, 3, 0, 0, 1, 0};
    uint64_t n;
    size_t bytes = sample_block(r, 1, &n, block), states = bytes - 128;
    states -= 2 * (block[4] + 256u * block[5]);
    expect_refusal(r, block, bytes, bytes, "shorter");
    must_decode(r, specification, one, 6, (const uint8_t[7]){3, 3, 3, 3, 3, 3, 3}, 7, "shorter");
    expect_refusal(r, one, 6, 6, "shorter");
    expect_refusal(r, block, 5, n, "header");
    expect_refusal(r, block, bytes - 1, n, "cut off");
    refuse_changed(r, 0, 0, "per symbol");
    refuse_changed(r, 0, 3, "per symbol");
    refuse_changed(r, 0, 2, "256 symbols");
    refuse_changed(r, 0, 4, "256 symbols");
    refuse_changed(r, 3, 1, "parts");
    refuse_changed(r, 1, 256 - 32, "255");
    expect_refusal(r, pairs, 6, 100, "one code");
    expect_refusal(r, word, 6, 100, "one code");
    refuse_changed(r, 6, (uint8_t)(block[6] | 15), "12 bits");
    refuse_changed(r, 6, (uint8_t)(block[6] ^ 16), "4096");
    refuse_changed(r, states - 1, (uint8_t)(block[states - 1] | 0x80), "not zero");
    refuse_changed(r, 4, (uint8_t)(block[4] - 1), "words");
    dw_put(block + 4, dw_get(block + 4, 2) + 1, 2);
    expect_refusal(r, block, bytes + 2, n, "more words");
    memset(block + states + 2, 0, 2);
    expect_refusal(r, block, bytes + 2, n, "below 65536");
    for (uint32_t end = 0; end < 2; end++) {
        rans_model m = {.k = 1, .least = 5, .range = 4, .f = {1, 4000, 95, 0}};
        m.f[end ? 0 : 3] = 0;
        m.f[end ? 3 : 0] = 1;
        uint8_t codes[300];
        memset(codes, 6, sizeof codes);
        bytes = model_block(&m, codes, sizeof codes, block);
        expect_refusal(r, block, bytes, sizeof codes, "first or last");
    }
}

/* The decoder says where a block ends, and does not look at the bytes behind it. */
RANS_TEST(decoders_tell_where_a_block_ends)
{
    static uint8_t block[RANS_MODEL_MOST + 64];
    for (uint32_t k = 1; k <= 4; k *= 2) {
        uint64_t n;
        size_t bytes = sample_block(r, k, &n, block), used = 0;
        memset(block + bytes, 0xa5, 64);
        for (int t = 0; t < r->n_tables; t++)
            assert_null(dw_rans_decode(r->tables[t], block, bytes + 64, r->back.start, n,
                                       r->work.start, &used));
        assert_int_equal(used, bytes);
    }
}

/* ---- The kernels themselves ------------------------------------------------------------------ */

/* Checks every table's histogram of n codes. what: names the codes in the failure message. */
static void count_with_all(rig *r, const uint8_t *codes, uint64_t n, const char *what)
{
    uint32_t expected[256] = {0}, counts[256];
    for (uint64_t at = 0; at < n; at++) expected[codes[at]]++;
    for (int t = 0; t < r->n_tables; t++) {
        memset(counts, 0xee, sizeof counts);
        r->tables[t]->histogram(codes, n, counts);
        same_bytes("counts", expected, counts, sizeof counts, r->tables[t]->name, what);
    }
}

/* Every table's histogram of codes is the one that is counted here. */
RANS_TEST(histograms_count_all_codes)
{
    for (uint32_t i = 0; i < 300 / share; i++) {
        source s = any_source(r);
        uint64_t n = any_n(r);
        count_with_all(r, draw(r, &s, n), n, describe(&s, n));
    }
}

/* The same for codes that are close to 128, as those of steps are, with outliers: none, few, or
 * many, anywhere or next to the others. */
RANS_TEST(histograms_count_codes_of_steps)
{
    static uint8_t codes[MOST_CODES];
    for (uint32_t i = 0; i < 300 / share; i++) {
        static const uint32_t reaches[] = {1, 3, 4, 7, 8, 12, 16, 20};
        uint32_t reach = reaches[less_than(r, 8)], one_in = i % 3 == 0 ? 0 : i % 3 == 1 ? 100 : 9;
        uint64_t n = any_n(r);
        for (uint64_t at = 0; at < n; at++) {
            codes[at] = (uint8_t)(128 - reach + less_than(r, 2 * reach));
            if (one_in && less_than(r, one_in) == 0)
                codes[at] = (uint8_t)(less_than(r, 2)   ? less_than(r, 256)
                                      : less_than(r, 2) ? 128 + reach
                                                        : 127 - reach);
        }
        char what[80];
        snprintf(what, sizeof what, "%u codes around 128, reach %u, outliers one in %u",
                 (uint32_t)n, reach, one_in);
        count_with_all(r, codes, n, what);
    }
}

/* Returns a state whose division by f is hard: an encoder computes floor(x / f) by a
 * multiplication, and at a state that is a multiple of f, or one less, a small error changes the
 * result. */
static uint32_t hard_state(rig *r, uint32_t f)
{
    uint64_t most = ((uint64_t)f << 20) - 1, x;
    switch (less_than(r, 4)) {
    case 0: x = most - less_than(r, 3); break;
    case 1: x = (uint64_t)f * (less_than(r, 1 << 20) | 1) - less_than(r, 2); break;
    case 2: x = 0xffffffffu - less_than(r, f); break;
    default: x = test_next(&r->random) & 0xffffffffu;
    }
    return (uint32_t)(x < DW_RANS_LOWEST ? DW_RANS_LOWEST + x : x);
}

/* Encodes n codes that are 0 or 1 with the kernel alone. start: the first slots of the two symbols
 * and the end of the last; states: the 32 states, which are changed; end: behind the room for the
 * words, which are written backwards. Returns the number of words. */
static uint64_t encode_pairs(rig *r, const dw_kernels *kernels, const uint16_t *start,
                             const uint8_t *codes, uint64_t n, uint32_t *states, uint8_t *end)
{
    uint16_t frequencies[2] = {(uint16_t)(start[1] - start[0]), (uint16_t)(start[2] - start[1])};
    dw_rans_encode_run run = {.codes = codes,
                              .n = n,
                              .per_symbol = 1,
                              .range = 2,
                              .start = start,
                              .frequencies = frequencies,
                              .states = states,
                              .scratch = (uint32_t *)(void *)r->work.start,
                              .end = end,
                              .most = n};
    return kernels->rans_encode(&run);
}

/* Every table gives the same states and words as C's table, for every frequency from 1 to 4095 and
 * for states that are hard to divide. */
RANS_TEST(encoders_divide_states_exactly)
{
    static uint8_t words[2][DW_RANS_ROOM + 256];
    enum { N = 64 };
    for (uint32_t f = 1; f < DW_RANS_SLOTS; f += share)
        for (int again = 0; again < 8; again++) {
            uint16_t start[3] = {0, (uint16_t)f, DW_RANS_SLOTS};
            uint32_t states[2][DW_RANS_STATES], before[DW_RANS_STATES];
            uint8_t *codes = dirty(r, r->codes, N);
            for (int i = 0; i < N; i++) codes[i] = again < 6 ? 0 : (uint8_t)less_than(r, 2);
            for (int i = 0; i < DW_RANS_STATES; i++) before[i] = hard_state(r, f);
            for (int t = 0; t < r->n_tables; t++) {
                memcpy(states[t > 0], before, sizeof before);
                memset(words[t > 0], 0, sizeof words[0]);
                uint64_t count = encode_pairs(r, r->tables[t], start, codes, N, states[t > 0],
                                              words[t > 0] + sizeof words[0]);
                size_t bytes = (size_t)(2 * count);
                same_bytes("states", states[0], states[t > 0], sizeof before, r->tables[t]->name,
                           "");
                same_bytes("words", words[0] + sizeof words[0] - bytes,
                           words[t > 0] + sizeof words[0] - bytes, bytes, r->tables[t]->name, "");
            }
        }
}

int main(int argc, char **argv)
{
    if (!test_can_run()) return 77;
    share = test_share(argc, argv);
    return test_run(NULL, NULL) + check_parts() + check_trellis_blocks();
}
