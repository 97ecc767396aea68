/* SPDX-License-Identifier: Apache-2.0
 * test_adaptive_spin.c - spinning before the sleep (transports/link/adaptive_spin.c): when a caller
 * does it, and that it waits as long as it should with and without it. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "transports/suite/transport_suite.h"

#include "link/link.h"

enum { MANY = 1000, SHORT_NS = 300000, LONG_NS = 20000000 };
#define MS INT64_C(1000000)

/* These take the place of libc's. Something may happen in a yield; and the test sees for how long
 * the sleep is to last. */
static int yields, write_at, write_to, nap_ms;
static int64_t sleep_ns; /* of the last sleep */

int ppoll(struct pollfd *waits, nfds_t n, const struct timespec *time, const sigset_t *mask)
{
    sleep_ns = time ? time->tv_sec * INT64_C(1000000000) + time->tv_nsec : INT64_MAX;
    struct timespec left = time ? *time : (struct timespec){0, 0}; /* the kernel writes to it */
    return (int)syscall(SYS_ppoll, waits, n, time ? &left : NULL, NULL, 0);
}

int sched_yield(void)
{
    if (++yields == write_at) assert_int_equal(write(write_to, "", 1), 1);
    if (nap_ms > 0) suite_sleep_ms(nap_ms);
    return 0;
}

/* How many of the next waits would ask. */
static int count_asking(dw_adaptive_spin *spin, int waits)
{
    int asking = 0;
    for (int i = 0; i < waits; i++) asking += dw_adaptive_spin_pays(spin);
    return asking;
}

/* Where at least seven of eight questions find something it always asks; where half of them or none
 * do, it asks a few times until it has learnt this, and then once in 64 waits. */
TEST(adaptive_spin_polls_only_where_polling_helps)
{
    static const struct {
        int vain_of, vain, least, most; /* of so many questions so many find nothing */
    } cases[] = {
        {8, 1, MANY, MANY}, {2, 1, MANY / 64, MANY / 8}, {1, 1, MANY / 64, MANY / 64 + 16}};
    for (int c = 0; c < 3; c++) {
        dw_adaptive_spin spin = {0, 0};
        int asked = 0;
        for (int i = 0; i < MANY; i++) {
            if (!dw_adaptive_spin_pays(&spin)) continue;
            dw_adaptive_spin_learn(&spin, asked++ % cases[c].vain_of >= cases[c].vain);
        }
        assert_in_range(asked, cases[c].least, cases[c].most);
    }
}

TEST(adaptive_spin_polls_again_when_polling_helps_again)
{
    dw_adaptive_spin spin = {0, 0};
    for (int i = 0; i < MANY; i++) dw_adaptive_spin_learn(&spin, false);
    int slept = 0;
    while (slept < MANY && !dw_adaptive_spin_pays(&spin)) slept++;
    assert_in_range(slept, 0, 63);
    dw_adaptive_spin_learn(&spin, true);
    assert_int_equal(count_asking(&spin, MANY), MANY);
}

/* ---- Waiting --------------------------------------------------------------------------------- */

/* A pipe whose end is waited for. */
typedef struct post {
    int ends[2];
    struct pollfd wait;
} post;

static void set_up(post *p)
{
    assert_int_equal(pipe(p->ends), 0);
    p->wait = (struct pollfd){.fd = p->ends[0], .events = POLLIN};
    yields = write_at = nap_ms = 0;
    write_to = p->ends[1];
}

static void take_down(const post *p)
{
    close(p->ends[0]);
    close(p->ends[1]);
}

static void empty(const post *p)
{
    char byte;
    assert_int_equal(read(p->ends[0], &byte, 1), 1);
}

/* A spin that pays, one that does not, and none. */
static dw_adaptive_spin *spin_of(dw_adaptive_spin *spin, int way)
{
    *spin = (dw_adaptive_spin){0, 0};
    for (int i = 0; i < MANY && way == 1; i++) dw_adaptive_spin_learn(spin, false);
    return way == 2 ? NULL : spin;
}

