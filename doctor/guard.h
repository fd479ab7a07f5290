/* The guard: runs a check in a process of its own, so that a crash, a hang or a poisoned GPU
 * ends one step of it and not the doctor. */
#ifndef DOCTOR_GUARD_H
#define DOCTOR_GUARD_H

#include "doctor/check.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Runs the check until it comes to its end. A step that crashes, fails or takes longer than
 * config.timeout becomes a finding that is off, and the check goes on behind it in a new
 * process. A check that finds nothing is off too. idle (NULL: nothing) is called every few
 * milliseconds and once at the end. ERR_FAILED: no process could be started. When it returns no
 * process of the check is left but what the kernel is about to kill. */
int guard_check(struct doctor *d, const char *name, doctor_check *check,
                void (*idle)(void *context), void *context);

#ifdef __cplusplus
}
#endif
#endif
