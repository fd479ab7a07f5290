/* Runs a configuration against the modelled clock. The training code runs on dry devices, which
 * record everything that it issues (train/estimate/estimate.h, trace/schedule.h). The clock then
 * predicts the time on named hardware. */
#ifndef TRAIN_ESTIMATE_MODELLED_H
#define TRAIN_ESTIMATE_MODELLED_H

#include "clock/cost.h"
#include "clock/result.h"
#include "trace/record.h"
#include "train/run.h"

/* Steps of such a run. DDP lays out its buckets after the first, and no batch is copied during the
 * last. The reported step is the second-to-last (clock/result.h). */
enum { MODELLED_STEPS = 5 };

struct modelled {
    struct schedule *schedule;
    struct run_record *record; /* memory and bytes, as from estimate_run */
    int pageable;
};

/* Runs config for MODELLED_STEPS steps. Call modelled_close even after an error. ERR_MEMORY: the
 * run would not fit into the devices' memory. */
int modelled_open(struct modelled *m, const struct run_config *config);
void modelled_close(struct modelled *m);

/* Sets clock->given, the factor on all kernels with which this run's step takes `ms`. ERR_USAGE: no
 * factor fits, because the host alone takes longer. */
int modelled_give(const struct modelled *m, struct clock_config *clock, double ms);

/* Computes the run's times on one kind of hardware. *clock names the hardware; its devices,
 * tensors, parameter_bytes and pageable are set here. spans, initialised or NULL, gets all
 * spans. */
int modelled_time(const struct modelled *m, struct clock_config *clock, struct clock_result *result,
                  struct span_log *spans);

/* What bounds most of a phase's time on device 0 in the step of *result: "flops", "memory",
 * "launches", or if it is in no kernel "link". Static storage. *operations becomes the number of
 * operations that PyTorch would launch. */
const char *modelled_bound(const struct modelled *m, const struct clock_config *clock,
                           const struct clock_result *result, enum phase phase, double *operations);

#endif
