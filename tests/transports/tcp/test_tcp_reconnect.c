/* SPDX-License-Identifier: Apache-2.0
 * test_tcp_reconnect.c - connections are cut: every message arrives whole, once and in order; and
 * when an end gives up its peer. */
#include "transports/suite/transport_suite.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "knock.h"
#include "support/tool.h"
#include "tcp_proxy.h"
#include "transports/suite/counted.h"

enum { TAG = 3 };

/* ---- A listener that is killed: this test forks, so it is first, while there is one thread --- */

static void tell_parent(void *context, const char *uri)
{
    if (write(*(const int *)context, uri, strlen(uri) + 1) < 0) abort();
}

TEST(connecting_end_notices_at_once_that_the_listener_was_killed)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        const dw_link_options options = {.struct_size = sizeof options,
                                         .role = DW_LINK_LISTEN,
                                         .on_listening = tell_parent,
                                         .listening_context = &ends[1]};
        dw_link *link;
        if (dw_link_open(&link, "tcp://127.0.0.1:0?grace=3600s", &options, NULL) != DW_OK) _exit(1);
        for (;;) pause();
    }
    char uri[128] = "";
    assert_true(read(ends[0], uri, sizeof uri - 1) > 0);
    dw_link *link;
    dw_why why;
    if (dw_link_open(&link, uri, NULL, &why) != DW_OK) fail_msg("%s", why.text);
    kill(child, SIGKILL);
    assert_int_equal(suite_receive(link, TAG, SUITE_PATIENCE_MS / 2), DW_ERR_PEER);
    assert_non_null(strstr(dw_link_why(link), "its process has probably died"));
    dw_link_close(link);
    waitpid(child, NULL, 0);
    close(ends[0]);
    close(ends[1]);
}

/* ---- Cuts ------------------------------------------------------------------------------------ */

/* Most messages are short, and some have several chunks. */
static size_t length_of(uint64_t n)
{
    uint64_t random = test_next(&(test_random){n});
    return random % 5 == 0 ? (size_t)(random >> 8) % 1500000 : (size_t)(random >> 8) % 3000;
}

typedef struct talker {
    dw_link *link;
    uint64_t messages;
    atomic_int done;
} talker;

static void *talk(void *context)
{
    talker *me = context;
    for (uint64_t n = 0; n < me->messages; n++) {
        void *room;
        dw_status status;
        while ((status = dw_link_send_begin(me->link, TAG, length_of(n), &room)) == DW_PENDING)
            suite_sleep_ms(1);
        if (status != DW_OK) break;
        suite_fill(room, length_of(n), n);
        if (dw_link_send_end(me->link, room, length_of(n)) != DW_OK) break;
    }
    return NULL;
}

static void *listen_to_all(void *context)
{
    talker *me = context;
    uint64_t n = 0;
    for (; n < me->messages; n++) {
        void *data;
        size_t len;
        if (dw_link_recv(me->link, TAG, SUITE_PATIENCE_MS, &data, &len) != DW_OK ||
            !suite_is(data, len, n, length_of(n)))
            break;
        dw_link_release(me->link, data);
    }
    atomic_store(&me->done, n == me->messages ? 1 : -1);
    return NULL;
}

/* Cuts connections at random until all messages have arrived in both directions. */
static void talk_under_cuts(const char *options, uint64_t messages, uint64_t seed)
{
    proxy_pair pair = {.options = {options, options}, .max_queued_bytes = 8 << 20};
    proxy_pair_open(&pair);
    talker talkers[2] = {{.link = pair.link[0], .messages = messages},
                         {.link = pair.link[1], .messages = messages}};
    talker listeners[2] = {{.link = pair.link[0], .messages = messages},
                           {.link = pair.link[1], .messages = messages}};
    pthread_t threads[4];
    for (int i = 0; i < 2; i++) {
        pthread_create(&threads[i], NULL, talk, &talkers[i]);
        pthread_create(&threads[2 + i], NULL, listen_to_all, &listeners[i]);
    }
    int cuts = 0;
    test_random choices = {seed};
    while (!atomic_load(&listeners[0].done) || !atomic_load(&listeners[1].done)) {
        uint64_t random = test_next(&choices);
        int n = proxy_count(pair.proxy), newest = n > 8 ? n - 8 : 0;
        suite_sleep_ms((int)(random % 23));
        if (cuts >= 150) continue;
        proxy_cut(pair.proxy,
                  random >> 40 & 7 ? newest + (int)((random >> 8) % (uint64_t)(n - newest))
                                   : PROXY_ALL,
                  random >> 50 & 1);
        cuts++;
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        if (atomic_load(&listeners[i].done) != 1)
            fail_msg("end %d: '%s'", i, dw_link_why(pair.link[i]));
        const dw_link_counters counters = counted(pair.link[i]);
        assert_int_equal(counters.messages_received, messages);
        assert_true(counters.reconnects > 0);
    }
    print_message("%s: %d cuts, %d connections, %llu reconnects, %llu bytes sent again\n", options,
                  cuts, proxy_count(pair.proxy),
                  (unsigned long long)counted(pair.link[1]).reconnects,
                  (unsigned long long)counted(pair.link[1]).resent_bytes);
    proxy_pair_close(&pair);
}

static const char *given_seed;

