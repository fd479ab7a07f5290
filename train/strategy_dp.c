/* DataParallel as a strategy of the trainer; dp/dp.c has the step. */
#include <stdio.h>

#include "base/error.h"
#include "base/program_name.h"
#include "dp/balance.h"
#include "dp/trainer.h"
#include "train/remarks.h"
#include "train/session.h"

/* What PyTorch warns of when a module is wrapped, and when losses are gathered first. */
static void warn(const struct session *s) {
    char text[320];
    if (s->config->warned || s->devices < 2) return;
    remarks_warn_of_gpus(s);
    if (dp_imbalance_of(s->device, s->devices, text, sizeof text))
        fprintf(stderr, "%s: warning: %s\n", program_name(), text);
    if (s->config->dp.loss_in_forward)
        fprintf(stderr,
                "%s: warning: Was asked to gather along dimension 0, but all input tensors were "
                "scalars; will instead unsqueeze and return a vector.\n",
                program_name());
}

static int dp_strategy_open(struct session *s) {
    const struct run_config *c = s->config;
    struct dp_trainer *dp;
    CHECK(run_check_sync_bn(c));
    struct dp_trainer_config config = {.devices = s->devices,
                                       .device = s->device,
                                       .model = &s->model,
                                       .values = s->values,
                                       .max_samples = s->largest_batch,
                                       .segments = s->devices * s->segments_per_device,
                                       .loss_in_forward = c->dp.loss_in_forward,
                                       .output_device = c->dp.output_device,
                                       .sharded_reduce = c->dp.sharded_reduce,
                                       .update = run_optimizer(c),
                                       .hashes = c->hashes,
                                       .blocking_copies = c->data.blocking_copies,
                                       .graph = !c->no_graph,
                                       .log_rows = session_log_rows(s),
                                       .passes = c->update.passes,
                                       .timeout_s = c->timeout};
    CHECK(dp_trainer_init(&dp, &config));
    s->state = dp;
    warn(s);
    for (int i = 0; i < s->devices; i++)
        s->replicas[i] = dp_trainer_replica(dp, i);
    return OK;
}

static int dp_strategy_step(struct session *s, const struct step_block *step,
                            const struct batch *batch) {
    return dp_trainer_step(s->state, step, batch);
}

static int dp_strategy_evaluate(struct session *s, const struct step_block *step,
                                const struct batch *batch) {
    return dp_trainer_evaluate(s->state, step, batch);
}

static int dp_strategy_hash_values(struct session *s, const struct step_block *step) {
    return dp_trainer_hash_values(s->state, step);
}

static struct span_log *dp_strategy_waits(struct session *s) {
    return dp_trainer_waits(s->state);
}

static int dp_strategy_close(struct session *s) {
    return dp_trainer_free(s->state);
}

const struct strategy strategy_dp = {.open = dp_strategy_open,
                                     .step = dp_strategy_step,
                                     .evaluate = dp_strategy_evaluate,
                                     .hash_values = dp_strategy_hash_values,
                                     .close = dp_strategy_close,
                                     .waits = dp_strategy_waits};
