/* An optimizer of duet/train.h holds the internal optimizer and the parameters that it updates. */
#ifndef NN_PARAMS_OPTIMIZER_H
#define NN_PARAMS_OPTIMIZER_H

#include "duet/train.h"
#include "nn/optimizer/optimizer.h"
#include "nn/params/params.h"

struct duet_optimizer {
    struct duet_params *params;
    struct optimizer optimizer;
    double lr;
    int64_t updates; /* so far */
};

/* Makes an optimizer, and runs an update with the step block in params->step, whose host copy is
 * `now`. Parameters without a gradient do not change. */
int optimizer_of_params(duet_optimizer **out, duet_params *params,
                        const struct optimizer_config *config);
int optimizer_update(duet_optimizer *optimizer, const struct step_block *now);

#endif
