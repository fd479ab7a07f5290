/* Measures how fast and how exact the host's kernels are: every op of LeNet (d2l's, batch 256), the
 * ConvNet (batch 128), ResNet-18 (d2l's, batch 32) and a wide mlp (batch 256), on each instruction
 * set of this processor.
 *
 *     math_bench [ISA [WORD]]
 *
 * ISA is avx512, avx2 or generic; the default is all available ones. WORD selects the lines whose
 * name contains it. Each line is the best of several runs and is compared, in the same run, with
 * the peak of a core: a loop of only multiply-adds, and memcpy of as many bytes as an op reads and
 * writes. Data that fits into the caches is timed there. GFLOP/s count the products of the direct
 * formula; 3 x 3 convolutions of many channels need fewer, and so exceed the peak. "error" is the
 * largest difference from the reference divided by the largest value, on a batch of 33. Small
 * differences are rounding, because both orders of a sum are correct; above 1e-4 the bench
 * fails. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/math_peak.h"
#include "bench/math_works.h"
#include "device/op_table.h"

enum { CHECKED_BATCH = 33, RUNS = 15 };
static const double ERROR_MOST = 1e-4;
static const double RUN_SECONDS = 1.0; /* a benchmark is not repeated beyond this time */

/* Which operands the tape keeps in N16: the sum of 1 for in[0], 2 for in[1] and 4 for out[0]. */
static int n16_operands(enum op op) {
    const struct op_row *row = &op_table[op];
    return operand_may_be_n16(&row->in[0]) | operand_may_be_n16(&row->in[1]) << 1 |
           operand_may_be_n16(&row->out[0]) << 2;
}

static void *must(void *p) {
    if (p) return p;
    fprintf(stderr, "math_bench: out of memory\n");
    exit(1);
}

static struct tensor make(enum dtype dtype, int rank, int d0, int d1, int d2, int d3) {
    int dims[4] = {d0, d1, d2, d3};
    struct tensor t = tensor_plain(NULL, dtype, rank, dims);
    t.data = must(aligned_alloc(64, (tensor_bytes(&t) + 127) / 64 * 64));
    memset(t.data, 0, tensor_bytes(&t));
    for (size_t i = 0; dtype == DTYPE_F32 && i < tensor_count(&t); i++)
        tensor_f32(&t)[i] = (float)rand() / (float)RAND_MAX - .5f;
    return t;
}

static struct tensor in_n16(const struct tensor *plain) {
    struct tensor t = tensor_in_n16(plain, NULL);
    t.data = must(aligned_alloc(64, tensor_bytes(&t) + 64));
    struct op_args a = {.in = {*plain}, .out = {t}};
    host_reference_kernels[OP_TO_N16](&a);
    return t;
}

static struct step_block step = {.seed = 1,
                                 .step = 1,
                                 .weight = 1.0f / 256,
                                 .learning_rate = 0.1f,
                                 .adam_rate = 0.2f,
                                 .adam_root = 0.9f};

