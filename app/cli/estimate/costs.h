/* The lesson's third act: what DP and DDP would cost on real GPUs. */
#ifndef CLI_ESTIMATE_COSTS_H
#define CLI_ESTIMATE_COSTS_H

#include "train/run.h"

/* The end of `duet demo`: prints what its model and ResNet-50 would take on 4 V100 by the modelled
 * clock. Nothing runs. Where the model cannot be estimated, or the batch has fewer samples than
 * GPUs, it prints nothing. `duet lesson` has three models and more numbers of GPUs. */
int costs_of_demo(const struct run_config *demo);

#endif
