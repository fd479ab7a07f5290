/* A run against the modelled clock. The code that trains runs on dry devices, which record
 * everything that it issues (train/estimate/estimate.h, trace/schedule.h). The clock then gives the
 * time on named hardware. */
#ifndef TRAIN_ESTIMATE_MODELLED_H
#define TRAIN_ESTIMATE_MODELLED_H

#include "clock/cost.h"
#include "clock/result.h"
#include "trace/record.h"
#include "train/run.h"

/* Steps of such a run: DDP lays out its buckets after the first, and no batch is copied during the
 * last. The reported step is the last but one (clock/result.h). */
enum { MODELLED_STEPS = 5 };

struct modelled {
    struct schedule *schedule;
    struct run_record *record; /* memory and bytes, as from estimate_run */
    int pageable;
};

/* Runs config for MODELLED_STEPS steps. modelled_close it, also after an error. ERR_MEMORY: it
 * would not fit into the devices' memory. */
int modelled_open(struct modelled *m, const struct run_config *config);
void modelled_close(struct modelled *m);

/* Sets clock->given, the factor on all kernels with which this run's step takes `ms`. ERR_USAGE:
 * there is none, because the host alone takes longer. */
int modelled_give(const struct modelled *m, struct clock_config *clock, double ms);

/* Its times on one kind of hardware. *clock names the hardware; its devices, tensors,
 * parameter_bytes and pageable are set here. spans: NULL, or gets all spans; it has been
 * initialised. */
int modelled_time(const struct modelled *m, struct clock_config *clock, struct clock_result *result,
                  struct span_log *spans);

/* What bounds most of a phase's time on device 0 in the step of *result: "flops", "memory",
 * "launches", or what no kernel takes: "link". Static storage. *operations: how many PyTorch would
 * launch. */
const char *modelled_bound(const struct modelled *m, const struct clock_config *clock,
                           const struct clock_result *result, enum phase phase, double *operations);

#endif