/* The op's operands in plain layout, filled at random. */
static struct op_args operands(const struct work *w, int batch) {
    int linear = w->op >= OP_LINEAR_FORWARD && w->op <= OP_LINEAR_BACKWARD_WEIGHT;
    int conv = w->op >= OP_CONV2D_FORWARD && w->op <= OP_CONV2D_BACKWARD_WEIGHT;
    int window = conv || (w->op >= OP_AVG_POOL_FORWARD && w->op <= OP_MAX_POOL_BACKWARD);
    int padding = conv ? w->padding : 0, relu = window && !conv && w->padding;
    int p = window ? (w->h + 2 * padding - w->k) / w->stride + 1 : w->h;
    int q = window ? (w->w + 2 * padding - w->k) / w->stride + 1 : w->w;
    int rank = linear || w->h == 1 ? 2 : 4;
    struct tensor x = make(DTYPE_F32, rank, batch, w->c, w->h, w->w);
    struct tensor y = make(DTYPE_F32, rank, batch, w->o ? w->o : w->c, p, q);
    struct tensor weight = linear ? (w->k ? make(DTYPE_F32, 2, w->c, w->o, 1, 1)
                                          : make(DTYPE_F32, 2, w->o, w->c, 1, 1))
                                  : make(DTYPE_F32, 4, w->o, w->c, w->k, w->k);
    struct tensor bias = make(DTYPE_F32, 1, w->o, 1, 1, 1);
    struct op_args a = {.step = &step};
    switch (w->op) {
    case OP_CONV2D_FORWARD:
    case OP_LINEAR_FORWARD: a.in[0] = x, a.in[1] = weight, a.in[2] = bias, a.out[0] = y; break;
    case OP_CONV2D_BACKWARD_DATA:
    case OP_LINEAR_BACKWARD_DATA: a.in[0] = y, a.in[1] = weight, a.out[0] = x; break;
    case OP_CONV2D_BACKWARD_WEIGHT:
    case OP_LINEAR_BACKWARD_WEIGHT:
        a.in[0] = x, a.in[1] = y, a.out[0] = weight, a.out[1] = bias;
        break;
    case OP_AVG_POOL_BACKWARD:
        a.in[0] = y, a.out[0] = x;
        if (relu) a.in[1] = make(DTYPE_F32, 4, batch, w->c, w->h, w->w);
        break;
    case OP_MAX_POOL_BACKWARD:
        a.in[0] = x, a.in[1] = y, a.out[0] = make(DTYPE_F32, 4, batch, w->c, w->h, w->w);
        break;
    case OP_ADAPTIVE_AVG_POOL_FORWARD:
        a.in[0] = x, a.out[0] = make(DTYPE_F32, 4, batch, w->c, 1, 1);
        break;
    case OP_ADAPTIVE_AVG_POOL_BACKWARD:
        a.in[0] = make(DTYPE_F32, 4, batch, w->c, 1, 1), a.out[0] = x;
        break;
    case OP_ADD_FORWARD:
        a.in[0] = x, a.in[1] = y, a.out[0] = make(DTYPE_F32, 4, batch, w->c, w->h, w->w);
        break;
    case OP_BATCH_NORM_MOMENTS: a.in[0] = x, a.out[0] = make(DTYPE_F64, 2, 3, w->c, 1, 1); break;
    case OP_BATCH_NORM_FORWARD:
        a.in[0] = x, a.in[1] = make(DTYPE_F32, 2, 2, w->c, 1, 1), a.out[0] = y;
        break;
    case OP_BATCH_NORM_SUMS:
        a.in[0] = x, a.in[1] = y, a.in[2] = make(DTYPE_F64, 2, 3, w->c, 1, 1);
        a.out[0] = make(DTYPE_F64, 2, 2, w->c, 1, 1);
        break;
    case OP_BATCH_NORM_BACKWARD_DATA:
        a.in[0] = x, a.in[1] = y, a.in[2] = make(DTYPE_F32, 2, 4, w->c, 1, 1), a.out[0] = y;
        break;
    case OP_ACTIVATION_BACKWARD: a.in[0] = x, a.in[1] = y, a.out[0] = y; break;
    case OP_ACTIVATION_FORWARD: a.in[0] = x, a.out[0] = x; break;
    case OP_CROSS_ENTROPY_FORWARD:
    case OP_CROSS_ENTROPY_BACKWARD:
        a.in[0] = x, a.in[1] = make(DTYPE_I32, 1, batch, 1, 1, 1), a.out[0] = y;
        if (w->op == OP_CROSS_ENTROPY_FORWARD)
            a.out[0] = make(DTYPE_F64, 1, batch, 1, 1, 1),
            a.out[1] = make(DTYPE_I32, 1, batch, 1, 1, 1);
        break;
    case OP_ADADELTA:
    case OP_ADAM:
        a.in[0] = x, a.out[0] = y, a.out[1] = make(DTYPE_F32, 2, (int)tensor_count(&y), 2, 1, 1);
        if (w->op == OP_ADAM)
            a.p.adam = (struct adam_args){0, 0, .9, .999, 1e-8};
        else
            a.p.adadelta = (struct adadelta_args){0, .9, 1e-6};
        for (size_t i = 0; i < tensor_count(&a.out[1]); i++) /* means of squares are not negative */
            tensor_f32(&a.out[1])[i] = fabsf(tensor_f32(&a.out[1])[i]);
        break;
    case OP_HASH: a.in[0] = x, a.out[0] = make(DTYPE_U64, 2, 1, 1, 1, 1); break;
    default: a.in[0] = x, a.out[0] = y;
    }
    if (conv)
        a.p.conv = conv_square(w->stride, padding);
    else if (linear)
        a.p.linear.weight_is_in_out = w->k;
    else if (window)
        a.p.pool = (struct pool_args){
            .size = {w->k, w->k}, .stride = {w->stride, w->stride}, .relu = relu};
    else if (w->op == OP_DROPOUT)
        a.p.dropout = (struct dropout_args){.p = .25f, .planes = rank == 4};
    return a;
}

