/* Prints the answer to --what-if: "with no launch cost DP gains 31 %". */
#ifndef CLI_ESTIMATE_WHAT_IF_H
#define CLI_ESTIMATE_WHAT_IF_H

#include "clock/cost.h"
#include "train/run.h"

/* Prints how much each change of clock->what_if would speed up DP and DDP with this config, and for
 * several changes their joint effect. Prints nothing without a change. */
int what_if_show(const struct run_config *config, const struct clock_config *clock, int width);

#endif
