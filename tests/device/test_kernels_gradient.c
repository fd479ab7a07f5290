/* The backward kernels against central differences of their forward formulas (of adaptive pools and
 * of what is newer: PyTorch's gradients, tests/nn/test_functions.c and tests/api). The formulas
 * are written here a second time, independently and in double, so that no mistake can hide in code
 * that both share or in float rounding. With a step of 1e-5 the differences are accurate to about
 * 1e-9; what remains is the kernels' rounding to float. */
#include "base/philox.h"
#include "tests/device/kernels_common.h"

static const double STEP = 1e-5;
/* Kernels sum in double and round once: by 6e-8 of the gradient, or, for softmax, of the largest
 * term, since its log is itself a rounded float. A wrong term would cost 100 times as much. */
static const double TOLERANCE = 2e-6;

/* out = f(in) in double, with the shapes and settings of `a`; the floats of `a` are not read. */
typedef void oracle(const struct op_args *a, double *const in[3], double *out);

static int dim(const struct tensor *t, int i) {
    return t->dims[i];
}

static size_t at4(const struct tensor *t, int n, int c, int h, int w) {
    return (((size_t)n * dim(t, 1) + c) * dim(t, 2) + h) * dim(t, 3) + w;
}

static void conv_oracle(const struct op_args *a, double *const in[3], double *out) {
    const struct tensor *x = &a->in[0], *w = &a->in[1], *y = &a->out[0];
    for (int n = 0; n < dim(y, 0); n++)
        for (int o = 0; o < dim(y, 1); o++)
            for (int i = 0; i < dim(y, 2) * dim(y, 3); i++) {
                int p = i / dim(y, 3), q = i % dim(y, 3);
                double sum = in[2][o];
                for (int c = 0; c < dim(x, 1); c++)
                    for (int h = 0; h < dim(x, 2); h++)
                        for (int v = 0; v < dim(x, 3); v++) {
                            int ky = h + a->p.conv.padding - p * a->p.conv.stride;
                            int kx = v + a->p.conv.padding - q * a->p.conv.stride;
                            if (ky >= 0 && ky < dim(w, 2) && kx >= 0 && kx < dim(w, 3))
                                sum += in[0][at4(x, n, c, h, v)] * in[1][at4(w, o, c, ky, kx)];
                        }
                out[at4(y, n, o, p, q)] = sum;
            }
}

static void linear_oracle(const struct op_args *a, double *const in[3], double *out) {
    int inputs = (int)tensor_sample_count(&a->in[0]), outputs = dim(&a->out[0], 1);
    for (int n = 0; n < dim(&a->out[0], 0); n++)
        for (int m = 0; m < outputs; m++) {
            double sum = in[2][m];
            for (int k = 0; k < inputs; k++)
                sum += in[0][n * inputs + k] *
                       in[1][a->p.linear.weight_is_in_out ? k * outputs + m : m * inputs + k];
            out[n * outputs + m] = sum;
        }
}

static void relu_oracle(const struct op_args *a, double *const in[3], double *out) {
    for (size_t i = 0; i < tensor_count(&a->out[0]); i++)
        out[i] = in[0][i] > 0 ? in[0][i] : 0;
}

static double pool(const struct op_args *a, const double *x, size_t i, int want_max) {
    const struct tensor *y = &a->out[0];
    int q = (int)(i % dim(y, 3)), p = (int)(i / dim(y, 3) % dim(y, 2)),
        plane = (int)(i / dim(y, 3) / dim(y, 2));
    double sum = 0, most = -1e300;
    for (int h = 0; h < a->p.pool.size[0]; h++)
        for (int v = 0; v < a->p.pool.size[1]; v++) {
            double value = x[at4(&a->in[0], 0, plane, p * a->p.pool.stride[0] + h,
                                 q * a->p.pool.stride[1] + v)];
            sum += value;
            if (value > most) most = value;
        }
    return want_max ? most : sum / (a->p.pool.size[0] * a->p.pool.size[1]);
}