static void release(struct op_args *a, const struct op_args *keep) {
    struct tensor *all[5] = {&a->in[0], &a->in[1], &a->in[2], &a->out[0], &a->out[1]};
    const struct tensor *kept[5] = {0};
    if (keep)
        kept[0] = &keep->in[0], kept[1] = &keep->in[1], kept[2] = &keep->in[2],
        kept[3] = &keep->out[0], kept[4] = &keep->out[1];
    for (int i = 0; i < 5; i++) {
        int shared = 0;
        for (int j = 0; j < i; j++)
            shared |= all[j]->data == all[i]->data;
        for (int j = 0; j < 5; j++)
            shared |= kept[j] && kept[j]->data == all[i]->data;
        if (!shared) free(all[i]->data);
    }
    free(a->scratch);
}

static int is_update(enum op op) {
    return op == OP_SGD || op == OP_ADADELTA || op == OP_ADAM;
}

static void *copied(const struct tensor *t) {
    void *copy = must(aligned_alloc(64, (tensor_bytes(t) + 127) / 64 * 64));
    return memcpy(copy, t->data, tensor_bytes(t));
}

/* The same operands in the layouts of the fast path, with outputs in their own memory. */
static struct op_args fast_operands(const struct op_args *plain, enum op op) {
    struct op_args a = *plain;
    int n16 = n16_operands(op);
    int in_place = a.out[0].data == a.in[0].data ? 0 : a.out[0].data == a.in[1].data ? 1 : -1;
    for (int i = 0; i < 2; i++)
        if (n16 & 1 << i && plain->in[i].data) a.in[i] = in_n16(&plain->in[i]);
    if (in_place >= 0)
        a.out[0] = a.in[in_place];
    else if (n16 & 4)
        a.out[0] = in_n16(&plain->out[0]);
    else
        a.out[0].data = copied(&plain->out[0]);
    if (is_update(op) && a.out[1].data) a.out[1].data = copied(&plain->out[1]);
    size_t scratch = host_scratch_bytes(op, &a);
    if (scratch) a.scratch = must(aligned_alloc(64, (scratch + 63) / 64 * 64));
    return a;
}

static double number(const struct tensor *t, size_t i) {
    return t->dtype == DTYPE_F64 ? ((double *)t->data)[i] : (double)tensor_f32(t)[i];
}

/* out[0]'s largest difference from the reference over its largest value, on a small batch. */
static double error_of(const struct work *w, host_kernel *kernel) {
    int elementwise = is_update(w->op) || w->op == OP_HASH;
    struct op_args plain = operands(w, elementwise ? w->batch : CHECKED_BATCH),
                   fast = fast_operands(&plain, w->op);
    int n16 = n16_operands(w->op);
    kernel(&fast);
    if (w->op == OP_TO_N16 || w->op == OP_TO_PLAIN) /* only the layout changes */
        memcpy(plain.out[0].data, plain.in[0].data, tensor_bytes(&plain.in[0]));
    else
        host_reference_kernels[w->op](&plain);
    struct tensor got = plain.out[0];
    got.data = must(calloc(1, tensor_bytes(&got) + 1));
    if (n16 & 4)
        host_reference_kernels[OP_TO_PLAIN](&(struct op_args){.in = {fast.out[0]}, .out = {got}});
    else
        memcpy(got.data, fast.out[0].data, tensor_bytes(&got));
    double most = 0, error = 0;
    if (got.dtype == DTYPE_F32 || got.dtype == DTYPE_F64)
        for (size_t i = 0; i < tensor_count(&got); i++) {
            double want = number(&plain.out[0], i), off = fabs(number(&got, i) - want);
            if (fabs(want) > most) most = fabs(want);
            if (!(off <= error)) error = off;
        }
    else
        error = memcmp(got.data, plain.out[0].data, tensor_bytes(&got)) != 0;
    free(got.data);
    release(&fast, &plain);
    release(&plain, NULL);
    return most > 0 ? error / most : error;
}

