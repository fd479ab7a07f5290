/* The pool of threads that run calls.
 *
 * A thread that waits for another worker does not count: if all others are busy, a new thread takes
 * the next call. So calls may go back and forth to any depth, and at most `limit` threads compute.
 *
 *     pool_pause ... wait ... pool_resume */
#ifndef RPC_POOL_H
#define RPC_POOL_H

#include <pthread.h>
#include <stdint.h>

#include "duet.h"

struct job {
    void (*run)(void *context);
    void *context;
    struct job *next;
};

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t work, ended;
    struct job *first, *last;
    int queued, limit, stop;
    int count, idle, waiting; /* numbers of threads: in all, without a job, inside pool_pause */
};

void pool_open(struct pool *pool, int limit);
/* Runs run(context) on a thread. ERR_MEMORY: no thread or memory. */
int pool_run(struct pool *pool, void (*run)(void *context), void *context);
/* Called around a wait; they have no effect in a thread outside the pool. */
void pool_pause(struct pool *pool);
void pool_resume(struct pool *pool);
int pool_has_this_thread(const struct pool *pool);
void pool_close(struct pool *pool); /* waits for running jobs and runs all others itself */

#endif
