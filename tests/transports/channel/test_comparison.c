/* SPDX-License-Identifier: Apache-2.0
 * test_comparison.c - the comparison of keys without a channel: what it finds, how many messages
 * and bytes it takes, and what becomes of messages that no honest end sends. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "channel/comparison.h"
#include "support/tool.h"

/* An allocator whose n-th call fails; 0: none. */
static int calls, fails_at;

static void *allocate(void *context, size_t bytes, size_t alignment)
{
    return ++calls == fails_at ? NULL : malloc(bytes);
}

static void release(void *context, void *memory, size_t bytes)
{
    free(memory);
}

static const dw_allocator allocator = {allocate, release, NULL};

/* ---- Two ends -------------------------------------------------------------------------------- */

/* What the ends hold of key i. */
typedef enum holding { SAME, OTHERWISE, ONE_END, THE_OTHER } holding;
typedef holding choice(uint64_t i, uint64_t n);

static holding same(uint64_t i, uint64_t n)
{
    return i < n ? SAME : OTHERWISE;
}

static holding all_otherwise(uint64_t i, uint64_t n)
{
    return OTHERWISE;
}

static holding only_one_end(uint64_t i, uint64_t n)
{
    return ONE_END;
}

static holding some(uint64_t i, uint64_t n)
{
    return i % 7 == 3 ? OTHERWISE : i % 11 == 5 ? ONE_END : i % 13 == 6 ? THE_OTHER : SAME;
}

static holding one_in_seven(uint64_t i, uint64_t n)
{
    return i % 7 == 3 ? OTHERWISE : SAME;
}

/* 1,000 of 10^6. */
static holding few(uint64_t i, uint64_t n)
{
    return i % 1000 ? SAME : i % 10000 == 0 ? ONE_END : i % 10000 == 1000 ? THE_OTHER : OTHERWISE;
}

static dw_held_key make_key(uint64_t i, int end, holding h)
{
    return (dw_held_key){.key = {.sample = i / 2, .slice = (uint32_t)(i % 2)},
                         .incarnation = 77,
                         .version = 1000 + i % 50 + (h == OTHERWISE && end),
                         .chain = i * 0x9e3779b97f4a7c15 + (h == OTHERWISE && end)};
}

typedef struct ends {
    dw_comparison of[2];
    uint64_t messages, bytes; /* of both ends together */
} ends;

/* Fills both; 0 is the encoder, unless it is swapped. */
static dw_status open_ends(ends *both, choice *choose, uint64_t n, bool swapped)
{
    dw_status status = DW_OK;
    memset(both, 0, sizeof *both);
    for (int e = 0; e < 2; e++) {
        dw_comparison_init(&both->of[e], &allocator, (e == 0) != swapped);
        for (uint64_t i = 0; i < n && status == DW_OK; i++) {
            holding h = choose(i, n);
            if (h == (e ? ONE_END : THE_OTHER)) continue;
            dw_held_key key = make_key(i, e, h);
            status = dw_comparison_add(&both->of[e], &key);
        }
        if (status == DW_OK) status = dw_comparison_begin(&both->of[e]);
    }
    return status;
}

static void close_ends(ends *both)
{
    for (int e = 0; e < 2; e++) dw_comparison_release(&both->of[e]);
}

/* Takes end e's message to the other one. */
static dw_status carry(ends *both, int e)
{
    dw_comparison *from = &both->of[e], *to = &both->of[!e];
    both->messages++;
    both->bytes += from->out_len;
    from->has_out = false;
    return dw_comparison_take(to, from->out_step, from->out, (size_t)from->out_len);
}

static dw_status cross_roots(ends *both)
{
    /* An answer of end 1 would overwrite its root. */
    uint8_t root[16];
    memcpy(root, both->of[1].out, sizeof root);
    dw_status status = carry(both, 0);
    bool answers = both->of[1].has_out && both->of[1].out_step == 1;
    both->messages++;
    both->bytes += sizeof root;
    if (!answers) both->of[1].has_out = false;
    return status ? status : dw_comparison_take(&both->of[0], 0, root, sizeof root);
}

static dw_status run(ends *both)
{
    dw_status status = cross_roots(both);
    for (int e = 0; status == DW_OK && (both->of[0].has_out || both->of[1].has_out); e = !e)
        if (both->of[e].has_out) status = carry(both, e);
    return status;
}

/* Both ends have found exactly the keys that differ and that they hold. */
static void assert_found(const ends *both, choice *choose, uint64_t n)
{
    for (int e = 0; e < 2; e++) {
        const dw_comparison *c = &both->of[e];
        uint64_t expected = 0;
        char *found = calloc(n + 1, 1);
        assert_true(c->is_done && !c->has_out);
        for (uint64_t i = 0; i < c->n_differing; i++)
            found[2 * c->differing[i].sample + c->differing[i].slice]++;
        for (uint64_t i = 0; i < n; i++) {
            holding h = choose(i, n);
            int differs = h != SAME && h != (e ? ONE_END : THE_OTHER);
            expected += differs != 0;
            if (found[i] != differs) fail_msg("end %d, key %llu", e, (unsigned long long)i);
        }
        assert_int_equal(c->n_differing, expected);
        free(found);
    }
}

