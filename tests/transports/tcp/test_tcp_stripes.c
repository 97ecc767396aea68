/* SPDX-License-Identifier: Apache-2.0
 * test_tcp_stripes.c - several connections for one link: a slow one does not hold up the others,
 * and records may arrive in any order. */
#include "transports/suite/transport_suite.h"

#include <poll.h>
#include <unistd.h>

#include "knock.h"
#include "tcp_proxy.h"
#include "transports/suite/counted.h"
#include "transports/suite/listener.h"

enum { TAG = 5, OPENING = 6, MEBIBYTE = 1 << 20 };

static void wait_for_stripes(const proxy_pair *pair, int n)
{
    while (proxy_alive(pair->proxy) < n) suite_sleep_ms(2);
}

static void the_smaller_number_of_stripes_counts(void **state)
{
    (void)state;
    const char *const wishes[][2] = {
        {"?stripes=2", "?stripes=7"}, {"?stripes=8", "?stripes=3"}, {"?stripes=1", NULL}};
    const int counts[] = {2, 3, 1};
    for (int i = 0; i < 3; i++) {
        proxy_pair pair = {.options = {wishes[i][0], wishes[i][1]}};
        proxy_pair_open(&pair);
        wait_for_stripes(&pair, counts[i]);
        for (uint64_t n = 0; n < 30; n++) {
            suite_send(pair.link[n & 1], TAG, n, (size_t)n * 50000);
            suite_expect(pair.link[!(n & 1)], TAG, n, (size_t)n * 50000);
        }
        assert_int_equal(proxy_count(pair.proxy), counts[i]);
        assert_int_equal(counted(pair.link[0]).resent_bytes, 0);
        proxy_pair_close(&pair);
    }
}

static void a_stripe_that_never_connects_does_not_matter(void **state)
{
    (void)state;
    proxy_pair pair = {.options = {NULL, NULL}, .stalls_from = 1};
    proxy_pair_open(&pair);
    for (uint64_t n = 0; n < 10; n++) {
        suite_send(pair.link[n & 1], TAG, n, MEBIBYTE);
        suite_expect(pair.link[!(n & 1)], TAG, n, MEBIBYTE);
    }
    proxy_pair_close(&pair);
}

/* Opens a pair whose stripes other than the first have stalled. */
static void open_with_one_stripe(proxy_pair *pair, const char *options)
{
    *pair = (proxy_pair){.options = {options, options}};
    proxy_pair_open(pair);
    wait_for_stripes(pair, 4);
    /* The proxy has accepted them. The hellos, in both directions, take a moment more. */
    for (uint64_t n = 0; n < 8; n++) {
        suite_send(pair->link[n & 1], OPENING, n, 4 * MEBIBYTE);
        suite_expect(pair->link[!(n & 1)], OPENING, n, 4 * MEBIBYTE);
    }
    for (int i = 1; i < 4; i++) proxy_stall(pair->proxy, i, 1);
}

/* Where the round trip is short, only the first stripe carries messages that, with their header,
 * are not longer than the window of 4 MiB. So if the other stripes stall, nothing is sent again. */
static void messages_up_to_the_window_use_the_first_stripe(void **state)
{
    (void)state;
    proxy_pair pair;
    open_with_one_stripe(&pair, NULL);
    for (uint64_t n = 0; n < 12; n++)
        suite_send(pair.link[n & 1], TAG, n, (n / 2 % 3 + 1) * MEBIBYTE);
    for (uint64_t n = 0; n < 12; n++)
        suite_expect(pair.link[!(n & 1)], TAG, n, (n / 2 % 3 + 1) * MEBIBYTE);
    for (int i = 0; i < 2; i++) assert_int_equal(counted(pair.link[i]).resent_bytes, 0);
    proxy_pair_close(&pair);
}

/* Sends a message in each direction while all stripes but the first have stalled. The parts of it
 * that went by those must be sent again. */
