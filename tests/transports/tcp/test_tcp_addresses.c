/* SPDX-License-Identifier: Apache-2.0
 * test_tcp_addresses.c - names that resolve to several addresses, or whose lookup is slow. */
#include "transports/suite/transport_suite.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TAG = 1, MOST = 16 };

/* While this is set, 127.0.0.1 resolves to two addresses for a dialler: first one with this port,
 * which never answers, then the right one. */
static char silent_port[8];
static int lookup_ms; /* how long a lookup takes for a dialler */

int __real_getaddrinfo(const char *name, const char *port, const struct addrinfo *hints,
                       struct addrinfo **found);
int __wrap_getaddrinfo(const char *name, const char *port, const struct addrinfo *hints,
                       struct addrinfo **found);

int __wrap_getaddrinfo(const char *name, const char *port, const struct addrinfo *hints,
                       struct addrinfo **found)
{
    int dials = strcmp(port, "0") != 0;
    if (dials && lookup_ms) suite_sleep_ms(lookup_ms);
    if (!dials || !silent_port[0]) return __real_getaddrinfo(name, port, hints, found);
    int error = __real_getaddrinfo(name, silent_port, hints, found);
    /* The two results are freed as one list. */
    return error ? error : __real_getaddrinfo(name, port, hints, &(*found)->ai_next);
}

/* Whether a connection is made within a tenth of a second. */
static int connects(int fd, const struct sockaddr_in *address)
{
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    return connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 ||
           poll(&wait, 1, 100) > 0;
}

/* Makes a listener that accepts nobody, and fills its queue, so that connecting to it gets no
 * answer. fds: the sockets to be closed. Returns 0 if that is impossible here. */
static int make_silent_port(int fds[MOST])
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t len = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int n = 0;
    fds[n++] = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fds[0], (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fds[0], 0), 0);
    assert_int_equal(getsockname(fds[0], (struct sockaddr *)&address, &len), 0);
    snprintf(silent_port, sizeof silent_port, "%d", ntohs(address.sin_port));
    int heard = 1;
    while (heard && n < MOST) {
        fds[n] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        heard = connects(fds[n++], &address);
    }
    while (n < MOST) fds[n++] = -1;
    return !heard;
}

TEST(a_silent_address_leaves_time_for_the_next)
{
    int fds[MOST];
    if (!make_silent_port(fds)) skip();
    const suite_backend tcp = {.name = "tcp", .uri = "tcp://127.0.0.1:0"};
    suite_pair pair;
    suite_prepare(&pair, &tcp);
    pair.options[SUITE_CONNECTOR].open_timeout_ms = 4000;
    suite_open(&pair);
    suite_pass(pair.link, 1, TAG, 1, 1000);
    suite_close(&pair);
    for (int i = 0; i < MOST; i++) {
        if (fds[i] >= 0) close(fds[i]);
    }
    silent_port[0] = '\0';
}

/* A lookup cannot be interrupted. The time that it takes counts as part of the timeout, so that
 * here no time is left to connect, although the peer listens. */
TEST(a_slow_lookup_counts_as_a_part_of_opening)
{
    const suite_backend tcp = {.name = "tcp", .uri = "tcp://127.0.0.1:0"};
    suite_pair pair;
    suite_prepare(&pair, &tcp);
    pair.options[SUITE_LISTENER].open_timeout_ms = 3000;
    pair.options[SUITE_CONNECTOR].open_timeout_ms = 500;
    lookup_ms = 1000;
    suite_try_open(&pair);
    lookup_ms = 0;
    assert_int_equal(pair.status[SUITE_CONNECTOR], DW_ERR_TIMEOUT);
    assert_int_equal(pair.status[SUITE_LISTENER], DW_ERR_TIMEOUT);
    suite_close(&pair);
}

TEST(a_cancelled_open_ends_after_a_slow_lookup)
{
    const volatile int cancelled = 1;
    const dw_link_options options = {.struct_size = sizeof options,
                                     .open_timeout_ms = SUITE_PATIENCE_MS,
                                     .cancelled = &cancelled};
    dw_link *link;
    lookup_ms = 400;
    dw_status status = dw_link_open(&link, "tcp://127.0.0.1:1", &options, NULL);
    lookup_ms = 0;
    assert_int_equal(status, DW_ERR_CANCELLED);
}

RUN_TESTS(NULL, NULL)
