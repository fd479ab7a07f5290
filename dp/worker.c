/* A thread for each device behind a slot that holds one task; worker.h draws the hand-over. */
#include "dp/worker.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/system_error.h"
#include "base/thread.h"

enum { TEXT_BYTES = 512 };
static const double LAST_GRACE_S = 1;

enum slot_state { IDLE, ORDERED, QUIT, ENDED };

struct slot {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int made;    /* 1: lock and changed exist */
    int started; /* 1: the thread exists */
    int lost;    /* 1: it did not end in time; it may still write code and text: do not read them */
    int index;
    enum slot_state state;
    worker_task *task;
    void *context;
    int code;
    char text[TEXT_BYTES];
};

struct workers {
    int count;
    double timeout_s;
    int lost; /* 1: a worker is lost, and no more tasks are given out */
    struct slot slot[MAX_DEVICES];
};

static struct timespec time_at(int64_t ns) {
    return (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
}

static void perform(struct slot *slot, worker_task *task, void *context) {
    slot->code = task(context, slot->index);
    snprintf(slot->text, sizeof slot->text, "%s", slot->code ? error_message() : "");
}

/* An idle worker sleeps without a deadline: it waits for no result, and workers_free wakes it. */
static void *worker_thread(void *argument) {
    struct slot *slot = argument;
    pthread_mutex_lock(&slot->lock);
    for (;;) {
        while (slot->state == IDLE)
            pthread_cond_wait(&slot->changed, &slot->lock);
        if (slot->state == QUIT) break;
        pthread_mutex_unlock(&slot->lock);
        /* while the state is ORDERED only the worker touches code and text */
        perform(slot, slot->task, slot->context);
        pthread_mutex_lock(&slot->lock);
        if (slot->state == ORDERED) slot->state = IDLE; /* QUIT may have come in between */
        pthread_cond_broadcast(&slot->changed);
    }
    slot->state = ENDED;
    pthread_cond_broadcast(&slot->changed);
    pthread_mutex_unlock(&slot->lock);
    return NULL;
}

static void set_state(struct slot *slot, enum slot_state state) {
    pthread_mutex_lock(&slot->lock);
    slot->state = state;
    pthread_cond_broadcast(&slot->changed);
    pthread_mutex_unlock(&slot->lock);
}

static int start_slot(struct slot *slot, int index) {
    pthread_condattr_t monotonic;
    slot->index = index;
    if (index == 0) return OK;
    pthread_mutex_init(&slot->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&slot->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    slot->made = 1;
    int error = thread_start(&slot->thread, worker_thread, slot);
    if (error) return fail_system(error, "thread of replica %d: could not be started", index);
    slot->started = 1;
    return OK;
}

int workers_init(struct workers **out, int count, double timeout_s) {
    struct workers *w = *out = calloc(1, sizeof *w);
    if (!w) return fail(ERR_MEMORY, "workers: no host memory for %d replicas", count);
    w->count = count;
    w->timeout_s = timeout_s;
    for (int i = 0; i < count; i++) {
        int code = start_slot(&w->slot[i], i);
        if (!code) continue;
        workers_free(w);
        *out = NULL;
        return code;
    }
    return OK;
}

/* Returns 1 if the slot is in `state` by the deadline. */
static int wait_for(struct slot *slot, enum slot_state state, int64_t deadline) {
    struct timespec until = time_at(deadline);
    pthread_mutex_lock(&slot->lock);
    while (slot->state != state && now_ns() < deadline)
        pthread_cond_timedwait(&slot->changed, &slot->lock, &until);
    int reached = slot->state == state;
    pthread_mutex_unlock(&slot->lock);
    return reached;
}

int workers_free(struct workers *w) {
    if (!w) return 1;
    int all_ended = 1;
    int64_t deadline = deadline_after(w->lost ? LAST_GRACE_S : w->timeout_s + LAST_GRACE_S);
    for (int i = 1; i < w->count; i++)
        if (w->slot[i].started) set_state(&w->slot[i], QUIT);
    for (int i = 1; i < w->count; i++) {
        struct slot *slot = &w->slot[i];
        if (!slot->started) continue;
        if (wait_for(slot, ENDED, deadline)) {
            pthread_join(slot->thread, NULL);
        } else {
            pthread_detach(slot->thread);
            all_ended = 0;
        }
    }
    if (!all_ended) return 0;
    for (int i = 1; i < w->count; i++) {
        if (!w->slot[i].made) continue;
        pthread_cond_destroy(&w->slot[i].changed);
        pthread_mutex_destroy(&w->slot[i].lock);
    }
    free(w);
    return 1;
}

static void order(struct slot *slot, worker_task *task, void *context) {
    pthread_mutex_lock(&slot->lock);
    slot->task = task;
    slot->context = context;
    slot->state = ORDERED;
    pthread_cond_broadcast(&slot->changed);
    pthread_mutex_unlock(&slot->lock);
}

int workers_run(struct workers *w, worker_task *task, void *context, int64_t *own_end_ns) {
    if (!w->lost) {
        for (int i = 1; i < w->count; i++)
            order(&w->slot[i], task, context);
        perform(&w->slot[0], task, context);
        if (own_end_ns) *own_end_ns = now_ns();
        int64_t deadline = deadline_after(w->timeout_s);
        for (int i = 1; i < w->count; i++)
            if (!wait_for(&w->slot[i], IDLE, deadline)) w->slot[i].lost = w->lost = 1;
    }
    for (int i = 0; i < w->count; i++)
        if (workers_code(w, i)) return i;
    return -1;
}

int workers_code(const struct workers *w, int index) {
    return w->slot[index].lost ? ERR_TIMEOUT : w->slot[index].code;
}

const char *workers_text(const struct workers *w, int index) {
    return w->slot[index].lost ? "its thread has not come back in time: look for its first error, "
                                 "or raise --timeout"
                               : w->slot[index].text;
}

int workers_lost(const struct workers *w) {
    for (int i = 0; i < w->count; i++)
        if (w->slot[i].lost) return i;
    return -1;
}

int workers_caught(const struct workers *w, int index, int device) {
    static const char value[] = "Expected more than 1 value per channel"; /* of nn/batch_norm.c */
    int code = workers_code(w, index);
    const char *text = workers_text(w, index);
    const char *what = code == ERR_MEMORY                     ? "OutOfMemoryError"
                       : code == ERR_TIMEOUT                  ? "TimeoutError"
                       : !strncmp(text, value, strlen(value)) ? "ValueError"
                                                              : "RuntimeError";
    return fail(code, "Caught %s in replica %d on device %d. %s", what, index, device, text);
}
