/* Describes the machine of a run in words: its devices, whether other work kept it busy, and how
 * busy modelled GPUs were. */
#ifndef REPORT_MACHINE_H
#define REPORT_MACHINE_H

#include "report/text.h"
#include "trace/record.h"

/* Adds the devices of the run: "cuda devices", "cuda devices (4 devices share 1 GPU)", "cpu devices
 * (8 devices share 2 cores)". */
void add_devices(struct text *text, const struct run_record *run);

/* If the machine was busy during a run (record_busy_machine), adds "the machine was busy: DP waited
 * for a CPU core 31 % of its time", or ", DDP for 8 %" if `before` runs were already added. Returns
 * 1 if it added something. */
int add_busy(struct text *text, int before, const char *title, const struct run_record *run);

/* For runs with modelled times, adds how busy GPU 0 and the others are in DP, which work only GPU 0
 * has, and how busy they are in DDP (NULL: not run). Adds nothing if DP's times were measured or it
 * ran on one device. */
void add_load(struct text *text, const struct run_record *dp, const struct run_record *ddp);

#endif
