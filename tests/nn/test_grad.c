/* Every layer's gradient against central differences of an oracle in double, for every loss and
 * reduction, with plain and with grouped activations. */
#include "tests/nn/net.h"

/* Float kernels, a dozen layers, sums of at most a few thousand terms: rounding gives about
 * 1e-6. A wrong term gives 1e-2. */
static const double GRADIENT_TOLERANCE = 1e-5;
static const double LOSS_TOLERANCE = 1e-6;
/* In double: small enough that next to no relu or maximum changes sides, large enough to keep
 * ten digits. */
static const double STEP = 1e-6;

static struct net_data data;

static double row_weight(const struct net_data *d, const struct net_pass *pass, int i) {
    if (pass->reduction == REDUCE_MEAN) return (double)(1.0f / (float)d->count);
    return pass->reduction == REDUCE_SUM ? 1 : d->row_weight[i];
}

static double sample_loss(const struct net_data *d, const double *p, const double *x, int i,
                          double drop) {
    int v = 0;
    while (i >= d->first[v] + d->n[v])
        v++;
    return oracle_loss(p, x, d->label[i], v, i - d->first[v], drop);
}

static void to_double(double *to, const float *from, int count) {
    for (int i = 0; i < count; i++)
        to[i] = from[i];
}

static double weighted_loss(const struct net_data *d, const struct net_pass *pass,
                            const double *p) {
    double sum = 0, x[NET_IN];
    for (int i = 0; i < d->count; i++) {
        to_double(x, d->x[i], NET_IN);
        sum += row_weight(d, pass, i) * sample_loss(d, p, x, i, pass->dropout);
    }
    return sum;
}

static void check_weights(const struct net_data *d, const struct net_pass *pass, struct net *net,
                          const char *what) {
    static float got[NET_WEIGHTS];
    static double p[NET_WEIGHTS], want[NET_WEIGHTS];
    net_read_grads(net, got);
    to_double(p, d->weights, NET_WEIGHTS);
    for (int k = 0; k < NET_WEIGHTS; k++) {
        double keep = p[k];
        p[k] = keep + STEP;
        want[k] = weighted_loss(d, pass, p);
        p[k] = keep - STEP;
        want[k] = (want[k] - weighted_loss(d, pass, p)) / (2 * STEP);
        p[k] = keep;
    }
    for (int i = 0, at = 0; i < NET_PARAMS; at += (int)net->params.param[i++].count) {
        double far = distance(got + at, want + at, net->params.param[i].count);
        cr_assert(far < GRADIENT_TOLERANCE, "%s: gradient of %s is off by %g", what,
                  net_specs[i].name, far);
    }
}

/* The gradient of the input: each sample's depends on its own loss alone. */
static void check_input(const struct net_data *d, const struct net_pass *pass, struct net *net,
                        const char *what) {
    static float got[NET_SAMPLES * NET_IN];
    double p[NET_WEIGHTS], x[NET_IN], want[NET_IN];
    size_t count = (size_t)d->count * NET_IN;
    cr_assert(net->input->grad.data && net->input->grad.layout == LAYOUT_PLAIN);
    MUST(copy_to_host(device_compute(net->device), got, net->input->grad.data,
                      count * sizeof(float)));
    MUST(stream_sync(device_compute(net->device)));
    to_double(p, d->weights, NET_WEIGHTS);
    for (int i = 0; i < d->count; i++) {
        to_double(x, d->x[i], NET_IN);
        for (int k = 0; k < NET_IN; k++) {
            double keep = x[k];
            x[k] = keep + STEP;
            want[k] = sample_loss(d, p, x, i, pass->dropout);
            x[k] = keep - STEP;
            want[k] = row_weight(d, pass, i) * (want[k] - sample_loss(d, p, x, i, pass->dropout)) /
                      (2 * STEP);
            x[k] = keep;
        }
        double far = distance(got + (size_t)i * NET_IN, want, NET_IN);
        cr_assert(far < GRADIENT_TOLERANCE, "%s: gradient of sample %d is off by %g", what, i, far);
    }
}

static void check_losses(const struct net_data *d, const struct net_pass *pass, struct net *net,
                         const char *what) {
    double got[MAX_DEVICES], p[NET_WEIGHTS], x[NET_IN];
    int64_t hits[MAX_DEVICES];
    struct stream *stream = device_compute(net->device);
    MUST(copy_to_host(stream, got, net->losses.data, sizeof got));
    MUST(copy_to_host(stream, hits, net->hits.data, sizeof hits));
    MUST(stream_sync(stream));
    to_double(p, d->weights, NET_WEIGHTS);
    for (int v = 0; v < d->devices; v++) {
        double want = 0;
        for (int i = d->first[v]; i < d->first[v] + d->n[v]; i++) {
            to_double(x, d->x[i], NET_IN);
            want += sample_loss(d, p, x, i, pass->dropout);
        }
        cr_assert(fabs(got[v] - want) <= LOSS_TOLERANCE * (1 + want),
                  "%s: loss of segment %d: %.9g, not %.9g", what, v, got[v], want);
        cr_assert(hits[v] >= 0 && hits[v] <= d->n[v]);
    }
}

static void check_pass(const struct net_data *d, const struct net_pass *pass, int reference_math) {
    struct net net;
    char what[64];
    snprintf(what, sizeof what, "%s, reduction %d, dropout %g, %s",
             pass->nll ? "nll" : "cross entropy", pass->reduction, pass->dropout,
             reference_math ? "plain" : "n16");
    net_open(&net, DEVICE_HOST, reference_math, 0, d);
    net_load(&net, d, 0, 1);
    net_run(&net, pass);
    check_losses(d, pass, &net, what);
    check_weights(d, pass, &net, what);
    check_input(d, pass, &net, what);
    net_close(&net);
}

Test(grad, every_layer_loss_and_reduction, .timeout = 120) {
    net_data_make(&data, 3, (int[]){11, 3, 7}, 1);
    for (int math = 0; math < 2; math++)
        for (int nll = 0; nll < 2; nll++)
            for (int reduction = REDUCE_MEAN; reduction <= REDUCE_NONE; reduction++)
                check_pass(&data, &(struct net_pass){nll, (enum reduction)reduction, 0.3, 0}, math);
}

/* One group of 16 exactly, one more, one less, and segments without a sample at the start,
 * inside and at the end. */
Test(grad, segments_of_any_size, .timeout = 120) {
    static const int sizes[][5] = {{16, 17, 15, 1, 0}, {0, 5, 0, 2, 0}, {1, 0, 0, 0, 0}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int math = 0; math < 2; math++) {
            net_data_make(&data, 5, sizes[i], 2 + i);
            check_pass(&data, &(struct net_pass){0, REDUCE_MEAN, 0.5, 0}, math);
        }
}

/* A rank may be left without a sample in a short last batch: its gradients are zeros. */
Test(grad, of_an_empty_batch_are_zeros, .timeout = 30) {
    for (int math = 0; math < 2; math++) {
        struct net net;
        float got[NET_WEIGHTS];
        net_data_make(&data, 2, (int[]){0, 0}, 3);
        net_open(&net, DEVICE_HOST, math, 0, &data);
        net_load(&net, &data, 0, 1);
        net_run(&net, &(struct net_pass){0});
        net_read_grads(&net, got);
        for (int i = 0; i < NET_WEIGHTS; i++)
            cr_assert(got[i] == 0);
        net_close(&net);
    }
}
