/* SPDX-License-Identifier: Apache-2.0
 * test_tcp_loss.c - a network that loses packets: retransmissions of the kernel are counted, and no
 * message is lost; and a path that swallows the long ones. */
#include "transports/suite/transport_suite.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "knock.h"
#include "transports/suite/counted.h"

#ifdef DW_HAVE_TLS
enum { HAS_TLS = 1 };
#else
enum { HAS_TLS = 0 };
#endif

enum { TAG = 1, SKIPPED = 77, MOST_FDS = 256, LONG = 4 << 20 };

static int run(const char *command)
{
    char line[400];
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

TEST(retransmissions_are_counted)
{
    const suite_backend tcp = {.name = "tcp", .uri = "tcp://127.0.0.1:0"};
    suite_pair pair;
    suite_start(&pair, &tcp);
    int port = port_of(pair.uri);
    suite_pass(pair.link, 1, TAG, 0, LONG);
    expect_same_as_kernel(pair.link[1], port);
    uint64_t before = counted(pair.link[1]).retransmits;
    /* The queue holds only a few packets; packets that do not fit are lost. */
    assert_int_equal(run("tc qdisc add dev lo root tbf rate 100mbit burst 5kb limit 15kb"), 0);
    for (uint64_t n = 0; n < 4; n++) suite_pass(pair.link, 1, TAG, n, LONG / 4);
    expect_same_as_kernel(pair.link[1], port);
    assert_true(counted(pair.link[1]).retransmits > before);
    /* The kernel repaired all losses: the link itself sent nothing again. */
    assert_int_equal(counted(pair.link[1]).resent_bytes, 0);
    run("tc qdisc delete dev lo root");
    suite_close(&pair);
}

/* ---- A path that swallows long packets ------------------------------------------------------- */

/* A machine in a network namespace of its own. The router, which is the namespace of the test,
 * joins each two machines. Its interfaces have a smaller MTU than theirs, and it sends no errors.
 */
typedef struct machine {
    int mtu; /* of the path */
    uint32_t peer_timeout_ms;
    const char *options;
    int is_covered;        /* by TLS, if this build has it */
    int answers;           /* it receives before it sends; the other one sends first */
    size_t sends, expects; /* the length of its message and of the other's; 0: there is none */
    int number, dials;     /* the even ones listen; each odd one dials the one before it */
    pthread_t thread;
    pid_t tid;
    pthread_barrier_t *met;
    dw_status opened, flushed, received; /* DW_PENDING: not done */
    int is_right;                        /* the other's message arrived as it was sent */
    uint64_t reconnects[2];              /* after the first message, and at the end */
    dw_why why;
} machine;

static void say(machine *me, dw_link *link)
{
    if (!me->sends) return;
    suite_send(link, TAG, 0, me->sends);
    me->flushed = dw_link_flush(link, SUITE_PATIENCE_MS);
}

static void hear(machine *me, dw_link *link)
{
    void *data;
    size_t len;
    if (!me->expects) return;
    me->received = dw_link_recv(link, TAG, SUITE_PATIENCE_MS, &data, &len);
    if (me->received != DW_OK) return;
    me->is_right = suite_is(data, len, 0, me->expects);
    dw_link_release(link, data);
}

static void talk(machine *me, dw_link *link)
{
    (me->answers ? hear : say)(me, link);
    me->reconnects[0] = counted(link).reconnects;
    (me->answers ? say : hear)(me, link);
    me->reconnects[1] = counted(link).reconnects;
    snprintf(me->why.text, sizeof me->why.text, "%s", dw_link_why(link));
}

static int configure(const machine *me)
{
    char line[200];
    snprintf(line, sizeof line,
             "ip address add 10.7.%d.2/24 dev eth0 && ip link set eth0 up && "
             "ip route add default via 10.7.%d.1",
             me->number, me->number);
    return run(line);
}

static void *live(void *context)
{
    machine *me = context;
    char uri[80];
    dw_link *link = NULL;
    static const char key[32] = "of all machines", *const names[] = {"rank/0", "rank/1"};
    const dw_tls_options tls = {.struct_size = sizeof tls,
                                .own_name = names[me->dials],
                                .peer_name = names[!me->dials],
                                .group_key = key,
                                .group_key_bytes = sizeof key};
    int is_covered = HAS_TLS && me->is_covered;
    const dw_link_options options = {.struct_size = sizeof options,
                                     .role = me->dials ? DW_LINK_CONNECT : DW_LINK_LISTEN,
                                     .peer_timeout_ms = me->peer_timeout_ms,
                                     .tls = is_covered ? &tls : NULL,
                                     .insecure_plaintext = !is_covered};
    me->tid = unshare(CLONE_NEWNET) == 0 ? gettid() : -1;
    pthread_barrier_wait(me->met); /* all namespaces are made ... */
    pthread_barrier_wait(me->met); /* ... and have their interfaces */
    snprintf(uri, sizeof uri, "tcp://10.7.%d.2:7000%s", me->number - me->dials, me->options);
    if (me->tid >= 0 && configure(me) == 0)
        me->opened = dw_link_open(&link, uri, &options, &me->why);
    if (me->opened == DW_OK) talk(me, link);
    pthread_barrier_wait(me->met);
    dw_link_close(link);
    return NULL;
}

static int add_interface(const machine *to)
{
    char line[200];
    snprintf(line, sizeof line,
             "ip link add way%d type veth peer name eth0 netns %d && "
             "ip address add 10.7.%d.1/24 dev way%d && ip link set way%d mtu %d up",
             to->number, (int)to->tid, to->number, to->number, to->number, to->mtu);
    return run(line);
}

/* Runs n machines to their end. */
static void run_machines(machine *all, int n)
{
    int wired = 1;
    pthread_barrier_t met;
    pthread_barrier_init(&met, NULL, (unsigned)n + 1);
    for (int i = 0; i < n; i++) {
        all[i].number = i;
        all[i].dials = i & 1;
        all[i].met = &met;
        all[i].opened = all[i].flushed = all[i].received = DW_PENDING;
        pthread_create(&all[i].thread, NULL, live, &all[i]);
    }
    pthread_barrier_wait(&met);
    for (int i = 0; i < n; i++) wired &= add_interface(&all[i]) == 0;
    pthread_barrier_wait(&met);
    pthread_barrier_wait(&met);
    for (int i = 0; i < n; i++) pthread_join(all[i].thread, NULL);
    for (int i = 0; i < n; i++) {
        char line[80];
        snprintf(line, sizeof line, "ip link delete way%d 2> /dev/null", i);
        run(line); /* it may have gone with its other end */
    }
    pthread_barrier_destroy(&met);
    assert_true(wired);
    for (int i = 0; i < n; i++) {
        if (all[i].opened != DW_OK)
            fail_msg("machine %d: %d '%s'", i, all[i].opened, all[i].why.text);
    }
}

/* Whoever sends first, and whether the first limit of segments is enough or not. */
TEST(long_messages_pass_where_only_short_packets_do)
{
    machine all[8] = {
        [0] = {.mtu = 1300, .options = "?stripes=1", .expects = LONG, .sends = LONG, .answers = 1},
        [1] = {.mtu = 1300, .options = "?stripes=1", .sends = LONG, .expects = LONG},
        [2] = {.mtu = 1300, .options = "?stripes=1", .sends = LONG, .expects = LONG},
        [3] = {.mtu = 1300, .options = "?stripes=1", .expects = LONG, .sends = LONG, .answers = 1},
        [4] = {.mtu = 1000, .options = "", .is_covered = 1, .expects = LONG, .answers = 1},
        [5] = {.mtu = 1000, .options = "", .is_covered = 1, .sends = LONG},
        [6] = {.mtu = 1000, .options = "", .sends = 3000},
        [7] = {.mtu = 1000, .options = "", .expects = 3000, .answers = 1}};
    run_machines(all, 8);
    for (int i = 0; i < 8; i++) {
        if (all[i].sends && all[i].flushed != DW_OK) fail_msg("%d: '%s'", i, all[i].why.text);
        if (!all[i].expects) continue;
        assert_int_equal(all[i].received, DW_OK);
        assert_true(all[i].is_right);
        /* The dialler's SYN has limited the segments of the second message, too. */
        assert_true(all[i].reconnects[0] > 0);
        assert_int_equal(all[i].reconnects[0], all[i].reconnects[1]);
    }
}

TEST(what_never_arrives_is_an_error_that_names_the_cause)
{
    machine all[4] = {{.options = "", .is_covered = 1, .expects = 3000},
                      {.options = "", .is_covered = 1, .sends = 3000},
                      {.options = "?stripes=1", .sends = LONG},
                      {.options = "?stripes=1", .expects = LONG}};
    for (int i = 0; i < 4; i++) {
        all[i].mtu = 400;
        all[i].peer_timeout_ms = 10000; /* two limits are tried before */
    }
    run_machines(all, 4);
    for (int i = 0; i < 4; i++) {
        if (all[i].expects) assert_int_equal(all[i].received, DW_ERR_PEER);
        if (all[i].expects) continue;
        if (!strstr(all[i].why.text, "the path's MTU is smaller than the interface's"))
            fail_msg("machine %d: %d '%s'", i, all[i].flushed, all[i].why.text);
        assert_int_equal(all[i].flushed, DW_ERR_TIMEOUT);
    }
}

int main(void)
{
    if (unshare(CLONE_NEWNET) != 0 || run("ip link set lo up mtu 1500 && tc qdisc add dev lo root "
                                          "tbf rate 1gbit burst 64kb limit 64kb && "
                                          "tc qdisc delete dev lo root && "
                                          "echo 1 > /proc/sys/net/ipv4/ip_forward && "
                                          "ip rule add pref 1 iif lo blackhole && "
                                          "ip link add way type veth && ip link delete way") != 0) {
        fprintf(stderr, "skipped: this machine allows no network namespace with tbf, veth and "
                        "rules for routes, or has no ip and tc (iproute2)\n");
        return SKIPPED;
    }
    return test_run(NULL, NULL);
}