static void avg_pool_oracle(const struct op_args *a, double *const in[3], double *out) {
    for (size_t i = 0; i < tensor_count(&a->out[0]); i++)
        out[i] = pool(a, in[0], i, 0);
}

static void max_pool_oracle(const struct op_args *a, double *const in[3], double *out) {
    for (size_t i = 0; i < tensor_count(&a->out[0]); i++)
        out[i] = pool(a, in[0], i, 1);
}

static void dropout_oracle(const struct op_args *a, double *const in[3], double *out) {
    double p = (double)a->p.dropout.p;
    for (size_t i = 0; i < tensor_count(&a->out[0]); i++)
        out[i] = philox_keep(a->step->seed, (uint32_t)a->p.dropout.v, (uint32_t)a->step->step,
                             (uint32_t)a->p.dropout.layer, i, philox_threshold(1 - p))
                     ? in[0][i] / (1 - p)
                     : 0;
}

static void log_softmax_oracle(const struct op_args *a, double *const in[3], double *out) {
    int classes = dim(&a->in[0], 1);
    for (int n = 0; n < dim(&a->in[0], 0); n++) {
        double sum = 0;
        for (int j = 0; j < classes; j++)
            sum += exp(in[0][n * classes + j]);
        for (int j = 0; j < classes; j++)
            out[n * classes + j] = in[0][n * classes + j] - log(sum);
    }
}

static void softmax_oracle(const struct op_args *a, double *const in[3], double *out) {
    log_softmax_oracle(a, in, out);
    for (size_t i = 0; i < tensor_count(&a->in[0]); i++)
        out[i] = exp(out[i]);
}

static void nll_oracle(const struct op_args *a, double *const in[3], double *out) {
    const int32_t *labels = a->in[1].data;
    for (int n = 0; n < dim(&a->in[0], 0); n++)
        out[n] = -in[0][n * dim(&a->in[0], 1) + labels[n]];
}

static void cross_entropy_oracle(const struct op_args *a, double *const in[3], double *out) {
    double logp[256], *const softmax_in[3] = {in[0], NULL, NULL},
                             *const nll_in[3] = {logp, NULL, NULL};
    cr_assert(tensor_count(&a->in[0]) <= 256);
    log_softmax_oracle(a, softmax_in, logp);
    nll_oracle(a, nll_in, out);
    double e = a->p.loss.smoothing;
    int classes = dim(&a->in[0], 1);
    for (int n = 0; n < dim(&a->in[0], 0); n++) {
        out[n] *= 1 - e;
        for (int j = 0; j < classes; j++)
            out[n] -= e / classes * logp[n * classes + j];
    }
}

static double distance_oracle(int kind, double x, double target) {
    double off = fabs(x - target);
    if (kind == DISTANCE_SMOOTH_L1) return off < 1 ? off * off / 2 : off - 0.5;
    if (kind == DISTANCE_LOGISTIC)
        return -target * log(1 / (1 + exp(-x))) - (1 - target) * log(1 - 1 / (1 + exp(-x)));
    return off * off;
}

static void mse_oracle(const struct op_args *a, double *const in[3], double *out) {
    int columns = dim(&a->in[0], 1);
    for (int n = 0; n < dim(&a->in[0], 0); n++) {
        out[n] = 0;
        for (int j = 0; j < columns; j++)
            out[n] += distance_oracle(a->p.loss.distance, in[0][n * columns + j],
                                      in[1][n * columns + j]) /
                      columns;
    }
}

static double *doubles(struct heap *heap, const struct tensor *t) {
    if (!t->data || t->dtype != DTYPE_F32) return NULL;
    double *d = heap_take(heap, tensor_count(t) * sizeof *d);
    for (size_t i = 0; i < tensor_count(t); i++)
        d[i] = tensor_f32(t)[i];
    return d;
}

