/* --gpu on a command that trains: the emulated devices compute as usual, and the modelled clock's
 * times replace the measured ones in the run's record. The schedule of some steps is run against
 * modelled time (train/estimate/modelled.h). Its spans replace the measured ones: the same spans,
 * in the same order on each lane. So every report shows modelled times, and record.modelled says
 * so. */
#ifndef TRAIN_ESTIMATE_RETIME_H
#define TRAIN_ESTIMATE_RETIME_H

#include "clock/choice.h"
#include "trace/record.h"
#include "train/estimate/modelled.h"
#include "train/run.h"

/* ERR_USAGE: config requires impossible modelled times: for a measured GPU, for more GPUs than the
 * machine has, or with options that no dry run can follow. */
int retime_check(const struct run_config *config);

/* ERR_USAGE: the machine, or --nodes of them, cannot have the run's devices. */
int retime_fits(const struct run_config *config, const struct machine *machine);
/* Reduces a run on several equal machines to a run on one; *clock gets their number. */
void retime_one_node(struct run_config *config, struct clock_config *clock);

/* Replaces all times in the record of a run of config, and changes nothing else. A single GPU
 * computes a batch in one piece, without the virtual devices of equal bits. Times that the clock
 * does not model are 0: the loader's threads, evaluation, hashes. */
int retime_record(const struct run_config *config, struct run_record *record);

/* The same from an existing run against the clock, on the hardware of *clock. keeps 1: the record
 * also gets the spans. The record may be m->record. */
int retime_put(struct run_record *record, const struct modelled *m, struct clock_config *clock,
               int keeps);

#endif
