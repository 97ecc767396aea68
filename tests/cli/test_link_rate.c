/* SPDX-License-Identifier: Apache-2.0
 * test_link_rate.c - neither end of a measurement waits for ever for another one that is silent, or
 * whose process is stopped. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../cli/rate.h"
#include "support/test.h"

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

TEST(rate_server_gives_up_a_silent_client)
{
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

/* ---- Other ends in a process of their own ---------------------------------------------------- */

/* When the other end says or does nothing any more. */
typedef enum moment { AT_FIRST, AT_LONG_QUESTION, AT_LONG_ANSWER } moment;
typedef struct behaviour {
    moment when;
    bool answers; /* that question, before it ends */
    bool stops;   /* its process is stopped, so nothing takes bytes from the link */
} behaviour;

static void tell_uri(void *context, const char *uri)
{
    if (write(*(int *)context, uri, strlen(uri) + 1) < 0) _exit(1);
}

static void end_as(const behaviour *how, int tell)
{
    if (write(tell, "", 1) != 1) _exit(1);
    if (how->stops) raise(SIGSTOP);
    for (;;) pause();
}

/* Answers questions, until the moment has come. */
static void answer_for_a_while(const behaviour *how, int tell)
{
    dw_link_options options = {.struct_size = sizeof options,
                               .role = DW_LINK_LISTEN,
                               .on_listening = tell_uri,
                               .listening_context = &tell};
    static unsigned char answer[1 << 26];
    dw_link *link;
    dw_why why;
    if (dw_link_open(&link, "tcp://127.0.0.1:0", &options, &why) != DW_OK) _exit(1);
    for (;;) {
        void *data;
        size_t len;
        uint64_t wanted;
        if (dw_link_recv(link, TAG, PATIENCE_MS, &data, &len) != DW_OK) _exit(1);
        memcpy(&wanted, (char *)data + 8, sizeof wanted);
        dw_link_release(link, data);
        bool is_over = how->when == AT_FIRST || (how->when == AT_LONG_QUESTION && len > 16) ||
                       (how->when == AT_LONG_ANSWER && wanted > 16);
        if (!is_over || how->answers) dw_link_send(link, TAG, answer, wanted);
        dw_link_flush(link, PATIENCE_MS);
        if (is_over) end_as(how, tell);
    }
}

/* Asks for the longest answer, and takes nothing of it. */
static void ask_and_stop(const behaviour *how, int tell, const char *uri)
{
    const unsigned char question[16] = {'D', 'W', 'R', 'A', 'T', 'E', 0, 0, 0, 0, 0, 4};
    dw_link_options options = {.struct_size = sizeof options, .role = DW_LINK_CONNECT};
    dw_link *link;
    dw_why why;
    if (dw_link_open(&link, uri, &options, &why) != DW_OK) _exit(1);
    dw_link_send(link, TAG, question, sizeof question);
    end_as(how, tell);
}

static volatile int is_cancelled;
static int child_tells[2], asked_at;

static void cancel(int number)
{
    (void)number;
    is_cancelled = 1;
}

static pid_t begin_child(void)
{
    assert_int_equal(pipe(child_tells), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    close(child_tells[child != 0]);
    return child;
}

/* Ends the child. Returns whether it had come to the moment. */
static bool end_child(pid_t child)
{
    char byte;
    fcntl(child_tells[0], F_SETFL, O_NONBLOCK);
    bool has_come = read(child_tells[0], &byte, 1) == 1;
    close(child_tells[0]);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return has_come;
}

TEST(asking_end_gives_up_whoever_answers_no_more)
{
    for (int i = 0; i < 12; i++) {
        const behaviour how = {
            .when = (moment)(i / 4), .answers = i / 2 % 2 == 1, .stops = i % 2 == 1};
        bool has_come = false;
        for (uint32_t limit = 300; !has_come; limit *= 4) {
            char uri[100] = "";
            dw_forecast_run run = {.stages = 2};
            dw_why why;
            assert_true(limit < PATIENCE_MS);
            is_cancelled = 0;
            pid_t child = begin_child();
            if (child == 0) answer_for_a_while(&how, child_tells[1]);
            for (size_t len = 0; len == 0 || uri[len - 1]; len++)
                assert_int_equal(read(child_tells[0], uri + len, 1), 1);
            dw_rate_end end = {.uri = uri, .timeout_ms = limit, .cancelled = &is_cancelled};
            alarm(2 * PATIENCE_MS / 1000);
            dw_status status = dw_rate_ask(&run, &end, &why);
            alarm(0);
            has_come = end_child(child);
            if (status != DW_ERR_TIMEOUT) fail_msg("%d: status %d, %s", i, status, why.text);
        }
    }
}

static void tell_child(void *context, const char *uri)
{
    (void)context;
    if (write(asked_at, uri, strlen(uri) + 1) < 0) fail();
}

TEST(answering_end_gives_up_a_stopped_client)
{
    const behaviour how = {.stops = true};
    int uris[2];
    dw_why why;
    assert_int_equal(pipe(uris), 0);
    asked_at = uris[1];
    is_cancelled = 0;
    pid_t child = begin_child();
    if (child == 0) {
        char uri[100];
        if (read(uris[0], uri, sizeof uri) > 0) ask_and_stop(&how, child_tells[1], uri);
        _exit(1);
    }
    dw_rate_end end = {.uri = "tcp://127.0.0.1:0",
                       .timeout_ms = 5000,
                       .on_listening = tell_child,
                       .cancelled = &is_cancelled};
    alarm(2 * PATIENCE_MS / 1000);
    dw_status status = dw_rate_serve(&end, &why);
    alarm(0);
    assert_true(end_child(child));
    close(uris[0]);
    close(uris[1]);
    if (status != DW_ERR_TIMEOUT) fail_msg("status %d, %s", status, why.text);
}

int main(void)
{
    signal(SIGALRM, cancel);
    return test_run(NULL, NULL);
}