/* Compares d(sum over i of weight[i] * f(in)[i]) / d in[wrt], by differences, with the kernel. */
static void check(const char *name, oracle *f, const struct op_args *forward, int wrt,
                  const double *weight, const struct tensor *gradient) {
    struct heap heap = {0};
    double *const in[3] = {doubles(&heap, &forward->in[0]), doubles(&heap, &forward->in[1]),
                           doubles(&heap, &forward->in[2])};
    size_t outputs = tensor_count(&forward->out[0]);
    double *up = heap_take(&heap, outputs * sizeof *up),
           *down = heap_take(&heap, outputs * sizeof *down);
    for (size_t i = 0; i < tensor_count(&forward->in[wrt]); i++) {
        double x = in[wrt][i], want = 0;
        in[wrt][i] = x + STEP;
        f(forward, in, up);
        in[wrt][i] = x - STEP;
        f(forward, in, down);
        in[wrt][i] = x;
        for (size_t j = 0; j < outputs; j++)
            want += weight[j] * (up[j] - down[j]) / (2 * STEP);
        double got = tensor_f32(gradient)[i];
        cr_assert(fabs(got - want) <= TOLERANCE * (1 + fabs(want)),
                  "%s: input %d, element %zu: kernel %.9g, differences %.9g", name, wrt, i, got,
                  want);
    }
    heap_free(&heap);
}

static void run(enum op op, const struct op_args *a) {
    host_reference_kernels[op](a);
}

Test(math_gradient, conv2d, .timeout = 60) {
    static const int shapes[][8] = {{2, 2, 5, 6, 3, 3, 1, 0},
                                    {1, 3, 7, 5, 2, 3, 2, 1},
                                    {2, 1, 6, 6, 2, 5, 1, 2},
                                    {1, 2, 8, 7, 2, 2, 3, 0}};
    for (int i = 0; i < 4; i++) {
        const int *s = shapes[i];
        struct heap heap = {0};
        int p = (s[2] + 2 * s[7] - s[5]) / s[6] + 1, q = (s[3] + 2 * s[7] - s[5]) / s[6] + 1;
        struct op_args f = {.in = {tensor_random(&heap, 1, 4, s[0], s[1], s[2], s[3]),
                                   tensor_random(&heap, 2, 4, s[4], s[1], s[5], s[5]),
                                   tensor_random(&heap, 3, 1, s[4], 1, 1, 1)},
                            .out = {heap_tensor(&heap, DTYPE_F32, 4, s[0], s[4], p, q)},
                            .p.conv = {s[6], s[7]}};
        struct tensor dy = tensor_random(&heap, 4, 4, s[0], s[4], p, q),
                      dx = tensor_like(&heap, &f.in[0]);
        struct tensor dw = tensor_like(&heap, &f.in[1]), db = tensor_like(&heap, &f.in[2]);
        double *weight = doubles(&heap, &dy);
        run(OP_CONV2D_BACKWARD_DATA, &(struct op_args){.in = {dy, f.in[1]}, .out = {dx}, .p = f.p});
        run(OP_CONV2D_BACKWARD_WEIGHT,
            &(struct op_args){.in = {f.in[0], dy}, .out = {dw, db}, .p = f.p});
        check("conv2d dx", conv_oracle, &f, 0, weight, &dx);
        check("conv2d dw", conv_oracle, &f, 1, weight, &dw);
        check("conv2d db", conv_oracle, &f, 2, weight, &db);
        run(OP_CONV2D_FORWARD, &f);
        double *const in[3] = {doubles(&heap, &f.in[0]), doubles(&heap, &f.in[1]),
                               doubles(&heap, &f.in[2])};
        double *want = heap_take(&heap, tensor_count(&dy) * sizeof *want);
        conv_oracle(&f, in, want);
        for (size_t j = 0; j < tensor_count(&dy); j++)
            cr_assert_float_eq(tensor_f32(&f.out[0])[j], want[j], TOLERANCE);
        heap_free(&heap);
    }
}

