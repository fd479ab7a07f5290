/* Estimates the memory of each device and the bytes over each link of a run, without running it. No
 * device is opened and no data is read. The training code itself runs on devices that only count
 * (device_is_dry) and on a stub of a data set (dataset_outline). So no second set of formulas can
 * disagree with it. In DDP the ranks run one after another, each with simulated peers
 * (comm_imagine).
 *
 * Everything that depends only on sizes is therefore exactly as in a run on emulated devices:
 * memory by cause, at its peak and at the end, and bytes by device and by phase. A run may hold
 * less if a worker thread is late with the second batch, because its copy then begins later.
 * Options that depend on values, on time or on a GPU are not estimated: estimate_prepare refuses
 * them by name. */
#ifndef TRAIN_ESTIMATE_ESTIMATE_H
#define TRAIN_ESTIMATE_ESTIMATE_H

#include "trace/record.h"
#include "train/run.h"

/* Call it before run_config_check. For a model described by numbers (--params) it also chooses the
 * data, unless the user did: random samples, enough for any run. ERR_USAGE: the configuration
 * requires something that cannot be computed, or a number is missing. */
int estimate_prepare(struct run_config *config);

/* Gives the run a data set of at least `samples`, so that all batches are full. A set of the user's
 * files stays as it is. */
void estimate_enlarge(struct run_config *config, int64_t samples);

/* The configuration of a dry run: the part of `config` that determines sizes. */
struct run_config estimate_dry_config(const struct run_config *config);

/* Computes the record of a run of config: what ran, and per device memory, bytes, kernels and
 * flops. `computed` is 1; all times are 0, and so is the capacity of devices whose memory was not
 * given. record_free it. ERR_MEMORY: the run would not fit into its devices' memory; the error is
 * the run's. */
int estimate_run(const struct run_config *config, struct run_record *record);

#endif
