/* SPDX-License-Identifier: Apache-2.0
 * bench_link.c - measures round trips and goodput of links, compared with plain sockets or plain
 * MPI, and sending while computing.
 *
 * Two processes take part: with TCP the program starts the second one itself; built with an MPI,
 * they are the two ranks of mpirun. Short measurements of the two transports alternate, so that
 * other load on the machine affects both; their medians are compared. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "die.h"
#include "wire.h"
#ifdef DW_BENCH_MPI
#include "wire_mpi.h"
#endif

enum { LEAD = 0, FOLLOW = 1, ROUNDS_MOST = 99 };

typedef struct plan {
    int me;
    int rounds;
    double part; /* of the usual number of messages */
    size_t only; /* this size; 0: all */
    int no_sizes;
    bool is_secure;        /* links over TCP use TLS */
    const char *uri;       /* to listen on */
    wire bare, link, deep; /* deep: a link with the usual long queue, which keeps its memory */
} plan;

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_size);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* ---- One stretch: seconds per message -------------------------------------------------------- */

typedef double stretch(int me, wire *w, size_t len, int n);

/* Measures round trips. */
static double ping_pong(int me, wire *w, size_t len, int n)
{
    double begun = dw_now_s();
    for (int i = 0; i < n; i++) {
        if (me == LEAD) w->send(w, len);
        w->recv(w, len);
        if (me == FOLLOW) w->send(w, len);
    }
    return (dw_now_s() - begun) / n;
}

/* Measures n messages in one direction, and a byte back when all have arrived. */
static double stream(int me, wire *w, size_t len, int n)
{
    double begun = dw_now_s();
    if (me == LEAD) {
        for (int i = 0; i < n; i++) w->send(w, len);
        w->recv(w, 1);
    } else {
        for (int i = 0; i < n; i++) w->recv(w, len);
        w->send(w, 1);
    }
    return (dw_now_s() - begun) / n;
}

/* Alternates between the two transports and computes the median of each. */
static void compare(plan *p, stretch *measure, size_t len, int n, double *bare, double *link)
{
    double seconds[2][ROUNDS_MOST];
    n = (int)(n * p->part) + 2;
    for (int round = -1; round < p->rounds; round++) {
        /* The first round is not counted: it warms up memory, TCP windows and caches. */
        double one = measure(p->me, &p->bare, len, n), other = measure(p->me, &p->link, len, n);
        if (round < 0) continue;
        seconds[0][round] = one;
        seconds[1][round] = other;
    }
    *bare = median(seconds[0], p->rounds);
    *link = median(seconds[1], p->rounds);
}

static void compare_sizes(plan *p)
{
    static const size_t sizes[] = {1, 64, 1024, 8192, 65536, 524288, 4 << 20, 32 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t len = sizes[i];
        if (p->only && p->only != len) continue;
        int by_bytes = (int)(((size_t)256 << 20) / len);
        double ping[2], flow[2];
        compare(p, ping_pong, len, by_bytes > 8000 ? 1000 : by_bytes / 8 + 2, &ping[0], &ping[1]);
        compare(p, stream, len, by_bytes > 20000 ? 20000 : by_bytes, &flow[0], &flow[1]);
        if (p->me != LEAD) continue;
        printf("| %zu | %.1f / %.1f = %.2f | %.3f / %.3f = %.2f |\n", len, ping[1] * 1e6,
               ping[0] * 1e6, ping[1] / ping[0], (double)len / flow[1] * 1e-9,
               (double)len / flow[0] * 1e-9, flow[0] / flow[1]);
        fflush(stdout);
    }
}

/* ---- Sending while computing ----------------------------------------------------------------- */

/* Computes for so many seconds, without calling the library. */
static double compute(double seconds)
{
    volatile double x = 1;
    double end = dw_now_s() + seconds;
    while (dw_now_s() < end) {
        for (int i = 0; i < 10000; i++) x = x * 1.0000001;
    }
    return x;
}

/* How long the leader still waits for its sends after it has computed for this time. */
static double left_after(int me, wire *w, size_t len, double seconds)
{
    double wait = 0;
    if (me == LEAD) {
        w->begin(w, len);
        if (seconds > 0) compute(seconds);
        wait = dw_now_s();
        w->flush(w);
        w->recv(w, 1);
        wait = dw_now_s() - wait;
    } else {
        w->recv(w, len);
        w->send(w, 1);
    }
    return wait;
}

static void print_overlap(const plan *p, wire *w)
{
    size_t len = p->part < 1 ? (size_t)1 << 20 : (size_t)512 << 20;
    double seconds = p->part < 1 ? 0.01 : 1.5;
    double whole[3], left[3];
    if (p->only) return;
    left_after(p->me, w, len, 0);
    for (int round = 0; round < 3; round++) {
        whole[round] = left_after(p->me, w, len, 0);
        left[round] = left_after(p->me, w, len, seconds);
    }
    if (p->me != LEAD) return;
    double transfer = median(whole, 3), wait = median(left, 3);
    printf(
        "%s: %zu MiB take %.1f ms; after %.1f s of computing, %.1f ms of waiting are left = %.3f\n",
        w->name, len >> 20, transfer * 1e3, seconds, wait * 1e3, wait / transfer);
    fflush(stdout);
}