static ends compare(choice *choose, uint64_t n, bool swapped)
{
    ends both;
    assert_int_equal(open_ends(&both, choose, n, swapped), DW_OK);
    assert_int_equal(run(&both), DW_OK);
    assert_found(&both, choose, n);
    close_ends(&both);
    return both;
}

/* ---- What is found --------------------------------------------------------------------------- */

TEST(all_keys_that_differ_are_found)
{
    static const uint64_t sizes[] = {0, 1, 2, 15, 16, 17, 33, 100, 1000, 80000};
    static choice *const choices[] = {same, all_otherwise, only_one_end, some};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t c = 0; c < sizeof choices / sizeof *choices; c++)
            for (int swapped = 0; swapped < 2; swapped++) compare(choices[c], sizes[s], swapped);
}

TEST(equal_ends_send_their_roots_alone)
{
    ends both = compare(same, 1000, false);
    assert_int_equal(both.messages, 2);
    assert_int_equal(both.bytes, 32);
    both = compare(only_one_end, 1000, false);
    assert_int_equal(both.messages, 2);
}

TEST(a_thousand_of_a_million_take_few_bytes)
{
    ends both = compare(few, 1000000, false);
    uint64_t hops = both.messages - 1; /* the roots cross */
    print_message("%llu messages, %llu bytes\n", (unsigned long long)both.messages,
                  (unsigned long long)both.bytes);
    assert_true(hops <= 2 * 3 && both.bytes <= 150000);
}

/* A key of which only version, chain or incarnation differs. */
TEST(each_field_counts)
{
    for (int field = 0; field < 5; field++) {
        ends both;
        memset(&both, 0, sizeof both);
        for (int e = 0; e < 2; e++) {
            dw_held_key key = {{1, 2}, 3, 4, 5};
            if (e && field == 0) key.key.sample++;
            if (e && field == 1) key.key.slice++;
            if (e && field == 2) key.incarnation++;
            if (e && field == 3) key.version++;
            if (e && field == 4) key.chain++;
            dw_comparison_init(&both.of[e], &allocator, e == 0);
            assert_int_equal(dw_comparison_add(&both.of[e], &key), DW_OK);
            assert_int_equal(dw_comparison_begin(&both.of[e]), DW_OK);
        }
        assert_int_equal(run(&both), DW_OK);
        assert_true(both.of[0].n_differing == 1 && both.of[1].n_differing == 1);
        close_ends(&both);
    }
}

static int by_value(const void *left, const void *right)
{
    uint32_t a, b;
    memcpy(&a, left, sizeof a);
    memcpy(&b, right, sizeof b);
    return a < b ? -1 : a > b;
}

/* A few keys beside very many, one of which differs though half of its print is also that of a key
 * at the other end. */
TEST(a_few_keys_find_no_wrong_partner_among_many)
{
    enum { FEW = 16, OTHERS = 100000 };
    for (int swapped = 0; swapped < 2; swapped++) {
        ends both;
        memset(&both, 0, sizeof both);
        uint32_t *halves = calloc(OTHERS, sizeof *halves);
        for (int e = 0; e < 2; e++) dw_comparison_init(&both.of[e], &allocator, e == swapped);
        dw_comparison *few = &both.of[0], *many = &both.of[1];
        for (uint64_t i = 0; i < OTHERS; i++) {
            dw_held_key key = make_key(i, 0, SAME);
            assert_int_equal(dw_comparison_add(many, &key), DW_OK);
            halves[i] = (uint32_t)many->keys[i].print;
            if (i < FEW - 1) assert_int_equal(dw_comparison_add(few, &key), DW_OK);
        }
        qsort(halves, OTHERS, sizeof *halves, by_value);
        dw_held_key key = make_key(OTHERS, 0, SAME);
        for (bool found = false; !found; key.chain++, few->n -= !found) {
            assert_int_equal(dw_comparison_add(few, &key), DW_OK);
            uint32_t half = (uint32_t)few->keys[FEW - 1].print;
            found = bsearch(&half, halves, OTHERS, sizeof half, by_value) != NULL;
        }
        free(halves);
        for (int e = 0; e < 2; e++) assert_int_equal(dw_comparison_begin(&both.of[e]), DW_OK);
        assert_int_equal(run(&both), DW_OK);
        assert_int_equal(few->n_differing, 1);
        assert_int_equal(few->differing[0].sample, key.key.sample);
        assert_int_equal(many->n_differing, OTHERS - FEW + 1);
        close_ends(&both);
    }
}

/* ---- What no honest end sends ---------------------------------------------------------------- */

enum { MANY = 70000, STEPS = 5 }; /* two splits */

/* Copies two ends that were filled once, because to fill them takes longest. */
static void open_many(ends *both)
{
    static ends filled;
    if (!filled.of[0].n) assert_int_equal(open_ends(&filled, one_in_seven, MANY, false), DW_OK);
    *both = filled;
    for (int e = 0; e < 2; e++) {
        dw_comparison *c = &both->of[e];
        c->keys = memcpy(malloc(c->cap * sizeof *c->keys), c->keys, c->n * sizeof *c->keys);
        c->out = memcpy(malloc(c->out_cap), c->out, c->out_len);
    }
}

