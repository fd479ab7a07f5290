/* DataParallel as the trainer's strategy. */
#include "base/error.h"
#include "dp/dp.h"
#include "train/session.h"

static int data_parallel_open(struct session *s) {
    const struct run_config *c = s->config;
    struct dp *dp;
    struct dp_config config = {.devices = s->devices,
                               .device = s->device,
                               .model = &s->model,
                               .values = s->values,
                               .max_samples = c->batch_size,
                               .segments = s->devices * s->segments_per_device,
                               .loss_in_forward = c->loss_in_forward,
                               .update = run_optimizer(c),
                               .hashes = c->hashes,
                               .graph = !c->no_graph,
                               .log_rows = LOG_ROWS,
                               .timeout_s = c->timeout};
    CHECK(dp_init(&dp, &config));
    s->state = dp;
    for (int i = 0; i < s->devices; i++)
        s->replicas[i] = dp_replica(dp, i);
    return OK;
}

static struct dp_batch from_loader(const struct device_dataset *from,
                                   const struct loaded_batch *batch) {
    return (struct dp_batch){.pixels = batch->pixels,
                             .labels = batch->labels,
                             .segments = &batch->plan.segments,
                             .from = batch->samples ? from : NULL,
                             .samples = batch->samples};
}

static int data_parallel_step(struct session *s, const struct step_block *step,
                              const struct loaded_batch *batch) {
    struct dp_batch global = from_loader(&s->train_data, batch);
    return dp_step(s->state, &global, step);
}

static int data_parallel_evaluate(struct session *s, const struct step_block *step,
                                  const struct loaded_batch *batch) {
    struct dp_batch global = from_loader(&s->test_data, batch);
    return dp_evaluate(s->state, &global, step);
}

static int data_parallel_hash_values(struct session *s, const struct step_block *step) {
    return dp_hash_values(s->state, step);
}

static struct span_log *data_parallel_waits(struct session *s) {
    return dp_waits(s->state);
}

static int data_parallel_close(struct session *s) {
    return dp_free(s->state);
}

const struct strategy strategy_dp = {data_parallel_open,
                                     data_parallel_step,
                                     data_parallel_evaluate,
                                     data_parallel_hash_values,
                                     NULL,
                                     data_parallel_close,
                                     data_parallel_waits};
