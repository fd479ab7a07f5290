/* The lesson's third act: what DP and DDP would cost on real GPUs. */
#ifndef CLI_ESTIMATE_COSTS_H
#define CLI_ESTIMATE_COSTS_H

#include "train/run.h"

/* The end of `duet demo`: prints the speed-up of its model, ResNet-50 and BERT-base on 4 V100s by
 * the modelled clock. Nothing runs. The demo's model is left out where it cannot be estimated, or
 * where the batch has fewer samples than GPUs. `duet lesson` also has 2 GPUs, and times. */
int costs_of_demo(const struct run_config *demo);

#endif