static void use_all_stripes(const char *options, size_t len)
{
    proxy_pair pair;
    open_with_one_stripe(&pair, options);
    for (uint64_t n = 0; n < 2; n++) suite_send(pair.link[n], TAG, n, len);
    for (uint64_t n = 0; n < 2; n++) suite_expect(pair.link[!n], TAG, n, len);
    /* Later messages, because counters are not updated at once. */
    for (uint64_t n = 2; n < 6; n++) {
        suite_send(pair.link[n & 1], TAG, n, 10);
        suite_expect(pair.link[!(n & 1)], TAG, n, 10);
    }
    assert_true(counted(pair.link[0]).resent_bytes + counted(pair.link[1]).resent_bytes > 0);
    proxy_pair_close(&pair);
}

static void longer_messages_use_all_stripes(void **state)
{
    (void)state;
    use_all_stripes(NULL, 4 * MEBIBYTE);
    use_all_stripes("?stripes=4", 3 * MEBIBYTE); /* stripes that were asked for */
}

/* One stripe after the other stalls while messages are sent. What it carried is sent again by
 * others, and no message waits for it. */
static void a_stalled_stripe_does_not_block_the_others(void **state)
{
    (void)state;
    proxy_pair pair = {.options = {NULL, NULL}};
    proxy_pair_open(&pair);
    wait_for_stripes(&pair, 4);
    uint64_t n = 0;
    for (int stalled = 0; stalled < 3; stalled++) {
        proxy_stall(pair.proxy, stalled, 1);
        for (int i = 0; i < 6; i++, n++)
            suite_send(pair.link[n & 1], TAG, n, i == 5 ? 10 : 4 * MEBIBYTE);
        for (uint64_t m = n - 6; m < n; m++)
            suite_expect(pair.link[!(m & 1)], TAG, m, m == n - 1 ? 10 : 4 * MEBIBYTE);
    }
    for (int i = 0; i < 2; i++) {
        const dw_link_counters counters = counted(pair.link[i]);
        assert_true(counters.resent_bytes > 0);
        /* Of 28 MiB: the messages were not simply sent by every stripe. */
        assert_true(counters.resent_bytes < 15 * MEBIBYTE);
        assert_int_equal(counters.reconnects, 0);
    }
    proxy_stall(pair.proxy, PROXY_ALL, 0); /* late records must not be delivered twice */
    for (int i = 0; i < 20; i++, n++) {
        suite_send(pair.link[n & 1], TAG, n, MEBIBYTE);
        suite_expect(pair.link[!(n & 1)], TAG, n, MEBIBYTE);
    }
    proxy_pair_close(&pair);
}

/* Stalls the stripe that carries n messages of 128 KiB, and returns how long they take. */
static int64_t stalled_ns(int n)
{
    proxy_pair pair = {.options = {NULL, NULL}};
    proxy_pair_open(&pair);
    wait_for_stripes(&pair, 4);
    proxy_stall(pair.proxy, 0, 1);
    int64_t begun_ns = suite_now_ns();
    for (int i = 0; i < n; i++) suite_send(pair.link[1], TAG, (uint64_t)i, MEBIBYTE / 8);
    for (int i = 0; i < n; i++) suite_expect(pair.link[0], TAG, (uint64_t)i, MEBIBYTE / 8);
    int64_t took_ns = suite_now_ns() - begun_ns;
    proxy_pair_close(&pair);
    return took_ns;
}

/* Many messages on a stripe that has stalled take hardly longer than one. If they were sent again
 * one after the other, each of them would take half a second. */
static void all_that_has_stalled_is_sent_again_at_once(void **state)
{
    (void)state;
    assert_true(stalled_ns(16) < 5 * stalled_ns(1));
}

/* A peer that receives nothing is sent at most its window and what its link stores, however long
 * the sender's queue is. */
