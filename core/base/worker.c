/* The queue of a worker and its threads; see worker.h. */
#include "base/worker.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/system_error.h"
#include "base/thread.h"

struct worker {
    pthread_mutex_t lock;        /* guards what follows, and the states of all tasks */
    pthread_cond_t given, ended; /* wake threads; wake callers that wait */
    struct task *first, **end;   /* the queue, and where to link the next task */
    int running;                 /* running tasks, including those that run in a caller */
    int threads, living, closing;
    pthread_t thread[];
};

static void perform(struct task *task) {
    task->result.code = OK;
    task->result.text[0] = 0;
    failures_add(&task->result, task->run(task->context));
}

void task_run(struct task *task) {
    perform(task);
    task->state = TASK_ENDED;
}

int task_end(const struct task *task) {
    return failures_end(&task->result);
}

int worker_new(struct worker **out, int most) {
    struct worker *w = *out = calloc(1, sizeof *w + (size_t)most * sizeof *w->thread);
    if (!w) return fail(ERR_MEMORY, "worker: out of host memory for %d threads: free some", most);
    w->end = &w->first;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->given, NULL);
    cond_open(&w->ended);
    return OK;
}

/* ---- tasks; the lock is held ---- */

static void append(struct worker *w, struct task *task) {
    task->next = NULL;
    task->state = TASK_GIVEN;
    *w->end = task;
    w->end = &task->next;
}

/* Runs a task that is in no queue; the lock is free meanwhile. */
static void run(struct worker *w, struct task *task, int by_waiter) {
    task->state = TASK_RUNNING;
    task->by_waiter = by_waiter;
    w->running++;
    pthread_mutex_unlock(&w->lock);
    perform(task);
    pthread_mutex_lock(&w->lock);
    w->running--;
    task->state = TASK_ENDED; /* from here on the task belongs to the caller again */
    pthread_cond_broadcast(&w->ended);
    if (w->first) pthread_cond_signal(&w->given);
}

static void run_first(struct worker *w, int by_waiter) {
    struct task *task = w->first;
    w->first = task->next;
    if (!w->first) w->end = &w->first;
    run(w, task, by_waiter);
}

static int may_help(const struct worker *w, int helps) {
    return w->first && (helps ? w->running < (w->threads ? w->threads : 1) : !w->threads);
}

static int wait_for(struct worker *w, struct task *task, int64_t deadline, int helps) {
    while (task->state != TASK_ENDED) {
        if (may_help(w, helps))
            run_first(w, 1);
        else if (now_ns() < deadline)
            cond_wait_until(&w->ended, &w->lock, deadline);
        else
            return 0;
    }
    return 1;
}

/* ---- threads ---- */

/* While a caller runs a task, one thread fewer may run: a one-thread worker runs tasks one after
 * another. */
static void *thread_main(void *argument) {
    struct worker *w = argument;
    pthread_mutex_lock(&w->lock);
    while (w->first || !w->closing) {
        if (w->first && w->running < w->threads)
            run_first(w, 0);
        else
            pthread_cond_wait(&w->given, &w->lock);
    }
    w->living--;
    pthread_cond_broadcast(&w->ended);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int worker_start(struct worker *w, int threads, const char *what) {
    int error = 0;
    pthread_mutex_lock(&w->lock);
    while (w->threads < threads && !error) {
        error = thread_start(&w->thread[w->threads], thread_main, w);
        if (!error) w->threads++, w->living++;
    }
    pthread_mutex_unlock(&w->lock);
    return error ? fail_system(error, "%s", what) : OK;
}

/* ---- what others call ---- */

void worker_give(struct worker *w, struct task *task) {
    pthread_mutex_lock(&w->lock);
    append(w, task);
    pthread_cond_signal(&w->given);
    pthread_mutex_unlock(&w->lock);
}

void worker_run(struct worker *w, struct task *task) {
    pthread_mutex_lock(&w->lock);
    if (!w->first && !w->running) {
        run(w, task, 1);
    } else {
        append(w, task);
        pthread_cond_signal(&w->given);
        wait_for(w, task, WORKER_NEVER, 0);
    }
    pthread_mutex_unlock(&w->lock);
}

void worker_help(struct worker *w, struct task *task) {
    pthread_mutex_lock(&w->lock);
    wait_for(w, task, WORKER_NEVER, 1);
    pthread_mutex_unlock(&w->lock);
}

int worker_wait(struct worker *w, struct task *task, int64_t deadline) {
    pthread_mutex_lock(&w->lock);
    int ended = wait_for(w, task, deadline, 0);
    pthread_mutex_unlock(&w->lock);
    return ended;
}

int worker_has_ended(struct worker *w, const struct task *task) {
    pthread_mutex_lock(&w->lock);
    int ended = task->state == TASK_ENDED;
    pthread_mutex_unlock(&w->lock);
    return ended;
}

int worker_take_back(struct worker *w, struct task *task) {
    pthread_mutex_lock(&w->lock);
    struct task **link = &w->first;
    while (*link && *link != task)
        link = &(*link)->next;
    int found = *link != NULL;
    if (found) {
        *link = task->next;
        if (!*link) w->end = link;
        task->state = TASK_IDLE;
    }
    pthread_mutex_unlock(&w->lock);
    return found;
}

int worker_free(struct worker *w, int64_t deadline) {
    if (!w) return 1;
    pthread_mutex_lock(&w->lock);
    w->closing = 1;
    pthread_cond_broadcast(&w->given);
    while (w->living && now_ns() < deadline)
        cond_wait_until(&w->ended, &w->lock, deadline);
    int all_ended = !w->living;
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->threads; i++) {
        if (all_ended)
            pthread_join(w->thread[i], NULL);
        else
            pthread_detach(w->thread[i]);
    }
    if (!all_ended) return 0;
    pthread_cond_destroy(&w->given);
    pthread_cond_destroy(&w->ended);
    pthread_mutex_destroy(&w->lock);
    free(w);
    return 1;
}
