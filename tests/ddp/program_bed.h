/* A rank with a model of two or three layers, once inside a duet_ddp and once alone, for the tests
 * of duet_ddp. */
#ifndef TESTS_API_DDP_BED_H
#define TESTS_API_DDP_BED_H

#include <math.h>
#include <stdlib.h>

#include "ddp/ddp.h"
#include "tests/duet/shared.h"

/* Registered in another order than they are used, so that the buckets move the gradients. */
enum { W2, B2, W1, B1, EXTRA, PARAMS };
enum { BED_MEMORY = 96 << 20 }; /* the workspace of a GPU is 64 MiB */
enum { N = 5, K = 9, HIDDEN = 300, CLASSES = 4, LARGEST = K * HIDDEN };
static const struct duet_param shapes[PARAMS] = {{"fc2.weight", 2, {CLASSES, HIDDEN}, NULL},
                                                 {"fc2.bias", 1, {CLASSES}, NULL},
                                                 {"fc1.weight", 2, {HIDDEN, K}, NULL},
                                                 {"fc1.bias", 1, {HIDDEN}, NULL},
                                                 {"extra.weight", 2, {CLASSES, K}, NULL}};

/* A rank's model: `ours` has a ddp around it, `alone` the same values and none. */
struct rank {
    int rank, n, params; /* 4 of them, or with the extra layer 5 */
    int change;          /* not 0: the passes of an update, set in the middle of a pass */
    duet_group *group;
    duet_device *device;
    duet_params *ours, *alone;
    duet_tape *tape;
    duet_ddp *ddp;
    float x[N * K];
    int32_t labels[N];
};

/* Every rank draws other values: DDP has to make them those of rank 0. */
static inline int make_params(struct rank *r, duet_params **out, int seed) {
    struct duet_param params[PARAMS];
    float *values = malloc(PARAMS * LARGEST * sizeof *values);
    duet_rng *rng;
    int code = duet_rng_create(&rng, (uint64_t)seed);
    memcpy(params, shapes, sizeof shapes);
    for (int i = 0; i < PARAMS && !code; i++) {
        duet_rng_normal(rng, values + i * LARGEST, LARGEST, 0, 0.3);
        params[i].values = values + i * LARGEST;
    }
    if (!code) code = duet_params_create(out, r->device, params, r->params);
    duet_rng_free(rng);
    free(values);
    return code;
}

static inline int open_rank(struct rank *r, const char *kind,
                            const struct duet_ddp_options *options, int params) {
    int code;
    *r = (struct rank){.params = params};
    if ((code = duet_group_init(&r->group, 60))) return code;
    r->rank = duet_group_rank(r->group), r->n = duet_group_size(r->group);
    if ((code = duet_device_open(&r->device, kind, 0, BED_MEMORY))) return code;
    if ((code = make_params(r, &r->ours, r->rank))) return code;
    if ((code = make_params(r, &r->alone, 0))) return code;
    if ((code = duet_tape_create(&r->tape, r->device))) return code;
    return duet_ddp_create(&r->ddp, r->group, r->ours, options);
}

static inline void close_rank(struct rank *r) {
    duet_ddp_free(r->ddp);
    duet_tape_free(r->tape);
    duet_params_free(r->ours);
    duet_params_free(r->alone);
    duet_devices_close(&r->device, 1);
    duet_group_destroy(&r->group);
}

/* One pass over samples of this rank's own. extra 1: the extra layer has a part in the loss. */
static inline int pass(struct rank *r, duet_params *params, int number, int extra) {
    duet_tensor *x = NULL, *labels = NULL;
    for (int i = 0; i < N * K; i++)
        r->x[i] = sinf((float)(i + 17 * number + 101 * r->rank));
    for (int i = 0; i < N; i++)
        r->labels[i] = (i + number + r->rank) % CLASSES;
    int code = duet_tensor_create(&x, r->device, DUET_F32, 2, (int[]){N, K}, r->x);
    if (!code) code = duet_tensor_create(&labels, r->device, DUET_I32, 1, (int[]){N}, r->labels);
    if (!code) code = duet_tape_begin(r->tape, params, N, DUET_TRAIN);
    if (!code) {
        duet_tape *t = r->tape;
        duet_var *in = duet_input(t, x);
        duet_var *y = duet_linear(t, duet_relu(t, duet_linear(t, in, W1, B1)), W2, B2);
        if (extra) y = duet_add(t, y, duet_linear(t, in, EXTRA, DUET_NO_BIAS));
        duet_var *loss = duet_cross_entropy(t, y, labels, DUET_MEAN, NULL);
        if (r->change) code = duet_tape_accumulate(t, r->change);
        if (!code) code = duet_backward(t, loss, NULL);
        /* Another backward would leave only this rank's gradients. */
        if (!code && params == r->ours && duet_backward(t, loss, NULL) != DUET_USAGE)
            code = DUET_CHECK;
    }
    duet_tensor_free(x);
    duet_tensor_free(labels);
    return code;
}

#endif
