/* Shared by the tests of the tape: one batch for the small network of net.h, a hook that checks
 * gradients, and the few lines that make a step by hand. */
#ifndef TESTS_NN_STEP_H
#define TESTS_NN_STEP_H

#include "tests/core/nn/net.h"

#include "nn/layers/text_functions.h"
#include "nn/tape/tape_internal.h"

static struct net_data data;
static const struct net_pass plain_pass = {0, REDUCE_MEAN, 0.25, 0};

static inline void open_net(struct net *net, enum device_kind kind, int math) {
    net_data_make(&data, 4, (int[]){9, 17, 4, 11}, 11);
    net_open(net, kind, math, 0, &data);
    net_load(net, &data, 0, 1);
}

struct seen {
    struct net *net;
    int fired, order[2 * NET_PARAMS];
    float grad[NET_PARAMS][128]; /* its value on the stream when the hook enqueues the copy */
    int fail_at;
};

static inline int look(void *context, int index) {
    struct seen *s = context;
    struct param *p = &s->net->params.param[index];
    s->order[s->fired++] = index;
    if (s->fired == s->fail_at) return fail(ERR_PEER, "rank 3 has failed");
    return copy_to_host(device_compute(s->net->device), s->grad[index], p->grad.data,
                        p->count * sizeof(float));
}

static inline void begin(struct net *net, int training) {
    struct tape_step step = {.segments = &net->segments,
                             .params = &net->params,
                             .step = net->step,
                             .training = training};
    MUST(tape_begin(net->tape, &step));
}

static inline duet_var *leaf(struct net *net, int width, int needs_grad) {
    struct tensor x = tensor_plain(net->x, DTYPE_F32, 2, (int[2]){net->segments.n, width});
    return tape_leaf(net->tape, &x, needs_grad);
}

static inline duet_var *loss_of(struct net *net, duet_var *scores) {
    duet_tensor labels = net_labels(net);
    return duet_cross_entropy(net->tape, scores, &labels, DUET_MEAN, NULL);
}

static inline void fill_grads(struct net *net, float value) {
    struct op_args args = {.p.fill = {value}};
    args.out[0] =
        tensor_plain(net->params.grads, DTYPE_F32, 1, (int[1]){(int)net->params.arena_count});
    MUST(launch(device_compute(net->device), OP_FILL, &args));
}

static inline void read_grad(struct net *net, int index, float *to) {
    MUST(param_read_grad(&net->params, index, to));
}

#endif