Test(math_gradient, linear, .timeout = 60) {
    for (int turned = 0; turned < 2; turned++) {
        struct heap heap = {0};
        struct op_args f = {
            .in = {tensor_random(&heap, 1, 4, 3, 2, 2, 3),
                   tensor_random(&heap, 2, 2, turned ? 12 : 5, turned ? 5 : 12, 1, 1),
                   tensor_random(&heap, 3, 1, 5, 1, 1, 1)},
            .out = {heap_tensor(&heap, DTYPE_F32, 2, 3, 5, 1, 1)},
            .p.linear = {turned}};
        struct tensor dy = tensor_random(&heap, 4, 2, 3, 5, 1, 1),
                      dx = tensor_like(&heap, &f.in[0]);
        struct tensor dw = tensor_like(&heap, &f.in[1]), db = tensor_like(&heap, &f.in[2]);
        double *weight = doubles(&heap, &dy);
        run(OP_LINEAR_BACKWARD_DATA, &(struct op_args){.in = {dy, f.in[1]}, .out = {dx}, .p = f.p});
        run(OP_LINEAR_BACKWARD_WEIGHT,
            &(struct op_args){.in = {f.in[0], dy}, .out = {dw, db}, .p = f.p});
        check("linear dx", linear_oracle, &f, 0, weight, &dx);
        check("linear dw", linear_oracle, &f, 1, weight, &dw);
        check("linear db", linear_oracle, &f, 2, weight, &db);
        run(OP_LINEAR_FORWARD, &f);
        double *const in[3] = {doubles(&heap, &f.in[0]), doubles(&heap, &f.in[1]),
                               doubles(&heap, &f.in[2])};
        double want[15];
        linear_oracle(&f, in, want);
        for (int j = 0; j < 15; j++)
            cr_assert_float_eq(tensor_f32(&f.out[0])[j], want[j], TOLERANCE);
        heap_free(&heap);
    }
}

Test(math_gradient, relu_and_dropout, .timeout = 60) {
    struct heap heap = {0};
    struct step_block step = {.seed = 5, .step = 3};
    struct op_args f = {.in = {tensor_random(&heap, 1, 2, 5, 7, 1, 1)},
                        .out = {heap_tensor(&heap, DTYPE_F32, 2, 5, 7, 1, 1)},
                        .step = &step};
    struct tensor dy = tensor_random(&heap, 2, 2, 5, 7, 1, 1), dx = tensor_like(&heap, &dy);
    double *weight = doubles(&heap, &dy);
    run(OP_RELU_FORWARD, &f);
    run(OP_RELU_BACKWARD, &(struct op_args){.in = {f.out[0], dy}, .out = {dx}});
    check("relu dx", relu_oracle, &f, 0, weight, &dx);
    f.p.dropout = (struct dropout_args){.3f, 2, 1, 0, 0};
    run(OP_DROPOUT, &(struct op_args){.in = {dy}, .out = {dx}, .step = &step, .p = f.p});
    check("dropout dx", dropout_oracle, &f, 0, weight, &dx);
    heap_free(&heap);
}

Test(math_gradient, pools, .timeout = 60) {
    for (int size = 1; size <= 3; size++)
        for (int stride = 1; stride <= 3; stride++) {
            struct heap heap = {0};
            int wide = size % 3 + 1, across = stride % 2 + 1, p = (6 - size) / stride + 1,
                q = (7 - wide) / across + 1;
            struct op_args f = {.in = {tensor_random(&heap, 1, 4, 2, 2, 6, 7)},
                                .out = {heap_tensor(&heap, DTYPE_F32, 4, 2, 2, p, q)},
                                .p.pool = {{size, wide}, {stride, across}, 0, 0}};
            struct tensor dy = tensor_random(&heap, 2, 4, 2, 2, p, q),
                          dx = tensor_like(&heap, &f.in[0]);
            double *weight = doubles(&heap, &dy);
            run(OP_AVG_POOL_BACKWARD, &(struct op_args){.in = {dy}, .out = {dx}, .p = f.p});
            check("avg pool dx", avg_pool_oracle, &f, 0, weight, &dx);
            run(OP_MAX_POOL_BACKWARD,
                &(struct op_args){.in = {f.in[0], dy}, .out = {dx}, .p = f.p});
            check("max pool dx", max_pool_oracle, &f, 0, weight, &dx);
            heap_free(&heap);
        }
}