TEST(poll_waits_for_its_whole_timeout)
{
    post p;
    set_up(&p);
    const int64_t times[] = {0, SHORT_NS / 10, SHORT_NS, LONG_NS};
    for (int way = 0; way < 3; way++) {
        for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
            dw_adaptive_spin spin, *used = spin_of(&spin, way);
            int64_t begun_ns = suite_now_ns();
            yields = 0;
            dw_adaptive_spin_poll(used, &p.wait, 1, times[i]);
            assert_true(suite_now_ns() - begun_ns >= times[i]);
            assert_int_equal(p.wait.revents, 0);
            assert_int_equal(yields > 0, way == 0 && times[i] >= SHORT_NS);
        }
    }
    take_down(&p);
}

/* A yield may take long, where other programs want the processor. What it has taken is not slept
 * again: of 8 ms, 5 at least pass in the yield, and of 4 ms all. */
TEST(long_yield_shortens_the_sleep_after_it)
{
    post p;
    set_up(&p);
    nap_ms = 5;
    for (int64_t wait_ms = 4; wait_ms <= 8; wait_ms += 4) {
        dw_adaptive_spin spin = {0, 0};
        yields = 0;
        dw_adaptive_spin_poll(&spin, &p.wait, 1, wait_ms * MS);
        assert_true(yields > 0);
        assert_in_range(sleep_ns, 0, wait_ms == 4 ? 0 : 3 * MS);
    }
    take_down(&p);
}

static void *write_soon(void *context)
{
    suite_sleep_ms(20);
    assert_int_equal(write(*(int *)context, "", 1), 1);
    return NULL;
}

TEST(poll_returns_when_a_descriptor_is_ready)
{
    for (int way = 0; way < 3; way++) {
        post p;
        set_up(&p);
        struct pollfd waits[2] = {{.fd = -1, .events = POLLIN}, p.wait};
        dw_adaptive_spin spin, *used = spin_of(&spin, way);
        pthread_t writer;
        assert_int_equal(pthread_create(&writer, NULL, write_soon, &p.ends[1]), 0);
        dw_adaptive_spin_poll(used, waits, 2, INT64_MAX); /* while it sleeps */
        assert_int_equal(waits[1].revents, POLLIN);
        pthread_join(writer, NULL);
        waits[1].revents = 0;
        dw_adaptive_spin_poll(used, waits, 2, INT64_MAX); /* at once */
        assert_int_equal(waits[1].revents, POLLIN);
        assert_int_equal(waits[0].revents, 0);
        take_down(&p);
    }
}

/* What is there already says nothing about the use of asking, nor does a wait that is too short. */
TEST(adaptive_spin_learns_from_its_own_waits)
{
    dw_adaptive_spin spin = {0, 0};
    post p;
    set_up(&p);
    for (int i = 0; i < 32; i++) dw_adaptive_spin_poll(&spin, &p.wait, 1, 1000);
    assert_int_equal(spin.vain, 0);
    for (int i = 0; i < 32; i++) dw_adaptive_spin_poll(&spin, &p.wait, 1, SHORT_NS);
    uint32_t vain = spin.vain;
    assert_true(vain > 0 && count_asking(&spin, 63) <= 1);
    assert_int_equal(write(p.ends[1], "", 1), 1);
    for (int i = 0; i < 128; i++) dw_adaptive_spin_poll(&spin, &p.wait, 1, SHORT_NS);
    assert_int_equal(spin.vain, vain);
    empty(&p);
    /* Now something comes while it asks, at the next wait that does. */
    for (int i = 0; i < 64 && spin.vain == vain; i++) {
        yields = 0;
        write_at = 1;
        dw_adaptive_spin_poll(&spin, &p.wait, 1, SHORT_NS);
        assert_int_equal(p.wait.revents != 0, yields > 0);
        if (yields > 0) empty(&p);
    }
    assert_true(spin.vain < vain);
    assert_int_equal(count_asking(&spin, MANY), MANY);
    take_down(&p);
}

RUN_TESTS(NULL, NULL)
