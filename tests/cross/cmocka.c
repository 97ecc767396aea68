/* SPDX-License-Identifier: Apache-2.0
 * cmocka.c - runs the tests of a program one after another, and prints the results as cmocka
 * does. */
#include "cmocka.h"

#include <setjmp.h>
#include <stdlib.h>

enum { PASSED, FAILED, SKIPPED };

static jmp_buf out_of_the_test;

void plain_fail(const char *file, int line)
{
    printf("%s:%d: error: failure!\n", file, line);
    longjmp(out_of_the_test, FAILED);
}

void plain_skip(void)
{
    longjmp(out_of_the_test, SKIPPED);
}

static int run(const struct CMUnitTest *test)
{
    void *state = test->initial_state;
    int verdict = setjmp(out_of_the_test);
    if (verdict == PASSED) test->test_func(&state);
    return verdict;
}

int plain_run(const struct CMUnitTest *tests, size_t n, int (*setup)(void **state),
              int (*teardown)(void **state))
{
    static const char *const words[] = {"[       OK ]", "[  FAILED  ]", "[  SKIPPED ]"};
    size_t counts[3] = {0, 0, 0};
    if (setup || teardown) {
        printf("this cmocka has no setup and teardown\n");
        exit(99);
    }
    for (size_t i = 0; i < n; i++) {
        printf("[ RUN      ] %s\n", tests[i].name);
        fflush(stdout); /* if the test ends the program, the name is printed all the same */
        int verdict = run(&tests[i]);
        counts[verdict]++;
        printf("%s %s\n", words[verdict], tests[i].name);
    }
    printf("[  PASSED  ] %zu test(s).\n", counts[PASSED]);
    if (counts[SKIPPED]) printf("[  SKIPPED ] %zu test(s).\n", counts[SKIPPED]);
    if (counts[FAILED]) printf("[  FAILED  ] %zu test(s).\n", counts[FAILED]);
    return (int)counts[FAILED];
}