/* Carries messages until end e is to take the one of this step. */
static bool advance(ends *both, uint64_t step, int *e)
{
    open_many(both);
    if (step == 0) {
        *e = 1;
        return true;
    }
    assert_int_equal(cross_roots(both), DW_OK);
    for (;;) {
        int from = both->of[1].has_out;
        if (!both->of[from].has_out) return false;
        *e = !from;
        if (both->of[from].out_step == step) return true;
        assert_int_equal(carry(both, from), DW_OK);
    }
}

static void assert_refused(ends *both, int e, uint64_t step, const uint8_t *body, size_t len)
{
    dw_comparison *c = &both->of[e];
    uint64_t n = c->n;
    assert_int_equal(dw_comparison_take(c, step, body, len), DW_ERR_PROTOCOL);
    assert_true(!c->is_done && c->n == n);
    /* Nothing is awaited now. */
    for (uint64_t other = 0; other < 300; other++)
        assert_int_equal(dw_comparison_take(c, other, body, 0), DW_ERR_PROTOCOL);
    assert_int_equal(dw_comparison_take(c, UINT64_MAX, body, 0), DW_ERR_PROTOCOL);
    close_ends(both);
}

TEST(messages_in_another_order_or_length_are_refused)
{
    int e;
    ends both;
    assert_false(advance(&both, STEPS, &e));
    close_ends(&both);
    for (uint64_t step = 0; step < STEPS; step++) {
        for (uint64_t other = 0; other < STEPS + 2; other++) {
            assert_true(advance(&both, step, &e));
            if (other == step)
                close_ends(&both);
            else
                assert_refused(&both, e, other > STEPS ? UINT64_MAX : other, both.of[!e].out,
                               (size_t)both.of[!e].out_len);
        }
        for (int how = 0; how < 6; how++) {
            assert_true(advance(&both, step, &e));
            size_t len = (size_t)both.of[!e].out_len;
            size_t lens[] = {0, len + 4, len / 2, len - 4, len - 1, len + 1};
            uint8_t *body = calloc(len + 4, 1);
            memcpy(body, both.of[!e].out, len);
            assert_refused(&both, e, step, body, lens[how]);
            free(body);
        }
    }
    /* A list in another order. */
    assert_true(advance(&both, STEPS - 2, &e));
    uint8_t *list = both.of[!e].out + ((both.of[e].n_ranges << both.of[e].bits[1]) + 7) / 8;
    assert_true(list[0] > 1);
    for (int i = 4; i < 8; i++) {
        uint8_t byte = list[i];
        list[i] = list[i + 4];
        list[i + 4] = byte;
    }
    assert_refused(&both, e, STEPS - 2, both.of[!e].out, (size_t)both.of[!e].out_len);
    /* The end: nothing follows. */
    open_many(&both);
    assert_int_equal(run(&both), DW_OK);
    for (int i = 0; i < 2; i++)
        for (uint64_t step = 0; step < 8; step++)
            assert_int_equal(dw_comparison_take(&both.of[i], step, both.of[!i].out, 16),
                             DW_ERR_PROTOCOL);
    close_ends(&both);
}

/* An encoder can choose keys that all have the same place. */
TEST(keys_of_one_place_take_no_long_time)
{
    enum { CHOSEN = 200000 };
    ends both;
    assert_int_equal(open_ends(&both, all_otherwise, CHOSEN, false), DW_OK);
    for (int e = 0; e < 2; e++)
        for (uint64_t i = 0; i < CHOSEN; i++) both.of[e].keys[i].place = 0;
    clock_t begun = clock();
    assert_int_equal(run(&both), DW_OK);
    assert_true(clock() - begun < 4 * CLOCKS_PER_SEC);
    assert_true(both.of[0].is_done && both.of[1].is_done);
    assert_true(both.of[0].n_differing > CHOSEN - 100);
    close_ends(&both);
}

/* A peer that names 2^60 keys makes nobody take memory for them. */
TEST(memory_depends_on_the_own_keys)
{
    ends both;
    uint8_t root[16] = {[7] = 16};
    assert_int_equal(open_ends(&both, same, 1000, false), DW_OK);
    assert_int_equal(dw_comparison_take(&both.of[0], 0, root, sizeof root), DW_OK);
    assert_true(both.of[0].is_lister && both.of[0].n_of_lister == 1000);
    assert_true(both.of[0].splits == 1 && both.of[0].out_cap < 4000);
    close_ends(&both);
}

TEST(any_allocation_may_fail)
{
    dw_status status = DW_ERR_NO_MEMORY;
    for (fails_at = 1; status != DW_OK; fails_at++) {
        ends both;
        calls = 0;
        status = open_ends(&both, some, 400, false);
        if (status == DW_OK) status = run(&both);
        if (status != DW_OK) assert_int_equal(status, DW_ERR_NO_MEMORY);
        close_ends(&both);
    }
    assert_true(fails_at > 20);
    fails_at = 0;
}

RUN_TESTS(NULL, NULL)
