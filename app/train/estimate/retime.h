/* --gpu on a command that trains: the emulated devices compute as usual, and the modelled clock's
 * times replace those of the run's record. The schedule of some steps is run against modelled time
 * (train/estimate/modelled.h). Its spans replace the measured ones in the record: the same spans,
 * in the same order on each lane. So every report shows modelled times, and record.modelled says
 * so. */
#ifndef TRAIN_ESTIMATE_RETIME_H
#define TRAIN_ESTIMATE_RETIME_H

#include "clock/choice.h"
#include "trace/record.h"
#include "train/estimate/modelled.h"
#include "train/run.h"

/* ERR_USAGE: config asks for modelled times that there cannot be: of a GPU that is measured, of
 * more GPUs than the machine has, of several machines at once, of what no dry run can follow. */
int retime_check(const struct run_config *config);

/* ERR_USAGE: the machine, or --nodes of them, cannot have the run's devices. */
int retime_fits(const struct run_config *config, const struct machine *machine);
/* Makes a run on several machines that of one of them, since they are alike; *clock gets how many
 * they are. */
void retime_one_node(struct run_config *config, struct clock_config *clock);

/* Replaces all times of the record, which is that of a run of config. Nothing else changes. One GPU
 * alone computes a batch in one piece, without the virtual devices of equal bits. What the clock
 * does not model is 0: the loader's threads, evaluation, hashes. */
int retime_record(const struct run_config *config, struct run_record *record);

/* The same from a run against the clock that is there, of whose times *clock has the hardware.
 * keeps: the record gets the spans, too. It may be m->record. */
int retime_put(struct run_record *record, const struct modelled *m, struct clock_config *clock,
               int keeps);

#endif
