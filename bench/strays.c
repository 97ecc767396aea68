/* SPDX-License-Identifier: Apache-2.0
 * strays.c - opens a given number of stray connections per second to a port. */
#include "strays.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "die.h"

static void knock(int port, uint64_t number)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    static const char nonsense[100] = "GET / HTTP/1.0\r\n\r\n";
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0) return;
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 && number % 2)
        send(fd, nonsense, sizeof nonsense, MSG_NOSIGNAL);
    close(fd);
}

/* Connections are spaced evenly in time; one that is late is made at once. */
static void roam(struct strays_shared *shared, int per_second)
{
    long step_ns = 1000000000L / per_second;
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    for (;;) {
        next.tv_nsec += step_ns;
        next.tv_sec += next.tv_nsec / 1000000000L;
        next.tv_nsec %= 1000000000L;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
        if (!__atomic_load_n(&shared->is_on, __ATOMIC_RELAXED)) continue;
        knock(__atomic_load_n(&shared->port, __ATOMIC_RELAXED),
              __atomic_fetch_add(&shared->connections, 1, __ATOMIC_RELAXED));
    }
}

strays strays_begin(int per_second)
{
    strays s = {.shared = mmap(NULL, sizeof *s.shared, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0)};
    if (s.shared == MAP_FAILED) bench_die("no memory to share with strays");
    s.process = fork();
    if (s.process < 0) bench_die("cannot start strays");
    if (s.process == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        roam(s.shared, per_second);
    }
    return s;
}

void strays_come(const strays *s, int port)
{
    __atomic_store_n(&s->shared->port, port, __ATOMIC_RELAXED);
    __atomic_store_n(&s->shared->is_on, true, __ATOMIC_RELAXED);
}

void strays_rest(const strays *s)
{
    __atomic_store_n(&s->shared->is_on, false, __ATOMIC_RELAXED);
}

uint64_t strays_count(const strays *s)
{
    return __atomic_load_n(&s->shared->connections, __ATOMIC_RELAXED);
}

void strays_end(const strays *s)
{
    kill(s->process, SIGKILL);
    waitpid(s->process, NULL, 0);
    munmap(s->shared, sizeof *s->shared);
}
