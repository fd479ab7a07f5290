/* Threads and device locks: see pool.h.
 *
 * Three waits here have no deadline, since nobody could do anything with one. A thread without a
 * job waits for nobody: pool_close ends it. pool_close waits for jobs under way, whose own waits
 * for other workers have ended when it is called (rpc->stop). And a device lock is held by a thread
 * of this process that computes: it gives the device away before it waits for another worker. */
#include "rpc/pool.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/thread.h"

void pool_open(struct pool *p, int limit, void (*stay_awake)(void *context, const int *queued),
               void *context) {
    *p = (struct pool){.limit = limit, .stay_awake = stay_awake, .context = context};
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->ended, NULL);
}

static void *thread_of_pool(void *argument);

/* Sees to it that somebody takes the next job, with the lock held. While one thread is on its way
 * no other is called: it calls the next itself where there is more than one job. So a burst of
 * short jobs does not wake all threads, which would meet at the same locks. */
static void call_thread(struct pool *p) {
    pthread_t thread;
    if (!p->queued || p->stop || p->coming) return;
    if (p->idle) {
        p->coming = 1;
        pthread_cond_signal(&p->work);
        return;
    }
    if (p->count - p->waiting >= p->limit) return; /* who is done with a job takes it */
    p->count++;
    p->coming = 1;
    if (thread_start(&thread, thread_of_pool, p)) {
        p->count--;
        p->coming = 0;
    } else {
        pthread_detach(thread);
    }
}

/* Sleeps until it is called, if nothing comes before; with the lock held. One thread at a time
 * stays awake for a moment, and counts as coming. */
static void wait_for_job(struct pool *p) {
    if (!p->coming) {
        p->coming = 1;
        pthread_mutex_unlock(&p->lock);
        p->stay_awake(p->context, &p->queued);
        pthread_mutex_lock(&p->lock);
        p->coming = 0;
        if (p->queued || p->stop) return;
    }
    p->idle++;
    pthread_cond_wait(&p->work, &p->lock);
    p->idle--;
    p->coming = 0;
}

static _Thread_local const struct pool *pool_of_thread; /* NULL: it is of none */

static void *thread_of_pool(void *argument) {
    struct pool *p = argument;
    pool_of_thread = p;
    pthread_mutex_lock(&p->lock);
    p->coming = 0;
    while (!p->stop && p->count - p->waiting <= p->limit) {
        if (!p->first) {
            wait_for_job(p);
            continue;
        }
        struct job *job = p->first;
        p->first = job->next;
        if (!p->first) p->last = NULL;
        __atomic_fetch_sub(&p->queued, 1, __ATOMIC_RELAXED);
        call_thread(p);
        pthread_mutex_unlock(&p->lock);
        job->run(job->context);
        free(job);
        pthread_mutex_lock(&p->lock);
    }
    p->count--;
    call_thread(p); /* what woke this thread is for another */
    pthread_cond_broadcast(&p->ended);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

int pool_run(struct pool *p, void (*run)(void *context), void *context) {
    struct job *job = malloc(sizeof *job);
    if (!job) return fail(ERR_MEMORY, "rpc: no host memory");
    *job = (struct job){run, context, NULL};
    pthread_mutex_lock(&p->lock);
    if (p->last)
        p->last->next = job;
    else
        p->first = job;
    p->last = job;
    __atomic_fetch_add(&p->queued, 1, __ATOMIC_RELEASE);
    call_thread(p);
    pthread_mutex_unlock(&p->lock);
    return OK;
}

int pool_has_this_thread(const struct pool *p) {
    return pool_of_thread == p;
}

int pool_threads(struct pool *p) {
    pthread_mutex_lock(&p->lock);
    int count = p->count;
    pthread_mutex_unlock(&p->lock);
    return count;
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
    for (struct job *job; (job = p->first);) { /* what ends values and contexts must be done */
        p->first = job->next;
        if (!p->first) p->last = NULL;
        pthread_mutex_unlock(&p->lock);
        job->run(job->context);
        free(job);
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->ended);
}

/* ---- devices ---- */

/* Each has a condition of its own, so that who gives the device wakes the next one and no other. */
struct device_waiter {
    pthread_cond_t turn;
    pthread_t thread;
    int mine;
    struct device_waiter *next;
};

void device_lock_open(struct device_lock *l, duet_device *device) {
    *l = (struct device_lock){.device = device};
    pthread_mutex_init(&l->lock, NULL);
}

static void wait_turn(struct device_lock *l) {
    struct device_waiter w = {.thread = pthread_self()};
    pthread_cond_init(&w.turn, NULL);
    if (l->last)
        l->last->next = &w;
    else
        l->first = &w;
    l->last = &w;
    while (!w.mine)
        pthread_cond_wait(&w.turn, &l->lock);
    pthread_cond_destroy(&w.turn);
}

void device_lock_take(struct device_lock *l) {
    pthread_mutex_lock(&l->lock);
    if (l->held) {
        wait_turn(l);
    } else {
        l->held = 1;
        l->holder = pthread_self();
    }
    pthread_mutex_unlock(&l->lock);
}

void device_lock_give(struct device_lock *l) {
    pthread_mutex_lock(&l->lock);
    struct device_waiter *w = l->first;
    if (w) {
        l->first = w->next;
        if (!l->first) l->last = NULL;
        l->holder = w->thread;
        w->mine = 1;
        pthread_cond_signal(&w->turn);
    } else {
        l->held = 0;
    }
    pthread_mutex_unlock(&l->lock);
}

int device_lock_is_mine(struct device_lock *l) {
    pthread_mutex_lock(&l->lock);
    int mine = l->held && pthread_equal(l->holder, pthread_self());
    pthread_mutex_unlock(&l->lock);
    return mine;
}

void device_lock_close(struct device_lock *l) {
    pthread_mutex_destroy(&l->lock);
}