TEST(every_message_arrives_once_under_cuts)
{
    uint64_t seed;
    if (given_seed)
        seed = strtoull(given_seed, NULL, 10);
    else if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed)
        abort();
    print_message("seed %llu\n", (unsigned long long)seed);
    talk_under_cuts("?grace=60s", 250, seed);
    talk_under_cuts("?grace=60s&stripes=4", 250, seed + 2); /* all of them carry messages */
    talk_under_cuts("?grace=60s&stripes=1", 250, seed + 1);
}

/* An idle link notices a cut, too, and reconnects before a message needs the connections. */
TEST(an_idle_link_reconnects)
{
    proxy_pair pair = {.options = {"?grace=60s", "?grace=60s"}};
    proxy_pair_open(&pair);
    for (uint64_t n = 0; n < 3; n++) {
        while (proxy_alive(pair.proxy) < 4) suite_sleep_ms(2);
        proxy_cut(pair.proxy, PROXY_ALL, n & 1);
    }
    while (proxy_alive(pair.proxy) < 4) suite_sleep_ms(2);
    suite_pass(pair.link, 0, TAG, 1, 10);
    proxy_pair_close(&pair);
}

/* ---- Giving up a peer ------------------------------------------------------------------------ */

TEST(a_peer_that_does_not_return_is_given_up)
{
    proxy_pair pair = {.options = {"?grace=150ms", "?grace=150ms"}};
    proxy_pair_open(&pair);
    proxy_refuse(pair.proxy, 1); /* the machine answers, but accepts no connection */
    proxy_cut(pair.proxy, PROXY_ALL, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(suite_receive(pair.link[i], TAG, SUITE_PATIENCE_MS), DW_ERR_PEER);
        if (!strstr(dw_link_why(pair.link[i]), "probably died"))
            fail_msg("%s", dw_link_why(pair.link[i]));
    }
    proxy_pair_close(&pair);
}

/* The grace is an hour: the link can only fail because the peer said that it leaves, or because it
 * refuses connections. */
TEST(a_peer_that_leaves_is_not_waited_for)
{
    for (int leaver = 0; leaver < 2; leaver++) {
        proxy_pair pair = {.options = {"?grace=3600s", "?grace=3600s"}};
        proxy_pair_open(&pair);
        dw_link_cancel(pair.link[leaver]);
        assert_int_equal(suite_receive(pair.link[!leaver], TAG, SUITE_PATIENCE_MS / 2),
                         DW_ERR_PEER);
        proxy_pair_close(&pair);
    }
}

TEST(closing_a_link_opens_no_new_connection)
{
    proxy_pair pair = {.options = {"?grace=3600s", "?grace=3600s"}};
    proxy_pair_open(&pair);
    while (proxy_alive(pair.proxy) < 4) suite_sleep_ms(2);
    for (uint64_t n = 0; n < 20; n++) suite_send(pair.link[1], TAG, n, 100000);
    dw_link_close(pair.link[1]);
    pair.link[1] = NULL;
    for (uint64_t n = 0; n < 20; n++) suite_expect(pair.link[0], TAG, n, 100000);
    assert_int_equal(suite_receive(pair.link[0], TAG, SUITE_PATIENCE_MS), DW_ERR_PEER);
    assert_non_null(strstr(dw_link_why(pair.link[0]), "closed the link"));
    suite_sleep_ms(50);
    assert_int_equal(proxy_count(pair.proxy), 4);
    proxy_pair_close(&pair);
}

/* ---- Strangers at an open session ------------------------------------------------------------ */

/* Sends a hello with this session (of which one byte is not 0) and stripe, and returns the
 * answer. */
static int answer_to(int port, unsigned char session, unsigned char stripe)
{
    unsigned char hello[48] = {'D', 'W', 'T',     'C',           'P',     '\n',
                               2,   'C', session, [24] = stripe, [25] = 4},
                  answer[48] = {0};
    int fd = knock(port);
    assert_int_equal(send(fd, hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    ssize_t n = recv(fd, answer, sizeof answer, MSG_WAITALL);
    for (int i = 8; i < 24; i++) assert_int_equal(answer[i], 0); /* the session stays secret */
    close(fd);
    return n == (ssize_t)sizeof answer ? answer[26] : -1;
}

TEST(unknown_client_cannot_join_a_session)
{
    proxy_pair pair = {.options = {NULL, NULL}};
    proxy_pair_open(&pair);
    enum { UNKNOWN = 2, TAKEN = 3 };
    for (unsigned char i = 0; i < 100; i++) {
        assert_int_equal(answer_to(pair.listener_port, (unsigned char)(i + 1), i % 5), UNKNOWN);
        assert_int_equal(answer_to(pair.listener_port, 0, i % 5), TAKEN);
        suite_pass(pair.link, 0, TAG, i, 1000);
    }
    assert_int_equal(counted(pair.link[0]).reconnects, 0);
    proxy_pair_close(&pair);
}

/* Diallers that are welcomed and leave before they have sent anything else take nobody's place. */
TEST(client_that_leaves_early_takes_no_stripe)
{
    proxy_pair pair = {.options = {NULL, NULL}, .early_guests = 5};
    proxy_pair_open(&pair);
    suite_pass(pair.link, 0, TAG, 1, 5000);
    proxy_pair_close(&pair);
}

int main(int argc, char **argv)
{
    given_seed = argc > 1 ? argv[1] : NULL;
    return test_run(NULL, NULL);
}
