/* SPDX-License-Identifier: Apache-2.0
 * test_link_rate.c - the end of a link that answers measurements does not wait for ever for an end
 * that asks nothing. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "../../cli/rate.h"

enum { TAG = 1, PATIENCE_MS = 60000 };

typedef struct server {
    dw_rate_end end;
    volatile int cancelled, has_ended;
    dw_status status;
    dw_why why;
} server;

static void *serve(void *context)
{
    server *s = context;
    s->status = dw_rate_serve(&s->end, &s->why);
    __atomic_store_n(&s->has_ended, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* Connects to a server that waits so long for a question, asks so many questions, each for an
 * answer of 16 bytes, and then says nothing. Returns what the server returns; CANCELLED if it had
 * to be stopped. answered: whether every question was. */
static dw_status ask_and_be_silent(int questions, const char *uri, uint32_t silence_ms,
                                   bool *answered, dw_why *why)
{
    server s = {.end = {.uri = uri, .timeout_ms = silence_ms}};
    const unsigned char question[16] = {'D', 'W', 'R', 'A', 'T', 'E', 0, 0, 16};
    dw_link_options options = {.struct_size = sizeof options, .role = DW_LINK_CONNECT};
    dw_link *link;
    pthread_t thread;
    s.end.cancelled = &s.cancelled;
    assert_int_equal(pthread_create(&thread, NULL, serve, &s), 0);
    assert_int_equal(dw_link_open(&link, uri, &options, why), DW_OK);
    int answers = 0;
    for (size_t len; answers < questions; answers++) {
        void *answer;
        if (dw_link_send(link, TAG, question, sizeof question) != DW_OK ||
            dw_link_recv(link, TAG, PATIENCE_MS, &answer, &len) != DW_OK)
            break;
        assert_int_equal(len, 16);
        dw_link_release(link, answer);
    }
    for (int ms = 0; ms < PATIENCE_MS && !__atomic_load_n(&s.has_ended, __ATOMIC_ACQUIRE); ms++) {
        struct timespec nap = {.tv_nsec = 1000000};
        nanosleep(&nap, NULL);
    }
    __atomic_store_n(&s.cancelled, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    dw_link_close(link);
    *why = s.why;
    *answered = answers == questions;
    return s.status;
}

static void rate_server_gives_up_a_silent_client(void **state)
{
    (void)state;
    static const char *const uris[] = {"loop://silent-0", "loop://silent-2"};
    for (int i = 0; i < 2; i++) {
        bool answered = false;
        /* On a busy machine, a short limit may pass between two questions. */
        for (uint32_t limit = 300; !answered; limit *= 4) {
            dw_why why;
            char expected[64];
            assert_true(limit < PATIENCE_MS);
            snprintf(expected, sizeof expected, "asked nothing for %.1f s", limit / 1000.0);
            assert_int_equal(ask_and_be_silent(2 * i, uris[i], limit, &answered, &why),
                             DW_ERR_TIMEOUT);
            assert_non_null(strstr(why.text, expected));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rate_server_gives_up_a_silent_client)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
