/* SPDX-License-Identifier: Apache-2.0
 * test_link_rate.c - the end of a link that answers measurements does not wait for ever for an end
 * that asks nothing. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "../../cli/rate.h"

enum { TAG = 1, SILENCE_MS = 300, PATIENCE_MS = 60000 };

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

/* Connects to a server, asks so many questions, each for an answer of 16 bytes, and then says
 * nothing. Returns what the server returns; CANCELLED if it had to be stopped. */
static dw_status ask_and_be_silent(int questions, const char *uri, dw_why *why)
{
    server s = {.end = {.uri = uri, .timeout_ms = SILENCE_MS}};
    const unsigned char question[16] = {'D', 'W', 'R', 'A', 'T', 'E', 0, 0, 16};
    dw_link_options options = {.struct_size = sizeof options, .role = DW_LINK_CONNECT};
    dw_link *link;
    pthread_t thread;
    s.end.cancelled = &s.cancelled;
    assert_int_equal(pthread_create(&thread, NULL, serve, &s), 0);
    assert_int_equal(dw_link_open(&link, uri, &options, why), DW_OK);
    for (int i = 0; i < questions; i++) {
        void *answer;
        size_t len;
        assert_int_equal(dw_link_send(link, TAG, question, sizeof question), DW_OK);
        assert_int_equal(dw_link_recv(link, TAG, PATIENCE_MS, &answer, &len), DW_OK);
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
    return s.status;
}

static void a_silent_end_is_given_up(void **state)
{
    (void)state;
    static const char *const uris[] = {"loop://silent-0", "loop://silent-2"};
    for (int i = 0; i < 2; i++) {
        dw_why why;
        assert_int_equal(ask_and_be_silent(2 * i, uris[i], &why), DW_ERR_TIMEOUT);
        assert_non_null(strstr(why.text, "asked nothing for 0.3 s"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_silent_end_is_given_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
