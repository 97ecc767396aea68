/* SPDX-License-Identifier: Apache-2.0
 * test_tcp_sockets.c - options of a link's sockets, and how long a stranger can occupy one. */
#include "transports/suite/transport_suite.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "knock.h"
#include "transports/suite/listener.h"

enum { TAG = 1, STRIPES = 4, MOST_FDS = 256 };

/* Whether it is a socket of a connection that has this port at one end. */
static int is_of(int fd, int port)
{
    struct sockaddr_in own = {0}, peer = {0};
    socklen_t own_len = sizeof own, peer_len = sizeof peer;
    if (getsockname(fd, (struct sockaddr *)&own, &own_len) != 0 ||
        getpeername(fd, (struct sockaddr *)&peer, &peer_len) != 0)
        return 0;
    return own.sin_family == AF_INET &&
           (ntohs(own.sin_port) == port || ntohs(peer.sin_port) == port);
}

/* The option's value, or -1 if it cannot be read. */
static int option(int fd, int level, int name)
{
    int value = -1;
    socklen_t len = sizeof value;
    return getsockopt(fd, level, name, &value, &len) == 0 ? value : -1;
}

/* Whether the options of a new connection that a link sets last are set. */
static int is_ready(int fd, const char *congestion)
{
    char name[32] = "";
    socklen_t len = sizeof name - 1;
    return getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len) == 0 &&
           strcmp(name, congestion) == 0 && option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT) > 0;
}

/* quarter_ms: of peer_timeout_ms. */
static void expect_options(int fd, const char *congestion, int quarter_ms)
{
    for (int ms = 0; ms < SUITE_PATIENCE_MS && !is_ready(fd, congestion); ms++) suite_sleep_ms(1);
    assert_true(is_ready(fd, congestion));
    assert_int_equal(option(fd, IPPROTO_TCP, TCP_NODELAY), 1);
    assert_int_equal(option(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
    assert_int_equal(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), quarter_ms);
    int idle_s = option(fd, IPPROTO_TCP, TCP_KEEPIDLE),
        between_s = option(fd, IPPROTO_TCP, TCP_KEEPINTVL);
    assert_in_range(idle_s, 5, 15); /* soon enough for NATs, however long the timeout is */
    assert_in_range(idle_s + between_s * option(fd, IPPROTO_TCP, TCP_KEEPCNT), 12,
                    quarter_ms / 1000);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
}

static void expect_options_with(uint32_t timeout_ms)
{
    const suite_backend tcp = {.name = "tcp", .uri = "tcp://127.0.0.1:0?congestion=reno"};
    suite_pair pair;
    suite_prepare(&pair, &tcp);
    for (int i = 0; i < 2; i++) pair.options[i].peer_timeout_ms = timeout_ms;
    suite_open(&pair);
    int port = port_of(pair.uri);
    int fds[MOST_FDS], n = 0;
    for (int waited = 0; n < 2 * STRIPES && waited < SUITE_PATIENCE_MS; waited += 5) {
        suite_sleep_ms(5);
        n = 0;
        for (int fd = 3; fd < MOST_FDS; fd++) {
            if (is_of(fd, port)) fds[n++] = fd;
        }
    }
    assert_int_equal(n, 2 * STRIPES);
    for (int i = 0; i < n; i++) expect_options(fds[i], "reno", (int)timeout_ms / 4);
    suite_close(&pair);
}

/* Dialler and listener set the options of all their sockets, each for itself. */
TEST(all_connections_of_a_link_have_the_same_socket_options)
{
    static const uint32_t timeouts_ms[] = {60000, 3600000};
    for (int i = 0; i < 2; i++) expect_options_with(timeouts_ms[i]);
}

/* ---- Strangers ------------------------------------------------------------------------------- */

static int is_hung_up_on(int fd)
{
    struct pollfd look = {.fd = fd, .events = POLLIN};
    char byte;
    return poll(&look, 1, 0) > 0 && recv(fd, &byte, 1, MSG_DONTWAIT) <= 0;
}

/* Strangers send nothing, or a byte from time to time, to a listener that waits and to one that has
 * its peer. The last byte is sent before the ten seconds are over, so that only the clock can wake
 * the link. */
TEST(connection_without_a_hello_is_closed_after_ten_seconds)
{
    static const char hello[] = "DWTCP\n\2C";
    const suite_backend tcp = {.name = "tcp", .uri = "tcp://127.0.0.1:0"};
    suite_pair pair;
    suite_start(&pair, &tcp);
    suite_listener waiting = {.uri = "tcp://127.0.0.1:0"};
    suite_listen(&waiting);
    enum { STRANGERS = 4, MS = 1000000 };
    int strangers[STRANGERS];
    int64_t gone_ns[STRANGERS] = {0};
    int64_t begun = suite_now_ns(), most = begun + (int64_t)60000 * MS;
    for (int i = 0; i < STRANGERS; i++)
        strangers[i] = knock(i % 2 ? waiting.port : port_of(pair.uri));
    size_t said = 0;
    for (int left = STRANGERS; left > 0 && suite_now_ns() < most; suite_sleep_ms(20)) {
        size_t due = (size_t)((suite_now_ns() - begun) / (1100 * (int64_t)MS));
        for (; said < due && said < sizeof hello - 1; said++) {
            for (int i = 2; i < STRANGERS; i++)
                (void)!send(strangers[i], hello + said, 1, MSG_NOSIGNAL);
        }
        for (int i = 0; i < STRANGERS; i++) {
            if (gone_ns[i] || !is_hung_up_on(strangers[i])) continue;
            gone_ns[i] = suite_now_ns();
            left--;
        }
    }
    for (int i = 0; i < STRANGERS; i++) {
        assert_in_range((gone_ns[i] - begun) / MS, 9900, 60000); /* later on a busy machine */
        close(strangers[i]);
    }
    suite_pass(pair.link, 1, TAG, 1, 1000);
    __atomic_store_n(&waiting.cancelled, 1, __ATOMIC_RELAXED);
    suite_listened(&waiting);
    assert_int_equal(waiting.status, DW_ERR_CANCELLED);
    suite_close(&pair);
}

RUN_TESTS(NULL, NULL)
