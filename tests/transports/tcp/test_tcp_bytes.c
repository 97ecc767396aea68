/* SPDX-License-Identifier: Apache-2.0
 * test_tcp_bytes.c - the bytes of a link over tcp: system calls may move only some of them, and the
 * link counts them as the kernel does. */
#include "transports/suite/transport_suite.h"

#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "knock.h"
#include "transports/suite/counted.h"

enum { TAG = 1, TCP_HELLO = 48, RECORD = 32, LINK_HEADER = 8, HELLO = 32 };

static const suite_backend tcp4 = {.name = "tcp over IPv4", .uri = "tcp://127.0.0.1:0"};
static const suite_backend tcp_one = {.name = "tcp by one connection",
                                      .uri = "tcp://127.0.0.1:0?stripes=1"};

/* ---- Short reads and writes, by -Wl,--wrap --------------------------------------------------- */

static atomic_int at_most; /* the most bytes that one call moves; 0: no limit */

ssize_t __real_recv(int fd, void *room, size_t len, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_recv(int fd, void *room, size_t len, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);

static size_t shorten(size_t len)
{
    static atomic_uint calls;
    int most = atomic_load(&at_most);
    if (most == 0) return len;
    size_t piece = 1 + atomic_fetch_add(&calls, 1) % (unsigned)most;
    return len < piece ? len : piece;
}

ssize_t __wrap_recv(int fd, void *room, size_t len, int flags)
{
    return __real_recv(fd, room, shorten(len), flags);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
    struct iovec parts[2];
    struct msghdr shorter = *message;
    size_t whole = 0;
    for (size_t i = 0; i < message->msg_iovlen; i++) whole += message->msg_iov[i].iov_len;
    size_t left = shorten(whole);
    assert(message->msg_iovlen <= 2);
    for (size_t i = 0; i < message->msg_iovlen; i++) {
        parts[i] = message->msg_iov[i];
        if (parts[i].iov_len > left) parts[i].iov_len = left;
        left -= parts[i].iov_len;
    }
    shorter.msg_iov = parts;
    return __real_sendmsg(fd, &shorter, flags);
}

TEST(reads_and_writes_may_be_short)
{
    for (int most = 1; most <= 13; most += 3) {
        suite_pair pair;
        suite_start(&pair, most % 2 ? &tcp4 : &tcp_one);
        atomic_store(&at_most, most);
        for (uint64_t n = 0; n < 60; n++) {
            suite_send(pair.link[0], TAG, n, n * 3);
            suite_send(pair.link[1], TAG, n + 7, n % 9);
        }
        for (uint64_t n = 0; n < 60; n++) {
            suite_expect(pair.link[1], TAG, n, n * 3);
            suite_expect(pair.link[0], TAG, n + 7, n % 9);
        }
        suite_close(&pair);
        atomic_store(&at_most, 0);
    }
}

/* ---- Counters -------------------------------------------------------------------------------- */

/* A socket of this process whose own port, or its peer's, is the given one. */
static int find_socket(int port, int of_peer)
{
    for (int fd = 3; fd < 1024; fd++) {
        struct sockaddr_in address;
        socklen_t len = sizeof address, peer_len = sizeof address;
        struct sockaddr_in peer;
        if (getsockname(fd, (struct sockaddr *)&address, &len) != 0) continue;
        if (getpeername(fd, (struct sockaddr *)&peer, &peer_len) != 0 ||
            address.sin_family != AF_INET)
            continue;
        if (ntohs(of_peer ? peer.sin_port : address.sin_port) == port) return fd;
    }
    return -1;
}

/* tcp_info as in kernels since 4.1; the struct in the C library's header lacks the last fields. */
typedef struct kernel_counts {
    unsigned char before[120];
    uint64_t bytes_acked, bytes_received;
} kernel_counts;

TEST(counters_agree_with_the_kernel)
{
    suite_pair pair;
    suite_start(&pair, &tcp_one);
    static char data[3000];
    void *got;
    size_t len;
    for (int i = 0; i < 200; i++) {
        assert_int_equal(dw_link_send(pair.link[0], TAG, data, sizeof data), DW_OK);
        assert_int_equal(dw_link_send(pair.link[1], TAG, data, 20), DW_OK);
    }
    for (int i = 0; i < 200; i++) {
        for (int end = 0; end < 2; end++) {
            assert_int_equal(dw_link_recv(pair.link[end], TAG, 30000, &got, &len), DW_OK);
            dw_link_release(pair.link[end], got);
        }
    }
    for (int i = 0; i < 2; i++) assert_int_equal(dw_link_flush(pair.link[i], 30000), DW_OK);
    int port = port_of(pair.uri);
    /* Acknowledgements are sent with the next message, so some of them may be missing. */
    enum { APART = 10 * RECORD };
    for (int i = 0; i < 2; i++) {
        kernel_counts kernel;
        socklen_t size = sizeof kernel;
        int fd = find_socket(port, i == SUITE_CONNECTOR);
        assert_true(fd >= 0);
        const dw_link_counters ours = counted(pair.link[i]);
        /* The last acknowledgement may still be on its way. */
        for (int tries = 0; tries < 100; tries++) {
            assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &kernel, &size), 0);
            if (size < sizeof kernel) skip();
            if (kernel.bytes_acked >= ours.bytes_sent) break;
            suite_sleep_ms(10);
        }
        /* For the kernel, opening the connection counts as a byte. */
        assert_in_range(kernel.bytes_acked, ours.bytes_sent, ours.bytes_sent + APART + 2);
        assert_in_range(kernel.bytes_received, ours.bytes_received,
                        ours.bytes_received + APART + 2);
        /* The link reads the kernel's counters at most every 10 ms. */
        dw_link_counters later = ours;
        for (int tries = 0;
             tries < 500 && (later.kernel_bytes_sent + APART < kernel.bytes_acked ||
                             later.kernel_bytes_received + APART < kernel.bytes_received);
             tries++) {
            suite_sleep_ms(10);
            later = counted(pair.link[i]);
        }
        assert_in_range(later.kernel_bytes_sent, kernel.bytes_acked - APART,
                        kernel.bytes_acked + APART);
        assert_in_range(later.kernel_bytes_received, kernel.bytes_received - APART,
                        kernel.bytes_received + APART);
        assert_true(later.rtt_ns > 0);
        assert_true(later.queue_ns > 0);
        assert_int_equal(later.resent_bytes, 0);
        assert_int_equal(later.reconnects, 0);
    }
    uint64_t least =
        200 * (sizeof data + LINK_HEADER + RECORD) + TCP_HELLO + RECORD + LINK_HEADER + HELLO;
    uint64_t more = counted(pair.link[0]).bytes_sent - least;
    assert_true(more % RECORD == 0 && more <= 200 * RECORD);
    suite_close(&pair);
}

RUN_TESTS(NULL, NULL)
