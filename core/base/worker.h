/* A worker has threads that run tasks in the order in which they were given.
 *
 *     who gives and waits                       a thread of the worker
 *     sets run and context
 *     worker_give         the task is GIVEN     -> RUNNING   run(context)
 *     worker_wait         until it has ENDED    <- ENDED     its code and its message are kept
 *     task_end            fails with both
 *
 * A task is in memory of the thread that gives it. That thread may access the task and its data
 * again only when the task has ended. One lock guards the queue and the states of the tasks. So the
 * worker sees all writes from before the task was given, and the waiter sees all writes of the
 * task. Data passed in this way need no lock.
 *
 * A thread without a task sleeps without a deadline, since it waits for no result. A wait for a
 * task has a deadline. If a worker has no thread yet, the thread that waits for a task runs it. Any
 * thread may give tasks and wait; one thread starts and frees the worker. */
#ifndef BASE_WORKER_H
#define BASE_WORKER_H

#include <stdint.h>

#include "base/error.h"

#define WORKER_NEVER INT64_MAX /* as a deadline: wait until the task ends */

enum task_state { TASK_IDLE, TASK_GIVEN, TASK_RUNNING, TASK_ENDED };

/* A zeroed task with its first two fields set can be given, and again after it has ended. */
struct task {
    int (*run)(void *context); /* returns a code of base/error.h and leaves its message */
    void *context;
    enum task_state state;  /* the worker owns this field and all that follow */
    int by_waiter;          /* 1: it runs, or ran, in the thread of a caller that waits for it */
    struct failures result; /* its code and message, once it has ended */
    struct task *next;
};

struct worker;

/* Makes a worker that may have up to `most` threads, but has none yet. After ERR_MEMORY *out is
 * NULL. */
int worker_new(struct worker **out, int most);

/* Starts threads until the worker has `threads`. After a system error, whose message names `what`,
 * the threads that already run stay. */
int worker_start(struct worker *worker, int threads, const char *what);

/* Puts the task at the end of the queue. */
void worker_give(struct worker *worker, struct task *task);

/* Runs the task to its end: at once in the caller if the queue is empty, else after the others. */
void worker_run(struct worker *worker, struct task *task);

/* Waits until the given task has ended. The caller runs the tasks up to it that no thread has
 * begun, because waking a sleeping thread takes longer. */
void worker_help(struct worker *worker, struct task *task);

/* Returns 1 once the task has ended, or 0 at `deadline`, in ns of base/clock.h. */
int worker_wait(struct worker *worker, struct task *task, int64_t deadline);
int worker_has_ended(struct worker *worker, const struct task *task); /* does not wait */

/* Removes a task from the queue, so that it is idle again. Returns 0 if a thread has begun it. */
int worker_take_back(struct worker *worker, struct task *task);

/* Lets the threads run the given tasks, ends them and frees everything. Returns 1. Returns 0 if one
 * is still in a task at the deadline. That thread may use its context at any time, so the context
 * must stay, and the worker is not freed. Returns 1 for NULL. */
int worker_free(struct worker *worker, int64_t deadline);

/* Runs the task in the caller, without a worker. */
void task_run(struct task *task);

/* Returns the code of a task that has ended, and makes its message the caller's. */
int task_end(const struct task *task);

#endif
