/* Workers: one thread for each device, started once and used at every step.
 *
 * DataParallel runs the same function on every replica at the same time and then waits for all of
 * them. PyTorch starts new threads for each forward. Duet keeps the threads: each is a worker with
 * one thread (base/worker.h), whose lock is the only one in DP.
 *
 * Index 0 is the caller itself, the thread of device 0: a run on W devices starts W - 1 threads. */
#ifndef DP_WORKER_H
#define DP_WORKER_H

#include <stdint.h>

struct workers;

/* Runs on the thread of index `index`. Returns a code of base/error.h and leaves its message. */
typedef int worker_task(void *context, int index);

/* Makes workers for `count` (1 .. MAX_DEVICES) indices, with count - 1 threads. The caller waits
 * timeout_s for the others after its own share. A task must end by itself, because its own waits
 * have deadlines. One thread at a time may call the functions below. */
int workers_init(struct workers **out, int count, double timeout_s);

/* Ends and joins the threads. Returns 1 if all have ended. Returns 0 if one is still in a task
 * after another second. That thread may use its context at any time, so the context must stay; the
 * workers are not freed either. For NULL it returns 1. */
int workers_free(struct workers *workers);

/* Runs task(context, i) for every i, index 0 in the caller, and waits for all, even when some fail.
 * Returns the lowest index that failed, or -1. A thread that does not end in time has failed with
 * ERR_TIMEOUT, and every later run fails at once. *own_end_ns (or NULL) is when index 0 finished
 * and began to wait for the others. */
int workers_run(struct workers *workers, worker_task *task, void *context, int64_t *own_end_ns);

/* The code and message ("" after OK) of the last task with index i, until the next run. */
int workers_code(const struct workers *workers, int index);
const char *workers_text(const struct workers *workers, int index);

/* The lowest index whose thread did not return from an earlier run, and may still use its context;
 * -1: none. */
int workers_lost(const struct workers *workers);

/* Fails with the code and message of that index, after PyTorch's words for an exception in a
 * replica: "Caught RuntimeError in replica 1 on device 1. " `device` is the device's number. */
int workers_caught(const struct workers *workers, int index, int device);

#endif
