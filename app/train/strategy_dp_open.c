/* Opens and closes DataParallel's strategy: replicas, the model around them, and shared memory.
 * strategy_dp.c has its step. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/program_name.h"
#include "dp/balance.h"
#include "train/remarks.h"
#include "train/strategy_dp.h"

static const double JOIN_GRACE_S = 5;

/* PyTorch's warnings when a module is wrapped, and when losses are first gathered. */
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

/* The most samples in a device's share. */
static int share_capacity(const struct dp_strategy *d, const struct session *s) {
    return (s->largest_batch + d->segments - 1) / d->segments * s->segments_per_device;
}

/* Device 0 holds the whole batch. */
static int init_replica(struct dp_strategy *d, struct session *s, int r) {
    int k = s->segments_per_device, capacity = r ? share_capacity(d, s) : s->largest_batch;
    struct replica_config config = session_replica_config(s, capacity);
    config.log_segments = r == d->output ? d->segments : d->own_loss ? k : 0;
    config.optimizer = r == 0;
    s->replicas[r] = &d->replica[r];
    return replica_init(&d->replica[r], s->device[r], &s->model, &config, r ? NULL : s->values);
}

/* The waits inside a replica end before the wait for it, so that the error names the wait. */
static int init_model(struct dp_strategy *d, const struct session *s) {
    const struct run_config *c = s->config;
    duet_params *params[MAX_DEVICES];
    duet_tape *tapes[MAX_DEVICES];
    for (int r = 0; r < s->devices; r++) {
        params[r] = d->replica[r].params;
        tapes[r] = d->replica[r].tape;
    }
    struct dp_config config = {.devices = s->devices,
                               .device = s->device,
                               .params = params,
                               .output_device = d->output,
                               .sharded_reduce = c->dp.sharded_reduce,
                               .sums = s->sums.in_force,
                               .timeout_s =
                                   (c->timeout > 0 ? c->timeout : DP_TIMEOUT_S) + JOIN_GRACE_S,
                               .spans = device_config(s->device[0])->spans};
    d->shares.begin = dp_strategy_begin_on;
    d->shares.context = d;
    CHECK(data_parallel_around(&d->model, &config, tapes, &d->shares));
    d->model->forward = dp_strategy_forward;
    d->model->loss = dp_strategy_loss;
    d->model->context = d;
    return OK;
}

/* Shares go to the replicas' own input; their rows of dL/dy get memory at once. */
static int lend_memory(struct dp_strategy *d, const struct session *s) {
    const struct model *m = &s->model;
    size_t pixel_bytes = sizeof(float) * (size_t)m->channels * (size_t)m->height * (size_t)m->width;
    for (int r = 1; r < s->devices; r++) {
        struct replica *replica = &d->replica[r];
        size_t most = (size_t)replica->config.max_samples;
        const struct tensor labels = model_answers(m, NULL, replica->config.max_samples);
        data_parallel_lend(&d->model->x[0], r, replica->pixels, most * pixel_bytes);
        data_parallel_lend(&d->model->y, r, replica->labels, tensor_bytes(&labels));
    }
    size_t grad_bytes = (size_t)share_capacity(d, s) * (size_t)m->classes * sizeof(float);
    struct pieces *grads = &d->model->output[0].grads;
    for (int r = 0; r < s->devices && !d->own_loss; r++)
        if (r != d->output)
            CHECK(data_parallel_room(d->model, grads, r, grad_bytes, MEM_ACTIVATIONS));
    return OK;
}

static int init_loss(struct dp_strategy *d, const struct session *s) {
    struct device *output = s->device[d->output];
    const struct tensor labels = model_answers(&s->model, NULL, s->largest_batch);
    if (d->own_loss) return OK;
    if (d->output) CHECK(device_alloc(output, &d->labels, tensor_bytes(&labels), MEM_INPUT));
    CHECK(tape_init(&d->tape, output));
    tape_set_cause(d->tape, MEM_GATHERED); /* holds gathered outputs, dL/dy and the losses */
    return OK;
}

static int dp_strategy_open(struct session *s) {
    CHECK(run_check_sync_bn(s->config));
    struct dp_strategy *d = s->state = calloc(1, sizeof *d);
    if (!d) return fail(ERR_MEMORY, "DataParallel: out of host memory");
    d->output = s->config->dp.output_device;
    CHECK(dp_check_devices(s->devices, d->output));
    d->segments = s->devices * s->segments_per_device;
    d->own_loss = s->config->dp.loss_in_forward || s->devices == 1;
    for (int r = 0; r < s->devices; r++)
        CHECK(init_replica(d, s, r));
    CHECK(session_open_sums(s));
    CHECK(init_loss(d, s));
    CHECK(init_model(d, s));
    CHECK(lend_memory(d, s));
    warn(s);
    return OK;
}

static int dp_strategy_close(struct session *s) {
    struct dp_strategy *d = s->state;
    if (!d) return 1;
    if (!data_parallel_close(d->model)) return 0;
    duet_tape_free(d->tape);
    if (d->labels) device_free(s->device[d->output], d->labels);
    for (int r = 0; r < MAX_DEVICES; r++)
        replica_free(&d->replica[r]);
    free(d);
    return 1;
}

const struct strategy strategy_dp = {.open = dp_strategy_open,
                                     .step = dp_strategy_step,
                                     .evaluate = dp_strategy_evaluate,
                                     .hash_values = dp_strategy_hash_values,
                                     .close = dp_strategy_close,
                                     .waits = dp_strategy_waits};
