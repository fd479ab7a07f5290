/* Devices, a tape, and parameters for one layer of each kind, for the tests of the public tape. */
#ifndef TESTS_API_NET_H
#define TESTS_API_NET_H

#include "tests/api/shared.h"

/* Odd sizes: neither a group of 16 samples nor a multiple of a vector. */
enum { N = 5, C = 2, H = 7, W = 6, O = 3, K = 4, M = 3 };
enum { CONV_W, CONV_B, LINEAR_W, LINEAR_B, MATMUL_W, MATMUL_B, UNUSED, PARAMS };

static const struct duet_param shapes[PARAMS] = {
    {"conv.weight", 4, {O, C, 3, 3}, NULL},
    {"conv.bias", 1, {O}, NULL},
    {"linear.weight", 2, {M, K}, NULL},
    {"linear.bias", 1, {M}, NULL},
    {"matmul.weight", 2, {K, M}, NULL},
    {"matmul.bias", 1, {M}, NULL},
    {"unused", 1, {4}, NULL},
};

struct net {
    duet_device *devices[2];
    duet_params *params;
    duet_tape *tape;
    float value[PARAMS][O * C * 9];
};

static inline void net_open(struct net *net, const char *kind) {
    struct duet_param params[PARAMS];
    memcpy(params, shapes, sizeof shapes);
    for (int i = 0; i < PARAMS; i++) {
        for (size_t k = 0; k < O * C * 9; k++)
            net->value[i][k] = api_number(k + (size_t)i);
        params[i].values = net->value[i];
    }
    MUST(duet_devices_open(net->devices, 2, kind, api_memory(kind)));
    MUST(duet_params_create(&net->params, net->devices[0], params, PARAMS));
    MUST(duet_tape_create(&net->tape, net->devices[0]));
}

static inline void net_close(struct net *net) {
    duet_tape_free(net->tape);
    duet_params_free(net->params);
    duet_devices_close(net->devices, 2);
}

static inline duet_tensor *picture(struct net *net, float *host) {
    return api_tensor(net->devices[0], 4, (int[4]){N, C, H, W}, host);
}

/* Checks the shape of a var's value and copies its numbers to `back`. */
static inline void read_var(struct net *net, duet_var *x, int rank, const int *shape, void *back) {
    duet_tensor *value;
    cr_assert_not_null(x, "%s", duet_tape_error(net->tape) ? duet_error() : "no error kept");
    MUST(duet_var_value(&value, net->tape, x));
    cr_assert_eq(duet_tensor_rank(value), rank);
    for (int i = 0; i < rank; i++)
        cr_assert_eq(duet_tensor_dim(value, i), shape[i], "dimension %d is %d", i,
                     duet_tensor_dim(value, i));
    MUST(duet_tensor_read(value, back));
    duet_tensor_free(value);
}

#endif
