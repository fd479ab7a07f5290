/* Threads of the library inside a program. Signals are for the program's own threads, because a
 * handler must not run in a thread that it does not know. And if a thread blocks signals for a
 * moment to finish its work (base/files/atomic_file.c), another thread must not take the signal and
 * end the process. So library threads block all signals but those for crashes. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>
#include <stdint.h>

/* pthread_create with these signals blocked in the new thread. Returns 0 or an errno value. */
int thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument);

/* Opens a condition on the clock of base/clock.h. Waits for it until `deadline` (ns on that clock)
 * at most; returns 1 if the deadline has passed. */
void cond_open(pthread_cond_t *cond);
int cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t deadline);

#endif