Test(math_gradient, losses, .timeout = 60) {
    struct heap heap = {0};
    struct step_block step = {.weight = 0.125f};
    struct tensor x = tensor_random(&heap, 1, 2, 6, 9, 1, 1),
                  labels = heap_tensor(&heap, DTYPE_I32, 1, 6, 1, 1, 1);
    for (int i = 0; i < 6; i++)
        ((int32_t *)labels.data)[i] = i * 5 % 9;
    struct tensor y = tensor_like(&heap, &x), dy = tensor_random(&heap, 2, 2, 6, 9, 1, 1),
                  dx = tensor_like(&heap, &x);
    for (int log = 0; log < 2; log++) {
        struct op_args softmax = {.in = {x}, .out = {y}, .p.softmax.log = log};
        run(OP_SOFTMAX_FORWARD, &softmax);
        run(OP_SOFTMAX_BACKWARD,
            &(struct op_args){.in = {y, dy}, .out = {dx}, .p.softmax.log = log});
        check(log ? "log softmax dx" : "softmax dx", log ? log_softmax_oracle : softmax_oracle,
              &softmax, 0, doubles(&heap, &dy), &dx);
    }
    struct tensor dloss = tensor_random(&heap, 3, 1, 6, 1, 1, 1);
    for (int reduction = REDUCE_MEAN; reduction <= REDUCE_NONE; reduction++) {
        double weight[6];
        for (int i = 0; i < 6; i++)
            weight[i] = reduction == REDUCE_MEAN  ? 0.125
                        : reduction == REDUCE_SUM ? 1
                                                  : tensor_f32(&dloss)[i];
        struct op_args b = {
            .in = {x, labels}, .out = {dx}, .step = &step, .p.loss = {.reduction = reduction}};
        if (reduction == REDUCE_NONE) b.in[2] = dloss;
        struct op_args f = {.in = {x, labels},
                            .out = {heap_tensor(&heap, DTYPE_F64, 1, 6, 1, 1, 1),
                                    heap_tensor(&heap, DTYPE_I32, 1, 6, 1, 1, 1)}};
        for (int part = 0; part < 3; part++) { /* label smoothing in part, completely, none */
            b.p.loss.smoothing = f.p.loss.smoothing = .5 * ((part + 1) % 3);
            run(OP_CROSS_ENTROPY_BACKWARD, &b);
            check("cross entropy dx", cross_entropy_oracle, &f, 0, weight, &dx);
        }
        run(OP_NLL_BACKWARD, &b);
        check("nll dx", nll_oracle, &f, 0, weight, &dx);
        double *const in[3] = {doubles(&heap, &x), NULL, NULL};
        double want[6];
        run(OP_CROSS_ENTROPY_FORWARD, &f);
        cross_entropy_oracle(&f, in, want);
        for (int i = 0; i < 6; i++)
            cr_assert_float_eq(((double *)f.out[0].data)[i], want[i], 1e-12);
        run(OP_NLL_FORWARD, &f);
        nll_oracle(&f, in, want);
        for (int i = 0; i < 6; i++)
            cr_assert_eq(((double *)f.out[0].data)[i], want[i]);
        f.in[1] = b.in[1] = dy; /* targets */
        double *const pair[3] = {in[0], doubles(&heap, &dy), NULL};
        for (int kind = DISTANCE_SQUARED; kind <= DISTANCE_LOGISTIC; kind++) {
            b.p.loss.distance = f.p.loss.distance = kind;
            run(OP_MSE_BACKWARD, &b);
            check("mse dx", mse_oracle, &f, 0, weight, &dx);
            run(OP_MSE_FORWARD, &f);
            mse_oracle(&f, pair, want);
            for (int i = 0; i < 6; i++) {
                cr_assert_float_eq(((double *)f.out[0].data)[i], want[i], 1e-12);
                cr_assert_eq(((int32_t *)f.out[1].data)[i], 0);
            }
        }
    }
    heap_free(&heap);
}
