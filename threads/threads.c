/* SPDX-License-Identifier: Apache-2.0
 * threads.c - one job at a time, its pieces given out under a lock: a piece takes tens of
 * microseconds, the lock one tenth of one. */
#include "deltawire/threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST_THREADS = 1024 };

typedef struct job {
    dw_task *task;
    void *context;
    size_t n, next, left; /* next: not given out; left: not done */
} job;

struct dw_threads {
    pthread_mutex_t lock;
    pthread_cond_t posted, done;
    job *job; /* NULL: nothing to do */
    bool over;
    pid_t process; /* whose threads these are: what fork() makes has none of them */
    uint32_t n;    /* the caller is not one of them */
    pthread_t threads[];
};

/* The lock is held, and is held again on return. The job may be gone then, unless it is the
 * caller's own. */
static void take_pieces(dw_threads *pool, job *j)
{
    while (pool->job == j && j->next < j->n) {
        size_t i = j->next++;
        pthread_mutex_unlock(&pool->lock);
        j->task(j->context, i);
        pthread_mutex_lock(&pool->lock);
        if (--j->left == 0) {
            /* Its caller cannot go on before the lock is free, nor another piece be taken. */
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

static dw_status complain(dw_why *why, dw_status status, const char *sentence)
{
    if (why) {
        *why = (dw_why){.offset = -1};
        snprintf(why->text, sizeof why->text, "%s", sentence);
    }
    return status;
}

static uint32_t processors(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n < 1 ? 1 : n > MOST_THREADS ? MOST_THREADS : (uint32_t)n;
}

/* The program's handlers are to run in the program's threads: a wait there, which a signal is to
 * end, would go on if one of ours took it. */
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
    if (!threads) return complain(why, DW_ERR_ARGUMENT, "there is no place for the pool: NULL");
    *threads = NULL;
    if (n > MOST_THREADS)
        return complain(why, DW_ERR_LIMIT, "a pool has at most 1024 threads: ask for fewer");
    uint32_t helpers = (n == 0 ? processors() : n) - 1;
    dw_threads *made = calloc(1, sizeof *made + helpers * sizeof *made->threads);
    if (!made) return complain(why, DW_ERR_NO_MEMORY, "there is no memory for a pool of threads");
    made->process = getpid();
    pthread_mutex_init(&made->lock, NULL); /* with default attributes these do not fail on Linux */
    pthread_cond_init(&made->posted, NULL);
    pthread_cond_init(&made->done, NULL);
    if (start(made, helpers)) {
        dw_threads_destroy(made);
        return complain(why, DW_ERR_NO_MEMORY,
                        "the system gives no more threads: ask for fewer, or see ulimit -u");
    }
    *threads = made;
    return complain(why, DW_OK, "");
}

void dw_threads_destroy(dw_threads *pool)
{
    if (!pool) return;
    if (pool->process == getpid()) {
        pthread_mutex_lock(&pool->lock);
        pool->over = true;
        pthread_cond_broadcast(&pool->posted);
        pthread_mutex_unlock(&pool->lock);
        for (uint32_t i = 0; i < pool->n; i++) pthread_join(pool->threads[i], NULL);
        /* Elsewhere they may seem to have waiters, for which destroying would wait for ever. */
        pthread_cond_destroy(&pool->done);
        pthread_cond_destroy(&pool->posted);
        pthread_mutex_destroy(&pool->lock);
    }
    free(pool);
}

uint32_t dw_threads_count(const dw_threads *pool)
{
    return pool ? pool->n + 1 : 0;
}

void dw_threads_parallel_for(void *threads, size_t n, dw_task *task, void *task_context)
{
    dw_threads *pool = threads;
    job mine = {task, task_context, n, 0, n};
    /* In a forked process the lock may be held by a thread that is not there. */
    bool alone = !pool || pool->n == 0 || pool->process != getpid();
    if (n == 0) return;
    if (!alone) {
        pthread_mutex_lock(&pool->lock);
        alone = pool->job; /* others are served */
        if (alone) pthread_mutex_unlock(&pool->lock);
    }
    if (alone) {
        for (size_t i = 0; i < n; i++) task(task_context, i);
        return;
    }
    pool->job = &mine;
    pthread_cond_broadcast(&pool->posted);
    take_pieces(pool, &mine);
    while (mine.left > 0) pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}
