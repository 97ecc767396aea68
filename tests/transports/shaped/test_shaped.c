/* SPDX-License-Identifier: Apache-2.0
 * test_shaped.c - the backend shaped keeps to its rate and delay, and names the options that are
 * wrong. */
#include "transports/suite/counted.h"
#include "transports/suite/transport_suite.h"

enum { TAG = 1 };

/* How long to repeat a measurement that took too long. Other programs on the machine can only make
 * it longer, so one good result is enough, but on a busy machine it may come late. */
static const int64_t patience_ns = (int64_t)90 * 1000000000;

/* How much longer than computed a measurement may take. An implementation that sleeps for each
 * message, or forgets that it has overslept, takes 1.6 times as long or more. */
static const double slack = 1.4;

static double seconds_to_carry(const char *uri, int messages, size_t len)
{
    const suite_backend backend = {.name = "shaped", .uri = uri, .one_process = 1};
    suite_pair pair;
    suite_start(&pair, &backend);
    unsigned char *data = calloc(1, len);
    void *got;
    size_t got_len;
    int64_t begun = suite_now_ns();
    for (int i = 0; i < messages; i++)
        assert_int_equal(dw_link_send(pair.link[0], TAG, data, len), DW_OK);
    for (int i = 0; i < messages; i++) {
        assert_int_equal(dw_link_recv(pair.link[1], TAG, -1, &got, &got_len), DW_OK);
        dw_link_release(pair.link[1], got);
    }
    double seconds = (double)(suite_now_ns() - begun) * 1e-9;
    free(data);
    suite_close(&pair);
    return seconds;
}

/* Checks the time for some messages: it must never be less than on a wire of this rate, and the
 * best of several attempts must not be much more. */
static void takes(const char *uri, int messages, size_t len, double expected)
{
    double least = 1e9;
    int64_t until = suite_now_ns() + patience_ns;
    while (least > expected * slack && suite_now_ns() < until) {
        double seconds = seconds_to_carry(uri, messages, len);
        if (seconds < least) least = seconds;
        if (seconds < expected * 0.995) break;
    }
    print_message("%s: %d x %zu bytes took %.4f s of %.4f\n", uri, messages, len, least, expected);
    assert_true(least >= expected * 0.995);
    assert_true(least <= expected * slack);
}

static double wire_seconds(int messages, size_t wire_len, double bits_per_second)
{
    return messages * (double)wire_len * 8 / bits_per_second;
}

/* On the wire, the link adds 8 bytes to a message, tcp another 8, and loop none. */
TEST(large_message_takes_as_long_as_the_rate_says)
{
    takes("shaped:rate=40mbit/loop://one-%d", 1, 999992, wire_seconds(1, 1000000, 40e6));
    takes("shaped:rate=40mbit/loop://one-%d", 1, 1999992, wire_seconds(1, 2000000, 40e6));
}

TEST(many_small_messages_take_no_longer_than_few_large_ones)
{
    /* Each message takes 100 microseconds. A thread that slept for each of them would oversleep by
     * half of that. Even instrumented builds on a busy machine can carry a message in this time. */
    takes("shaped:rate=8mbit/tcp://127.0.0.1:0", 8000, 84, wire_seconds(8000, 100, 8e6));
    takes("shaped:rate=8mbit/tcp://127.0.0.1:0", 8, 99984, wire_seconds(8, 100000, 8e6));
}

TEST(many_messages_are_delayed_only_once)
{
    takes("shaped:rate=8mbit,delay=150ms/loop://delay-%d", 100, 2492,
          wire_seconds(100, 2500, 8e6) + 0.15);
    takes("shaped:delay=200ms/loop://delay-%d", 50, 1000, 0.2);
}

typedef struct one_way {
    dw_link *from, *to;
} one_way;

static void *carry(void *context)
{
    one_way *way = context;
    static char data[10000];
    void *got;
    size_t len;
    for (int i = 0; i < 50; i++) dw_link_send(way->from, TAG, data, sizeof data);
    for (int i = 0; i < 50 && dw_link_recv(way->to, TAG, -1, &got, &len) == DW_OK; i++) {
        dw_link_release(way->to, got);
    }
    return NULL;
}

