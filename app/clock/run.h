/* Runs a schedule against modelled time: a discrete-event simulation that knows only the programs
 * of the threads (schedule.h) and the costs (cost.h).
 *
 *     thread    issues its entries one after another; each takes some of its time
 *     stream    runs its entries in their order; an entry begins once it was issued
 *     link      is shared by all transfers that cross it (net.h)
 *     lock      the interpreter's: one thread of a process holds it at a time
 *
 * Times are integer nanoseconds from the start of the run. The same schedule and costs give the
 * same times on every machine. */
#ifndef CLOCK_RUN_H
#define CLOCK_RUN_H

#include "clock/cost.h"

/* Adds spans with modelled times to `spans`, in the order in which they ended; waits that took no
 * time are left out. ERR_FAILED: the schedule deadlocks; ERR_MEMORY. */
int clock_run(const struct clock_config *config, const struct program *programs, int count,
              struct span_log *spans);

#endif