static void run(plan *p)
{
    if (p->me == LEAD && !p->no_sizes) {
        printf("| bytes | round trip, us: link / %s | GB/s: link / %s |\n|---|---|---|\n",
               p->bare.name, p->bare.name);
    }
    if (!p->no_sizes) compare_sizes(p);
    print_overlap(p, &p->deep);
    /* Tells the follower that the measurement is over before either end closes. */
    wire *links[2] = {&p->link, &p->deep};
    for (int i = 0; i < 2; i++) {
        if (p->me == LEAD)
            links[i]->send(links[i], 1);
        else
            links[i]->recv(links[i], 1);
        links[i]->close(links[i]);
    }
    p->bare.close(&p->bare);
}

/* ---- Two processes --------------------------------------------------------------------------- */

static const size_t longest = (size_t)512 << 20;
/* Enough that the transport is never idle, but little enough memory to stay in the caches. */
static const uint64_t queue_bytes = 24 << 20;

#ifdef DW_BENCH_MPI
static void run_here(plan *p)
{
    wire_mpi_ranks ranks = wire_mpi_begin();
    p->me = ranks.me;
    p->bare = wire_of_mpi(&ranks, longest);
    print_overlap(p, &p->bare); /* before there are links, whose threads would disturb it */
    p->link = wire_of_mpi_link(&ranks, 0, queue_bytes);
    p->deep = wire_of_mpi_link(&ranks, 1, 0);
    run(p);
    wire_mpi_end(&ranks);
}
#else
static void listen_at(struct sockaddr_in *address, int *fd)
{
    socklen_t len = sizeof *address;
    *address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    *fd = socket(AF_INET, SOCK_STREAM, 0);
    if (*fd < 0 || bind(*fd, (struct sockaddr *)address, len) || listen(*fd, 1) ||
        getsockname(*fd, (struct sockaddr *)address, &len))
        bench_die("cannot listen on the loopback address");
}

/* The listening end of the link sends its address over the plain socket. */
static void tell(void *context, const char *uri)
{
    int fd = *(int *)context;
    char room[128] = "";
    snprintf(room, sizeof room, "%s", uri);
    if (send(fd, room, sizeof room, 0) != (ssize_t)sizeof room)
        bench_die("the other process has gone");
}

static wire join(int me, const char *where, int fd, uint64_t queued, bool is_secure)
{
    static const char key[32] = "a key that everybody may know...";
    static const char *const names[] = {"leader", "follower"};
    dw_tls_options tls = {.struct_size = sizeof tls,
                          .own_name = names[me],
                          .peer_name = names[1 - me],
                          .group_key = key,
                          .group_key_bytes = sizeof key};
    char uri[128];
    snprintf(uri, sizeof uri, "%s", where);
    if (me == FOLLOW && recv(fd, uri, sizeof uri, MSG_WAITALL) != (ssize_t)sizeof uri)
        bench_die("no address came");
    dw_link_options options = {.struct_size = sizeof options,
                               .max_queued_bytes = queued,
                               .role = me == LEAD ? DW_LINK_LISTEN : DW_LINK_CONNECT,
                               .tls = is_secure ? &tls : NULL,
                               .on_listening = tell,
                               .listening_context = &fd};
    return wire_of_link(uri, &options);
}

static void run_here(plan *p)
{
    struct sockaddr_in address;
    int listener, fd;
    int on = 1;
    listen_at(&address, &listener);
    fflush(stdout);
    pid_t child = fork();
    p->me = child == 0 ? FOLLOW : LEAD;
    if (p->me == LEAD) {
        fd = accept(listener, NULL, NULL);
    } else {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof address)) bench_die("cannot connect");
    }
    close(listener);
    if (fd < 0) bench_die("no connection");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    p->deep = join(p->me, p->uri, fd, 0, p->is_secure);
    p->link = join(p->me, p->uri, fd, queue_bytes, p->is_secure);
    p->bare = wire_of_socket(fd, longest);
    run(p);
    if (p->me == LEAD) waitpid(child, NULL, 0);
}
#endif

int main(int argc, char **argv)
{
    plan p = {.rounds = 9, .part = 1, .uri = "tcp://127.0.0.1:0"};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick")) {
            p.rounds = 1;
            p.part = 0.001; /* checks only that it runs */
        } else if (!strcmp(argv[i], "--rounds") && i + 1 < argc && atoi(argv[i + 1]) > 0 &&
                   atoi(argv[i + 1]) < ROUNDS_MOST) {
            p.rounds = atoi(argv[++i]);
        } else if (!strcmp(argv[i], "--tls")) {
            p.is_secure = true;
        } else if (!strcmp(argv[i], "--overlap")) {
            p.no_sizes = 1;
        } else if (!strcmp(argv[i], "--listen") && i + 1 < argc) {
            p.uri = argv[++i];
        } else if (!strcmp(argv[i], "--bytes") && i + 1 < argc) {
            p.only = strtoul(argv[++i], NULL, 10);
        } else {
            bench_die("usage: bench_link [--quick] [--rounds N] [--bytes N] [--overlap] [--tls] "
                      "[--listen URI]");
        }
    }
    run_here(&p);
    return 0;
}