TEST(the_two_directions_do_not_slow_each_other)
{
    const suite_backend backend = {
        .name = "shaped", .uri = "shaped:rate=10mbit/loop://both-%d", .one_process = 1};
    double least = 1e9;
    double expected = wire_seconds(50, 10008, 10e6);
    int64_t until = suite_now_ns() + patience_ns;
    while (least > expected * slack && suite_now_ns() < until) {
        suite_pair pair;
        suite_start(&pair, &backend);
        one_way ways[2] = {{pair.link[0], pair.link[1]}, {pair.link[1], pair.link[0]}};
        pthread_t threads[2];
        int64_t begun = suite_now_ns();
        for (int k = 0; k < 2; k++) pthread_create(&threads[k], NULL, carry, &ways[k]);
        for (int k = 0; k < 2; k++) pthread_join(threads[k], NULL);
        double seconds = (double)(suite_now_ns() - begun) * 1e-9;
        if (seconds < least) least = seconds;
        suite_close(&pair);
    }
    assert_true(least >= expected * 0.99 && least <= expected * slack);
}

/* If the wire is so slow that a message takes longer than the timeout, the peer is not dead. */
TEST(a_slow_message_is_no_timeout)
{
    const suite_backend backend = {
        .name = "shaped", .uri = "shaped:rate=800kbit/loop://slow-%d", .one_process = 1};
    suite_pair pair;
    suite_prepare(&pair, &backend);
    pair.options[0].peer_timeout_ms = pair.options[1].peer_timeout_ms = 400;
    suite_open(&pair);
    static char data[160000]; /* takes 1.6 s */
    assert_int_equal(dw_link_send(pair.link[0], TAG, data, sizeof data), DW_OK);
    void *got;
    size_t len;
    dw_status status = dw_link_recv(pair.link[1], TAG, 20000, &got, &len);
    if (status != DW_OK) fail_msg("%s / %s", dw_link_why(pair.link[0]), dw_link_why(pair.link[1]));
    dw_link_release(pair.link[1], got);
    suite_close(&pair);
}

TEST(counts_the_bytes_on_the_wire)
{
    const suite_backend backend = {.name = "shaped",
                                   .uri = "shaped:rate=1gbit,delay=1ms/tcp://127.0.0.1:0"};
    suite_pair pair;
    suite_start(&pair, &backend);
    static char data[1000];
    void *got;
    size_t len;
    for (int i = 0; i < 100; i++)
        assert_int_equal(dw_link_send(pair.link[0], TAG, data, sizeof data), DW_OK);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(dw_link_recv(pair.link[1], TAG, -1, &got, &len), DW_OK);
        dw_link_release(pair.link[1], got);
    }
    assert_int_equal(dw_link_flush(pair.link[0], -1), DW_OK);
    /* A message has 1000 bytes, the link's 8 and TCP's 32; the greetings have 48 and 72. What the
     * backend tcp sends in addition, records of 32 bytes and other connections, is not counted. */
    assert_int_equal(counted(pair.link[0]).bytes_sent, 100 * 1040 + 48 + 72);
    uint64_t received = counted(pair.link[1]).bytes_received,
             more = received - (100 * 1040 + 48 + 72);
    assert_true(more % 16 == 0 && more < 2000);
    assert_true(strncmp(pair.uri, "shaped:rate=1gbit,delay=1ms/tcp://127.0.0.1:", 44) == 0);
    suite_close(&pair);
}

/* Eight messages take 8 ms each on this wire, but their sends are completed earlier. When a flush
 * has returned, the counters must contain all of them. */
TEST(flush_returns_after_messages_are_counted)
{
    const suite_backend backend = {.name = "shaped",
                                   .uri = "shaped:rate=1mbit/loop://shaped-count-%d"};
    suite_pair pair;
    suite_start(&pair, &backend);
    static char data[1000];
    dw_link_counters before = counted(pair.link[0]);
    for (uint64_t n = 1; n <= 8; n++) {
        assert_int_equal(dw_link_send(pair.link[0], TAG, data, sizeof data), DW_OK);
        assert_int_equal(dw_link_flush(pair.link[0], -1), DW_OK);
        dw_link_counters now = counted(pair.link[0]);
        assert_int_equal(now.messages_sent, n);
        assert_true(now.bytes_sent - before.bytes_sent >= n * (8 + sizeof data));
    }
    suite_close(&pair);
}

