/* Workers: one thread per device, made once and used at every step.
 *
 * DataParallel runs the same function on every replica at the same time and then waits for all
 * of them. PyTorch starts new threads for each forward; here they stay, each behind a small slot
 * that holds one order at a time:
 *
 *     caller                                  worker i
 *     IDLE    write task, context
 *             state = ORDERED, signal   ->    runs task(context, i)
 *                                             writes code, text
 *             waits for IDLE            <-    state = IDLE, signal
 *
 * state, task, code and text of a slot are guarded by the slot's lock, so what the caller wrote
 * before an order is seen by the worker, and what the worker wrote by the caller after it:
 * nothing else of DP needs a lock.
 *
 * Index 0 is the caller itself: it is device 0's thread, so a job on W devices makes W - 1
 * threads. */
#ifndef DP_WORKER_H
#define DP_WORKER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct workers;

/* Returns a code of base/error.h and leaves its text, as every function does; runs on the thread
 * of index i. */
typedef int worker_task(void *context, int index);

/* count 1..MAX_DEVICES indices, so count - 1 threads. timeout_s: how long the caller waits for
 * the others once it has finished its own share; a task must come to an end by itself (its waits
 * have deadlines). One thread at a time may call the functions below. */
int workers_init(struct workers **out, int count, double timeout_s);

/* Ends and joins the threads. Returns 1 if all have ended; 0 if one is still lost in a task
 * after a second more: it may touch its context for ever, so that must then stay (and so do the
 * workers themselves). NULL is fine: 1. */
int workers_free(struct workers *workers);

/* Runs task(context, i) for every i, index 0 in the caller, and joins all, also when some fail.
 * Returns the lowest index that failed, or -1. *own_end_ns (may be NULL): when index 0 had
 * finished and began to wait for the others. */
int workers_run(struct workers *workers, worker_task *task, void *context, int64_t *own_end_ns);

/* What index i's last task returned, and the text it left ("" after OK). Valid until the next run.
 * ERR_TIMEOUT: it was not done in time; every later run then fails at once. */
int workers_code(const struct workers *workers, int index);
const char *workers_text(const struct workers *workers, int index);

#ifdef __cplusplus
}
#endif
#endif
