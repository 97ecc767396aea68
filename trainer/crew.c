/* SPDX-License-Identifier: Apache-2.0
 * crew.c - one job at a time. Threads take its pieces under a lock: a piece takes tens of
 * microseconds, the lock a tenth of a microsecond. */
#include "crew.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

typedef struct job {
    dw_task *task;
    void *context;
    size_t n, next, left; /* next: first piece that nobody has taken; left: pieces not yet done */
} job;

struct dw_crew {
    pthread_mutex_t lock;
    pthread_cond_t posted, done;
    job *job; /* NULL: nothing to do */
    bool over;
    uint32_t n;
    pthread_t threads[];
};

/* Called and left with the lock held. On return the job may have ended, unless it is the caller's
 * own. */
static void take_pieces(dw_crew *crew, job *j)
{
    while (crew->job == j && j->next < j->n) {
        size_t i = j->next++;
        pthread_mutex_unlock(&crew->lock);
        j->task(j->context, i);
        pthread_mutex_lock(&crew->lock);
        if (--j->left == 0) {
            /* The job's caller cannot continue before the lock is released, and no other thread can
             * take a piece. */
            crew->job = NULL;
            pthread_cond_signal(&crew->done);
        }
    }
}

static void *serve(void *argument)
{
    dw_crew *crew = argument;
    pthread_mutex_lock(&crew->lock);
    while (!crew->over) {
        if (crew->job && crew->job->next < crew->job->n)
            take_pieces(crew, crew->job);
        else
            pthread_cond_wait(&crew->posted, &crew->lock);
    }
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

dw_status dw_crew_create(dw_crew **crew, uint32_t threads)
{
    *crew = NULL;
    dw_crew *made = calloc(1, sizeof *made + (threads - 1) * sizeof *made->threads);
    if (!made) return DW_ERR_NO_MEMORY;
    pthread_mutex_init(&made->lock, NULL); /* with default attributes these calls do not fail on
                                              Linux */
    pthread_cond_init(&made->posted, NULL);
    pthread_cond_init(&made->done, NULL);
    for (; made->n + 1 < threads; made->n++) {
        if (pthread_create(&made->threads[made->n], NULL, serve, made) == 0) continue;
        dw_crew_destroy(made);
        return DW_ERR_NO_MEMORY;
    }
    *crew = made;
    return DW_OK;
}

void dw_crew_destroy(dw_crew *crew)
{
    if (!crew) return;
    pthread_mutex_lock(&crew->lock);
    crew->over = true;
    pthread_cond_broadcast(&crew->posted);
    pthread_mutex_unlock(&crew->lock);
    for (uint32_t i = 0; i < crew->n; i++) pthread_join(crew->threads[i], NULL);
    pthread_cond_destroy(&crew->done);
    pthread_cond_destroy(&crew->posted);
    pthread_mutex_destroy(&crew->lock);
    free(crew);
}

void dw_crew_parallel_for(void *context, size_t n, dw_task *task, void *task_context)
{
    dw_crew *crew = context;
    job mine = {task, task_context, n, 0, n};
    if (n == 0) return;
    pthread_mutex_lock(&crew->lock);
    if (crew->job) { /* the threads work for another caller */
        pthread_mutex_unlock(&crew->lock);
        for (size_t i = 0; i < n; i++) task(task_context, i);
        return;
    }
    crew->job = &mine;
    pthread_cond_broadcast(&crew->posted);
    take_pieces(crew, &mine);
    while (mine.left > 0) pthread_cond_wait(&crew->done, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
}
