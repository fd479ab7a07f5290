/* What a run had of its machine, in words: its devices, and whether something else kept it busy. */
#ifndef REPORT_MACHINE_H
#define REPORT_MACHINE_H

#include "report/text.h"
#include "trace/record.h"

/* Adds what the run's devices are: "cuda devices", "cuda devices (4 devices share 1 GPU)", "cpu
 * devices (8 devices share 2 cores)". */
void add_devices(struct text *text, const struct run_record *run);

/* Adds that the machine was busy during a run (record_busy_machine), where it was: "the machine was
 * busy: DP was without a core for 31 % of its time"; where `before` runs stand there already,
 * ", DDP for 8 %". Returns 1 where something was added. */
int add_busy(struct text *text, int before, const char *title, const struct run_record *run);

#endif
