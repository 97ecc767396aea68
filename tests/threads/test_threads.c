/* SPDX-License-Identifier: Apache-2.0
 * test_threads.c - the pool of threads does every piece exactly once, for several callers and in
 * forked processes too, and its threads take no signals. */
#include "deltawire/threads.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/tool.h"

/* Whether this program was compiled with AddressSanitizer. Its allocator has a lock, and if another
 * thread holds the lock during a fork, it remains locked in the child for ever. */
#if defined(__SANITIZE_ADDRESS__)
#define FORKS_WITH_A_LOCK 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FORKS_WITH_A_LOCK 1
#endif
#endif
#ifndef FORKS_WITH_A_LOCK
#define FORKS_WITH_A_LOCK 0
#endif

enum { MOST = 1000 };

typedef struct count {
    int of[MOST]; /* atomic */
} count;

static void once(void *context, size_t i)
{
    count *c = context;
    __atomic_fetch_add(&c->of[i], 1, __ATOMIC_RELAXED);
}

static int count_wrong(dw_threads *pool, size_t n)
{
    count c = {{0}};
    int wrong = 0;
    dw_threads_parallel_for(pool, n, once, &c);
    for (size_t i = 0; i < MOST; i++)
        wrong += __atomic_load_n(&c.of[i], __ATOMIC_RELAXED) != (i < n);
    return wrong;
}

static void each_piece_once(dw_threads *pool, size_t n)
{
    int wrong = count_wrong(pool, n);
    if (wrong) fail_msg("%d of %zu pieces were not done exactly once", wrong, n);
}

static dw_threads *make(uint32_t n)
{
    dw_threads *pool;
    dw_why why;
    assert_int_equal(dw_threads_create(&pool, n, &why), DW_OK);
    assert_string_equal(why.text, "");
    assert_int_equal(why.offset, -1);
    return pool;
}

TEST(workers_do_every_piece_once)
{
    for (uint32_t threads = 1; threads <= 5; threads++) {
        dw_threads *pool = make(threads);
        assert_int_equal(dw_threads_size(pool), threads);
        for (size_t n = 0; n <= MOST; n += n < 20 ? 1 : 49) each_piece_once(pool, n);
        dw_threads_destroy(pool);
    }
    each_piece_once(NULL, 7);
    dw_threads_destroy(NULL);
}

/* Two pieces that wait for each other: a single thread would wait forever. */
static void meet(void *context, size_t i)
{
    (void)i;
    pthread_barrier_wait(context);
}

TEST(workers_run_in_several_threads)
{
    for (unsigned threads = 2; threads <= 3; threads++) {
        pthread_barrier_t barrier;
        dw_threads *pool = make(threads);
        pthread_barrier_init(&barrier, NULL, threads);
        for (int i = 0; i < 50; i++) dw_threads_parallel_for(pool, threads, meet, &barrier);
        dw_threads_destroy(pool);
        pthread_barrier_destroy(&barrier);
    }
}

static void *call_often(void *pool)
{
    for (int i = 0; i < 300; i++) each_piece_once(pool, (size_t)i % 40);
    return NULL;
}

TEST(workers_serve_several_callers)
{
    enum { CALLERS = 4 };
    dw_threads *pool = make(3);
    pthread_t callers[CALLERS];
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&callers[i], NULL, call_often, pool), 0);
    for (int i = 0; i < CALLERS; i++) pthread_join(callers[i], NULL);
    dw_threads_destroy(pool);
}

/* A piece may call parallel_for itself. As the pool is busy with the outer call, the thread that
 * does the piece does the inner ones alone. */
static void nest(void *context, size_t i)
{
    (void)i;
    each_piece_once(context, 9);
}

TEST(work_pieces_may_use_the_pool_themselves)
{
    dw_threads *pool = make(3);
    dw_threads_parallel_for(pool, 12, nest, pool);
    dw_threads_destroy(pool);
}

/* The caller cancels itself in a piece, and then waits for the pieces of the others. */
static void cancel_and_work(void *caller, size_t i)
{
    (void)i;
    if (pthread_equal(pthread_self(), *(pthread_t *)caller)) pthread_cancel(pthread_self());
    usleep(20000);
}

static void *call_and_be_cancelled(void *pool)
{
    pthread_t me = pthread_self();
    dw_threads_parallel_for(pool, 12, cancel_and_work, &me);
    pthread_testcancel();
    return NULL;
}

TEST(workers_survive_a_caller_that_is_cancelled)
{
    dw_threads *pool = make(3);
    pthread_t caller;
    void *result;
    assert_int_equal(pthread_create(&caller, NULL, call_and_be_cancelled, pool), 0);
    pthread_join(caller, &result);
    assert_true(result == PTHREAD_CANCELED);
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 3);
    dw_threads_parallel_for(pool, 3, meet, &barrier); /* all three still work */
    pthread_barrier_destroy(&barrier);
    dw_threads_destroy(pool);
}

/* ThreadSanitizer kills a forked process that starts a thread. */
#if defined(__SANITIZE_THREAD__)
#define CHILD_STARTS_THREADS false
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CHILD_STARTS_THREADS false
#endif
#endif
#ifndef CHILD_STARTS_THREADS
#define CHILD_STARTS_THREADS true
#endif

