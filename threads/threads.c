/* SPDX-License-Identifier: Apache-2.0
 * threads.c - a pool of threads that runs one job at a time. The threads take its pieces under a
 * mutex: a piece takes tens of microseconds, the mutex about 0.1 microseconds. */
#include "deltawire/threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/fork_guard.h"
#include "base/sentence.h"
#include "base/uncancelled.h"

enum { MOST_THREADS = 1024 };

typedef struct job {
    dw_task *task;
    void *context;
    /* next: the first piece that nobody has taken; left: pieces that are not finished */
    size_t n, next, left;
} job;

struct dw_threads {
    pthread_mutex_t lock;
    pthread_cond_t posted, done;
    job *job; /* NULL: there is no job */
    bool over;
    dw_fork_guard fork_guard; /* the process that created the threads */
    uint32_t n;               /* number of threads, without the calling one */
    pthread_t threads[];
};

/* Runs pieces of a job until none is left. Called and returns with the lock held, and releases it
 * in between. Afterwards the job may be gone, unless it is the caller's own. */
static void take_pieces(dw_threads *pool, job *j)
{
    while (pool->job == j && j->next < j->n) {
        size_t i = j->next++;
        pthread_mutex_unlock(&pool->lock);
        j->task(j->context, i);
        pthread_mutex_lock(&pool->lock);
        if (--j->left == 0) {
            /* The job still exists: its caller continues only when the lock is free. */
            pool->job = NULL;
            pthread_cond_signal(&pool->done);
        }
    }
}

static void *serve(void *argument)
{
    dw_threads *pool = argument;
    pthread_mutex_lock(&pool->lock);
    while (!pool->over) {
        if (pool->job && pool->job->next < pool->job->n)
            take_pieces(pool, pool->job);
        else
            pthread_cond_wait(&pool->posted, &pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static uint32_t processors(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n < 1 ? 1 : n > MOST_THREADS ? MOST_THREADS : (uint32_t)n;
}

/* Creates the threads, with all signals blocked: signals are handled by the threads of the program.
 * If one of ours took a signal, a system call that it should interrupt in the program would go on
 * waiting. */
static dw_status start(dw_threads *pool, uint32_t helpers)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool->n < helpers && pthread_create(&pool->threads[pool->n], NULL, serve, pool) == 0)
        pool->n++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pool->n == helpers ? DW_OK : DW_ERR_NO_MEMORY;
}

dw_status dw_threads_create(dw_threads **threads, uint32_t n, dw_why *why)
{
    if (!threads)
        return dw_say(why, DW_ERR_ARGUMENT, "dw_threads_create: threads must not be NULL");
    *threads = NULL;
    if (n > MOST_THREADS)
        return dw_say(why, DW_ERR_LIMIT, "a pool has at most 1024 threads: ask for fewer");
    uint32_t helpers = (n == 0 ? processors() : n) - 1;
    dw_threads *made = calloc(1, sizeof *made + helpers * sizeof *made->threads);
    if (!made) return dw_say(why, DW_ERR_NO_MEMORY, "there is no memory for a pool of threads");
    dw_fork_guard_begin(&made->fork_guard);
    pthread_mutex_init(&made->lock, NULL); /* with default attributes these cannot fail on Linux */
    pthread_cond_init(&made->posted, NULL);
    pthread_cond_init(&made->done, NULL);
    if (start(made, helpers)) {
        dw_threads_destroy(made);
        return dw_say(
            why, DW_ERR_NO_MEMORY,
            "the system cannot create so many threads: ask for fewer, or raise ulimit -u");
    }
    *threads = made;
    return dw_say(why, DW_OK, "%s", "");
}

void dw_threads_destroy(dw_threads *pool)
{
    if (!pool) return;
    if (dw_fork_guard_is_ours(&pool->fork_guard)) {
        pthread_mutex_lock(&pool->lock);
        pool->over = true;
        pthread_cond_broadcast(&pool->posted);
        pthread_mutex_unlock(&pool->lock);
        DW_UNCANCELLED;
        for (uint32_t i = 0; i < pool->n; i++) pthread_join(pool->threads[i], NULL);
        /* Only in this process: in a forked child a condition may seem to have waiters, and to
         * destroy it would wait for ever. */
        pthread_cond_destroy(&pool->done);
        pthread_cond_destroy(&pool->posted);
        pthread_mutex_destroy(&pool->lock);
    }
    dw_fork_guard_end(&pool->fork_guard);
    free(pool);
}

uint32_t dw_threads_size(const dw_threads *pool)
{
    return pool ? pool->n + 1 : 0;
}

void dw_threads_parallel_for(void *threads, size_t n, dw_task *task, void *task_context)
{
    dw_threads *pool = threads;
    job mine = {task, task_context, n, 0, n};
    /* In a forked child the lock may be held by a thread that does not exist there. */
    bool alone = !pool || pool->n == 0 || !dw_fork_guard_is_ours(&pool->fork_guard);
    if (n == 0) return;
    if (!alone) {
        pthread_mutex_lock(&pool->lock);
        alone = pool->job; /* the pool is busy with the job of another caller */
        if (alone) pthread_mutex_unlock(&pool->lock);
    }
    if (alone) {
        for (size_t i = 0; i < n; i++) task(task_context, i);
        return;
    }
    /* A caller that pthread_cancel ended here would leave the lock, and its job on a stack that is
     * gone, to the threads. So it ends after the call. */
    DW_UNCANCELLED;
    pool->job = &mine;
    pthread_cond_broadcast(&pool->posted);
    take_pieces(pool, &mine);
    while (mine.left > 0) pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}
