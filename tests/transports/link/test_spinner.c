/* SPDX-License-Identifier: Apache-2.0
 * test_spinner.c - when a caller asks before it sleeps, and that it waits correctly either way. */
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "transports/suite/transport_suite.h"

#include "link/link.h"

enum { MANY = 1000, SHORT_NS = 300000, LONG_NS = 20000000 };

/* How many of the next waits would ask. */
static int count_asking(dw_spinner *spinner, int waits)
{
    int asking = 0;
    for (int i = 0; i < waits; i++) asking += dw_spinner_asks(spinner);
    return asking;
}

static void asks_while_it_is_of_use(void **state)
{
    (void)state;
    dw_spinner spinner = {0, 0};
    for (int i = 0; i < MANY; i++) {
        assert_true(dw_spinner_asks(&spinner));
        dw_spinner_learn(&spinner, i % 8 != 0); /* seven of eight */
    }
}

static void sleeps_where_it_is_of_no_use(void **state)
{
    (void)state;
    dw_spinner spinner = {0, 0};
    int asked = 0;
    for (int i = 0; i < MANY; i++) {
        if (!dw_spinner_asks(&spinner)) continue;
        asked++;
        dw_spinner_learn(&spinner, false);
    }
    /* A few times until it has learnt this, and then one in 64. */
    assert_in_range(asked, MANY / 64, MANY / 64 + 16);
}

static void half_is_not_enough(void **state)
{
    (void)state;
    dw_spinner spinner = {0, 0};
    int asked = 0;
    for (int i = 0; i < MANY; i++) {
        if (!dw_spinner_asks(&spinner)) continue;
        dw_spinner_learn(&spinner, asked++ % 2 == 0);
    }
    assert_in_range(asked, MANY / 64, MANY / 8);
}

static void asks_again_when_it_has_become_useful(void **state)
{
    (void)state;
    dw_spinner spinner = {0, 0};
    for (int i = 0; i < MANY; i++) dw_spinner_learn(&spinner, false);
    int slept = 0;
    while (slept < MANY && !dw_spinner_asks(&spinner)) slept++;
    assert_in_range(slept, 0, 63);
    dw_spinner_learn(&spinner, true);
    assert_int_equal(count_asking(&spinner, MANY), MANY);
}

/* ---- Waiting --------------------------------------------------------------------------------- */

/* A spinner that asks, one that does not, and none. */
static dw_spinner *spinner_of(dw_spinner *spinner, int way)
{
    *spinner = (dw_spinner){0, 0};
    for (int i = 0; i < MANY && way == 1; i++) dw_spinner_learn(spinner, false);
    return way == 2 ? NULL : spinner;
}

static void waits_as_long_as_it_should(void **state)
{
    (void)state;
    int pipe_ends[2];
    assert_int_equal(pipe(pipe_ends), 0);
    struct pollfd wait = {.fd = pipe_ends[0], .events = POLLIN};
    const int64_t times[] = {0, SHORT_NS / 10, SHORT_NS, LONG_NS};
    for (int way = 0; way < 3; way++) {
        for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
            dw_spinner spinner, *used = spinner_of(&spinner, way);
            int64_t begun_ns = suite_now_ns();
            dw_link_poll(used, &wait, 1, times[i]);
            assert_true(suite_now_ns() - begun_ns >= times[i]);
            assert_int_equal(wait.revents, 0);
        }
    }
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

static void *write_soon(void *context)
{
    suite_sleep_ms(20);
    assert_int_equal(write(*(int *)context, "", 1), 1);
    return NULL;
}

static void ends_when_something_is_ready(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        int pipe_ends[2];
        assert_int_equal(pipe(pipe_ends), 0);
        struct pollfd waits[2] = {{.fd = -1, .events = POLLIN},
                                  {.fd = pipe_ends[0], .events = POLLIN}};
        dw_spinner spinner, *used = spinner_of(&spinner, way);
        pthread_t writer;
        assert_int_equal(pthread_create(&writer, NULL, write_soon, &pipe_ends[1]), 0);
        dw_link_poll(used, waits, 2, INT64_MAX); /* while it sleeps */
        assert_int_equal(waits[1].revents, POLLIN);
        pthread_join(writer, NULL);
        waits[1].revents = 0;
        dw_link_poll(used, waits, 2, INT64_MAX); /* at once */
        assert_int_equal(waits[1].revents, POLLIN);
        assert_int_equal(waits[0].revents, 0);
        close(pipe_ends[0]);
        close(pipe_ends[1]);
    }
}

/* The end of a wait that is shorter than the time for asking says nothing about its use. */
static void learns_from_its_own_waits(void **state)
{
    (void)state;
    dw_spinner spinner = {0, 0};
    int pipe_ends[2];
    assert_int_equal(pipe(pipe_ends), 0);
    struct pollfd wait = {.fd = pipe_ends[0], .events = POLLIN};
    for (int i = 0; i < 32; i++) dw_link_poll(&spinner, &wait, 1, 1000);
    assert_int_equal(spinner.vain, 0);
    for (int i = 0; i < 32; i++) dw_link_poll(&spinner, &wait, 1, SHORT_NS);
    assert_true(spinner.vain > 0 && count_asking(&spinner, 63) <= 1);
    assert_int_equal(write(pipe_ends[1], "", 1), 1);
    for (int i = 0; i < 64; i++) dw_link_poll(&spinner, &wait, 1, SHORT_NS);
    assert_int_equal(count_asking(&spinner, MANY), MANY);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asks_while_it_is_of_use),
        cmocka_unit_test(sleeps_where_it_is_of_no_use),
        cmocka_unit_test(half_is_not_enough),
        cmocka_unit_test(asks_again_when_it_has_become_useful),
        cmocka_unit_test(waits_as_long_as_it_should),
        cmocka_unit_test(ends_when_something_is_ready),
        cmocka_unit_test(learns_from_its_own_waits),
    };
    return cmocka_run_group_tests_name("spinner", tests, NULL, NULL);
}
