/* Runs one worker with one thread for each device but the first; see worker.h. */
#include "dp/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/advice.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/worker.h"

static const double LAST_GRACE_S = 1;

struct share {
    struct worker *worker; /* the worker of one thread; NULL: index 0 */
    struct task task;
    int index;
    int lost; /* 1: it did not end in time; it may still write to its task, so do not read that */
    worker_task *work;
    void *context;
};

struct workers {
    int count;
    double timeout_s;
    int lost; /* 1: a worker is lost, and no more tasks are given out */
    struct share share[MAX_DEVICES];
};

static int work_of(void *argument) {
    const struct share *share = argument;
    return share->work(share->context, share->index);
}

static int start(struct share *share, int index) {
    char what[40];
    share->index = index;
    share->task = (struct task){.run = work_of, .context = share};
    if (index == 0) return OK;
    snprintf(what, sizeof what, "thread of replica %d", index);
    CHECK(worker_new(&share->worker, 1));
    return worker_start(share->worker, 1, what);
}

int workers_init(struct workers **out, int count, double timeout_s) {
    struct workers *w = *out = calloc(1, sizeof *w);
    if (!w) return fail(ERR_MEMORY, "workers: out of host memory for %d replicas", count);
    w->count = count;
    w->timeout_s = timeout_s;
    for (int i = 0; i < count; i++) {
        int code = start(&w->share[i], i);
        if (!code) continue;
        workers_free(w);
        *out = NULL;
        return code;
    }
    return OK;
}

int workers_free(struct workers *w) {
    if (!w) return 1;
    int all_ended = 1;
    int64_t deadline = deadline_after(w->lost ? LAST_GRACE_S : w->timeout_s + LAST_GRACE_S);
    for (int i = 1; i < w->count; i++)
        all_ended &= worker_free(w->share[i].worker, deadline);
    if (all_ended) free(w);
    return all_ended;
}

int workers_code(const struct workers *w, int index) {
    return w->share[index].lost ? ERR_TIMEOUT : w->share[index].task.result.code;
}

const char *workers_text(const struct workers *w, int index) {
    return w->share[index].lost
               ? "its thread has not returned in time: look for its first error, or " ADVICE_TIMEOUT
               : w->share[index].task.result.text;
}

int workers_run(struct workers *w, worker_task *work, void *context, int64_t *own_end_ns) {
    if (!w->lost) {
        for (int i = 0; i < w->count; i++)
            w->share[i].work = work, w->share[i].context = context;
        for (int i = 1; i < w->count; i++)
            worker_give(w->share[i].worker, &w->share[i].task);
        task_run(&w->share[0].task);
        if (own_end_ns) *own_end_ns = now_ns();
        int64_t deadline = deadline_after(w->timeout_s);
        for (int i = 1; i < w->count; i++)
            if (!worker_wait(w->share[i].worker, &w->share[i].task, deadline))
                w->share[i].lost = w->lost = 1;
    }
    for (int i = 0; i < w->count; i++)
        if (workers_code(w, i)) return i;
    return -1;
}

int workers_lost(const struct workers *w) {
    for (int i = 0; i < w->count; i++)
        if (w->share[i].lost) return i;
    return -1;
}

int workers_caught(const struct workers *w, int index, int device) {
    static const char value[] =
        "Expected more than 1 value per channel"; /* an error of nn/layers/batch_norm.c */
    int code = workers_code(w, index);
    const char *text = workers_text(w, index);
    const char *what = code == ERR_MEMORY                     ? "OutOfMemoryError"
                       : code == ERR_TIMEOUT                  ? "TimeoutError"
                       : !strncmp(text, value, strlen(value)) ? "ValueError"
                                                              : "RuntimeError";
    return fail(code, "Caught %s in replica %d on device %d. %s", what, index, device, text);
}