static void unreceived_bytes_are_bounded(void **state)
{
    (void)state;
    proxy_pair pair = {.options = {NULL, NULL}, .max_queued_bytes = MEBIBYTE};
    proxy_pair_open(&pair);
    wait_for_stripes(&pair, 4);
    static char data[512 << 10];
    int stood_still = 0;
    uint64_t sent = 0;
    while (stood_still < 100) {
        dw_status status = dw_link_send(pair.link[1], TAG, data, sizeof data);
        assert_true(status == DW_OK || status == DW_PENDING);
        sent += status == DW_OK;
        stood_still = status == DW_OK ? 0 : stood_still + 1;
        if (status == DW_PENDING) suite_sleep_ms(2);
    }
    /* The window, which is larger for slow connections, and a queue of 1 MiB at either end. */
    assert_in_range(proxy_forward(pair.proxy), 4 * MEBIBYTE, 20 * MEBIBYTE);
    void *got;
    size_t len;
    for (uint64_t n = 0; n < sent; n++) {
        assert_int_equal(dw_link_recv(pair.link[0], TAG, SUITE_PATIENCE_MS, &got, &len), DW_OK);
        assert_int_equal(len, sizeof data);
        dw_link_release(pair.link[0], got);
    }
    proxy_pair_close(&pair);
}

/* ---- A peer that writes bytes by hand -------------------------------------------------------- */

static void put(unsigned char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) at[i] = (unsigned char)(value >> (8 * i));
}

static void send_all(int fd, const unsigned char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
        assert_true(n > 0);
        bytes += n;
        len -= (size_t)n;
    }
}

/* Sends the header of a record of message n: len of its total bytes, from offset on. kind 1: the
 * whole message. */
static void send_header(int fd, int kind, uint64_t n, size_t total, size_t offset, size_t len)
{
    unsigned char header[48] = {(unsigned char)kind};
    put(header + 4, len, 4);
    put(header + 8, n, 8);
    put(header + 16, n > 0, 8); /* acknowledges the greeting */
    put(header + 24, 16 * MEBIBYTE, 8);
    put(header + 32, offset, 8);
    put(header + 40, total, 8);
    send_all(fd, header, kind == 2 ? 48 : 32);
}

static void send_part(int fd, int kind, uint64_t n, const unsigned char *message, size_t total,
                      size_t offset, size_t len)
{
    send_header(fd, kind, n, total, offset, len);
    send_all(fd, message + offset, len);
}

/* A message as a link sends it: tag, kind, and the bytes of number n. */
static unsigned char *make_message(uint64_t n, size_t len)
{
    unsigned char *message = calloc(1, 8 + len);
    message[0] = TAG;
    message[4] = 1;
    suite_fill(message + 8, len, n);
    return message;
}

typedef struct by_hand {
    suite_listener listener;
    dw_link *link;
    int fd[2];
} by_hand;

static int dial_by_hand(const by_hand *hand, unsigned char *session, unsigned char stripe)
{
    unsigned char hello[48] = {'D', 'W', 'T', 'C', 'P', '\n', 2, 'C', [24] = stripe, [25] = 2},
                  answer[48];
    int fd = knock(hand->listener.port);
    memcpy(hello + 8, session, 16);
    put(hello + 40, 16 * MEBIBYTE, 8);
    send_all(fd, hello, sizeof hello);
    assert_int_equal(recv(fd, answer, sizeof answer, MSG_WAITALL), sizeof answer);
    assert_int_equal(answer[26], 1);
    memcpy(session, answer + 8, 16);
    return fd;
}

/* Opens a session with two stripes, and sends the link's greeting, which is message 0. */
static void open_by_hand(by_hand *hand)
{
    *hand = (by_hand){.listener = {.options = {.open_timeout_ms = 30000},
                                   .uri = "tcp://127.0.0.1:0?grace=100ms"}};
    suite_listen(&hand->listener);
    unsigned char session[16] = {0};
    hand->fd[0] = dial_by_hand(hand, session, 0);
    unsigned char greeting[40] = {[4] = 2, [8] = 'D', 'W',        'L', 'K',
                                  1,       [20] = 1,  [24] = '0', '.', '1'};
    send_part(hand->fd[0], 1, 0, greeting, sizeof greeting, 0, sizeof greeting);
    suite_listened(&hand->listener);
    assert_int_equal(hand->listener.status, DW_OK);
    hand->link = hand->listener.link;
    hand->fd[1] = dial_by_hand(hand, session, 1);
}

static void close_by_hand(by_hand *hand)
{
    close(hand->fd[0]);
    close(hand->fd[1]);
    dw_link_close(hand->link);
}

