/* The memory of a graph beside that of the PyTorch model that it was exported from. */
#ifndef CLI_BESIDE_PYTORCH_H
#define CLI_BESIDE_PYTORCH_H

#include "cli/ways.h"
#include "train/run.h"

/* Prints both, for DP and DDP where they are in `ways`; nothing where the model is no graph, or its
 * file does not say what autograd saves. */
int beside_pytorch(const struct run_config *config, const struct ways *ways, int width);

#endif
