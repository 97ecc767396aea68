/* SPDX-License-Identifier: Apache-2.0
 * test_tls_stripes.c - stripes under TLS: a link survives cut connections and changed bytes, and no
 * other peer can join its session. */
#include "transports/suite/transport_suite.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>

#include "common/report.h"
#include "link/link.h"
#include "tcp/tcp_end.h"
#include "tls_pair.h"
#include "transports/suite/counted.h"
#include "transports/tcp/knock.h"
#include "transports/tcp/tcp_proxy.h"

enum { MY_TAG = 3 };

static dw_tls_options own[2];

static void open_pair(proxy_pair *pair)
{
    *pair = (proxy_pair){.options = {"?stripes=4&grace=60s", "?stripes=4&grace=60s"},
                         .max_queued_bytes = 8 << 20,
                         .tls = {&own[0], &own[1]}};
    proxy_pair_open(pair);
}

static const dw_tcp_end *end_of(const proxy_pair *pair, int i)
{
    return pair->link[i]->backend.endpoint;
}

/* Sends a message in each direction, while connections are cut or changed. */
static void talk(const proxy_pair *pair, uint64_t n, size_t len)
{
    suite_send(pair->link[0], MY_TAG, n, len);
    suite_send(pair->link[1], MY_TAG, n + 1000, len / 3);
    suite_expect(pair->link[1], MY_TAG, n, len);
    suite_expect(pair->link[0], MY_TAG, n + 1000, len / 3);
}

TEST(tls_link_heals_cut_connections)
{
    proxy_pair pair;
    unsigned char random[40];
    assert_int_equal(getrandom(random, sizeof random, 0), sizeof random);
    open_pair(&pair);
    uint64_t session = pair.link[0]->settings.session;
    unsigned char first[DW_TLS_SESSION_BYTES];
    memcpy(first, end_of(&pair, 0)->session.tls_session, sizeof first);
    for (size_t i = 0; i < sizeof random; i++) {
        int n = proxy_count(pair.proxy);
        suite_send(pair.link[0], MY_TAG, i, 900000);
        proxy_cut(pair.proxy, random[i] % 5 == 0 ? PROXY_ALL : n - 1 - random[i] % (n < 6 ? n : 6),
                  random[i] >> 7);
        suite_expect(pair.link[1], MY_TAG, i, 900000);
        talk(&pair, i + 100, 100);
    }
    assert_true(counted(pair.link[1]).reconnects > 0);
    assert_true(pair.link[0]->settings.session == session &&
                pair.link[1]->settings.session == session);
    /* Both ends still have the session of the first connection. */
    for (int i = 0; i < 2; i++)
        assert_memory_equal(end_of(&pair, i)->session.tls_session, first, sizeof first);
    assert_string_equal(dw_link_peer_name(pair.link[0]), "rank/1");
    proxy_pair_close(&pair);
}

/* Without TLS, the changed byte would be delivered as a wrong value. */
TEST(tls_link_heals_changed_bytes)
{
    proxy_pair pair;
    open_pair(&pair);
    talk(&pair, 0, 1000);
    for (uint64_t n = 1; n < 12; n++) {
        proxy_corrupt(pair.proxy, PROXY_ALL);
        talk(&pair, n, n % 3 ? 1200000 : 300);
    }
    assert_true(counted(pair.link[1]).reconnects > 0);
    proxy_pair_close(&pair);
}

static void wait_for(const dw_stream *stream, int writing)
{
    struct pollfd wait = {.fd = stream->fd,
                          .events = (short)dw_stream_events(stream, !writing, writing)};
    poll(&wait, 1, 100);
}

/* What a listener answers to a dialler that has a valid key and sends this hello. */
static int answer_to(int port, const dw_tls_options *tls, const unsigned char *session,
                     unsigned char stripe)
{
    unsigned char hello[DW_TCP_HELLO_BYTES] =
        {'D', 'W', 'T', 'C', 'P', '\n', DW_TCP_VERSION, 'C', [24] = stripe, [25] = 4},
                  answer[DW_TCP_HELLO_BYTES];
    dw_tls_context *context;
    dw_why why;
    dw_stream stream = {.fd = knock(port)};
    memcpy(hello + 8, session, DW_TCP_SESSION_BYTES);
    fcntl(stream.fd, F_SETFL, O_NONBLOCK);
    assert_int_equal(dw_tls_context_create(&context, tls, DW_LINK_CONNECT, NULL, &why), DW_OK);
    assert_int_equal(dw_tls_cover(&stream, context, INT64_MAX), DW_OK);
    dw_status status;
    while ((status = dw_tls_shake(&stream)) == DW_PENDING) wait_for(&stream, 0);
    if (status != DW_OK) fail_msg("%s", stream.text);
    const struct iovec whole = {hello, sizeof hello};
    assert_int_equal(dw_stream_write(&stream, &whole, 1), sizeof hello);
    size_t got = 0;
    for (ptrdiff_t n; got<sizeof answer; got += n> 0 ? (size_t)n : 0) {
        n = dw_stream_read(&stream, answer + got, sizeof answer - got);
        if (n < 0) break;
        if (n == 0) wait_for(&stream, 0);
    }
    dw_stream_close(&stream);
    dw_tls_context_destroy(context);
    return got == sizeof answer ? answer[26] : -1;
}

/* Another member of the group knows the number of a session, and must not join it. Only the peer
 * that began the session may. */
TEST(only_the_same_peer_can_rejoin_a_session)
{
    proxy_pair pair;
    open_pair(&pair);
    const dw_tls_options other = tls_with_group_key("rank/5", "rank/0");
    unsigned char session[DW_TCP_SESSION_BYTES], wrong[DW_TCP_SESSION_BYTES] = {1};
    memcpy(session, end_of(&pair, 0)->session.id, sizeof session);
    assert_int_equal(answer_to(pair.listener_port, &other, session, 1), DW_TCP_TAKEN);
    assert_int_equal(answer_to(pair.listener_port, &own[1], wrong, 1), DW_TCP_UNKNOWN);
    assert_int_equal(answer_to(pair.listener_port, &own[1], session, 1), DW_TCP_WELCOME);
    talk(&pair, 1, 100000); /* the link still works, whatever stripe was replaced */
    proxy_pair_close(&pair);
}

int main(void)
{
    own[0] = tls_with_group_key("rank/0", NULL);
    own[1] = tls_with_group_key("rank/1", "rank/0");
    return test_run(NULL, NULL);
}
