/* duet scale --gpu on more GPUs than one machine has: nothing trains, and the modelled clock says
 * what a step of DDP takes on nodes alike. */
#ifndef CLI_ESTIMATE_SCALE_NODES_H
#define CLI_ESTIMATE_SCALE_NODES_H

#include "train/run.h"

enum { NODES_MOST = 16 };

struct node_counts {
    int64_t gpus[NODES_MOST];
    int count;
};

/* Reads the list of --devices. *asked 1: some number is beyond the machine of run->clock.
 * ERR_USAGE: the list or the hardware is wrong. */
int nodes_asked(const struct run_config *run, const char *devices, struct node_counts *counts,
                int *asked);

/* Prints the table, and writes it where run->json says. batch: samples of each GPU. */
int nodes_show(const struct run_config *run, int batch, const struct node_counts *counts);

#endif
