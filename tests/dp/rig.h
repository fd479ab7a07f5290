/* Shared by the tests of DP: the trainer's strategy in a session made by hand, devices, unequal
 * weights, batches cut by virtual device. */
#ifndef TESTS_DP_RIG_H
#define TESTS_DP_RIG_H

#include "tests/harness/harness.h"

#include "base/error.h"
#include "dp/dp.h"
#include "train/session.h"

enum { RIG_BATCH = 40, RIG_MIB = 1024 * 1024, RIG_DEVICES = 8 };

static inline uint32_t rig_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}

static inline float rig_uniform(uint64_t *state, float bound) {
    return ((float)(rig_random(state) >> 8) / 8388608.0f - 1) * bound;
}

/* ---- batches ---- */

/* Sample i of virtual device v in step `step` is the same on whatever device it is trained. */
static inline void rig_sample(int step, int v, int i, int count, float *pixels, int32_t *label) {
    uint64_t state = ((uint64_t)step * 64 + (uint64_t)v) * 1000 + (uint64_t)i + 1;
    for (int warm = 0; warm < 4; warm++)
        rig_random(&state);
    for (int p = 0; p < count; p++)
        pixels[p] = rig_uniform(&state, 1);
    *label = (int32_t)(rig_random(&state) % 10);
}

struct rig_batch {
    float *pixels;
    int32_t labels[RIG_BATCH];
    struct segments segments;
};

/* The batch of n samples as W devices hold it: the virtual devices v = 0, W, 2W, ... first. The
 * first n mod V virtual devices have one sample more. */
static inline void rig_batch(struct rig_batch *batch, int step, int n, int segments, int devices) {
    batch->pixels = malloc(sizeof(float) * 784 * RIG_BATCH);
    memset(&batch->segments, 0, sizeof batch->segments);
    batch->segments.count = segments;
    for (int s = 0, k = segments / devices; s < segments; s++) {
        int v = s / k + s % k * devices, share = n / segments + (v < n % segments);
        batch->segments.seg[s] = (struct segment){v, share};
        for (int i = 0; i < share; i++, batch->segments.n++)
            rig_sample(step, v, i, 784, batch->pixels + 784 * batch->segments.n,
                       &batch->labels[batch->segments.n]);
    }
}

static inline struct step_block rig_step(int step, int n) {
    return (struct step_block){.seed = 7,
                               .step = (uint64_t)step,
                               .weight = 1.0f / (float)n,
                               .learning_rate = 0.1f,
                               .first_update = step == 0,
                               .row = step};
}

/* ---- model ---- */

static inline void rig_model(struct model *model, const char *name) {
    struct model_options options = {.dropout = -1, .hidden_count = 2, .hidden = {24, 16}};
    if (strcmp(name, "mlp")) options.hidden_count = 0;
    cr_assert_eq(model_open(model, name, &options), OK, "%s", error_message());
}

/* Weights at which activations are neither saturated nor tiny, so that a wrong order of summing
 * shows in the bits. */
static inline float **rig_values(const struct model *model) {
    float **values;
    cr_assert_eq(model_values_init(model, 3, &values), OK, "%s", error_message());
    for (int p = 0; p < model->param_count; p++) {
        size_t count = 1, fan_in = 1;
        for (int d = 0; d < model->params[p].rank; d++)
            count *= (size_t)model->params[p].dims[d];
        if (model->params[p].rank > 1) fan_in = count / (size_t)model->params[p].dims[0];
        uint64_t state = (uint64_t)p + 11;
        for (size_t i = 0; i < count; i++)
            values[p][i] = rig_uniform(&state, 1.7f / sqrtf((float)fan_in));
    }
    return values;
}

/* ---- devices ---- */

static inline struct device *rig_device(int index, enum device_kind kind, int mib, int spans) {
    struct device *device;
    struct device_config config = {.kind = kind,
                                   .index = index,
                                   .memory_bytes = (uint64_t)mib * RIG_MIB,
                                   .check_operands = 1,
                                   .spans = spans,
                                   .timeout_s = 20};
    cr_assert_eq(device_open(&device, &config), OK, "%s", error_message());
    return device;
}

