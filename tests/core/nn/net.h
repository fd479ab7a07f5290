/* A small network with one layer of each basic kind, on a device of the test's choice.
 *
 *     (N,2,9,9) conv 3x3 stride 2 padding 1 -> (3,5,5) relu, max 2x2 stride 1 -> (3,4,4)
 *               conv 2x2 -> (4,3,3) relu, average 2x2 stride 1 -> (4,2,2), dropout, flatten 16
 *               linear -> 6 relu, matmul -> 5 scores; cross entropy, or log-softmax and nll
 *
 * Samples belong to virtual devices; a device r of W trains those of r, r + W, ... as its
 * segments. */
#ifndef TESTS_NN_NET_H
#define TESTS_NN_NET_H

#include "tests/harness/harness.h"

#include "base/error.h"
#include "base/random.h"
#include "nn/params/params.h"
#include "nn/tape/tape.h"

enum {
    NET_PARAMS = 8,
    NET_WEIGHTS = 54 + 3 + 48 + 4 + 96 + 6 + 30 + 5,
    NET_IN = 2 * 9 * 9,
    NET_CLASSES = 5,
    NET_SAMPLES = 96
};
enum { NET_SEED = 17, NET_STEP = 5 };

static const struct param_spec net_specs[NET_PARAMS] = {
    {"conv1.weight", 4, {3, 2, 3, 3}, 0}, {"conv1.bias", 1, {3}, 0},
    {"conv2.weight", 4, {4, 3, 2, 2}, 0}, {"conv2.bias", 1, {4}, 0},
    {"fc.weight", 2, {6, 16}, 0},         {"fc.bias", 1, {6}, 0},
    {"out.weight", 2, {6, 5}, 0},         {"out.bias", 1, {5}, 0},
};

#define MUST(call) cr_assert_eq(call, OK, "%s", error_message())

/* The samples of all virtual devices, one virtual device after another. */
struct net_data {
    int devices, n[MAX_DEVICES], first[MAX_DEVICES], count;
    float x[NET_SAMPLES][NET_IN];
    int32_t label[NET_SAMPLES];
    float row_weight[NET_SAMPLES]; /* for reduction none */
    float weights[NET_WEIGHTS];
};

static inline void net_data_make(struct net_data *d, int devices, const int *n, uint64_t seed) {
    struct rng r;
    rng_seed(&r, seed);
    d->devices = devices;
    d->count = 0;
    for (int v = 0; v < devices; v++) {
        d->n[v] = n[v];
        d->first[v] = d->count;
        d->count += n[v];
    }
    cr_assert_leq(d->count, (int)NET_SAMPLES);
    for (int i = 0; i < NET_SAMPLES; i++) {
        rng_uniform(&r, d->x[i], NET_IN, -1, 1);
        d->label[i] = (int32_t)(rng_u32(&r) % NET_CLASSES);
    }
    rng_uniform(&r, d->row_weight, NET_SAMPLES, -1, 1);
    rng_uniform(&r, d->weights, NET_WEIGHTS, -0.6, 0.6);
}

/* The parts of a pass. */
struct net_pass {
    int nll; /* 1: log-softmax and nll, 0: cross entropy */
    enum reduction reduction;
    double dropout;
    int eval;
};

/* ---- the network on a device ---- */

struct net {
    struct device *device;
    size_t device_bytes; /* memory that the device keeps for itself */
    duet_tape *tape;
    struct param_set params;
    struct step_block *step;
    float *x, *row_weight;
    int32_t *labels;
    struct tensor losses, hits; /* (1, MAX_DEVICES) */
    struct segments segments;
    int add_grads, more_passes, once; /* as in struct tape_step */
    duet_var *input, *scores, *loss;
};

static inline void *net_alloc(struct net *n, size_t bytes) {
    void *memory;
    MUST(device_alloc(n->device, &memory, bytes, MEM_WORKSPACE));
    return memory;
}

static inline void net_open_on(struct net *n, const struct device_config *config,
                               const struct net_data *d) {
    memset(n, 0, sizeof *n);
    MUST(device_open(&n->device, config));
    n->device_bytes = device_ledger(n->device).total;
    MUST(tape_init(&n->tape, n->device));
    MUST(param_set_init(&n->params, n->device, net_specs, NET_PARAMS));
    const float *w = d->weights;
    for (int i = 0; i < NET_PARAMS; w += param_spec_count(&net_specs[i++]))
        MUST(param_write_value(&n->params, i, w));
    n->step = net_alloc(n, sizeof *n->step);
    n->x = net_alloc(n, sizeof d->x);
    n->row_weight = net_alloc(n, sizeof d->row_weight);
    n->labels = net_alloc(n, sizeof d->label);
    n->losses = tensor_plain(net_alloc(n, MAX_DEVICES * 8), DTYPE_F64, 2, (int[2]){1, MAX_DEVICES});
    n->hits = tensor_plain(net_alloc(n, MAX_DEVICES * 8), DTYPE_I64, 2, (int[2]){1, MAX_DEVICES});
}

