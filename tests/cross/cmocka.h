/* SPDX-License-Identifier: Apache-2.0
 * cmocka.h - the part of cmocka that the tests use, for processors for which there is no package of
 * cmocka.
 *
 * Cross builds use this folder in place of the library's header (tests/meson.build). Names and
 * meaning are those of cmocka: the first assertion that fails ends its test, and the other tests
 * continue. Types are checked less strictly: values are compared as 64-bit integers. */
#ifndef DW_CROSS_CMOCKA_H
#define DW_CROSS_CMOCKA_H

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*test_func)(void **state);
    void *initial_state;
};

#define cmocka_unit_test(f)                                                                        \
    {                                                                                              \
#f, f, NULL                                                                                \
    }
#define cmocka_unit_test_prestate(f, state)                                                        \
    {                                                                                              \
#f, f, state                                                                               \
    }

#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    plain_run(tests, sizeof(tests) / sizeof *(tests), setup, teardown)
#define cmocka_run_group_tests_name(name, tests, setup, teardown)                                  \
    (printf("%s\n", name), cmocka_run_group_tests(tests, setup, teardown))

#define _cmocka_run_group_tests(name, tests, n, setup, teardown)                                   \
    (printf("%s\n", name), plain_run(tests, n, setup, teardown))

int plain_run(const struct CMUnitTest *tests, size_t n, int (*setup)(void **state),
              int (*teardown)(void **state));
_Noreturn void plain_fail(const char *file, int line);
_Noreturn void plain_skip(void);

#define print_message(...) printf(__VA_ARGS__)
#define skip()             plain_skip()
#define fail_msg(...)      (printf(__VA_ARGS__), printf("\n"), plain_fail(__FILE__, __LINE__))
#define fail()             plain_fail(__FILE__, __LINE__)

#define assert_true(c)                   ((c) ? (void)0 : fail_msg("not true: %s", #c))
#define assert_false(c)                  ((c) ? fail_msg("not false: %s", #c) : (void)0)
#define assert_null(p)                   assert_true((p) == NULL)
#define assert_non_null(p)               assert_true((p) != NULL)
#define assert_ptr_equal(a, b)           assert_true((const void *)(a) == (const void *)(b))
#define assert_int_not_equal(a, b)       assert_true((uint64_t)(a) != (uint64_t)(b))
#define assert_string_equal(a, b)        assert_true(strcmp(a, b) == 0)
#define assert_string_not_equal(a, b)    assert_true(strcmp(a, b) != 0)
#define assert_memory_equal(a, b, n)     assert_true(memcmp(a, b, n) == 0)
#define assert_memory_not_equal(a, b, n) assert_true(memcmp(a, b, n) != 0)
#define assert_in_range(v, a, b)                                                                   \
    assert_true(plain_in_range((uint64_t)(v), (uint64_t)(a), (uint64_t)(b)))

#define assert_int_equal(a, b)                                                                     \
    plain_int_equal((uint64_t)(a), (uint64_t)(b), #a " == " #b, __FILE__, __LINE__)

static inline int plain_in_range(uint64_t value, uint64_t least, uint64_t most)
{
    return value >= least && value <= most;
}

static inline void plain_int_equal(uint64_t a, uint64_t b, const char *text, const char *file,
                                   int line)
{
    if (a == b) return;
    printf("0x%" PRIx64 " != 0x%" PRIx64 ": %s\n", a, b, text);
    plain_fail(file, line);
}

#endif
