/* The guard: runs a check in its own process, so that a crash, a hang or a poisoned GPU ends
 * one step of that check and not the doctor. */
#ifndef DOCTOR_GUARD_H
#define DOCTOR_GUARD_H

#include "doctor/check.h"

/* Runs a check to its end. A step that crashes, fails or takes longer than config.timeout becomes a
 * failed finding, and the check continues after that step in a new process. A check without any
 * finding counts as off. idle (may be NULL) is called every few milliseconds and once at the end.
 * ERR_FAILED: no process could be started. When guard_check returns, every process of the check has
 * ended or has been killed. */
int guard_check(struct doctor *d, const char *name, doctor_check *check,
                void (*idle)(void *context), void *context);

#endif
