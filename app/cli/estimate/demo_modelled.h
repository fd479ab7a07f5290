/* The end of the demo: its training and that of ResNet-18 on four V100, by the modelled clock. */
#ifndef CLI_ESTIMATE_DEMO_MODELLED_H
#define CLI_ESTIMATE_DEMO_MODELLED_H

#include "train/run.h"

/* Prints a table of at most ten lines. Where the demo trains what cannot be estimated, nothing. */
int demo_modelled(const struct run_config *demo);

#endif
