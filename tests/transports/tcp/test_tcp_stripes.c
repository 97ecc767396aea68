/* SPDX-License-Identifier: Apache-2.0
 * test_tcp_stripes.c - several connections for one link: a slow one does not hold up the others.
 * tests/fuzz has records in any order, and invalid ones. */
#include "transports/suite/transport_suite.h"

#include "tcp_proxy.h"
#include "transports/suite/counted.h"

enum { TAG = 5, OPENING = 6, MEBIBYTE = 1 << 20 };

static void wait_for_stripes(const proxy_pair *pair, int n)
{
    while (proxy_alive(pair->proxy) < n) suite_sleep_ms(2);
}

TEST(the_smaller_number_of_stripes_counts)
{
    const char *const wishes[][2] = {
        {"?stripes=2", "?stripes=7"}, {"?stripes=8", "?stripes=3"}, {"?stripes=1", NULL}};
    const int counts[] = {2, 3, 1};
    for (int i = 0; i < 3; i++) {
        proxy_pair pair = {.options = {wishes[i][0], wishes[i][1]}};
        proxy_pair_open(&pair);
        wait_for_stripes(&pair, counts[i]);
        for (uint64_t n = 0; n < 30; n++) suite_pass(pair.link, n & 1, TAG, n, (size_t)n * 50000);
        assert_int_equal(proxy_count(pair.proxy), counts[i]);
        assert_int_equal(counted(pair.link[0]).resent_bytes, 0);
        proxy_pair_close(&pair);
    }
}

TEST(a_stripe_that_never_connects_does_not_matter)
{
    proxy_pair pair = {.options = {NULL, NULL}, .stalls_from = 1};
    proxy_pair_open(&pair);
    for (uint64_t n = 0; n < 10; n++) suite_pass(pair.link, n & 1, TAG, n, MEBIBYTE);
    proxy_pair_close(&pair);
}

/* Opens a pair whose stripes other than the first have stalled. */
static void open_with_one_stripe(proxy_pair *pair, const char *options)
{
    *pair = (proxy_pair){.options = {options, options}};
    proxy_pair_open(pair);
    wait_for_stripes(pair, 4);
    /* The proxy has accepted them. The hellos, in both directions, take a moment more. */
    for (uint64_t n = 0; n < 8; n++) suite_pass(pair->link, n & 1, OPENING, n, 4 * MEBIBYTE);
    for (int i = 1; i < 4; i++) proxy_stall(pair->proxy, i, 1);
}

/* Where the round trip is short, only the first stripe carries messages that, with their header,
 * are not longer than the window of 4 MiB. So if the other stripes stall, nothing is sent again. */
TEST(messages_up_to_the_window_use_the_first_stripe)
{
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
    for (uint64_t n = 2; n < 6; n++) suite_pass(pair.link, n & 1, TAG, n, 10);
    assert_true(counted(pair.link[0]).resent_bytes + counted(pair.link[1]).resent_bytes > 0);
    proxy_pair_close(&pair);
}

TEST(longer_messages_use_all_stripes)
{
    use_all_stripes(NULL, 4 * MEBIBYTE);
    use_all_stripes("?stripes=4", 3 * MEBIBYTE); /* stripes that were asked for */
}

/* One stripe after the other stalls while messages are sent. What it carried is sent again by
 * others, and no message waits for it. */
TEST(a_stalled_stripe_does_not_block_the_others)
{
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
    for (int i = 0; i < 20; i++, n++) suite_pass(pair.link, n & 1, TAG, n, MEBIBYTE);
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
TEST(all_that_has_stalled_is_sent_again_at_once)
{
    assert_true(stalled_ns(16) < 5 * stalled_ns(1));
}

/* A peer that receives nothing is sent at most its window and what its link stores, however long
 * the sender's queue is. */
TEST(unreceived_bytes_are_bounded)
{
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

/* ---- Addresses ------------------------------------------------------------------------------- */

TEST(tcp_uri_error_names_the_wrong_option)
{
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
TEST(a_port_can_serve_one_peer_after_the_other)
{
    proxy_pair pairs[3];
    for (int i = 0; i < 3; i++) {
        pairs[i] = (proxy_pair){.options = {"?stripes=1&grace=0ms", NULL},
                                .port = i > 0 ? pairs[0].listener_port : 0};
        proxy_pair_open(&pairs[i]);
    }
    for (int i = 0; i < 3; i++) {
        suite_pass(pairs[i].link, 0, TAG, (uint64_t)i, 1000);
        proxy_pair_close(&pairs[i]);
    }
}

RUN_TESTS(NULL, NULL)