static double seconds_of(const struct work *w, host_kernel *kernel, double *bytes) {
    struct op_args plain = operands(w, w->batch), a = fast_operands(&plain, w->op);
    double best = 1e9;
    int64_t stop = deadline_after(RUN_SECONDS);
    for (int i = 0; i < RUNS && (i < 3 || now_ns() < stop); i++) {
        int64_t begin = busy_ns();
        kernel(&a);
        double seconds = (double)(busy_ns() - begin) * 1e-9;
        if (seconds < best) best = seconds;
    }
    *bytes = 0;
    for (int i = 0; i < 3; i++)
        *bytes += a.in[i].data ? (double)tensor_bytes(&a.in[i]) : 0;
    for (int i = 0; i < 2; i++)
        *bytes += a.out[i].data ? (double)tensor_bytes(&a.out[i]) : 0;
    for (int i = 0; i < 2 && is_update(w->op); i++) /* updates read their outputs too */
        *bytes += a.out[i].data ? (double)tensor_bytes(&a.out[i]) : 0;
    release(&a, &plain);
    release(&plain, NULL);
    return best;
}

static double flops_of(const struct work *w) {
    if (w->op >= OP_LINEAR_FORWARD && w->op <= OP_LINEAR_BACKWARD_WEIGHT)
        return 2.0 * w->batch * w->c * w->o;
    if (w->op < OP_CONV2D_FORWARD || w->op > OP_CONV2D_BACKWARD_WEIGHT) return 0;
    double p = (w->h + 2 * w->padding - w->k) / w->stride + 1,
           q = (w->w + 2 * w->padding - w->k) / w->stride + 1;
    return 2.0 * w->batch * w->o * p * q * w->c * w->k * w->k;
}

/* Bytes per second, read and written, of a memcpy that moves as many as `bytes` in all. */
static double copy_rate(double bytes) {
    size_t half = (size_t)bytes / 2 + 1;
    char *from = must(malloc(half)), *to = must(malloc(half));
    memset(from, 1, half);
    memset(to, 1, half);
    int64_t least = INT64_MAX;
    for (int i = 0; i < RUNS; i++) {
        int64_t begin = busy_ns();
        memcpy(to, from, half);
        if (busy_ns() - begin < least) least = busy_ns() - begin;
    }
    free(from);
    free(to);
    return 2e9 * (double)half / (double)(least > 0 ? least : 1);
}

static void print_ceiling(const char *isa) {
    printf("%s: peak %.0f GFLOP/s in registers, memcpy of 14 MiB %.0f GB/s read and written\n", isa,
           peak_of(isa), copy_rate(2.0 * (14 << 20)) * 1e-9);
    printf("%-40s %10s %10s %8s %8s %10s\n", "op", "ms", "GFLOP/s", "GB/s", "memcpy", "error");
}

/* A line of the table. Ops that only move data are compared with memcpy, unless they are tiny. */
static void print_line(const struct work *w, double seconds, double bytes, double error) {
    char copy[16] = "";
    if (flops_of(w) == 0 && bytes > 1 << 16)
        snprintf(copy, sizeof copy, "%.1f", copy_rate(bytes) * 1e-9);
    printf("%-40s %10.3f %10.1f %8.1f %8s %10.1e%s\n", w->name, seconds * 1e3,
           flops_of(w) / seconds * 1e-9, bytes / seconds * 1e-9, copy, error,
           error <= ERROR_MOST ? "" : "  WRONG");
    fflush(stdout);
}

int main(int argc, char **argv) {
    static const char *const isas[] = {"avx512", "avx2", "generic"};
    int failed = 0;
    if (argc > 1 && !host_fast_kernel(OP_ADD_FORWARD, argv[1])) {
        fprintf(stderr, "math_bench: %s: no kernels here: give avx512, avx2 or generic\n", argv[1]);
        return 2;
    }
    for (int i = 0; i < 3; i++) {
        if (argc > 1 ? strcmp(argv[1], isas[i]) != 0 : i == 2)
            continue; /* generic is slow, so it runs only when asked for */
        if (!host_fast_kernel(OP_ADD_FORWARD, isas[i])) continue;
        print_ceiling(isas[i]);
        double lenet = 0;
        for (size_t j = 0; j < sizeof works / sizeof *works; j++) {
            const struct work *w = &works[j];
            if (argc > 2 && !strstr(w->name, argv[2])) continue;
            host_kernel *kernel = host_fast_kernel(w->op, isas[i]);
            if (!kernel) kernel = host_reference_kernels[w->op];
            double bytes, seconds = seconds_of(w, kernel, &bytes), error = error_of(w, kernel);
            print_line(w, seconds, bytes, error);
            failed |= !(error <= ERROR_MOST);
            if (strncmp(w->name, "lenet", 5) == 0) lenet += seconds;
        }
        if (argc <= 2) printf("%-40s %10.3f\n\n", "lenet, all kernels of a step", lenet * 1e3);
    }
    return failed;
}
