/* SPDX-License-Identifier: Apache-2.0
 * test_tcp_loss.c - a network that loses packets: retransmissions of the kernel are counted, and no
 * message is lost. */
#include "transports/suite/transport_suite.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "knock.h"
#include "transports/suite/counted.h"

enum { TAG = 1, SKIPPED = 77, MOST_FDS = 256, LONG = 4 << 20 };

static int run(const char *command)
{
    char line[200];
    snprintf(line, sizeof line, "PATH=$PATH:/usr/sbin:/sbin; %s", command);
    return system(line);
}

/* The retransmissions of all connections of this process to that port. */
static uint64_t kernel_retransmits(int port)
{
    uint64_t all = 0;
    for (int fd = 3; fd < MOST_FDS; fd++) {
        struct sockaddr_in peer = {0};
        struct tcp_info info = {0};
        socklen_t peer_len = sizeof peer, len = sizeof info;
        if (getpeername(fd, (struct sockaddr *)&peer, &peer_len) != 0 ||
            ntohs(peer.sin_port) != port)
            continue;
        if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0) all += info.tcpi_total_retrans;
    }
    return all;
}

static void expect_same_as_kernel(dw_link *link, int port)
{
    int64_t end = suite_now_ns() + (int64_t)SUITE_PATIENCE_MS * 1000000 / 4;
    uint64_t ours, kernel;
    do {
        suite_sleep_ms(20); /* the link's counters are at most 10 ms old */
        ours = counted(link).retransmits;
        kernel = kernel_retransmits(port);
    } while (ours != kernel && suite_now_ns() < end);
    assert_int_equal(ours, kernel);
}

static void retransmissions_are_counted(void **state)
{
    (void)state;
    const suite_backend tcp = {.name = "tcp", .uri = "tcp://127.0.0.1:0"};
    suite_pair pair;
    suite_prepare(&pair, &tcp);
    suite_open(&pair);
    int port = port_of(pair.uri);
    suite_send(pair.link[1], TAG, 0, LONG);
    suite_expect(pair.link[0], TAG, 0, LONG);
    expect_same_as_kernel(pair.link[1], port);
    uint64_t before = counted(pair.link[1]).retransmits;
    /* The queue holds only a few packets; packets that do not fit are lost. */
    assert_int_equal(run("tc qdisc add dev lo root tbf rate 100mbit burst 5kb limit 15kb"), 0);
    for (uint64_t n = 0; n < 4; n++) {
        suite_send(pair.link[1], TAG, n, LONG / 4);
        suite_expect(pair.link[0], TAG, n, LONG / 4);
    }
    expect_same_as_kernel(pair.link[1], port);
    assert_true(counted(pair.link[1]).retransmits > before);
    /* The kernel repaired all losses: the link itself sent nothing again. */
    assert_int_equal(counted(pair.link[1]).resent_bytes, 0);
    run("tc qdisc delete dev lo root");
    suite_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(retransmissions_are_counted)};
    if (unshare(CLONE_NEWNET) != 0 || run("ip link set lo up mtu 1500 && tc qdisc add dev lo root "
                                          "tbf rate 1gbit burst 64kb limit 64kb && "
                                          "tc qdisc delete dev lo root") != 0) {
        fprintf(stderr, "skipped: this machine allows no network namespace with tbf, or has no ip "
                        "and tc (iproute2)\n");
        return SKIPPED;
    }
    return cmocka_run_group_tests_name("tcp over a wire that loses packets", tests, NULL, NULL);
}
