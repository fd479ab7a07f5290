/* A worker: threads that run tasks in the order in which they were given.
 *
 *     who gives and waits                       a thread of the worker
 *     sets run and context
 *     worker_give         the task is GIVEN     -> RUNNING   run(context)
 *     worker_wait         until it has ENDED    <- ENDED     its code and its error's text are kept
 *     task_end            fails with both
 *
 * A task is in memory of the thread that gives it. That thread touches the task and its data again
 * only when the task has ended. One lock guards the queue and the states of the tasks. So the
 * worker sees all writes before the task was given, and the waiter sees all writes of the task:
 * data handed over in this way need no lock.
 *
 * A thread without a task sleeps without a deadline, since it waits for no result; a wait for a
 * task has one. A worker that has no thread yet runs a task in the thread that waits for it. Any
 * thread may give tasks and wait; one thread starts and frees the worker. */
#ifndef BASE_WORKER_H
#define BASE_WORKER_H

#include <stdint.h>

#include "base/error.h"

#define WORKER_NEVER INT64_MAX /* a deadline: the task ends by itself */

enum task_state { TASK_IDLE, TASK_GIVEN, TASK_RUNNING, TASK_ENDED };

/* A zeroed task with its first two fields set is ready to be given, and again when it has ended. */
struct task {
    int (*run)(void *context); /* returns a code of base/error.h and leaves its text */
    void *context;
    enum task_state state;  /* this and all that follows are the worker's */
    int by_waiter;          /* 1: it runs, or ran, in a caller that waits for its end */
    struct failures result; /* its code and text, once it has ended */
    struct task *next;
};

struct worker;

/* A worker that may have up to `most` threads, and has none. ERR_MEMORY: *out is NULL. */
int worker_new(struct worker **out, int most);

/* Starts threads until there are `threads`. After a system error, reported for `what`, the threads
 * started before it stay. */
int worker_start(struct worker *worker, int threads, const char *what);

/* Puts the task at the end of the queue. */
void worker_give(struct worker *worker, struct task *task);

/* Runs the task to its end: at once in the caller if nothing is before it, else after the
 * others. */
void worker_run(struct worker *worker, struct task *task);

/* Waits until the given task has ended. Tasks up to it that no thread has begun run in the caller,
 * because waking a sleeping thread takes longer. */
void worker_help(struct worker *worker, struct task *task);

/* Returns 1 once the task has ended; 0: it has not by `deadline`, ns of base/clock.h. */
int worker_wait(struct worker *worker, struct task *task, int64_t deadline);
int worker_has_ended(struct worker *worker, const struct task *task); /* without waiting */

/* Takes out of the queue a task that no thread has begun: it is idle again. 0: one has. */
int worker_take_back(struct worker *worker, struct task *task);

/* Lets the threads run the given tasks, ends them and frees everything. Returns 1. Returns 0 if one
 * is still in a task at the deadline: it may use its context at any time, so that must stay, and so
 * does the worker. NULL is fine: 1. */
int worker_free(struct worker *worker, int64_t deadline);

/* Runs the task here and now, without a worker. */
void task_run(struct task *task);

/* The code of a task that has ended; the text is the caller's error text then. */
int task_end(const struct task *task);

#endif
