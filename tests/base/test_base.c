/* SPDX-License-Identifier: Apache-2.0
 * test_base.c - sentences, blocks of no bytes, and scopes of addresses. */
#include "base/mem.h"
#include "base/scope.h"
#include "base/sentence.h"
#include "support/tool.h"

TEST(a_sentence_may_quote_itself_and_strangers)
{
    dw_why why = {.text = "lost rank 3", .offset = 7};
    assert_int_equal(dw_say(&why, DW_ERR_PEER, "cannot add: %s", why.text), DW_ERR_PEER);
    assert_string_equal(why.text, "cannot add: lost rank 3");
    assert_int_equal(why.offset, -1);
    dw_say_at(&why, DW_ERR_CONFIG, 5, "bad value '%s'", "\x1b[2J gr\xc3\xbc\xc3\x9f \xff");
    assert_string_equal(why.text, "bad value '?[2J gr\xc3\xbc\xc3\x9f ?'");
    assert_int_equal(why.offset, 5);
    assert_int_equal(dw_say(NULL, DW_ERR_IO, "nobody asks"), DW_ERR_IO);
}

/* Nothing of the library's stack reaches the program. */
TEST(zeros_follow_a_sentence)
{
    dw_why why;
    char stack[4096];
    memset(stack, 0x5a, sizeof stack);
    assert_int_equal(stack[4095], 0x5a); /* so that it is written */
    memset(&why, 0xff, sizeof why);
    dw_say(&why, DW_ERR_IO, "short");
    for (size_t i = strlen("short"); i < sizeof why.text; i++) assert_int_equal(why.text[i], 0);
}

TEST(a_long_sentence_is_cut)
{
    dw_why why;
    dw_say(&why, DW_ERR_IO, "%*s", 2 * (int)sizeof why.text, "x");
    assert_int_equal(strlen(why.text), sizeof why.text - 1);
}

TEST(sizes_of_blocks)
{
    test_allocator counts = {.fail_at = -1};
    dw_allocator allocator = test_allocator_hooks(&counts);
    void *nothing = dw_mem_allocate(&allocator, 0);
    unsigned char *zeros = dw_mem_allocate_zeroed(&allocator, 3, 5);
    assert_non_null(nothing);
    for (int i = 0; i < 15; i++) assert_int_equal(zeros[i], 0);
    assert_int_equal(counts.out_bytes, 1 + 15);
    assert_null(dw_mem_allocate_zeroed(&allocator, UINT64_C(1) << 61, 8));
    assert_null(dw_mem_allocate(&allocator, PTRDIFF_MAX));
    dw_mem_release(&allocator, nothing, 0);
    dw_mem_release(&allocator, zeros, 15);
    assert_int_equal(counts.out_bytes, 0);
    assert_true(dw_mem_allocator(NULL).allocate == dw_mem_allocator(&(dw_allocator){0}).allocate);
}

TEST(the_own_scope_replaces_that_of_another_machine)
{
    static const struct {
        const char *uri, *own, *expected;
    } cases[] = {
        {"tcp://[fe80::1%eth0]:7000", "[fe80::2%lan1]", "tcp://[fe80::1%lan1]:7000"},
        {"shaped:loss=1%/tcp://[fe80::1%e]:70?grace=1s", "tcp://[fe80::2%lan1]:0",
         "shaped:loss=1%/tcp://[fe80::1%lan1]:70?grace=1s"},
        {"tcp://[fe80::1%eth0]:7000", "tcp://10.0.0.2", "tcp://[fe80::1%eth0]:7000"},
        {"tcp://[fd00::1]:7000", "[fe80::2%lan1]", "tcp://[fd00::1]:7000"},
        {"shaped:loss=1%/tcp://10.0.0.1:70", "[fe80::2%lan1]", "shaped:loss=1%/tcp://10.0.0.1:70"},
        {"", "[fe80::2%lan1]", ""},
    };
    char copy[64];
    volatile size_t little = 8; /* volatile: the compiler shall not see that the copy is cut */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dw_copy_with_scope(copy, sizeof copy, cases[i].uri, cases[i].own);
        assert_string_equal(copy, cases[i].expected);
    }
    dw_copy_with_scope(copy, little, cases[0].uri, cases[0].own);
    assert_string_equal(copy, ""); /* an address that was cut would be another one */
}

RUN_TESTS(NULL, NULL)
