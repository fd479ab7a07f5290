/* The launch lock: a stand-in for the lock of a Python interpreter (the GIL), docs/gil.md.
 *
 * All threads that launch ops share one lock, where a program asks for it. Before each launch of
 * training a thread takes the lock, keeps it for a set time, as an interpreter does that works out
 * which kernel to launch, and then launches. Kernels run without it. So the results do not change,
 * only their times do: threads that launch at the same time wait for each other.
 *
 * The lock is made as CPython's is, of a flag behind a mutex and a condition variable, and is no
 * fairer: whoever comes while it is free gets it. */
#ifndef DEVICE_LAUNCH_LOCK_H
#define DEVICE_LAUNCH_LOCK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct stream;
struct launch_lock;

/* hold_s: seconds for which each launch keeps the lock. forward_only: 1: only launches of the phase
 * forward take it; 0: those of all phases of training. The devices that share the lock
 * (device_config.launch_lock) must be closed before it is freed; NULL is fine. ERR_MEMORY. */
int launch_lock_new(struct launch_lock **out, double hold_s, int forward_only);
void launch_lock_free(struct launch_lock *lock);

/* Called by the thread that is about to launch `what` on `stream`: waits for the lock, holds it for
 * its time and gives it back. Where the device records spans it adds two to device_launch_spans,
 * PHASE_HOST_SERIAL for the wait and PHASE_HOST_LAUNCH for the time with the lock. Does nothing
 * where the device has no lock or the phase takes none. The wait has the device's deadline
 * (ERR_TIMEOUT) and ends when the device is interrupted. */
int launch_lock_pass(struct stream *stream, const char *what);

#ifdef __cplusplus
}
#endif
#endif