static void records_may_arrive_in_any_order_and_twice(void **state)
{
    (void)state;
    enum { LEN = 2800000, CHUNK = 1 << 20, TOTAL = LEN + 8 };
    by_hand hand;
    open_by_hand(&hand);
    unsigned char *first = make_message(1, LEN), *second = make_message(2, 30),
                  *third = make_message(3, LEN);
    send_part(hand.fd[1], 2, 3, third, TOTAL, CHUNK, CHUNK); /* a part of the last message */
    send_part(hand.fd[1], 1, 2, second, 38, 0, 38);
    send_part(hand.fd[0], 2, 1, first, TOTAL, (size_t)2 * CHUNK, TOTAL - 2 * CHUNK);
    send_part(hand.fd[1], 2, 1, first, TOTAL, 0, CHUNK);
    send_part(hand.fd[0], 2, 1, first, TOTAL, 0, CHUNK); /* the same part again */
    send_part(hand.fd[0], 1, 2, second, 38, 0, 38);
    send_part(hand.fd[0], 2, 1, first, TOTAL, CHUNK, CHUNK);
    suite_expect(hand.link, TAG, 1, LEN);
    suite_expect(hand.link, TAG, 2, 30);
    send_part(hand.fd[1], 2, 1, first, TOTAL, CHUNK, CHUNK); /* the message is already delivered */
    send_part(hand.fd[0], 2, 3, third, TOTAL, 0, CHUNK);
    send_part(hand.fd[0], 2, 3, third, TOTAL, CHUNK, CHUNK);
    send_part(hand.fd[1], 2, 3, third, TOTAL, (size_t)2 * CHUNK, TOTAL - 2 * CHUNK);
    suite_expect(hand.link, TAG, 3, LEN);
    unsigned char *fourth = make_message(4, 0);
    send_part(hand.fd[1], 1, 4, fourth, 8, 0, 8);
    suite_expect(hand.link, TAG, 4, 0);
    assert_int_equal(counted(hand.link).messages_received, 4);
    /* The late records must not affect later messages, which use the same places again. */
    enum { LAST = 1200 };
    for (uint64_t n = 5; n <= LAST; n++) {
        send_part(hand.fd[n & 1], 1, n, second, 38, 0, 38);
        suite_expect(hand.link, TAG, 2, 30);
    }
    free(first);
    free(second);
    free(third);
    free(fourth);
    close_by_hand(&hand);
}

/* Reads this number of bytes from both stripes together. */
static void drain(const by_hand *hand, size_t bytes)
{
    static char room[65536];
    while (bytes > 0) {
        struct pollfd wait[2] = {{.fd = hand->fd[0], .events = POLLIN},
                                 {.fd = hand->fd[1], .events = POLLIN}};
        if (poll(wait, 2, SUITE_PATIENCE_MS / 4) <= 0) fail_msg("%zu bytes did not arrive", bytes);
        for (int i = 0; i < 2; i++) {
            if (!wait[i].revents) continue;
            ssize_t n = recv(hand->fd[i], room, bytes < sizeof room ? bytes : sizeof room, 0);
            assert_true(n > 0);
            bytes -= (size_t)n;
        }
    }
}

/* At most 512 messages may be unacknowledged. A single record acknowledges them all, and nothing
 * else wakes the sender. */
static void an_acknowledgement_wakes_a_waiting_send(void **state)
{
    (void)state;
    enum { MESSAGES = 600, KEPT = 512, WIRE = 32 + 8 + 10 };
    by_hand hand;
    open_by_hand(&hand);
    for (uint64_t n = 1; n <= MESSAGES; n++) suite_send(hand.link, TAG, n, 10);
    drain(&hand, 72 + (KEPT - 1) * WIRE); /* the greeting counts as one of them */
    unsigned char word[32] = {3};
    put(word + 16, KEPT, 8);
    put(word + 24, 16 * MEBIBYTE, 8);
    send_all(hand.fd[0], word, sizeof word);
    drain(&hand, (MESSAGES - KEPT + 1) * WIRE);
    close_by_hand(&hand);
}