static inline void net_open(struct net *n, enum device_kind kind, int reference_math, int index,
                            const struct net_data *d) {
    struct device_config config = {.kind = kind,
                                   .index = index,
                                   .memory_bytes = 32 << 20,
                                   .check_operands = 1,
                                   .reference_math = reference_math,
                                   .timeout_s = 20};
    net_open_on(n, &config, d);
}

static inline void net_close(struct net *n) {
    duet_tape_free(n->tape);
    param_set_free(&n->params);
    device_free(n->device, n->step);
    device_free(n->device, n->x);
    device_free(n->device, n->row_weight);
    device_free(n->device, n->labels);
    device_free(n->device, n->losses.data);
    device_free(n->device, n->hits.data);
    cr_assert_eq(device_ledger(n->device).total, n->device_bytes, "%zu bytes are left",
                 (size_t)device_ledger(n->device).total);
    device_close(n->device);
}

/* The share of device r of W if virtual device v has n[v] samples. */
static inline struct segments segments_of(const int *n, int devices, int r, int w) {
    struct segments s = {0};
    for (int v = r; v < devices; v += w) {
        s.seg[s.count++] = (struct segment){v, n[v]};
        s.n += n[v];
    }
    return s;
}

/* Copies the share of device r of W to the device. The data must stay. */
static inline void net_load(struct net *n, const struct net_data *d, int r, int w) {
    struct stream *stream = device_compute(n->device);
    struct step_block step = {.seed = NET_SEED, .step = NET_STEP, .weight = 1.0f / (float)d->count};
    int at = 0;
    MUST(stream_write(stream, n->step, &step, sizeof step));
    n->segments = segments_of(d->n, d->devices, r, w);
    for (int v = r; v < d->devices; v += w) {
        size_t count = (size_t)d->n[v], first = (size_t)d->first[v];
        MUST(copy_to_device(stream, n->x + (size_t)at * NET_IN, d->x[first],
                            count * sizeof d->x[0]));
        MUST(copy_to_device(stream, n->labels + at, &d->label[first], count * sizeof d->label[0]));
        MUST(copy_to_device(stream, n->row_weight + at, &d->row_weight[first],
                            count * sizeof(float)));
        at += d->n[v];
    }
}

static inline duet_var *net_forward(duet_tape *t, duet_var *x, double drop) {
    const struct duet_conv twice = {.stride = {2, 2}, .padding = {1, 1}};
    const struct duet_pool next = {.stride = {1, 1}};
    duet_var *h = duet_max_pool2d(t, duet_relu(t, duet_conv2d(t, x, 0, 1, &twice)), 2, &next);
    h = duet_avg_pool2d(t, duet_relu(t, duet_conv2d(t, h, 2, 3, NULL)), 2, &next);
    h = duet_relu(t, duet_linear(t, duet_flatten(t, duet_dropout(t, h, drop)), 4, 5));
    return to_plain(t, duet_matmul_add(t, h, 6, 7));
}

/* Of the loaded batch. */
static inline duet_tensor net_labels(const struct net *n) {
    return (duet_tensor){.device = n->device,
                         .t = tensor_plain(n->labels, DTYPE_I32, 1, &n->segments.n)};
}

/* Forward of the loaded batch, up to the loss; the sums of each segment go to the logs. */
static inline int net_run_forward(struct net *n, const struct net_pass *pass) {
    struct tape_step step = {.segments = &n->segments,
                             .params = &n->params,
                             .step = n->step,
                             .training = !pass->eval,
                             .add_grads = n->add_grads,
                             .more_passes = n->more_passes,
                             .once = n->once};
    struct tensor x = tensor_plain(n->x, DTYPE_F32, 4, (int[4]){n->segments.n, 2, 9, 9});
    duet_tensor labels = net_labels(n);
    enum duet_reduction r = (enum duet_reduction)pass->reduction;
    CHECK(tape_begin(n->tape, &step));
    n->input = tape_leaf(n->tape, &x, 1);
    n->scores = net_forward(n->tape, n->input, pass->dropout);
    n->loss = pass->nll
                  ? duet_nll_loss(n->tape, duet_log_softmax(n->tape, n->scores), &labels, r, NULL)
                  : duet_cross_entropy(n->tape, n->scores, &labels, r, NULL);
    CHECK(tape_error(n->tape));
    return tape_log_loss(n->tape, n->loss, &n->losses, &n->hits);
}

static inline int net_run_backward(struct net *n, const struct net_pass *pass) {
    struct tensor grad = tensor_plain(n->row_weight, DTYPE_F32, 1, &n->segments.n);
    return tape_backward(n->tape, n->loss, pass->reduction == REDUCE_NONE ? &grad : NULL);
}

static inline void net_run(struct net *n, const struct net_pass *pass) {
    MUST(net_run_forward(n, pass));
    MUST(net_run_backward(n, pass));
}

/* All gradients in registration order. */
static inline void net_read_grads(struct net *n, float *grads) {
    for (int i = 0; i < NET_PARAMS; grads += n->params.param[i++].count)
        MUST(param_read_grad(&n->params, i, grads));
}

/* The relative L2 distance of got from want. */
static inline double distance(const float *got, const double *want, size_t count) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        difference += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        norm += want[i] * want[i];
    }
    return norm > 0 ? sqrt(difference / norm) : sqrt(difference);
}

#endif
