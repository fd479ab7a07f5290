/* --what-if as an answer: "with no launch cost DP gains 31 %". */
#ifndef CLI_ESTIMATE_WHAT_IF_H
#define CLI_ESTIMATE_WHAT_IF_H

#include "clock/cost.h"
#include "train/run.h"

/* Says what each change of clock->what_if would bring to DP and DDP as config has them, and after
 * several changes what they bring together. Nothing where nothing is changed. */
int what_if_show(const struct run_config *config, const struct clock_config *clock, int width);

#endif
