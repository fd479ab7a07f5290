/* The threads of the pool: see pool.h.
 *
 * Two waits here have no deadline, because a timeout would not help. A thread without a job waits
 * until pool_close ends it. pool_close waits for running jobs; their own waits for other workers
 * have ended before it is called (rpc->stop). */
#include "rpc/pool.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/thread.h"

void pool_open(struct pool *p, int limit) {
    *p = (struct pool){.limit = limit};
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->ended, NULL);
}

static void *thread_of_pool(void *argument);

/* Ensures that a thread takes the next job, with the lock held. */
static void call_thread(struct pool *p) {
    pthread_t thread;
    if (!p->queued || p->stop) return;
    if (p->queued <= p->idle) {
        pthread_cond_signal(&p->work);
        return;
    }
    if (p->count - p->waiting >= p->limit) return; /* the next idle thread will take the job */
    p->count++;
    if (thread_start(&thread, thread_of_pool, p))
        p->count--;
    else
        pthread_detach(thread);
}

static void run_first(struct pool *p) {
    struct job *job = p->first;
    if (!(p->first = job->next)) p->last = NULL;
    p->queued--;
    pthread_mutex_unlock(&p->lock);
    job->run(job->context);
    free(job);
    pthread_mutex_lock(&p->lock);
}

static _Thread_local const struct pool *pool_of_thread; /* NULL: the thread is in no pool */

static void *thread_of_pool(void *argument) {
    struct pool *p = argument;
    pool_of_thread = p;
    pthread_mutex_lock(&p->lock);
    while (!p->stop && p->count - p->waiting <= p->limit) {
        if (p->first) {
            run_first(p);
        } else {
            p->idle++;
            pthread_cond_wait(&p->work, &p->lock);
            p->idle--;
        }
    }
    p->count--;
    call_thread(p); /* the signal may have been meant for another thread */
    pthread_cond_broadcast(&p->ended);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

int pool_run(struct pool *p, void (*run)(void *context), void *context) {
    struct job *job = malloc(sizeof *job);
    if (!job) return fail(ERR_MEMORY, "rpc: out of host memory");
    *job = (struct job){run, context, NULL};
    pthread_mutex_lock(&p->lock);
    if (p->last)
        p->last->next = job;
    else
        p->first = job;
    p->last = job;
    p->queued++;
    call_thread(p);
    pthread_mutex_unlock(&p->lock);
    return OK;
}

int pool_has_this_thread(const struct pool *p) {
    return pool_of_thread == p;
}

void pool_pause(struct pool *p) {
    if (!pool_has_this_thread(p)) return;
    pthread_mutex_lock(&p->lock);
    p->waiting++;
    call_thread(p);
    pthread_mutex_unlock(&p->lock);
}

void pool_resume(struct pool *p) {
    if (!pool_has_this_thread(p)) return;
    pthread_mutex_lock(&p->lock);
    p->waiting--;
    pthread_mutex_unlock(&p->lock);
}

void pool_close(struct pool *p) {
    pthread_mutex_lock(&p->lock);
    p->stop = 1;
    pthread_cond_broadcast(&p->work);
    while (p->count)
        pthread_cond_wait(&p->ended, &p->lock);
    while (p->first) /* remaining jobs that free values and contexts must still run */
        run_first(p);
    pthread_mutex_unlock(&p->lock);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->ended);
}
