/* SPDX-License-Identifier: Apache-2.0
 * test_crew.c - every piece is done once, with any number of callers, and the threads end. */
#include <pthread.h>

#include "crew.h"
#include "support/tool.h"

enum { MOST = 1000 };

typedef struct count {
    int of[MOST]; /* atomic */
} count;

static void once(void *context, size_t i)
{
    count *c = context;
    __atomic_fetch_add(&c->of[i], 1, __ATOMIC_RELAXED);
}

static void each_piece_once(dw_crew *crew, size_t n)
{
    count c = {{0}};
    dw_crew_parallel_for(crew, n, once, &c);
    for (size_t i = 0; i < MOST; i++)
        if (__atomic_load_n(&c.of[i], __ATOMIC_RELAXED) != (i < n))
            fail_msg("piece %zu of %zu was done %d times", i, n, c.of[i]);
}

static void does_every_piece_once(void **state)
{
    (void)state;
    for (uint32_t threads = 2; threads <= 5; threads++) {
        dw_crew *crew;
        assert_int_equal(dw_crew_create(&crew, threads), DW_OK);
        for (size_t n = 0; n <= MOST; n += n < 20 ? 1 : 49) each_piece_once(crew, n);
        dw_crew_destroy(crew);
    }
    dw_crew_destroy(NULL);
}

static void *call_often(void *crew)
{
    for (int i = 0; i < 300; i++) each_piece_once(crew, (size_t)i % 40);
    return NULL;
}

static void serves_several_callers(void **state)
{
    enum { CALLERS = 4 };
    dw_crew *crew;
    pthread_t callers[CALLERS];
    (void)state;
    assert_int_equal(dw_crew_create(&crew, 3), DW_OK);
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&callers[i], NULL, call_often, crew), 0);
    for (int i = 0; i < CALLERS; i++) pthread_join(callers[i], NULL);
    dw_crew_destroy(crew);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(does_every_piece_once),
        cmocka_unit_test(serves_several_callers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