TEST(shaped_uri_error_names_the_wrong_word)
{
    const struct {
        const char *uri, *blamed;
        dw_status status;
    } cases[] = {{"shaped:rate=100,delay=20ms/loop://x", "100,", DW_ERR_CONFIG},
                 {"shaped:rate=100mbps/loop://x", "100mbps/", DW_ERR_CONFIG},
                 {"shaped:rate=/loop://x", "rate=/", DW_ERR_CONFIG},
                 {"shaped:rate=0bit/loop://x", "0bit/", DW_ERR_CONFIG},
                 {"shaped:rate=-1mbit/loop://x", "-1mbit/", DW_ERR_CONFIG},
                 {"shaped:rate=1.2.3mbit/loop://x", "1.2.3mbit/", DW_ERR_CONFIG},
                 {"shaped:rate=1mbit,rate=2mbit/loop://x", "rate=2mbit", DW_ERR_CONFIG},
                 {"shaped:rate=1mbit,delay=20/loop://x", "20/", DW_ERR_CONFIG},
                 {"shaped:rate=1mbit,jitters=1ms/loop://x", "jitters=", DW_ERR_CONFIG},
                 {"shaped:jitter=1/loop://x", "1/", DW_ERR_CONFIG},
                 {"shaped:loss=101%/loop://x", "101%", DW_ERR_CONFIG},
                 {"shaped:loss=1.5/loop://x", "1.5/", DW_ERR_CONFIG},
                 {"shaped:loss=1%,loss=1%/loop://x", "loss=1%/", DW_ERR_CONFIG},
                 {"shaped:duplicate=1percent/loop://x", "1percent", DW_ERR_CONFIG},
                 {"shaped:corrupt=-1%/loop://x", "-1%", DW_ERR_CONFIG},
                 {"shaped:reorder=1%:20/loop://x", "1%:20", DW_ERR_CONFIG},
                 {"shaped:stall=1%:4000s/loop://x", "1%:4000s", DW_ERR_CONFIG},
                 {"shaped:disconnect=0/loop://x", "0/", DW_ERR_CONFIG},
                 {"shaped:disconnect=0.5/loop://x", "0.5/", DW_ERR_CONFIG},
                 {"shaped:disconnect=200%/loop://x", "200%", DW_ERR_CONFIG},
                 {"shaped:seed=1.5/loop://x", "1.5/", DW_ERR_CONFIG},
                 {"shaped:time=imaginary/loop://x", "imaginary", DW_ERR_CONFIG},
                 {"shaped:/loop://x", "/loop", DW_ERR_CONFIG},
                 {"shaped:rate=1mbit", "rate=1mbit", DW_ERR_CONFIG},
                 {"shaped:rate=1mbit/", "rate=1mbit/", DW_ERR_CONFIG},
                 {"shaped:rate=1mbit/carrier-pigeon://x", "carrier-pigeon", DW_ERR_UNSUPPORTED},
                 {"shaped:rate=1mbit/shaped:rate=2/loop://x", "2/", DW_ERR_CONFIG},
                 {"shaped:rate=1mbit/tcp://127.0.0.1:99999", "99999", DW_ERR_ADDRESS}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dw_link *link;
        dw_why why;
        const dw_link_options options = {.struct_size = sizeof options, .open_timeout_ms = 50};
        assert_int_equal(dw_link_open(&link, cases[i].uri, &options, &why), cases[i].status);
        const char *blamed = why.offset < 0 ? "" : cases[i].uri + why.offset;
        if (strncmp(blamed, cases[i].blamed, strlen(cases[i].blamed)) != 0) {
            fail_msg("%s blames '%s': %s", cases[i].uri, blamed, why.text);
        }
    }
}

RUN_TESTS(NULL, NULL)