/* Closes the device; memory that is still allocated is a leak. */
static inline void rig_close(struct device *device) {
    struct ledger ledger = device_ledger(device);
    int cuda = device_config(device)->kind == DEVICE_CUDA; /* its kernels have a workspace */
    cr_assert_eq(ledger.total, cuda ? ledger.now[MEM_WORKSPACE] : 0, "%s still holds %llu bytes",
                 device_name(device), (unsigned long long)ledger.total);
    device_close(device);
}

struct rig {
    int devices, segments;
    struct device *device[RIG_DEVICES];
    struct model model;
    float **values;
    struct run_config run;
    struct session session;
};

struct rig_config {
    int devices, loss_in_forward, output_device, sharded_reduce, hashes;
    int max_samples; /* of the largest batch */
};

static inline struct rig_config rig_config(struct rig *rig, int loss_in_forward) {
    return (struct rig_config){.devices = rig->devices,
                               .loss_in_forward = loss_in_forward,
                               .hashes = 1,
                               .max_samples = RIG_BATCH};
}

/* Opens the strategy. After a failure nothing of it is left. */
static inline int rig_init(struct rig *rig, const struct rig_config *config) {
    struct session *s = &rig->session;
    run_config_default(&rig->run);
    rig->run.mode = MODE_DP;
    rig->run.warned = 1;
    rig->run.timeout = 20;
    rig->run.hashes = config->hashes;
    rig->run.update.momentum = 0.9;
    rig->run.update.weight_decay = 1e-3;
    rig->run.dp.loss_in_forward = config->loss_in_forward;
    rig->run.dp.output_device = config->output_device;
    rig->run.dp.sharded_reduce = config->sharded_reduce;
    *s = (struct session){.config = &rig->run,
                          .devices = config->devices,
                          .device_count = config->devices,
                          .model = rig->model,
                          .values = rig->values,
                          .largest_batch = config->max_samples,
                          .segments_per_device = rig->segments / rig->devices,
                          .output_device = config->output_device};
    memcpy(s->device, rig->device, sizeof rig->device);
    int code = strategy_dp.open(s);
    struct failures first = {0};
    failures_add(&first, code);
    if (code) strategy_dp.close(s), s->state = NULL;
    return failures_end(&first);
}

static inline struct replica *rig_replica(struct rig *rig, int r) {
    return rig->session.replicas[r];
}

static inline int rig_step_of(struct rig *rig, const struct step_block *step,
                              const struct batch *batch) {
    return strategy_dp.step(&rig->session, step, batch);
}

static inline void rig_open(struct rig *rig, const char *model, int devices, int segments,
                            enum device_kind kind, int spans) {
    memset(rig, 0, sizeof *rig);
    rig->devices = devices;
    rig->segments = segments;
    for (int r = 0; r < devices; r++)
        rig->device[r] = rig_device(r, kind, kind == DEVICE_CUDA ? 160 : 64, spans);
    rig_model(&rig->model, model);
    rig->values = rig_values(&rig->model);
}

static inline void rig_free(struct rig *rig) {
    strategy_dp.close(&rig->session);
    for (int r = 0; r < rig->devices; r++)
        rig_close(rig->device[r]);
    model_values_free(rig->values);
    model_free(&rig->model);
}

/* One DP step or evaluation; host memory of the batch is freed once device 0 is done with it. */
static inline int rig_run(struct rig *rig, int step, int n, int training) {
    struct rig_batch batch;
    struct step_block block = rig_step(step, n);
    rig_batch(&batch, step, n, rig->segments, rig->devices);
    struct batch b = {.segments = batch.segments, .pixels = batch.pixels, .labels = batch.labels};
    int code =
        training ? rig_step_of(rig, &block, &b) : strategy_dp.evaluate(&rig->session, &block, &b);
    char text[512];
    snprintf(text, sizeof text, "%s", error_message());
    int synced = stream_sync(device_compute(rig->device[0]));
    free(batch.pixels);
    return code ? fail(code, "%s", text) : synced;
}

#endif
