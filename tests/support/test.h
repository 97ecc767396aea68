/* SPDX-License-Identifier: Apache-2.0
 * test.h - tests that a program finds by itself: TEST(name) { ... } is one, and RUN_TESTS, or
 * test_run in a main of its own, runs all tests of a file, in the order in which they stand there.
 *
 * A name is written once, so no test can be forgotten in a list. TEST_WITH(name, set_up, tear_down)
 * is a test before and after which cmocka calls these functions. If tests stand in several files of
 * a program, each of these files calls test_run. */
#ifndef DW_TEST_TEST_H
#define DW_TEST_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { TEST_MOST = 40 };

/* Those of this file, by their lines. */
static struct {
    struct CMUnitTest tests[TEST_MOST];
    int lines[TEST_MOST];
    size_t n;
} test_list;

/* Enters a test. Functions that run before main call it, in an order that the compiler chooses. */
static inline void test_add(struct CMUnitTest test, int line)
{
    size_t at = test_list.n++;
    if (at == TEST_MOST) {
        fputs("too many tests in a file: raise TEST_MOST in tests/support/test.h\n", stderr);
        abort();
    }
    for (; at > 0 && test_list.lines[at - 1] > line; at--) {
        test_list.tests[at] = test_list.tests[at - 1];
        test_list.lines[at] = test_list.lines[at - 1];
    }
    test_list.tests[at] = test;
    test_list.lines[at] = line;
}

/* Returns how many tests failed. set_up and tear_down: of all of them together; may be NULL. */
static inline int test_run(int (*set_up)(void **state), int (*tear_down)(void **state))
{
    return _cmocka_run_group_tests(__BASE_FILE__, test_list.tests, test_list.n, set_up, tear_down);
}

#define TEST_AS(name, parameter, ...)                                                              \
    static void name(parameter);                                                                   \
    __attribute__((constructor)) static void test_add_##name(void)                                 \
    {                                                                                              \
        test_add((struct CMUnitTest)__VA_ARGS__, __LINE__);                                        \
    }                                                                                              \
    static void name(__attribute__((unused)) parameter)

#define TEST(name) TEST_AS(name, void **state, cmocka_unit_test(name))
#define TEST_WITH(name, set_up, tear_down)                                                         \
    TEST_AS(name, void **state, cmocka_unit_test_setup_teardown(name, set_up, tear_down))

/* A test `title(parameter)` that cmocka runs by how(void **state), where *state is a `type` that
 * has the test's function as its only member. */
#define TEST_BY(how, type, title, parameter)                                                       \
    static void title(parameter);                                                                  \
    static type title##_check = {title};                                                           \
    TEST_AS(title, parameter, {.name = #title, .test_func = how, .initial_state = &title##_check})

#define RUN_TESTS(set_up, tear_down)                                                               \
    int main(void)                                                                                 \
    {                                                                                              \
        return test_run(set_up, tear_down);                                                        \
    }

/* A main that executes `statement`, which may use argc and argv, and then runs the tests. */
#define RUN_TESTS_AFTER(statement)                                                                 \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        statement;                                                                                 \
        return test_run(NULL, NULL);                                                               \
    }

/* The same for a program with one argument, to which it sets `word`, a variable of the file. */
#define RUN_TESTS_GIVEN(word)                                                                      \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        if (argc != 2) return 2;                                                                   \
        word = argv[1];                                                                            \
        return test_run(NULL, NULL);                                                               \
    }

#endif