static int work_as_child(dw_threads *pool)
{
    int wrong = count_wrong(pool, 100) + count_wrong(pool, 3);
    dw_threads_destroy(pool);
    if (CHILD_STARTS_THREADS) {
        dw_threads *own;
        wrong += dw_threads_create(&own, 3, NULL) != DW_OK || count_wrong(own, 200);
        dw_threads_destroy(own);
    }
    return wrong;
}

/* Forks a child that uses the pool, and returns its wait status: 0 if all is well. The threads of
 * the pool do not exist in the child; if it waited for one of them, its alarm would kill it. */
static int fork_and_work(dw_threads *pool)
{
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        _exit(work_as_child(pool) ? 1 : 0);
    }
    return child > 0 && waitpid(child, &status, 0) == child ? status : -1;
}

TEST(workers_survive_a_fork)
{
    for (int i = 0; i < 5; i++) {
        dw_threads *pool = make(3);
        if (i) each_piece_once(pool, 50);
        assert_int_equal(fork_and_work(pool), 0);
        each_piece_once(pool, 50); /* the pool of the parent still works */
        dw_threads_destroy(pool);
    }
}

typedef struct forking {
    dw_threads *pool;
    int status;
} forking;

static void fork_inside(void *context, size_t i)
{
    forking *f = context;
    if (i == 0) f->status = fork_and_work(f->pool);
}

/* The fork happens during a call of the parent, and the child has a copy of the state of it. */
TEST(workers_survive_a_fork_in_a_call)
{
    forking f = {make(3), -1};
    dw_threads_parallel_for(f.pool, 8, fork_inside, &f);
    assert_int_equal(f.status, 0);
    dw_threads_destroy(f.pool);
}

static void nothing(void *context, size_t i)
{
    (void)context;
    (void)i;
}

typedef struct hammer {
    dw_threads *pool;
    int over; /* atomic */
} hammer;

static void *take_the_lock_often(void *context)
{
    hammer *h = context;
    while (!__atomic_load_n(&h->over, __ATOMIC_RELAXED))
        dw_threads_parallel_for(h->pool, 200, nothing, NULL);
    return NULL;
}

/* Some of these forks happen while another thread holds the pool's lock. In the child that thread
 * does not exist, so nobody would release the lock. The same is true of the lock of
 * AddressSanitizer's allocator: about one child in ten thousand waits for it for ever when it
 * starts threads. So builds with AddressSanitizer skip this test. */
TEST(workers_survive_a_fork_while_the_lock_is_held)
{
    if (FORKS_WITH_A_LOCK) skip();
    hammer h = {make(3), 0};
    pthread_t caller;
    assert_int_equal(pthread_create(&caller, NULL, take_the_lock_often, &h), 0);
    int status = 0;
    for (int i = 0; i < 150 && status == 0; i++) status = fork_and_work(h.pool);
    __atomic_store_n(&h.over, 1, __ATOMIC_RELAXED);
    pthread_join(caller, NULL);
    assert_int_equal(status, 0);
    dw_threads_destroy(h.pool);
}

/* For the test that the threads of the pool block all signals, while the caller's thread does not
 * block SIGUSR1. */
typedef struct masks {
    pthread_barrier_t barrier;
    pthread_t caller;
    int open; /* atomic: how many threads other than the caller do not block SIGUSR1 */
} masks;

static void look_at_mask(void *context, size_t i)
{
    masks *m = context;
    sigset_t set;
    (void)i;
    pthread_barrier_wait(&m->barrier);
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    if (!pthread_equal(pthread_self(), m->caller) && !sigismember(&set, SIGUSR1))
        __atomic_fetch_add(&m->open, 1, __ATOMIC_RELAXED);
}

TEST(workers_take_no_signals)
{
    sigset_t set;
    masks m = {.caller = pthread_self()};
    dw_threads *pool = make(3);
    pthread_barrier_init(&m.barrier, NULL, 3);
    dw_threads_parallel_for(pool, 3, look_at_mask, &m);
    assert_int_equal(m.open, 0);
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    assert_false(sigismember(&set, SIGUSR1)); /* the caller's mask was restored */
    pthread_barrier_destroy(&m.barrier);
    dw_threads_destroy(pool);
}

TEST(wrong_numbers_of_workers_are_refused)
{
    dw_threads *pool = (dw_threads *)state;
    dw_why why;
    assert_int_equal(dw_threads_create(&pool, 1025, &why), DW_ERR_LIMIT);
    assert_null(pool);
    assert_non_null(strstr(why.text, "1024"));
    assert_int_equal(why.offset, -1);
    assert_int_equal(dw_threads_create(&pool, 1025, NULL), DW_ERR_LIMIT);
    assert_int_equal(dw_threads_create(NULL, 2, &why), DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "NULL"));
    assert_int_equal(dw_threads_size(NULL), 0);
    pool = make(0); /* as many as there are processors */
    assert_true(dw_threads_size(pool) >= 1);
    each_piece_once(pool, 30);
    dw_threads_destroy(pool);
}

int main(void)
{
    alarm(100); /* ends a test that hangs */
    return test_run(NULL, NULL);
}