static void an_invalid_record_ends_the_link(void **state)
{
    (void)state;
    const struct {
        int kind;
        uint64_t n;
        size_t total, offset, len;
    } cases[] = {{9, 1, 20, 0, 20},           /* a kind that does not exist */
                 {1, 5000, 20, 0, 20},        /* far beyond what was acknowledged */
                 {2, 1, 1200000, 7, 1 << 20}, /* an offset at which no chunk begins */
                 {2, 1, 1200000, 0, 1000},    /* an end at which no chunk ends */
                 {2, 1, 1100000, 1100000, 0}, /* an offset at the end of the message */
                 {2, 1, 20, 0, 20}};          /* a message too short for chunks */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        by_hand hand;
        open_by_hand(&hand);
        /* Only the header is sent: the link may be gone before a body could be. */
        send_header(hand.fd[0], cases[i].kind, cases[i].n, cases[i].total, cases[i].offset,
                    cases[i].len);
        void *data;
        size_t len;
        dw_status status = dw_link_recv(hand.link, TAG, SUITE_PATIENCE_MS, &data, &len);
        if (status != DW_ERR_PROTOCOL)
            fail_msg("case %zu: %d %s", i, (int)status, dw_link_why(hand.link));
        close_by_hand(&hand);
    }
}

static void tcp_uri_error_names_the_wrong_option(void **state)
{
    (void)state;
    const struct {
        const char *uri, *blamed;
    } cases[] = {{"tcp://127.0.0.1:0?stripes=0", "0"},
                 {"tcp://127.0.0.1:0?stripes=9", "9"},
                 {"tcp://127.0.0.1:0?grace=2", "2"},
                 {"tcp://127.0.0.1:0?stripes=2&colour=red", "colour=red"},
                 {"tcp://127.0.0.1:0?grace=9999s", "9999s"},
                 {"tcp://127.0.0.1:0?", ""},
                 {"tcp://127.0.0.1:0?stripes=2&congestion=nonesuch", "nonesuch"},
                 {"tcp://127.0.0.1:0?congestion=sixteen-letters-", "sixteen-letters-"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const dw_link_options options = {
            .struct_size = sizeof options, .role = DW_LINK_LISTEN, .open_timeout_ms = 100};
        dw_link *link;
        dw_why why = {.text = ""};
        assert_int_equal(dw_link_open(&link, cases[i].uri, &options, &why), DW_ERR_CONFIG);
        assert_non_null(strstr(why.text, i == 6 ? "congestion control" : cases[i].blamed));
        assert_string_equal(cases[i].uri + why.offset, cases[i].blamed);
    }
}

/* Without grace, the port is free again as soon as the peer is connected: one address can serve
 * several peers, one after the other. */
static void a_port_can_serve_one_peer_after_the_other(void **state)
{
    (void)state;
    proxy_pair pairs[3];
    for (int i = 0; i < 3; i++) {
        pairs[i] = (proxy_pair){.options = {"?stripes=1&grace=0ms", NULL},
                                .port = i > 0 ? pairs[0].listener_port : 0};
        proxy_pair_open(&pairs[i]);
    }
    for (int i = 0; i < 3; i++) {
        suite_send(pairs[i].link[0], TAG, (uint64_t)i, 1000);
        suite_expect(pairs[i].link[1], TAG, (uint64_t)i, 1000);
        proxy_pair_close(&pairs[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_smaller_number_of_stripes_counts),
        cmocka_unit_test(a_stripe_that_never_connects_does_not_matter),
        cmocka_unit_test(messages_up_to_the_window_use_the_first_stripe),
        cmocka_unit_test(longer_messages_use_all_stripes),
        cmocka_unit_test(a_stalled_stripe_does_not_block_the_others),
        cmocka_unit_test(all_that_has_stalled_is_sent_again_at_once),
        cmocka_unit_test(unreceived_bytes_are_bounded),
        cmocka_unit_test(records_may_arrive_in_any_order_and_twice),
        cmocka_unit_test(an_acknowledgement_wakes_a_waiting_send),
        cmocka_unit_test(an_invalid_record_ends_the_link),
        cmocka_unit_test(tcp_uri_error_names_the_wrong_option),
        cmocka_unit_test(a_port_can_serve_one_peer_after_the_other),
    };
    return cmocka_run_group_tests_name("tcp_stripes", tests, NULL, NULL);
}
